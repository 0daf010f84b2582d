// SPDX-License-Identifier: Apache-2.0
/*
 * Polling a completion queue: taking entries, placing payloads that wait in them, and progress for
 * requests that wait. Any thread polls, one at a time, under the lock CQ_POLL.
 */
#include <errno.h>
#include <string.h>

#include "hca/cq.h"
#include "hca/lock.h"
#include "hca/qp.h"
#include "hca/refusal.h"
#include "hca/yield.h"
#include "lock/order.h"
#include "memory/guard.h"
#include "memory/prefetch.h"

/* Also called without poll_lock, where a resize may interfere: an entry is looked at again under
 * the lock before it is taken. */
static inline struct vb_cqe *ready_entry(const struct vb_cq *cq, uint32_t position)
{
    struct vb_cqe *ring = __atomic_load_n(&cq->ring, __ATOMIC_ACQUIRE);
    struct vb_cqe *entry = &ring[position & __atomic_load_n(&cq->mask, __ATOMIC_RELAXED)];

    return atomic_load_explicit(&entry->seq, memory_order_acquire) == position + 1 ? entry : NULL;
}

bool vb_cq_has_entry_at(const struct vb_cq *cq, uint32_t position)
{
    return ready_entry(cq, position) != NULL;
}

static const struct vb_recv_wqe *recv_wqe(const struct vb_qp *qp, uint32_t wqe)
{
    const struct vb_view *self = &qp->context->adapter->self;

    return qp->srq ? vb_srq_wqe(self, qp->srq->shared, wqe) : vb_rq_wqe(self, qp->shared, wqe);
}

/* A payload that has arrived is still placed in a region that is being deregistered. */
static VB_COLD enum vb_check find_leaving(const struct vb_view *self, uint32_t pd, uint32_t lkey,
                                          uint64_t addr, uint32_t length,
                                          const struct vb_mr_shared **mr, uint8_t **at)
{
    return vb_lkey_find(self, pd | VB_PD_LEAVING, lkey, addr, length, IBV_ACCESS_LOCAL_WRITE, mr,
                        at);
}

/* -EFAULT: an element is in no region any more, or its memory is not mapped. */
static int scatter(const struct vb_qp *qp, const struct vb_recv_wqe *wqe, const uint8_t *data,
                   uint32_t length)
{
    const struct vb_adapter *adapter = qp->context->adapter;
    uint32_t pd = vb_recv_pd(&adapter->self, qp->shared);
    uint32_t count = vb_recv_elements(&adapter->self, wqe);
    int error = 0;

    for (uint32_t i = 0; i < count && length; ++i) {
        const struct vb_recv_sge sge = vb_recv_sge(wqe, i);
        uint32_t part = sge.length < length ? sge.length : length;
        const struct vb_mr_shared *mr;
        enum vb_check check;
        uint8_t *at;

        check = vb_lkey_find(&adapter->self, pd, sge.lkey, sge.addr, part, IBV_ACCESS_LOCAL_WRITE,
                             &mr, &at);
        if (VB_UNLIKELY(check == VB_CHECK_PD))
            check = find_leaving(&adapter->self, pd, sge.lkey, sge.addr, part, &mr, &at);
        error |= VB_LIKELY(!check) ? vb_mr_put(adapter, mr, at, data, part) : -EFAULT;
        data += part;
        length -= part;
    }
    return error;
}

/* Where the request's key was checked when it was posted, its first element has room for all. */
static inline int place_small(const struct vb_qp *qp, const struct vb_cqe *entry, uint32_t length)
{
    const struct vb_recv_wqe *wqe = recv_wqe(qp, entry->wqe);
    uint8_t *at = (uint8_t *)(uintptr_t)__atomic_load_n(&wqe->sge[0].addr, __ATOMIC_RELAXED);

    if (VB_LIKELY(vb_recv_is_checked(&qp->context->adapter->self, wqe, length) &&
                  !vb_memory_guarded_write(at, entry->data, length)))
        return 0;
    return scatter(qp, wqe, entry->data, length);
}

static bool is_unplaced(const struct vb_cqe *entry)
{
    return entry->kind == VB_CQE_RECV_INLINE || entry->kind == VB_CQE_RECV_STAGED;
}

/* Does not change the entry: a store would take its cache line from the next producer. */
static int cq_poll_place(const struct vb_qp *qp, const struct vb_cqe *entry)
{
    bool staged = entry->kind == VB_CQE_RECV_STAGED;
    uint32_t wqe = entry->wqe, length = __atomic_load_n(&entry->byte_len, __ATOMIC_RELAXED);

    if (VB_UNLIKELY(length > (staged ? VB_STAGE_BYTES : VB_CQE_INLINE)))
        return -EFAULT; /* no sender wrote this */
    if (!staged)
        return place_small(qp, entry, length);
    return scatter(qp, recv_wqe(qp, wqe), vb_rq_stage(&qp->context->adapter->self, qp->shared, wqe),
                   length);
}

