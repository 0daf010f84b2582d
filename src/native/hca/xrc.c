// SPDX-License-Identifier: Apache-2.0
/*
 * XRC: domains, target queue pairs with their handles, and the shared receive queues that a request
 * names. Requests of other processes reach an SRQ through its proxy, an internal target queue pair.
 * An XRC SRQ exists while the lock XRC is held.
 */
#include "hca/xrc.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "hca/decline.h"
#include "hca/event.h"

/* ---- domains ---- */

static void xrcd_release(struct vb_object *object)
{
    struct vb_xrcd *xrcd = (struct vb_xrcd *)((char *)object - offsetof(struct vb_xrcd, object));

    atomic_store(&xrcd->users, 0);
    vb_xrcd_close(xrcd);
}

int vb_xrcd_open(struct vb_context *context, uint64_t domain, int fd, struct vb_xrcd **xrcd)
{
    struct vb_xrcd *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    made->ibv.context = context->ibv;
    made->context = context;
    made->domain = domain;
    made->fd = fd;
    vb_object_add(context, &made->object, xrcd_release);
    *xrcd = made;
    return 0;
}

int vb_xrcd_close(struct vb_xrcd *xrcd)
{
    if (atomic_load(&xrcd->users))
        return vb_decline(xrcd->context, -EBUSY,
                          "{0} SRQs and QPs still use the XRC domain: destroy them first",
                          atomic_load(&xrcd->users));
    vb_object_remove(xrcd->context, &xrcd->object);
    if (xrcd->fd >= 0)
        close(xrcd->fd);
    vb_object_free(&xrcd->object, xrcd);
    return 0;
}

/* ---- which SRQ a request is for ---- */

/* Finds an XRC SRQ by its number, whose low 12 bits are its index in a block of the table. */
static const struct vb_srq_shared *xrc_find(const struct vb_view *view, uint32_t srq_num)
{
    for (uint32_t i = srq_num % VB_QPS_PER_SLOT; srq_num && i < VB_MAX_SRQ; i += VB_QPS_PER_SLOT)
        if (atomic_load(&view->srq[i].srq_num) == srq_num)
            return &view->srq[i];
    return NULL;
}

/* Has the target QP taken a receive request of an SRQ that still exists? */
static bool has_in_hand(const struct vb_view *view, const struct vb_qp_shared *target)
{
    return target->srq && atomic_load(&target->srq_inflight) &&
           atomic_load(&vb_view_srq(view, target->srq - 1)->life) == target->srq_life;
}

enum vb_check vb_xrc_point(const struct vb_view *view, struct vb_qp_shared *target,
                           uint32_t srq_num)
{
    const struct vb_srq_shared *srq = xrc_find(view, srq_num);
    uint32_t index, life;

    if (!srq)
        return VB_CHECK_XRC_SRQ;
    if (srq->xrcd != target->xrcd)
        return VB_CHECK_XRC_DOMAIN;
    index = (uint32_t)(srq - view->srq);
    life = atomic_load(&srq->life);
    if (target->srq == index + 1 && target->srq_life == life)
        return VB_CHECK_OK;
    if (has_in_hand(view, target))
        return VB_CHECK_XRC_BUSY;
    atomic_store(&target->srq_inflight, 0);
    target->srq = (uint16_t)(index + 1);
    target->srq_life = life;
    target->pd = srq->pd;
    target->recv_cq = (uint16_t)srq->recv_cq;
    return VB_CHECK_OK;
}

void vb_xrc_note(struct vb_evidence *evidence, enum vb_check check, uint32_t srq_num)
{
    *evidence = (struct vb_evidence){.check = (uint16_t)check, .count = srq_num};
}

void vb_xrc_follow(struct vb_qp *qp)
{
    struct vb_adapter *adapter = qp->context->adapter;
    uint32_t entry = qp->shared->srq;
    struct vb_srq *srq = NULL;

    if (entry && atomic_load(&vb_view_srq(&adapter->self, entry - 1)->life) == qp->shared->srq_life)
        srq = __atomic_load_n(&adapter->srqs[(entry - 1) % VB_MAX_SRQ], __ATOMIC_ACQUIRE);
    if (srq && !srq->cq) /* an SRQ of another kind: the entry is not what a requester wrote */
        srq = NULL;
    qp->srq = srq;
    qp->recv_cq = srq ? srq->cq : NULL;
    qp->pd = srq ? srq->pd : NULL;
}

