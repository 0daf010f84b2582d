// SPDX-License-Identifier: Apache-2.0
/*
 * Shared receive queues: creating, resizing and destroying them, and posting to them. Posters hold
 * the lock SRQ_POST; who takes a request, in this process or a peer, holds the lock SRQ of the
 * segment.
 */
#include "hca/srq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/event.h"
#include "hca/host_calls.h"
#include "hca/lock.h"
#include "hca/users.h"
#include "hca/xrc.h"
#include "memory/heap.h"

uint32_t vb_recv_stride_log2(uint32_t max_sge)
{
    struct vb_recv_wqe *wqe = NULL;
    size_t size = sizeof(*wqe) + (max_sge ? max_sge : 1) * sizeof(wqe->sge[0]);

    return size <= VB_LINE ? 6 : 64 - (uint32_t)__builtin_clzll(size - 1);
}

static inline void write_element(struct vb_recv_wqe *wqe, int i, const struct ibv_sge *sge)
{
    wqe->sge[i].addr = sge->addr;
    wqe->sge[i].length = sge->length;
    wqe->sge[i].lkey = sge->lkey;
}

void vb_recv_write(struct vb_recv_wqe *wqe, const struct ibv_recv_wr *wr, uint64_t checked)
{
    uint64_t length = 0;

    wqe->wr_id = wr->wr_id;
    wqe->num_sge = (uint32_t)wr->num_sge;
    wqe->checked = checked;
    if (VB_LIKELY(wr->num_sge == 1)) {
        write_element(wqe, 0, wr->sg_list);
        wqe->length = wr->sg_list->length;
        return;
    }
    for (int i = 0; i < wr->num_sge; ++i) {
        write_element(wqe, i, &wr->sg_list[i]);
        length += wr->sg_list[i].length;
    }
    wqe->length = length > UINT32_MAX ? UINT32_MAX : (uint32_t)length;
}

static void srq_release(struct vb_object *object)
{
    vb_srq_destroy((struct vb_srq *)((char *)object - offsetof(struct vb_srq, object)));
}

static void free_parts(struct vb_srq *srq)
{
    struct vb_adapter *adapter = srq->context->adapter;

    vb_memory_heap_free(adapter->segment, srq->wqes);
    vb_memory_heap_free(adapter->segment, srq->order);
    for (uint32_t i = 0; i < srq->outgrown_count; ++i)
        vb_memory_heap_free(adapter->segment, srq->outgrown[i]);
    free(srq->free);
    free(srq->position);
    vb_object_free(&srq->object, srq);
}

static int srq_alloc_rings(struct vb_srq *srq, uint32_t count)
{
    struct vb_adapter *adapter = srq->context->adapter;
    uint32_t stride = vb_recv_stride_log2(srq->max_sge);
    uint8_t *wqes = vb_memory_heap_alloc(adapter->segment, (size_t)count << stride, VB_LINE);
    uint32_t *order = vb_memory_heap_alloc(adapter->segment, count * sizeof(uint32_t), VB_LINE);
    struct vb_srq_shared *shared = &adapter->self.srq[srq->index];
    uint32_t life = atomic_load(&shared->life);

    if (!wqes || !order) {
        vb_memory_heap_free(adapter->segment, wqes);
        vb_memory_heap_free(adapter->segment, order);
        return -ENOMEM;
    }
    memset(shared, 0, sizeof(*shared));
    shared->wqes = vb_memory_heap_offset(adapter->segment, wqes);
    shared->order = vb_memory_heap_offset(adapter->segment, order);
    shared->mask = count - 1;
    shared->stride_log2 = stride;
    shared->pd = srq->pd->number;
    atomic_store(&shared->life, life + 1);
    srq->shared = shared;
    srq->wqes = wqes;
    srq->order = order;
    srq->room = count;
    return 0;
}

/* The entry of a request, by the owner's own pointers. */
static struct vb_recv_wqe *own_wqe(const struct vb_srq *srq, uint32_t index)
{
    return (struct vb_recv_wqe *)(void *)(srq->wqes +
                                          ((size_t)index << vb_recv_stride_log2(srq->max_sge)));
}

static int fill_free_list(struct vb_srq *srq, uint32_t count)
{
    srq->free = malloc(count * sizeof(*srq->free));
    srq->position = malloc(count * sizeof(*srq->position));
    if (!srq->free || !srq->position)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; ++i) {
        srq->free[i] = count - 1 - i;
        srq->position[i] = -1;
    }
    srq->free_count = count;
    return 0;
}

