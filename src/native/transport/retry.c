// SPDX-License-Identifier: Apache-2.0
/*
 * The requester's retries. For each event (timeout, NAK, RNR NAK, lost response, progress) this
 * counts the retry, decides what is sent again, and sets the timer. If no retry is left, the
 * request ends with what was heard of the peer as its evidence.
 */
#include "transport/retry.h"

#include "hca/delays.h"
#include "hca/overdue.h"
#include "hca/refusal.h"
#include "transport/cwnd.h"
#include "transport/mend.h"
#include "transport/recovery.h"
#include "transport/requester.h"

/* It differs a little for each connection, so that those that lost together do not probe together.
 */
static uint64_t probe_time(const struct vb_endpoint *ep, uint64_t now)
{
    const struct vb_share *share = ep->share;
    uint64_t timeout = vb_engine_cwnd_timeout(share->cwnd) << ep->probes;
    uint32_t mixed = (ep->qp->number + ep->probes) * 2654435761u;

    return now + timeout + (timeout / 4 * (mixed >> 16) >> 16);
}

/* Sets the timer for a probe, or for the local ACK timeout if that is earlier. */
static void set_probe(struct vb_endpoint *ep, uint64_t now)
{
    uint64_t due = ep->share->due, probe = probe_time(ep, now);

    vb_engine_timer_set(&ep->engine->timers, &ep->timer, probe < due ? probe : due);
}

enum { EXTENDED_MOST = 3 };

/*
 * How often the local ACK timeout is added to itself because answers take longer. The timer may
 * take one to four times what the attribute says (IBA 9.7.6.1.3).
 */
static uint8_t extended_for_way(const struct vb_endpoint *ep, uint64_t timeout)
{
    uint64_t times = vb_engine_cwnd_answer_time(ep->share->cwnd) / timeout;

    return times < EXTENDED_MOST ? (uint8_t)times : EXTENDED_MOST;
}

void vb_engine_retry_start_timer(struct vb_endpoint *ep, uint64_t now)
{
    uint8_t code = ep->qp->terms.timeout;
    uint64_t timeout = code ? vb_ack_timeout(code) : 0;

    if (!vb_engine_endpoint_adapts(ep)) {
        vb_engine_timer_set(&ep->engine->timers, &ep->timer, code ? now + timeout : VB_NEVER);
        return;
    }
    ep->extended = code ? extended_for_way(ep, timeout) : 0;
    ep->share->due = code ? now + (1 + ep->extended) * timeout : VB_NEVER;
    set_probe(ep, now);
}

static void retry_restart_timer(struct vb_endpoint *ep, uint64_t now)
{
    if (vb_engine_requester_outstanding(&ep->requester))
        vb_engine_retry_start_timer(ep, now);
    else
        vb_engine_timer_set(&ep->engine->timers, &ep->timer, VB_NEVER);
}

/* After RNR the limit of packets in flight doubles as long as messages are taken. */
static void retry_widen(struct vb_endpoint *ep)
{
    struct vb_recovery *recovery = ep->share->recovery;

    recovery->opening *= 2;
    if (recovery->opening >= ep->window)
        recovery->opening = 0;
}

enum { SURE = 3, MEND_MOST = 32, PROBES_MOST = 8 };

/* Several packets were sent again, and the last of them has not been answered. */
static bool awaits_more(const struct vb_endpoint *ep)
{
    const struct vb_requester *r = &ep->requester;

    return r->reason == VB_PACKET_AFTER_SEQUENCE_NAK && ep->qp->sq_next != r->begun &&
           !vb_engine_is_read_or_atomic(&vb_engine_sq_at(ep->qp, ep->qp->sq_next)->wr) &&
           vb_wire_psn_diff(ep->share->recovery->mend_psn, r->una) > 0;
}

/* Have the responses that were asked for come? A loss before `cut_psn` has cut the window. */
static void progress_of_asked(struct vb_endpoint *ep)
{
    struct vb_recovery *recovery = ep->share->recovery;
    uint32_t una = ep->requester.una;

    if (vb_wire_psn_diff(una, recovery->cut_psn) > 0)
        recovery->cut_psn = una;
    if (!recovery->asked || vb_wire_psn_diff(una, recovery->asked_end) < 0)
        return;
    recovery->asked = false;
    if (!recovery->asked_part)
        return;
    ep->share->cwnd->distrust = 0;
    if (recovery->asks_most < MEND_MOST)
        recovery->asks_most *= 2;
}

