// SPDX-License-Identifier: Apache-2.0
/*
 * How queue pairs and processes end without loss: what they posted is sent first, and what their
 * socket holds for other processes is passed on. host/carriers.c calls it for a QP, host/host.c for
 * a process that closes its device or ends with it open. Each wait has a bound.
 */
#include <errno.h>
#include <time.h>

#include "roce/state.h"
#include "transport/transport.h"

enum {
    FLUSH_NS = 1000000000,
    FLUSH_NAP_NS = 100000, /* between attempts, while another thread has the lock */
    FLUSH_TRIES = 500,     /* of these attempts: 50 ms */
    LOOPBACK_NS = 2000000, /* after which a packet has reached a socket of this host */
};

static void sleep_until(uint64_t at)
{
    struct timespec when = {(time_t)(at / 1000000000), (long)(at % 1000000000)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
        ;
}

static void ending_send_due(struct vb_roce *roce)
{
    if (!vb_roce_try_enter(roce))
        return;
    vb_roce_transmit(roce, vb_roce_now());
    vb_roce_leave(roce);
}

/* A network delivers what a process sent before it ended. Packets that are held after this call
 * began are not waited for. */
void vb_roce_flush(struct vb_roce *roce)
{
    uint64_t last = vb_wrap_last_out(&roce->wrap), now = vb_roce_now(), until = now + FLUSH_NS;

    if (!last)
        return;
    if (last < until)
        until = last;
    for (; now < until; now = vb_roce_now()) {
        uint64_t due = vb_wrap_deadline(&roce->wrap);

        if (due <= now)
            due = now + FLUSH_NAP_NS;
        sleep_until(due < until ? due : until);
        ending_send_due(roce);
    }
    vb_wrap_release(&roce->wrap);
    ending_send_due(roce);
    for (int i = 0; i < FLUSH_TRIES && vb_wrap_last_out(&roce->wrap); ++i) {
        sleep_until(vb_roce_now() + FLUSH_NAP_NS);
        ending_send_due(roce);
    }
    sleep_until(vb_roce_now() + LOOPBACK_NS);
}

/* Has the QP packets that leave as soon as the system takes more, or in the next turn? */
static bool ending_is_behind(const struct vb_roce *roce, const struct vb_qp *qp)
{
    return qp->type == IBV_QPT_UC && qp->endpoint &&
           (vb_engine_ready_has(&qp->endpoint->requesting) || !vb_roce_udp_has_room(roce->udp));
}

void vb_roce_send_posted(struct vb_roce *roce, struct vb_qp *qp)
{
    vb_roce_enter(roce);
    vb_engine_attend(roce->engine, qp, vb_roce_now());
    vb_roce_transmit(roce, vb_roce_now());
    for (int i = 0; i < FLUSH_TRIES && ending_is_behind(roce, qp); ++i) {
        vb_roce_leave(roce);
        sleep_until(vb_roce_now() + FLUSH_NAP_NS);
        vb_roce_enter(roce);
        vb_roce_transmit(roce, vb_roce_now());
    }
    vb_roce_leave(roce);
}

/* Sends for all QPs. False: nothing is ready to be sent any more; it may wait for a peer. */
static bool sends_on(struct vb_roce *roce)
{
    bool more = true;

    if (!vb_roce_try_enter(roce))
        return more;
    vb_roce_transmit(roce, vb_roce_now());
    more = roce->again != UINT64_MAX || atomic_load(&roce->doorbell);
    vb_roce_leave(roce);
    return more;
}

enum {
    LAST_BATCHES = 1 << 16, /* more than the socket holds, even of the smallest packets */
    LAST_LOOK_NS =
        500000, /* after which a packet for which the kernel had chosen the socket is in it */
    LAST_PUSH_NS = 1000000000, /* how long owners that take no more are waited for */
};

/* Packets for other processes would be lost with the socket. Those for this process are dropped. */
static void forward_the_rest(struct vb_roce *roce)
{
    uint64_t now = vb_roce_now();
    struct vb_arrival arrival;

    for (int i = 0; i < LAST_BATCHES && vb_roce_udp_receive(roce->udp); ++i)
        while (vb_roce_udp_next(roce->udp, &arrival))
            vb_roce_reuseport_takes(roce->reuseport, &arrival, now);
}

static void push_the_rest(struct vb_roce *roce)
{
    uint64_t until = vb_roce_now() + LAST_PUSH_NS;

    while (vb_roce_reuseport_push(roce->reuseport, vb_roce_now()) && vb_roce_now() < until)
        sleep_until(vb_roce_now() + FLUSH_NAP_NS);
}

/* The socket leaves the port before it is closed: a packet that reached it in between would be
 * lost. */
void vb_roce_withdraw(struct vb_roce *roce)
{
    if (vb_roce_udp_leave_port(roce->udp) == 0)
        sleep_until(vb_roce_now() + LAST_LOOK_NS);
    forward_the_rest(roce);
    push_the_rest(roce);
}

/* The lock is tried and not waited for: a thread that ended may hold it for ever. */
void vb_roce_end(struct vb_roce *roce)
{
    bool entered = false;

    for (int i = 0; i < FLUSH_TRIES && sends_on(roce); ++i)
        sleep_until(vb_roce_now() + FLUSH_NAP_NS);
    vb_roce_flush(roce);
    for (int i = 0; i < FLUSH_TRIES && !(entered = vb_roce_try_enter(roce)); ++i)
        sleep_until(vb_roce_now() + FLUSH_NAP_NS);
    if (!entered)
        return;
    vb_roce_withdraw(roce);
    vb_roce_leave(roce);
}
