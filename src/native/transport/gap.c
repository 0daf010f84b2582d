// SPDX-License-Identifier: Apache-2.0
/*
 * The store of early packets and the wait for a missing one. How long to wait is learned for each
 * peer address (vb_cwnd.patience): from packets that came late without being asked for, and from
 * packets that came twice because they were asked for too early.
 */
#include "transport/gap.h"

#include <errno.h>
#include <stdlib.h>

#include "transport/cwnd.h"

enum { STORE = 1024, PATIENCE_MOST = 8000000 /* ns */ };
enum { FARTHEST = 1 << 16, OLDEST = 1000000000 /* ns */ };

int vb_engine_gap_open_store(struct vb_engine *engine)
{
    engine->store = malloc(STORE * sizeof(*engine->store));
    return engine->store ? 0 : -ENOMEM;
}

void vb_engine_gap_close_store(struct vb_engine *engine)
{
    free(engine->store);
}

/* Entries that were never used are taken last: until then the system gives no memory for them. */
static struct vb_held *get(struct vb_engine *engine)
{
    struct vb_held *held = engine->spare;

    if (held)
        engine->spare = held->next;
    else if (engine->stored < STORE)
        held = &engine->store[engine->stored++];
    return held;
}

void vb_engine_gap_release(struct vb_engine *engine, struct vb_held *held)
{
    held->next = engine->spare;
    engine->spare = held;
}

/* The place in the list by PSN, which mostly is its end; NULL: the packet is kept already. */
static struct vb_held **gap_place(struct vb_gap *gap, uint32_t psn)
{
    struct vb_held **at = &gap->first;

    if (gap->first && vb_wire_psn_diff(psn, gap->last->psn) > 0)
        return &gap->last->next;
    while (*at && vb_wire_psn_diff(psn, (*at)->psn) > 0)
        at = &(*at)->next;
    return *at && (*at)->psn == psn ? NULL : at;
}

static void gap_keep(struct vb_endpoint *ep, struct vb_gap *gap, const struct vb_incoming *in)
{
    const struct vb_arrival *arrival = in->arrival;
    struct vb_held **at = gap_place(gap, in->bth.psn), *held;

    if (!at || arrival->length > sizeof(held->bytes) || !(held = get(ep->engine)))
        return;
    held->psn = in->bth.psn;
    held->at = in->now;
    held->arrival = *arrival;
    held->arrival.bytes = held->bytes;
    held->arrival.grh = NULL;
    memcpy(held->bytes, arrival->bytes, arrival->length);
    held->next = *at;
    *at = held;
    if (!held->next)
        gap->last = held;
    ++gap->count;
    ++ep->engine->counters.packets_held;
}

static uint64_t end_of_wait(const struct vb_endpoint *ep, const struct vb_gap *gap)
{
    return gap->since + ep->share->cwnd->patience;
}

static void gap_set_timer(struct vb_endpoint *ep, const struct vb_gap *gap)
{
    struct vb_timer *timer = &ep->share->recovery->timer;

    if (end_of_wait(ep, gap) < timer->due)
        vb_engine_timer_set(&ep->engine->timers, timer, end_of_wait(ep, gap));
}

/* Is the wait for the missing packet over? */
static bool gap_tell(struct vb_endpoint *ep, struct vb_gap *gap, uint64_t now)
{
    gap->told = now >= end_of_wait(ep, gap);
    gap->told_at = now;
    if (!gap->told)
        gap_set_timer(ep, gap);
    return gap->told;
}

bool vb_engine_gap_seen(struct vb_endpoint *ep, struct vb_gap *gap, uint64_t now)
{
    if (!gap->open) {
        gap->open = true;
        gap->told = false;
        gap->since = now;
    }
    return !gap->told && gap_tell(ep, gap, now);
}

void vb_engine_gap_lost_again(struct vb_gap *gap, uint64_t now)
{
    gap->told = false;
    gap->since = now;
}

