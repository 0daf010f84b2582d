// SPDX-License-Identifier: Apache-2.0
/*
 * Talks to the process of a live fabric (fabric.h). Each attached adapter has two connections: one
 * for calls, which come with the page, and one for news. src/verbena/subnet_process/messages.py has
 * the hello and the welcome, and port_page.py the other messages.
 */
#include "port/fabric.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "hca/adapter_port.h"
#include "memory/descriptor.h"
#include "port/address.h"

enum {
    MAGIC = 0x56624661,
    VERSION = 1,
    ROLE_PAGE = 7,
    PATIENCE_SECONDS = 2,
    ASK = 1,
    RELEASE,
    READ_TRIES = 1 << 20
};
enum fabric_connection { FOR_CALLS, FOR_NEWS, FOR_A_LOOK };

struct fabric_hello {
    uint32_t magic, version, role, number;
    uint64_t inode;
    char host[64];
};

struct fabric_welcome {
    uint32_t magic, version;
    int32_t error;
    uint32_t length;
    union {
        char sentence[VB_FABRIC_SENTENCE];
        struct {
            uint64_t guid, size;
            uint64_t ports, flows, members; /* offsets in the page: the host's first port, … */
            uint32_t port_count, reserved;
            struct vb_fabric_port port[VB_MAX_PORTS];
        };
    };
};

struct fabric_call {
    uint32_t type, sequence;
    uint64_t flow; /* offset in the page; 0: there is none */
    struct vb_fabric_way way;
};

struct fabric_answer {
    uint32_t sequence, reserved;
    uint64_t flow; /* as in a call */
};

struct fabric_news {
    uint32_t port;
    int32_t event;
};

/* ---- connections ---- */

static void fabric_limit_waits(int fd, int seconds)
{
    struct timeval limit = {.tv_sec = seconds};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static bool fabric_is_own(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

static int fabric_reach(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                          "verbena/fabric/%u/%s", (unsigned)geteuid(), name);
    int fd = vb_memory_descriptor_raise(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), error;

    if (fd < 0)
        return -errno;
    fabric_limit_waits(fd, PATIENCE_SECONDS);
    if (connect(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0 &&
        fabric_is_own(fd))
        return fd;
    error = errno ? -errno : -EACCES;
    close(fd);
    return error;
}

static ssize_t fabric_receive(int fd, void *message, size_t size, int *page_fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {message, size};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control)};
    ssize_t length;

    do
        length = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
    while (length < 0 && errno == EINTR);
    if (length >= 0 && CMSG_FIRSTHDR(&header) && CMSG_FIRSTHDR(&header)->cmsg_type == SCM_RIGHTS) {
        memcpy(page_fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(*page_fd));
        *page_fd = vb_memory_descriptor_raise(*page_fd);
    }
    return length;
}

static int fabric_hello(int fd, enum fabric_connection use, const char *host,
                        struct fabric_welcome *welcome, int *page_fd)
{
    struct fabric_hello hello = {
        .magic = MAGIC, .version = VERSION, .role = ROLE_PAGE, .number = use};
    ssize_t length;

    strncpy(hello.host, host, sizeof(hello.host) - 1);
    if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != (ssize_t)sizeof(hello))
        return -errno;
    length = fabric_receive(fd, welcome, sizeof(*welcome), page_fd);
    if (length < (ssize_t)offsetof(struct fabric_welcome, sentence))
        return length < 0 ? -errno : -ECONNRESET;
    if (welcome->magic != MAGIC || welcome->version != VERSION)
        return -EPROTONOSUPPORT;
    if (welcome->error)
        welcome->sentence[VB_FABRIC_SENTENCE - 1] = '\0';
    return welcome->error;
}

