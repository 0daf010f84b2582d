// SPDX-License-Identifier: Apache-2.0
/*
 * The send queue. The poster's own thread carries a request out before post_send returns; only
 * what has to wait (receiver not ready, peer not there yet) is copied into the queue. Where the QP
 * is carried by packets everything is, until the packet engine completes it.
 */
#include <errno.h>
#include <string.h>

#include "hca/ah.h"
#include "hca/event.h"
#include "hca/mw.h"
#include "hca/qp.h"
#include "hca/refusal.h"

void vb_sq_lock(struct vb_qp *qp)
{
    vb_biased_acquire(&qp->shared->sq_lock, VB_RANK_SQ, qp->context->adapter->instance, false);
}

bool vb_sq_trylock(struct vb_qp *qp)
{
    return vb_biased_try(&qp->shared->sq_lock, VB_RANK_SQ, qp->context->adapter->instance);
}

void vb_sq_unlock(struct vb_qp *qp)
{
    vb_biased_release(&qp->shared->sq_lock);
}

/* Does a QP of this type send this opcode (table 38 in IBA 10.2.2; UC without invalidate; XRC as
 * RC)? Requests without a packet (vb_mw_is_local) and FLUSH (vb_post_staged) are checked elsewhere.
 */
static bool opcode_fits(enum ibv_qp_type type, unsigned opcode)
{
    enum {
        RC_OPCODES = 1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM | 1u << IBV_WR_RDMA_WRITE |
            1u << IBV_WR_RDMA_WRITE_WITH_IMM | 1u << IBV_WR_RDMA_READ |
            1u << IBV_WR_ATOMIC_CMP_AND_SWP | 1u << IBV_WR_ATOMIC_FETCH_AND_ADD |
            1u << IBV_WR_SEND_WITH_INV | 1u << IBV_WR_ATOMIC_WRITE,
    };
    static const unsigned fits[] = {
        [IBV_QPT_RC] = RC_OPCODES,
        [IBV_QPT_UC] = 1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM | 1u << IBV_WR_RDMA_WRITE |
                       1u << IBV_WR_RDMA_WRITE_WITH_IMM,
        [IBV_QPT_UD] = 1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM,
        [IBV_QPT_XRC_SEND] = RC_OPCODES,
        [IBV_QPT_XRC_RECV] = 0,
    };

    return opcode < 32 && (fits[type] >> opcode & 1);
}

