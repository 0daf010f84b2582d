// SPDX-License-Identifier: Apache-2.0
/*
 * The completer's parts: acknowledgements and NAKs, responses of READs and atomics, and responses
 * that are missing or came early. The engine calls it for each response packet, under the QP's
 * sq_lock; requests end by vb_engine_requester_complete and are tried again by retry.h.
 */
#include "transport/completer.h"

#include "transport/credits.h"
#include "transport/cwnd.h"
#include "transport/gap.h"
#include "transport/pieces.h"
#include "transport/recovery.h"
#include "transport/requester.h"
#include "transport/retry.h"

static struct vb_sq_wqe *completer_head_of(struct vb_endpoint *ep)
{
    return vb_engine_sq_at(ep->qp, ep->qp->sq_next);
}

static void complete_head(struct vb_endpoint *ep, uint32_t byte_len)
{
    const struct vb_outcome outcome = {.status = IBV_WC_SUCCESS, .byte_len = byte_len};

    vb_engine_requester_complete(ep, &outcome);
}

/*
 * The peer has all packets up to and including `upto`. False: among them is a READ or an atomic
 * whose response has not come, so that response is lost (IBA 9.7.5.1.1, implied NAK).
 */
static bool completer_acknowledge(struct vb_endpoint *ep, uint32_t upto, uint64_t now)
{
    struct vb_requester *r = &ep->requester;
    bool progress = false, whole = true;

    while (vb_wire_psn_diff(upto, r->una) >= 0) {
        const struct vb_sq_wqe *head = completer_head_of(ep);
        uint32_t last = vb_engine_psn_add(head->first_psn, head->packets - 1);

        if (vb_engine_is_read_or_atomic(&head->wr)) {
            whole = false;
            break;
        }
        progress = true;
        if (vb_wire_psn_diff(upto, last) < 0) {
            if (VB_LIKELY(!ep->engine->config.restart)) /* go-back-0 keeps no part */
                r->una = vb_engine_psn_add(upto, 1);
            break;
        }
        r->una = vb_engine_psn_add(last, 1);
        complete_head(ep, 0);
    }
    if (progress) {
        vb_engine_requester_catch_up(ep);
        vb_engine_retry_progress(ep, now);
    }
    return whole;
}

static void note_ahead(struct vb_recovery *recovery, uint32_t psn)
{
    if (!recovery->is_ahead || vb_wire_psn_diff(psn, recovery->ahead_psn) > 0)
        recovery->ahead_psn = psn;
    recovery->is_ahead = true;
}

/*
 * Were the responses that were asked for again lost as well? The responder answers in order, so
 * they were if a request is answered that was sent later, or if a later packet comes of the same
 * answer, or of one that follows it.
 */
static bool is_lost_again(const struct vb_endpoint *ep, uint32_t psn)
{
    const struct vb_recovery *recovery = ep->share->recovery;

    if (!recovery->early_answer.told || !recovery->asked)
        return false;
    if (vb_wire_psn_diff(psn, recovery->asked_end) < 0)
        return recovery->asked_part;
    return vb_wire_psn_diff(psn, recovery->behind_psn) >= 0 ||
           recovery->asked_psn != ep->requester.una;
}

static bool is_sequence_nak(const struct vb_incoming *in)
{
    struct vb_aeth aeth;

    if ((in->bth.opcode & VB_OP_MASK) != VB_OP_ACKNOWLEDGE)
        return false;
    aeth = vb_wire_aeth_read(in->extended);
    return aeth.kind == VB_AETH_NAK && aeth.value == VB_NAK_PSN_SEQUENCE;
}

/*
 * A NAK that asks for the packet which was not sent yet: all before it have arrived. A responder
 * that got a stray packet, of an earlier connection or from a stranger, asks for that one in vain.
 */
static bool asks_for_the_next(const struct vb_incoming *in)
{
    const struct vb_requester *r = &in->endpoint->requester;

    return in->bth.psn == r->sent_psn && r->una != r->sent_psn && is_sequence_nak(in);
}

