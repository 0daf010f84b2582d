// SPDX-License-Identifier: Apache-2.0
/*
 * modify_qp and query_qp: the check of each attribute, and what a transition does. Programs call
 * them; the lock QP_MODIFY of the queue pair lets one thread at a time in.
 */
#include <errno.h>
#include <stdlib.h>

#include "hca/ah.h"
#include "hca/qp.h"
#include "hca/qp_states.h"
#include "hca/refusal.h"

static const char path_mtu_wanted[] =
    "{0n} is {1} and must be a code from {2} (MTU_256) to {3} (MTU_4096): MTU_1024 is 3";

/* The RDMA port that the QP will use after the transition. */
static const struct vb_adapter_port *port_after(const struct vb_qp *qp,
                                                const struct ibv_qp_attr *attr, int mask)
{
    return mask & IBV_QP_PORT ? vb_adapter_port(qp->context->adapter, attr->port_num)
                              : vb_qp_port(qp);
}

/* The QP's partition is that of an entry in its port's P_Key table (IBA 10.9.2). */
static int check_partition(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    const struct vb_adapter_port *port = port_after(qp, attr, mask);
    uint32_t index = mask & IBV_QP_PKEY_INDEX ? attr->pkey_index : qp->verbs->attr.pkey_index;

    if (vb_pkey_is_valid(port->pkeys[index]))
        return 0;
    return vb_decline(qp->context, -EINVAL,
                      "pkey_index is {0}, and that entry of port {1}'s P_Key table is empty: "
                      "ibv_query_pkey lists them, and `verbena run --pkeys`, pkeys= in its --port, "
                      "or on a simulated host pkeys of verbena.sim.run sets them",
                      index, port->number);
}

/* The address vector has to name the QP's own port (IBA 11.2.5.2). */
static int check_address(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    uint32_t own = mask & IBV_QP_PORT ? attr->port_num : qp->verbs->attr.port_num;
    int error = vb_ah_check(qp->context, &attr->ah_attr);

    if (error || attr->ah_attr.port_num == own)
        return error;
    return vb_decline(qp->context, -EINVAL,
                      "the address's port_num (ah_attr.port_num) is {0}, and the QP was given port "
                      "{1} in INIT: name the same port",
                      attr->ah_attr.port_num, own);
}

/* Checks the range of each attribute (IBA 11.2.5.2, and the limits of this adapter). */
static int check_values(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    const struct {
        int bit;
        const char *name;
        uint32_t value, least, most;
    } numbers[] = {
        {IBV_QP_PORT, "port_num", attr->port_num, 1, qp->context->adapter->port_count},
        {IBV_QP_PKEY_INDEX, "pkey_index", attr->pkey_index, 0, VB_MAX_PKEYS - 1},
        {IBV_QP_PATH_MTU, "path_mtu", attr->path_mtu, IBV_MTU_256, IBV_MTU_4096},
        {IBV_QP_TIMEOUT, "timeout", attr->timeout, 0, 31},
        {IBV_QP_RETRY_CNT, "retry_cnt", attr->retry_cnt, 0, 7},
        {IBV_QP_RNR_RETRY, "rnr_retry", attr->rnr_retry, 0, 7},
        {IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", attr->min_rnr_timer, 0, 31},
        {IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", attr->max_rd_atomic, 0, VB_MAX_RD_ATOMIC},
        {IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", attr->max_dest_rd_atomic, 0,
         VB_MAX_RD_ATOMIC},
        {IBV_QP_DEST_QPN, "dest_qp_num", attr->dest_qp_num, 0, 0xffffff},
        {IBV_QP_RATE_LIMIT, "rate_limit", attr->rate_limit, 0, VB_RATE_MAX}, /* 0: none */
    };

    int error = 0;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); ++i)
        if ((mask & numbers[i].bit) &&
            (numbers[i].value < numbers[i].least || numbers[i].value > numbers[i].most))
            return vb_decline(
                qp->context, -EINVAL,
                numbers[i].bit == IBV_QP_PATH_MTU     ? path_mtu_wanted
                : numbers[i].least == numbers[i].most ? "{0n} is {1} and must be {2}"
                                                      : "{0n} is {1} and may be {2} to {3}",
                VB_NAME(numbers[i].name), numbers[i].value, numbers[i].least, numbers[i].most);
    if (mask & (IBV_QP_PKEY_INDEX | IBV_QP_PORT))
        error = check_partition(qp, attr, mask);
    return !error && mask & IBV_QP_AV ? check_address(qp, attr, mask) : error;
}

