// SPDX-License-Identifier: Apache-2.0
/*
 * The congestion window's arithmetic: slow start and growth, cuts after losses, marks and long
 * delays, the smoothed round trip with the timeout that follows from it, and whose turn it is to
 * send.
 */
#include "transport/cwnd.h"

#include <errno.h>
#include <stdlib.h>

#include "hca/delays.h"

enum {
    FIRST_BYTES = 64 << 10,
    LEAST_PACKETS = 4,
    SHORT_BYTES =
        256, /* what a packet with little payload counts for, with the headers of all layers */
    PROBES_IN_VAIN = 2,
    DOUBTFUL_MOST = 12,
    MICROSECOND = 1000,
    MILLISECOND = 1000 * MICROSECOND,
    TIMEOUT_LEAST = 200 * MICROSECOND,
    TIMEOUT_FIRST = 50 * MILLISECOND,
    TIMEOUT_MOST = 1000 * MILLISECOND,
    SILENCE = 20 * MILLISECOND, /* a process that was not scheduled for so long has lost nothing */
    FORGET = 1024,              /* round trips after which a long timeout is short again */
};

static struct vb_cwnd *cwnd_find(const struct vb_engine *engine, const uint8_t dgid[16])
{
    struct vb_cwnd *cwnd = engine->cwnds;

    while (cwnd && memcmp(cwnd->dgid, dgid, sizeof(cwnd->dgid)) != 0)
        cwnd = cwnd->next;
    return cwnd;
}

static struct vb_cwnd *cwnd_add(struct vb_engine *engine, const uint8_t dgid[16])
{
    struct vb_cwnd *cwnd = calloc(1, sizeof(*cwnd));

    if (!cwnd)
        return NULL;
    memcpy(cwnd->dgid, dgid, sizeof(cwnd->dgid));
    cwnd->window = FIRST_BYTES;
    cwnd->threshold = VB_CWND_MOST;
    cwnd->least_timeout = TIMEOUT_LEAST;
    vb_engine_ready_init(&cwnd->waiting);
    cwnd->next = engine->cwnds;
    engine->cwnds = cwnd;
    return cwnd;
}

static void cwnd_drop(struct vb_engine *engine, struct vb_cwnd *cwnd)
{
    struct vb_cwnd **at = &engine->cwnds;

    while (*at != cwnd)
        at = &(*at)->next;
    *at = cwnd->next;
    free(cwnd);
}

/* The first waiting connection may send. Only one is woken at a time, so that it has a whole turn.
 */
static void cwnd_wake(struct vb_engine *engine, struct vb_cwnd *cwnd)
{
    struct vb_link *first = vb_engine_ready_first(&cwnd->waiting);
    struct vb_endpoint *ep;

    if (!first || cwnd->in_flight >= cwnd->window ||
        (cwnd->served && cwnd->awake && vb_engine_ready_has(&cwnd->served->requesting)))
        return;
    ep = vb_endpoint_of(first, requesting);
    if (cwnd->served != ep)
        cwnd->turn = 0;
    cwnd->served = ep;
    cwnd->awake = true;
    vb_engine_ready_remove(first);
    vb_engine_ready_add(&engine->requesting, first);
}

void vb_engine_cwnd_leave(struct vb_endpoint *ep)
{
    struct vb_cwnd *cwnd = ep->share->cwnd;

    if (!cwnd)
        return;
    vb_engine_ready_remove(&ep->requesting);
    vb_engine_cwnd_untime(ep);
    if (cwnd->served == ep)
        cwnd->served = NULL;
    cwnd->in_flight -= ep->in_flight;
    cwnd->answered += ep->in_flight;
    ep->in_flight = 0;
    ep->share->cwnd = NULL;
    if (--cwnd->members == 0)
        cwnd_drop(ep->engine, cwnd);
    else
        cwnd_wake(ep->engine, cwnd);
}

int vb_engine_cwnd_join(struct vb_endpoint *ep, const uint8_t dgid[16])
{
    struct vb_cwnd *cwnd = cwnd_find(ep->engine, dgid);

    if (!cwnd)
        cwnd = cwnd_add(ep->engine, dgid);
    if (!cwnd)
        return -ENOMEM;
    ++cwnd->members;
    vb_engine_cwnd_leave(ep);
    ep->share->cwnd = cwnd;
    if (ep->share->recovery)
        ep->share->recovery->behind = 0;
    return 0;
}

