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

/* Allocates a window. -EINVAL: there is no such type. */
int vb_mw_alloc(struct vb_pd *pd, enum ibv_mw_type type, struct vb_mw **mw);
/* Deallocates a window, bound or not. It returns when no peer uses the window any more. */
int vb_mw_dealloc(struct vb_mw *mw);

/* Binds a window of type 1: posts the request, and gives the window its new key at once. Errors as
 * vb_post_send. */
int vb_mw_bind(struct vb_qp *qp, struct vb_mw *mw, const struct ibv_mw_bind *bind);

/* Is it a request that this side alone carries out, without a packet? */
static inline bool vb_mw_is_local(unsigned opcode)
{
    return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}

/*
 * Makes of such a request what the send queue keeps: a copy without pointers to objects that may be
 * destroyed. -EINVAL: this type of QP does not take it, or the window is not of type 2.
 */
int vb_mw_prepare(const struct vb_qp *qp, const struct ibv_send_wr *wr,
                  struct ibv_send_wr *prepared);

/*
 * Carries such a request out, under the QP's sq_lock, and under the engine's lock if the QP's
 * carrier sends packets. 0: it has ended as `outcome` says; -EAGAIN: the peer still uses the window
 * that was invalidated.
 */
int vb_mw_execute(struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_outcome *outcome);

/* Is a window bound to this region? Under adapter->binding. */
bool vb_mw_covers(const struct vb_adapter *adapter, uint32_t region);

/*
 * Invalidates a key for a SEND with Invalidate that arrives at the QP with this index. The key must
 * be that of a window of type 2 that is bound through this QP. Returns VB_CHECK_OK, or the check
 * that failed.
 */
enum vb_check vb_mw_invalidate(const struct vb_view *view, uint32_t pd, uint32_t qp, uint32_t rkey);

#endif
