// SPDX-License-Identifier: Apache-2.0
/*
 * A connected QP and the QP at its other end, in whose memory the thread that posts carries
 * requests out. A QP has its connection from its first INIT to RTR until it is destroyed, a UD QP
 * from its first datagram. Other threads read `peer` and `counts` alone; everything else is under
 * the QP's sq_lock.
 */
#ifndef VB_DIRECT_CONNECTION_H
#define VB_DIRECT_CONNECTION_H

#include "direct/direct.h"
#include "direct/link_turn.h"
#include "hca/evidence.h"
#include "hca/qp.h"
#include "hca/text.h"

/* Where requests of a QP go. */
struct vb_connection {
    _Alignas(VB_LINE) struct vb_qp *qp; /* to `unplaced_high`, each request looks at this line */
    struct vb_peer *peer;               /* NULL: not connected to it yet */
    struct vb_qp_shared *remote;
    struct vb_connection
        *target;      /* itself; at an SRQ's proxy (xrc_proxy.h) the one to the target QP */
    uint32_t rq_seen; /* remote->rq_posted as last read */
    uint32_t epoch;   /* of the queue that this QP has sent to, 0 before the first request */
    uint32_t unplaced_cq_position;        /* of the last payload sent in a completion */
    uint8_t remote_type;                  /* enum ibv_qp_type */
    bool failed_by_death;                 /* a request ended because the peer's process had */
    uint64_t unplaced_low, unplaced_high; /* the hull of where such payloads go; 0: none */
    struct vb_direct_counts counts;
    struct vb_destinations *destinations; /* of a UD QP (datagram.c), else NULL */
    struct vb_fabric_flow *flow;          /* in a live fabric (flow.h); NULL: not asked for yet */
    struct vb_flows *flows;               /* of a UD QP there, else NULL */
    struct vb_link_turn turn;             /* for the links there */
};

/* 0, also where there is no peer yet; -EPROTONOSUPPORT: it is of another build (other_build.h). */
int vb_direct_connection_open(struct vb_qp *qp);
void vb_direct_connection_close(struct vb_qp *qp);
/* The QP's own, which may be new: it leads nowhere then. NULL: there is no memory. */
struct vb_connection *vb_direct_connection_have(struct vb_qp *qp);

/* Looks for a peer that was not there, and tells it of the first request. */
bool vb_direct_connection_ready_slowly(struct vb_connection *to);

static inline struct vb_direct *vb_direct_connection_direct(const struct vb_connection *to)
{
    return vb_direct_of(to->qp->context->adapter);
}

/* NULL where it has none: see above, and packets carry a QP without one. */
static inline struct vb_connection *vb_direct_connection_of(const struct vb_qp *qp)
{
    return __atomic_load_n(&vb_verbs_qp_of(qp)->connection, __ATOMIC_ACQUIRE);
}

/* For those who do not hold the send lock. */
static inline struct vb_peer *vb_direct_connection_peer(const struct vb_qp *qp)
{
    const struct vb_connection *to = vb_direct_connection_of(qp);

    return to ? __atomic_load_n(&to->peer, __ATOMIC_ACQUIRE) : NULL;
}

static inline bool vb_direct_connection_answers(const struct vb_connection *to)
{
    const struct vb_qp_shared *remote = to->remote;
    const struct vb_qp *qp = to->qp;
    uint32_t state = atomic_load_explicit(&remote->state, memory_order_acquire);

    return state >= IBV_QPS_RTR && state <= IBV_QPS_SQE &&
           remote->qp_num == qp->shared->dest_qp_num && vb_qp_dest(remote) == qp->number &&
           remote->type == to->remote_type &&
           vb_pkeys_match(vb_qp_pkey(qp->shared), vb_qp_pkey(remote)) &&
           !atomic_load_explicit(&to->peer->gone, memory_order_relaxed);
}

/*
 * The other end answers requests: it is alive, in RTR or later, and connected to this QP and no
 * other since this one's first request. Anything else is a request that nobody acknowledges.
 */
static inline bool vb_direct_connection_ready(struct vb_connection *to)
{
    if (VB_UNLIKELY(!to->peer || !to->remote || to->epoch != to->remote->epoch ||
                    !to->remote->established))
        return vb_direct_connection_ready_slowly(to);
    return VB_LIKELY(vb_direct_connection_answers(to));
}

/*
 * Why nobody answers the QP's requests now, under its sq_lock; `value` is the type or number that
 * some reasons have.
 */
enum vb_silence vb_direct_connection_silence(struct vb_connection *to, uint32_t *value);

/* Is the port that the peer's QP uses behind this address, a LID or a GID? In a live fabric the
 * flow says it, which is NULL elsewhere. */
bool vb_direct_connection_leads_to(const struct vb_qp *qp, const struct ibv_ah_attr *ah,
                                   const struct vb_fabric_flow *flow, const struct vb_peer *peer,
                                   const struct vb_qp_shared *remote);
/* Does the peer's QP hear what this one sends to a group from this GID of its own? */
bool vb_direct_connection_shares_link(const struct vb_qp *qp, const struct vb_gid *source,
                                      const struct vb_fabric_flow *flow, const struct vb_peer *peer,
                                      const struct vb_qp_shared *remote);

/* The peer would have dropped a packet of this QP's for its P_Key: that is counted there. */
void vb_direct_connection_count_refused(const struct vb_connection *to);

/* A member `"deserted":[...]` of a JSON object, with a sentence for each QP that has requests or
 * receives and whose peer, on this host, is in no state to serve them: reset, destroyed, in ERR.
 * QPs that are busy are left out. */
void vb_direct_connections_describe(struct vb_direct *direct, struct vb_text *text);

/*
 * The peer's process ended with its half of the connection still there, so nothing of it will ever
 * answer. One that has closed its QP first is as silent as over packets, where nobody hears of it:
 * a program that has all that it wants may end while the other still has requests to spare.
 */
bool vb_direct_connection_is_dead(const struct vb_connection *to);

/* Asks the retry thread to give this new peer to the QPs that were connected to it before it was
 * there (vb_direct_connection_attach_peer), so that they wait for it and notice its death. */
void vb_direct_connections_attend(struct vb_direct *direct, const struct vb_peer *peer);
/* False: the QP is busy, try again. */
bool vb_direct_connection_attach_peer(struct vb_qp *qp);
/* The peer is dead: a QP that was connected to it and had no reference to it yet ends in ERR. */
void vb_direct_connection_peer_died(struct vb_direct *direct, struct vb_qp *qp,
                                    struct vb_peer *peer);

/* The calls of vb_carrier. */
const struct vb_qp_shared *vb_direct_other_end(const struct vb_qp *qp);
void vb_direct_settle(struct vb_qp *qp);
bool vb_direct_quiet(struct vb_qp *qp);
bool vb_direct_settle_peer(struct vb_qp *qp);

#endif
