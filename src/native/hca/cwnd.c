// SPDX-License-Identifier: Apache-2.0
#include "hca/cwnd.h"

#include <errno.h>
#include <stdlib.h>

enum {
    FIRST_BYTES = 64 << 10,
    LEAST_PACKETS = 4,
    MICROSECOND = 1000,
    MILLISECOND = 1000 * MICROSECOND,
    TIMEOUT_LEAST = 200 * MICROSECOND,
    TIMEOUT_FIRST = 50 * MILLISECOND,
    TIMEOUT_MOST = 1000 * MILLISECOND,
    SILENCE = 20 * MILLISECOND, /* a process that was not scheduled is no loss */
    NOTICE_INTERVAL = 50 * MICROSECOND,
};

static const uint64_t WINDOW_MOST = 1ull << 40;

static struct vb_cwnd *find(const struct vb_engine *engine, const uint8_t dgid[16])
{
    struct vb_cwnd *cwnd = engine->cwnds;

    while (cwnd && memcmp(cwnd->dgid, dgid, sizeof(cwnd->dgid)) != 0)
        cwnd = cwnd->next;
    return cwnd;
}

static struct vb_cwnd *add(struct vb_engine *engine, const uint8_t dgid[16])
{
    struct vb_cwnd *cwnd = calloc(1, sizeof(*cwnd));

    if (!cwnd)
        return NULL;
    memcpy(cwnd->dgid, dgid, sizeof(cwnd->dgid));
    cwnd->window = FIRST_BYTES;
    cwnd->threshold = WINDOW_MOST;
    vb_ready_init(&cwnd->waiting);
    cwnd->next = engine->cwnds;
    engine->cwnds = cwnd;
    return cwnd;
}

static void drop(struct vb_engine *engine, struct vb_cwnd *cwnd)
{
    struct vb_cwnd **at = &engine->cwnds;

    while (*at != cwnd)
        at = &(*at)->next;
    *at = cwnd->next;
    free(cwnd);
}

static void wake(struct vb_engine *engine, struct vb_cwnd *cwnd)
{
    struct vb_link *first = vb_ready_first(&cwnd->waiting);

    if (!first || cwnd->in_flight >= cwnd->window)
        return;
    vb_ready_remove(first);
    vb_ready_add(&engine->requesting, first);
}

void vb_cwnd_leave(struct vb_endpoint *ep)
{
    struct vb_cwnd *cwnd = ep->share.cwnd;

    if (!cwnd)
        return;
    vb_ready_remove(&ep->requesting);
    vb_cwnd_untime(ep);
    cwnd->in_flight -= ep->share.in_flight;
    ep->share.in_flight = 0;
    ep->share.cwnd = NULL;
    if (--cwnd->members == 0)
        drop(ep->engine, cwnd);
    else
        wake(ep->engine, cwnd);
}

int vb_cwnd_join(struct vb_endpoint *ep, const uint8_t dgid[16])
{
    struct vb_cwnd *cwnd = find(ep->engine, dgid);

    if (!cwnd)
        cwnd = add(ep->engine, dgid);
    if (!cwnd)
        return -ENOMEM;
    ++cwnd->members;
    vb_cwnd_leave(ep);
    ep->share.cwnd = cwnd;
    return 0;
}

/* Who is silent for long keeps nothing from the others. */
static uint32_t under_way(const struct vb_endpoint *ep)
{
    const struct vb_requester *r = &ep->requester;
    uint32_t packets = vb_psn_count(r->una, r->next_psn);

    if (r->rnr_wait)
        return 0;
    return (ep->share.probes > 1 && packets ? 1 : packets) * ep->path.mtu;
}

void vb_cwnd_note(struct vb_endpoint *ep)
{
    uint32_t bytes = under_way(ep);

    ep->share.cwnd->in_flight += (uint64_t)bytes - ep->share.in_flight;
    ep->share.in_flight = bytes;
    wake(ep->engine, ep->share.cwnd);
}

void vb_cwnd_wait(struct vb_endpoint *ep)
{
    vb_ready_remove(&ep->requesting);
    vb_ready_add(&ep->share.cwnd->waiting, &ep->requesting);
    wake(ep->engine, ep->share.cwnd);
}