/*
 * Bytes in flight. A connection whose peer is silent for long counts as little as possible, so that
 * the others can use the window.
 */
static uint32_t under_way(const struct vb_endpoint *ep)
{
    const struct vb_requester *r = &ep->requester;
    uint32_t packets = vb_engine_psn_count(r->una, r->next_psn);
    const struct vb_recovery *recovery = ep->share->recovery;

    if (VB_UNLIKELY(recovery != NULL) && packets)
        packets -= recovery->early_answer.count < packets ? recovery->early_answer.count : packets;
    if (r->rnr_wait)
        return 0;
    return (ep->probes > 1 && packets ? 1 : packets) *
           (vb_wire_psn_diff(ep->share->short_psn, r->una) > 0 ? ep->path.mtu : SHORT_BYTES);
}

void vb_engine_cwnd_note(struct vb_endpoint *ep)
{
    uint32_t bytes = under_way(ep);

    if (bytes < ep->in_flight)
        ep->share->cwnd->answered += ep->in_flight - bytes;
    ep->share->cwnd->in_flight += (uint64_t)bytes - ep->in_flight;
    ep->in_flight = bytes;
    cwnd_wake(ep->engine, ep->share->cwnd);
}

void vb_engine_cwnd_wait(struct vb_endpoint *ep)
{
    struct vb_cwnd *cwnd = ep->share->cwnd;

    if (cwnd->served == ep) {
        cwnd->awake = false;
        vb_engine_ready_add_first(&cwnd->waiting, &ep->requesting);
    } else {
        vb_engine_ready_add(&cwnd->waiting, &ep->requesting);
    }
    cwnd_wake(ep->engine, cwnd);
}

void vb_engine_cwnd_rest(struct vb_endpoint *ep)
{
    struct vb_cwnd *cwnd = ep->share->cwnd;

    if (cwnd->served == ep)
        cwnd->served = NULL;
    cwnd_wake(ep->engine, cwnd);
}

void vb_engine_cwnd_take_turn(struct vb_endpoint *ep)
{
    struct vb_cwnd *cwnd = ep->share->cwnd;

    if (cwnd->served != ep)
        cwnd->turn = 0;
    cwnd->served = ep;
    cwnd->awake = true;
    if (++cwnd->turn < vb_engine_cwnd_turn(ep))
        return;
    cwnd->served = NULL;
    if (!vb_engine_ready_first(&cwnd->waiting))
        return;
    vb_engine_ready_remove(&ep->requesting);
    vb_engine_ready_add(&cwnd->waiting, &ep->requesting);
    cwnd_wake(ep->engine, cwnd);
}

/* A window that was not used up says nothing about the capacity of the way (RFC 7661). */
static void cwnd_grow(struct vb_cwnd *cwnd, uint64_t bytes, uint32_t mtu)
{
    if (2 * cwnd->in_flight < cwnd->window || cwnd->window >= VB_CWND_MOST || cwnd->late)
        return;
    if (cwnd->window < cwnd->threshold) {
        cwnd->window += bytes;
        return;
    }
    cwnd->acked += bytes;
    if (cwnd->acked < cwnd->window)
        return;
    cwnd->acked -= cwnd->window;
    cwnd->window += mtu;
}

/* The round trip and its deviation are smoothed as in RFC 6298. */
static void cwnd_measure(struct vb_cwnd *cwnd, uint64_t sample)
{
    uint64_t away;

    if (!cwnd->shortest || sample < cwnd->shortest)
        cwnd->shortest = sample;
    cwnd->least_timeout -= (cwnd->least_timeout - TIMEOUT_LEAST + FORGET - 1) / FORGET;
    if (!cwnd->round_trip) {
        cwnd->round_trip = sample;
        cwnd->deviation = sample / 2;
        return;
    }
    away = sample > cwnd->round_trip ? sample - cwnd->round_trip : cwnd->round_trip - sample;
    cwnd->deviation += away / 4 - cwnd->deviation / 4;
    cwnd->round_trip += sample / 8 - cwnd->round_trip / 8;
}