/* Lets polls of the SRQ's CQ make progress for packets. */
static void count_poller(struct vb_srq *srq)
{
    if (!atomic_load(&srq->polls_port) && !atomic_exchange(&srq->polls_port, true))
        atomic_fetch_add(&srq->cq->waiting, 1);
}

enum vb_check vb_xrc_adopt(struct vb_qp *qp, uint32_t srq_num)
{
    enum vb_check check = vb_xrc_point(&qp->context->adapter->self, qp->shared, srq_num);

    if (VB_UNLIKELY(check))
        return check;
    vb_xrc_follow(qp); /* vb_xrc_withdraw_srq waits for the engine's lock */
    if (VB_UNLIKELY(!qp->srq))
        return VB_CHECK_XRC_SRQ;
    count_poller(qp->srq);
    return VB_CHECK_OK;
}

/* ---- target QPs, and those that are proxies ---- */

static struct vb_xrc_target *new_target(struct vb_adapter *adapter)
{
    struct vb_xrc_target *made = calloc(1, sizeof(*made));

    if (!made)
        return NULL;
    made->home.adapter = adapter;
    vb_lock_init(&made->mutex, VB_RANK_XRC_TARGET);
    vb_lock_init(&made->home.declines.mutex, VB_RANK_DECLINES);
    return made;
}

static void free_target(struct vb_xrc_target *target)
{
    vb_lock_destroy(&target->home.declines.mutex);
    vb_lock_destroy(&target->mutex);
    free(target);
}

static int make_real(struct vb_adapter *adapter, const struct vb_xrcd *xrcd, struct vb_qp **real)
{
    struct ibv_qp_init_attr_ex nothing = {.qp_type = IBV_QPT_XRC_RECV};
    struct vb_xrc_target *target = new_target(adapter);
    int error = target ? 0 : -ENOMEM;

    if (!error)
        error = vb_qp_make(&target->home, &nothing, target, real);
    if (error) {
        if (target)
            free_target(target);
        return error;
    }
    (*real)->shared->xrcd = xrcd->domain;
    return 0;
}

enum vb_check vb_xrc_find_proxy(const struct vb_view *view, uint32_t srq_num, uint64_t domain,
                                struct vb_qp_shared **proxy)
{
    const struct vb_srq_shared *srq = xrc_find(view, srq_num);
    struct vb_qp_shared *found;

    if (!srq || !srq->proxy)
        return VB_CHECK_XRC_SRQ;
    if (srq->xrcd != domain)
        return VB_CHECK_XRC_DOMAIN;
    *proxy = found = vb_view_qp(view, srq->proxy - 1);
    if (atomic_load(&found->state) != IBV_QPS_RTR || found->type != IBV_QPT_XRC_RECV ||
        found->srq != (uint32_t)(srq - view->srq) + 1 || found->srq_life != atomic_load(&srq->life))
        return VB_CHECK_XRC_SRQ; /* it was destroyed just now */
    return VB_CHECK_OK;
}

void vb_xrc_set_proxy(struct vb_qp_shared *proxy, const struct vb_qp_shared *target)
{
    proxy->access = target->access;
    proxy->min_rnr_timer = target->min_rnr_timer;
    proxy->max_dest_rd_atomic = target->max_dest_rd_atomic;
    atomic_store(&proxy->failed, 0);
}

int vb_xrc_open_proxy(struct vb_srq *srq)
{
    struct vb_qp_shared *shared;
    int error = make_real(srq->context->adapter, srq->xrcd, &srq->proxy);

    if (error)
        return error;
    srq->proxy->target->is_proxy = true;
    shared = srq->proxy->shared;
    shared->pd = srq->pd->number;
    shared->recv_cq = srq->cq->index;
    shared->srq = (uint16_t)(srq->index + 1);
    shared->srq_life = atomic_load(&srq->shared->life);
    vb_qp_set_live(srq->proxy, true);
    atomic_store(&shared->state, IBV_QPS_RTR);
    srq->shared->proxy = srq->proxy->index + 1;
    return 0;
}