/* A window that did not hold anybody back says nothing about the way (RFC 7661). */
static void grow(struct vb_cwnd *cwnd, uint64_t bytes, uint32_t mtu)
{
    if (2 * cwnd->in_flight < cwnd->window || cwnd->window >= WINDOW_MOST)
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

static void measure(struct vb_cwnd *cwnd, uint64_t sample)
{
    uint64_t away;

    if (!cwnd->shortest || sample < cwnd->shortest)
        cwnd->shortest = sample;
    if (!cwnd->round_trip) {
        cwnd->round_trip = sample;
        cwnd->deviation = sample / 2;
        return;
    }
    away = sample > cwnd->round_trip ? sample - cwnd->round_trip : cwnd->round_trip - sample;
    cwnd->deviation += away / 4 - cwnd->deviation / 4;
    cwnd->round_trip += sample / 8 - cwnd->round_trip / 8;
}

void vb_cwnd_acknowledged(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_cwnd *cwnd = ep->share.cwnd;
    uint32_t left = under_way(ep);

    cwnd->heard_at = now;
    if (left < ep->share.in_flight)
        grow(cwnd, ep->share.in_flight - left, ep->path.mtu);
    if (cwnd->timed != ep || vb_psn_diff(ep->requester.una, cwnd->timed_psn) <= 0)
        return;
    cwnd->timed = NULL;
    measure(cwnd, now > cwnd->timed_at ? now - cwnd->timed_at : 1);
}

void vb_cwnd_time(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_cwnd *cwnd = ep->share.cwnd;

    if (cwnd->timed || ep->requester.next_psn != ep->requester.sent_psn)
        return;
    cwnd->timed = ep;
    cwnd->timed_at = now;
    cwnd->timed_psn = ep->requester.next_psn;
}

void vb_cwnd_untime(struct vb_endpoint *ep)
{
    if (ep->share.cwnd->timed == ep)
        ep->share.cwnd->timed = NULL;
}

static void shrink(struct vb_endpoint *ep, uint64_t window)
{
    uint64_t least = (uint64_t)LEAST_PACKETS * ep->path.mtu;

    ep->share.cwnd->window = window > least ? window : least;
    ep->share.cwnd->acked = 0;
}

/*
 * What is left of the window. The first time it had doubled in vain. Later it was about right; and
 * if the round trip is hardly longer than ever, there was no queue that could have been too long,
 * and the loss has other reasons (as TCP Veno has it).
 */
static uint64_t left_of(const struct vb_cwnd *cwnd, uint64_t used)
{
    if (cwnd->threshold == WINDOW_MOST)
        return used / 2;
    return cwnd->round_trip < cwnd->shortest + cwnd->shortest / 4 ? used / 10 * 9 : used / 10 * 7;
}

void vb_cwnd_cut(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_cwnd *cwnd = ep->share.cwnd;
    uint64_t used;

    if (now < cwnd->cut_until)
        return;
    used = cwnd->in_flight > cwnd->window / 2 ? cwnd->in_flight : cwnd->window / 2;
    cwnd->before = 0;
    shrink(ep, left_of(cwnd, used < cwnd->window ? used : cwnd->window));
    cwnd->threshold = cwnd->window;
    cwnd->cut_until = now + cwnd->round_trip + cwnd->deviation;
    if (cwnd->cut_until < now + NOTICE_INTERVAL)
        cwnd->cut_until = now + NOTICE_INTERVAL;
    ++ep->engine->counters.window_cuts;
}

void vb_cwnd_silence(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_cwnd *cwnd = ep->share.cwnd;
    uint64_t least = (uint64_t)LEAST_PACKETS * ep->path.mtu;

    if (now < cwnd->heard_at + SILENCE || cwnd->window <= least)
        return;
    cwnd->before = cwnd->window;
    cwnd->threshold = cwnd->window / 2;
    shrink(ep, 0);
}

void vb_cwnd_restore(struct vb_cwnd *cwnd)
{
    if (cwnd->window < cwnd->before)
        cwnd->window = cwnd->before;
    cwnd->before = 0;
}

uint64_t vb_cwnd_timeout(const struct vb_cwnd *cwnd)
{
    uint64_t timeout = cwnd->round_trip + 4 * cwnd->deviation;

    if (!cwnd->round_trip)
        return TIMEOUT_FIRST;
    if (timeout < TIMEOUT_LEAST)
        return TIMEOUT_LEAST;
    return timeout < TIMEOUT_MOST ? timeout : TIMEOUT_MOST;
}
