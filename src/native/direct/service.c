// SPDX-License-Identifier: Apache-2.0
/*
 * The service thread's loop, and what it does for each message (service.h). Nothing here may wait
 * for a peer.
 */
#include "direct/service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "direct/connection.h"
#include "direct/flow.h"
#include "direct/handshake.h"
#include "direct/later.h"
#include "direct/message.h"
#include "direct/notice.h"
#include "direct/query.h"
#include "direct/recover.h"
#include "direct/retry.h"
#include "direct/user.h"
#include "hca/channel.h"
#include "hca/cq.h"
#include "hca/qp.h"
#include "memory/descriptor.h"
#include "memory/guard.h"

/* What epoll hands back: a listening socket, or a connection and whom it leads to. */
struct link {
    struct link *next;
    int fd;
    bool listens;
    struct vb_peer *peer;
};

static int add_link(struct vb_direct *direct, int fd, bool listens, struct vb_peer *peer)
{
    struct link *link = calloc(1, sizeof(*link));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};

    if (!link)
        return -ENOMEM;
    link->fd = fd;
    link->listens = listens;
    link->peer = peer;
    if (epoll_ctl(direct->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
        int error = -errno;
        free(link);
        return error;
    }
    vb_lock_take(&direct->links_mutex);
    link->next = direct->links;
    direct->links = link;
    vb_lock_release(&direct->links_mutex);
    return 0;
}

int vb_direct_service_watch(struct vb_direct *direct, int socket, struct vb_peer *peer)
{
    return add_link(direct, socket, peer == NULL, peer);
}

/* Takes it off the list; returns another connection to the same peer, -1 if it was the last. */
static int unlink_link(struct vb_direct *direct, const struct link *link)
{
    int other = -1;

    vb_lock_take(&direct->links_mutex);
    for (struct link **at = &direct->links; *at;) {
        if (*at == link) {
            *at = link->next;
            continue;
        }
        if (link->peer && (*at)->peer == link->peer)
            other = (*at)->fd;
        at = &(*at)->next;
    }
    vb_lock_release(&direct->links_mutex);
    return other;
}

/*
 * A peer goes with its last connection. The descriptors stay until nobody has the peer any more
 * (free_peer): who is amid a request may write to one, and its number must not be another file's.
 */
static void leave_peer(struct vb_direct *direct, struct vb_peer *peer, int fd, int other)
{
    if (other >= 0)
        atomic_store(&peer->socket, other);
    if (atomic_fetch_sub(&peer->links, 1) != 1) {
        if (peer->retired >= 0)
            close(peer->retired);
        peer->retired = fd;
    } else {
        shutdown(fd, SHUT_RDWR);
        if (!atomic_exchange(&peer->gone, true))
            vb_direct_recover_from(direct, peer);
    }
    vb_direct_peer_put(direct, peer);
}