/* After the SRQ's number was withdrawn, so that no sender finds the proxy any more. */
static void close_proxy(struct vb_srq *srq)
{
    struct vb_xrc_target *target;

    if (!srq->proxy)
        return;
    target = srq->proxy->target;
    vb_qp_unmake(srq->proxy);
    free_target(target);
    srq->proxy = NULL;
}

void vb_xrc_withdraw_srq(struct vb_srq *srq)
{
    struct vb_adapter *adapter = srq->context->adapter;

    atomic_store(&srq->shared->srq_num, 0);
    atomic_fetch_add(&srq->shared->life, 1);
    vb_barrier_everywhere();
    vb_lock_take(&adapter->lifetime);
    for (uint32_t i = 0; i < adapter->qp_pool.next; ++i)
        if (adapter->qps[i] && vb_xrc_is_target(adapter->qps[i]))
            vb_qp_carrier(adapter->qps[i])->settle(adapter->qps[i]);
    vb_lock_release(&adapter->lifetime);
    close_proxy(srq);
    if (atomic_exchange(&srq->polls_port, false))
        atomic_fetch_sub(&srq->cq->waiting, 1);
    vb_cq_forget_srq(srq->cq, srq->index);
    vb_lock_take(&adapter->xrc); /* waits for a QP in ERR that flushes a request of this SRQ */
    vb_lock_release(&adapter->xrc);
}

/* ---- target QPs' handles ---- */

/* Under adapter->mutex. */
static void link_handle(struct vb_qp *real, struct vb_qp *handle)
{
    struct vb_xrc_target *target = real->target;

    vb_lock_take(&target->mutex);
    handle->verbs->next_handle = target->handles;
    target->handles = handle;
    vb_lock_release(&target->mutex);
}

/* Under adapter->mutex. */
static void unlink_handle(struct vb_qp *real, const struct vb_qp *handle)
{
    struct vb_xrc_target *target = real->target;
    struct vb_qp **link = &target->handles;

    vb_lock_take(&target->mutex);
    while (*link != handle)
        link = &(*link)->verbs->next_handle;
    *link = handle->verbs->next_handle;
    vb_lock_release(&target->mutex);
}

void vb_xrc_raise(struct vb_qp *qp, enum ibv_event_type type)
{
    vb_lock_take(&qp->target->mutex);
    for (struct vb_qp *handle = qp->target->handles; handle; handle = handle->verbs->next_handle)
        vb_event_raise(handle->context, type, &handle->verbs->ibv);
    vb_lock_release(&qp->target->mutex);
}

static void handle_release(struct vb_object *object)
{
    struct vb_verbs_qp *of =
        (struct vb_verbs_qp *)((char *)object - offsetof(struct vb_verbs_qp, object));

    vb_xrc_close_qp(&of->qp);
}

static struct vb_qp *new_handle(struct vb_context *context, void *qp_context, struct vb_xrcd *xrcd)
{
    struct vb_verbs_qp *made = calloc(1, sizeof(*made));

    if (!made)
        return NULL;
    made->qp.verbs = made;
    made->qp.context = context;
    made->qp.carrier = &vb_uncarried;
    made->xrcd = xrcd;
    made->ibv.context = context->ibv;
    made->ibv.qp_context = qp_context;
    made->qp.type = made->ibv.qp_type = IBV_QPT_XRC_RECV;
    pthread_mutex_init(&made->ibv.mutex, NULL);
    pthread_cond_init(&made->ibv.cond, NULL);
    return &made->qp;
}

static void free_handle(struct vb_qp *handle)
{
    pthread_mutex_destroy(&handle->verbs->ibv.mutex);
    pthread_cond_destroy(&handle->verbs->ibv.cond);
    vb_object_free(&handle->verbs->object, handle->verbs);
}

