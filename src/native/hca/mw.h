// SPDX-License-Identifier: Apache-2.0
/*
 * Memory windows (IBA 10.6.7): keys for a part of a region, bound and invalidated by requests.
 *
 * A window is an entry of the region table whose `key` is set while it is bound. All else that
 * binding needs is in the entry, so that a request that waits in a send queue points to nothing
 * that may go away, and a peer that invalidates (SEND with Invalidate) only sets `key` to 0.
 *
 * Type 1 opens the region to every QP of the domain; a new binding ends the old one. Type 2 opens
 * it to the one QP that it was bound through (2B), until that QP is reset; it must be invalidated
 * before it can be bound again, and the program chooses the low byte of the key.
 */
#ifndef VB_HCA_MW_H
#define VB_HCA_MW_H

#include "hca/carrier.h"
#include "hca/evidence.h"
#include "hca/host_calls.h"
#include "hca/mr.h"

struct vb_mw {
    struct ibv_mw ibv;
    struct vb_object object;
    struct vb_pd *pd;
    uint32_t index;
    struct vb_mw *next, **link; /* in adapter->windows */
};

/* -EINVAL: no such type. */
int vb_mw_alloc(struct vb_pd *pd, enum ibv_mw_type type, struct vb_mw **mw);
/* Bound or not. Returns when no peer can be at work through it. */
int vb_mw_dealloc(struct vb_mw *mw);

/* Type 1: posts the request, and gives the window the key that it will have. As vb_post_send. */
int vb_mw_bind(struct vb_qp *qp, struct vb_mw *mw, const struct ibv_mw_bind *bind);

/* Requests that are carried out by this side alone: they make no packet. */
static inline bool vb_mw_is_local(unsigned opcode)
{
    return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}

/*
 * Such a request as the send queue holds it, without pointers to what may go away. -EINVAL: this
 * kind of QP does not take it, or it is not for a window of type 2.
 */
int vb_mw_prepare(const struct vb_qp *qp, const struct ibv_send_wr *wr,
                  struct ibv_send_wr *prepared);

/*
 * Carries it out, under the QP's sq_lock, and the engine's lock if the QP is carried by packets.
 * 0: it ended as `outcome` says; -EAGAIN: the peer is still at work through what was invalidated.
 */
int vb_mw_execute(struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_outcome *outcome);

/* Is a window bound to this region? Under adapter->binding. */
bool vb_mw_covers(const struct vb_adapter *adapter, uint32_t region);

/*
 * SEND with Invalidate, at the QP with this index: the key must be that of a window of type 2 that
 * is bound through it. The check that failed, or VB_CHECK_OK: the key opens nothing any more.
 */
enum vb_check vb_mw_invalidate(const struct vb_view *view, uint32_t pd, uint32_t qp, uint32_t rkey);

#endif
