// SPDX-License-Identifier: Apache-2.0
#include "port/direct/connection.h"

#include "port/direct/responder.h"
#include "port/direct/retry.h"
#include "port/direct/service.h"

/* `remote` is set before `peer`, which is what others look at first. */
static void attach(struct vb_qp *qp, struct vb_peer *peer)
{
    qp->remote = vb_peer_qp(peer, qp->shared->dest_qp_num);
    qp->remote_epoch = 0;
    qp->unplaced_high = 0;
    atomic_thread_fence(memory_order_release);
    qp->peer = peer;
}

static bool is_reachable(struct vb_qp *qp)
{
    struct vb_direct *direct = vb_direct_of(qp->context->adapter);

    return vb_direct_is_local(direct, &qp->attr.ah_attr.grh.dgid);
}

int vb_connection_open(struct vb_qp *qp)
{
    struct vb_direct *direct = vb_direct_of(qp->context->adapter);
    struct vb_peer *peer;

    vb_connection_close(qp);
    if (!is_reachable(qp))
        return 0;
    peer = vb_peer_find(direct, qp->shared->dest_qp_num);
    if (!peer)
        return 0;
    if (!peer->barriers)
        vb_biased_forbid(&qp->shared->sq_lock, direct->adapter.instance);
    attach(qp, peer);
    return 0;
}

void vb_connection_close(struct vb_qp *qp)
{
    struct vb_direct *direct = vb_direct_of(qp->context->adapter);
    struct vb_peer *peer = qp->peer;

    vb_retry_leave(direct, qp);
    qp->peer = NULL;
    qp->remote = NULL;
    if (peer)
        vb_peer_put(direct, peer);
}

/* Under sq_lock. */
static void find_again(struct vb_qp *qp)
{
    struct vb_direct *direct = vb_direct_of(qp->context->adapter);
    struct vb_peer *peer = is_reachable(qp) ? vb_peer_find(direct, qp->shared->dest_qp_num) : NULL;

    if (!peer)
        return;
    if (!peer->barriers)
        vb_biased_renounce(&qp->shared->sq_lock);
    attach(qp, peer);
}

/* The first request fixes which life of the peer's QP this one is connected to. */
static bool adopt_epoch(struct vb_qp *qp)
{
    if (qp->remote_epoch == qp->remote->epoch)
        return true;
    if (qp->remote_epoch)
        return false;
    qp->remote_epoch = qp->remote->epoch;
    qp->remote_rq_seen = atomic_load(&qp->remote->rq_taken);
    return true;
}

static void establish(struct vb_qp *qp)
{
    if (qp->remote->established)
        return;
    qp->remote->established = 1;
    if (atomic_load(&qp->remote->state) == IBV_QPS_RTR)
        vb_tell_qp_event(vb_direct_of(qp->context->adapter), qp->peer, qp->remote,
                         IBV_EVENT_COMM_EST);
}

bool vb_connection_ready_slowly(struct vb_qp *qp)
{
    if (!qp->peer)
        find_again(qp);
    if (!qp->peer || !qp->remote || !vb_connection_answers(qp) || !adopt_epoch(qp))
        return false;
    establish(qp);
    return true;
}

/* Waits until the lock was free once since this call began. */
static void wait_turn(const struct vb_biased_lock *lock, const atomic_bool *gone)
{
    uint32_t turns = atomic_load(&lock->turns);

    for (unsigned round = 0; vb_biased_is_held(lock) && atomic_load(&lock->turns) == turns;) {
        if (atomic_load(gone))
            return;
        vb_backoff(&round);
    }
}

static bool talks_to(const struct vb_qp *qp)
{
    return qp->peer && qp->remote && qp->remote->dest_qp_num == qp->ibv.qp_num;
}

void vb_direct_settle(struct vb_qp *qp)
{
    struct vb_adapter *adapter = qp->context->adapter;

    wait_turn(&qp->shared->sq_lock, &adapter->gone);
    if (talks_to(qp))
        wait_turn(&qp->remote->sq_lock, &qp->peer->gone);
    if (qp->ibv.qp_type == IBV_QPT_UD) {
        vb_lock(&qp->shared->rq_lock, adapter->instance);
        vb_unlock(&qp->shared->rq_lock);
    }
}

bool vb_direct_quiet(struct vb_qp *qp)
{
    if (qp->ibv.qp_type == IBV_QPT_UD)
        return atomic_load(&qp->shared->rq_lock) == 0;
    if (!talks_to(qp) || atomic_load(&qp->peer->gone))
        return true;
    vb_barrier_everywhere();
    return !vb_biased_is_held(&qp->remote->sq_lock);
}
