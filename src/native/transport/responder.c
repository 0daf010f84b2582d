// SPDX-License-Identifier: Apache-2.0
/*
 * The responder: the steps of a request packet (check, carry out, complete, acknowledge), what
 * happens to duplicates and to packets out of sequence, and the failure of the QP. The order of the
 * checks is the specification's (IBA 9.7.4.1).
 */
#include "transport/responder.h"

#include <errno.h>
#include <stdio.h>

#include "hca/atomic.h"
#include "hca/mw.h"
#include "hca/refusal.h"
#include "hca/xrc.h"
#include "transport/early.h"
#include "transport/gap.h"
#include "transport/pieces.h"
#include "transport/receive.h"
#include "transport/replies.h"
#include "transport/requester.h"

enum {
    READ_MAX = 1u << 31,
    /* the flags of requests that are answered each by itself and kept for repetition */
    ANSWERED_EACH = VB_OPCODE_READ | VB_OPCODE_ATOMIC | VB_OPCODE_ATOMIC_WRITE | VB_OPCODE_FETH,
};

/* One packet on its way through the states. */
struct work {
    const struct vb_incoming *in;
    struct vb_endpoint *ep;
    struct vb_responder *r;
    uint32_t flags; /* VB_OPCODE_* of the opcode */
    union {
        struct vb_reth reth; /* READ, atomic write, FLUSH, and WRITE First or Only */
        struct vb_atomiceth atomic;
    };
    struct vb_feth flush;
    const struct vb_mr_shared *mr; /* the region of an atomic or a FLUSH */
    /* the following say why the request is refused */
    enum vb_nak nak;
    enum ibv_wc_status status; /* of the receive request in hand; 0: that is flushed */
    enum ibv_event_type event;
    struct vb_evidence evidence;
};

typedef enum vb_responder_state step(struct work *work);

static enum vb_responder_state responder_refuse(struct work *work, enum vb_nak nak,
                                                enum ibv_wc_status status,
                                                enum ibv_event_type event)
{
    work->nak = nak;
    work->status = status;
    work->event = event;
    return VB_RESPONDER_REFUSE;
}

/* NAK 61: the request itself is wrong. */
static VB_COLD enum vb_responder_state refuse_request(struct work *work, enum vb_check check,
                                                      enum ibv_wc_status status)
{
    memset(&work->evidence, 0, sizeof(work->evidence));
    work->evidence.check = (uint16_t)check;
    work->evidence.count = work->in->bth.opcode;
    work->evidence.length = work->in->length;
    return responder_refuse(work, VB_NAK_INVALID_REQUEST, status, IBV_EVENT_QP_REQ_ERR);
}

static void count_refusal(struct vb_counters *counters, enum vb_check check)
{
#define AT(name) offsetof(struct vb_counters, name)
    static const size_t at[] = {
        [VB_CHECK_KEY] = AT(refused_key),
        [VB_CHECK_PD] = AT(refused_pd),
        [VB_CHECK_RANGE] = AT(refused_range),
        [VB_CHECK_ACCESS] = AT(refused_access),
        [VB_CHECK_QP_ACCESS] = AT(refused_qp_access),
        [VB_CHECK_MEMORY_GONE] = AT(no_memory_pages),
        [VB_CHECK_CQ_OVERRUN] = AT(completions_lost),
    };
    unsigned alone = check & ~(unsigned)VB_CHECK_RECV;
    size_t known = alone < sizeof(at) / sizeof(*at) ? at[alone] : 0;

    ++*(uint64_t *)((char *)counters + (known ? known : AT(refused_other)));
#undef AT
}

/* NAK 63: the failure is not the requester's fault. */
static VB_COLD enum vb_responder_state
refuse_operation(struct work *work, enum ibv_wc_status status, enum ibv_event_type event)
{
    return responder_refuse(work, VB_NAK_REMOTE_OPERATION, status, event);
}

/* NAK 62: the key does not permit what the request asks for; NAK 63: the memory is gone. */
static VB_COLD enum vb_responder_state refuse_key(struct work *work, enum vb_check check,
                                                  uint32_t rkey, uint64_t addr, uint64_t length,
                                                  uint32_t need, const struct vb_mr_shared *mr)
{
    vb_note_key(&work->evidence, check, work->ep->qp->pd->number, rkey, addr, length, need, mr);
    if (check == VB_CHECK_MEMORY_GONE)
        return refuse_operation(work, 0, IBV_EVENT_QP_FATAL);
    return responder_refuse(work, VB_NAK_REMOTE_ACCESS, 0, IBV_EVENT_QP_ACCESS_ERR);
}

/* The region's memory was unmapped. */
static VB_COLD enum vb_responder_state responder_refuse_gone(struct work *work, uint64_t addr,
                                                             uint64_t length)
{
    work->evidence =
        (struct vb_evidence){.check = VB_CHECK_MEMORY_GONE, .addr = addr, .length = length};
    return refuse_operation(work, 0, IBV_EVENT_QP_FATAL);
}

