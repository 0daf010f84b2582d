// SPDX-License-Identifier: Apache-2.0
#include "port/roce/forward.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "memory/descriptor.h"
#include "port/direct/handshake.h"

enum {
    OUTGOING = 64,         /* owners that are remembered */
    ABSENT_MS = 20,        /* how long a slot without an owner is not asked for again… */
    ASKED_MOST = 64,       /* …and how many slots are asked for in that time */
    LARGEST = 8192,        /* a packet with any headers */
    MESSAGES_AT_ONCE = 64, /* from one link, before another's turn */
    BUFFER_BYTES = 4 << 20,
};

struct letter {
    uint8_t sgid[16], dgid[16];
    uint32_t flow_label;
    uint8_t traffic_class, hop_limit;
    uint8_t reserved[2];
};

/* Where packets come in: a listening socket, or one that was accepted. */
struct entrance {
    struct entrance *next;
    int fd;
    bool listens;
};

struct outlet {
    uint32_t slot;
    int fd; /* -1: unused */
};

struct vb_forward {
    uint16_t port;
    vb_forwarded_fn *deliver;
    void *argument;
    int epoll_fd;
    int spare_fd; /* given up to refuse a connection when there are no descriptors */
    struct entrance *entrances;
    struct outlet outlets[OUTGOING];
    uint64_t absent_until[VB_SLOTS];
    uint64_t asked_until; /* `asked` counts until then */
    uint32_t asked;
    uint8_t buffer[sizeof(struct letter) + LARGEST];
};