static int srq_take_number(struct vb_adapter *adapter, struct vb_srq *srq)
{
    return srq->xrcd
               ? vb_adapter_take_number(adapter, &adapter->srq_pool, &srq->index, &srq->srq_num)
               : vb_adapter_take_index(adapter, &adapter->srq_pool, &srq->index);
}

/* Enters the SRQ in the table, or takes it out. The service thread uses every SRQ in it, so an SRQ
 * is there only while it is whole. */
static void srq_set_table(struct vb_adapter *adapter, uint32_t index, struct vb_srq *srq)
{
    vb_lock_take(&adapter->mutex);
    adapter->srqs[index] = srq;
    vb_lock_release(&adapter->mutex);
}

static void srq_fill_abi(struct vb_srq *srq, void *srq_context)
{
    srq->ibv.context = srq->context->ibv;
    srq->ibv.srq_context = srq_context;
    srq->ibv.pd = &srq->pd->ibv;
    srq->ibv.handle = srq->index;
    pthread_mutex_init(&srq->ibv.mutex, NULL);
    pthread_cond_init(&srq->ibv.cond, NULL);
}

static void srq_use(struct vb_srq *srq, int by)
{
    if (by > 0)
        vb_pd_use(srq->pd);
    else
        vb_pd_drop(srq->pd);
    if (!srq->xrcd)
        return;
    atomic_fetch_add(&srq->xrcd->users, (uint32_t)by);
    atomic_fetch_add(&srq->cq->users, (uint32_t)by);
}

/* Publishes the number last, since the SRQ is found by it. */
static void share_xrc(struct vb_srq *srq)
{
    srq->shared->xrcd = srq->xrcd->domain;
    srq->shared->recv_cq = srq->cq->index;
    atomic_store(&srq->shared->srq_num, srq->srq_num);
}

int vb_srq_create(struct vb_context *context, struct vb_pd *pd, struct ibv_srq_init_attr *attr,
                  struct vb_srq **srq)
{
    return vb_srq_create_xrc(context, pd, NULL, NULL, attr, srq);
}

int vb_srq_create_xrc(struct vb_context *context, struct vb_pd *pd, struct vb_xrcd *xrcd,
                      struct vb_cq *cq, struct ibv_srq_init_attr *attr, struct vb_srq **srq)
{
    struct vb_adapter *adapter = context->adapter;
    struct vb_srq *made;
    uint32_t count;
    int error;

    if (attr->attr.max_wr < 1 || attr->attr.max_wr > VB_MAX_WR || attr->attr.max_sge > VB_MAX_SGE)
        return vb_decline(context, -EINVAL,
                          "max_wr is {0} and may be 1 to {1}; max_sge is {2} and may be 0 to {3} "
                          "(query_device reports the limits)",
                          attr->attr.max_wr, VB_MAX_WR, attr->attr.max_sge, VB_MAX_SGE);
    made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    made->context = context;
    made->pd = pd;
    made->xrcd = xrcd;
    made->cq = cq;
    made->max_sge = attr->attr.max_sge ? attr->attr.max_sge : 1;
    made->max_wr = count = vb_round_up_pow2(attr->attr.max_wr);
    error = srq_take_number(adapter, made);
    if (error) {
        free(made);
        return error;
    }
    error = srq_alloc_rings(made, count);
    if (!error)
        error = fill_free_list(made, count);
    if (!error && xrcd && xrcd->fd >= 0)
        error = vb_xrc_open_proxy(made);
    if (error) {
        vb_adapter_return_index(adapter, &adapter->srq_pool, made->index);
        free_parts(made);
        return error;
    }
    srq_fill_abi(made, attr->srq_context);
    attr->attr.max_wr = made->max_wr;
    attr->attr.max_sge = made->max_sge;
    srq_use(made, 1);
    srq_set_table(adapter, made->index, made);
    if (xrcd)
        share_xrc(made);
    vb_object_add(context, &made->object, srq_release);
    *srq = made;
    return 0;
}