bool vb_engine_gap_hold(struct vb_endpoint *ep, struct vb_gap *gap, uint32_t missing,
                        const struct vb_incoming *in)
{
    if (vb_engine_psn_count(missing, in->bth.psn) <= FARTHEST)
        gap_keep(ep, gap, in);
    return vb_engine_gap_seen(ep, gap, in->now);
}

bool vb_engine_gap_expired(struct vb_endpoint *ep, struct vb_gap *gap, uint64_t now)
{
    return gap->open && !gap->told && gap_tell(ep, gap, now);
}

struct vb_held *vb_engine_gap_take(struct vb_endpoint *ep, struct vb_gap *gap, uint32_t psn)
{
    struct vb_held *held;

    while ((held = gap->first) && vb_wire_psn_diff(held->psn, psn) <= 0) {
        gap->first = held->next;
        --gap->count;
        if (held->psn == psn)
            return held;
        vb_engine_gap_release(ep->engine, held);
    }
    return NULL;
}

void vb_engine_gap_read(const struct vb_held *held, struct vb_incoming *in)
{
    in->arrival = &held->arrival;
    vb_engine_incoming_parse(in);
    if (in->opcode->flags & VB_OPCODE_XRCETH) {
        in->srq_num = vb_wire_xrceth_read(in->extended);
        in->extended += VB_XRCETH;
    }
}

static void learn(struct vb_cwnd *cwnd, uint64_t lateness)
{
    uint64_t patience = lateness + lateness / 2;

    if (patience > PATIENCE_MOST)
        patience = PATIENCE_MOST;
    if (patience > cwnd->patience)
        cwnd->patience = (uint32_t)patience;
}

bool vb_engine_gap_closed(struct vb_endpoint *ep, struct vb_gap *gap, uint32_t psn, uint64_t now)
{
    struct vb_cwnd *cwnd = ep->share->cwnd;

    if (gap->told) { /* `asked`: it came sooner than it can have been sent again */
        gap->asked_psn = psn;
        gap->asked = !cwnd->shortest || now < gap->told_at + cwnd->shortest;
        gap->lateness = now - gap->since;
        cwnd->patience -= cwnd->patience / 16;
        cwnd->doubts -= cwnd->doubts > 0;
    } else {
        learn(cwnd, now - gap->since);
    }
    gap->told = false;
    vb_engine_gap_forget_old(ep->engine, gap, now);
    gap->open = gap->first != NULL;
    if (!gap->open)
        return false;
    gap->since = gap->first->at;
    return gap_tell(ep, gap, now);
}

enum { DOUBT = 2, DOUBTS_MOST = 8, DOUBTS_ENOUGH = 3 };

/*
 * After a loss a packet may come twice for other reasons, so only several such packets change the
 * wait. On a way where packets overtake each other, most of those that were asked for come twice.
 */
void vb_engine_gap_duplicate(struct vb_endpoint *ep, struct vb_gap *gap, uint32_t psn)
{
    struct vb_cwnd *cwnd = ep->share->cwnd;

    if (!gap->asked || psn != gap->asked_psn)
        return;
    gap->asked = false;
    if (cwnd->doubts < DOUBTS_MOST)
        cwnd->doubts = (uint8_t)(cwnd->doubts + DOUBT);
    if (cwnd->doubts >= DOUBTS_ENOUGH)
        learn(cwnd, gap->lateness);
}

void vb_engine_gap_forget(struct vb_engine *engine, struct vb_gap *gap)
{
    struct vb_held *held;

    while ((held = gap->first)) {
        gap->first = held->next;
        vb_engine_gap_release(engine, held);
    }
    gap->count = 0;
    gap->open = gap->told = false;
}

void vb_engine_gap_forget_old(struct vb_engine *engine, struct vb_gap *gap, uint64_t now)
{
    if (gap->first && now > gap->first->at + OLDEST)
        vb_engine_gap_forget(engine, gap);
}