static socklen_t name_of(uint16_t port, uint32_t slot, struct sockaddr_un *address)
{
    int length;

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "verbena/roce/%u/%03x",
                      port, slot);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int new_socket(void)
{
    int fd = vb_descriptor_raise(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

    return fd < 0 ? -errno : fd;
}

/* ---- in ---- */

static int add_entrance(struct vb_forward *forward, int fd, bool listens)
{
    struct entrance *made = calloc(1, sizeof(*made));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = made};

    if (!made)
        return -ENOMEM;
    made->fd = fd;
    made->listens = listens;
    if (epoll_ctl(forward->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
        int error = -errno;
        free(made);
        return error;
    }
    made->next = forward->entrances;
    forward->entrances = made;
    return 0;
}

static void end_entrance(struct vb_forward *forward, struct entrance *ended)
{
    struct entrance **at = &forward->entrances;

    while (*at && *at != ended)
        at = &(*at)->next;
    if (*at)
        *at = ended->next;
    epoll_ctl(forward->epoll_fd, EPOLL_CTL_DEL, ended->fd, NULL);
    close(ended->fd);
    free(ended);
}

int vb_forward_accept(struct vb_forward *forward, uint32_t slot)
{
    struct sockaddr_un address;
    socklen_t length = name_of(forward->port, slot, &address);
    int fd = new_socket(), error = 0;

    if (fd < 0)
        return fd;
    if (bind(fd, (struct sockaddr *)&address, length) || listen(fd, 128))
        error = -errno;
    if (!error)
        error = add_entrance(forward, fd, true);
    if (error)
        close(fd);
    return error;
}

static int open_spare(void)
{
    return vb_descriptor_raise(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

/* Without a descriptor for it a connection stays in the queue and the queue readable, for ever. */
static void refuse(struct vb_forward *forward, const struct entrance *listener)
{
    if (forward->spare_fd >= 0)
        close(forward->spare_fd);
    close(vb_descriptor_raise(accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC)));
    forward->spare_fd = open_spare();
}

/* Another user's process could give packets any source. */
static void admit(struct vb_forward *forward, const struct entrance *listener)
{
    int fd = vb_descriptor_raise(accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        refuse(forward, listener);
    if (fd >= 0 && (vb_check_user(fd) || add_entrance(forward, fd, false)))
        close(fd);
}

static void deliver(struct vb_forward *forward, size_t length, uint64_t now)
{
    struct letter letter;
    struct vb_arrival arrival = {.bytes = forward->buffer + sizeof(letter)};

    memcpy(&letter, forward->buffer, sizeof(letter));
    memcpy(arrival.sgid, letter.sgid, sizeof(letter.sgid));
    memcpy(arrival.dgid, letter.dgid, sizeof(letter.dgid));
    arrival.flow_label = letter.flow_label;
    arrival.traffic_class = letter.traffic_class;
    arrival.hop_limit = letter.hop_limit;
    arrival.length = (uint32_t)(length - sizeof(letter));
    forward->deliver(forward->argument, &arrival, now);
}

static void take_messages(struct vb_forward *forward, struct entrance *link, uint64_t now)
{
    for (int i = 0; i < MESSAGES_AT_ONCE; ++i) {
        ssize_t length = recv(link->fd, forward->buffer, sizeof(forward->buffer), MSG_DONTWAIT);

        if (length < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (length <= 0) {
            end_entrance(forward, link);
            return;
        }
        if ((size_t)length >= sizeof(struct letter) + VB_BTH)
            deliver(forward, (size_t)length, now);
    }
}

/* ---- out ---- */

static int connect_to(struct vb_forward *forward, uint32_t slot)
{
    struct sockaddr_un address;
    socklen_t length = name_of(forward->port, slot, &address);
    int fd = new_socket(), bytes = BUFFER_BYTES, error = 0;

    if (fd < 0)
        return -EAGAIN; /* no descriptors now */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    if (connect(fd, (struct sockaddr *)&address, length))
        error = errno == ECONNREFUSED ? -ENOENT : -EAGAIN;
    else if (vb_check_user(fd))
        error = -EACCES;
    if (!error)
        return fd;
    close(fd);
    return error;
}

static void close_outlet(struct vb_forward *forward, struct outlet *outlet)
{
    if (outlet->fd < 0)
        return;
    epoll_ctl(forward->epoll_fd, EPOLL_CTL_DEL, outlet->fd, NULL);
    close(outlet->fd);
    outlet->fd = -1;
}

/* EPOLLHUP needs no asking for: the owner has ended. Without it a send finds out, or reuse. */
static void watch_outlet(struct vb_forward *forward, struct outlet *outlet)
{
    struct epoll_event event = {.data.ptr = outlet};

    epoll_ctl(forward->epoll_fd, EPOLL_CTL_ADD, outlet->fd, &event);
}

static bool is_outlet(const struct vb_forward *forward, const void *pointer)
{
    return (const struct outlet *)pointer >= forward->outlets &&
           (const struct outlet *)pointer < forward->outlets + OUTGOING;
}

/* Who sends to all slots in turn must not have this process look for all of them. */
static bool may_ask(struct vb_forward *forward, uint64_t now)
{
    if (now >= forward->asked_until) {
        forward->asked_until = now + ABSENT_MS * 1000000ull;
        forward->asked = 0;
    }
    return forward->asked++ < ASKED_MOST;
}

static int find_outlet(struct vb_forward *forward, uint32_t slot, uint64_t now,
                       struct outlet **found)
{
    struct outlet *outlet = &forward->outlets[slot % OUTGOING];
    int fd;

    *found = outlet;
    if (outlet->fd >= 0 && outlet->slot == slot)
        return 0;
    if (now < forward->absent_until[slot])
        return -ENOENT;
    if (!may_ask(forward, now))
        return -EAGAIN;
    fd = connect_to(forward, slot);
    if (fd == -ENOENT || fd == -EACCES)
        forward->absent_until[slot] = now + ABSENT_MS * 1000000ull;
    if (fd < 0)
        return fd;
    close_outlet(forward, outlet);
    *outlet = (struct outlet){slot, fd};
    watch_outlet(forward, outlet);
    return 0;
}

static int send_letter(int fd, const struct vb_arrival *arrival)
{
    struct letter letter = {.flow_label = arrival->flow_label,
                            .traffic_class = arrival->traffic_class,
                            .hop_limit = arrival->hop_limit};
    struct iovec parts[2] = {{&letter, sizeof(letter)},
                             {(void *)(uintptr_t)arrival->bytes, arrival->length}};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = 2};

    memcpy(letter.sgid, arrival->sgid, sizeof(letter.sgid));
    memcpy(letter.dgid, arrival->dgid, sizeof(letter.dgid));
    return sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int vb_forward_send(struct vb_forward *forward, uint32_t slot, const struct vb_arrival *arrival,
                    uint64_t now)
{
    struct outlet *outlet;
    int error;

    if (arrival->length > LARGEST)
        return -ENOENT;
    /* An owner may have gone and another process may have its slot by now: ask once more. */
    for (int i = 0; i < 2; ++i) {
        error = find_outlet(forward, slot, now, &outlet);
        if (error)
            return error;
        error = send_letter(outlet->fd, arrival);
        if (error == 0 || error == -EAGAIN || error == -ENOBUFS || error == -EINTR)
            return error ? -EAGAIN : 0;
        close_outlet(forward, outlet);
    }
    return -ENOENT;
}

/* ---- both ---- */

void vb_forward_serve(struct vb_forward *forward, uint64_t now)
{
    struct epoll_event events[16];
    int count = epoll_wait(forward->epoll_fd, events, 16, 0);

    for (int i = 0; i < count; ++i) {
        void *end = events[i].data.ptr;

        if (is_outlet(forward, end))
            close_outlet(forward, end);
        else if (((struct entrance *)end)->listens)
            admit(forward, end);
        else
            take_messages(forward, end, now);
    }
}

/* ---- open and close ---- */

static void close_some(int fd)
{
    if (fd >= 0)
        close(fd);
}

void vb_forward_close(struct vb_forward *forward)
{
    while (forward->entrances)
        end_entrance(forward, forward->entrances);
    for (int i = 0; i < OUTGOING; ++i)
        close_outlet(forward, &forward->outlets[i]);
    close_some(forward->epoll_fd);
    close_some(forward->spare_fd);
    free(forward);
}

void vb_forward_abandon(struct vb_forward *forward)
{
    for (struct entrance *each = forward->entrances; each; each = each->next)
        close(each->fd);
    for (int i = 0; i < OUTGOING; ++i)
        close_some(forward->outlets[i].fd);
    close_some(forward->epoll_fd);
    close_some(forward->spare_fd);
}

int vb_forward_open(uint16_t port, vb_forwarded_fn *deliver, void *argument,
                    struct vb_forward **forward)
{
    struct vb_forward *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    made->port = port;
    made->deliver = deliver;
    made->argument = argument;
    for (int i = 0; i < OUTGOING; ++i)
        made->outlets[i].fd = -1;
    made->epoll_fd = vb_descriptor_raise(epoll_create1(EPOLL_CLOEXEC));
    made->spare_fd = open_spare();
    if (made->epoll_fd < 0 || made->spare_fd < 0) {
        int error = -errno;
        vb_forward_close(made);
        return error;
    }
    *forward = made;
    return 0;
}

int vb_forward_fd(const struct vb_forward *forward)
{
    return forward->epoll_fd;
}
