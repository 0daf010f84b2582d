// SPDX-License-Identifier: Apache-2.0
/*
 * Talks to the process of a live fabric (fabric.h). Each attached adapter has two connections: one
 * for calls, which come with the page, and one for news. src/verbena/subnet_process/port_page.py
 * has the messages.
 */
#include "port/fabric.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "hca/adapter_port.h"
#include "memory/descriptor.h"
#include "port/address.h"
#include "port/fabric_question.h"

enum { PATIENCE_SECONDS = 2, ASK = 1, RELEASE, READ_TRIES = 1 << 20 };
enum fabric_connection { FOR_CALLS, FOR_NEWS, FOR_A_LOOK };

union fabric_welcome {
    char sentence[VB_FABRIC_SENTENCE];
    struct {
        uint64_t guid, size;
        uint64_t ports, flows, members, meters; /* offsets in the page: the host's first port, … */
        uint32_t port_count, meter_count;
        struct vb_fabric_port port[VB_MAX_PORTS];
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

/* The descriptor, or -errno with a sentence. */
static int fabric_join(enum fabric_connection use, union fabric_welcome *welcome, int *page_fd,
                       char sentence[VB_FABRIC_SENTENCE])
{
    struct vb_fabric_question question = {.role = VB_FABRIC_PAGE, .number = use, .attached = -1};
    struct vb_fabric_reply reply = {.data = welcome, .room = sizeof(*welcome), .fd = -1};
    int fd = vb_port_fabric_reach(SOCK_CLOEXEC, PATIENCE_SECONDS), error = fd;

    memset(welcome, 0, sizeof(*welcome));
    if (fd >= 0)
        error = vb_port_fabric_greet(fd, &question, &reply);
    *page_fd = reply.fd;
    if (!error)
        return fd;
    if (reply.length)
        snprintf(sentence, VB_FABRIC_SENTENCE, "%.*s", (int)reply.length, welcome->sentence);
    else
        vb_port_fabric_explain(error, sentence, VB_FABRIC_SENTENCE);
    if (fd >= 0)
        close(fd);
    return error;
}

static int fabric_map(struct vb_fabric *fabric, int page_fd, const union fabric_welcome *welcome)
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
    fabric->meters = (struct vb_fabric_meter *)(fabric->page + welcome->meters);
    fabric->meter_count = welcome->meter_count;
    fabric->port_count = welcome->port_count;
    fabric->guid = welcome->guid;
    return 0;
}

int vb_port_fabric_open(struct vb_fabric **fabric, char sentence[VB_FABRIC_SENTENCE])
{
    struct vb_fabric *made = calloc(1, sizeof(*made));
    union fabric_welcome welcome;
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
    union fabric_welcome welcome;
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