/*
 * Keeps a response until those before it have come; of an acknowledgement only its PSN is kept. The
 * timer starts again, because the packet shows that the responder is at work.
 */
static void wait_for_missing(const struct vb_incoming *in)
{
    struct vb_endpoint *ep = in->endpoint;
    struct vb_recovery *recovery = vb_engine_recovery_get(ep, in->now);
    bool over;

    if (!recovery)
        return;
    if (is_lost_again(ep, in->bth.psn))
        vb_engine_gap_lost_again(&recovery->early_answer, in->now);
    if ((in->bth.opcode & VB_OP_MASK) != VB_OP_ACKNOWLEDGE) {
        over = vb_engine_gap_hold(ep, &recovery->early_answer, ep->requester.una, in);
    } else {
        if (vb_wire_aeth_read(in->extended).kind != VB_AETH_ACK)
            note_ahead(recovery, vb_engine_psn_add(in->bth.psn, VB_PSN_MASK));
        else
            note_ahead(recovery, in->bth.psn);
        over = vb_engine_gap_seen(ep, &recovery->early_answer, in->now);
    }
    vb_engine_cwnd_acknowledged(ep, in->bth.psn, in->now);
    vb_engine_retry_heard(ep, in->now);
    if (over)
        vb_engine_retry_lost_response(ep, in->now);
    if (is_sequence_nak(in)) {
        ++in->engine->counters.nak_sequence_received;
        vb_engine_retry_sequence_ahead(ep, in->bth.psn, in->now);
    }
}

/*
 * A response is missing. The requester is told once for each gap, because the responses that follow
 * in the same stream say nothing new. If the stream's last packet comes again, it belongs to the
 * repeated stream, so that stream has a gap as well.
 */
static void lost(const struct vb_incoming *in)
{
    struct vb_endpoint *ep = in->endpoint;
    struct vb_requester *r = &ep->requester;
    uint32_t psn = in->bth.psn;
    bool end_again;

    r->beyond += r->beyond < UINT16_MAX;
    if (vb_engine_endpoint_adapts(ep)) {
        wait_for_missing(in);
        return;
    }
    end_again = (in->opcode->flags & VB_OPCODE_LAST) && vb_wire_psn_diff(psn, r->gap_psn) <= 0;
    if (r->implied && !end_again) {
        if (vb_wire_psn_diff(psn, r->gap_psn) > 0)
            r->gap_psn = psn;
        return;
    }
    vb_engine_retry_lost_response(ep, in->now);
    r->gap_psn = psn;
}

/* The limit sequence number is MSN + credits, and never goes back (IBA 9.7.7.2.5). */
static void take_credits(struct vb_endpoint *ep, const struct vb_aeth *aeth)
{
    struct vb_requester *r = &ep->requester;
    uint32_t lsn;

    if (aeth->kind != VB_AETH_ACK || r->unlimited)
        return;
    if (aeth->value == VB_CREDITS_UNLIMITED) {
        r->unlimited = true;
    } else {
        lsn = vb_engine_psn_add(aeth->msn, vb_engine_credits_decode(aeth->value));
        if (vb_wire_psn_diff(lsn, r->lsn) <= 0)
            return;
        r->lsn = lsn;
    }
    vb_engine_ready_add(&ep->engine->requesting, &ep->requesting);
}

static VB_COLD void bad_response(const struct vb_incoming *in)
{
    struct vb_evidence evidence = {.check = VB_CHECK_BAD_RESPONSE, .count = in->bth.opcode};

    ++in->engine->counters.bad_responses;
    vb_engine_retry_refuse(in->endpoint, IBV_WC_BAD_RESP_ERR, &evidence);
}