/*
 * How long packets may wait in queues: what the way itself leaves of the local ACK timeout, which
 * is longer where the way is (vb_engine_cwnd_answer_time).
 */
static uint64_t longest_queue(const struct vb_endpoint *ep)
{
    uint8_t code = ep->qp->terms.timeout;
    uint64_t timeout = code ? vb_ack_timeout(code) : VB_CWND_MOST, way = ep->share->cwnd->shortest;

    return timeout > 2 * way ? timeout - way : way;
}

/*
 * A packet that waits in queues for a good part of the local ACK timeout will be taken for lost. So
 * a window that fills such long queues is too large, even if no packet is dropped. A window that
 * cannot be smaller fills none: the way has become longer.
 */
static void heed_delay(struct vb_endpoint *ep, uint64_t sample, uint64_t now)
{
    struct vb_cwnd *cwnd = ep->share->cwnd;
    uint64_t most = longest_queue(ep);
    uint64_t queued = sample > cwnd->shortest ? sample - cwnd->shortest : 0;

    cwnd->late = queued > most / 4;
    if (queued <= most / 2)
        return;
    if (cwnd->window <= (uint64_t)LEAST_PACKETS * ep->path.mtu && !cwnd->doubtful)
        cwnd->shortest = sample;
    vb_engine_cwnd_cut(ep, now);
}

/*
 * The answer may be to a probe (Karn's algorithm), so it tells no round trip. The next probe waits
 * twice as long, until an answer is beyond doubt. That soon is long enough for a way that has
 * become slow, and after an outage the time is as before.
 */
static void doubt(struct vb_cwnd *cwnd)
{
    if (cwnd->doubtful < DOUBTFUL_MOST)
        ++cwnd->doubtful;
}

/*
 * The first round trip that is measured. If it is longer than the local ACK timeout, what was taken
 * for lost until now was only under way.
 */
static void cwnd_measure_first(struct vb_endpoint *ep, uint64_t sample)
{
    struct vb_cwnd *cwnd = ep->share->cwnd;
    uint8_t code = ep->qp->terms.timeout;

    if (!code || sample <= vb_ack_timeout(code))
        return;
    cwnd->threshold = VB_CWND_MOST;
    if (cwnd->window < FIRST_BYTES)
        cwnd->window = FIRST_BYTES;
}

void vb_engine_cwnd_acknowledged(struct vb_endpoint *ep, uint32_t psn, uint64_t now)
{
    struct vb_cwnd *cwnd = ep->share->cwnd;
    uint32_t left = under_way(ep);
    uint64_t sample;

    if (left < ep->in_flight)
        cwnd_grow(cwnd, ep->in_flight - left, ep->path.mtu);
    if (cwnd->timed != ep || vb_wire_psn_diff(psn, cwnd->timed_psn) < 0)
        return;
    sample = now > cwnd->timed_at ? now - cwnd->timed_at : 1;
    cwnd->timed = NULL;
    if (!cwnd->timed_in_doubt) {
        cwnd->doubtful = 0;
        if (!cwnd->round_trip)
            cwnd_measure_first(ep, sample);
        cwnd_measure(cwnd, sample);
        heed_delay(ep, sample, now);
        return;
    }
    doubt(cwnd);
    if (ep->probes >= PROBES_IN_VAIN)
        heed_delay(ep, sample, now);
}

void vb_engine_cwnd_time(struct vb_endpoint *ep, uint32_t psn, uint64_t now)
{
    struct vb_cwnd *cwnd = ep->share->cwnd;

    if (cwnd->timed)
        return;
    cwnd->timed = ep;
    cwnd->timed_in_doubt = false;
    cwnd->timed_at = now;
    cwnd->timed_psn = psn;
}

void vb_engine_cwnd_untime(struct vb_endpoint *ep)
{
    if (ep->share->cwnd->timed == ep)
        ep->share->cwnd->timed = NULL;
}

void vb_engine_cwnd_doubt(struct vb_endpoint *ep)
{
    ep->share->cwnd->timed_in_doubt |= ep->share->cwnd->timed == ep;
}

