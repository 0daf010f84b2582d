// SPDX-License-Identifier: Apache-2.0
/*
 * XRC requests to an SRQ of another process than the target QP's (xrc_proxy.h). The proxy's lock
 * is held from enter to leave.
 */
#include "direct/xrc_proxy.h"

#include "direct/direct.h"
#include "direct/peer.h"
#include "hca/lock.h"
#include "hca/xrc.h"

static enum vb_check lock_proxy(struct vb_connection *to, struct vb_peer *peer, uint32_t srq_num,
                                struct vb_qp_shared **proxy)
{
    uint64_t domain = to->remote->xrcd;
    struct vb_qp_shared *seen;
    enum vb_check check = vb_xrc_find_proxy(&peer->view, srq_num, domain, &seen);

    if (check)
        return check;
    if (!vb_word_lock_unless(&seen->rq_lock, VB_RANK_RECEIVE, to->qp->context->adapter->instance,
                             &peer->gone))
        return VB_CHECK_XRC_SRQ;
    check = vb_xrc_find_proxy(&peer->view, srq_num, domain, proxy);
    if (!check && *proxy != seen)
        check = VB_CHECK_XRC_SRQ;
    if (check)
        vb_word_unlock(&seen->rq_lock);
    return check;
}

enum vb_check vb_direct_xrc_proxy_enter(struct vb_connection *to, uint32_t srq_num,
                                        struct vb_connection *proxy)
{
    struct vb_direct *direct = vb_direct_connection_direct(to);
    struct vb_peer *peer = vb_direct_peer_find(direct, srq_num);
    struct vb_qp_shared *entry = NULL;
    enum vb_check check = peer ? lock_proxy(to, peer, srq_num, &entry) : VB_CHECK_XRC_SRQ;

    if (check) {
        if (peer)
            vb_direct_peer_put(direct, peer);
        return check;
    }
    vb_xrc_set_proxy(entry, to->remote);
    *proxy =
        (struct vb_connection){.qp = to->qp, .peer = peer, .remote = entry, .target = to->target};
    return VB_CHECK_OK;
}

void vb_direct_xrc_proxy_leave(struct vb_connection *proxy)
{
    vb_direct_counts_move(&proxy->counts, &proxy->target->counts);
    vb_word_unlock(&proxy->remote->rq_lock);
    vb_direct_peer_put(vb_direct_connection_direct(proxy), proxy->peer);
}