/*
 * Did the answer come so soon after the first probe that it is not to the probe? Then the probe was
 * needless, and the peer was only late. The shortest round trip may be one of many packets, so
 * "soon" is a quarter of it. How much the answer acknowledges does not tell: a peer that keeps
 * early packets may have missed only the one that the probe repeated.
 */
static void judge_probe(struct vb_endpoint *ep, uint64_t waited, uint64_t now)
{
    const struct vb_recovery *recovery = ep->share->recovery;
    struct vb_cwnd *cwnd = ep->share->cwnd;

    if (ep->probes == 1 && ep->requester.reason == VB_PACKET_PROBE && recovery &&
        recovery->mended_at && now < recovery->mended_at + cwnd->shortest / 4)
        vb_engine_cwnd_late(cwnd, waited);
}

static void progress_of_recovery(struct vb_endpoint *ep, uint64_t waited, uint64_t now)
{
    struct vb_recovery *recovery = ep->share->recovery;

    judge_probe(ep, waited, now);
    vb_engine_cwnd_acknowledged(ep, vb_engine_psn_add(ep->requester.una, VB_PSN_MASK), now);
    ep->probes = 0;
    if (!recovery)
        return;
    recovery->behind = 0;
    recovery->mending &= awaits_more(ep);
    progress_of_asked(ep);
    retry_widen(ep);
    if (recovery->mended_at && vb_wire_psn_diff(ep->requester.una, recovery->mend_psn) > 0) {
        recovery->mended_at = 0;
        ep->share->cwnd->keeps = SURE;
        vb_engine_cwnd_restore(ep->share->cwnd);
    }
}

void vb_engine_retry_progress(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_requester *r = &ep->requester;
    uint64_t waited = now - r->since;

    r->retry_left = ep->qp->terms.retry_cnt;
    r->rnr_left = ep->qp->terms.rnr_retry;
    r->naks = r->timeouts = r->not_ready = r->beyond = 0;
    r->since = now;
    r->implied = r->probing = false;
    if (vb_engine_endpoint_adapts(ep))
        progress_of_recovery(ep, waited, now);
    if (!r->rnr_wait)
        retry_restart_timer(ep, now);
    vb_engine_ready_add(&ep->engine->requesting, &ep->requesting);
}

/* Adds to the evidence what the request asked for and how often it was tried. */
static void retry_describe(const struct vb_endpoint *ep, const struct vb_sq_wqe *wqe,
                           struct vb_evidence *evidence)
{
    bool atomic = wqe->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
                  wqe->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

    evidence->psn = ep->requester.una;
    evidence->naks = ep->requester.naks;
    evidence->timeouts = ep->requester.timeouts;
    evidence->length = wqe->length;
    if (wqe->wr.opcode == IBV_WR_SEND_WITH_INV)
        evidence->key = wqe->wr.invalidate_rkey;
    if (wqe->wr.opcode == IBV_WR_SEND || wqe->wr.opcode == IBV_WR_SEND_WITH_IMM ||
        wqe->wr.opcode == IBV_WR_SEND_WITH_INV)
        return;
    if (wqe->wr.opcode == IBV_WR_FLUSH && wqe->wr.wr.flush.level != IBV_FLUSH_MR)
        evidence->length = wqe->wr.wr.flush.length;
    evidence->addr = atomic ? wqe->wr.wr.atomic.remote_addr : wqe->wr.wr.rdma.remote_addr;
    evidence->key = atomic ? wqe->wr.wr.atomic.rkey : wqe->wr.wr.rdma.rkey;
}

VB_COLD void vb_engine_retry_refuse(struct vb_endpoint *ep, enum ibv_wc_status status,
                                    struct vb_evidence *evidence)
{
    struct vb_sq_wqe *wqe = vb_engine_sq_at(ep->qp, ep->qp->sq_next);
    struct vb_outcome outcome = {0};

    retry_describe(ep, wqe, evidence);
    vb_refuse(ep->qp, &wqe->wr, status, evidence, &outcome);
    vb_engine_requester_complete(ep, &outcome);
}

/* Was nothing acknowledged yet, and does the peer's response have a PSN that was never sent? */
static bool is_unsent(const struct vb_endpoint *ep)
{
    const struct vb_requester *r = &ep->requester;

    return r->una == ep->qp->terms.sq_psn &&
           (vb_wire_psn_diff(r->heard_psn, vb_engine_psn_add(r->una, VB_PSN_MASK)) < 0 ||
            vb_wire_psn_diff(r->heard_psn, r->sent_psn) >= 0);
}

static enum vb_heard kind_of_heard(const struct vb_endpoint *ep)
{
    const struct vb_requester *r = &ep->requester;