static VB_COLD int decline_mask(struct vb_qp *qp, const struct vb_transition *transition, int mask)
{
    int missing = transition->required & ~mask;
    int allowed = transition->required | transition->optional | IBV_QP_STATE;

    if (missing)
        return vb_decline(qp->context, -EINVAL,
                          "from {1s} to {2s} a QP of type {0t} needs {3m}, which the mask lacks",
                          qp->type, transition->from, transition->to, missing);
    return vb_decline(qp->context, -EINVAL,
                      "from {1s} to {2s} a QP of type {0t} does not take {3m}, which the mask "
                      "has",
                      qp->type, transition->from, transition->to, mask & ~allowed);
}

/* Finds the transition that is asked for; NULL and -errno if there is none. */
static const struct vb_transition *qp_modify_find(struct vb_qp *qp, const struct ibv_qp_attr *attr,
                                                  int mask, int *error)
{
    enum ibv_qp_state now = vb_qp_state(qp);
    enum ibv_qp_state from = mask & IBV_QP_CUR_STATE ? attr->cur_qp_state : now;
    enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
    const struct vb_transition *transition = vb_qp_transition(qp->type, from, to);

    if ((mask & IBV_QP_CUR_STATE) && (from != now || now < IBV_QPS_RTR || now > IBV_QPS_SQE))
        *error = vb_decline(qp->context, -EINVAL,
                            "cur_qp_state is {0s} and the QP is in {1s}: it must be the QP's, and "
                            "RTR, RTS, SQD or SQE",
                            from, now);
    else if (!transition)
        *error =
            vb_decline(qp->context, -EINVAL,
                       "{2s} does not follow {1s} for a QP of type {0t}: the way is RESET, INIT, "
                       "RTR, RTS; every state leads to RESET, and every other than RESET to ERR",
                       qp->type, from, to);
    else if (!vb_qp_mask_fits(transition, mask))
        *error = decline_mask(qp, transition, mask);
    else
        return transition;
    return NULL;
}

static void keep_path(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    struct ibv_qp_attr *kept = &qp->verbs->attr;

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
        kept->rq_psn = qp->terms.rq_psn = attr->rq_psn & 0xffffff;
    if (mask & IBV_QP_SQ_PSN)
        kept->sq_psn = qp->terms.sq_psn = attr->sq_psn & 0xffffff;
}

static void keep_requester(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    struct ibv_qp_attr *kept = &qp->verbs->attr;

    if (mask & IBV_QP_TIMEOUT)
        kept->timeout = qp->terms.timeout = attr->timeout;
    if (mask & IBV_QP_RETRY_CNT)
        kept->retry_cnt = qp->terms.retry_cnt = attr->retry_cnt;
    if (mask & IBV_QP_RNR_RETRY)
        kept->rnr_retry = qp->terms.rnr_retry = attr->rnr_retry;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
        kept->max_rd_atomic = qp->terms.max_rd_atomic = attr->max_rd_atomic;
    if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
        kept->en_sqd_async_notify = attr->en_sqd_async_notify;
}

/* Reads the attributes that peers read from the segment, as they are now. */
static void read_responder(const struct vb_qp *qp, struct ibv_qp_attr *attr)
{
    const struct vb_qp_shared *shared = qp->shared;

    attr->qp_access_flags = shared->access;
    attr->qkey = shared->qkey;
    attr->dest_qp_num = shared->dest_qp_num;
    attr->min_rnr_timer = (uint8_t)shared->min_rnr_timer;
    attr->max_dest_rd_atomic = (uint8_t)shared->max_dest_rd_atomic;
}

/* Allocates the rate limiter with the first limit, since few QPs ever have one. */
static int make_pace(struct vb_qp *qp)
{
    if (!qp->verbs->pace)
        qp->verbs->pace = calloc(1, sizeof(*qp->verbs->pace));
    return qp->verbs->pace ? 0 : -ENOMEM;
}

/* Sets the limit; the time that is still to wait at the old rate is forgotten. */
static void set_rate(struct vb_qp *qp, uint32_t rate, uint32_t burst)
{
    vb_sq_lock(qp);
    qp->verbs->attr.rate_limit = rate;
    *qp->verbs->pace = (struct vb_pace){.rate = rate, .burst = burst};
    qp->paced = rate != 0;
    vb_sq_unlock(qp);
}