int vb_srq_destroy(struct vb_srq *srq)
{
    struct vb_adapter *adapter = srq->context->adapter;

    if (atomic_load(&srq->users))
        return vb_decline_busy_srq(srq);
    if (srq->xrcd)
        vb_xrc_withdraw_srq(srq);
    srq_set_table(adapter, srq->index, NULL);
    vb_event_retire(srq->context, &srq->ibv);
    vb_object_remove(srq->context, &srq->object);
    vb_adapter_return_index(adapter, &adapter->srq_pool, srq->index);
    srq_use(srq, -1);
    pthread_mutex_destroy(&srq->ibv.mutex);
    pthread_cond_destroy(&srq->ibv.cond);
    free_parts(srq);
    return 0;
}

static uint32_t waiting(const struct vb_srq *srq)
{
    return atomic_load(&srq->shared->posted) - atomic_load(&srq->shared->taken);
}

/* ---- another size, another limit ---- */

/* The rings and tables of an SRQ that is resized. */
struct rings {
    uint32_t room;
    uint8_t *wqes;
    uint32_t *order;
    uint32_t *free;
    int64_t *position;
};

static void free_rings(struct vb_srq *srq, const struct rings *rings)
{
    struct vb_heap *segment = srq->context->adapter->segment;

    vb_memory_heap_free(segment, rings->wqes);
    vb_memory_heap_free(segment, rings->order);
    free(rings->free);
    free(rings->position);
}

static int alloc_larger(struct vb_srq *srq, uint32_t room, struct rings *rings)
{
    struct vb_heap *segment = srq->context->adapter->segment;
    size_t stride = (size_t)1 << vb_recv_stride_log2(srq->max_sge);

    rings->room = room;
    rings->wqes = vb_memory_heap_alloc(segment, room * stride, VB_LINE);
    rings->order = vb_memory_heap_alloc(segment, room * sizeof(*rings->order), VB_LINE);
    rings->free = malloc(room * sizeof(*rings->free));
    rings->position = malloc(room * sizeof(*rings->position));
    if (rings->wqes && rings->order && rings->free && rings->position)
        return 0;
    free_rings(srq, rings);
    return -ENOMEM;
}

/* Copies requests to the larger rings; each keeps its index and its position. Under both locks. */
static void carry_over(const struct vb_srq *srq, const struct rings *to)
{
    const struct vb_srq_shared *shared = srq->shared;
    uint32_t posted = atomic_load(&shared->posted), had = srq->room, added = to->room - had;
    uint32_t taken = atomic_load(&shared->taken);

    memcpy(to->wqes, srq->wqes, (size_t)had << vb_recv_stride_log2(srq->max_sge));
    if (posted - taken > had) /* a peer wrote nonsense */
        taken = posted - had;
    for (uint32_t at = taken; at != posted; ++at)
        to->order[at & (to->room - 1)] = srq->order[at & (had - 1)];
    memcpy(to->position, srq->position, had * sizeof(*to->position));
    for (uint32_t i = 0; i < added; ++i) {
        to->position[had + i] = -1;
        to->free[i] = to->room - 1 - i;
    }
    memcpy(to->free + added, srq->free, srq->free_count * sizeof(*to->free));
}

/* Exchanges the rings. Who has taken a request reads it without a lock, in the old or the new ring.
 */
static void use_rings(struct vb_srq *srq, struct rings *rings)
{
    struct vb_heap *segment = srq->context->adapter->segment;
    struct vb_srq_shared *shared = srq->shared;
    struct rings old = {.order = srq->order, .free = srq->free, .position = srq->position};

    srq->outgrown[srq->outgrown_count++] = srq->wqes;
    srq->free_count += rings->room - srq->room;
    srq->wqes = rings->wqes;
    srq->order = rings->order;
    srq->room = rings->room;
    srq->free = rings->free;
    srq->position = rings->position;
    __atomic_store_n(&shared->wqes, vb_memory_heap_offset(segment, rings->wqes), __ATOMIC_RELEASE);
    shared->order = vb_memory_heap_offset(segment, rings->order);
    shared->mask = rings->room - 1;
    *rings = old;
}

static int srq_grow(struct vb_srq *srq, uint32_t room)
{
    uint32_t instance = srq->context->adapter->instance;
    struct rings rings;
    int error = alloc_larger(srq, room, &rings);

    if (error)
        return error;
    vb_word_lock(&srq->post_lock, VB_RANK_SRQ_POST, instance);
    vb_word_lock(&srq->shared->lock, VB_RANK_SRQ, instance);
    carry_over(srq, &rings);
    use_rings(srq, &rings);
    srq->withheld = room - srq->max_wr;
    vb_word_unlock(&srq->shared->lock);
    vb_word_unlock(&srq->post_lock);
    free_rings(srq, &rings);
    return 0;
}

