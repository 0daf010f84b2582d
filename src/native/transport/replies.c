// SPDX-License-Identifier: Apache-2.0
/*
 * The replies of a connection. One part keeps the records of READs and atomics and notes what is
 * owed; the other makes the packets: responses, NAKs, acknowledgements and congestion
 * notifications.
 */
#include "transport/replies.h"

#include <errno.h>
#include <stdlib.h>

#include "hca/refusal.h"
#include "transport/credits.h"
#include "transport/pieces.h"
#include "transport/receive.h"
#include "transport/recovery.h"

static void owe(struct vb_endpoint *ep)
{
    vb_engine_ready_add(&ep->engine->replying, &ep->owing);
}

static struct vb_record *record_at(const struct vb_replies *replies, uint32_t number)
{
    return &replies->record[number & (replies->room - 1)];
}

int vb_engine_replies_fit(struct vb_endpoint *ep)
{
    struct vb_replies *old = &ep->replies, grown = *old;
    uint8_t wanted = ep->qp->shared->max_dest_rd_atomic;

    if (vb_engine_endpoint_is_uc(ep) || wanted <= old->room)
        return 0;
    grown.room = (uint8_t)vb_round_up_pow2(wanted);
    grown.record = calloc(grown.room, sizeof(*grown.record));
    if (!grown.record)
        return -ENOMEM;
    for (uint32_t i = old->count - old->kept; i != old->count; ++i)
        *record_at(&grown, i) = *record_at(old, i);
    free(old->record);
    *old = grown;
    return 0;
}

void vb_engine_replies_owe_ack(struct vb_endpoint *ep)
{
    ep->replies.ack = true;
    ep->replies.ack_limited = false;
    owe(ep);
}

/* The first kept record after this PSN. */
static const struct vb_record *first_after(const struct vb_replies *replies, uint32_t psn)
{
    for (uint32_t i = replies->count - replies->kept; i != replies->count; ++i)
        if (vb_wire_psn_diff(record_at(replies, i)->psn, psn) > 0)
            return record_at(replies, i);
    return NULL;
}

void vb_engine_replies_owe_duplicate_ack(struct vb_endpoint *ep, uint32_t psn)
{
    struct vb_replies *replies = &ep->replies;
    const struct vb_record *after = first_after(replies, psn);

    if (!after) {
        vb_engine_replies_owe_ack(ep);
        return;
    }
    if (replies->ack && !replies->ack_limited)
        return;
    replies->ack = replies->ack_limited = true;
    replies->ack_psn = vb_engine_psn_add(after->psn, VB_PSN_MASK);
    owe(ep);
}

void vb_engine_replies_owe_nak(struct vb_endpoint *ep, enum vb_aeth_kind kind, uint8_t value)
{
    ep->replies.nak = (uint8_t)(kind << 5 | value);
    ep->replies.nak_psn = ep->responder.epsn;
    ep->replies.ack = false; /* the NAK acknowledges as much */
    owe(ep);
}