/* The buffer was unmapped while it was registered: the message cannot be placed, so the receive
 * request and the QP end in error (IBA 10.7.3.1: local protection). */
static VB_COLD void fail_receive(struct vb_qp *qp, const struct vb_cqe *entry, struct ibv_wc *wc)
{
    struct vb_adapter *adapter = qp->context->adapter;
    const struct vb_recv_wqe *wqe = recv_wqe(qp, entry->wqe);
    struct vb_evidence evidence = {
        .check = VB_CHECK_RECV_MEMORY_GONE,
        .wr_opcode = IBV_WR_SEND,
        .qp_num = qp->number,
        .addr = wqe->sge[0].addr,
        .length = entry->byte_len,
    };
    uint32_t state = atomic_load(&qp->shared->state);

    wc->status = IBV_WC_LOC_PROT_ERR;
    wc->vendor_err = vb_blame(&adapter->self, qp->shared, &evidence);
    while (state >= IBV_QPS_RTR && state <= IBV_QPS_SQE)
        if (atomic_compare_exchange_weak(&qp->shared->state, &state, IBV_QPS_ERR)) {
            adapter->calls->attend(qp); /* what is posted will be flushed */
            return;
        }
}

static void retire_recv(struct vb_qp *qp, const struct vb_cqe *entry)
{
    if (qp->srq)
        vb_srq_release(qp->srq, entry->wqe);
    else
        atomic_store_explicit(&qp->shared->rq_polled, entry->wqe + 1, memory_order_release);
}

static void to_wc(const struct vb_cqe *entry, uint32_t qp_num, struct ibv_wc *wc)
{
    wc->wr_id = entry->wr_id;
    wc->status = entry->status;
    wc->opcode = entry->kind == VB_CQE_SEND ? entry->opcode : IBV_WC_RECV | entry->opcode;
    wc->vendor_err = entry->status ? entry->extra : 0;
    wc->byte_len = entry->byte_len;
    wc->imm_data = entry->imm;
    wc->qp_num = qp_num;
    wc->src_qp = entry->status ? 0 : entry->extra;
    wc->wc_flags = entry->flags;
    wc->pkey_index = 0;
    wc->slid = 0;
    wc->sl = 0;
    wc->dlid_path_bits = 0;
}

static VB_COLD void tell_error(const struct vb_cq *cq)
{
    if (cq->context->on_error)
        cq->context->on_error();
}

/* Takes an entry whose `qp` is no QP: one of an XRC SRQ, whose target QP may have been destroyed.
 * False: the entry is void. */
static VB_COLD bool take_without_qp(struct vb_cq *cq, const struct vb_cqe *entry, struct ibv_wc *wc)
{
    struct vb_srq *srq;

    if (entry->kind != VB_CQE_RECV_XRC)
        return false;
    srq = cq->context->adapter->srqs[entry->qp % VB_MAX_SRQ];
    if (!srq)
        return false;
    to_wc(entry, entry->xrc_target, wc);
    vb_srq_release(srq, entry->wqe);
    return true;
}

/* Of a datagram. `sl` is the service level of one without a GRH. */
static void cq_poll_read_source(const struct vb_cqe *entry, struct ibv_wc *wc)
{
    wc->sl = entry->datagram.header_type;
    wc->slid = (uint16_t)(entry->datagram.slid[0] << 8 | entry->datagram.slid[1]);
    wc->dlid_path_bits = entry->datagram.path_bits;
}

/* Takes an entry. False: it is void, and the program does not see it. */
static inline bool cq_poll_take(struct vb_cq *cq, struct vb_cqe *entry, struct ibv_wc *wc)
{
    struct vb_qp *qp = cq->context->adapter->qps[entry->qp % VB_MAX_QP];
    uint8_t kind = __atomic_load_n(&entry->kind, __ATOMIC_RELAXED);
    int error = 0;

    if (VB_UNLIKELY(kind >= VB_CQE_VOID || !qp))
        return take_without_qp(cq, entry, wc);
    if (kind == VB_CQE_SEND) {
        atomic_store_explicit(&qp->sq_retired, entry->wqe + 1, memory_order_release);
    } else {
        if (is_unplaced(entry))
            error = cq_poll_place(qp, entry);
    }
    to_wc(entry, qp->number, wc);
    if (qp->type == IBV_QPT_UD && kind == VB_CQE_RECV)
        cq_poll_read_source(entry, wc);
    if (VB_UNLIKELY(error))
        fail_receive(qp, entry, wc);
    if (kind != VB_CQE_SEND)
        retire_recv(qp, entry);
    return true;
}