/* The first request that arrives in RTR raises COMM_EST (IBA 11.6.3.2). */
static void responder_establish(struct vb_qp *qp)
{
    if (VB_LIKELY(qp->shared->established))
        return;
    qp->shared->established = 1;
    if (vb_qp_state(qp) == IBV_QPS_RTR)
        vb_qp_raise(qp, IBV_EVENT_COMM_EST);
}

/* UC: the message under way is abandoned; a receive request in hand serves the next message. */
static void abandon(struct work *work)
{
    if (work->r->expect != VB_EXPECT_ANY)
        ++work->in->engine->counters.drop_unreliable;
    work->r->expect = VB_EXPECT_ANY;
    work->r->received = 0;
}

/* UC takes any PSN: a gap ends the message, and the next one begins with a First or Only packet. */
static enum vb_responder_state check_psn_uc(struct work *work)
{
    struct vb_responder *r = work->r;
    uint32_t psn = work->in->bth.psn;

    if (psn != r->epsn) {
        abandon(work);
        r->skipping = true;
    }
    r->epsn = vb_engine_psn_add(psn, 1);
    if (work->flags & VB_OPCODE_FIRST)
        r->skipping = false;
    return r->skipping ? VB_RESPONDER_DROP : VB_RESPONDER_CHECK_SEQUENCE;
}

static enum vb_responder_state check_psn(struct work *work)
{
    struct vb_responder *r = work->r;
    int32_t ahead;

    if (vb_engine_endpoint_is_uc(work->ep)) {
        responder_establish(work->ep->qp);
        return check_psn_uc(work);
    }
    ahead = vb_wire_psn_diff(work->in->bth.psn, r->epsn);
    if (VB_UNLIKELY(ahead))
        return ahead < 0 ? VB_RESPONDER_DUPLICATE : VB_RESPONDER_OUT_OF_SEQUENCE;
    responder_establish(work->ep->qp);
    if (VB_UNLIKELY(r->nak_sent)) {
        r->nak_sent = false;
        vb_engine_replies_cancel_nak(work->ep);
    }
    return work->flags & VB_OPCODE_XRCETH ? VB_RESPONDER_CHECK_SRQ : VB_RESPONDER_CHECK_SEQUENCE;
}

/*
 * XRC: is the SRQ of the QP's domain? A receive request in hand of an SRQ that was destroyed went
 * with that SRQ.
 */
static enum vb_responder_state check_srq(struct work *work)
{
    struct vb_qp *qp = work->ep->qp;
    enum vb_check check = vb_xrc_adopt(qp, work->in->srq_num);
    enum vb_responder_state refused;

    if (check || !atomic_load(&qp->shared->srq_inflight)) /* else vb_rq_flush completes it */
        work->r->has_taken = false;
    if (VB_LIKELY(!check))
        return VB_RESPONDER_CHECK_SEQUENCE;
    refused = refuse_request(work, check, IBV_WC_LOC_QP_OP_ERR);
    work->evidence.count = work->in->srq_num;
    return refused;
}

static bool is_in_sequence(const struct work *work)
{
    if (work->flags & VB_OPCODE_FIRST)
        return work->r->expect == VB_EXPECT_ANY;
    return work->r->expect == (work->flags & VB_OPCODE_SEND ? VB_EXPECT_SEND : VB_EXPECT_WRITE);
}

static enum vb_responder_state check_sequence(struct work *work)
{
    enum { SERVED = VB_OPCODE_SEND | VB_OPCODE_WRITE | ANSWERED_EACH };

    if (VB_LIKELY((work->flags & SERVED) && is_in_sequence(work)))
        return VB_RESPONDER_CHECK_ACCESS;
    if (!vb_engine_endpoint_is_uc(work->ep))
        return refuse_request(work, VB_CHECK_BAD_SEQUENCE, IBV_WC_LOC_QP_OP_ERR);
    abandon(work);
    if ((work->flags & SERVED) && (work->flags & VB_OPCODE_FIRST))
        return VB_RESPONDER_CHECK_ACCESS;
    work->r->skipping = true;
    return VB_RESPONDER_DROP;
}

/* The access that the QP, and then the region, must permit; 0: none. */
static uint32_t need_of(const struct work *work)
{
    if (work->flags & (VB_OPCODE_WRITE | VB_OPCODE_ATOMIC_WRITE))
        return work->flags & VB_OPCODE_FIRST ? IBV_ACCESS_REMOTE_WRITE : 0;
    if (work->flags & VB_OPCODE_READ)
        return IBV_ACCESS_REMOTE_READ;
    if (work->flags & (VB_OPCODE_ATOMIC | VB_OPCODE_FETH))
        return work->flags & VB_OPCODE_FETH ? vb_flush_need(work->flush.placement)
                                            : IBV_ACCESS_REMOTE_ATOMIC;
    return 0;
}

