// SPDX-License-Identifier: Apache-2.0
/*
 * The owner's side of a receive queue: posting requests, and flushing them in ERR. Posters and the
 * flush hold the lock RQ; a peer, or the packet engine, takes requests at the other end.
 */
#include <errno.h>

#include "hca/qp.h"
#include "hca/refusal.h"
#include "hca/xrc.h"

static void push_flush_entry(struct vb_qp *qp, uint64_t wr_id, uint32_t position)
{
    struct vb_cqe entry = {
        .wr_id = wr_id,
        .qp = qp->index,
        .extra = vb_flush_evidence(qp),
        .wqe = position,
        .status = IBV_WC_WR_FLUSH_ERR,
        .kind = VB_CQE_RECV,
    };

    if (qp->target)
        vb_cqe_name_xrc(&entry, qp->srq->index, qp->number);
    vb_cq_complete(qp->recv_cq, &entry, true);
}

/* Flushes the requests from rq_flushed on. Under rq_lock. */
static void flush_posted(struct vb_qp *qp)
{
    const struct vb_view *self = &qp->context->adapter->self;

    while (qp->rq_flushed != qp->rq_posted) {
        uint32_t position = qp->rq_flushed++;
        push_flush_entry(qp, vb_rq_wqe(self, qp->shared, position)->wr_id, position);
    }
}

/*
 * The first request without a completion. A peer that died may have completed a request without
 * counting it as taken. A request that is not in the CQ (asked first) and was not polled (asked
 * second) has no completion.
 */
bool vb_rq_is_completed(struct vb_qp *qp, uint32_t position)
{
    return vb_cq_holds_recv(qp->recv_cq, qp->index, position) ||
           (int32_t)(position - atomic_load(&qp->shared->rq_polled)) < 0;
}

static uint32_t first_unfinished(struct vb_qp *qp)
{
    uint32_t taken = atomic_load(&qp->shared->rq_taken);

    if (qp->rq_posted - taken > qp->cap.max_recv_wr) /* a peer wrote nonsense */
        taken = qp->rq_posted < qp->cap.max_recv_wr ? 0 : qp->rq_posted - qp->cap.max_recv_wr;
    while (taken != qp->rq_posted && vb_rq_is_completed(qp, taken))
        ++taken;
    return taken;
}

static bool recv_queue_has_entry(struct vb_qp *qp, uint32_t wqe)
{
    return qp->target ? vb_cq_holds_xrc(qp->recv_cq, qp->srq->index, wqe)
                      : vb_cq_holds_recv(qp->recv_cq, qp->index, wqe);
}

/* Finds the SRQ request that a dead peer had taken for this QP and not completed. */
static bool srq_request_in_hand(struct vb_qp *qp, uint32_t *wqe)
{
    uint64_t in_hand = atomic_exchange(&qp->shared->srq_inflight, 0);

    if (!in_hand || !qp->srq)
        return false;
    *wqe = vb_srq_in_hand_index(in_hand);
    return !recv_queue_has_entry(qp, *wqe) && vb_srq_is_taken(qp->srq, *wqe, (uint32_t)in_hand);
}

/* Keeps the SRQ of an XRC target QP, the one that it was pointed at last, from being destroyed. */
static void hold_srq(struct vb_qp *qp)
{
    if (!qp->target)
        return;
    vb_lock_take(&qp->context->adapter->xrc);
    vb_xrc_follow(qp);
}

static void recv_queue_leave_srq(struct vb_qp *qp)
{
    if (qp->target)
        vb_lock_release(&qp->context->adapter->xrc);
}

/* Flushes the SRQ request that a dead peer had taken for this QP, as the QP ends. */
static void finish_srq_inflight(struct vb_qp *qp)
{
    const struct vb_view *self = &qp->context->adapter->self;
    uint32_t wqe;

    hold_srq(qp);
    if (srq_request_in_hand(qp, &wqe))
        push_flush_entry(qp, vb_srq_wqe(self, qp->srq->shared, wqe)->wr_id, wqe);
    recv_queue_leave_srq(qp);
}

void vb_rq_put_back(struct vb_qp *qp)
{
    uint32_t wqe;

    hold_srq(qp);
    if (srq_request_in_hand(qp, &wqe))
        vb_srq_put_back(qp->srq, wqe);
    recv_queue_leave_srq(qp);
}

/*
 * Flushes the receive queue. LAST_WQE_REACHED follows the completion of the last request of a QP in
 * the error state (IBA o11-5.2.5), so the event that says why it is in that state is raised before.
 */