static VB_COLD void on_nak(const struct vb_incoming *in, uint8_t code)
{
    static const uint8_t status[] = {
        [VB_NAK_INVALID_REQUEST] = IBV_WC_REM_INV_REQ_ERR,
        [VB_NAK_REMOTE_ACCESS] = IBV_WC_REM_ACCESS_ERR,
        [VB_NAK_REMOTE_OPERATION] = IBV_WC_REM_OP_ERR,
    };
    struct vb_evidence evidence = {.check = VB_CHECK_REFUSED, .count = code};

    if (code == VB_NAK_PSN_SEQUENCE) {
        ++in->engine->counters.nak_sequence_received;
        vb_engine_retry_sequence(in->endpoint, in->now);
    } else if (code < sizeof(status)) {
        ++in->engine->counters.nak_fatal_received;
        vb_engine_retry_refuse(in->endpoint, status[code], &evidence);
    } else {
        ++in->engine->counters.drop_syndrome;
    }
}

static void has_arrived(struct vb_endpoint *ep, uint64_t now)
{
    if (VB_UNLIKELY(vb_engine_recovery_of(ep) != NULL))
        vb_engine_retry_acknowledged(ep, now);
}

/*
 * A NAK: all packets before its PSN have arrived. The packet with that PSN is sent again, or its
 * request ends in error.
 */
static VB_COLD void on_refusal(const struct vb_incoming *in, const struct vb_aeth *aeth)
{
    struct vb_endpoint *ep = in->endpoint;

    if (!completer_acknowledge(ep, vb_engine_psn_add(in->bth.psn, VB_PSN_MASK), in->now)) {
        lost(in);
        return;
    }
    if (in->bth.psn == ep->requester.sent_psn) {
        ++in->engine->counters.nak_sequence_received;
        has_arrived(ep, in->now);
        return;
    }
    if (aeth->kind == VB_AETH_NAK) {
        on_nak(in, aeth->value);
        return;
    }
    ++in->engine->counters.nak_rnr_received;
    vb_engine_retry_not_ready(ep, aeth->value, in->now);
}

static void on_acknowledge(const struct vb_incoming *in)
{
    struct vb_aeth aeth = vb_wire_aeth_read(in->extended);

    ++in->engine->counters.acks_received;
    if (VB_UNLIKELY(aeth.kind != VB_AETH_ACK)) {
        if (aeth.kind == VB_AETH_RNR || aeth.kind == VB_AETH_NAK)
            on_refusal(in, &aeth);
        else
            ++in->engine->counters.drop_syndrome;
        return;
    }
    take_credits(in->endpoint, &aeth);
    if (!completer_acknowledge(in->endpoint, in->bth.psn, in->now))
        lost(in);
    else
        has_arrived(in->endpoint, in->now);
}

/* Is this the first response that is missing? If not, one before it is lost. */
static bool is_next(const struct vb_incoming *in)
{
    struct vb_endpoint *ep = in->endpoint;

    if (completer_acknowledge(ep, vb_engine_psn_add(in->bth.psn, VB_PSN_MASK), in->now) &&
        ep->requester.una == in->bth.psn)
        return true;
    lost(in);
    return false;
}

/*
 * Does this packet of a READ response (first, middle, last) fit its place in the request or in a
 * repetition? A repetition begins only at `resumed_psn`: the first missing packet is at the last
 * place at which the READ was resumed.
 */
static bool completer_fits(const struct vb_incoming *in, const struct vb_sq_wqe *head,
                           uint32_t index)
{
    struct vb_endpoint *ep = in->endpoint;
    uint32_t end = vb_engine_requester_read_end(head, index), mtu = ep->path.mtu;
    bool starts = index == 0 || vb_engine_requester_read_end(head, index - 1) == index;
    bool first = in->opcode->flags & VB_OPCODE_FIRST, last = in->opcode->flags & VB_OPCODE_LAST;
    uint32_t left = head->length - index * mtu, length = left < mtu ? left : mtu;

    if (in->length != length)
        return false;
    if (VB_UNLIKELY(vb_engine_recovery_of(ep) != NULL)) /* repetitions begin and end anywhere */
        return true;
    if (last != (index + 1 == end))
        return false;
    return first ? starts || in->bth.psn == ep->requester.resumed_psn : !starts;
}

