// SPDX-License-Identifier: Apache-2.0
/*
 * Sending again beside the cursor: the requester's cursor is put on the lost packet, the packet is
 * made, and the cursor is put back. For a READ this also decides how many responses to ask for.
 */
#include "transport/mend.h"

#include "transport/cwnd.h"
#include "transport/gap.h"
#include "transport/recovery.h"
#include "transport/requester.h"

/* Has the responder had the request for this part? It has if any response of the part came. */
static bool is_accepted(const struct vb_endpoint *ep, const struct vb_sq_wqe *wqe, uint32_t end)
{
    const struct vb_held *held = ep->share->recovery->early_answer.first;
    const struct vb_requester *r = &ep->requester;

    return r->index % wqe->part ||
           (held && vb_engine_psn_count(r->next_psn, held->psn) <= end - r->index);
}

/*
 * If some responses of the part have come, it is enough to ask for those missing before the next
 * one, and only for a few at first, since the bottleneck may have no room for more. Not every
 * responder answers such a request (qib wants the old end), so without an answer the rest is asked
 * for.
 */
VB_COLD uint32_t vb_engine_mend_read_end(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe,
                                         uint32_t end)
{
    const struct vb_requester *r = &ep->requester;
    struct vb_recovery *recovery = ep->share->recovery;
    struct vb_cwnd *cwnd = ep->share->cwnd;
    const struct vb_held *held = recovery->early_answer.first;
    uint32_t part = end, most = recovery->asks_most;

    if (held && vb_engine_psn_count(r->next_psn, held->psn) < most)
        most = vb_engine_psn_count(r->next_psn, held->psn);
    if (is_accepted(ep, wqe, end) && most < end - r->index)
        part = r->index + most;
    if (part != end && ((recovery->asked && recovery->asked_psn == r->next_psn) || cwnd->wholes)) {
        cwnd->wholes -= cwnd->wholes > 0;
        part = end;
    }
    recovery->asked_part = part != end;
    return part;
}

/* Puts the cursor on a packet of a request that has begun. */
static void put_cursor(struct vb_endpoint *ep, uint32_t psn)
{
    struct vb_requester *r = &ep->requester;
    const struct vb_sq_wqe *wqe;

    r->position = ep->qp->sq_next;
    r->next_psn = psn;
    for (;; ++r->position) {
        wqe = vb_engine_sq_at(ep->qp, r->position);
        r->index = vb_engine_psn_count(wqe->first_psn, psn);
        if (r->index < wqe->packets)
            return;
    }
}

/*
 * Makes the packet at `psn`, and the cursor stays. Returns the next packet's PSN, or `psn` if the
 * connection has failed.
 */
static uint32_t mend_send_again(struct vb_endpoint *ep, uint32_t psn, struct vb_packet *packet,
                                uint64_t now)
{
    struct vb_recovery *recovery = ep->share->recovery;
    struct vb_requester *r = &ep->requester, saved = *r;
    uint32_t next;
    bool made;

    put_cursor(ep, psn);
    recovery->beside = true;
    made = vb_engine_requester_make(ep, vb_engine_sq_at(ep->qp, r->position), packet, now);
    recovery->beside = false;
    if (!made)
        return psn;
    next = r->next_psn;
    if (psn == r->una) { /* it asks for responses, and all before them have come */
        recovery->asked = true;
        recovery->asked_psn = psn;
        recovery->asked_end = next;
        recovery->behind_psn = r->sent_psn;
    }
    r->position = saved.position;
    r->index = saved.index;
    r->next_psn = saved.next_psn;
    r->rd_outstanding = saved.rd_outstanding;
    vb_engine_requester_pass_local(ep); /* to see whether more follows, such requests were begun */
    return next;
}

/* Makes the missing packet, or one that follows it and is sent again, too. */
static bool mend_mend(struct vb_endpoint *ep, struct vb_packet *packet, uint64_t now)
{
    struct vb_recovery *recovery = ep->share->recovery;
    struct vb_requester *r = &ep->requester;
    uint32_t next;

    r->ask = --recovery->mend_count == 0;
    next = mend_send_again(ep, recovery->mend_psn, packet, now);
    if (next == recovery->mend_psn)
        return false;
    recovery->mend_psn = next;
    if (vb_wire_psn_diff(next, r->next_psn) >= 0)
        recovery->mend_count = 0;
    return true;
}