static VB_COLD void read_flush(struct work *work)
{
    work->flush = vb_wire_feth_read(work->in->extended);
    work->reth = vb_wire_reth_read(work->in->extended + VB_FETH);
}

static enum vb_responder_state responder_check_access(struct work *work)
{
    uint32_t need, access = work->ep->qp->shared->access;
    enum vb_responder_state refused;

    if (work->flags & VB_OPCODE_RETH) {
        if (VB_UNLIKELY(work->flags & VB_OPCODE_FETH))
            read_flush(work);
        else
            work->reth = vb_wire_reth_read(work->in->extended);
    } else if (work->flags & VB_OPCODE_ATOMIC) {
        work->atomic = vb_wire_atomiceth_read(work->in->extended);
    }
    need = need_of(work);
    if (VB_LIKELY((access & need) == need))
        return VB_RESPONDER_CHECK_RESOURCES;
    refused = refuse_request(work, VB_CHECK_QP_ACCESS, IBV_WC_LOC_QP_OP_ERR);
    work->evidence.wanted = need;
    work->evidence.access = access;
    return refused;
}

static bool responder_takes_receive(const struct work *work)
{
    if (work->flags & VB_OPCODE_SEND)
        return work->flags & VB_OPCODE_FIRST;
    return (work->flags & VB_OPCODE_WRITE) && (work->flags & VB_OPCODE_IMM);
}

static enum vb_responder_state check_resources(struct work *work)
{
    struct vb_receive taken;

    if (work->flags & ANSWERED_EACH)
        return vb_engine_replies_full(work->ep) ? refuse_request(work, VB_CHECK_TOO_MANY_READS, 0)
                                                : VB_RESPONDER_CHECK_LENGTH;
    if (!responder_takes_receive(work) || work->r->has_taken)
        return VB_RESPONDER_CHECK_LENGTH;
    if (VB_UNLIKELY(!vb_engine_receive_take(work->ep->qp, &taken)))
        return VB_RESPONDER_NOT_READY;
    work->r->wqe = taken.wqe;
    work->r->wqe_position = taken.position;
    work->r->has_taken = true;
    return VB_RESPONDER_CHECK_LENGTH;
}

/* First and Middle fill the path MTU, Last is not empty, Only may be empty (IBA 9.7.4.1.6). */
static bool payload_fits(const struct work *work)
{
    uint32_t mtu = work->ep->path.mtu;

    if (!(work->flags & VB_OPCODE_LAST))
        return work->in->length == mtu;
    return work->in->length <= mtu && (work->in->length || (work->flags & VB_OPCODE_FIRST));
}

static enum vb_responder_state check_send_length(struct work *work)
{
    uint64_t length = (uint64_t)work->r->received + work->in->length;
    enum vb_responder_state refused;

    if (VB_LIKELY(length <= work->r->wqe->length && length <= READ_MAX))
        return VB_RESPONDER_CHECK_KEY;
    refused = refuse_request(work, VB_CHECK_RECV_TOO_SHORT, IBV_WC_LOC_LEN_ERR);
    work->evidence.count = !(work->flags & VB_OPCODE_LAST);
    work->evidence.length = length;
    work->evidence.mr_length = work->r->wqe->length;
    return refused;
}

static enum vb_responder_state check_write_length(struct work *work)
{
    uint32_t total = work->flags & VB_OPCODE_FIRST ? work->reth.length : work->r->write.length;
    uint64_t length = (uint64_t)work->r->received + work->in->length;
    bool whole = length == total, last = work->flags & VB_OPCODE_LAST;
    enum vb_responder_state refused;

    if (VB_LIKELY(total <= READ_MAX && whole == last && length <= total))
        return VB_RESPONDER_CHECK_KEY;
    refused = refuse_request(work, VB_CHECK_BAD_LENGTH, 0);
    work->evidence.length = length;
    work->evidence.mr_length = total;
    return refused;
}

static enum vb_responder_state check_alignment(struct work *work, uint64_t addr)
{
    if (VB_LIKELY(addr % sizeof(uint64_t) == 0))
        return VB_RESPONDER_CHECK_KEY;
    refuse_request(work, VB_CHECK_ALIGNMENT, 0);
    work->evidence.addr = addr;
    return VB_RESPONDER_REFUSE;
}

static enum vb_responder_state check_atomic_write(struct work *work)
{
    if (VB_LIKELY(work->in->length == sizeof(uint64_t) && work->reth.length == sizeof(uint64_t)))
        return check_alignment(work, work->reth.addr);
    refuse_request(work, VB_CHECK_BAD_LENGTH, 0);
    work->evidence.mr_length = work->reth.length;
    return VB_RESPONDER_REFUSE;
}

/* A FLUSH has at least one placement type and a known selectivity; other values are reserved. */
static enum vb_responder_state responder_check_flush(struct work *work)
{
    unsigned placement = work->flush.placement, selectivity = work->flush.selectivity;