/* The descriptor, or -errno with a sentence. */
static int fabric_join(enum fabric_connection use, struct fabric_welcome *welcome, int *page_fd,
                       char sentence[VB_FABRIC_SENTENCE])
{
    const char *name = getenv("VERBENA_FABRIC"), *host = getenv("VERBENA_HOST");
    int fd, error;

    memset(welcome, 0, sizeof(*welcome));
    fd = fabric_reach(name ? name : "");
    error = fd < 0 ? fd : fabric_hello(fd, use, host ? host : "", welcome, page_fd);
    if (!error)
        return fd;
    if (error == -EAGAIN)
        error = -ETIMEDOUT;
    if (welcome->error && welcome->sentence[0])
        memcpy(sentence, welcome->sentence, VB_FABRIC_SENTENCE);
    else
        snprintf(sentence, VB_FABRIC_SENTENCE,
                 "the fabric %.60s does not answer (%s): `verbena fabric --list` shows those that "
                 "run, and `verbena fabric TOPOLOGY --name %.60s` starts it",
                 name ? name : "", strerror(-error), name ? name : "");
    if (fd >= 0)
        close(fd);
    return error;
}

static int fabric_map(struct vb_fabric *fabric, int page_fd, const struct fabric_welcome *welcome)
{
    void *page = page_fd < 0
                     ? MAP_FAILED
                     : mmap(NULL, welcome->size, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);

    if (page_fd >= 0)
        close(page_fd);
    if (page == MAP_FAILED)
        return -ENOMEM;
    fabric->page = page;
    fabric->size = welcome->size;
    fabric->ports = (struct vb_fabric_port *)(fabric->page + welcome->ports);
    fabric->flows = (struct vb_fabric_flow *)(fabric->page + welcome->flows);
    fabric->members = fabric->page + welcome->members;
    fabric->port_count = welcome->port_count;
    fabric->guid = welcome->guid;
    return 0;
}

int vb_port_fabric_open(struct vb_fabric **fabric, char sentence[VB_FABRIC_SENTENCE])
{
    struct vb_fabric *made = calloc(1, sizeof(*made));
    struct fabric_welcome welcome;
    int page_fd = -1, error = 0;

    if (!made)
        return -ENOMEM;
    vb_lock_init(&made->mutex, VB_RANK_FABRIC);
    made->news_fd = made->calls_fd = fabric_join(FOR_CALLS, &welcome, &page_fd, sentence);
    error = made->calls_fd < 0 ? made->calls_fd : fabric_map(made, page_fd, &welcome);
    if (!error)
        made->news_fd = error = fabric_join(FOR_NEWS, &welcome, &page_fd, sentence);
    if (error < 0) {
        vb_port_fabric_close(made);
        return error;
    }
    *fabric = made;
    return 0;
}

void vb_port_fabric_abandon(struct vb_fabric *fabric)
{
    if (fabric->news_fd != fabric->calls_fd)
        close(fabric->news_fd);
    if (fabric->calls_fd >= 0)
        close(fabric->calls_fd);
}

void vb_port_fabric_close(struct vb_fabric *fabric)
{
    vb_port_fabric_abandon(fabric);
    if (fabric->page)
        munmap(fabric->page, fabric->size);
    vb_lock_destroy(&fabric->mutex);
    free(fabric);
}

int vb_port_fabric_look(struct vb_port_settings *device, char sentence[VB_FABRIC_SENTENCE])
{
    struct fabric_welcome welcome;
    int page_fd = -1, fd = fabric_join(FOR_A_LOOK, &welcome, &page_fd, sentence);

    if (fd < 0)
        return fd;
    close(fd);
    *device = (struct vb_port_settings){.guid = welcome.guid, .count = (uint8_t)welcome.port_count};
    for (uint32_t i = 0; i < device->count && i < VB_MAX_PORTS; ++i) {
        device->port[i].infiniband = true;
        device->port[i].lid = welcome.port[i].attr.lid;
        device->port[i].lmc = welcome.port[i].attr.lmc;
        memcpy(device->port[i].pkeys, welcome.port[i].pkeys, sizeof(device->port[i].pkeys));
    }
    return 0;
}

/* ---- ports ---- */

void vb_port_fabric_read(const struct vb_fabric_port *record, struct vb_fabric_port *copy)
{
    uint32_t before;
    int tries = 0;

    do { /* a process that ended amid its writing leaves the number odd */
        before = atomic_load_explicit(&record->generation, memory_order_acquire);
        memcpy(copy, record, sizeof(*copy));
        atomic_thread_fence(memory_order_acquire);
    } while ((before & 1 || before != atomic_load(&record->generation)) && ++tries < READ_TRIES);
}