static void attach_handle(struct vb_qp *handle, struct vb_qp *real)
{
    handle->verbs->real = real;
    handle->shared = real->shared; /* read by calls that then refuse a handle */
    handle->index = real->index;
    handle->number = handle->verbs->ibv.qp_num = real->number;
    handle->verbs->ibv.handle = real->index;
    vb_qp_show_state(handle);
    atomic_fetch_add(&handle->verbs->xrcd->users, 1);
    vb_object_add(handle->context, &handle->verbs->object, handle_release);
}

int vb_xrc_create_qp(struct vb_context *context, const struct ibv_qp_init_attr_ex *attr,
                     struct vb_qp **handle)
{
    struct vb_xrcd *xrcd = (struct vb_xrcd *)attr->xrcd;
    struct vb_adapter *adapter = context->adapter;
    struct vb_qp *made = new_handle(context, attr->qp_context, xrcd);
    int error = made ? make_real(adapter, xrcd, &made->verbs->real) : -ENOMEM;

    if (error) {
        if (made)
            free_handle(made);
        return error;
    }
    vb_lock_take(&adapter->mutex);
    link_handle(made->verbs->real, made);
    vb_lock_release(&adapter->mutex);
    attach_handle(made, made->verbs->real);
    *handle = made;
    return 0;
}

/* Finds the QP that a handle is to be opened for. `context` is that of the call. Under
 * adapter->mutex. */
static int find_real(struct vb_context *context, const struct vb_xrcd *xrcd, uint32_t qp_num,
                     struct vb_qp **real)
{
    struct vb_adapter *adapter = context->adapter;
    bool same_slot = false;

    for (uint32_t i = 0; i < adapter->qp_pool.next; ++i) {
        struct vb_qp *qp = adapter->qps[i];

        if (!qp)
            continue;
        same_slot |= qp->number / VB_QPS_PER_SLOT == qp_num / VB_QPS_PER_SLOT;
        if (qp->number != qp_num)
            continue;
        *real = qp;
        if (vb_xrc_is_target(qp) && qp->target->handles && qp->shared->xrcd == xrcd->domain)
            return 0;
        return vb_decline(context, -EINVAL, "QP {0x} is no XRC target of this domain", qp_num);
    }
    if (same_slot)
        return vb_decline(context, -EINVAL, "there is no QP {0x}", qp_num);
    return vb_decline(context, -EOPNOTSUPP,
                      "QP {0x} is another process's, and XRC targets are not shared between "
                      "processes",
                      qp_num);
}

int vb_xrc_open_qp(struct vb_context *context, const struct ibv_qp_open_attr *attr,
                   struct vb_qp **handle)
{
    struct vb_xrcd *xrcd = (struct vb_xrcd *)attr->xrcd;
    struct vb_adapter *adapter = context->adapter;
    struct vb_qp *real = NULL, *made = new_handle(context, attr->qp_context, xrcd);
    int error;

    if (!made)
        return -ENOMEM;
    vb_lock_take(&adapter->mutex);
    error = find_real(context, xrcd, attr->qp_num, &real);
    if (!error)
        link_handle(real, made);
    vb_lock_release(&adapter->mutex);
    if (error) {
        free_handle(made);
        return error;
    }
    attach_handle(made, real);
    *handle = made;
    return 0;
}

int vb_xrc_close_qp(struct vb_qp *handle)
{
    struct vb_adapter *adapter = handle->context->adapter;
    struct vb_qp *real = handle->verbs->real;
    struct vb_xrc_target *target = real->target;
    bool last;

    vb_lock_take(&adapter->mutex);
    unlink_handle(real, handle);
    last = !target->handles;
    vb_lock_release(&adapter->mutex);
    vb_event_retire(handle->context, &handle->verbs->ibv);
    vb_object_remove(handle->context, &handle->verbs->object);
    atomic_fetch_sub(&handle->verbs->xrcd->users, 1);
    if (last) {
        vb_qp_unmake(real);
        free_target(target);
    }
    free_handle(handle);
    return 0;
}