static inline int poll_entries(struct vb_cq *cq, int count, struct ibv_wc *wc, bool late)
{
    uint32_t holder = cq->context->adapter->instance, position;
    struct vb_cqe *entry;
    int got = 0;

    vb_biased_acquire(&cq->poll_lock, VB_RANK_CQ_POLL, holder, true);
    position = vb_cq_taken(cq);
    while (got < count && (entry = ready_entry(cq, position)) &&
           !(late && vb_cq_is_on_its_way(cq, position))) {
        vb_memory_prefetch_to_read(&cq->ring[(position + 2) & cq->mask]);
        if (cq_poll_take(cq, entry, &wc[got])) {
            if (VB_UNLIKELY(wc[got].status))
                tell_error(cq);
            ++got;
        }
        ++position;
    }
    atomic_store_explicit(&cq->taken, position, memory_order_relaxed);
    atomic_store_explicit(&cq->shared->head, position, memory_order_release);
    vb_biased_release(&cq->poll_lock);
    return got;
}

/* A poll that makes progress for packets may cost a system call: it counts as so many polls. */
enum { PROGRESS_COUNTS = VB_YIELD_PERIOD / 4 };

/* One for all CQs, since a thread may poll many in turn. In static TLS, as each poll writes it. */
static _Thread_local struct vb_yield cq_poll_yield __attribute__((tls_model("initial-exec")));

static VB_COLD bool yield_if_due(const struct vb_adapter *adapter)
{
    uint64_t (*clock)(const struct vb_adapter *) = adapter->calls->now;
    uint64_t before = clock ? clock(adapter) : 0;
    enum vb_yield_how how = clock ? vb_yield_due(&cq_poll_yield, before) : VB_YIELD_NOT;

    if (how == VB_YIELD_NOT)
        return false;
    vb_yield(how);
    vb_yielded(&cq_poll_yield, how, before, clock(adapter));
    return true;
}

/* True: it has yielded. What has come meanwhile is polled now, since the program may learn next
 * that its peer has left, and destroy the QP with the completion of the peer's last message. */
static inline bool count_vain_poll(const struct vb_adapter *adapter, uint32_t counts)
{
    cq_poll_yield.polls += counts;
    return VB_UNLIKELY(cq_poll_yield.polls % VB_YIELD_PERIOD < counts) && yield_if_due(adapter);
}

static int poll_nothing(const struct vb_cq *cq)
{
    if (VB_UNLIKELY(atomic_load_explicit(&cq->shared->error, memory_order_relaxed)))
        return vb_decline(cq->context, -EIO,
                          "the CQ is in error, because it overran: it has room for {0} completions "
                          "and one more came; create it as long as all that can complete between "
                          "two polls",
                          cq->mask + 1);
    return 0;
}

static bool has_written(const struct vb_cq *cq)
{
    uint32_t position = vb_cq_taken(cq);

    return ready_entry(cq, position) && !vb_cq_is_on_its_way(cq, position);
}

/* An adapter whose entries are late makes no progress by itself, so there is nothing to yield to.
 */
static VB_COLD int poll_late(struct vb_cq *cq, int count, struct ibv_wc *wc)
{
    struct vb_adapter *adapter = cq->context->adapter;
    int found;

    if (!has_written(cq))
        adapter->calls->progress(cq);
    if (!has_written(cq))
        return poll_nothing(cq);
    found = poll_entries(cq, count, wc, true);
    adapter->calls->polled(adapter, wc, found);
    return found;
}

int vb_cq_poll(struct vb_cq *cq, int count, struct ibv_wc *wc)
{
    uint32_t counts = 1;

    if (VB_UNLIKELY(atomic_load_explicit(&cq->waiting, memory_order_relaxed))) {
        atomic_fetch_add_explicit(&cq->rounds, 1, memory_order_relaxed);
        if (VB_UNLIKELY(cq->late))
            return poll_late(cq, count, wc);
        if (!ready_entry(cq,
                         vb_cq_taken(cq))) /* only if nothing is there: it may cost a system call */
            cq->context->adapter->calls->progress(cq);
        counts = PROGRESS_COUNTS;
    }
    if (ready_entry(cq, vb_cq_taken(cq)) ||
        (count_vain_poll(cq->context->adapter, counts) && ready_entry(cq, vb_cq_taken(cq)))) {
        cq_poll_yield.polls = 0;
        return poll_entries(cq, count, wc, false);
    }
    return poll_nothing(cq);
}

