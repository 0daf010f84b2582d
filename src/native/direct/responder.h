// SPDX-License-Identifier: Apache-2.0
/*
 * The peer's half of a request, carried out by the requester's thread: the checks in the order of
 * the specification (IBA 9.7.4.1), the receive request that it takes, the completion that it
 * leaves, and the error state that a failed check puts the peer's QP in.
 */
#ifndef VB_DIRECT_RESPONDER_H
#define VB_DIRECT_RESPONDER_H

#include <errno.h>

#include "direct/connection.h"
#include "direct/direct.h"
#include "direct/place.h"
#include "hca/qp.h"
#include "memory/prefetch.h"

/* A receive request in hand. */
struct vb_taken {
    const struct vb_recv_wqe *wqe;
    uint32_t position;       /* in the receive queue, or the SRQ's request index */
    struct vb_cq_shared *cq; /* from vb_direct_deliver_begin on: whose lock is held */
};

int vb_direct_take_from_srq(struct vb_connection *to, struct vb_taken *taken);

/* Takes the next receive request for this QP: 0, -EAGAIN when there is none, -EPIPE. */
static inline int vb_direct_take_recv(struct vb_connection *to, struct vb_taken *taken)
{
    struct vb_qp_shared *remote = to->remote;

    if (VB_UNLIKELY(remote->srq))
        return vb_direct_take_from_srq(to, taken);
    taken->position = atomic_load_explicit(&remote->rq_taken, memory_order_relaxed);
    if (taken->position == to->rq_seen) {
        to->rq_seen = atomic_load_explicit(&remote->rq_posted, memory_order_acquire);
        if (taken->position == to->rq_seen)
            return -EAGAIN;
    }
    taken->wqe = vb_rq_wqe(&to->peer->view, remote, taken->position);
    return 0;
}

/* The same for a request that is tried for the first time and found none: waits for some 5 us
 * first. */
int vb_direct_await_recv(struct vb_connection *to, struct vb_taken *taken);

/* A completion will follow: the line that it goes to is fetched while the request is checked. */
static inline void vb_direct_deliver_expect(const struct vb_connection *to)
{
    const struct vb_cq_shared *cq = vb_view_cq(&to->peer->view, to->remote->recv_cq);

    vb_memory_prefetch_to_write(vb_cqe_at(&to->peer->view, cq, cq->tail));
}

/* What follows from the push; the requester's status. */
enum ibv_wc_status vb_direct_delivered(struct vb_connection *to, unsigned pushed);

/*
 * Its completion, in two steps: the entry to fill but for wr_id, qp and wqe (NULL: `refused` goes
 * to vb_direct_delivered), and its publication, after which the receive request counts as taken.
 */
static inline struct vb_cqe *vb_direct_deliver_begin(struct vb_connection *to,
                                                     struct vb_taken *taken, unsigned *refused)
{
    struct vb_peer *peer = to->peer;
    struct vb_cqe *entry;

    taken->cq = vb_view_cq(&peer->view, to->remote->recv_cq);
    entry = vb_cqe_reserve(to->qp->context->adapter, &peer->view, taken->cq, &peer->gone, refused);

    if (VB_LIKELY(entry != NULL)) {
        entry->wr_id = taken->wqe->wr_id;
        entry->qp = vb_direct_peer_qp_index(peer, to->remote);
        entry->wqe = taken->position;
    }
    return entry;
}

/* Returns what is left to tell: vb_direct_delivered does so, unless it is 0. */
static inline unsigned vb_direct_deliver_publish(struct vb_connection *to,
                                                 const struct vb_taken *taken, struct vb_cqe *entry,
                                                 bool solicited)
{
    struct vb_qp_shared *remote = to->remote;
    unsigned pushed = vb_cqe_publish(to->qp->context->adapter, taken->cq, entry, solicited);

    if (remote->srq)
        atomic_store_explicit(&remote->srq_inflight, 0, memory_order_release);
    else
        atomic_store_explicit(&remote->rq_taken, taken->position + 1, memory_order_release);
    if (VB_LIKELY(taken->position + 1 != to->rq_seen)) /* else its owner may be writing it */
        vb_memory_prefetch_to_read(vb_rq_wqe(&to->peer->view, remote, taken->position + 1));
    return pushed;
}