/* Sets the size. An SRQ that was larger keeps its rings and withholds the entries beyond max_wr. */
static int set_size(struct vb_srq *srq, uint32_t max_wr)
{
    uint32_t used;
    bool fits;

    if (max_wr > srq->room) {
        int error = srq_grow(srq, max_wr);

        if (error)
            return error;
    }
    vb_word_lock(&srq->post_lock, VB_RANK_SRQ_POST, srq->context->adapter->instance);
    used = srq->room - srq->free_count;
    fits = used <= max_wr;
    if (fits) {
        srq->max_wr = max_wr;
        srq->withheld = srq->room - max_wr;
    }
    vb_word_unlock(&srq->post_lock);
    return fits ? 0
                : vb_decline(srq->context, -EINVAL,
                             "{0} requests of the SRQ wait or have completions that are not polled "
                             "yet, and max_wr would be {1}: it cannot be smaller than that",
                             used, max_wr);
}

static void srq_arm(struct vb_srq *srq, uint32_t limit)
{
    bool below;

    vb_word_lock(&srq->shared->lock, VB_RANK_SRQ, srq->context->adapter->instance);
    below = limit && waiting(srq) < limit;
    atomic_store(&srq->shared->limit, below ? 0 : limit);
    if (below) /* also if an earlier limit has raised the event before */
        atomic_store(&srq->shared->notices, 1);
    vb_word_unlock(&srq->shared->lock);
    vb_srq_notice(srq);
}

static int check_modify(struct vb_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
    uint32_t limit = mask & IBV_SRQ_LIMIT ? attr->srq_limit : atomic_load(&srq->shared->limit);
    uint32_t holds = srq->max_wr;

    if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
        return vb_decline(srq->context, -EINVAL, "the mask {0x} has bits that no attribute has",
                          (unsigned)mask);
    if (mask & IBV_SRQ_MAX_WR) {
        if (attr->max_wr < 1 || attr->max_wr > VB_MAX_WR)
            return vb_decline(srq->context, -EINVAL, "max_wr is {0} and may be 1 to {1}",
                              attr->max_wr, VB_MAX_WR);
        holds = vb_round_up_pow2(attr->max_wr);
    }
    if (limit > holds)
        return vb_decline(
            srq->context, -EINVAL,
            "srq_limit is {0} and the SRQ holds {1}: the limit may be as high as that", limit,
            holds);
    return 0;
}

int vb_srq_modify(struct vb_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
    int error;

    vb_lock_abi_take(&srq->ibv.mutex, VB_RANK_SRQ_MODIFY);
    error = check_modify(srq, attr, mask);
    if (!error && (mask & IBV_SRQ_MAX_WR))
        error = set_size(srq, vb_round_up_pow2(attr->max_wr));
    if (!error && (mask & IBV_SRQ_LIMIT))
        srq_arm(srq, attr->srq_limit);
    vb_lock_abi_release(&srq->ibv.mutex);
    return error;
}

void vb_srq_query(struct vb_srq *srq, struct ibv_srq_attr *attr)
{
    attr->max_wr = srq->max_wr;
    attr->max_sge = srq->max_sge;
    attr->srq_limit = atomic_load(&srq->shared->limit);
}

/* Under the SRQ's lock: was this the take that fell below the limit? */
static bool srq_crosses_limit(struct vb_srq_shared *srq, uint32_t left)
{
    uint32_t limit = atomic_load(&srq->limit);

    if (!limit || left >= limit)
        return false;
    atomic_store(&srq->notices,
                 1); /* first: if this process dies in between, no event is missing */
    atomic_store(&srq->limit, 0);
    return true;
}

static int srq_take_index(const struct vb_view *view, const struct vb_srq_shared *srq,
                          uint32_t index, struct vb_receive *taken)
{
    taken->position = index;
    taken->wqe = vb_srq_wqe(view, srq, index);
    return 0;
}

