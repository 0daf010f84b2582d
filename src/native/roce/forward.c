// SPDX-License-Identifier: Apache-2.0
/*
 * Packets for other processes of this host, out to their owners and in from those who got ours.
 * reuseport.c calls it under the port's lock. A packet that waits is kept in order, and what is
 * kept is bounded.
 */
#include "roce/forward.h"

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

#include "direct/user.h"
#include "memory/descriptor.h"
#include "roce/forward_queue.h"

enum {
    OUTGOING = 256,         /* owners for which there is a queue */
    LARGEST = 8192,         /* bytes of a packet, with any headers */
    MESSAGES_AT_ONCE = 64,  /* taken from one connection before the next one's turn */
    BUFFER_BYTES = 4 << 20, /* of a connection's send buffer, if the system allows so many */
    KEPT_FOR_ONE = 16 << 20,
    KEPT_FOR_ALL = 64 << 20,
    RETRY_NS = 2000000, /* until an owner that cannot be reached is tried again; doubled each time
                           up to LONGEST_NS */
    LONGEST_NS = 64000000,
};

static const uint64_t never = UINT64_MAX;

/* A socket for packets that others forward to this process: one that listens, or a connection. */
struct inbound {
    struct inbound *next;
    int fd;
    bool listens;
};

struct vb_forward {
    uint16_t port;
    vb_forwarded_fn *deliver;
    void *argument;
    int epoll_fd;
    int spare_fd; /* closed for a moment to accept a connection when no descriptor is left */
    struct inbound *inbounds;
    struct vb_forward_queue queues[OUTGOING];
    uint16_t
        places[VB_SLOTS]; /* of each slot's queue in `queues`, counted from 1; 0: it has none */
    int next_fd; /* a socket that is not connected yet, kept for the next connection; or -1 */
    uint64_t sends;
    uint64_t retry_at; /* when queues with packets and no connection are tried again; `never`: there
                          are none */
    uint64_t pause;
    uint8_t buffer[sizeof(struct vb_forward_header) + LARGEST];
};

