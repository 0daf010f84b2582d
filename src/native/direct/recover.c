// SPDX-License-Identifier: Apache-2.0
/*
 * What the service thread does after the death of a peer (recover.h): it releases the locks that
 * the dead process held, and finishes or ends the requests that it had begun.
 */
#include "direct/recover.h"

#include "direct/connection.h"
#include "direct/notice.h"
#include "direct/retry.h"
#include "hca/channel.h"
#include "hca/cq.h"
#include "hca/event.h"
#include "hca/qp.h"
#include "hca/refusal.h"

/* The entry may be in and its wake-up not sent: wakes for anything that could be new. */
static void wake_instead(struct vb_cq *cq, uint32_t dead)
{
    uint32_t armed = atomic_load(&cq->shared->armed);

    if (armed == VB_ARM_NONE || (armed > VB_ARM_ANY && armed != dead))
        return;
    if (atomic_compare_exchange_strong(&cq->shared->armed, &armed, VB_ARM_NONE))
        vb_cq_wake(&cq->context->adapter->self, cq->shared, cq->index, cq->channel->write_fd);
}

static void repair_cq(struct vb_cq *cq, uint32_t dead)
{
    vb_cq_repair(cq, dead);
    if (cq->channel)
        wake_instead(cq, dead);
}

/* Who sent a datagram, or came through a proxy, died with the receive queue's lock. */
static void repair_rq(struct vb_qp *qp, uint32_t dead)
{
    struct vb_qp_shared *shared = qp->shared;
    uint32_t taken = atomic_load(&shared->rq_taken);

    if (atomic_load(&shared->rq_lock) != dead)
        return;
    if (qp->srq || qp->target)
        vb_rq_put_back(qp);
    else if (vb_rq_is_completed(qp, taken))
        atomic_store(&shared->rq_taken, taken + 1);
    vb_word_clear(&shared->rq_lock);
}

void vb_direct_recover_from(struct vb_direct *direct, struct vb_peer *peer)
{
    struct vb_adapter *adapter = direct->adapter;
    uint32_t dead = peer->instance;

    vb_lock_take(&adapter->mutex);
    if (atomic_load(&adapter->self.header->atomic_lock) == dead)
        vb_word_clear(&adapter->self.header->atomic_lock);
    for (uint32_t i = 0; i < adapter->srq_pool.next; ++i)
        if (adapter->srqs[i])
            vb_srq_repair(adapter->srqs[i], dead);
    for (uint32_t i = 0; i < adapter->cq_pool.next; ++i)
        if (adapter->cqs[i])
            repair_cq(adapter->cqs[i], dead);
    for (uint32_t i = 0; i < adapter->qp_pool.next; ++i) {
        struct vb_qp *qp = adapter->qps[i];

        if (!qp)
            continue;
        repair_rq(qp, dead);
        if (vb_direct_connection_peer(qp) == peer)
            vb_direct_retry_attend(direct, qp);
        else
            vb_direct_connection_peer_died(direct, qp, peer);
    }
    vb_direct_notice_all(direct); /* it may have died before it could tell */
    vb_lock_release(&adapter->mutex);
}

/* The peer's half of the connection was still there when its process ended. In ERR already: a
 * request that found the peer dead before its death was noticed here. */
static bool died_connected(const struct vb_qp *qp)
{
    enum ibv_qp_state state = vb_qp_state(qp);
    const struct vb_connection *to = vb_direct_connection_of(qp);

    /* The state first: from RTR on, and only then, the connection stays while sq_lock is held. */
    if (state != IBV_QPS_RTR && state != IBV_QPS_RTS && state != IBV_QPS_SQD &&
        !(state == IBV_QPS_ERR && to && to->failed_by_death))
        return false;
    return to && vb_qp_reliable_type(qp->type) && vb_direct_connection_is_dead(to);
}

static void blame_peer(struct vb_qp *qp)
{
    struct vb_evidence evidence = {
        .check = VB_CHECK_PEER_DIED,
        .type = (uint8_t)qp->type,
        .qp_num = qp->number,
        .peer_qp_num = qp->shared->dest_qp_num,
    };

    vb_note_terms(qp, &evidence);
    vb_blame(&qp->context->adapter->self, qp->shared, &evidence);
}

/* On its way from INIT to RTR, with a peer that it has met and that is dead already. */
static bool is_connecting(const struct vb_qp *qp)
{
    const struct vb_peer *peer = vb_direct_connection_peer(qp);

    return peer && atomic_load(&peer->gone) && vb_qp_state(qp) == IBV_QPS_INIT;
}

bool vb_direct_recover_qp(struct vb_direct *direct, struct vb_qp *qp)
{
    (void)direct;
    if (is_connecting(qp) || !vb_sq_trylock(qp))
        return false;
    if (died_connected(qp)) {
        if (!qp->verbs->connection->failed_by_death)
            vb_sq_run(qp); /* what waits ends with the peer's death as its reason */
        if (vb_qp_state(qp) != IBV_QPS_ERR) {
            blame_peer(qp);
            qp->peer_ended = true;
            vb_qp_fail(qp);
        }
        qp->verbs->connection->failed_by_death = false; /* told once */
        vb_qp_raise(qp, IBV_EVENT_QP_FATAL);
    }
    vb_sq_unlock(qp);
    return true;
}
