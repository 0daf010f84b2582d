// SPDX-License-Identifier: Apache-2.0
/*
 * Taking a receive request from the QP's own queue or its SRQ, copying a part of a message into its
 * buffers, and writing its completion.
 */
#include "transport/receive.h"

#include "hca/refusal.h"
#include "transport/pieces.h"

static bool receive_take_from_rq(struct vb_qp *qp, struct vb_receive *taken)
{
    struct vb_qp_shared *shared = qp->shared;
    uint32_t position = atomic_load_explicit(&shared->rq_taken, memory_order_relaxed);

    if (position == atomic_load_explicit(&shared->rq_posted, memory_order_acquire))
        return false;
    taken->position = position;
    taken->wqe = vb_rq_wqe(&qp->context->adapter->self, shared, position);
    return true;
}

static bool receive_take_from_srq(struct vb_qp *qp, struct vb_receive *taken)
{
    const struct vb_adapter *adapter = qp->context->adapter;
    bool crossed;
    int error = vb_srq_take(&adapter->self, qp->srq->shared, qp->shared, adapter->instance, NULL,
                            taken, &crossed);

    if (VB_UNLIKELY(crossed))
        vb_srq_notice(qp->srq);
    return !error;
}

bool vb_engine_receive_take(struct vb_qp *qp, struct vb_receive *taken)
{
    return qp->srq ? receive_take_from_srq(qp, taken) : receive_take_from_rq(qp, taken);
}

uint32_t vb_engine_receive_count(const struct vb_qp *qp)
{
    return atomic_load_explicit(&qp->shared->rq_posted, memory_order_acquire) -
           atomic_load_explicit(&qp->shared->rq_taken, memory_order_relaxed);
}

enum vb_check vb_engine_receive_place(struct vb_qp *qp, const struct vb_recv_wqe *wqe,
                                      uint64_t offset, const uint8_t *bytes, uint32_t length,
                                      struct vb_evidence *evidence)
{
    const struct vb_adapter *adapter = qp->context->adapter;
    const struct vb_view *self = &adapter->self;
    uint32_t pd = vb_recv_pd(self, qp->shared), count = vb_recv_elements(self, wqe);

    for (uint32_t i = 0; i < count && length; ++i) {
        const struct vb_recv_sge sge = vb_recv_sge(wqe, i);
        uint64_t here, addr;
        const struct vb_mr_shared *mr;
        enum vb_check check;
        uint32_t part;
        uint8_t *at;

        if (offset >= sge.length) {
            offset -= sge.length;
            continue;
        }
        here = sge.length - offset;
        addr = sge.addr + offset;
        part = here < length ? (uint32_t)here : length;
        offset = 0;
        check = vb_lkey_find(self, pd, sge.lkey, addr, part, IBV_ACCESS_LOCAL_WRITE, &mr, &at);
        if (VB_UNLIKELY(check))
            return vb_note_key(evidence, check | VB_CHECK_RECV, pd, sge.lkey, addr, part,
                               IBV_ACCESS_LOCAL_WRITE, mr);
        if (bytes && VB_UNLIKELY(vb_mr_put(adapter, mr, at, bytes, part))) {
            *evidence =
                (struct vb_evidence){.check = VB_CHECK_MEMORY_GONE, .addr = addr, .length = part};
            return VB_CHECK_MEMORY_GONE;
        }
        bytes = bytes ? bytes + part : NULL;
        length -= part;
    }
    return VB_CHECK_OK;
}

bool vb_engine_receive_complete(struct vb_qp *qp, const struct vb_receive *taken,
                                struct vb_cqe *entry, bool solicited)
{
    struct vb_cqe *slot = vb_cq_begin(qp->recv_cq);

    if (VB_UNLIKELY(!slot))
        return false;
    entry->wr_id = taken->wqe->wr_id;
    entry->qp = qp->index;
    entry->wqe = taken->position;
    entry->kind = VB_CQE_RECV;
    if (VB_UNLIKELY(qp->target != NULL))
        vb_cqe_name_xrc(entry, qp->srq->index, qp->number);
    memcpy(slot, entry, offsetof(struct vb_cqe, seq));
    vb_cq_end(qp->recv_cq, slot, solicited);
    if (qp->srq)
        atomic_store_explicit(&qp->shared->srq_inflight, 0, memory_order_release);
    else
        atomic_store_explicit(&qp->shared->rq_taken, taken->position + 1, memory_order_release);
    return true;
}