static socklen_t forward_name_of(uint16_t port, uint32_t slot, struct sockaddr_un *address)
{
    int length;

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "verbena/roce/%u/%03x",
                      port, slot);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int forward_new_socket(void)
{
    int fd = vb_memory_descriptor_raise(
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

    return fd < 0 ? -errno : fd;
}

/* ---- in ---- */

static int add_inbound(struct vb_forward *forward, int fd, bool listens)
{
    struct inbound *made = calloc(1, sizeof(*made));
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
    made->next = forward->inbounds;
    forward->inbounds = made;
    return 0;
}

static void end_inbound(struct vb_forward *forward, struct inbound *ended)
{
    struct inbound **at = &forward->inbounds;

    while (*at && *at != ended)
        at = &(*at)->next;
    if (*at)
        *at = ended->next;
    epoll_ctl(forward->epoll_fd, EPOLL_CTL_DEL, ended->fd, NULL);
    close(ended->fd);
    free(ended);
}

int vb_roce_forward_accept(struct vb_forward *forward, uint32_t slot)
{
    struct sockaddr_un address;
    socklen_t length = forward_name_of(forward->port, slot, &address);
    int fd = forward_new_socket(), error = 0;

    if (fd < 0)
        return fd;
    if (bind(fd, (struct sockaddr *)&address, length) || listen(fd, 128))
        error = -errno;
    if (!error)
        error = add_inbound(forward, fd, true);
    if (error)
        close(fd);
    return error;
}

static int forward_open_spare(void)
{
    return vb_memory_descriptor_raise(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

static void forward_deliver(struct vb_forward *forward, size_t length, uint64_t now)
{
    struct vb_forward_header head;
    struct vb_arrival arrival = {.bytes = forward->buffer + sizeof(head)};

    memcpy(&head, forward->buffer, sizeof(head));
    memcpy(arrival.sgid, head.sgid, sizeof(head.sgid));
    memcpy(arrival.dgid, head.dgid, sizeof(head.dgid));
    arrival.flow_label = head.flow_label;
    arrival.traffic_class = head.traffic_class;
    arrival.hop_limit = head.hop_limit;
    arrival.length = (uint32_t)(length - sizeof(head));
    forward->deliver(forward->argument, &arrival, now);
}

static void take_messages(struct vb_forward *forward, struct inbound *link, uint64_t now)
{
    for (int i = 0; i < MESSAGES_AT_ONCE; ++i) {
        ssize_t length = recv(link->fd, forward->buffer, sizeof(forward->buffer), MSG_DONTWAIT);

        if (length < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (length <= 0) {
            end_inbound(forward, link);
            return;
        }
        if ((size_t)length >= sizeof(struct vb_forward_header) + VB_BTH)
            forward_deliver(forward, (size_t)length, now);
    }
}

/* Takes what the sender has sent already. It connects again for what it sends later. */
static void take_and_close(struct vb_forward *forward, int fd, uint64_t now)
{
    ssize_t length;

    if (vb_direct_check_user(fd) == 0 && shutdown(fd, SHUT_RD) == 0)
        while ((length = recv(fd, forward->buffer, sizeof(forward->buffer), MSG_DONTWAIT)) > 0)
            if ((size_t)length >= sizeof(struct vb_forward_header) + VB_BTH)
                forward_deliver(forward, (size_t)length, now);
    close(fd);
}

/*
 * A connection for which there is no descriptor would stay in the listening socket's queue and keep
 * it readable, so that the thread never slept.
 */
static void accept_without_descriptor(struct vb_forward *forward, const struct inbound *listener,
                                      uint64_t now)
{
    int fd;

    if (forward->spare_fd >= 0)
        close(forward->spare_fd);
    fd =
        vb_memory_descriptor_raise(accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd >= 0)
        take_and_close(forward, fd, now);
    forward->spare_fd = forward_open_spare();
}

/* Other users' processes are refused, as they could forge a packet's source. */
static void accept_inbound(struct vb_forward *forward, const struct inbound *listener, uint64_t now)
{
    int fd =
        vb_memory_descriptor_raise(accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        accept_without_descriptor(forward, listener, now);
    if (fd >= 0 && (vb_direct_check_user(fd) || add_inbound(forward, fd, false)))
        take_and_close(forward, fd, now);
}

/* ---- out: connections ---- */

static int open_next(struct vb_forward *forward)
{
    int bytes = BUFFER_BYTES;

    if (forward->next_fd < 0)
        forward->next_fd = forward_new_socket();
    if (forward->next_fd < 0)
        return forward->next_fd;
    setsockopt(forward->next_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    return 0;
}

/* EPOLLOUT is asked for while packets wait. EPOLLHUP, the owner's end, is always reported. */
static int watch_queue(const struct vb_forward *forward, struct vb_forward_queue *queue,
                       int operation)
{
    struct epoll_event event = {.events = vb_roce_forward_queue_waits(queue) ? EPOLLOUT : 0,
                                .data.ptr = queue};

    return epoll_ctl(forward->epoll_fd, operation, queue->fd, &event) ? -errno : 0;
}

static void forward_disconnect(const struct vb_forward *forward, struct vb_forward_queue *queue)
{
    if (queue->fd < 0)
        return;
    epoll_ctl(forward->epoll_fd, EPOLL_CTL_DEL, queue->fd, NULL);
    close(queue->fd);
    queue->fd = -1;
}

/* The queue is free for another slot. Packets that wait in it are dropped. */
static void release_queue(struct vb_forward *forward, struct vb_forward_queue *queue)
{
    forward_disconnect(forward, queue);
    vb_roce_forward_queue_clear(queue);
    if (queue->slot)
        forward->places[queue->slot] = 0;
    queue->slot = 0;
}

static bool is_taken(const struct vb_forward_queue *queue)
{
    return queue->slot != 0;
}

static bool is_older(const struct vb_forward_queue *queue, const struct vb_forward_queue *than)
{
    return !than || !is_taken(queue) || (is_taken(than) && queue->used < than->used);
}

/* A queue without packets: a free one, or the one that was used longest ago. */
static struct vb_forward_queue *find_idle(struct vb_forward *forward)
{
    struct vb_forward_queue *idle = NULL;

    for (int i = 0; i < OUTGOING; ++i)
        if (!vb_roce_forward_queue_waits(&forward->queues[i]) &&
            is_older(&forward->queues[i], idle))
            idle = &forward->queues[i];
    return idle;
}

/* Ends the connection that was used longest ago, of those without packets. */
static bool free_descriptor(struct vb_forward *forward)
{
    struct vb_forward_queue *oldest = NULL;

    for (int i = 0; i < OUTGOING; ++i) {
        struct vb_forward_queue *each = &forward->queues[i];

        if (each->fd >= 0 && !vb_roce_forward_queue_waits(each) && is_older(each, oldest))
            oldest = each;
    }
    if (oldest)
        release_queue(forward, oldest);
    return oldest != NULL;
}

/*
 * A socket that nobody listened for is kept for the next attempt. So a packet for a slot that no
 * process has costs half as much as receiving it (0.46 and 0.9 us), and each is tried: a process
 * may have taken the slot by now.
 */
static int connect_next(struct vb_forward *forward, uint32_t slot)
{
    struct sockaddr_un address;
    socklen_t length = forward_name_of(forward->port, slot, &address);

    if (connect(forward->next_fd, (struct sockaddr *)&address, length))
        return errno == ECONNREFUSED ? -ENOENT : -EAGAIN;
    return 0;
}

/* 0, -ENOENT (no process has the slot), -EAGAIN (not now), -EACCES. */
static int connect_queue(struct vb_forward *forward, struct vb_forward_queue *queue)
{
    int error = open_next(forward);

    if ((error == -EMFILE || error == -ENFILE) && free_descriptor(forward))
        error = open_next(forward);
    if (error)
        return -EAGAIN;
    error = connect_next(forward, queue->slot);
    if (error)
        return error;
    queue->fd = forward->next_fd;
    forward->next_fd = -1;
    if (vb_direct_check_user(queue->fd))
        error = -EACCES;
    else if (watch_queue(forward, queue, EPOLL_CTL_ADD))
        error = -EAGAIN;
    if (error)
        forward_disconnect(forward, queue);
    return error;
}

/* ---- out: packets ---- */

static void retry_later(struct vb_forward *forward, uint64_t now)
{
    if (forward->retry_at == never)
        forward->retry_at = now + forward->pause;
}

/* The slot's queue, new or present; NULL: packets wait in all of them. */
static struct vb_forward_queue *queue_for(struct vb_forward *forward, uint32_t slot)
{
    struct vb_forward_queue *queue;

    if (forward->places[slot])
        return &forward->queues[forward->places[slot] - 1];
    queue = find_idle(forward);
    if (!queue)
        return NULL;
    release_queue(forward, queue);
    queue->slot = slot;
    forward->places[slot] = (uint16_t)(queue - forward->queues + 1);
    return queue;
}

static uint64_t kept_for_all(const struct vb_forward *forward)
{
    uint64_t kept = 0;

    for (int i = 0; i < OUTGOING; ++i)
        kept += forward->queues[i].kept;
    return kept;
}

static int forward_keep(struct vb_forward *forward, struct vb_forward_queue *queue,
                        const struct vb_arrival *arrival, uint64_t now)
{
    bool waited = vb_roce_forward_queue_waits(queue);

    if (queue->kept > KEPT_FOR_ONE || kept_for_all(forward) > KEPT_FOR_ALL ||
        vb_roce_forward_queue_keep(queue, arrival))
        return -EAGAIN;
    if (!waited && queue->fd >= 0 && watch_queue(forward, queue, EPOLL_CTL_MOD))
        forward_disconnect(forward, queue);
    if (queue->fd < 0)
        retry_later(forward, now);
    return 0;
}

/* It is tried twice: the owner may have ended, and another process may have its slot by now. */
static int forward_send_now(struct vb_forward *forward, struct vb_forward_queue *queue,
                            const struct vb_arrival *arrival)
{
    int error = -EAGAIN;

    for (int i = 0; i < 2; ++i) {
        error = queue->fd < 0 ? connect_queue(forward, queue) : 0;
        if (!error)
            error = vb_roce_forward_queue_send(queue, arrival);
        if (error != -EPIPE)
            return error;
        forward_disconnect(forward, queue);
    }
    return -EAGAIN;
}

int vb_roce_forward_send(struct vb_forward *forward, uint32_t slot,
                         const struct vb_arrival *arrival, uint64_t now)
{
    struct vb_forward_queue *queue;
    int error = -EAGAIN;

    if (arrival->length > LARGEST)
        return -ENOENT;
    queue = queue_for(forward, slot);
    if (!queue)
        return -EAGAIN;
    queue->used = ++forward->sends;
    if (!vb_roce_forward_queue_waits(queue))
        error = forward_send_now(forward, queue, arrival);
    if (error == -EAGAIN)
        return forward_keep(forward, queue, arrival, now);
    if (error)
        release_queue(forward, queue);
    return error;
}

/* Sends what waits for this owner, as far as it takes it. */
static void forward_drain(struct vb_forward *forward, struct vb_forward_queue *queue, uint64_t now)
{
    int error;

    if (!vb_roce_forward_queue_waits(queue))
        return;
    error = queue->fd < 0 ? connect_queue(forward, queue) : 0;

    if (error == -ENOENT || error == -EACCES) {
        release_queue(forward, queue);
        return;
    }
    if (!error)
        error = vb_roce_forward_queue_drain(queue);
    if (error == -EPIPE || (queue->fd >= 0 && watch_queue(forward, queue, EPOLL_CTL_MOD)))
        forward_disconnect(forward, queue);
    if (queue->fd < 0 && vb_roce_forward_queue_waits(queue))
        retry_later(forward, now);
}

/* The owner has ended the connection: it has ended itself, or it had no descriptor left. */
static void forward_lose(struct vb_forward *forward, struct vb_forward_queue *queue, uint64_t now)
{
    forward_disconnect(forward, queue);
    if (vb_roce_forward_queue_waits(queue))
        retry_later(forward, now);
    else
        release_queue(forward, queue);
}

static void retry(struct vb_forward *forward, uint64_t now)
{
    if (now < forward->retry_at)
        return;
    forward->retry_at = never;
    if (forward->pause < LONGEST_NS)
        forward->pause *= 2;
    for (int i = 0; i < OUTGOING; ++i)
        if (forward->queues[i].fd < 0 && vb_roce_forward_queue_waits(&forward->queues[i]))
            forward_drain(forward, &forward->queues[i], now);
    if (forward->retry_at == never)
        forward->pause = RETRY_NS;
}

bool vb_roce_forward_push(struct vb_forward *forward, uint64_t now)
{
    bool waits = false;

    for (int i = 0; i < OUTGOING; ++i) {
        struct vb_forward_queue *queue = &forward->queues[i];

        if (vb_roce_forward_queue_waits(queue))
            forward_drain(forward, queue, now);
        waits = waits || vb_roce_forward_queue_waits(queue);
    }
    return waits;
}

uint64_t vb_roce_forward_deadline(const struct vb_forward *forward)
{
    return forward->retry_at;
}

/* ---- both ---- */

static bool is_forward_queue(const struct vb_forward *forward, const void *pointer)
{
    return (const struct vb_forward_queue *)pointer >= forward->queues &&
           (const struct vb_forward_queue *)pointer < forward->queues + OUTGOING;
}

void vb_roce_forward_serve(struct vb_forward *forward, uint64_t now)
{
    struct epoll_event events[16];
    int count = epoll_wait(forward->epoll_fd, events, 16, 0);

    for (int i = 0; i < count; ++i) {
        void *end = events[i].data.ptr;

        if (is_forward_queue(forward, end) && events[i].events & (EPOLLHUP | EPOLLERR))
            forward_lose(forward, end, now);
        else if (is_forward_queue(forward, end))
            forward_drain(forward, end, now);
        else if (((struct inbound *)end)->listens)
            accept_inbound(forward, end, now);
        else
            take_messages(forward, end, now);
    }
    retry(forward, now);
}

/* ---- open and close ---- */

static void close_some(int fd)
{
    if (fd >= 0)
        close(fd);
}

void vb_roce_forward_close(struct vb_forward *forward)
{
    while (forward->inbounds)
        end_inbound(forward, forward->inbounds);
    for (int i = 0; i < OUTGOING; ++i)
        release_queue(forward, &forward->queues[i]);
    close_some(forward->next_fd);
    close_some(forward->epoll_fd);
    close_some(forward->spare_fd);
    free(forward);
}

void vb_roce_forward_abandon(struct vb_forward *forward)
{
    for (struct inbound *each = forward->inbounds; each; each = each->next)
        close(each->fd);
    for (int i = 0; i < OUTGOING; ++i)
        close_some(forward->queues[i].fd);
    close_some(forward->next_fd);
    close_some(forward->epoll_fd);
    close_some(forward->spare_fd);
}

int vb_roce_forward_open(uint16_t port, vb_forwarded_fn *deliver, void *argument,
                         struct vb_forward **forward)
{
    struct vb_forward *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    made->port = port;
    made->deliver = deliver;
    made->argument = argument;
    for (int i = 0; i < OUTGOING; ++i)
        made->queues[i].fd = -1;
    made->next_fd = -1;
    made->retry_at = never;
    made->pause = RETRY_NS;
    made->epoll_fd = vb_memory_descriptor_raise(epoll_create1(EPOLL_CLOEXEC));
    made->spare_fd = forward_open_spare();
    if (made->epoll_fd < 0 || made->spare_fd < 0 || open_next(made)) {
        int error = -errno;
        vb_roce_forward_close(made);
        return error;
    }
    *forward = made;
    return 0;
}

int vb_roce_forward_fd(const struct vb_forward *forward)
{
    return forward->epoll_fd;
}