    if (!vb_flush_is_known(placement, selectivity)) {
        refuse_request(work, VB_CHECK_PLACEMENT, 0);
        work->evidence.count = selectivity << 4 | placement;
        return VB_RESPONDER_REFUSE;
    }
    if (selectivity == IBV_FLUSH_MR || work->reth.length <= READ_MAX)
        return VB_RESPONDER_CHECK_FLUSH_KEY;
    refuse_request(work, VB_CHECK_BAD_LENGTH, 0);
    work->evidence.length = work->reth.length;
    return VB_RESPONDER_REFUSE;
}

static enum vb_responder_state check_length(struct work *work)
{
    if (work->flags & VB_OPCODE_ATOMIC)
        return check_alignment(work, work->atomic.addr);
    if (work->flags & (VB_OPCODE_ATOMIC_WRITE | VB_OPCODE_FETH))
        return work->flags & VB_OPCODE_FETH ? responder_check_flush(work)
                                            : check_atomic_write(work);
    if (work->flags & VB_OPCODE_READ)
        return work->reth.length <= READ_MAX ? VB_RESPONDER_CHECK_KEY
                                             : refuse_request(work, VB_CHECK_BAD_LENGTH, 0);
    if (VB_UNLIKELY(!payload_fits(work)))
        return refuse_request(work, VB_CHECK_BAD_LENGTH, IBV_WC_LOC_LEN_ERR);
    return work->flags & VB_OPCODE_SEND ? check_send_length(work) : check_write_length(work);
}

/* The whole range is checked at the start of a message, and each packet's part when it is written.
 */
static enum vb_responder_state check_key(struct work *work)
{
    bool atomic = work->flags & VB_OPCODE_ATOMIC;
    uint64_t addr = atomic ? work->atomic.addr : work->reth.addr;
    uint32_t rkey = atomic ? work->atomic.rkey : work->reth.rkey;
    uint32_t length = atomic ? 8 : work->reth.length, need = need_of(work);
    enum vb_check check;

    if (!need || !length) /* no byte, no key: IBA 9.7.4.1.5 */
        return VB_RESPONDER_EXECUTE;
    check = vb_rkey_check(&work->in->engine->adapter->self, work->ep->qp->pd->number,
                          work->ep->qp->index, rkey, addr, length, need, &work->mr);
    return VB_LIKELY(!check) ? VB_RESPONDER_EXECUTE
                             : refuse_key(work, check, rkey, addr, length, need, work->mr);
}

static enum vb_responder_state check_flush_key(struct work *work)
{
    const struct vb_qp *qp = work->ep->qp;
    const struct vb_reth *reth = &work->reth;
    bool whole = work->flush.selectivity == IBV_FLUSH_MR;
    uint32_t need = need_of(work), length = whole ? 0 : reth->length;
    enum vb_check check =
        vb_flush_check(&work->in->engine->adapter->self, qp->pd->number, qp->index, reth->rkey,
                       whole, reth->addr, length, need, &work->mr);

    return VB_LIKELY(!check)
               ? VB_RESPONDER_EXECUTE
               : refuse_key(work, check, reth->rkey, reth->addr, length, need, work->mr);
}

static enum vb_responder_state execute_send(struct work *work)
{
    const struct vb_incoming *in = work->in;
    enum vb_check check;

    check = vb_engine_receive_place(work->ep->qp, work->r->wqe, work->r->received, in->payload,
                                    in->length, &work->evidence);
    if (VB_LIKELY(!check))
        return VB_RESPONDER_COMPLETE;
    return refuse_operation(work, IBV_WC_LOC_PROT_ERR,
                            check == VB_CHECK_MEMORY_GONE ? IBV_EVENT_QP_FATAL
                                                          : IBV_EVENT_QP_REQ_ERR);
}

static enum vb_responder_state execute_write(struct work *work)
{
    const struct vb_incoming *in = work->in;
    struct vb_reth *write = &work->r->write;
    const struct vb_mr_shared *mr;
    enum vb_check check;
    uint64_t addr;

    if (work->flags & VB_OPCODE_FIRST)
        *write = work->reth;
    if (!in->length)
        return VB_RESPONDER_COMPLETE;
    addr = write->addr + work->r->received;
    check = vb_rkey_check(&in->engine->adapter->self, work->ep->qp->pd->number, work->ep->qp->index,
                          write->rkey, addr, in->length, IBV_ACCESS_REMOTE_WRITE, &mr);
    if (VB_UNLIKELY(check))
        return refuse_key(work, check, write->rkey, addr, in->length, IBV_ACCESS_REMOTE_WRITE, mr);
    if (!in->payload || VB_LIKELY(!vb_mr_put(in->engine->adapter, mr, vb_mr_pointer(mr, addr),
                                             in->payload, in->length)))
        return VB_RESPONDER_COMPLETE;
    return responder_refuse_gone(work, addr, in->length);
}

static struct vb_record record_of(const struct work *work, enum vb_record_kind kind)
{
    return (struct vb_record){
        .psn = work->in->bth.psn, .msn = vb_engine_psn_add(work->r->msn, 1), .kind = (uint8_t)kind};
}

