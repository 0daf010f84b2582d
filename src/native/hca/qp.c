// SPDX-License-Identifier: Apache-2.0
/*
 * Queue pairs: creating and destroying them, the table that leads to them, their events. Verbs call
 * it, and xrc.c for target queue pairs. A queue pair is in the adapter's table only while it is
 * whole; the locks LIFETIME and ADAPTER guard the table.
 */
#include "hca/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/ah.h"
#include "hca/event.h"
#include "hca/multicast.h"
#include "hca/refusal.h"
#include "hca/xrc.h"
#include "memory/heap.h"

void vb_qp_raise(struct vb_qp *qp, enum ibv_event_type type)
{
    if (VB_UNLIKELY(qp->target != NULL))
        vb_xrc_raise(qp, type);
    else if (qp->verbs)
        vb_event_raise(qp->context, type, &qp->verbs->ibv);
}

/* The events that peers may leave for a QP; a bit for any other event is ignored. */
enum {
    OF_PEERS = 1u << IBV_EVENT_QP_FATAL | 1u << IBV_EVENT_QP_REQ_ERR |
        1u << IBV_EVENT_QP_ACCESS_ERR | 1u << IBV_EVENT_COMM_EST,
};

uint32_t vb_qp_raise_notices(struct vb_qp *qp)
{
    uint32_t bits = atomic_exchange(&qp->shared->notices, 0) & OF_PEERS;

    for (unsigned type = 0; type < 32; ++type)
        if (bits >> type & 1)
            vb_qp_raise(qp, type);
    return bits;
}

static bool blocks_self(const struct ibv_qp_init_attr_ex *attr)
{
    return (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) &&
           (attr->create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
}

static int check_caps(struct vb_context *context, const struct ibv_qp_cap *cap)
{
    const struct {
        const char *name;
        uint32_t wanted, most;
    } caps[] = {
        {"max_send_wr", cap->max_send_wr, VB_MAX_WR},
        {"max_recv_wr", cap->max_recv_wr, VB_MAX_WR},
        {"max_send_sge", cap->max_send_sge, VB_MAX_SGE},
        {"max_recv_sge", cap->max_recv_sge, VB_MAX_SGE},
        {"max_inline_data", cap->max_inline_data, VB_MAX_INLINE},
    };

    for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); ++i)
        if (caps[i].wanted > caps[i].most)
            return vb_decline(context, -EINVAL,
                              "{0n} is {1} and this device has at most {2}: ask for less "
                              "(query_device reports the limits)",
                              VB_NAME(caps[i].name), caps[i].wanted, caps[i].most);
    return 0;
}

static int check_init(struct vb_context *context, const struct ibv_qp_init_attr_ex *attr)
{
    switch (attr->qp_type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
        if (!attr->send_cq || !attr->recv_cq || !attr->pd)
            return vb_decline(context, -EINVAL,
                              "a QP needs a protection domain, a send CQ and a receive CQ");
        break;
    case IBV_QPT_XRC_SEND:
        if (!attr->send_cq || !attr->pd)
            return vb_decline(context, -EINVAL,
                              "an XRC initiator needs a protection domain and a send CQ");
        break;
    case IBV_QPT_XRC_RECV:
        if (!attr->xrcd)
            return vb_decline(context, -EINVAL, "an XRC target needs an XRC domain");
        return 0;
    default:
        return vb_decline(context, -EOPNOTSUPP, "QPs of type {0} ({0t}) are not offered",
                          attr->qp_type);
    }
    if (blocks_self(attr) && attr->qp_type != IBV_QPT_UD)
        return vb_decline(context, -EINVAL,
                          "IBV_QP_CREATE_BLOCK_SELF_MCAST_LB is for UD QPs: others are in no "
                          "multicast group");
    return check_caps(context, &attr->cap);
}

static bool is_here(const struct vb_context *context, const struct ibv_qp_init_attr_ex *attr)
{
    const struct vb_cq *send = (struct vb_cq *)attr->send_cq, *recv = (struct vb_cq *)attr->recv_cq;
    const struct vb_pd *pd = (struct vb_pd *)attr->pd;
    const struct vb_srq *srq = (struct vb_srq *)attr->srq;
    const struct vb_xrcd *xrcd = (struct vb_xrcd *)attr->xrcd;

    if (attr->qp_type == IBV_QPT_XRC_RECV)
        return xrcd->context == context;
    return pd->context == context && send->context == context &&
           (!recv || recv->context == context) && (!srq || srq->context == context);
}