static void end_link(struct vb_direct *direct, struct link *link)
{
    int other = unlink_link(direct, link);

    /* A child between fork and exec has the socket too: closing it here would not end the watch. */
    epoll_ctl(direct->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
    if (link->peer)
        leave_peer(direct, link->peer, link->fd, other);
    else
        close(link->fd);
    free(link);
}

static int service_open_spare(void)
{
    return vb_memory_descriptor_raise(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

/* Without a descriptor for it a connection stays in the queue and the queue readable, for ever. */
static void refuse_link(struct vb_direct *direct, struct link *listener)
{
    vb_lock_take(&direct->spare_mutex);
    if (direct->spare_fd >= 0)
        close(direct->spare_fd);
    close(vb_memory_descriptor_raise(accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC)));
    direct->spare_fd = service_open_spare();
    vb_lock_release(&direct->spare_mutex);
}

static void accept_link(struct vb_direct *direct, struct link *listener)
{
    int fd = vb_memory_descriptor_raise(accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC));

    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        refuse_link(direct, listener);
    /* Other users get no descriptor of this process's. */
    if (fd >= 0 && (vb_direct_check_user(fd) || add_link(direct, fd, false, NULL)))
        close(fd);
}

static void give_channel(struct vb_direct *direct, struct vb_peer *peer, uint32_t index)
{
    struct vb_adapter *adapter = direct->adapter;
    struct vb_message message = {.type = VB_MSG_CHANNEL};
    struct vb_cq *cq;

    vb_lock_take(&adapter->mutex);
    cq = index < VB_MAX_CQ ? adapter->cqs[index] : NULL;
    if (cq && cq->channel) {
        int fds[2] = {cq->channel->write_fd, cq->channel->ibv.fd};

        message.value = cq->channel->serial;
        vb_direct_message_send(peer->socket, &message, fds, 2, false);
    }
    vb_lock_release(&adapter->mutex);
}

static void keep_channel(struct vb_peer *peer, uint32_t serial, int fds[VB_MESSAGE_FDS])
{
    struct vb_peer_channel *entry;

    if (fds[0] < 0 || fds[1] < 0)
        return;
    vb_lock_take(&peer->mutex);
    entry = &peer->channels[peer->channel_next++ % VB_PEER_CHANNELS];
    if (entry->serial) {
        close(entry->write_fd);
        close(entry->read_fd);
    }
    *entry = (struct vb_peer_channel){serial, fds[0], fds[1]};
    fds[0] = fds[1] = -1;
    vb_lock_release(&peer->mutex);
}

static void service_place(struct vb_direct *direct, uint32_t index)
{
    struct vb_adapter *adapter = direct->adapter;

    vb_lock_take(&adapter->mutex);
    if (index < VB_MAX_CQ && adapter->cqs[index])
        vb_cq_place(adapter->cqs[index]);
    vb_lock_release(&adapter->mutex);
}

static void service_dispatch(struct vb_direct *direct, struct vb_peer *peer,
                             const struct vb_message *message, int fds[VB_MESSAGE_FDS])
{
    switch (message->type) {
    case VB_MSG_QP_NOTICE:
        vb_direct_notice_qp(direct, message->object);
        break;
    case VB_MSG_CQ_NOTICE:
        vb_direct_notice_cq(direct, message->object);
        break;
    case VB_MSG_SRQ_NOTICE:
        vb_direct_notice_srq(direct, message->object);
        break;
    case VB_MSG_CHANNEL_WANTED:
        give_channel(direct, peer, message->object);
        break;
    case VB_MSG_CHANNEL:
        keep_channel(peer, message->value, fds);
        break;
    case VB_MSG_PLACE:
        service_place(direct, message->object);
        break;
    case VB_MSG_BOUNCE:
        vb_direct_bounce_serve(direct, peer, message->offset);
        break;
    default:
        break;
    }
    vb_direct_notice_missed(direct);
}

static void service_close_fds(int fds[VB_MESSAGE_FDS])
{
    for (int i = 0; i < VB_MESSAGE_FDS; ++i)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* The first message of a connection that a peer opened. */
static int service_accept_hello(struct vb_direct *direct, struct link *link,
                                const struct vb_message *message, int fds[VB_MESSAGE_FDS])
{
    int error;

    if (message->type == VB_MSG_COUNTERS && direct->count)
        vb_direct_query_answer(direct->adapter, direct->count, direct->slots[0], link->fd);
    if (message->type != VB_MSG_HELLO)
        return -EPROTO;
    error = vb_direct_hello_accept(direct, link->fd, message, fds, &link->peer);
    if (error == -EPROTONOSUPPORT)
        vb_direct_hello_decline(direct, link->fd);
    if (error)
        return -EPROTO;
    vb_direct_connections_attend(direct, link->peer);
    return vb_direct_hello_send(direct, link->fd, VB_MSG_WELCOME);
}

static void service_read_link(struct vb_direct *direct, struct link *link)
{
    struct vb_message message;
    int fds[VB_MESSAGE_FDS];
    int error = vb_direct_message_receive(link->fd, &message, fds);

    if (!error && !link->peer)
        error = service_accept_hello(direct, link, &message, fds);
    else if (!error)
        service_dispatch(direct, link->peer, &message, fds);
    if (error != -EAGAIN && error != -EINTR)
        service_close_fds(fds);
    if (error && error != -EAGAIN && error != -EINTR)
        end_link(direct, link);
}

static void service_handle(struct vb_direct *direct, struct link *link)
{
    uint64_t count;

    if (!link) {
        eventfd_read(direct->wake_fd, &count);
    } else if (link->listens) {
        accept_link(direct, link);
    } else {
        service_read_link(direct, link);
    }
}

static void service_wake(struct vb_direct *direct)
{
    eventfd_write(direct->wake_fd, 1);
}

enum { EVENTS = 32 };

static void *service_run(void *argument)
{
    struct vb_direct *direct = argument;

    while (!atomic_load(&direct->stopping)) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(direct->epoll_fd, events, EVENTS, -1);

        for (int i = 0; i < n; ++i)
            if (events[i].data.ptr == &direct->later)
                vb_direct_later_expire(direct);
            else if (VB_UNLIKELY(events[i].data.ptr &&
                                 events[i].data.ptr == direct->adapter->fabric))
                vb_direct_fabric_news(direct);
            else
                service_handle(direct, events[i].data.ptr);
    }
    return NULL;
}

static int service_watch(struct vb_direct *direct, int fd, void *data)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = data};

    return epoll_ctl(direct->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int service_open_descriptors(struct vb_direct *direct)
{
    int error = vb_direct_later_open(&direct->later);

    direct->epoll_fd = vb_memory_descriptor_raise(epoll_create1(EPOLL_CLOEXEC));
    direct->wake_fd = vb_memory_descriptor_raise(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    direct->spare_fd = service_open_spare();
    if (direct->epoll_fd < 0 || direct->wake_fd < 0 || direct->spare_fd < 0)
        return -errno;
    if (error)
        return error;
    if (service_watch(direct, direct->wake_fd, NULL) ||
        service_watch(direct, direct->later.timer_fd, &direct->later) ||
        (direct->adapter->fabric &&
         service_watch(direct, direct->adapter->fabric->news_fd, direct->adapter->fabric)))
        return -errno;
    return 0;
}

static void service_close_descriptors(struct vb_direct *direct)
{
    while (direct->links)
        end_link(direct, direct->links);
    vb_direct_later_close(&direct->later);
    close(direct->epoll_fd);
    close(direct->wake_fd);
    close(direct->spare_fd);
}

static int watch_listeners(struct vb_direct *direct, uint32_t *watched)
{
    int error = 0;

    while (!error && *watched < direct->slot_count) {
        error = vb_direct_service_watch(direct, direct->listeners[*watched], NULL);
        *watched += !error;
    }
    return error;
}

int vb_direct_service_start(struct vb_direct *direct)
{
    uint32_t watched = 0;
    int error = service_open_descriptors(direct);

    if (!error)
        error = watch_listeners(direct, &watched);
    if (!error)
        error = vb_memory_guarded_thread(&direct->thread, service_run, direct);
    if (!error)
        return 0;
    while (watched < direct->slot_count)
        close(direct->listeners[watched++]);
    service_close_descriptors(direct);
    return error;
}

void vb_direct_service_stop(struct vb_direct *direct)
{
    atomic_store(&direct->stopping, true);
    service_wake(direct);
    pthread_join(direct->thread, NULL);
    service_close_descriptors(direct);
}

void vb_direct_service_abandon(struct vb_direct *direct)
{
    for (struct link *link = direct->links; link; link = link->next)
        close(link->fd);
    for (struct vb_peer *peer = direct->peers; peer; peer = peer->next)
        if (atomic_load(&peer->gone))
            close(peer->socket);
    vb_direct_later_abandon(&direct->later);
    close(direct->epoll_fd);
    close(direct->wake_fd);
    close(direct->spare_fd);
}
