// SPDX-License-Identifier: Apache-2.0
/*
 * The evidence that the responder of a refused request has kept, if its process is on this host
 * (refused.h).
 */
#include "direct/refused.h"

#include "direct/peer.h"
#include "hca/qp.h"

/* A QP number says which process only on one host. */
static bool peer_is_here(struct vb_direct *direct, uint32_t qp_num)
{
    struct vb_adapter *adapter = direct->adapter;
    bool here = false;

    vb_lock_take(&adapter->mutex);
    for (uint32_t i = 0; i < adapter->qp_pool.next; ++i) {
        const struct vb_qp *qp = adapter->qps[i];

        if (qp && qp->number == qp_num)
            here = vb_direct_is_local(direct, &qp->verbs->attr.ah_attr);
    }
    vb_lock_release(&adapter->mutex);
    return here;
}

bool vb_direct_find_refusal(struct vb_direct *direct, const struct vb_evidence *refused,
                            struct vb_evidence *seen)
{
    struct vb_peer *peer = NULL;
    bool found;

    if (peer_is_here(direct, refused->qp_num))
        peer = vb_direct_peer_find(direct, refused->peer_qp_num);
    if (!peer)
        return false;
    found = vb_evidence_of_refusal(&peer->view, refused, seen);
    vb_direct_peer_put(direct, peer);
    return found;
}