/* Writes the attributes that peers read to the segment. */
static void share_responder(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    struct vb_qp_shared *shared = qp->shared;

    if (mask & IBV_QP_ACCESS_FLAGS)
        shared->access = attr->qp_access_flags;
    if (mask & IBV_QP_QKEY)
        shared->qkey = attr->qkey;
    if (mask & IBV_QP_DEST_QPN)
        __atomic_store_n(&shared->dest_qp_num, attr->dest_qp_num, __ATOMIC_RELAXED);
    if (mask & IBV_QP_MIN_RNR_TIMER)
        shared->min_rnr_timer = attr->min_rnr_timer;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
        shared->max_dest_rd_atomic = attr->max_dest_rd_atomic;
}

/* Writes what peers read of the path to the segment. */
static void share_path(struct vb_qp *qp)
{
    const struct vb_adapter_port *port = vb_qp_port(qp);

    qp->shared->port = (uint16_t)(port->number - 1);
    __atomic_store_n(&qp->shared->pkey, port->pkeys[qp->verbs->attr.pkey_index], __ATOMIC_RELAXED);
}

static void set_state(struct vb_qp *qp, enum ibv_qp_state state)
{
    atomic_store(&qp->shared->state, state);
    vb_qp_show_state(qp);
}

/* Changes the state, unless a peer or a request has put the QP in an error state meanwhile. */
static void move_state(struct vb_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to)
{
    uint32_t expected = from;

    atomic_compare_exchange_strong(&qp->shared->state, &expected, to);
    vb_qp_show_state(qp);
}

/* A request whose acknowledgement is here has succeeded, and what the peer sent is acknowledged. */
static void qp_modify_fail(struct vb_qp *qp)
{
    struct vb_adapter *adapter = qp->context->adapter;

    vb_qp_send_posted(qp);
    if (adapter->calls->take_arrived)
        adapter->calls->take_arrived(adapter);
    vb_sq_lock(qp);
    if (vb_qp_state(qp) != IBV_QPS_ERR)
        qp->failed_by_program = true;
    set_state(qp, IBV_QPS_ERR);
    vb_sq_run(qp);
    vb_sq_unlock(qp);
    vb_barrier_everywhere();
    vb_qp_carrier(qp)->settle(qp);
    vb_rq_flush(qp);
}

static void qp_modify_run(struct vb_qp *qp, const struct vb_transition *transition,
                          bool drain_event)
{
    vb_sq_lock(qp);
    if (transition->from == IBV_QPS_SQE)
        vb_forget_failure(qp);
    move_state(qp, transition->from, transition->to);
    qp->drain_event = drain_event;
    vb_sq_run(qp);
    vb_sq_unlock(qp);
}

static int qp_modify_enter(struct vb_qp *qp, const struct vb_transition *transition,
                           const struct ibv_qp_attr *attr, int mask)
{
    int error = 0;

    switch (transition->to) {
    case IBV_QPS_RESET:
        vb_qp_reset(qp);
        break;
    case IBV_QPS_ERR:
        qp_modify_fail(qp);
        break;
    case IBV_QPS_RTR:
        error = qp->context->adapter->calls->connect(qp);
        if (!error) {
            vb_qp_set_live(qp, true);
            set_state(qp, IBV_QPS_RTR);
        }
        break;
    case IBV_QPS_SQD:
        qp_modify_run(qp, transition,
                      transition->from != IBV_QPS_SQD && (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) &&
                          attr->en_sqd_async_notify);
        break;
    default:
        qp_modify_run(qp, transition, false);
    }
    return error;
}

/* SQD to SQD: requests take the new path from now on, if the carrier has paths. */
static int qp_modify_move(struct vb_qp *qp, const struct vb_transition *transition, int mask)
{
    const struct vb_carrier *carrier = vb_qp_carrier(qp);

    if (transition->from != IBV_QPS_SQD || !(mask & IBV_QP_AV) || !carrier->move)
        return 0;
    return carrier->move(qp);
}