/* This packet is the whole answer to the first request of the queue. */
static void complete_answered(const struct vb_incoming *in, uint32_t byte_len)
{
    struct vb_endpoint *ep = in->endpoint;
    struct vb_requester *r = &ep->requester;
    struct vb_aeth aeth = vb_wire_aeth_read(in->extended);

    r->una = vb_engine_psn_add(r->una, 1);
    if (vb_wire_psn_diff(r->next_psn, r->una) >= 0 && r->rd_outstanding)
        --r->rd_outstanding;
    complete_head(ep, byte_len);
    vb_engine_requester_catch_up(ep);
    vb_engine_retry_progress(ep, in->now);
    take_credits(ep, &aeth);
}

/* An atomic write or a FLUSH is answered as a READ of no bytes. */
static VB_COLD void on_empty_response(const struct vb_incoming *in)
{
    if ((in->bth.opcode & VB_OP_MASK) == VB_OP_READ_RESPONSE_ONLY && !in->length)
        complete_answered(in, 0);
    else
        bad_response(in);
}

static void on_read_response(const struct vb_incoming *in)
{
    struct vb_endpoint *ep = in->endpoint;
    struct vb_requester *r = &ep->requester;
    struct vb_outcome outcome = {0};
    struct vb_sq_wqe *head;
    struct vb_aeth aeth;
    uint32_t index;
    bool ends;

    if (!is_next(in))
        return;
    head = completer_head_of(ep);
    index = vb_engine_psn_count(head->first_psn, in->bth.psn);
    if (VB_UNLIKELY(head->wr.opcode != IBV_WR_RDMA_READ || !completer_fits(in, head, index))) {
        if (head->wr.opcode == IBV_WR_ATOMIC_WRITE || head->wr.opcode == IBV_WR_FLUSH)
            on_empty_response(in);
        else
            bad_response(in);
        return;
    }
    if (!vb_engine_elements_scatter(ep->qp, &head->wr, (uint64_t)index * ep->path.mtu, in->payload,
                                    in->length, &outcome)) {
        vb_engine_requester_complete(ep, &outcome); /* it fails by its own memory */
        return;
    }
    in->engine->counters.payload_received += in->length;
    r->una = vb_engine_psn_add(r->una, 1);
    ends = index + 1 == vb_engine_requester_read_end(head, index);
    if (ends && vb_wire_psn_diff(r->next_psn, r->una) >= 0 && r->rd_outstanding)
        --r->rd_outstanding;
    if (index + 1 == head->packets)
        complete_head(ep, head->length);
    vb_engine_requester_catch_up(ep);
    vb_engine_retry_progress(ep, in->now);
    if (VB_UNLIKELY(!ends && (in->opcode->flags & VB_OPCODE_LAST)))
        vb_engine_retry_answered_part(ep, in->now);
    if (in->opcode->flags & VB_OPCODE_AETH) {
        aeth = vb_wire_aeth_read(in->extended);
        take_credits(ep, &aeth);
    }
}

static void on_atomic_response(const struct vb_incoming *in)
{
    struct vb_endpoint *ep = in->endpoint;
    uint64_t result = vb_wire_get64(in->extended + VB_AETH);
    const uint8_t *bytes = in->engine->config.virtual_payload ? NULL : (const uint8_t *)&result;
    struct vb_outcome outcome = {0};
    struct vb_sq_wqe *head;

    if (!is_next(in))
        return;
    head = completer_head_of(ep);
    if (head->wr.opcode != IBV_WR_ATOMIC_CMP_AND_SWP &&
        head->wr.opcode != IBV_WR_ATOMIC_FETCH_AND_ADD) {
        bad_response(in);
        return;
    }
    if (!vb_engine_elements_scatter(ep->qp, &head->wr, 0, bytes, sizeof(result), &outcome)) {
        vb_engine_requester_complete(ep, &outcome); /* it fails by its own memory */
        return;
    }
    complete_answered(in, sizeof(result));
}