/* Makes a request for missing responses; the cursor, and whether its packet asks, stay. */
static bool ask_missing(struct vb_endpoint *ep, struct vb_packet *packet, uint64_t now)
{
    struct vb_requester *r = &ep->requester;
    uint32_t unasked = r->unasked;
    uint8_t reason = r->reason;
    bool ask = r->ask, made;

    ep->share->recovery->asks = false;
    r->reason = VB_PACKET_AFTER_LOST_RESPONSE;
    made = mend_send_again(ep, r->una, packet, now) != r->una;
    r->reason = reason;
    r->unasked = unasked;
    r->ask = ask;
    return made;
}

/* Are responses to be asked for? If the cursor went back to them, it asks for them itself. */
static bool is_asking(struct vb_endpoint *ep)
{
    struct vb_recovery *recovery = ep->share->recovery;
    const struct vb_requester *r = &ep->requester;

    recovery->asks &= vb_wire_psn_diff(r->next_psn, r->una) > 0;
    return recovery->asks;
}

/*
 * May new packets leave before the packets that were sent again are answered? Only if the peer
 * keeps early packets, as others throw them away.
 */
static bool follows(const struct vb_endpoint *ep)
{
    return ep->requester.reason == VB_PACKET_AFTER_SEQUENCE_NAK && ep->share->cwnd->keeps;
}

void vb_engine_mend_ask(struct vb_endpoint *ep)
{
    ep->share->recovery->asks = true;
    vb_engine_ready_remove(
        &ep->requesting); /* it may be in the list of those that wait for the window */
    vb_engine_ready_add(&ep->engine->requesting, &ep->requesting);
}

static void start_mending(struct vb_endpoint *ep, uint32_t psn, uint32_t count,
                          enum vb_packet_reason reason, uint64_t now)
{
    struct vb_recovery *recovery = ep->share->recovery;

    ep->requester.reason = (uint8_t)reason;
    recovery->mend_psn = psn;
    recovery->mend_count = count;
    recovery->mending = count > 0;
    recovery->mended_at = now;
    vb_engine_ready_remove(
        &ep->requesting); /* it may be in the list of those that wait for the window */
    vb_engine_ready_add(&ep->engine->requesting, &ep->requesting);
}

void vb_engine_mend_first(struct vb_endpoint *ep, uint32_t packets, enum vb_packet_reason reason,
                          uint64_t now)
{
    struct vb_recovery *recovery = vb_engine_recovery_get(ep, now);
    uint32_t outstanding = vb_engine_psn_count(ep->requester.una, ep->requester.next_psn);

    if (!recovery) {
        vb_engine_requester_go_back(ep, reason);
        return;
    }
    if (reason == VB_PACKET_AFTER_TIMEOUT || reason == VB_PACKET_PROBE)
        vb_engine_cwnd_doubt(ep);
    else /* the following packets wait at the peer, or are dropped by it */
        vb_engine_cwnd_untime(ep);
    start_mending(ep, ep->requester.una, packets < outstanding ? packets : outstanding, reason,
                  now);
}

void vb_engine_mend_at(struct vb_endpoint *ep, uint32_t psn, uint64_t now)
{
    vb_engine_cwnd_untime(ep);
    start_mending(ep, psn, 1, VB_PACKET_AFTER_SEQUENCE_NAK, now);
}

VB_COLD bool vb_engine_mend_is_due(struct vb_endpoint *ep)
{
    const struct vb_recovery *recovery = ep->share->recovery;

    return is_asking(ep) || (recovery->mending && (recovery->mend_count || !follows(ep)));
}

VB_COLD bool vb_engine_mend_next(struct vb_endpoint *ep, struct vb_packet *packet, uint64_t now)
{
    if (ep->share->recovery->asks)
        return ask_missing(ep, packet, now);
    return ep->share->recovery->mend_count && mend_mend(ep, packet, now);
}