/* The kernel knows the handles of one context by that context alone. */
static int check_objects(struct vb_context *context, const struct ibv_qp_init_attr_ex *attr)
{
    const struct vb_srq *srq = (struct vb_srq *)attr->srq;

    if (!is_here(context, attr))
        return vb_decline(context, -EINVAL,
                          "a QP and what it is made with are of one context, and here is some "
                          "object of another one (ibv_open_device, ibv_import_device)");
    if (attr->qp_type != IBV_QPT_XRC_RECV && srq && srq->xrcd)
        return vb_decline(context, -EINVAL,
                          "the SRQ is an XRC SRQ, which requests name: a QP of type {0t} receives "
                          "from a basic one",
                          attr->qp_type);
    return 0;
}

/* Allocates the elements, addresses and inline data of the send queue's entries in one block. */
static int alloc_send_queue(struct vb_qp *qp)
{
    size_t count = (size_t)qp->sq_mask + 1;
    size_t sges = qp->cap.max_send_sge ? qp->cap.max_send_sge : 1;
    size_t address = qp->type == IBV_QPT_UD ? sizeof(struct vb_ah) : 0;
    size_t each = sges * sizeof(struct ibv_sge) + address + ((qp->cap.max_inline_data + 7u) & ~7u);
    bool own = false, store_own = false;
    uint8_t *at;

    qp->sq = vb_pd_memory(qp->pd, count * sizeof(*qp->sq), VB_RESOURCE_SEND_QUEUE, &own);
    qp->verbs->sq_store = at =
        vb_pd_memory(qp->pd, count * each, VB_RESOURCE_SEND_QUEUE, &store_own);
    qp->sq_own = own;
    qp->sq_store_own = store_own;
    if (!qp->sq || !at)
        return -ENOMEM;
    for (size_t i = 0; i < count; ++i, at += each) {
        qp->sq[i].sge = (struct ibv_sge *)at;
        qp->sq[i].ah = (struct vb_ah *)(at + sges * sizeof(struct ibv_sge));
        qp->sq[i].inline_data = (uint8_t *)qp->sq[i].ah + address;
    }
    return 0;
}

static int alloc_recv_ring(struct vb_qp *qp)
{
    size_t count = vb_round_up_pow2(qp->cap.max_recv_wr);

    qp->verbs->rq_ring = vb_memory_heap_alloc(
        qp->context->adapter->segment, count << vb_recv_stride_log2(qp->cap.max_recv_sge), VB_LINE);
    return qp->verbs->rq_ring ? 0 : -ENOMEM;
}

void vb_qp_stage(struct vb_qp *qp)
{
    struct vb_heap *segment = qp->context->adapter->segment;

    if (qp->srq || qp->verbs->rq_stage || !qp->cap.max_recv_wr)
        return;
    if (vb_memory_heap_used(segment) >
        vb_memory_heap_size(segment) / 2) /* the rest is for what must be had */
        return;
    qp->verbs->rq_stage = vb_memory_heap_alloc(segment, VB_STAGE_SLOTS * VB_STAGE_BYTES, VB_LINE);
    qp->shared->rq_stage =
        qp->verbs->rq_stage ? vb_memory_heap_offset(segment, qp->verbs->rq_stage) : 0;
}

/*
 * A QP in the table is complete. vb_engine_find reads the table without these locks, under the
 * port's, and a packet may name the number of a QP that is being made: so the store is a release.
 */
static void qp_set_table(struct vb_adapter *adapter, uint32_t index, struct vb_qp *qp)
{
    vb_lock_take(&adapter->lifetime);
    vb_lock_take(&adapter->mutex);
    __atomic_store_n(&adapter->qps[index], qp, __ATOMIC_RELEASE);
    vb_lock_release(&adapter->mutex);
    vb_lock_release(&adapter->lifetime);
}

static void set_caps(struct vb_qp *qp, const struct ibv_qp_cap *wanted)
{
    qp->cap = *wanted;
    qp->cap.max_send_wr = wanted->max_send_wr ? vb_round_up_pow2(wanted->max_send_wr) : 0;
    qp->cap.max_recv_wr = wanted->max_recv_wr ? vb_round_up_pow2(wanted->max_recv_wr) : 0;
    if (wanted->max_inline_data < 64)
        qp->cap.max_inline_data = 64;
    if (!qp->recv_cq || qp->srq)
        qp->cap.max_recv_wr = qp->cap.max_recv_sge = 0;
    qp->sq_mask = vb_round_up_pow2(qp->cap.max_send_wr) - 1;
}