static enum vb_responder_state execute_read(struct work *work)
{
    struct vb_record record = record_of(work, VB_RECORD_READ);

    record.addr = work->reth.addr;
    record.rkey = work->reth.rkey;
    record.pd = work->ep->qp->pd->number;
    record.length = work->reth.length;
    vb_engine_replies_add(work->ep, &record);
    return VB_RESPONDER_COMPLETE;
}

/* -EFAULT: the eight bytes are unmapped; another error: they cannot be reached now. */
static enum vb_responder_state finish_atomic(struct work *work, const struct vb_record *record,
                                             uint64_t addr, int error)
{
    if (VB_UNLIKELY(error == -EFAULT))
        return responder_refuse_gone(work, addr, sizeof(uint64_t));
    if (VB_UNLIKELY(error)) {
        ++work->in->engine->counters.drop_busy; /* the requester will send it again */
        return VB_RESPONDER_DONE;
    }
    vb_engine_replies_add(work->ep, record);
    return VB_RESPONDER_COMPLETE;
}

/* The address does not stand for an aligned word of this processor. */
static VB_COLD enum vb_responder_state responder_refuse_place(struct work *work, uint64_t addr)
{
    refuse_request(work, VB_CHECK_ALIGNMENT, 0);
    work->evidence.addr = (uintptr_t)vb_mr_pointer(work->mr, addr);
    return VB_RESPONDER_REFUSE;
}

static enum vb_responder_state execute_atomic(struct work *work)
{
    bool swap = (work->in->bth.opcode & VB_OP_MASK) == VB_OP_COMPARE_SWAP;
    struct vb_record record = record_of(work, VB_RECORD_ATOMIC);
    int error = 0;

    if (VB_UNLIKELY(!vb_mr_has_words(work->mr)))
        return responder_refuse_place(work, work->atomic.addr);
    if (!work->in->engine->config.virtual_payload)
        error = vb_atomic_here(work->in->engine->adapter, work->mr, work->atomic.addr,
                               swap ? VB_ATOMIC_SWAP : VB_ATOMIC_ADD,
                               swap ? work->atomic.compare : work->atomic.swap_add,
                               work->atomic.swap_add, &record.addr);
    return finish_atomic(work, &record, work->atomic.addr, error);
}

static enum vb_responder_state execute_atomic_write(struct work *work)
{
    struct vb_record record = record_of(work, VB_RECORD_ATOMIC_WRITE);
    uint64_t value, old;
    int error = 0;

    if (VB_UNLIKELY(!vb_mr_has_words(work->mr)))
        return responder_refuse_place(work, work->reth.addr);
    if (work->in->payload) {
        memcpy(&value, work->in->payload, sizeof(value));
        error = vb_atomic_here(work->in->engine->adapter, work->mr, work->reth.addr,
                               VB_ATOMIC_WRITE, 0, value, &old);
    }
    return finish_atomic(work, &record, work->reth.addr, error);
}

/* This thread wrote the data of the requests before it, so after a fence every thread sees them. */
static enum vb_responder_state execute_flush(struct work *work)
{
    struct vb_record record = record_of(work, VB_RECORD_FLUSH);

    atomic_thread_fence(memory_order_seq_cst);
    vb_engine_replies_add(work->ep, &record);
    return VB_RESPONDER_COMPLETE;
}

static enum vb_responder_state responder_execute(struct work *work)
{
    if (work->flags & VB_OPCODE_SEND)
        return execute_send(work);
    if (work->flags & VB_OPCODE_WRITE)
        return execute_write(work);
    if (work->flags & VB_OPCODE_READ)
        return execute_read(work);
    if (work->flags & VB_OPCODE_ATOMIC)
        return execute_atomic(work);
    return work->flags & VB_OPCODE_FETH ? execute_flush(work) : execute_atomic_write(work);
}

/* SEND with Invalidate. The data is in place by now and stays there, even if this is refused. */
static bool responder_invalidate(struct work *work)
{
    const struct vb_qp *qp = work->ep->qp;
    uint32_t rkey = vb_wire_get32(work->in->extended);
    enum vb_check check =
        vb_mw_invalidate(&work->in->engine->adapter->self, qp->pd->number, qp->index, rkey);

    if (VB_LIKELY(!check))
        return true;
    refuse_key(work, check, rkey, 0, 0, 0, NULL);
    work->status = IBV_WC_LOC_QP_OP_ERR;
    return false;
}

/* The receive request in hand completes. False: its CQ takes no more entries. */
static bool complete_in_hand(struct vb_endpoint *ep, struct vb_cqe *entry, bool solicited)
{
    struct vb_responder *r = &ep->responder;
    struct vb_receive taken = {r->wqe, r->wqe_position};

    if (!vb_engine_receive_complete(ep->qp, &taken, entry, solicited))
        return false;
    r->has_taken = false;
    return true;
}