    if (!r->heard_at)
        return VB_HEARD_NOTHING;
    if (r->heard_syndrome == VB_HEARD_NO_SYNDROME)
        return VB_HEARD_RESPONSE;
    switch (r->heard_syndrome >> 5) {
    case VB_AETH_ACK:
        return is_unsent(ep) ? VB_HEARD_ACK_UNSENT : VB_HEARD_ACK;
    case VB_AETH_RNR:
        return VB_HEARD_RNR_NAK;
    default:
        return is_unsent(ep) ? VB_HEARD_SEQUENCE_NAK_UNSENT : VB_HEARD_SEQUENCE_NAK;
    }
}

/* Adds what was last heard of the peer, for a request that it did not answer. */
static void describe_heard(const struct vb_endpoint *ep, uint64_t now, struct vb_evidence *evidence)
{
    const struct vb_requester *r = &ep->requester;
    uint64_t ago = (now - r->heard_at) / 1000;

    evidence->silence = kind_of_heard(ep);
    evidence->heard_psn = r->heard_psn;
    evidence->heard_us = ago < UINT32_MAX ? (uint32_t)ago : UINT32_MAX;
    evidence->not_ready = r->not_ready;
    evidence->beyond = r->beyond;
}

static VB_COLD void retry_give_up(struct vb_endpoint *ep, enum vb_check check, uint64_t now)
{
    struct vb_evidence evidence = {.check = (uint16_t)check,
                                   .count = ep->qp->terms.retry_cnt,
                                   .microseconds = (now - ep->requester.since) / 1000};

    if (check == VB_CHECK_RNR) {
        evidence.count = ep->qp->terms.rnr_retry;
        ++ep->engine->counters.rnr_retries_exhausted;
    } else {
        describe_heard(ep, now, &evidence);
        ++ep->engine->counters.retries_exhausted;
    }
    vb_engine_retry_refuse(
        ep, check == VB_CHECK_RNR ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_RETRY_EXC_ERR, &evidence);
}

/* Uses up one retry; false: there was none left, and the request has failed. */
static bool take_retry(struct vb_endpoint *ep, enum vb_check check, uint64_t now)
{
    if (ep->requester.retry_left == 0) {
        retry_give_up(ep, check, now);
        return false;
    }
    --ep->requester.retry_left;
    return true;
}

/* A packet was lost. The window is cut if that packet was sent after the last cut. */
static void heed_loss(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_recovery *recovery = vb_engine_recovery_get(ep, now);

    if (recovery && vb_wire_psn_diff(ep->requester.una, recovery->cut_psn) < 0)
        return;
    vb_engine_cwnd_cut(ep, now);
    if (recovery)
        recovery->cut_psn = ep->requester.sent_psn;
}

/*
 * One packet is sent again, and with each further NAK in a row twice as many. Nothing else follows:
 * a peer that keeps no early packets will drop those that are still on their way.
 */
static void retry_mend(struct vb_endpoint *ep, enum vb_packet_reason reason, uint64_t now)
{
    const struct vb_recovery *recovery = vb_engine_recovery_get(ep, now);
    uint32_t holes = recovery && recovery->holes ? recovery->holes : 1;

    heed_loss(ep, now);
    vb_engine_mend_first(ep, holes < MEND_MOST ? holes : MEND_MOST, reason, now);
    retry_restart_timer(ep, now);
}

/* Is the missing packet being sent again, or will it be, because the cursor is on it already? */
static bool is_mended(const struct vb_endpoint *ep)
{
    return vb_engine_recovery_of(ep) &&
           (ep->share->recovery->mending || ep->requester.next_psn == ep->requester.una);
}

static void find_hole(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_recovery *recovery = vb_engine_recovery_get(ep, now);

    if (recovery)
        recovery->holes = recovery->holes ? 2 * recovery->holes : 1;
}

void vb_engine_retry_sequence(struct vb_endpoint *ep, uint64_t now)
{
    if (ep->requester.rnr_wait || is_mended(ep))
        return;
    ++ep->requester.naks;
    if (!take_retry(ep, VB_CHECK_SEQUENCE_RETRIES, now))
        return;
    if (vb_engine_endpoint_adapts(ep)) {
        find_hole(ep, now);
        retry_mend(ep, VB_PACKET_AFTER_SEQUENCE_NAK, now);
        return;
    }
    vb_engine_requester_go_back(ep, VB_PACKET_AFTER_SEQUENCE_NAK);
    retry_restart_timer(ep, now);
}

