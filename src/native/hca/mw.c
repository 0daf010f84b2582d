// SPDX-License-Identifier: Apache-2.0
/*
 * Memory windows: allocating them, and binding and invalidating them by requests. The send queue
 * carries out the requests under the queue pair's sq_lock; the lock BINDING protects the list of
 * windows and what each is bound to.
 */
#include "hca/mw.h"

#include <errno.h>
#include <stdlib.h>

#include "hca/gone.h"
#include "hca/qp.h"
#include "hca/refusal.h"
#include "hca/xrc.h"

enum {
    WINDOW_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
        IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_FLUSH_GLOBAL,
    /* Access that needs a region with LOCAL_WRITE (IBA 10.6.7.2.2). */
    WRITES = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
};

/* ---- windows ---- */

static void link_window(struct vb_adapter *adapter, struct vb_mw *mw)
{
    vb_lock_take(&adapter->binding);
    mw->next = adapter->windows;
    mw->link = &adapter->windows;
    if (mw->next)
        mw->next->link = &mw->next;
    adapter->windows = mw;
    vb_lock_release(&adapter->binding);
}

static void unlink_window(struct vb_adapter *adapter, struct vb_mw *mw)
{
    vb_lock_take(&adapter->binding);
    *mw->link = mw->next;
    if (mw->next)
        mw->next->link = mw->link;
    vb_lock_release(&adapter->binding);
}

static void mw_release(struct vb_object *object)
{
    vb_mw_dealloc((struct vb_mw *)((char *)object - offsetof(struct vb_mw, object)));
}

static void mw_fill_abi(struct vb_mw *mw, enum ibv_mw_type type, uint32_t key)
{
    mw->ibv.context = mw->pd->context->ibv;
    mw->ibv.pd = &mw->pd->ibv;
    mw->ibv.rkey = key;
    mw->ibv.handle = mw->index;
    mw->ibv.type = type;
}

int vb_mw_alloc(struct vb_pd *pd, enum ibv_mw_type type, struct vb_mw **mw)
{
    struct vb_adapter *adapter = pd->context->adapter;
    struct vb_mr_shared *entry;
    struct vb_mw *made;
    uint32_t key;
    int error;

    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
        return -EINVAL;
    made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    error = vb_mr_take_key(adapter, &made->index, &key);
    if (error) {
        free(made);
        return error;
    }
    entry = &adapter->self.mr[made->index];
    entry->pd = pd->number | VB_PD_WINDOW;
    entry->access = type == IBV_MW_TYPE_2 ? VB_ACCESS_TYPE_2 : 0;
    entry->qp = entry->region = 0;
    made->pd = pd;
    mw_fill_abi(made, type, key);
    vb_pd_use(pd);
    link_window(adapter, made);
    vb_object_add(pd->context, &made->object, mw_release);
    *mw = made;
    return 0;
}

int vb_mw_dealloc(struct vb_mw *mw)
{
    struct vb_adapter *adapter = mw->pd->context->adapter;
    struct vb_mr_shared *entry = &adapter->self.mr[mw->index];

    unlink_window(adapter, mw);
    vb_lock_take(&adapter->binding);
    entry->pd = 0; /* a request that still waits to bind it fails */
    atomic_store(&entry->key, 0);
    vb_lock_release(&adapter->binding);
    vb_mr_settle(adapter);
    vb_object_remove(mw->pd->context, &mw->object);
    vb_pd_drop(mw->pd);
    vb_mr_return_key(adapter, mw->index);
    vb_object_free(&mw->object, mw);
    return 0;
}

/* A window of type 2 is bound only until its QP is reset. */
static bool is_bound(const struct vb_view *view, const struct vb_mr_shared *entry)
{
    if (!atomic_load(&entry->key))
        return false;
    return !entry->qp || vb_view_qp(view, entry->qp - 1)->epoch == entry->epoch;
}

bool vb_mw_covers(const struct vb_adapter *adapter, uint32_t region)
{
    for (const struct vb_mw *mw = adapter->windows; mw; mw = mw->next) {
        const struct vb_mr_shared *entry = &adapter->self.mr[mw->index];

        if (entry->region == region && is_bound(&adapter->self, entry))
            return true;
    }
    return false;
}

/* ---- posting ---- */

static void fill_bind(const struct ibv_mw_bind_info *info, uint32_t rkey, struct ibv_send_wr *wr)
{
    wr->num_sge = 0;
    wr->sg_list = NULL;
    wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
    wr->wr.rdma.rkey = info->mr ? info->mr->lkey : 0; /* 0 names no region */
    wr->bind_mw.mw = NULL;
    wr->bind_mw.rkey = rkey;
    wr->bind_mw.bind_info = *info;
    wr->bind_mw.bind_info.mr = NULL;
}

/* An XRC target has no send queue. */
static bool takes_bindings(const struct vb_qp *qp)
{
    return vb_qp_connected_type(qp->type) && !vb_xrc_is_target(qp);
}