static bool responder_deliver(struct work *work)
{
    const struct vb_incoming *in = work->in;
    struct vb_cqe entry = {
        .byte_len = work->r->received,
        .opcode = work->flags & VB_OPCODE_WRITE ? IBV_WC_RECV_RDMA_WITH_IMM & ~IBV_WC_RECV : 0,
    };

    if (work->flags & VB_OPCODE_IMM) {
        entry.flags = IBV_WC_WITH_IMM;
        memcpy(&entry.imm, in->arrival->bytes + in->opcode->header_length - VB_IMM, VB_IMM);
    } else if (work->flags & VB_OPCODE_IETH) {
        entry.flags = IBV_WC_WITH_INV;
        entry.imm = vb_wire_get32(in->extended);
    }
    return complete_in_hand(work->ep, &entry, in->bth.solicited);
}

/* The number of PSNs of the request: a READ has those of its response. */
static uint32_t psns_of(const struct work *work)
{
    return work->flags & VB_OPCODE_READ
               ? vb_engine_packets_of(work->reth.length, work->ep->path.mtu)
               : 1;
}

static enum vb_responder_state responder_complete(struct work *work)
{
    struct vb_responder *r = work->r;

    r->received += work->in->length;
    work->in->engine->counters.payload_received += work->in->length;
    if (work->flags & VB_OPCODE_LAST) {
        if (VB_UNLIKELY(!work->in->length) && vb_engine_early_is_empty(work->in))
            r->empty_psn = work->in->bth.psn;
        if ((work->flags & VB_OPCODE_IETH) && !responder_invalidate(work))
            return VB_RESPONDER_REFUSE;
        if (((work->flags & VB_OPCODE_SEND) || responder_takes_receive(work)) &&
            !responder_deliver(work)) {
            work->evidence = (struct vb_evidence){.check = VB_CHECK_CQ_OVERRUN};
            return refuse_operation(work, 0, IBV_EVENT_QP_FATAL);
        }
        r->expect = VB_EXPECT_ANY;
        r->received = 0;
        r->msn = vb_engine_psn_add(r->msn, 1);
    } else {
        r->expect = work->flags & VB_OPCODE_SEND ? VB_EXPECT_SEND : VB_EXPECT_WRITE;
    }
    if (vb_engine_endpoint_is_uc(work->ep))
        return VB_RESPONDER_DONE;
    r->epsn = vb_engine_psn_add(r->epsn, psns_of(work));
    return work->in->bth.ack_request ? VB_RESPONDER_ACKNOWLEDGE : VB_RESPONDER_DONE;
}

static enum vb_responder_state responder_acknowledge(struct work *work)
{
    if (work->flags &
        (VB_OPCODE_SEND | VB_OPCODE_WRITE)) /* the other requests are answered anyway */
        vb_engine_replies_owe_ack(work->ep);
    return VB_RESPONDER_DONE;
}

static enum vb_record_kind kind_of(const struct work *work)
{
    if (work->flags & VB_OPCODE_READ)
        return VB_RECORD_READ;
    if (work->flags & VB_OPCODE_FETH)
        return VB_RECORD_FLUSH;
    return work->flags & VB_OPCODE_ATOMIC ? VB_RECORD_ATOMIC : VB_RECORD_ATOMIC_WRITE;
}

/* The kept record that is asked for again; a READ may be repeated in part. */
static const struct vb_record *find_repeated(struct work *work, uint32_t *index, uint32_t *count)
{
    const struct vb_record *record = vb_engine_replies_find(work->ep, work->in->bth.psn, index);
    uint32_t mtu = work->ep->path.mtu;
    struct vb_reth reth;
    uint64_t offset, left;

    *count = 1;
    if (!record || record->kind != kind_of(work))
        return NULL;
    if (record->kind != VB_RECORD_READ)
        return record;
    offset = (uint64_t)*index * mtu;
    left = record->length - offset;
    reth = vb_wire_reth_read(work->in->extended);
    *count = vb_engine_packets_of(reth.length, mtu);
    if (reth.rkey != record->rkey || reth.addr != record->addr + offset)
        return NULL;
    return reth.length == left || (reth.length && reth.length < left && reth.length % mtu == 0)
               ? record
               : NULL;
}

/* Go-back-0: the packets of the message under way that have come are forgotten. */
static VB_COLD void responder_restart(struct work *work)
{
    uint32_t packets = work->r->received / work->ep->path.mtu;

    work->r->epsn = vb_engine_psn_add(work->r->epsn, (0 - packets) & VB_PSN_MASK);
    work->r->received = 0;
    work->r->expect = VB_EXPECT_ANY;
}

/* Go-back-0: has the sender begun the message under way anew? */
static bool begins_again(const struct work *work)
{
    const struct vb_responder *r = work->r;

    return work->in->engine->config.restart && r->received &&
           vb_engine_psn_add(work->in->bth.psn, r->received / work->ep->path.mtu) == r->epsn;
}