void vb_engine_replies_owe_sequence_nak(struct vb_endpoint *ep)
{
    ep->responder.nak_sent = true;
    vb_engine_replies_owe_nak(ep, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
}

void vb_engine_replies_owe_cnp(struct vb_endpoint *ep)
{
    ep->replies.cnp = true;
    owe(ep);
}

void vb_engine_replies_cancel_nak(struct vb_endpoint *ep)
{
    if (ep->replies.nak && !ep->responder.dying)
        ep->replies.nak = 0;
}

/* Makes room for a record. If the oldest was to be repeated, the requester has to ask again. */
static void evict(struct vb_replies *replies)
{
    if (replies->kept < replies->room) {
        ++replies->kept;
        return;
    }
    if (vb_engine_replies_due(replies) && replies->next == replies->count - replies->room) {
        ++replies->next;
        replies->first_index = replies->index = 0;
    }
}

bool vb_engine_replies_full(const struct vb_endpoint *ep)
{
    const struct vb_replies *replies = &ep->replies;

    return replies->unanswered >= ep->qp->shared->max_dest_rd_atomic ||
           replies->unanswered >= replies->room;
}

void vb_engine_replies_add(struct vb_endpoint *ep, const struct vb_record *record)
{
    struct vb_replies *replies = &ep->replies;

    evict(replies);
    if (!vb_engine_replies_due(replies)) {
        replies->next = replies->count;
        replies->first_index = replies->index = 0;
    }
    *record_at(replies, replies->count) = *record;
    replies->end = ++replies->count;
    ++replies->unanswered;
    replies->ack = false; /* the response acknowledges what came before */
    owe(ep);
}

static uint32_t replies_packets_of(const struct vb_endpoint *ep, const struct vb_record *record)
{
    return vb_engine_packets_of(record->length, ep->path.mtu);
}

const struct vb_record *vb_engine_replies_find(const struct vb_endpoint *ep, uint32_t psn,
                                               uint32_t *index)
{
    const struct vb_replies *replies = &ep->replies;

    for (uint32_t i = replies->count - replies->kept; i != replies->count; ++i) {
        const struct vb_record *record = record_at(replies, i);

        *index = vb_engine_psn_count(record->psn, psn);
        if (*index < replies_packets_of(ep, record))
            return record;
    }
    return NULL;
}

/*
 * A part of a record is answered again, beside the answers that are due. Only one such part is
 * kept: if the requester repeats all its requests, the second and the following ones are answered
 * in a row.
 */
static bool repeat_part(struct vb_endpoint *ep, const struct vb_record *record, uint32_t number,
                        uint32_t index, uint32_t count, uint64_t now)
{
    struct vb_replies *replies = &ep->replies;
    uint32_t psn = vb_engine_psn_add(record->psn, index), sent = count;

    if (replies->repeats || !vb_engine_endpoint_adapts(ep) || !vb_engine_recovery_get(ep, now))
        return false;
    if (vb_engine_replies_due(replies) && number - replies->next < replies->end - replies->next) {
        if (number != replies->next || index >= replies->index)
            return false; /* the packet is due anyway */
        if (sent > replies->index - index)
            sent = replies->index - index;
    }
    ep->share->recovery->repeat = (struct vb_repeat){
        .psn = psn, .until = vb_engine_psn_add(psn, sent), .end = vb_engine_psn_add(psn, count)};
    replies->repeats = true;
    return true;
}

void vb_engine_replies_repeat(struct vb_endpoint *ep, const struct vb_record *record,
                              uint32_t index, uint32_t count, uint64_t now)
{
    struct vb_replies *replies = &ep->replies;
    uint32_t slot = (uint32_t)(record - replies->record);
    uint32_t number = replies->count - 1 - ((replies->count - 1 - slot) & (replies->room - 1));

    if (repeat_part(ep, record, number, index, count, now)) {
        owe(ep);
        return;
    }
    if (!vb_engine_replies_due(replies)) {
        replies->next = number;
        replies->end = number + 1;
        replies->first_index = replies->index = index;
    } else if ((int32_t)(number - replies->next) < 0) {
        replies->next = number;
        replies->first_index = replies->index = index;
    } else if (number == replies->next) {
        if (index < replies->index)
            replies->first_index = replies->index = index;
    } else if ((int32_t)(number - replies->end) >= 0) {
        replies->end = number + 1;
    }
    if (replies->ack && replies->ack_limited && vb_wire_psn_diff(record->psn, replies->ack_psn) > 0)
        replies->ack = false;
    owe(ep);
}

void vb_engine_replies_drop(struct vb_endpoint *ep)
{
    ep->replies.next = ep->replies.end;
    ep->replies.repeats = false;
    ep->replies.ack = ep->replies.cnp = false;
    ep->replies.nak = 0;
}

static uint8_t credits(const struct vb_endpoint *ep)
{
    uint32_t count;

    if (ep->qp->srq || ep->qp->target)
        return VB_CREDITS_UNLIMITED;
    count = vb_engine_receive_count(ep->qp) - ep->responder.has_taken;
    if (atomic_load_explicit(&ep->qp->credits_out, memory_order_relaxed) != (count == 0))
        atomic_store(&ep->qp->credits_out, count == 0);
    return vb_engine_credits_encode(count);
}

void vb_engine_replies_tell_credits(struct vb_endpoint *ep)
{
    if (VB_LIKELY(!atomic_load_explicit(&ep->qp->credits_out, memory_order_relaxed)) ||
        vb_engine_receive_count(ep->qp) == ep->responder.has_taken)
        return;
    atomic_store(&ep->qp->credits_out, false);
    if (!ep->replies.nak) /* after a NAK the requester waits for another answer */
        vb_engine_replies_owe_ack(ep);
}

static void replies_open_packet(struct vb_endpoint *ep, struct vb_packet *packet)
{
    vb_engine_packet_open(ep, packet);
    packet->payload_length = 0;
    packet->piece_count = 0;
}

static void replies_write_bth(const struct vb_endpoint *ep, struct vb_packet *packet,
                              uint8_t operation, uint32_t psn)
{
    struct vb_bth bth = vb_engine_packet_bth(ep, packet, operation, psn);

    vb_wire_bth_write(packet->header, &bth);
}

static void add_aeth(struct vb_packet *packet, uint8_t syndrome, uint32_t msn)
{
    struct vb_aeth aeth = {syndrome >> 5, syndrome & 0x1f, msn};

    vb_wire_aeth_write(packet->header + packet->header_length, &aeth);
    packet->header_length += VB_AETH;
}

/* The record is answered: the next one follows. */
static void next_record(struct vb_replies *replies, struct vb_record *record)
{
    if (!record->answered) {
        record->answered = true;
        --replies->unanswered;
    }
    ++replies->next;
    replies->first_index = replies->index = 0;
}

/* The region may have been deregistered since the request was accepted. */
static bool point_to_region(struct vb_endpoint *ep, const struct vb_record *record, uint64_t offset,
                            uint32_t length, struct vb_packet *packet, struct vb_evidence *evidence)
{
    const struct vb_mr_shared *mr;
    uint64_t addr = record->addr + offset;
    enum vb_check check;

    if (!length)
        return true;
    check = vb_rkey_check(&ep->engine->adapter->self, record->pd, ep->qp->index, record->rkey, addr,
                          length, IBV_ACCESS_REMOTE_READ, &mr);
    if (VB_UNLIKELY(check)) {
        vb_note_key(evidence, check, record->pd, record->rkey, addr, length, IBV_ACCESS_REMOTE_READ,
                    mr);
        return false;
    }
    if (ep->engine->config.virtual_payload) {
        vb_engine_packet_add(packet, NULL, length);
        return true;
    }
    if (VB_UNLIKELY(!vb_memory_is_mapped(vb_mr_pointer(mr, addr), length, false))) {
        *evidence =
            (struct vb_evidence){.check = VB_CHECK_MEMORY_GONE, .addr = addr, .length = length};
        return false;
    }
    vb_engine_packet_add(packet, vb_mr_pointer(mr, addr), length);
    return true;
}

/*
 * Makes one packet of the answer. False: the region is gone. An atomic write or a FLUSH is answered
 * as a READ of no bytes.
 */
static bool make_response(struct vb_endpoint *ep, const struct vb_record *record, uint32_t index,
                          bool first, bool last, struct vb_packet *packet,
                          struct vb_evidence *evidence)
{
    uint32_t mtu = ep->path.mtu, offset = index * mtu;
    uint32_t left = record->length - offset, length = left < mtu ? left : mtu;
    uint8_t operation = VB_OP_READ_RESPONSE_MIDDLE;

    if (!point_to_region(ep, record, offset, length, packet, evidence))
        return false;
    if (first)
        operation = last ? VB_OP_READ_RESPONSE_ONLY : VB_OP_READ_RESPONSE_FIRST;
    else if (last)
        operation = VB_OP_READ_RESPONSE_LAST;
    packet->pad = -length & 3;
    if (first || last)
        add_aeth(packet, credits(ep), record->msn);
    replies_write_bth(ep, packet, operation, vb_engine_psn_add(record->psn, index));
    return true;
}

/*
 * A READ that was answered is asked for again, because the answer was lost, and its region is gone
 * meanwhile. This QP goes on: if the answer has arrived after all, the requester waits for nothing
 * at this PSN any more, and drops the NAK.
 */
static VB_COLD void refuse_repeated(struct vb_endpoint *ep, uint32_t psn,
                                    const struct vb_evidence *evidence)
{
    uint8_t code =
        evidence->check == VB_CHECK_MEMORY_GONE ? VB_NAK_REMOTE_OPERATION : VB_NAK_REMOTE_ACCESS;

    if (ep->replies.nak)
        return; /* of what came later, after which the requester asks again, or has failed */
    vb_engine_replies_owe_nak(ep, VB_AETH_NAK, code);
    ep->replies.nak_psn = psn;
}

/* False: the region is gone, and with it the record or the connection. */
static bool replies_next_of_read(struct vb_endpoint *ep, struct vb_record *record,
                                 struct vb_packet *packet)
{
    struct vb_replies *replies = &ep->replies;
    uint32_t index = replies->index;
    bool last = index + 1 == replies_packets_of(ep, record);
    struct vb_evidence evidence;

    if (!make_response(ep, record, index, index == replies->first_index, last, packet, &evidence)) {
        uint32_t psn = vb_engine_psn_add(record->psn, index);

        if (!record->answered && !ep->responder.dying) {
            vb_engine_responder_fail_read(ep, psn, &evidence);
            return false;
        }
        if (!ep->responder.dying)
            refuse_repeated(ep, psn, &evidence);
        next_record(replies, record);
        return false;
    }
    ++replies->index;
    if (last)
        next_record(replies, record);
    return true;
}

static void make_atomic(struct vb_endpoint *ep, const struct vb_record *record,
                        struct vb_packet *packet)
{
    add_aeth(packet, credits(ep), record->msn);
    vb_wire_put64(packet->header + packet->header_length, record->addr);
    packet->header_length += VB_ATOMICACKETH;
    replies_write_bth(ep, packet, VB_OP_ATOMIC_ACKNOWLEDGE, record->psn);
}

static void count_repeated(struct vb_endpoint *ep, struct vb_packet *packet)
{
    packet->reason = VB_PACKET_REPLAYED_RESPONSE;
    ++ep->engine->counters.duplicate_responses;
}

/* False: the record is gone, and the requester has to ask once more; or the region. */
static VB_COLD bool next_of_repeat(struct vb_endpoint *ep, struct vb_packet *packet)
{
    struct vb_repeat *repeat = &ep->share->recovery->repeat;
    uint32_t index, psn = repeat->psn;
    const struct vb_record *record = vb_engine_replies_find(ep, psn, &index);
    struct vb_evidence evidence;

    repeat->psn = vb_engine_psn_add(psn, 1);
    ep->replies.repeats = record && repeat->psn != repeat->until;
    if (!record)
        return false;
    if (record->kind == VB_RECORD_ATOMIC)
        make_atomic(ep, record, packet);
    else if (!make_response(ep, record, index, !repeat->begun, repeat->psn == repeat->end, packet,
                            &evidence)) {
        ep->replies.repeats = false;
        refuse_repeated(ep, psn, &evidence);
        return false;
    }
    repeat->begun = true;
    count_repeated(ep, packet);
    ep->engine->counters.payload_sent += packet->payload_length;
    return true;
}

static bool next_of_record(struct vb_endpoint *ep, struct vb_packet *packet)
{
    struct vb_replies *replies = &ep->replies;
    struct vb_record *record = record_at(replies, replies->next);
    bool repeated = record->answered;

    if (record->kind == VB_RECORD_ATOMIC) {
        make_atomic(ep, record, packet);
        next_record(replies, record);
    } else if (!replies_next_of_read(ep, record, packet)) {
        return false;
    }
    if (repeated)
        count_repeated(ep, packet);
    ep->engine->counters.payload_sent += packet->payload_length;
    return true;
}

static void count_nak(struct vb_counters *counters, uint8_t syndrome)
{
    if (syndrome >> 5 == VB_AETH_RNR) {
        ++counters->nak_rnr_sent;
        return;
    }
    switch (syndrome & 0x1f) {
    case VB_NAK_PSN_SEQUENCE:
        ++counters->nak_sequence_sent;
        break;
    case VB_NAK_INVALID_REQUEST:
        ++counters->nak_invalid_sent;
        break;
    case VB_NAK_REMOTE_ACCESS:
        ++counters->nak_access_sent;
        break;
    default:
        ++counters->nak_operation_sent;
    }
}

static void make_nak(struct vb_endpoint *ep, struct vb_packet *packet)
{
    struct vb_replies *replies = &ep->replies;

    count_nak(&ep->engine->counters, replies->nak);
    add_aeth(packet, replies->nak, ep->responder.msn);
    replies_write_bth(ep, packet, VB_OP_ACKNOWLEDGE, replies->nak_psn);
    replies->nak = 0;
    if (ep->responder.dying) {
        ep->responder.dying = false;
        vb_engine_replies_drop(ep);
    }
}

static void make_ack(struct vb_endpoint *ep, struct vb_packet *packet)
{
    struct vb_replies *replies = &ep->replies;
    uint32_t last = vb_engine_psn_add(ep->responder.epsn, VB_PSN_MASK);

    ++ep->engine->counters.acks_sent;
    add_aeth(packet, credits(ep), ep->responder.msn);
    replies_write_bth(ep, packet, VB_OP_ACKNOWLEDGE,
                      replies->ack_limited ? replies->ack_psn : last);
    replies->ack = false;
}

/* A congestion notification packet: BECN is set, and 16 reserved bytes follow (IBA A17.9.3). */
static void replies_make_cnp(struct vb_endpoint *ep, struct vb_packet *packet)
{
    struct vb_bth bth = {.opcode = VB_TRANSPORT_CNP | 1,
                         .migrated = true,
                         .becn = true,
                         .pkey = vb_engine_qp_pkey(ep->qp),
                         .dest_qp = ep->qp->shared->dest_qp_num};

    memset(packet->header + VB_BTH, 0, VB_CNP_RESERVED);
    packet->header_length += VB_CNP_RESERVED;
    vb_wire_bth_write(packet->header, &bth);
    ep->replies.cnp = false;
    ++ep->engine->counters.np_cnp_sent;
}

static bool may_answer(const struct vb_endpoint *ep)
{
    enum ibv_qp_state state = vb_qp_state(ep->qp);

    return (state >= IBV_QPS_RTR && state <= IBV_QPS_SQE) || ep->responder.dying;
}

/*
 * A program that has its last message may reset or destroy the QP before the acknowledgement has
 * left. The acknowledgement is sent nevertheless, because the requester waits for it.
 */
static bool owes_last_ack(const struct vb_endpoint *ep)
{
    return vb_qp_state(ep->qp) == IBV_QPS_RESET && ep->replies.ack &&
           !vb_engine_replies_pending(&ep->replies);
}

bool vb_engine_replies_next(struct vb_endpoint *ep, struct vb_packet *packet)
{
    struct vb_replies *replies = &ep->replies;

    replies_open_packet(ep, packet);
    if (!may_answer(ep)) {
        if (owes_last_ack(ep)) {
            make_ack(ep, packet);
            return true;
        }
        vb_engine_replies_drop(ep);
        return false;
    }
    if (VB_UNLIKELY(replies->cnp)) {
        replies_make_cnp(ep, packet);
        return true;
    }
    while (vb_engine_replies_pending(replies))
        if (VB_UNLIKELY(replies->repeats) ? next_of_repeat(ep, packet) : next_of_record(ep, packet))
            return true;
    if (replies->nak)
        make_nak(ep, packet);
    else if (replies->ack)
        make_ack(ep, packet);
    else
        return false;
    return true;
}