static void qp_share(struct vb_qp *qp)
{
    struct vb_adapter *adapter = qp->context->adapter;
    struct vb_qp_shared *shared = &adapter->self.qp[qp->index];
    uint32_t epoch = shared->epoch + 1;

    memset(shared, 0, sizeof(*shared));
    shared->epoch = epoch;
    shared->qp_num = qp->number;
    shared->type = (uint8_t)qp->type;
    shared->pd = qp->pd ? qp->pd->number : 0;
    shared->recv_cq = (uint16_t)(qp->recv_cq ? qp->recv_cq->index : 0);
    shared->srq = (uint16_t)(qp->srq ? qp->srq->index + 1 : 0);
    shared->rq_mask = vb_round_up_pow2(qp->cap.max_recv_wr) - 1;
    shared->rq_ring = vb_memory_heap_offset(adapter->segment, qp->verbs->rq_ring);
    shared->rq_stride_log2 = (uint8_t)vb_recv_stride_log2(qp->cap.max_recv_sge);
    qp->shared = shared;
    qp->carrier = &vb_uncarried;
    if (adapter->barriers)
        return;
    vb_biased_forbid(&shared->sq_lock, adapter->instance);
    vb_biased_forbid(&qp->verbs->rq_lock, adapter->instance);
}

static void qp_fill_abi(struct vb_qp *qp, const struct ibv_qp_init_attr_ex *attr)
{
    qp->verbs->ibv.context = qp->context->ibv;
    qp->verbs->ibv.qp_context = attr->qp_context;
    qp->verbs->ibv.pd = attr->pd;
    qp->verbs->ibv.send_cq = attr->send_cq;
    qp->verbs->ibv.recv_cq = attr->recv_cq;
    qp->verbs->ibv.srq = attr->srq;
    qp->verbs->ibv.handle = qp->index;
    qp->verbs->ibv.state = IBV_QPS_RESET;
    qp->verbs->ibv.qp_type = attr->qp_type;
    pthread_mutex_init(&qp->verbs->ibv.mutex, NULL);
    pthread_cond_init(&qp->verbs->ibv.cond, NULL);
}

static void qp_use(struct vb_qp *qp, int by)
{
    if (qp->target) /* its SRQs, and with them its PD, come and go as they like */
        return;
    if (by > 0)
        vb_pd_use(qp->pd);
    atomic_fetch_add(&qp->send_cq->users, (uint32_t)by);
    if (qp->recv_cq)
        atomic_fetch_add(&qp->recv_cq->users, (uint32_t)by);
    if (qp->srq)
        atomic_fetch_add(&qp->srq->users, (uint32_t)by);
}

static void qp_free_qp(struct vb_qp *qp)
{
    vb_memory_heap_free(qp->context->adapter->segment, qp->verbs->rq_ring);
    vb_memory_heap_free(qp->context->adapter->segment, qp->verbs->rq_stage);
    vb_pd_memory_free(qp->pd, qp->sq, VB_RESOURCE_SEND_QUEUE, qp->sq_own);
    vb_pd_memory_free(qp->pd, qp->verbs->sq_store, VB_RESOURCE_SEND_QUEUE, qp->sq_store_own);
    free(qp->verbs->pace);
    free(qp->verbs->connection);
    vb_object_free(&qp->verbs->object, qp->verbs->staging);
    vb_object_free(&qp->verbs->object, qp->verbs);
}

static void qp_release(struct vb_object *object)
{
    struct vb_verbs_qp *of =
        (struct vb_verbs_qp *)((char *)object - offsetof(struct vb_verbs_qp, object));

    vb_qp_destroy(&of->qp);
}

static struct vb_qp *new_qp(struct vb_context *context, const struct ibv_qp_init_attr_ex *attr)
{
    struct vb_verbs_qp *made = calloc(1, sizeof(*made));
    struct vb_qp *qp;