/* A duplicate is not carried out again: it is acknowledged, or answered from its record
 * (IBA 9.7.4.1.4). */
static enum vb_responder_state duplicate(struct work *work)
{
    struct vb_counters *counters = &work->in->engine->counters;
    const struct vb_record *record;
    uint32_t index, count;

    if (VB_UNLIKELY(begins_again(work))) {
        responder_restart(
            work); /* the next packet shows that this one is missing, and it is sent once more */
        return VB_RESPONDER_DONE;
    }
    if (work->flags & VB_OPCODE_FIRST)
        vb_engine_early_renumber(work->in);
    ++counters->duplicate_requests;
    if (vb_engine_recovery_of(work->ep))
        vb_engine_gap_duplicate(work->ep, &work->ep->share->recovery->early, work->in->bth.psn);
    if (work->flags & (VB_OPCODE_SEND | VB_OPCODE_WRITE)) {
        if (!work->in->bth
                 .ack_request) /* the requester goes back, and will come to the missing packet */
            return VB_RESPONDER_DONE;
        if (vb_engine_recovery_of(work->ep))
            vb_engine_gap_forget_old(work->in->engine, &work->ep->share->recovery->early,
                                     work->in->now);
        if (vb_engine_recovery_of(work->ep) && work->ep->share->recovery->early.told)
            vb_engine_replies_owe_sequence_nak(work->ep); /* the first NAK was lost */
        else
            vb_engine_replies_owe_duplicate_ack(work->ep, work->in->bth.psn);
        return VB_RESPONDER_DONE;
    }
    record = work->flags & ANSWERED_EACH ? find_repeated(work, &index, &count) : NULL;
    if (record)
        vb_engine_replies_repeat(work->ep, record, index, count, work->in->now);
    else
        ++counters->drop_stale_duplicate;
    return VB_RESPONDER_DONE;
}

static enum vb_responder_state out_of_sequence(struct work *work)
{
    if (vb_engine_endpoint_adapts(work->ep)) {
        vb_engine_early_keep(work->in);
        return VB_RESPONDER_DONE;
    }
    if (work->r->nak_sent) {
        ++work->in->engine->counters.drop_after_nak;
        return VB_RESPONDER_DONE;
    }
    if (VB_UNLIKELY(work->in->engine->config.restart))
        responder_restart(work);
    vb_engine_replies_owe_sequence_nak(work->ep);
    return VB_RESPONDER_DONE;
}

static enum vb_responder_state not_ready(struct work *work)
{
    if (vb_engine_endpoint_is_uc(work->ep)) {
        ++work->in->engine->counters.drop_no_receive;
        return VB_RESPONDER_DROP;
    }
    if (vb_engine_recovery_of(work->ep))
        vb_engine_gap_forget(work->in->engine, &work->ep->share->recovery->early);
    work->r->nak_sent = true;
    vb_engine_replies_owe_nak(work->ep, VB_AETH_RNR, work->ep->qp->shared->min_rnr_timer);
    return VB_RESPONDER_DONE;
}