/* Takes the lock so that its privileged thread, which polls, has its privilege back afterwards. */
static void cq_poll_visit(struct vb_cq *cq)
{
    vb_lock_order_check(VB_RANK_CQ_POLL);
    for (unsigned round = 0;
         !vb_biased_try(&cq->poll_lock, VB_RANK_CQ_POLL, cq->context->adapter->instance);)
        vb_backoff(&round);
}

void vb_cq_place(struct vb_cq *cq)
{
    uint32_t position;
    struct vb_cqe *entry;

    cq_poll_visit(cq);
    for (position = vb_cq_taken(cq); (entry = ready_entry(cq, position)); ++position) {
        const struct vb_qp *qp = cq->context->adapter->qps[entry->qp % VB_MAX_QP];

        if (!qp || !is_unplaced(entry))
            continue;
        if (cq_poll_place(qp, entry) == 0) /* else poll says so */
            entry->kind = VB_CQE_RECV;
    }
    atomic_store_explicit(&cq->shared->placed, position, memory_order_release);
    vb_biased_release(&cq->poll_lock);
}

/* Looks without the lock: the thread that polls an entry meanwhile places its payload. */
static bool has_unplaced(const struct vb_cq *cq)
{
    const struct vb_cqe *entry;

    for (uint32_t position = vb_cq_taken(cq); (entry = ready_entry(cq, position)); ++position)
        if (is_unplaced(entry))
            return true;
    return false;
}

void vb_cqs_place(struct vb_adapter *adapter)
{
    struct vb_qp *qp;

    vb_lock_take(&adapter->mutex);
    for (uint32_t i = 0; (qp = vb_qp_next_live(adapter, i)); i = qp->index + 1)
        if (qp->recv_cq && has_unplaced(qp->recv_cq))
            vb_cq_place(qp->recv_cq);
    vb_lock_release(&adapter->mutex);
}

void vb_cq_forget(struct vb_cq *cq, uint32_t qp_index)
{
    struct vb_cqe *entry;

    vb_biased_acquire(&cq->poll_lock, VB_RANK_CQ_POLL, cq->context->adapter->instance, false);
    for (uint32_t position = vb_cq_taken(cq); (entry = ready_entry(cq, position)); ++position) {
        struct vb_qp *qp = cq->context->adapter->qps[qp_index];

        if (entry->qp != qp_index || entry->kind >= VB_CQE_VOID)
            continue;
        if (entry->kind != VB_CQE_SEND && qp && qp->srq)
            vb_srq_release(qp->srq, entry->wqe);
        entry->kind = VB_CQE_VOID;
    }
    vb_biased_release(&cq->poll_lock);
}

bool vb_cq_holds_recv(struct vb_cq *cq, uint32_t qp_index, uint32_t wqe)
{
    struct vb_cqe *entry;
    bool found = false;

    vb_biased_acquire(&cq->poll_lock, VB_RANK_CQ_POLL, cq->context->adapter->instance, false);
    for (uint32_t position = vb_cq_taken(cq); (entry = ready_entry(cq, position)); ++position)
        found |= entry->qp == qp_index && entry->wqe == wqe &&
                 (entry->kind == VB_CQE_RECV || is_unplaced(entry));
    vb_biased_release(&cq->poll_lock);
    return found;
}

void vb_cq_forget_srq(struct vb_cq *cq, uint32_t srq_index)
{
    struct vb_cqe *entry;

    vb_biased_acquire(&cq->poll_lock, VB_RANK_CQ_POLL, cq->context->adapter->instance, false);
    for (uint32_t position = vb_cq_taken(cq); (entry = ready_entry(cq, position)); ++position)
        if (entry->qp == srq_index && entry->kind == VB_CQE_RECV_XRC)
            entry->kind = VB_CQE_VOID;
    vb_biased_release(&cq->poll_lock);
}

bool vb_cq_holds_xrc(struct vb_cq *cq, uint32_t srq_index, uint32_t wqe)
{
    struct vb_cqe *entry;
    bool found = false;

    vb_biased_acquire(&cq->poll_lock, VB_RANK_CQ_POLL, cq->context->adapter->instance, false);
    for (uint32_t position = vb_cq_taken(cq); (entry = ready_entry(cq, position)); ++position)
        found |= entry->qp == srq_index && entry->wqe == wqe && entry->kind == VB_CQE_RECV_XRC;
    vb_biased_release(&cq->poll_lock);
    return found;
}