void vb_engine_retry_sequence_ahead(struct vb_endpoint *ep, uint32_t psn, uint64_t now)
{
    const struct vb_requester *r = &ep->requester;

    if (r->rnr_wait || is_mended(ep) || vb_wire_psn_diff(psn, r->next_psn) >= 0)
        return;
    ++ep->requester.naks;
    if (!take_retry(ep, VB_CHECK_SEQUENCE_RETRIES, now))
        return;
    heed_loss(ep, now);
    vb_engine_mend_at(ep, psn, now);
}

/*
 * Only the probe was answered: the rest was lost as well, or its answers are late. Twice as many
 * packets are probed each time; if that happens several times, the rest was lost.
 */
static void probe_on(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_recovery *recovery = ep->share->recovery;
    uint32_t packets = recovery->holes ? 2 * recovery->holes : 1;

    if (packets > MEND_MOST)
        packets = MEND_MOST;
    if (packets >= 4)
        vb_engine_cwnd_cut(ep, now);
    vb_engine_mend_first(ep, packets, (enum vb_packet_reason)ep->requester.reason, now);
    recovery->holes = packets;
}

void vb_engine_retry_acknowledged(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_recovery *recovery = ep->share->recovery;
    const struct vb_requester *r = &ep->requester;
    struct vb_cwnd *cwnd = ep->share->cwnd;
    bool answered = recovery->mended_at && recovery->mend_psn == r->una;
    bool probed = r->reason == VB_PACKET_AFTER_TIMEOUT || r->reason == VB_PACKET_PROBE;

    if (recovery->mending) /* the acknowledgement says nothing new */
        return;
    if (answered)
        recovery->mended_at = 0;
    if (answered && probed && vb_wire_psn_diff(r->next_psn, r->una) > 0) {
        probe_on(ep, now);
        return;
    }
    recovery->holes = 0;
    if (!answered || vb_wire_psn_diff(r->next_psn, r->una) <= 0)
        return;
    if (!cwnd->keeps) {
        vb_engine_requester_go_back(ep, (enum vb_packet_reason)r->reason);
        return;
    }
    --cwnd->keeps;
    vb_engine_mend_first(ep, 1, (enum vb_packet_reason)r->reason, now);
}

void vb_engine_retry_heard(struct vb_endpoint *ep, uint64_t now)
{
    if (!ep->requester.rnr_wait)
        retry_restart_timer(ep, now);
}

enum { WHOLES_MOST = 64, ASKS_FIRST = 4 };

/*
 * Were only the missing responses asked for before, and not the rest of the READ? The peer may not
 * answer such a request.
 */
static bool was_asked_part(struct vb_endpoint *ep)
{
    struct vb_recovery *recovery = vb_engine_recovery_of(ep);
    struct vb_cwnd *cwnd = ep->share->cwnd;

    if (!recovery || !recovery->asked || !recovery->asked_part ||
        recovery->asked_psn != ep->requester.una)
        return false;
    cwnd->wholes = cwnd->distrust;
    cwnd->distrust = cwnd->distrust < WHOLES_MOST ? 2 * cwnd->distrust + 1 : WHOLES_MOST;
    return true;
}

static void ask_for_response(struct vb_endpoint *ep, uint64_t now)
{
    heed_loss(ep, now);
    if (!ep->share->recovery->asks_most)
        ep->share->recovery->asks_most = ASKS_FIRST;
    vb_engine_mend_ask(ep);
    vb_engine_retry_start_timer(ep, now);
}

void vb_engine_retry_lost_response(struct vb_endpoint *ep, uint64_t now)
{
    bool adapts = vb_engine_endpoint_adapts(ep) && vb_engine_recovery_get(ep, now);

    if (ep->requester.rnr_wait || (adapts && ep->share->recovery->asks))
        return;
    if (adapts && ep->share->recovery->asked) { /* the repeated response was lost as well */
        ep->share->recovery->cut_psn = ep->requester.una;
        ep->share->recovery->asks_most = ASKS_FIRST;
    }
    ++ep->requester.naks;
    ++ep->engine->counters.lost_responses;
    if (!(adapts && was_asked_part(ep)) && !take_retry(ep, VB_CHECK_SEQUENCE_RETRIES, now))
        return;
    if (adapts) {
        ask_for_response(ep, now);
        return;
    }
    vb_engine_requester_go_back(ep, VB_PACKET_AFTER_LOST_RESPONSE);
    ep->requester.implied = true;
    retry_restart_timer(ep, now);
}

/* If no response behind the part has come, the rest was lost as well, or is late. */
void vb_engine_retry_answered_part(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_recovery *recovery = ep->share->recovery;

    if (!recovery || recovery->early_answer.first || !recovery->asks_most)
        return;
    if (recovery->asks_most >= 4)
        heed_loss(ep, now);
    vb_engine_mend_ask(ep);
}

