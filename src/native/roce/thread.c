// SPDX-License-Identifier: Apache-2.0
/*
 * The carrier's thread: it receives while no program polls, sends what is due, keeps the GID tables
 * up to date and serves the reuseport group. roce.c starts and stops it. It takes the lock for a
 * bounded number of packets at a time.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "memory/descriptor.h"

#include "memory/guard.h"
#include "roce/state.h"

enum source { FROM_UDP, FROM_REUSEPORT, FROM_ADDRESSES, FROM_TIMER, FROM_WAKE };

enum {
    BATCHES = 64,      /* receive calls in one turn with the lock */
    BULK = 8,          /* packets in one turn after which more are expected soon */
    LINGER_NS = 50000, /* after such a turn the thread looks for more, as waking up takes longer */
};

static int thread_watch(struct vb_roce *roce, int fd, enum source source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u32 = source};

    return fd < 0 || epoll_ctl(roce->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

/* The socket reports one event, and no other until this is called again (EPOLLONESHOT). */
void vb_roce_thread_watch(struct vb_roce *roce)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = FROM_UDP};

    atomic_store(&roce->polling.unwatched, false);
    epoll_ctl(roce->epoll_fd, EPOLL_CTL_MOD, vb_roce_udp_fd(roce->udp), &event);
}