/* Carries the transition out; with an error nothing has changed. */
static int modify(struct vb_qp *qp, const struct vb_transition *transition,
                  const struct ibv_qp_attr *attr, int mask)
{
    const struct ibv_qp_attr before = qp->verbs->attr;
    const struct vb_terms terms = qp->terms;
    bool paces = mask & IBV_QP_RATE_LIMIT;
    struct ibv_qp_attr responder;
    int error = paces ? make_pace(qp) : 0;

    if (error)
        return error;
    read_responder(qp, &responder);
    keep_path(qp, attr, mask);
    keep_requester(qp, attr, mask);
    error = qp_modify_move(qp, transition, mask);
    if (!error) {
        share_responder(qp, attr, mask);
        share_path(qp);
        if (paces)
            set_rate(qp, attr->rate_limit, 0);
        error = qp_modify_enter(qp, transition, attr, mask);
    }
    if (error) {
        qp->verbs->attr = before;
        qp->terms = terms;
        share_responder(qp, &responder, mask);
        share_path(qp);
        if (paces)
            set_rate(qp, before.rate_limit, 0);
    }
    return error;
}

int vb_qp_modify(struct vb_qp *of, struct ibv_qp_attr *attr, int mask)
{
    struct vb_qp *qp = of->verbs->real ? of->verbs->real : of;
    const struct vb_transition *transition;
    int error = 0;

    vb_lock_abi_take(&qp->verbs->ibv.mutex, VB_RANK_QP_MODIFY);
    transition = qp_modify_find(qp, attr, mask, &error);
    if (transition)
        error = check_values(qp, attr, mask);
    if (!error) {
        error = modify(qp, transition, attr, mask);
        vb_qp_doorbell(qp);
        if (of !=
            qp) /* the state in the handle; that in the target QP was set with the transition */
            vb_qp_show_state(of);
    }
    vb_lock_abi_release(&qp->verbs->ibv.mutex);
    if (error && of != qp)
        vb_decline_move(qp->context, of->context, error);
    return error;
}

int vb_qp_limit_rate(struct vb_qp *of, const struct ibv_qp_rate_limit_attr *limit)
{
    struct vb_qp *qp = of->verbs->real ? of->verbs->real : of;
    struct ibv_qp_attr attr = {.rate_limit = limit->rate_limit};
    int error;

    if (limit->comp_mask)
        return vb_decline(of->context, -EINVAL, "comp_mask {0x} has bits that no attribute has",
                          limit->comp_mask);
    if (vb_qp_state(qp) != IBV_QPS_RTS)
        return vb_decline(of->context, -EINVAL,
                          "QP {0x} is in {1s}: its rate is limited once it is in RTS", qp->number,
                          vb_qp_state(qp));
    error = vb_qp_modify(of, &attr, IBV_QP_RATE_LIMIT);
    if (!error && limit->max_burst_sz) {
        vb_lock_abi_take(&qp->verbs->ibv.mutex, VB_RANK_QP_MODIFY);
        set_rate(qp, limit->rate_limit, limit->max_burst_sz);
        vb_lock_abi_release(&qp->verbs->ibv.mutex);
    }
    return error;
}

static void qp_modify_describe(struct vb_qp *qp, struct ibv_qp_init_attr *init)
{
    *init = (struct ibv_qp_init_attr){
        .qp_context = qp->verbs->ibv.qp_context,
        .send_cq = qp->verbs->ibv.send_cq,
        .recv_cq = qp->verbs->ibv.recv_cq,
        .srq = qp->verbs->ibv.srq,
        .cap = qp->cap,
        .qp_type = qp->type,
        .sq_sig_all = qp->sq_sig_all,
    };
}

int vb_qp_query(struct vb_qp *of, struct ibv_qp_attr *attr, int mask,
                struct ibv_qp_init_attr *init_attr)
{
    struct vb_qp *qp = of->verbs->real ? of->verbs->real : of;

    (void)mask; /* all attributes are filled, as they cost nothing */
    vb_lock_abi_take(&qp->verbs->ibv.mutex, VB_RANK_QP_MODIFY);
    *attr = qp->verbs->attr;
    attr->qp_state = attr->cur_qp_state = of->verbs->ibv.state = qp->verbs->ibv.state =
        vb_qp_state(qp);
    read_responder(qp, attr);
    attr->cap = of->cap;
    attr->sq_draining = attr->qp_state == IBV_QPS_SQD && qp->wait.reason != VB_WAIT_NONE;
    if (init_attr)
        qp_modify_describe(of, init_attr);
    vb_lock_abi_release(&qp->verbs->ibv.mutex);
    return 0;
}