void vb_engine_retry_not_ready(struct vb_endpoint *ep, uint8_t timer_code, uint64_t now)
{
    struct vb_requester *r = &ep->requester;

    if (r->rnr_wait)
        return;
    r->not_ready += r->not_ready < UINT16_MAX;
    r->retry_left =
        ep->qp->terms.retry_cnt; /* it counts requests that are not answered, and this one is */
    r->probing = false;
    vb_overdue_note(ep->qp, VB_WAIT_RNR, 0, r->since, now);
    if (ep->qp->terms.rnr_retry != 7) { /* 7 is for ever (IBA 9.7.5.2.8) */
        if (r->rnr_left == 0) {
            retry_give_up(ep, VB_CHECK_RNR, now);
            return;
        }
        --r->rnr_left;
    }
    r->rnr_wait = true;
    vb_engine_timer_set(&ep->engine->timers, &ep->timer, now + vb_rnr_delay(timer_code));
}

/*
 * Probes with the first unanswered packet. If the probe before was not answered either, the window
 * may become small (vb_engine_cwnd_silence).
 */
static void retry_ask_again(struct vb_endpoint *ep, enum vb_packet_reason reason, uint64_t now)
{
    if (ep->probes)
        vb_engine_cwnd_silence(ep, now);
    else if (vb_engine_recovery_get(ep, now))
        ep->share->recovery->asks_most = 1;
    if (ep->probes < PROBES_MOST)
        ++ep->probes;
    was_asked_part(ep);
    if (ep->share->recovery)
        ep->share->recovery->asks = false;
    vb_engine_mend_first(ep, 1, reason, now);
}

/*
 * The timer takes longer, too, while packets come from the peer's address, which then is busy and
 * not gone.
 */
static bool retry_extend(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_share *share = ep->share;
    uint64_t timeout = vb_ack_timeout(ep->qp->terms.timeout);

    vb_engine_cwnd_expired(ep, timeout, now);
    if (ep->extended == EXTENDED_MOST || share->cwnd->heard_at + timeout < now)
        return false;
    ++ep->extended;
    share->due = now + timeout;
    return true;
}

/*
 * Does the awaited answer still wait behind those to packets that were sent before? Then a probe is
 * not due yet.
 */
static bool is_queued(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_recovery *recovery = vb_engine_recovery_get(ep, now);
    const struct vb_cwnd *cwnd = ep->share->cwnd;

    if (!recovery)
        return false;
    if (!recovery->behind)
        recovery->behind = vb_engine_cwnd_behind_all(cwnd);
    if (vb_engine_cwnd_is_draining(cwnd, recovery->behind, now))
        return true;
    recovery->behind = vb_engine_cwnd_behind_all(cwnd);
    return false;
}

/* A probe uses up no retry, because the local ACK timeout has not expired. */
static void probe(struct vb_endpoint *ep, uint64_t now)
{
    if (!is_queued(ep, now)) {
        ++ep->engine->counters.probes;
        retry_ask_again(ep, VB_PACKET_PROBE, now);
    }
    set_probe(ep, now);
}

void vb_engine_retry_expired(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_requester *r = &ep->requester;

    if (r->rnr_wait) {
        r->rnr_wait = false;
        if (vb_engine_requester_outstanding(r))
            vb_engine_requester_go_back(ep, VB_PACKET_AFTER_RNR);
        if (vb_engine_endpoint_adapts(ep) && vb_engine_recovery_get(ep, now))
            ep->share->recovery->opening = 1;
        vb_engine_ready_add(&ep->engine->requesting, &ep->requesting);
        retry_restart_timer(ep, now);
        return;
    }
    if (!vb_engine_requester_outstanding(r))
        return;
    vb_overdue_note(ep->qp, VB_WAIT_PEER, 0, r->since, now);
    if (vb_engine_endpoint_adapts(ep) && (now < ep->share->due || retry_extend(ep, now))) {
        probe(ep, now);
        return;
    }
    ++r->timeouts;
    ++ep->engine->counters.timeouts;
    if (!take_retry(ep, VB_CHECK_NO_ANSWER, now))
        return;
    if (vb_engine_endpoint_adapts(ep)) {
        retry_ask_again(ep, VB_PACKET_AFTER_TIMEOUT, now);
        retry_restart_timer(ep, now);
        return;
    }
    r->probing = true;
    vb_engine_requester_go_back(ep, VB_PACKET_AFTER_TIMEOUT);
    retry_restart_timer(ep, now);
}