static bool takes_no_inline(unsigned opcode)
{
    return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
           opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool inline_fits(const struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    uint64_t length = 0;

    if (takes_no_inline(wr->opcode))
        return false;
    for (int i = 0; i < wr->num_sge; ++i)
        length += wr->sg_list[i].length;
    return length <= qp->cap.max_inline_data;
}

static bool can_flush(const struct vb_qp *qp)
{
    return qp->type == IBV_QPT_RC || qp->type == IBV_QPT_XRC_SEND;
}

static VB_COLD int decline_wr(const struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    if ((unsigned)wr->num_sge > qp->cap.max_send_sge)
        return vb_decline(qp->context, -EINVAL,
                          "there are too many SGEs: num_sge is {0i} and QP {1x} was created with "
                          "max_send_sge {2}",
                          (uint64_t)wr->num_sge, qp->number, qp->cap.max_send_sge);
    if (wr->opcode == IBV_WR_FLUSH && can_flush(qp))
        return vb_decline(
            qp->context, -EINVAL,
            "struct ibv_send_wr has no fields for a FLUSH: post it by ibv_wr_flush, to "
            "a QP that was created with IBV_QP_EX_WITH_FLUSH");
    return vb_decline(qp->context, -EINVAL,
                      "opcode {0} ({0o}) does not suit its type: QP {1x} is {2t}", wr->opcode,
                      qp->number, qp->type);
}

static VB_COLD int decline_inline(const struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    uint64_t length = 0;

    if (takes_no_inline(wr->opcode))
        return vb_decline(
            qp->context, -EINVAL,
            "IBV_SEND_INLINE does not go with the {0o}, whose elements are written to", wr->opcode);
    for (int i = 0; i < wr->num_sge; ++i)
        length += wr->sg_list[i].length;
    return vb_decline(qp->context, -EINVAL,
                      "the inline data is too long: the {0o} has {1} bytes and QP {2x} was created "
                      "with max_inline_data {3}",
                      wr->opcode, length, qp->number, qp->cap.max_inline_data);
}

static VB_COLD int send_queue_decline_state(const struct vb_qp *qp)
{
    return vb_decline(
        qp->context, -EINVAL,
        "QP {0x} is in {1s}, not in RTS: requests are taken once modify_qp has brought "
        "it there",
        qp->number, vb_qp_state(qp));
}

/* One that was never connected to anything lacks more than the address. */
static VB_COLD int decline_address(const struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    if (vb_qp_state(qp) < IBV_QPS_RTS)
        return send_queue_decline_state(qp);
    if (wr->wr.ud.ah)
        return vb_decline(qp->context, -EINVAL,
                          "the address handle (wr.ud.ah) is of port {0}, and the QP was given port "
                          "{1} in INIT: make one with that port_num",
                          ((const struct vb_ah *)wr->wr.ud.ah)->attr.port_num,
                          qp->verbs->attr.port_num);
    return vb_decline(qp->context, -EINVAL,
                      "wr.ud.ah is NULL: a datagram needs an address handle (ibv_create_ah)");
}

/* Does the address handle name the port that the QP uses? */
static inline bool address_fits(const struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    const struct vb_ah *ah = (const struct vb_ah *)wr->wr.ud.ah;
    uint8_t port_num = vb_verbs_qp_of(qp)->attr.port_num;

    return ah && (ah->attr.port_num == port_num || !port_num);
}

static inline int check_wr(const struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    if (VB_UNLIKELY((unsigned)wr->num_sge > qp->cap.max_send_sge ||
                    !opcode_fits(qp->type, wr->opcode)))
        return decline_wr(qp, wr);
    if (VB_UNLIKELY((wr->send_flags & IBV_SEND_INLINE) && !inline_fits(qp, wr)))
        return decline_inline(qp, wr);
    if (VB_UNLIKELY(qp->type == IBV_QPT_UD && !address_fits(qp, wr)))
        return decline_address(qp, wr);
    return 0;
}

static uint8_t wc_opcode(unsigned opcode)
{
    static const uint8_t map[] = {
        [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
        [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
        [IBV_WR_SEND] = IBV_WC_SEND,
        [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
        [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
        [IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
        [IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
        [IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV,
        [IBV_WR_BIND_MW] = IBV_WC_BIND_MW,
        [IBV_WR_SEND_WITH_INV] = IBV_WC_SEND,
        [IBV_WR_FLUSH] = IBV_WC_FLUSH,
        [IBV_WR_ATOMIC_WRITE] = IBV_WC_ATOMIC_WRITE,
    };

    return opcode < sizeof(map) ? map[opcode] : 0;
}

static void push_send_entry(struct vb_qp *qp, const struct ibv_send_wr *wr, uint32_t position,
                            const struct vb_outcome *outcome)
{
    struct vb_cqe *entry = vb_cq_begin(qp->send_cq);

    if (VB_UNLIKELY(!entry)) {
        atomic_fetch_add(&qp->context->adapter->completions_lost, 1);
        return;
    }
    entry->wr_id = wr->wr_id;
    entry->qp = qp->index;
    entry->byte_len = outcome->byte_len;
    entry->extra = outcome->evidence;
    entry->wqe = position;
    entry->status = (uint8_t)outcome->status;
    entry->opcode = wc_opcode(wr->opcode);
    entry->flags = 0;
    entry->kind = VB_CQE_SEND;
    vb_cq_end(qp->send_cq, entry, false);
}

static inline bool wants_entry(const struct vb_qp *qp, const struct ibv_send_wr *wr,
                               const struct vb_outcome *outcome)
{
    return (wr->send_flags & IBV_SEND_SIGNALED) || qp->sq_sig_all ||
           outcome->status != IBV_WC_SUCCESS;
}

/* Never from ERR back to SQE: a poll that could not place a payload may have put the QP in ERR. */
static void enter_error(struct vb_qp *qp)
{
    uint32_t to = vb_qp_reliable_type(qp->type) ? IBV_QPS_ERR : IBV_QPS_SQE;
    uint32_t state = vb_qp_state(qp);

    while (state != IBV_QPS_ERR && !atomic_compare_exchange_weak(&qp->shared->state, &state, to))
        ;
    vb_qp_show_state(qp);
}

/* Changes the state first, so that the program that polls the error finds the QP in that state. */
static VB_COLD void complete_failed(struct vb_qp *qp, const struct ibv_send_wr *wr,
                                    const struct vb_outcome *outcome)
{
    uint32_t none = 0;

    atomic_compare_exchange_strong(&qp->shared->failed, &none, outcome->evidence);
    enter_error(qp);
    push_send_entry(qp, wr, qp->sq_next++, outcome);
    vb_qp_fail(qp);
}

void vb_sq_complete(struct vb_qp *qp, const struct ibv_send_wr *wr,
                    const struct vb_outcome *outcome)
{
    if (VB_UNLIKELY(outcome->status != IBV_WC_SUCCESS && outcome->status != IBV_WC_WR_FLUSH_ERR)) {
        complete_failed(qp, wr, outcome);
        return;
    }
    if (wants_entry(qp, wr, outcome))
        push_send_entry(qp, wr, qp->sq_next, outcome);
    ++qp->sq_next;
}

static void copy_inline(struct vb_sq_wqe *wqe, const struct ibv_send_wr *wr)
{
    uint32_t length = 0;

    for (int i = 0; i < wr->num_sge; ++i) {
        memcpy(wqe->inline_data + length, (void *)(uintptr_t)wr->sg_list[i].addr,
               wr->sg_list[i].length);
        length += wr->sg_list[i].length;
    }
    wqe->sge[0] = (struct ibv_sge){.addr = (uintptr_t)wqe->inline_data, .length = length};
    wqe->wr.num_sge = 1;
}

static void enqueue(struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    struct vb_sq_wqe *wqe = &qp->sq[qp->sq_posted & qp->sq_mask];

    wqe->wr = *wr;
    wqe->wr.next = NULL;
    wqe->wr.sg_list = wqe->sge;
    if (VB_UNLIKELY(qp->type == IBV_QPT_UD)) {
        *wqe->ah = *(const struct vb_ah *)wr->wr.ud.ah;
        wqe->wr.wr.ud.ah = &wqe->ah->ibv;
    }
    if (wr->send_flags & IBV_SEND_INLINE)
        copy_inline(wqe, wr);
    else if (wr->num_sge)
        memcpy(wqe->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(*wqe->sge));
    vb_sq_push(qp);
}

static void count_waiting(struct vb_qp *qp, bool waiting)
{
    if (qp->counted_waiting == waiting)
        return;
    qp->counted_waiting = waiting;
    atomic_fetch_add(&qp->send_cq->waiting, waiting ? 1 : -1u);
    if (waiting)
        qp->context->adapter->calls->attend(qp);
}

/*
 * Ends an invalidation whose key is already withdrawn. It succeeds also in the error state, but
 * only when the peer does not use the memory any more, since the program then uses it for something
 * else.
 */
static VB_COLD bool end_invalidation(struct vb_qp *qp)
{
    struct vb_sq_wqe *wqe = &qp->sq[qp->sq_next & qp->sq_mask];
    struct vb_outcome outcome = {.status = IBV_WC_SUCCESS};

    if (vb_mw_execute(qp, &wqe->wr, &outcome) == -EAGAIN)
        return false;
    vb_sq_complete(qp, &wqe->wr, &outcome);
    return true;
}

/*
 * How the next request of a failed QP ends that is not begun: it is flushed. But the first one
 * after the peer's process ended would have been sent, on hardware, and nobody would have answered.
 */
static VB_COLD struct vb_outcome end_unbegun(struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    struct vb_outcome outcome = {.status = IBV_WC_WR_FLUSH_ERR};
    struct vb_evidence evidence = {.check = VB_CHECK_PEER_DIED};

    if (qp->peer_ended)
        vb_refuse(qp, wr, IBV_WC_RETRY_EXC_ERR, &evidence, &outcome);
    else
        outcome.evidence = vb_flush_evidence(qp);
    qp->peer_ended = false;
    return outcome;
}

/* Flushes the queue, up to an invalidation that has to wait. */
static void flush_queue(struct vb_qp *qp)
{
    if (VB_UNLIKELY(qp->settling) && !end_invalidation(qp))
        return;
    while (qp->sq_next != qp->sq_posted) {
        struct vb_sq_wqe *wqe = &qp->sq[qp->sq_next & qp->sq_mask];
        struct vb_outcome ended = end_unbegun(qp, &wqe->wr);

        push_send_entry(qp, &wqe->wr, qp->sq_next++, &ended);
    }
    qp->wait.reason = VB_WAIT_NONE;
    count_waiting(qp, false);
}

static bool runs(enum ibv_qp_state state)
{
    return state == IBV_QPS_RTS || state == IBV_QPS_SQD;
}

/* With the direct carrier a request is sent as a whole, when the time of those before it is over.
 */
static VB_COLD bool waits_for_rate(struct vb_qp *qp)
{
    const struct vb_adapter *adapter = qp->context->adapter;

    if (!vb_pace_waits(qp->verbs->pace, adapter->calls->now(adapter)))
        return false;
    qp->wait.reason = VB_WAIT_RATE;
    return true;
}

/* The bytes that count for the QP's rate. READ responses are paced by the responder, so they do not
 * use the requester's rate. */
static VB_COLD void send_queue_pay(struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    const struct vb_adapter *adapter = qp->context->adapter;
    uint64_t length = 0;

    if (!takes_no_inline(wr->opcode))
        for (int i = 0; i < wr->num_sge; ++i)
            length += wr->sg_list[i].length;
    vb_pace_sent(qp->verbs->pace, length, adapter->calls->now(adapter));
}

static void raise_drained(struct vb_qp *qp)
{
    if (!qp->drain_event || qp->wait.reason != VB_WAIT_NONE)
        return;
    qp->drain_event = false;
    vb_qp_raise(qp, IBV_EVENT_SQ_DRAINED);
}

void vb_sq_run(struct vb_qp *qp)
{
    const struct vb_carrier *carrier = vb_qp_carrier(qp);
    enum ibv_qp_state state = vb_qp_state(qp);

    if (qp->wait.reason == VB_WAIT_RATE) /* the request was not begun */
        qp->wait.reason = VB_WAIT_NONE;
    while (carrier->execute && qp->sq_next != qp->sq_posted && runs(state = vb_qp_state(qp))) {
        struct vb_sq_wqe *wqe = &qp->sq[qp->sq_next & qp->sq_mask];
        struct vb_outcome outcome = {.status = IBV_WC_SUCCESS};

        /* In SQD the request that was begun is finished and no other is begun. */
        if (state == IBV_QPS_SQD && qp->wait.reason == VB_WAIT_NONE)
            break;
        if (VB_UNLIKELY(qp->paced) && waits_for_rate(qp))
            break;
        if (carrier->execute(qp, &wqe->wr, &outcome) == -EAGAIN)
            break;
        qp->wait.reason = VB_WAIT_NONE;
        if (VB_UNLIKELY(qp->paced))
            send_queue_pay(qp, &wqe->wr);
        vb_sq_complete(qp, &wqe->wr, &outcome);
    }
    if (VB_UNLIKELY(qp->paced) && qp->sq_next == qp->sq_posted)
        qp->verbs->pace->waiting = false;
    if (state == IBV_QPS_ERR || state == IBV_QPS_SQE)
        flush_queue(qp);
    count_waiting(qp, carrier->execute && qp->sq_next != qp->sq_posted &&
                          qp->wait.reason != VB_WAIT_NONE);
    raise_drained(qp);
}

void vb_qp_fail(struct vb_qp *qp)
{
    enter_error(qp);
    flush_queue(qp);
    if (vb_qp_state(qp) == IBV_QPS_ERR && vb_qp_is_carried_by_posters(qp))
        qp->context->adapter->calls->attend(qp);
}

/* Is this a state in which requests are accepted and not begun? */
static int post_elsewhere(struct vb_qp *qp, const struct ibv_send_wr *wr, enum ibv_qp_state state)
{
    struct vb_outcome ended;

    if (state == IBV_QPS_SQD) {
        enqueue(qp, wr);
        return 0;
    }
    if (state != IBV_QPS_ERR && state != IBV_QPS_SQE)
        return send_queue_decline_state(qp);
    flush_queue(qp);
    if (qp->sq_next != qp->sq_posted) {
        enqueue(qp, wr);
        return 0;
    }
    ended = end_unbegun(qp, wr);
    vb_sq_push(qp);
    push_send_entry(qp, wr, qp->sq_next++, &ended);
    return 0;
}

static VB_COLD int decline_full(const struct vb_qp *qp)
{
    if (qp->send_cq && atomic_load(&qp->send_cq->shared->error))
        return vb_decline(qp->context, -ENOMEM,
                          "the send queue of QP {0x} is full and stays so, because its CQ overran: "
                          "the CQ has room for {1} completions, one more came, and it takes no "
                          "further one; close both, and create the CQ as long as the queues of "
                          "its QPs together",
                          qp->number, qp->send_cq->mask + 1);
    if (qp->send_cq && qp->sq_posted == qp->sq_next &&
        !vb_cq_has_entry_at(qp->send_cq, vb_cq_taken(qp->send_cq)) &&
        qp->sq_posted - atomic_load(&qp->sq_retired) >= qp->cap.max_send_wr)
        return vb_decline(qp->context, -ENOMEM,
                          "the send queue of QP {0x} is full and stays so: it has room for {1} "
                          "requests, all are done, and none was signalled, so that no completion "
                          "will free them; reset the QP, and signal at least one request in {1}",
                          qp->number, qp->cap.max_send_wr);
    return vb_decline(
        qp->context, -ENOMEM,
        "the send queue is full: QP {0x} has room for {1} requests, of which {2} wait "
        "and the others' completions are not polled yet; poll the CQ (unsignalled "
        "requests leave with the next signalled one), or create it with more room",
        qp->number, qp->cap.max_send_wr, qp->sq_posted - qp->sq_next);
}

/* Is there room? Requests that wait are counted, too, since a peer may have garbled the completions
 * by which entries become free. */
static inline bool send_queue_has_room(const struct vb_qp *qp)
{
    uint32_t retired = atomic_load_explicit(&qp->sq_retired, memory_order_acquire);

    return qp->sq_posted - retired < qp->cap.max_send_wr &&
           qp->sq_posted - qp->sq_next < qp->cap.max_send_wr;
}

static inline int post_checked(struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    const struct vb_carrier *carrier = vb_qp_carrier(qp);
    enum ibv_qp_state state = vb_qp_state(qp);
    struct vb_outcome outcome = {.status = IBV_WC_SUCCESS};

    if (VB_UNLIKELY(!send_queue_has_room(qp)))
        return decline_full(qp);
    if (VB_UNLIKELY(state != IBV_QPS_RTS))
        return post_elsewhere(qp, wr, state);
    if (VB_UNLIKELY(qp->sq_next != qp->sq_posted || !carrier->execute || qp->paced)) {
        enqueue(qp, wr);
        vb_sq_run(qp);
        return 0;
    }
    if (VB_UNLIKELY(carrier->execute(qp, wr, &outcome) == -EAGAIN)) {
        enqueue(qp, wr);
        count_waiting(qp, true);
        return 0;
    }
    vb_sq_push(qp);
    vb_sq_complete(qp, wr, &outcome);
    return 0;
}

static VB_COLD int post_local(struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    struct ibv_send_wr prepared;
    int error = vb_mw_prepare(qp, wr, &prepared);

    return error ? error : post_checked(qp, &prepared);
}

/* A FLUSH has no elements (IBA oA19-2). */
static int post_flush(struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    struct ibv_send_wr bare = *wr;

    bare.num_sge = 0;
    bare.send_flags &= ~(unsigned)IBV_SEND_INLINE;
    return post_checked(qp, &bare);
}

static VB_COLD int post_unusual(struct vb_qp *qp, const struct ibv_send_wr *wr, bool staged,
                                int error)
{
    if (vb_mw_is_local(wr->opcode))
        return post_local(qp, wr);
    return staged && wr->opcode == IBV_WR_FLUSH && can_flush(qp) ? post_flush(qp, wr) : error;
}

static inline int send_queue_post_one(struct vb_qp *qp, const struct ibv_send_wr *wr, bool staged)
{
    int error = check_wr(qp, wr);

    return VB_UNLIKELY(error) ? post_unusual(qp, wr, staged, error) : post_checked(qp, wr);
}

int vb_post_prepared(struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    int error;

    vb_sq_lock(qp);
    error = post_checked(qp, wr);
    vb_sq_unlock(qp);
    vb_qp_doorbell(qp);
    return error;
}

int vb_post_check(struct vb_qp *qp)
{
    enum ibv_qp_state state = vb_qp_state(qp);
    bool full;

    vb_sq_lock(qp);
    full = qp->sq_posted - atomic_load(&qp->sq_retired) >= qp->cap.max_send_wr;
    vb_sq_unlock(qp);
    if (full)
        return decline_full(qp);
    return state < IBV_QPS_RTS ? send_queue_decline_state(qp) : 0;
}

static inline __attribute__((always_inline)) int post_list(struct vb_qp *qp, struct ibv_send_wr *wr,
                                                           struct ibv_send_wr **bad, bool staged)
{
    int error = 0;

    vb_biased_acquire(&qp->shared->sq_lock, VB_RANK_SQ, qp->context->adapter->instance, true);
    for (; wr; wr = wr->next) {
        error = send_queue_post_one(qp, wr, staged);
        if (VB_UNLIKELY(error)) {
            *bad = wr;
            break;
        }
    }
    vb_sq_unlock(qp);
    vb_qp_doorbell(qp);
    return error;
}

int vb_post_send(struct vb_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    return post_list(qp, wr, bad, false);
}

VB_COLD int vb_post_staged(struct vb_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    return post_list(qp, wr, bad, true);
}