    if (!made)
        return NULL;
    qp = &made->qp;
    qp->verbs = made;
    qp->context = context;
    qp->type = attr->qp_type;
    qp->pd = (struct vb_pd *)attr->pd;
    qp->send_cq = (struct vb_cq *)attr->send_cq;
    qp->recv_cq = (struct vb_cq *)attr->recv_cq;
    qp->srq = (struct vb_srq *)attr->srq;
    qp->sq_sig_all = attr->sq_sig_all != 0;
    qp->blocks_self = blocks_self(attr);
    qp_fill_abi(qp, attr);
    set_caps(qp, &attr->cap);
    return qp;
}

int vb_qp_make(struct vb_context *context, const struct ibv_qp_init_attr_ex *attr,
               struct vb_xrc_target *target, struct vb_qp **qp)
{
    struct vb_adapter *adapter = context->adapter;
    struct vb_qp *made = new_qp(context, attr);
    int error;

    if (!made)
        return -ENOMEM;
    made->target = target;
    error = alloc_send_queue(made);
    if (!error)
        error = alloc_recv_ring(made);
    if (!error)
        error = vb_adapter_take_number(adapter, &adapter->qp_pool, &made->index, &made->number);
    if (error) {
        qp_free_qp(made);
        return error;
    }
    made->verbs->ibv.qp_num = made->number;
    qp_share(made);
    qp_use(made, 1);
    qp_set_table(adapter, made->index, made);
    *qp = made;
    return 0;
}

int vb_qp_create(struct vb_context *context, struct ibv_qp_init_attr_ex *attr, struct vb_qp **qp)
{
    struct ibv_qp_init_attr_ex wanted = *attr;
    int error = check_init(context, attr);

    if (attr->qp_type == IBV_QPT_XRC_SEND) { /* it receives nothing, whatever is asked */
        wanted.recv_cq = NULL;
        wanted.srq = NULL;
    }
    if (!error)
        error = check_objects(context, &wanted);
    if (error)
        return error;
    if (attr->qp_type == IBV_QPT_XRC_RECV)
        error = vb_xrc_create_qp(context, attr, qp);
    else
        error = vb_qp_make(context, &wanted, NULL, qp);
    if (error)
        return error;
    if (!(*qp)->verbs->real)
        vb_object_add(context, &(*qp)->verbs->object, qp_release);
    attr->cap = (*qp)->cap;
    return 0;
}

void vb_qp_set_live(struct vb_qp *qp, bool live)
{
    struct vb_adapter *adapter = qp->context->adapter;
    uint64_t bit = 1ull << qp->index % 64, *word = &adapter->live[qp->index / 64];

    vb_lock_take(&adapter->lifetime);
    vb_lock_take(&adapter->mutex);
    *word = live ? *word | bit : *word & ~bit;
    vb_lock_release(&adapter->mutex);
    vb_lock_release(&adapter->lifetime);
}

struct vb_qp *vb_qp_next_live(const struct vb_adapter *adapter, uint32_t index)
{
    while (index < adapter->qp_pool.next) {
        uint64_t word = adapter->live[index / 64] >> index % 64;

        if (word)
            return adapter->qps[index + (uint32_t)__builtin_ctzll(word)];
        index = (index / 64 + 1) * 64;
    }
    return NULL;
}

void vb_qp_send_posted(struct vb_qp *qp)
{
    const struct vb_carrier *carrier = vb_qp_carrier(qp);

    if (carrier->send_posted && vb_qp_state(qp) == IBV_QPS_RTS)
        carrier->send_posted(qp);
}

/* Returns when no thread or peer can find the QP any more and all that had found it have finished.
 */
static void qp_withdraw(struct vb_qp *qp)
{
    struct vb_adapter *adapter = qp->context->adapter;

    vb_qp_send_posted(qp);
    vb_sq_lock(qp);
    atomic_store(&qp->shared->state, IBV_QPS_RESET);
    vb_qp_show_state(qp);
    if (qp->counted_waiting)
        atomic_fetch_sub(&qp->send_cq->waiting, 1);
    qp->counted_waiting = false;
    qp->wait.reason = VB_WAIT_NONE;
    qp->settling = qp->drain_event = false;
    vb_sq_unlock(qp);
    vb_barrier_everywhere();
    vb_qp_carrier(qp)->settle(qp);
    if (qp->srq || qp->target)
        vb_rq_put_back(qp);
    vb_lock_take(&adapter->lifetime);
    adapter->calls->disconnect(qp);
    vb_lock_release(&adapter->lifetime);
    if (!qp->target) { /* completions of an XRC target QP belong to its SRQs */
        vb_cq_forget(qp->send_cq, qp->index);
        if (qp->recv_cq && qp->recv_cq != qp->send_cq)
            vb_cq_forget(qp->recv_cq, qp->index);
    }
    vb_qp_set_live(qp, false);
}