static bool is_outstanding(const struct vb_incoming *in)
{
    const struct vb_requester *r = &in->endpoint->requester;

    return r->started && vb_wire_psn_diff(in->bth.psn, r->una) >= 0 &&
           (vb_wire_psn_diff(in->bth.psn, r->sent_psn) < 0 || asks_for_the_next(in));
}

/* Is it the last acknowledgement once more? It may bring credits (IBA 9.7.7.2.5). */
static bool is_credit_update(const struct vb_incoming *in)
{
    return in->bth.opcode == (VB_TRANSPORT_RC | VB_OP_ACKNOWLEDGE) &&
           vb_engine_psn_add(in->bth.psn, 1) == in->endpoint->requester.una;
}

/* What was heard last is told if a later request gets no answer (hca/sentences.toml). */
static inline void note_heard(const struct vb_incoming *in)
{
    struct vb_requester *r = &in->endpoint->requester;

    r->heard_at = in->now;
    r->heard_psn = in->bth.psn & VB_PSN_MASK;
    r->heard_syndrome =
        (in->bth.opcode & VB_OP_MASK) == VB_OP_ACKNOWLEDGE ? in->extended[0] : VB_HEARD_NO_SYNDROME;
}

static void receive_outstanding(const struct vb_incoming *in)
{
    switch (in->bth.opcode & VB_OP_MASK) {
    case VB_OP_ACKNOWLEDGE:
        on_acknowledge(in);
        break;
    case VB_OP_ATOMIC_ACKNOWLEDGE:
        on_atomic_response(in);
        break;
    default:
        on_read_response(in);
    }
}

/* Takes the kept responses whose turn has come, after the missing one has come. */
static VB_COLD void receive_early(const struct vb_incoming *in, uint32_t missing)
{
    struct vb_endpoint *ep = in->endpoint;
    struct vb_recovery *recovery = ep->share->recovery;
    struct vb_requester *r = &ep->requester;
    struct vb_held *held;

    if (r->una == missing)
        return;
    while ((held = vb_engine_gap_take(ep, &recovery->early_answer, r->una)) != NULL) {
        struct vb_incoming early = *in;

        vb_engine_gap_read(held, &early);
        if (is_outstanding(&early))
            receive_outstanding(&early);
        vb_engine_gap_release(ep->engine, held);
    }
    if (recovery->is_ahead && (vb_wire_psn_diff(recovery->ahead_psn, r->una) < 0 ||
                               completer_acknowledge(ep, recovery->ahead_psn, in->now)))
        recovery->is_ahead = false;
    if (recovery->early_answer.told && recovery->asked &&
        vb_wire_psn_diff(r->una, recovery->asked_end) < 0)
        return;                        /* the rest of the answer is under way */
    if (recovery->early_answer.open && /* the connection may have failed meanwhile */
        vb_engine_gap_closed(ep, &recovery->early_answer, missing, in->now))
        vb_engine_retry_lost_response(ep, in->now);
}

void vb_engine_completer_receive(const struct vb_incoming *in)
{
    struct vb_endpoint *ep = in->endpoint;
    uint32_t una = ep->requester.una;
    struct vb_aeth aeth;

    note_heard(in);
    if (!is_outstanding(in)) {
        if (vb_engine_recovery_of(ep))
            vb_engine_gap_duplicate(ep, &ep->share->recovery->early_answer, in->bth.psn);
        if (is_credit_update(in)) {
            aeth = vb_wire_aeth_read(in->extended);
            take_credits(ep, &aeth);
        } else {
            ++in->engine->counters.drop_ghost;
        }
        return;
    }
    receive_outstanding(in);
    if (VB_UNLIKELY(vb_engine_recovery_of(ep) != NULL) && ep->share->recovery->early_answer.open)
        receive_early(in, una);
}
