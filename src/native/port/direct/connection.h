// SPDX-License-Identifier: Apache-2.0
/* A connected QP and the QP at its other end. */
#ifndef VB_PORT_DIRECT_CONNECTION_H
#define VB_PORT_DIRECT_CONNECTION_H

#include "hca/qp.h"
#include "port/direct/direct.h"

int vb_connection_open(struct vb_qp *qp);
void vb_connection_close(struct vb_qp *qp);

/* Looks for a peer that was not there, and tells it of the first request. */
bool vb_connection_ready_slowly(struct vb_qp *qp);

/*
 * The other end answers requests: it is alive, in RTR or later, and connected to this QP and no
 * other. Anything else is a request that nobody acknowledges.
 */
static inline bool vb_connection_ready(struct vb_qp *qp)
{
    const struct vb_qp_shared *remote = qp->remote;
    uint32_t state;

    if (VB_UNLIKELY(!qp->peer || !remote))
        return vb_connection_ready_slowly(qp);
    state = atomic_load_explicit(&remote->state, memory_order_acquire);
    if (VB_UNLIKELY(state < IBV_QPS_RTR || state > IBV_QPS_SQE ||
                    remote->qp_num != qp->shared->dest_qp_num ||
                    remote->dest_qp_num != qp->ibv.qp_num || remote->type != qp->ibv.qp_type ||
                    atomic_load_explicit(&qp->peer->gone, memory_order_relaxed)))
        return false;
    return VB_LIKELY(remote->established) || vb_connection_ready_slowly(qp);
}

void vb_direct_settle(struct vb_qp *qp);
bool vb_direct_quiet(struct vb_qp *qp);

#endif