int vb_mw_prepare(const struct vb_qp *qp, const struct ibv_send_wr *wr,
                  struct ibv_send_wr *prepared)
{
    const struct vb_mw *mw = (const struct vb_mw *)wr->bind_mw.mw;
    const struct vb_mr_shared *table = qp->context->adapter->self.mr;

    if (!takes_bindings(qp))
        return -EINVAL;
    *prepared = *wr;
    if (wr->opcode == IBV_WR_LOCAL_INV) {
        prepared->num_sge = 0;
        prepared->send_flags &= ~(unsigned)IBV_SEND_INLINE;
        return 0;
    }
    if (!mw || mw->ibv.type != IBV_MW_TYPE_2 ||
        !vb_mr_is_named(&table[mw->index], wr->bind_mw.rkey))
        return -EINVAL;
    fill_bind(&wr->bind_mw.bind_info, wr->bind_mw.rkey, prepared);
    return 0;
}

static int check_type_1(const struct vb_qp *qp, const struct ibv_mw_bind_info *info)
{
    if (!takes_bindings(qp) || (info->mw_access_flags & IBV_ACCESS_ZERO_BASED))
        return -EINVAL;
    return !info->mr && (info->addr || info->length) ? -EINVAL : 0;
}

/* Voids earlier bindings of the window that are still in a send queue. */
static uint32_t supersede(struct vb_adapter *adapter, struct vb_mr_shared *entry, uint32_t index)
{
    uint32_t key, before;

    vb_lock_take(&adapter->binding);
    key = vb_mr_next_key(adapter, index);
    before = atomic_exchange(&entry->key, 0);
    vb_lock_release(&adapter->binding);
    if (before)
        vb_mr_settle(adapter);
    return key;
}

int vb_mw_bind(struct vb_qp *qp, struct vb_mw *mw, const struct ibv_mw_bind *bind)
{
    struct vb_adapter *adapter = mw->pd->context->adapter;
    struct ibv_send_wr wr = {
        .wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = bind->send_flags};
    int error = mw->ibv.type == IBV_MW_TYPE_1 ? check_type_1(qp, &bind->bind_info) : -EINVAL;
    uint32_t key;

    if (!error)
        error = vb_post_check(qp); /* before the present binding is touched */
    if (error)
        return error;
    key = supersede(adapter, &adapter->self.mr[mw->index], mw->index);
    fill_bind(&bind->bind_info, key, &wr);
    error = vb_post_prepared(qp, &wr);
    if (!error)
        mw->ibv.rkey = key;
    return error;
}

/* ---- binding ---- */

static enum vb_bind_problem check_region(const struct ibv_mw_bind_info *info,
                                         const struct vb_mr_shared *region, uint32_t lkey,
                                         uint32_t pd)
{
    unsigned access = info->mw_access_flags;

    if (!lkey || atomic_load(&region->key) != lkey || (region->pd & ~VB_PD_GONE) != pd)
        return VB_BIND_NO_REGION;
    if (!(region->access & IBV_ACCESS_MW_BIND) || (region->access & IBV_ACCESS_ZERO_BASED))
        return VB_BIND_REGION_FORBIDS;
    if ((access & ~(unsigned)WINDOW_ACCESS) ||
        ((access & WRITES) && !(region->access & IBV_ACCESS_LOCAL_WRITE)))
        return VB_BIND_ACCESS;
    if (info->addr < region->iova || info->length > region->length ||
        info->addr - region->iova > region->length - info->length)
        return VB_BIND_RANGE;
    return VB_BIND_OK;
}

static enum vb_bind_problem check_window(const struct vb_qp *qp, const struct ibv_send_wr *wr,
                                         const struct vb_mr_shared *window)
{
    if (window->pd != (qp->pd->number | VB_PD_WINDOW))
        return VB_BIND_NO_WINDOW;
    if (!(window->access & VB_ACCESS_TYPE_2))
        return VB_BIND_OK;
    if (is_bound(&qp->context->adapter->self, window))
        return VB_BIND_NOT_FREE;
    return wr->bind_mw.bind_info.length ? VB_BIND_OK : VB_BIND_EMPTY;
}

static void mw_describe(const struct vb_qp *qp, const struct ibv_mw_bind_info *info,
                        const struct vb_mr_shared *region, uint32_t index,
                        struct vb_mr_shared *window)
{
    uint64_t into = info->addr - region->iova;
    uint32_t type = window->access & VB_ACCESS_TYPE_2;

    window->iova = info->mw_access_flags & IBV_ACCESS_ZERO_BASED ? 0 : info->addr;
    window->length = info->length;
    window->addr = region->addr + into;
    window->in_heap = region->in_heap;
    window->heap_offset = region->in_heap ? region->heap_offset + into : 0;
    window->access = info->mw_access_flags | type | (region->access & VB_ACCESS_MIXED);
    window->qp = type ? qp->index + 1 : 0;
    window->epoch = qp->shared->epoch;
    window->region = index;
}