/* Parts an XRC target QP from its SRQ, so that it is as after its creation. */
static void qp_leave_srq(struct vb_qp *qp)
{
    qp->srq = NULL;
    qp->pd = NULL;
    qp->recv_cq = NULL;
    qp->shared->srq = 0;
}

void vb_qp_reset(struct vb_qp *qp)
{
    struct vb_qp_shared *shared = qp->shared;

    qp_withdraw(qp);
    qp->sq_posted = qp->sq_next = 0;
    atomic_store(&qp->sq_retired, 0);
    qp->rq_posted = qp->rq_flushed = 0;
    qp->rq_draining = false;
    atomic_store(&shared->rq_polled, 0);
    atomic_store(&shared->rq_posted, 0);
    atomic_store(&shared->rq_taken, 0);
    atomic_store(&shared->srq_inflight, 0);
    atomic_store(&shared->notices, 0);
    vb_forget_failure(qp);
    shared->established = 0;
    ++shared->epoch;
    __atomic_store_n(&shared->dest_qp_num, 0, __ATOMIC_RELAXED);
    memset(&qp->verbs->attr, 0, sizeof(qp->verbs->attr));
    memset(&qp->terms, 0, sizeof(qp->terms));
    qp->paced = false;
    if (qp->target)
        qp_leave_srq(qp);
}

void vb_qp_unmake(struct vb_qp *qp)
{
    struct vb_adapter *adapter = qp->context->adapter;
    struct vb_pd *pd = qp->target ? NULL : qp->pd; /* last: its allocator has the send queue */

    qp_withdraw(qp);
    ++qp->shared->epoch; /* unbinds the windows that were bound through it */
    vb_lock_take(&adapter->lifetime);
    vb_lock_take(&adapter->mutex);
    __atomic_store_n(&adapter->qps[qp->index], NULL, __ATOMIC_RELAXED);
    vb_lock_release(&adapter->mutex);
    adapter->calls->disconnect(qp); /* here too, as a late event may have asked for attention */
    vb_lock_release(&adapter->lifetime);
    if (!qp->target) {
        vb_event_retire(qp->context, &qp->verbs->ibv);
        vb_object_remove(qp->context, &qp->verbs->object);
    }
    vb_adapter_return_index(adapter, &adapter->qp_pool, qp->index);
    qp_use(qp, -1);
    pthread_mutex_destroy(&qp->verbs->ibv.mutex);
    pthread_cond_destroy(&qp->verbs->ibv.cond);
    qp_free_qp(qp);
    if (pd)
        vb_pd_drop(pd);
}

int vb_qp_destroy(struct vb_qp *qp)
{
    if (qp->verbs->real)
        return vb_xrc_close_qp(qp);
    if (VB_UNLIKELY(qp->groups != 0)) {
        if (!qp->context->closing)
            return vb_decline(qp->context, -EBUSY,
                              "the QP is still attached to {0} multicast groups: detach it first",
                              qp->groups);
        vb_multicast_detach_all(qp);
    }
    vb_qp_unmake(qp);
    return 0;
}

bool vb_qp_try_flush(struct vb_qp *qp)
{
    bool done = true;

    if (!vb_sq_trylock(qp))
        return false;
    vb_sq_run(qp);
    vb_sq_unlock(qp);
    if (vb_qp_state(qp) == IBV_QPS_ERR && !qp->rq_draining) {
        done = vb_qp_carrier(qp)->quiet(qp);
        if (done)
            vb_rq_flush(qp);
    }
    return done;
}

void vb_qp_count_poller(struct vb_qp *qp, bool polls)
{
    uint32_t change = polls ? 1 : -1u;

    if (atomic_exchange(&qp->verbs->polls_port, polls) == polls)
        return;
    if (qp->send_cq) /* an XRC target QP has neither, and an initiator one of them */
        atomic_fetch_add(&qp->send_cq->waiting, change);
    if (qp->recv_cq && !qp->target)
        atomic_fetch_add(&qp->recv_cq->waiting, change);
}