static uint16_t wr_opcode(const struct work *work)
{
    if (work->flags & VB_OPCODE_WRITE)
        return IBV_WR_RDMA_WRITE;
    if (work->flags & VB_OPCODE_READ)
        return IBV_WR_RDMA_READ;
    if (work->flags & VB_OPCODE_ATOMIC_WRITE)
        return IBV_WR_ATOMIC_WRITE;
    if (work->flags & VB_OPCODE_FETH)
        return IBV_WR_FLUSH;
    if (!(work->flags & VB_OPCODE_ATOMIC))
        return IBV_WR_SEND;
    return (work->in->bth.opcode & VB_OP_MASK) == VB_OP_COMPARE_SWAP ? IBV_WR_ATOMIC_CMP_AND_SWP
                                                                     : IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* The evidence is written as the requester's, whose peer this QP is. */
static uint32_t put_evidence(struct vb_endpoint *ep, struct vb_evidence *evidence)
{
    count_refusal(&ep->engine->counters, evidence->check);
    evidence->has_psns = true;
    return vb_blame_responder(&ep->engine->adapter->self, ep->qp->shared, evidence);
}

/*
 * Puts the QP into ERR before the failed receive request completes, so that whoever polls it finds
 * the QP in that state. The NAK leaves later.
 */
static void fail_qp(struct vb_endpoint *ep, enum vb_nak nak, enum ibv_wc_status status,
                    enum ibv_event_type event, uint32_t evidence_id)
{
    struct vb_responder *r = &ep->responder;
    struct vb_cqe entry = {.status = (uint8_t)status, .extra = evidence_id};

    vb_engine_replies_owe_nak(ep, VB_AETH_NAK, (uint8_t)nak);
    r->dying = true;
    vb_sq_lock(ep->qp);
    vb_qp_fail(ep->qp);
    vb_engine_requester_sync(ep, 0);
    vb_sq_unlock(ep->qp);
    if (r->has_taken && status)
        complete_in_hand(ep, &entry, true);
    r->has_taken = false;
    vb_qp_raise(ep->qp, event);
    vb_rq_flush(ep->qp);
}

/* UC answers nothing. A receive request that was taken from an SRQ ends as it would for RC. */
static void refuse_silently(struct work *work, uint32_t evidence_id)
{
    struct vb_cqe entry = {.status = (uint8_t)work->status, .extra = evidence_id};

    if (work->r->has_taken && work->status && work->ep->qp->srq) {
        complete_in_hand(work->ep, &entry, true);
        work->r->has_taken = false;
    }
}

static enum vb_responder_state refuse_packet(struct work *work)
{
    uint32_t evidence_id;

    work->evidence.wr_opcode = wr_opcode(work);
    work->evidence.psn = work->in->bth.psn;
    evidence_id = put_evidence(work->ep, &work->evidence);
    if (vb_engine_endpoint_is_uc(work->ep)) {
        refuse_silently(work, evidence_id);
        return VB_RESPONDER_DROP;
    }
    fail_qp(work->ep, work->nak, work->status, work->event, evidence_id);
    return VB_RESPONDER_DONE;
}

static enum vb_responder_state responder_drop(struct work *work)
{
    ++work->in->engine->counters.drop_unreliable;
    work->r->expect = VB_EXPECT_ANY;
    work->r->received = 0;
    work->r->skipping = !(work->flags & VB_OPCODE_LAST);
    return VB_RESPONDER_DONE;
}

static step *const steps[] = {
    [VB_RESPONDER_CHECK_PSN] = check_psn,
    [VB_RESPONDER_CHECK_SRQ] = check_srq,
    [VB_RESPONDER_CHECK_SEQUENCE] = check_sequence,
    [VB_RESPONDER_CHECK_ACCESS] = responder_check_access,
    [VB_RESPONDER_CHECK_RESOURCES] = check_resources,
    [VB_RESPONDER_CHECK_LENGTH] = check_length,
    [VB_RESPONDER_CHECK_KEY] = check_key,
    [VB_RESPONDER_CHECK_FLUSH_KEY] = check_flush_key,
    [VB_RESPONDER_EXECUTE] = responder_execute,
    [VB_RESPONDER_COMPLETE] = responder_complete,
    [VB_RESPONDER_ACKNOWLEDGE] = responder_acknowledge,
    [VB_RESPONDER_DUPLICATE] = duplicate,
    [VB_RESPONDER_OUT_OF_SEQUENCE] = out_of_sequence,
    [VB_RESPONDER_NOT_READY] = not_ready,
    [VB_RESPONDER_REFUSE] = refuse_packet,
    [VB_RESPONDER_DROP] = responder_drop,
};

void vb_engine_responder_receive(const struct vb_incoming *in)
{
    struct vb_engine *engine = in->engine;
    enum vb_responder_state state = VB_RESPONDER_CHECK_PSN;
    struct work work;

    work.in = in;
    work.ep = in->endpoint;
    work.r = &in->endpoint->responder;
    work.flags = in->opcode->flags;
    work.reth.length = 0; /* for packets without a RETH, since check_key reads it */
    engine->path_length = 0;
    while (state != VB_RESPONDER_DONE) {
        engine->path[engine->path_length++ % VB_PATH_STEPS] = (uint8_t)state;
        state = steps[state](&work);
    }
}

void vb_engine_responder_fail_read(struct vb_endpoint *ep, uint32_t psn,
                                   struct vb_evidence *evidence)
{
    bool gone = evidence->check == VB_CHECK_MEMORY_GONE;

    evidence->wr_opcode = IBV_WR_RDMA_READ;
    evidence->psn = psn;
    ep->replies.next = ep->replies.end;
    fail_qp(ep, gone ? VB_NAK_REMOTE_OPERATION : VB_NAK_REMOTE_ACCESS, 0,
            gone ? IBV_EVENT_QP_FATAL : IBV_EVENT_QP_ACCESS_ERR, put_evidence(ep, evidence));
    ep->replies.nak_psn = psn;
}

void vb_engine_responder_stop(struct vb_endpoint *ep)
{
    if (ep->responder.dying)
        return;
    vb_engine_replies_drop(ep);
    ep->responder.has_taken = false;
    if (vb_engine_recovery_of(ep))
        vb_engine_gap_forget(ep->engine, &ep->share->recovery->early);
}

int vb_engine_responder_path(const struct vb_engine *engine, char *text, size_t size)
{
    static const char *const names[] = {
#define X(name) #name,
        VB_RESPONDER_STATES(X)
#undef X
    };
    int length = 0;

    for (uint32_t i = 0; i < engine->path_length && i < VB_PATH_STEPS; ++i)
        length += snprintf((size_t)length < size ? text + length : NULL,
                           (size_t)length < size ? size - (size_t)length : 0, "%s%s", i ? " " : "",
                           names[engine->path[i]]);
    return length;
}