/* Under adapter->binding. */
static enum vb_bind_problem bind_checked(struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    const struct vb_view *self = &qp->context->adapter->self;
    const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
    struct vb_mr_shared *window = vb_mr_entry(self, wr->bind_mw.rkey);
    const struct vb_mr_shared *region = vb_mr_entry(self, wr->wr.rdma.rkey);
    enum vb_bind_problem problem = check_window(qp, wr, window);

    if (problem || !info->length) /* type 1 without a length: not bound any more */
        return problem;
    problem = check_region(info, region, wr->wr.rdma.rkey, qp->pd->number);
    if (problem)
        return problem;
    if (!(window->access & VB_ACCESS_TYPE_2) && window->last_key != wr->bind_mw.rkey)
        return VB_BIND_OK;         /* a later binding was posted, which replaces this one */
    atomic_store(&window->key, 0); /* it may be bound through a QP that was reset since */
    mw_describe(qp, info, region, (uint32_t)(region - self->mr), window);
    window->last_key = wr->bind_mw.rkey;
    atomic_store_explicit(&window->key, wr->bind_mw.rkey, memory_order_release);
    return VB_BIND_OK;
}

static int bind(struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_outcome *outcome)
{
    struct vb_adapter *adapter = qp->context->adapter;
    struct vb_evidence evidence = {
        .check = VB_CHECK_BIND,
        .key = wr->wr.rdma.rkey,
        .addr = wr->bind_mw.bind_info.addr,
        .length = wr->bind_mw.bind_info.length,
        .wanted = wr->bind_mw.bind_info.mw_access_flags,
    };

    vb_lock_take(&adapter->binding);
    evidence.count = bind_checked(qp, wr);
    vb_lock_release(&adapter->binding);
    return evidence.count ? vb_refuse(qp, wr, IBV_WC_MW_BIND_ERR, &evidence, outcome) : 0;
}

/* ---- invalidating ---- */

enum vb_check vb_window_check(const struct vb_view *view, uint32_t pd, uint32_t qp, uint32_t key,
                              uint64_t iova, uint64_t length, uint32_t need,
                              const struct vb_mr_shared **entry)
{
    enum vb_check check = vb_mr_check(view, pd | VB_PD_WINDOW, key, iova, length, need, entry);
    const struct vb_mr_shared *window = *entry, *region;

    if (check)
        return check;
    if (window->qp && (window->qp != qp + 1 || window->epoch != view->qp[qp].epoch))
        return VB_CHECK_WINDOW_QP;
    region = &view->mr[window->region & view->mr_last];
    return VB_LIKELY(!(atomic_load_explicit(&region->pd, memory_order_acquire) & VB_PD_GONE))
               ? VB_CHECK_OK
               : vb_gone_check(view, region, window->addr + (iova - window->iova), length);
}

enum vb_check vb_mw_invalidate(const struct vb_view *view, uint32_t pd, uint32_t qp, uint32_t rkey)
{
    struct vb_mr_shared *window = vb_mr_entry(view, rkey);
    const struct vb_mr_shared *entry;
    enum vb_check check = vb_window_check(view, pd, qp, rkey, window->iova, 0, 0, &entry);
    uint32_t expected = rkey;

    if (check == VB_CHECK_WINDOW_QP)
        return check;
    if (check || !(window->access & VB_ACCESS_TYPE_2) ||
        !atomic_compare_exchange_strong(&window->key, &expected, 0))
        return VB_CHECK_INVALIDATE;
    return VB_CHECK_OK;
}

static int refuse_invalidate(struct vb_qp *qp, const struct ibv_send_wr *wr, enum vb_check check,
                             struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {.check = (uint16_t)check, .key = wr->invalidate_rkey};

    return vb_refuse(qp, wr, IBV_WC_LOC_QP_OP_ERR, &evidence, outcome);
}

static int mw_invalidate(struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_outcome *outcome)
{
    const struct vb_carrier *carrier = vb_qp_carrier(qp);
    enum vb_check check;

    if (!qp->settling) {
        check = vb_mw_invalidate(&qp->context->adapter->self, qp->pd->number, qp->index,
                                 wr->invalidate_rkey);
        if (check)
            return refuse_invalidate(qp, wr, check, outcome);
        qp->settling = true;
    }
    if (carrier->settle_peer && !carrier->settle_peer(qp)) { /* no other peer could use it */
        qp->wait.reason = VB_WAIT_PEER;
        return -EAGAIN;
    }
    qp->settling = false;
    return 0;
}

int vb_mw_execute(struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_outcome *outcome)
{
    return wr->opcode == IBV_WR_BIND_MW ? bind(qp, wr, outcome) : mw_invalidate(qp, wr, outcome);
}