int vb_port_fabric_update(struct vb_adapter_port *port)
{
    struct vb_gid table[VB_FABRIC_GIDS] = {0};
    struct vb_fabric_port now;
    int count;

    vb_port_fabric_read(port->in_fabric, &now);
    count = now.attr.gid_tbl_len < VB_FABRIC_GIDS ? now.attr.gid_tbl_len : VB_FABRIC_GIDS;
    for (int i = 0; i < count; ++i)
        memcpy(table[i].raw, now.gids[i], sizeof(table[i].raw));
    memcpy(port->pkeys, now.pkeys, sizeof(port->pkeys));
    port->lid = now.attr.lid;
    port->lmc = now.attr.lmc;
    if (!port->addresses)
        return vb_port_addresses_fixed(table, count, (uint16_t)(128 << now.attr.active_mtu),
                                       &port->addresses);
    vb_port_addresses_set(port->addresses, table, count, (uint16_t)(128 << now.attr.active_mtu));
    return 0;
}

/* ---- calls ---- */

static time_t fabric_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec;
}

/* The answer to an earlier call, which was not waited for, may come first. A process that did not
 * answer is not asked again at once. */
static bool fabric_call(struct vb_fabric *fabric, struct fabric_call *call,
                        struct fabric_answer *answer)
{
    ssize_t length = 0;

    vb_lock_take(&fabric->mutex);
    call->sequence = ++fabric->sequence;
    answer->sequence = 0;
    if (fabric_seconds() >= fabric->silent_until &&
        send(fabric->calls_fd, call, sizeof(*call), MSG_NOSIGNAL) == (ssize_t)sizeof(*call))
        do
            length = recv(fabric->calls_fd, answer, sizeof(*answer), 0);
        while ((length < 0 && errno == EINTR) ||
               (length == (ssize_t)sizeof(*answer) && answer->sequence != call->sequence));
    if (length < 0)
        fabric->silent_until = fabric_seconds() + PATIENCE_SECONDS;
    vb_lock_release(&fabric->mutex);
    return length == (ssize_t)sizeof(*answer);
}

struct vb_fabric_flow *vb_port_fabric_ask(struct vb_fabric *fabric, const struct vb_fabric_way *way)
{
    struct fabric_call call = {.type = ASK, .way = *way};
    struct fabric_answer answer;

    if (!fabric_call(fabric, &call, &answer) || !answer.flow ||
        answer.flow > fabric->size - sizeof(struct vb_fabric_flow))
        return NULL;
    return (struct vb_fabric_flow *)(fabric->page + answer.flow);
}

void vb_port_fabric_release(struct vb_fabric *fabric, const struct vb_fabric_flow *flow)
{
    struct fabric_call call = {.type = RELEASE,
                               .flow = (uint64_t)((const uint8_t *)flow - fabric->page)};

    vb_lock_take(&fabric->mutex);
    send(fabric->calls_fd, &call, sizeof(call), MSG_NOSIGNAL);
    vb_lock_release(&fabric->mutex);
}

/* ---- news ---- */

/* The page outlives the process, and each program marks in it that nothing moves any more. */
static void fabric_end(struct vb_fabric *fabric)
{
    /* The line before the flows has the number of those that were ever used. */
    uint32_t count = *(const uint32_t *)((const uint8_t *)fabric->flows - VB_LINE);
    struct vb_fabric_flow *flow = fabric->flows;

    for (uint32_t i = 0; i < count && (const uint8_t *)flow < fabric->members; ++i, ++flow) {
        atomic_store(&flow->reached, 0);
        strcpy(flow->sentence, "the process of the fabric has ended");
    }
    for (uint32_t i = 0; i < fabric->port_count; ++i) {
        fabric->ports[i].attr.state = IBV_PORT_DOWN;
        fabric->ports[i].attr.phys_state = 2; /* Polling */
    }
}

int vb_port_fabric_news(struct vb_fabric *fabric, uint32_t *port, int *event)
{
    struct fabric_news news;
    ssize_t length = recv(fabric->news_fd, &news, sizeof(news), MSG_DONTWAIT);

    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    if (length != (ssize_t)sizeof(news)) {
        fabric_end(fabric);
        return -EPIPE;
    }
    *port = news.port;
    *event = news.event;
    return 0;
}
