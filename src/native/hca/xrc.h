// SPDX-License-Identifier: Apache-2.0
/*
 * Extended reliable connections (IBA annex A14). An XRC target QP has no queues: each request names
 * an XRC SRQ of the target QP's XRC domain, and uses its protection domain and completion queue.
 * Verbs create domains, SRQs and target QPs; carriers call vb_xrc_point or vb_xrc_adopt for each
 * request.
 *
 * Who carries a request out, a peer directly or the packet engine here, first points the target QP
 * at the SRQ; from then on the QP is like one that was created with that SRQ. Where the SRQ belongs
 * to another process than the target QP, its proxy takes the request: an internal target QP in the
 * SRQ's process that always points at the SRQ. A sender that reaches both processes directly gives
 * the proxy the attributes of the target QP (vb_xrc_set_proxy). Senders take turns by the proxy's
 * rq_lock, as those of a UD QP do. By packets a request that names an SRQ of another process is
 * refused.
 *
 * A program has a target QP by handles, the first from ibv_create_qp and further ones from
 * ibv_open_qp. The QP itself (vb_qp.target) is internal, and is destroyed with its last handle.
 */
#ifndef VB_HCA_XRC_H
#define VB_HCA_XRC_H

#include "hca/evidence.h"
#include "hca/qp.h"
#include "lock/mutex.h"

struct vb_xrcd {
    struct ibv_xrcd ibv;
    struct vb_object object;
    struct vb_context *context;
    uint64_t domain; /* identifies the domain for all who have opened it; never 0 */
    int fd;          /* of the domain's file, closed with it; -1: it has none */
    _Atomic uint32_t users;
    struct vb_xrcd *next; /* in the list of the context that opened it (dropin/xrc.c) */
};

/* What a target QP has besides what every QP has. */
struct vb_xrc_target {
    struct vb_context home; /* the QP's context, since it may outlive the program's; has an adapter
                               and the record of refused calls alone */
    struct vb_mutex mutex;  /* protects the handles, which change under the adapter's mutex too */
    struct vb_qp *handles;
    bool is_proxy;
};

/* Opens a domain, which owns `fd` from now on. */
int vb_xrcd_open(struct vb_context *context, uint64_t domain, int fd, struct vb_xrcd **xrcd);
int vb_xrcd_close(struct vb_xrcd *xrcd); /* -EBUSY while an SRQ or QP was made with it */

/* Points a target QP at the SRQ of that number. Returns VB_CHECK_OK, or why that cannot be. */
enum vb_check vb_xrc_point(const struct vb_view *view, struct vb_qp_shared *target,
                           uint32_t srq_num);
/*
 * Finds the proxy of the SRQ of that number, for a request to a target QP of the domain in another
 * process. Returns VB_CHECK_OK, or why there is none. The caller takes the proxy's rq_lock and asks
 * again, since the SRQ may have been destroyed meanwhile.
 */
enum vb_check vb_xrc_find_proxy(const struct vb_view *view, uint32_t srq_num, uint64_t domain,
                                struct vb_qp_shared **proxy);
/* Gives the proxy the attributes by which the target QP checks requests. Under the proxy's rq_lock.
 */
void vb_xrc_set_proxy(struct vb_qp_shared *proxy, const struct vb_qp_shared *target);
int vb_xrc_open_proxy(struct vb_srq *srq);

/* The evidence of a request that names no SRQ, or not one that it may use. */
void vb_xrc_note(struct vb_evidence *evidence, enum vb_check check, uint32_t srq_num);

/* For a target QP of this adapter, under the engine's lock: vb_xrc_point and vb_xrc_follow. */
enum vb_check vb_xrc_adopt(struct vb_qp *qp, uint32_t srq_num);
/* Sets qp->srq, recv_cq and pd as the QP's entry in the segment has them; NULL if that SRQ was
 * destroyed. Under adapter->xrc. */
void vb_xrc_follow(struct vb_qp *qp);

/* Returns when no request can find the SRQ any more and all that had found it have ended. */
void vb_xrc_withdraw_srq(struct vb_srq *srq);

int vb_xrc_create_qp(struct vb_context *context, const struct ibv_qp_init_attr_ex *attr,
                     struct vb_qp **handle);
/*
 * Makes another handle of a target QP of this domain. -EINVAL: there is none of that number;
 * -EOPNOTSUPP: it belongs to another process.
 */
int vb_xrc_open_qp(struct vb_context *context, const struct ibv_qp_open_attr *attr,
                   struct vb_qp **handle);
int vb_xrc_close_qp(struct vb_qp *handle);
void vb_xrc_raise(struct vb_qp *qp, enum ibv_event_type type);

/* Do its senders take turns, by its rq_lock? */
static inline bool vb_is_taken_in_turns(const struct vb_qp *qp)
{
    return qp->type == IBV_QPT_UD || (qp->target && qp->target->is_proxy);
}

static inline bool vb_xrc_is_target(const struct vb_qp *qp)
{
    return qp->type == IBV_QPT_XRC_RECV;
}

#endif