static void flush(struct vb_qp *qp)
{
    qp->rq_draining = true;
    if (qp->srq || qp->target) {
        finish_srq_inflight(qp);
        vb_qp_raise_notices(qp);
        vb_qp_raise(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
    } else {
        qp->rq_flushed = first_unfinished(qp);
        flush_posted(qp);
    }
}

void vb_rq_flush(struct vb_qp *qp)
{
    if (qp->rq_draining)
        return;
    if (!qp->verbs) { /* nobody posts to it, and one thread has it */
        flush(qp);
        return;
    }
    vb_biased_acquire(&qp->verbs->rq_lock, VB_RANK_RQ, qp->context->adapter->instance, false);
    if (!qp->rq_draining)
        flush(qp);
    vb_biased_release(&qp->verbs->rq_lock);
}

static VB_COLD int decline_receive(const struct vb_qp *qp)
{
    if (!qp->recv_cq)
        return vb_decline(qp->context, -EINVAL,
                          "XRC QPs have no receive queue: post to an XRC SRQ (ibv_post_srq_recv)");
    return vb_decline(
        qp->context, -ENOMEM,
        "the receive queue is full: QP {0x} has room for {1} requests; poll the CQ so "
        "that used ones leave it, or create it with more room",
        qp->number, qp->cap.max_recv_wr);
}

/*
 * The key of a request's only element, looked up as a sender would; struct vb_recv_wqe's `checked`.
 * An address that is not the owner's own (zero-based, say) is left to the sender and the poll.
 */
static uint64_t recv_queue_look_up(const struct vb_qp *qp, const struct ibv_sge *sge,
                                   uint64_t epoch, struct vb_mr_seen *seen)
{
    const struct vb_view *self = &qp->context->adapter->self;
    const struct vb_mr_shared *mr;

    if (vb_mr_check(self, qp->pd->number, sge->lkey, sge->addr, sge->length, IBV_ACCESS_LOCAL_WRITE,
                    &mr) ||
        mr->pd != qp->pd->number || mr->iova != mr->addr || !vb_mr_allows_waiting(self, mr))
        return 0;
    *seen = (struct vb_mr_seen){epoch, mr->iova, mr->length, sge->lkey};
    return epoch;
}

static inline uint64_t recv_queue_check(struct vb_qp *qp, const struct ibv_recv_wr *wr)
{
    uint64_t epoch = vb_mr_epoch(&qp->context->adapter->self);
    struct vb_mr_seen *seen = &vb_verbs_qp_of(qp)->rq_region;

    if (VB_UNLIKELY(wr->num_sge != 1))
        return 0;
    return VB_LIKELY(vb_mr_seen_covers(seen, epoch, wr->sg_list))
               ? epoch
               : recv_queue_look_up(qp, wr->sg_list, epoch, seen);
}

static inline int recv_queue_post_one(struct vb_qp *qp, const struct ibv_recv_wr *wr)
{
    if (VB_UNLIKELY((unsigned)wr->num_sge > qp->cap.max_recv_sge))
        return vb_decline(qp->context, -EINVAL,
                          "there are too many SGEs: num_sge is {0i} and QP {1x} was created with "
                          "max_recv_sge {2}",
                          (uint64_t)wr->num_sge, qp->number, qp->cap.max_recv_sge);
    if (VB_UNLIKELY(qp->rq_posted -
                        atomic_load_explicit(&qp->shared->rq_polled, memory_order_relaxed) >=
                    qp->cap.max_recv_wr))
        return decline_receive(qp);
    vb_recv_write(vb_rq_wqe(&qp->context->adapter->self, qp->shared, qp->rq_posted), wr,
                  recv_queue_check(qp, wr));
    atomic_store_explicit(&qp->shared->rq_posted, ++qp->rq_posted, memory_order_release);
    return 0;
}

static VB_COLD int recv_queue_decline_state(const struct vb_qp *qp)
{
    if (qp->srq)
        return vb_decline(qp->context, -EINVAL,
                          "QP {0x} uses an SRQ: post to that (ibv_post_srq_recv)", qp->number);
    return vb_decline(qp->context, -EINVAL,
                      "QP {0x} is in RESET: receive requests are taken from INIT on", qp->number);
}

int vb_post_recv(struct vb_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct vb_biased_lock *lock = &vb_verbs_qp_of(qp)->rq_lock;
    int error = 0;
    bool news;

    if (VB_UNLIKELY(qp->srq || vb_qp_state(qp) == IBV_QPS_RESET)) {
        *bad = wr;
        return recv_queue_decline_state(qp);
    }
    vb_biased_acquire(lock, VB_RANK_RQ, qp->context->adapter->instance, true);
    for (; wr; wr = wr->next) {
        error = recv_queue_post_one(qp, wr);
        if (VB_UNLIKELY(error)) {
            *bad = wr;
            break;
        }
    }
    news = (int)atomic_load_explicit(&qp->rq_draining, memory_order_relaxed) |
           (int)atomic_load_explicit(&qp->credits_out, memory_order_relaxed);
    if (VB_UNLIKELY(news) && qp->rq_draining)
        flush_posted(qp);
    vb_biased_release(lock);
    if (VB_UNLIKELY(news))
        vb_qp_doorbell(qp);
    return error;
}
