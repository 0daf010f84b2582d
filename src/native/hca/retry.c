// SPDX-License-Identifier: Apache-2.0
#include "hca/retry.h"

#include "hca/delays.h"
#include "hca/refusal.h"
#include "hca/requester.h"

static void restart_timer(struct vb_endpoint *ep, uint64_t now)
{
    uint8_t code = ep->qp->terms.timeout;
    bool runs = code && vb_requester_outstanding(&ep->requester);

    vb_timer_set(&ep->engine->timers, &ep->timer, runs ? now + vb_ack_timeout(code) : VB_NEVER);
}

void vb_retry_progress(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_requester *r = &ep->requester;

    r->retry_left = ep->qp->terms.retry_cnt;
    r->rnr_left = ep->qp->terms.rnr_retry;
    r->naks = r->timeouts = r->not_ready = r->beyond = 0;
    r->since = now;
    r->implied = r->probing = false;
    if (!r->rnr_wait)
        restart_timer(ep, now);
    vb_ready_add(&ep->engine->requesting, &ep->requesting);
}

/* The cold parts fill in what the request asked and how often it was tried. */
static void describe(const struct vb_endpoint *ep, const struct vb_sq_wqe *wqe,
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

VB_COLD void vb_retry_refuse(struct vb_endpoint *ep, enum ibv_wc_status status,
                             struct vb_evidence *evidence)
{
    struct vb_sq_wqe *wqe = vb_sq_at(ep->qp, ep->qp->sq_next);
    struct vb_outcome outcome = {0};

    describe(ep, wqe, evidence);
    vb_refuse(ep->qp, &wqe->wr, status, evidence, &outcome);
    vb_requester_complete(ep, &outcome);
}

static enum vb_heard kind_of(const struct vb_last_heard *heard)
{
    if (!heard->at)
        return VB_HEARD_NOTHING;
    if (heard->syndrome == VB_HEARD_NO_SYNDROME)
        return VB_HEARD_RESPONSE;
    switch (heard->syndrome >> 5) {
    case VB_AETH_ACK:
        return VB_HEARD_ACK;
    case VB_AETH_RNR:
        return VB_HEARD_RNR_NAK;
    default:
        return VB_HEARD_SEQUENCE_NAK;
    }
}

/* What was heard of the peer, for a request that it did not answer. */
static void describe_heard(const struct vb_endpoint *ep, uint64_t now, struct vb_evidence *evidence)
{
    uint64_t ago = (now - ep->heard.at) / 1000;

    evidence->silence = kind_of(&ep->heard);
    evidence->heard_psn = ep->heard.psn;
    evidence->heard_us = ago < UINT32_MAX ? (uint32_t)ago : UINT32_MAX;
    evidence->not_ready = ep->requester.not_ready;
    evidence->beyond = ep->requester.beyond;
}

static VB_COLD void give_up(struct vb_endpoint *ep, enum vb_check check, uint64_t now)
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
    vb_retry_refuse(ep, check == VB_CHECK_RNR ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_RETRY_EXC_ERR,
                    &evidence);
}

/* One retry less; false: there was none left. */
static bool take_retry(struct vb_endpoint *ep, enum vb_check check, uint64_t now)
{
    if (ep->requester.retry_left == 0) {
        give_up(ep, check, now);
        return false;
    }
    --ep->requester.retry_left;
    return true;
}

void vb_retry_sequence(struct vb_endpoint *ep, uint64_t now)
{
    if (ep->requester.rnr_wait)
        return;
    ++ep->requester.naks;
    if (!take_retry(ep, VB_CHECK_SEQUENCE_RETRIES, now))
        return;
    vb_requester_go_back(ep, VB_PACKET_AFTER_SEQUENCE_NAK);
    restart_timer(ep, now);
}

void vb_retry_lost_response(struct vb_endpoint *ep, uint64_t now)
{
    if (ep->requester.rnr_wait)
        return;
    ++ep->requester.naks;
    ++ep->engine->counters.lost_responses;
    if (!take_retry(ep, VB_CHECK_SEQUENCE_RETRIES, now))
        return;
    vb_requester_go_back(ep, VB_PACKET_AFTER_LOST_RESPONSE);
    ep->requester.implied = true;
    restart_timer(ep, now);
}

void vb_retry_not_ready(struct vb_endpoint *ep, uint8_t timer_code, uint64_t now)
{
    struct vb_requester *r = &ep->requester;

    if (r->rnr_wait)
        return;
    ++r->not_ready;
    r->retry_left = ep->qp->terms.retry_cnt; /* it counts what is not answered, and this is */
    r->probing = false;
    if (ep->qp->terms.rnr_retry != 7) { /* 7 is for ever (IBA 9.7.5.2.8) */
        if (r->rnr_left == 0) {
            give_up(ep, VB_CHECK_RNR, now);
            return;
        }
        --r->rnr_left;
    }
    r->rnr_wait = true;
    vb_timer_set(&ep->engine->timers, &ep->timer, now + vb_rnr_delay(timer_code));
}

void vb_retry_expired(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_requester *r = &ep->requester;

    if (r->rnr_wait) {
        r->rnr_wait = false;
        if (vb_requester_outstanding(r))
            vb_requester_go_back(ep, VB_PACKET_AFTER_RNR);
        vb_ready_add(&ep->engine->requesting, &ep->requesting);
        restart_timer(ep, now);
        return;
    }
    if (!vb_requester_outstanding(r))
        return;
    ++r->timeouts;
    ++ep->engine->counters.timeouts;
    if (!take_retry(ep, VB_CHECK_NO_ANSWER, now))
        return;
    r->probing = true;
    vb_requester_go_back(ep, VB_PACKET_AFTER_TIMEOUT);
    restart_timer(ep, now);
}
