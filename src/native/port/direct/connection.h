// SPDX-License-Identifier: Apache-2.0
/* A connected QP and the QP at its other end. */
#ifndef VB_PORT_DIRECT_CONNECTION_H
#define VB_PORT_DIRECT_CONNECTION_H

#include "hca/evidence.h"
#include "hca/qp.h"
#include "hca/text.h"
#include "port/direct/direct.h"

/* 0, also where there is no peer yet; -EPROTONOSUPPORT: it is of another build (stranger.h). */
int vb_connection_open(struct vb_qp *qp);
void vb_connection_close(struct vb_qp *qp);

/* Looks for a peer that was not there, and tells it of the first request. */
bool vb_connection_ready_slowly(struct vb_qp *qp);

/* For those who do not hold the send lock. */
static inline struct vb_peer *vb_connection_peer(const struct vb_qp *qp)
{
    return __atomic_load_n(&qp->peer, __ATOMIC_ACQUIRE);
}

static inline bool vb_connection_answers(const struct vb_qp *qp)
{
    const struct vb_qp_shared *remote = qp->remote;
    uint32_t state = atomic_load_explicit(&remote->state, memory_order_acquire);

    return state >= IBV_QPS_RTR && state <= IBV_QPS_SQE &&
           remote->qp_num == qp->shared->dest_qp_num && vb_qp_dest(remote) == qp->number &&
           remote->type == qp->remote_type && vb_pkeys_match(qp->shared->pkey, remote->pkey) &&
           !atomic_load_explicit(&qp->peer->gone, memory_order_relaxed);
}

/*
 * The other end answers requests: it is alive, in RTR or later, and connected to this QP and no
 * other since this one's first request. Anything else is a request that nobody acknowledges.
 */
static inline bool vb_connection_ready(struct vb_qp *qp)
{
    if (VB_UNLIKELY(!qp->peer || !qp->remote || qp->remote_epoch != qp->remote->epoch ||
                    !qp->remote->established))
        return vb_connection_ready_slowly(qp);
    return VB_LIKELY(vb_connection_answers(qp));
}

/*
 * Why nobody answers the QP's requests now, under its sq_lock; `value` is the type or number that
 * some reasons have.
 */
enum vb_silence vb_connection_silence(struct vb_qp *qp, uint32_t *value);

/* Is the port that the peer's QP uses behind this address? Of a GID it is the link layer that
 * counts, of a LID whose it is. */
bool vb_connection_leads_to(const struct vb_qp *qp, const struct ibv_ah_attr *ah,
                            const struct vb_peer *peer, const struct vb_qp_shared *remote);

/* The peer would have dropped a packet of this QP's for its P_Key: that is counted there. */
void vb_connection_count_refused(const struct vb_qp *qp);

/* A member `"deserted":[...]` of a JSON object, with a sentence for each QP that has requests or
 * receives and whose peer, on this host, is in no state to serve them: reset, destroyed, in ERR.
 * QPs that are busy are left out. */
void vb_connections_describe(struct vb_direct *direct, struct vb_text *text);

/* QPs that were connected before this peer was met shall know it, to wait for it and to notice its
 * death; this asks the retry thread to see to them… */
void vb_connections_attend(struct vb_direct *direct, const struct vb_peer *peer);
/* …which does this; false: the QP is busy, try again. */
bool vb_connection_adopt(struct vb_qp *qp);
/* The peer is dead: QPs that it was connected to and that had not met it yet end in ERR. */
void vb_connection_orphan(struct vb_direct *direct, struct vb_qp *qp, struct vb_peer *peer);

void vb_direct_settle(struct vb_qp *qp);
bool vb_direct_quiet(struct vb_qp *qp);
/* vb_port.settle_peer. */
bool vb_direct_settle_peer(struct vb_qp *qp);

#endif