void vb_roce_thread_wake_at(struct vb_roce *roce, uint64_t at)
{
    struct itimerspec when = {0};

    if (at < roce->away_until)
        at = roce->away_until;
    if (at >= roce->timer)
        return;
    roce->timer = at;
    if (at == 0)
        at = 1; /* 0 would stop the timer */
    when.it_value.tv_sec = (time_t)(at / 1000000000);
    when.it_value.tv_nsec = (long)(at % 1000000000);
    timerfd_settime(roce->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* ---- turns ---- */

static void thread_drain(int fd)
{
    uint64_t count;

    eventfd_read(fd, &count); /* a timer's is read in the same way */
}

static void report(struct vb_roce *roce, uint8_t port_num, unsigned changes)
{
    static const struct {
        unsigned change;
        enum ibv_event_type type;
    } events[] = {
        {VB_PORT_WENT_DOWN, IBV_EVENT_PORT_ERR},
        {VB_GIDS_CHANGED, IBV_EVENT_GID_CHANGE},
        {VB_PORT_CAME_UP, IBV_EVENT_PORT_ACTIVE},
    };

    for (size_t i = 0; i < sizeof(events) / sizeof(*events) && roce->config.event; ++i)
        if (changes & events[i].change)
            roce->config.event(roce->config.argument, port_num, events[i].type);
}

enum turn { NOTHING_CAME, SINGLES_CAME, BULK_CAME, MORE_WAITS };

static enum turn thread_serve(struct vb_roce *roce)
{
    uint64_t before = vb_roce_udp_counter(roce->udp, VB_UDP_RECEIVED), came;
    bool more = true;

    vb_roce_enter(roce);
    for (int i = 0; i < BATCHES && more; ++i) {
        uint64_t now = vb_roce_now();

        vb_roce_reuseport_serve(roce->reuseport, now);
        more = vb_roce_receive(roce, now);
        vb_roce_transmit(roce, now);
        vb_roce_log_refusals(roce, now);
    }
    vb_roce_leave(roce);
    came = vb_roce_udp_counter(roce->udp, VB_UDP_RECEIVED) - before;
    if (more)
        return MORE_WAITS;
    return came >= BULK ? BULK_CAME : came ? SINGLES_CAME : NOTHING_CAME;
}

/* A thread that wakes up late finds answers in the socket beside timers that have expired. The
 * answers count first, so that nothing is sent again that is answered already. */
static void take_what_waits(struct vb_roce *roce, uint64_t now)
{
    for (int i = 0; i < BATCHES && vb_roce_receive(roce, now); ++i)
        ;
}

static void serve_reuseport(struct vb_roce *roce)
{
    uint64_t now;

    vb_roce_enter(roce);
    now = vb_roce_now();
    vb_roce_reuseport_serve(roce->reuseport, now);
    take_what_waits(roce, now);
    vb_roce_transmit(roce, now);
    vb_roce_leave(roce);
}

/* Do programs receive, so that this thread need not? */
static bool thread_is_polled(struct vb_roce *roce, uint64_t now)
{
    return vb_roce_polling_look(&roce->polling, vb_roce_udp_fd(roce->udp),
                                vb_roce_udp_counter(roce->udp, VB_UDP_RECEIVED), now);
}

static void serve_timer(struct vb_roce *roce)
{
    bool group_is_due, polled;
    uint64_t now;

    thread_drain(roce->timer_fd);
    vb_roce_enter(roce);
    now = vb_roce_now();
    roce->timer = UINT64_MAX;
    group_is_due = vb_roce_reuseport_deadline(roce->reuseport) <= now;
    if (group_is_due) /* a program that polls does not do that */
        vb_roce_reuseport_serve(roce->reuseport, now);
    polled = thread_is_polled(roce, now);
    if (polled)
        roce->away_until = roce->polling.valid_until;
    else
        take_what_waits(roce, now);
    if (group_is_due || !polled)
        vb_roce_transmit(roce, now);
    vb_roce_leave(roce);
}

/* Logs what was refused in a program that polls. Only where a log was asked for. */
static void thread_log_refusals(struct vb_roce *roce)
{
    if (!roce->config.log || !vb_roce_try_enter(roce))
        return;
    vb_roce_log_refusals(roce, vb_roce_now());
    vb_roce_leave(roce);
}

/* In CHECKED or POLLED (polling.h): receives, unless programs do. */
static void thread_attend(struct vb_roce *roce)
{
    uint64_t until = 0;
    enum turn turn;

    if (thread_is_polled(roce, vb_roce_now())) {
        thread_log_refusals(roce);
        return;
    }
    do {
        turn = thread_serve(roce);
        if (turn >= BULK_CAME)
            until = vb_roce_now() + LINGER_NS;
        else if (until)
            sched_yield(); /* to a thread that a completion may have woken on this processor */
    } while (!atomic_load(&roce->stopping) && (turn == MORE_WAITS || vb_roce_now() < until));
    vb_roce_thread_watch(roce);
    vb_roce_send_held_back(roce);
}

static void serve_addresses(struct vb_roce *roce)
{
    const struct vb_adapter *adapter = roce->config.adapter;

    for (int i = 0; i < adapter->port_count; ++i) {
        unsigned changes = vb_port_addresses_update(adapter->ports[i].addresses);

        if (changes & VB_GIDS_CHANGED)
            vb_roce_join_again(roce);
        report(roce, adapter->ports[i].number, changes);
    }
}

static void thread_handle(struct vb_roce *roce, enum source source)
{
    switch (source) {
    case FROM_UDP:
        atomic_store(&roce->polling.unwatched, true);
        break;
    case FROM_REUSEPORT:
        serve_reuseport(roce);
        break;
    case FROM_ADDRESSES:
        serve_addresses(roce);
        break;
    case FROM_TIMER:
        serve_timer(roce);
        break;
    case FROM_WAKE:
        thread_drain(roce->wake_fd);
        break;
    }
}

/* As epoll_wait, but while the socket is not watched only until the next look. */
static int wait_for_events(struct vb_roce *roce, struct epoll_event *events, int room)
{
    struct pollfd any = {.fd = roce->epoll_fd, .events = POLLIN};
    struct timespec pause = {.tv_nsec = (long)roce->polling.pause};

    if (!atomic_load(&roce->polling.unwatched))
        return epoll_wait(roce->epoll_fd, events, room, -1);
    ppoll(&any, 1, &pause, NULL);
    return epoll_wait(roce->epoll_fd, events, room, 0);
}

static void *thread_run(void *argument)
{
    struct vb_roce *roce = argument;
    struct epoll_event events[8];

    while (!atomic_load(&roce->stopping)) {
        int count = wait_for_events(roce, events, 8);

        atomic_fetch_add_explicit(&roce->wakeups, 1, memory_order_relaxed);
        for (int i = 0; i < count; ++i)
            thread_handle(roce, events[i].data.u32);
        if (atomic_load(&roce->polling.unwatched))
            thread_attend(roce);
    }
    return NULL;
}

/* ---- start and stop ---- */

static int watch_addresses(struct vb_roce *roce)
{
    const struct vb_adapter *adapter = roce->config.adapter;
    int error = 0;

    for (int i = 0; i < adapter->port_count && !error; ++i)
        error = thread_watch(roce, vb_port_addresses_fd(adapter->ports[i].addresses),
                             FROM_ADDRESSES, EPOLLIN);
    return error;
}

static int thread_open_descriptors(struct vb_roce *roce)
{
    int error;

    roce->epoll_fd = vb_memory_descriptor_raise(epoll_create1(EPOLL_CLOEXEC));
    roce->timer_fd =
        vb_memory_descriptor_raise(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    roce->wake_fd = vb_memory_descriptor_raise(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (roce->epoll_fd < 0 || roce->timer_fd < 0 || roce->wake_fd < 0)
        return -errno;
    error = thread_watch(roce, roce->wake_fd, FROM_WAKE, EPOLLIN);
    if (!error)
        error = thread_watch(roce, roce->timer_fd, FROM_TIMER, EPOLLIN);
    if (!error)
        error = thread_watch(roce, vb_roce_reuseport_fd(roce->reuseport), FROM_REUSEPORT, EPOLLIN);
    if (!error)
        error = watch_addresses(roce);
    if (!error)
        error = thread_watch(roce, vb_roce_udp_fd(roce->udp), FROM_UDP, EPOLLIN | EPOLLONESHOT);
    return error;
}

static void thread_close_descriptors(struct vb_roce *roce)
{
    int fds[] = {roce->epoll_fd, roce->timer_fd, roce->wake_fd};

    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); ++i)
        if (fds[i] >= 0)
            close(fds[i]);
}

int vb_roce_thread_start(struct vb_roce *roce)
{
    int error = thread_open_descriptors(roce);

    if (!error)
        error = vb_memory_guarded_thread(&roce->thread, thread_run, roce);
    if (error)
        thread_close_descriptors(roce);
    return error;
}

void vb_roce_thread_stop(struct vb_roce *roce)
{
    atomic_store(&roce->stopping, true);
    if (!eventfd_write(roce->wake_fd, 1))
        pthread_join(roce->thread, NULL);
    thread_close_descriptors(roce);
}

void vb_roce_thread_abandon(struct vb_roce *roce)
{
    thread_close_descriptors(roce);
}
