// SPDX-License-Identifier: Apache-2.0
/* modify_qp and query_qp. */
#include <errno.h>

#include "hca/qp.h"
#include "hca/qp_states.h"

/* What each attribute may be (IBA 11.2.5.2; limits of this adapter). */
static bool values_fit(const struct ibv_qp_attr *attr, int mask)
{
    if ((mask & IBV_QP_PORT) && attr->port_num != 1)
        return false;
    if ((mask & IBV_QP_PKEY_INDEX) && attr->pkey_index != 0)
        return false;
    if ((mask & IBV_QP_PATH_MTU) && (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
        return false;
    if ((mask & IBV_QP_TIMEOUT) && attr->timeout > 31)
        return false;
    if ((mask & IBV_QP_RETRY_CNT) && attr->retry_cnt > 7)
        return false;
    if ((mask & IBV_QP_RNR_RETRY) && attr->rnr_retry > 7)
        return false;
    if ((mask & IBV_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31)
        return false;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > VB_MAX_RD_ATOMIC)
        return false;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > VB_MAX_RD_ATOMIC)
        return false;
    /* RoCE has no local route: every address is global. */
    if ((mask & IBV_QP_AV) && !attr->ah_attr.is_global)
        return false;
    if ((mask & IBV_QP_DEST_QPN) && attr->dest_qp_num >> 24)
        return false;
    return true;
}

static const struct vb_transition *find(const struct vb_qp *qp, const struct ibv_qp_attr *attr,
                                        int mask)
{
    enum ibv_qp_state now = vb_qp_state(qp);
    enum ibv_qp_state from = mask & IBV_QP_CUR_STATE ? attr->cur_qp_state : now;
    enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
    const struct vb_transition *transition;

    if ((mask & IBV_QP_CUR_STATE) && (from != now || now < IBV_QPS_RTR || now > IBV_QPS_SQE))
        return NULL;
    transition = vb_qp_transition(qp->ibv.qp_type, from, to);
    return transition && vb_qp_mask_fits(transition, mask) ? transition : NULL;
}

static void keep_path(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    struct ibv_qp_attr *kept = &qp->attr;

    if (mask & IBV_QP_AV)
        kept->ah_attr = attr->ah_attr;
    if (mask & IBV_QP_ALT_PATH) {
        kept->alt_ah_attr = attr->alt_ah_attr;
        kept->alt_pkey_index = attr->alt_pkey_index;
        kept->alt_port_num = attr->alt_port_num;
        kept->alt_timeout = attr->alt_timeout;
    }
    if (mask & IBV_QP_PATH_MTU)
        kept->path_mtu = attr->path_mtu;
    if (mask & IBV_QP_PATH_MIG_STATE)
        kept->path_mig_state = attr->path_mig_state;
    if (mask & IBV_QP_PORT)
        kept->port_num = attr->port_num;
    if (mask & IBV_QP_PKEY_INDEX)
        kept->pkey_index = attr->pkey_index;
    if (mask & IBV_QP_RQ_PSN)
        kept->rq_psn = attr->rq_psn & 0xffffff;
    if (mask & IBV_QP_SQ_PSN)
        kept->sq_psn = attr->sq_psn & 0xffffff;
}

static void keep_requester(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    struct ibv_qp_attr *kept = &qp->attr;

    if (mask & IBV_QP_TIMEOUT)
        kept->timeout = attr->timeout;
    if (mask & IBV_QP_RETRY_CNT)
        kept->retry_cnt = attr->retry_cnt;
    if (mask & IBV_QP_RNR_RETRY)
        kept->rnr_retry = attr->rnr_retry;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
        kept->max_rd_atomic = attr->max_rd_atomic;
    if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
        kept->en_sqd_async_notify = attr->en_sqd_async_notify;
}

/* What the peer looks at lies in the segment. */
static void share_responder(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    struct vb_qp_shared *shared = qp->shared;

    if (mask & IBV_QP_ACCESS_FLAGS)
        shared->access = attr->qp_access_flags;
    if (mask & IBV_QP_QKEY)
        shared->qkey = attr->qkey;
    if (mask & IBV_QP_DEST_QPN)
        shared->dest_qp_num = attr->dest_qp_num;
    if (mask & IBV_QP_MIN_RNR_TIMER)
        shared->min_rnr_timer = attr->min_rnr_timer;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
        shared->max_dest_rd_atomic = attr->max_dest_rd_atomic;
}

static void set_state(struct vb_qp *qp, enum ibv_qp_state state)
{
    atomic_store(&qp->shared->state, state);
    qp->ibv.state = state;
}

static void fail(struct vb_qp *qp)
{
    vb_sq_lock(qp);
    set_state(qp, IBV_QPS_ERR);
    vb_sq_run(qp);
    vb_sq_unlock(qp);
    vb_barrier_everywhere();
    qp->context->adapter->port->settle(qp);
    vb_rq_flush(qp);
}

static void run(struct vb_qp *qp, enum ibv_qp_state state, bool drain_event)
{
    vb_sq_lock(qp);
    set_state(qp, state);
    qp->drain_event = drain_event;
    vb_sq_run(qp);
    vb_sq_unlock(qp);
}

static int enter(struct vb_qp *qp, const struct vb_transition *transition,
                 const struct ibv_qp_attr *attr, int mask)
{
    int error = 0;

    switch (transition->to) {
    case IBV_QPS_RESET:
        vb_qp_reset(qp);
        break;
    case IBV_QPS_ERR:
        fail(qp);
        break;
    case IBV_QPS_RTR:
        error = qp->context->adapter->port->connect(qp);
        if (!error && vb_qp_connected_type(qp->ibv.qp_type) && !qp->by_packets)
            vb_qp_stage(qp);
        if (!error)
            set_state(qp, IBV_QPS_RTR);
        break;
    case IBV_QPS_SQD:
        run(qp, IBV_QPS_SQD,
            transition->from != IBV_QPS_SQD && (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) &&
                attr->en_sqd_async_notify);
        break;
    default:
        run(qp, transition->to, false);
    }
    return error;
}

int vb_qp_modify(struct vb_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    const struct vb_transition *transition;
    int error = -EINVAL;

    pthread_mutex_lock(&qp->ibv.mutex);
    transition = find(qp, attr, mask);
    if (transition && values_fit(attr, mask)) {
        keep_path(qp, attr, mask);
        keep_requester(qp, attr, mask);
        share_responder(qp, attr, mask);
        error = enter(qp, transition, attr, mask);
        vb_qp_kick(qp);
    }
    pthread_mutex_unlock(&qp->ibv.mutex);
    return error;
}

static void describe(struct vb_qp *qp, struct ibv_qp_init_attr *init)
{
    *init = (struct ibv_qp_init_attr){
        .qp_context = qp->ibv.qp_context,
        .send_cq = qp->ibv.send_cq,
        .recv_cq = qp->ibv.recv_cq,
        .srq = qp->ibv.srq,
        .cap = qp->cap,
        .qp_type = qp->ibv.qp_type,
        .sq_sig_all = qp->sq_sig_all,
    };
}

int vb_qp_query(struct vb_qp *qp, struct ibv_qp_attr *attr, int mask,
                struct ibv_qp_init_attr *init_attr)
{
    (void)mask; /* every attribute is at hand: all are filled */
    pthread_mutex_lock(&qp->ibv.mutex);
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = qp->ibv.state = vb_qp_state(qp);
    attr->qp_access_flags = qp->shared->access;
    attr->qkey = qp->shared->qkey;
    attr->dest_qp_num = qp->shared->dest_qp_num;
    attr->min_rnr_timer = (uint8_t)qp->shared->min_rnr_timer;
    attr->max_dest_rd_atomic = (uint8_t)qp->shared->max_dest_rd_atomic;
    attr->cap = qp->cap;
    attr->sq_draining = attr->qp_state == IBV_QPS_SQD && qp->wait.reason != VB_WAIT_NONE;
    if (init_attr)
        describe(qp, init_attr);
    pthread_mutex_unlock(&qp->ibv.mutex);
    return 0;
}