static void cwnd_shrink(struct vb_endpoint *ep, uint64_t window)
{
    uint64_t least = (uint64_t)LEAST_PACKETS * ep->path.mtu;

    ep->share->cwnd->window = window > least ? window : least;
    ep->share->cwnd->acked = 0;
}

/*
 * The window after a cut. The first cut ends slow start, whose last doubling was too much. Later
 * the window was about right. If then the round trip is hardly longer than the shortest one, there
 * was no long queue, and the loss has other reasons (TCP Veno).
 */
static uint64_t left_of(const struct vb_cwnd *cwnd, uint64_t used)
{
    if (!vb_engine_cwnd_was_cut(cwnd))
        return used / 2;
    return cwnd->round_trip < cwnd->shortest + cwnd->shortest / 4 ? used / 10 * 9 : used / 10 * 7;
}

void vb_engine_cwnd_cut(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_cwnd *cwnd = ep->share->cwnd;
    uint64_t used;

    if (now < cwnd->cut_until)
        return;
    used = cwnd->in_flight > cwnd->window / 2 ? cwnd->in_flight : cwnd->window / 2;
    cwnd->before = 0;
    cwnd_shrink(ep, left_of(cwnd, used < cwnd->window ? used : cwnd->window));
    cwnd->threshold = cwnd->window;
    cwnd->cut_until = now + cwnd->round_trip + cwnd->deviation;
    if (cwnd->cut_until < now + VB_CWND_NOTICE_INTERVAL)
        cwnd->cut_until = now + VB_CWND_NOTICE_INTERVAL;
    ++ep->engine->counters.window_cuts;
}

void vb_engine_cwnd_expired(struct vb_endpoint *ep, uint64_t timeout, uint64_t now)
{
    struct vb_cwnd *cwnd = ep->share->cwnd;

    if (now < cwnd->cut_until)
        return;
    vb_engine_cwnd_cut(ep, now);
    if (cwnd->cut_until < now + timeout)
        cwnd->cut_until = now + timeout;
}

void vb_engine_cwnd_silence(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_cwnd *cwnd = ep->share->cwnd;
    uint64_t least = (uint64_t)LEAST_PACKETS * ep->path.mtu;

    if (now < cwnd->heard_at + SILENCE || cwnd->window <= least)
        return;
    cwnd->before = cwnd->window;
    cwnd->threshold = cwnd->window / 2;
    cwnd_shrink(ep, 0);
}

void vb_engine_cwnd_restore(struct vb_cwnd *cwnd)
{
    if (cwnd->window < cwnd->before)
        cwnd->window = cwnd->before;
    cwnd->before = 0;
}

void vb_engine_cwnd_late(struct vb_cwnd *cwnd, uint64_t waited)
{
    uint64_t least = waited + waited / 2;

    if (least > SILENCE)
        least = SILENCE;
    if (least > cwnd->least_timeout)
        cwnd->least_timeout = least;
}

bool vb_engine_cwnd_is_draining(const struct vb_cwnd *cwnd, uint64_t behind, uint64_t now)
{
    return cwnd->answered < behind && now < cwnd->heard_at + vb_engine_cwnd_timeout(cwnd);
}

uint64_t vb_engine_cwnd_answer_time(const struct vb_cwnd *cwnd)
{
    if (!cwnd->round_trip)
        return cwnd->doubtful ? (uint64_t)TIMEOUT_FIRST << cwnd->doubtful : 0;
    return cwnd->shortest + cwnd->shortest / 2;
}

uint64_t vb_engine_cwnd_timeout(const struct vb_cwnd *cwnd)
{
    uint64_t timeout = cwnd->round_trip + 4 * cwnd->deviation, least;

    least = cwnd->round_trip ? cwnd->least_timeout : TIMEOUT_FIRST;
    /* after losses a missing answer is asked for earlier (RFC 8985) */
    if (vb_engine_cwnd_was_cut(cwnd) && least == TIMEOUT_LEAST && 2 * cwnd->round_trip < least)
        least = 2 * cwnd->round_trip;
    timeout = (timeout < least ? least : timeout) << cwnd->doubtful;
    return timeout < TIMEOUT_MOST ? timeout : TIMEOUT_MOST;
}
