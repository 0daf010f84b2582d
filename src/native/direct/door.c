// SPDX-License-Identifier: Apache-2.0
#include "direct/door.h"

#include "direct/direct.h"
#include "direct/peer.h"
#include "hca/lock.h"
#include "hca/xrc.h"

static enum vb_check lock_door(struct vb_connection *to, struct vb_peer *peer, uint32_t srq_num,
                               struct vb_qp_shared **door)
{
    uint64_t domain = to->remote->xrcd;
    struct vb_qp_shared *seen;
    enum vb_check check = vb_xrc_find_proxy(&peer->view, srq_num, domain, &seen);

    if (check)
        return check;
    if (!vb_word_lock_unless(&seen->rq_lock, VB_RANK_RECEIVE, to->qp->context->adapter->instance,
                             &peer->gone))
        return VB_CHECK_XRC_SRQ;
    check = vb_xrc_find_proxy(&peer->view, srq_num, domain, door);
    if (!check && *door != seen)
        check = VB_CHECK_XRC_SRQ;
    if (check)
        vb_word_unlock(&seen->rq_lock);
    return check;
}

enum vb_check vb_direct_door_enter(struct vb_connection *to, uint32_t srq_num,
                                   struct vb_connection *door)
{
    struct vb_direct *direct = vb_direct_connection_direct(to);
    struct vb_peer *peer = vb_direct_peer_find(direct, srq_num);
    struct vb_qp_shared *entry = NULL;
    enum vb_check check = peer ? lock_door(to, peer, srq_num, &entry) : VB_CHECK_XRC_SRQ;

    if (check) {
        if (peer)
            vb_direct_peer_put(direct, peer);
        return check;
    }
    vb_xrc_set_proxy(entry, to->remote);
    *door =
        (struct vb_connection){.qp = to->qp, .peer = peer, .remote = entry, .target = to->target};
    return VB_CHECK_OK;
}

void vb_direct_door_leave(struct vb_connection *door)
{
    vb_direct_counts_move(&door->counts, &door->target->counts);
    vb_word_unlock(&door->remote->rq_lock);
    vb_direct_peer_put(vb_direct_connection_direct(door), door->peer);
}