static inline enum ibv_wc_status vb_direct_deliver_end(struct vb_connection *to,
                                                       const struct vb_taken *taken,
                                                       struct vb_cqe *entry, bool solicited)
{
    unsigned pushed = vb_direct_deliver_publish(to, taken, entry, solicited);

    return VB_LIKELY(!pushed) ? IBV_WC_SUCCESS : vb_direct_delivered(to, pushed);
}

/* All at once, for an entry that is ready; and all but the telling, which is left to the caller. */
unsigned vb_direct_deliver_quietly(struct vb_connection *to, struct vb_taken *taken,
                                   const struct vb_cqe *entry, bool solicited);
enum ibv_wc_status vb_direct_deliver(struct vb_connection *to, struct vb_taken *taken,
                                     const struct vb_cqe *entry, bool solicited);

/* Where the receive request's elements are, up to `length` bytes; or the check that failed. */
enum vb_check vb_direct_recv_spans(const struct vb_peer *peer, const struct vb_qp_shared *remote,
                                   const struct vb_recv_wqe *wqe, uint64_t length,
                                   struct vb_spans *spans, struct vb_evidence *evidence);

enum vb_check vb_direct_note_refusal(struct vb_connection *to, enum vb_check check, uint32_t rkey,
                                     uint64_t addr, uint64_t length, uint32_t need,
                                     const struct vb_mr_shared *mr, struct vb_evidence *evidence);

/* A remote region for a one-sided request: the check, and where it is. */
static inline enum vb_check vb_direct_remote_span(struct vb_connection *to, uint32_t rkey,
                                                  uint64_t addr, uint64_t length, uint32_t need,
                                                  struct vb_spans *spans,
                                                  const struct vb_mr_shared **region,
                                                  struct vb_evidence *evidence)
{
    const struct vb_qp_shared *remote = to->remote;
    enum vb_check check;

    spans->count = 0;
    spans->total = 0;
    if (VB_UNLIKELY((remote->access & need) != need))
        return vb_direct_note_refusal(to, VB_CHECK_QP_ACCESS, rkey, addr, length, need, NULL,
                                      evidence);
    if (VB_UNLIKELY(!length))
        return VB_CHECK_OK; /* no byte, no key: IBA 9.7.4.1.5 */
    check = vb_mr_check(&to->peer->view, remote->pd, rkey, addr, length, need, region);
    if (VB_UNLIKELY(check == VB_CHECK_PD))
        check =
            vb_window_check(&to->peer->view, remote->pd, vb_direct_peer_qp_index(to->peer, remote),
                            rkey, addr, length, need, region);
    if (VB_UNLIKELY(check))
        return vb_direct_note_refusal(to, check, rkey, addr, length, need, *region, evidence);
    vb_direct_spans_add(spans, vb_direct_peer_pointer(to->peer, *region, addr, length),
                        (*region)->addr + (addr - (*region)->iova), length);
    return VB_CHECK_OK;
}

/* Puts the peer's QP into ERR after a failed check and tells its process. */
void vb_direct_fail_remote(struct vb_connection *to, enum ibv_event_type event);

/* Tells the owner of the CQ what an entry demands (wake-up, overrun). */
void vb_direct_after_remote_push(struct vb_direct *direct, struct vb_peer *peer, uint32_t cq,
                                 unsigned pushed);

void vb_direct_notify_qp_event(struct vb_direct *direct, struct vb_peer *peer,
                               struct vb_qp_shared *remote, enum ibv_event_type event);

#endif
