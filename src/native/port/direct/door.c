// SPDX-License-Identifier: Apache-2.0
#include "port/direct/door.h"

#include "hca/lock.h"
#include "hca/xrc.h"
#include "port/direct/direct.h"
#include "port/direct/peer.h"

static enum vb_check lock_door(struct vb_qp *qp, struct vb_peer *peer, uint32_t srq_num,
                               struct vb_qp_shared **door)
{
    uint64_t domain = qp->remote->xrcd;
    struct vb_qp_shared *seen;
    enum vb_check check = vb_xrc_find_door(&peer->view, srq_num, domain, &seen);

    if (check)
        return check;
    if (!vb_lock_unless(&seen->rq_lock, qp->context->adapter->instance, &peer->gone))
        return VB_CHECK_XRC_SRQ;
    check = vb_xrc_find_door(&peer->view, srq_num, domain, door);
    if (!check && *door != seen)
        check = VB_CHECK_XRC_SRQ;
    if (check)
        vb_unlock(&seen->rq_lock);
    return check;
}

/* What carrying out a request looks at. */
static void stand_for(struct vb_qp *qp, struct vb_peer *peer, struct vb_qp_shared *door,
                      struct vb_qp *stand_in)
{
    *stand_in = (struct vb_qp){
        .context = qp->context,
        .pd = qp->pd,
        .shared = qp->shared,
        .number = qp->number,
        .index = qp->index,
        .type = qp->type,
        .cap = qp->cap,
        .terms = qp->terms,
        .sq_posted = qp->sq_posted,
        .wait = qp->wait,
        .peer = peer,
        .remote = door,
        .origin = qp,
    };
    atomic_store(&stand_in->sq_retired, atomic_load(&qp->sq_retired));
}

enum vb_check vb_door_enter(struct vb_qp *qp, uint32_t srq_num, struct vb_qp *stand_in)
{
    struct vb_direct *direct = vb_direct_of(qp->context->adapter);
    struct vb_peer *peer = vb_peer_find(direct, srq_num);
    struct vb_qp_shared *door = NULL;
    enum vb_check check = peer ? lock_door(qp, peer, srq_num, &door) : VB_CHECK_XRC_SRQ;

    if (check) {
        if (peer)
            vb_peer_put(direct, peer);
        return check;
    }
    vb_xrc_lend_door(door, qp->remote);
    stand_for(qp, peer, door, stand_in);
    return VB_CHECK_OK;
}

void vb_door_leave(struct vb_qp *qp, const struct vb_qp *stand_in)
{
    qp->wait = stand_in->wait;
    vb_unlock(&stand_in->remote->rq_lock);
    vb_peer_put(vb_direct_of(qp->context->adapter), stand_in->peer);
}
