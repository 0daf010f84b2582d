// SPDX-License-Identifier: Apache-2.0
/*
 * Extended reliable connections (IBA annex A14): a target QP has no queues. Each request names an
 * XRC SRQ, whose protection domain and completion queue count for it, and which must be of the
 * target QP's XRC domain.
 *
 * Whoever carries a request out, a peer directly or the packet engine here, first points the target
 * QP at the SRQ; from there on the QP is like one that was made with that SRQ. Both belong to one
 * process, or the SRQ has a door: a target QP that no program sees, always pointed at it, through
 * which whoever may reach both processes directly carries a request out for the target QP of the
 * other. Those take turns by the door's rq_lock, as the senders of a UD QP do. By packets a request
 * that names another process's SRQ is refused as one that names none.
 *
 * A program holds a target QP by handles, the first from create_qp and further ones from open_qp.
 * The QP itself (vb_qp.target) is not seen by it, and goes with the last handle.
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
    uint64_t domain; /* the same for all who have opened one domain; never 0 */
    int fd;          /* closed with it; -1: none */
    _Atomic uint32_t users;
    struct vb_xrcd *next; /* the owner's */
};

/* A target QP, besides what every QP has. */
struct vb_xrc_target {
    struct vb_context home; /* its adapter and nothing else: the QP may outlive who made it */
    struct vb_mutex mutex;  /* the handles; they change under the adapter's mutex too */
    struct vb_qp *handles;
    bool is_door;
};

/* `fd` is the domain's from now on. */
int vb_xrcd_open(struct vb_context *context, uint64_t domain, int fd, struct vb_xrcd **xrcd);
int vb_xrcd_close(struct vb_xrcd *xrcd); /* -EBUSY while an SRQ or QP was made with it */

/* Points a target QP at the SRQ of that number; VB_CHECK_OK, or why it cannot be. */
enum vb_check vb_xrc_point(const struct vb_view *view, struct vb_qp_shared *target,
                           uint32_t srq_num);
/*
 * The door of the SRQ of that number, for a request to a target QP of the domain in another
 * process; VB_CHECK_OK, or why there is none. Looked at again with the door's rq_lock held.
 */
enum vb_check vb_xrc_find_door(const struct vb_view *view, uint32_t srq_num, uint64_t domain,
                               struct vb_qp_shared **door);
/* Under its rq_lock: the request is checked as that target QP would check it. */
void vb_xrc_lend_door(struct vb_qp_shared *door, const struct vb_qp_shared *target);
int vb_xrc_open_door(struct vb_srq *srq);

/* Refused: the evidence of it. */
void vb_xrc_note(struct vb_evidence *evidence, enum vb_check check, uint32_t srq_num);

/* Under the engine's lock, for a target QP of this adapter: point, and see to it here. */
enum vb_check vb_xrc_adopt(struct vb_qp *qp, uint32_t srq_num);
/* Under adapter->xrc: qp->srq and what goes with it as its entry has them; NULL if it is gone. */
void vb_xrc_follow(struct vb_qp *qp);

/* No request finds the SRQ any more, and none that had found it is under way. */
void vb_xrc_withdraw_srq(struct vb_srq *srq);

int vb_xrc_create_qp(struct vb_context *context, const struct ibv_qp_init_attr_ex *attr,
                     struct vb_qp **handle);
/*
 * Another handle of a target QP of this domain. -EINVAL: there is none of that number;
 * -EOPNOTSUPP: it is another process's.
 */
int vb_xrc_open_qp(struct vb_context *context, const struct ibv_qp_open_attr *attr,
                   struct vb_qp **handle);
int vb_xrc_close_qp(struct vb_qp *handle);
void vb_xrc_raise(struct vb_qp *qp, enum ibv_event_type type);

/* Those who are at work in its queue hold its rq_lock. */
static inline bool vb_is_taken_in_turns(const struct vb_qp *qp)
{
    return qp->type == IBV_QPT_UD || (qp->target && qp->target->is_door);
}

static inline bool vb_xrc_is_target(const struct vb_qp *qp)
{
    return qp->type == IBV_QPT_XRC_RECV;
}

#endif