int vb_srq_take(const struct vb_view *view, struct vb_srq_shared *srq, struct vb_qp_shared *qp,
                uint32_t holder, const atomic_bool *gone, struct vb_receive *taken, bool *crossed)
{
    uint64_t in_hand = atomic_load(&qp->srq_inflight);
    uint32_t position, posted, index;

    *crossed = false;
    if (VB_UNLIKELY(in_hand)) /* taken before, for a message that came to nothing or had to wait */
        return srq_take_index(view, srq, vb_srq_in_hand_index(in_hand), taken);
    if (!vb_word_lock_unless(&srq->lock, VB_RANK_SRQ, holder, gone))
        return -EPIPE;
    position = atomic_load(&srq->taken);
    posted = atomic_load_explicit(&srq->posted, memory_order_acquire);
    if (position == posted) {
        vb_word_unlock(&srq->lock);
        return -EAGAIN;
    }
    index = *vb_srq_order_at(view, srq, position);
    /* From here until its completion is in, the request is this QP's (vb_rq_flush, recovery). */
    atomic_store(&qp->srq_inflight, vb_srq_in_hand(index, position));
    atomic_store(&srq->taken, position + 1);
    *crossed = srq_crosses_limit(srq, posted - position - 1);
    vb_word_unlock(&srq->lock);
    return srq_take_index(view, srq, index, taken);
}

void vb_srq_notice(struct vb_srq *srq)
{
    if (atomic_exchange(&srq->shared->notices, 0))
        vb_event_raise(srq->context, IBV_EVENT_SRQ_LIMIT_REACHED, &srq->ibv);
}

/* Enters a request in the order ring. Under post_lock. */
static void enter_order(struct vb_srq *srq, uint32_t index)
{
    struct vb_srq_shared *shared = srq->shared;
    uint32_t posted = atomic_load_explicit(&shared->posted, memory_order_relaxed);

    srq->order[posted & (srq->room - 1)] = index;
    srq->position[index] = posted;
    atomic_store_explicit(&shared->posted, posted + 1, memory_order_release);
}

static int srq_post_one(struct vb_srq *srq, const struct ibv_recv_wr *wr)
{
    uint32_t index;

    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > srq->max_sge)
        return vb_decline(
            srq->context, -EINVAL,
            "there are too many SGEs: num_sge is {0i} and the SRQ was created for {1}",
            (uint64_t)wr->num_sge, srq->max_sge);
    if (srq->free_count == srq->withheld)
        return vb_decline(srq->context, -ENOMEM,
                          "the shared receive queue is full: {0} requests wait in it, or their "
                          "completions are not polled yet; poll the CQ, or give it more room",
                          srq->max_wr);
    index = srq->free[--srq->free_count];
    vb_recv_write(own_wqe(srq, index), wr, 0);
    enter_order(srq, index);
    return 0;
}

int vb_srq_post_recv(struct vb_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    int error = 0;

    vb_word_lock(&srq->post_lock, VB_RANK_SRQ_POST, srq->context->adapter->instance);
    for (; wr && !error; wr = wr->next) {
        error = srq_post_one(srq, wr);
        if (error)
            *bad = wr;
    }
    vb_word_unlock(&srq->post_lock);
    return error;
}

void vb_srq_release(struct vb_srq *srq, uint32_t wqe)
{
    vb_word_lock(&srq->post_lock, VB_RANK_SRQ_POST, srq->context->adapter->instance);
    if (wqe < srq->room && srq->position[wqe] >= 0) { /* else a peer wrote nonsense */
        srq->position[wqe] = -1;
        srq->free[srq->free_count++] = wqe;
    }
    vb_word_unlock(&srq->post_lock);
}

void vb_srq_put_back(struct vb_srq *srq, uint32_t wqe)
{
    vb_word_lock(&srq->post_lock, VB_RANK_SRQ_POST, srq->context->adapter->instance);
    enter_order(srq, wqe);
    vb_word_unlock(&srq->post_lock);
}

bool vb_srq_is_taken(struct vb_srq *srq, uint32_t index, uint32_t position)
{
    bool taken;

    vb_word_lock(&srq->post_lock, VB_RANK_SRQ_POST, srq->context->adapter->instance);
    taken = index < srq->room && (int32_t)(atomic_load(&srq->shared->taken) - position) > 0 &&
            srq->position[index] == position;
    vb_word_unlock(&srq->post_lock);
    return taken;
}

void vb_srq_repair(struct vb_srq *srq, uint32_t dead_holder)
{
    /* A taker moves `taken` last, so what the lock protects is consistent at every instant. */
    if (atomic_load(&srq->shared->lock) == dead_holder)
        vb_word_clear(&srq->shared->lock);
}
