// SPDX-License-Identifier: Apache-2.0
/*
 * Completion queues: creating, resizing and destroying them, arming them, and the producer's slow
 * paths (a full queue, an event). Producers are the threads of this process and of peers, each
 * under the lock CQ of the queue.
 */
#include "hca/cq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/event.h"
#include "hca/host_calls.h"
#include "hca/overdue.h"
#include "hca/pd.h"
#include "hca/qp.h"
#include "hca/users.h"
#include "memory/heap.h"

bool vb_cq_has_room_now(struct vb_cq_shared *cq)
{
    cq->head_seen = atomic_load_explicit(&cq->head, memory_order_acquire);
    return cq->tail - cq->head_seen <= cq->mask;
}

/*
 * Consumes the arming that this entry satisfies (IBA 11.4.2.2). Until the channel is woken `armed`
 * is the producer's instance: if the producer dies before that, the owner wakes the channel.
 */
unsigned vb_cq_consume_arming(struct vb_cq_shared *cq, uint32_t producer, uint32_t position,
                              bool solicited)
{
    uint32_t armed;

    /* The entry must be visible before `armed` is read: the consumer arms, then polls. */
    atomic_thread_fence(memory_order_seq_cst);
    armed = atomic_load_explicit(&cq->armed, memory_order_relaxed);
    if (VB_UNLIKELY(atomic_load_explicit(&cq->held, memory_order_relaxed) > 1) &&
        (armed == VB_ARM_ANY || (armed == VB_ARM_SOLICITED && solicited)) && vb_cq_holds_event(cq))
        return VB_PUSHED;
    do
        if (armed != VB_ARM_ANY && !(armed == VB_ARM_SOLICITED && solicited))
            return VB_PUSHED;
    while (!atomic_compare_exchange_weak(&cq->armed, &armed, producer));
    atomic_store(&cq->announced, position + 1);
    return VB_PUSH_EVENT;
}

/*
 * Programs that arm and poll, and seldom read the channel, fill it. An event without room is noted
 * in the CQ, and the next reader of a record writes it (vb_cq_notice_missed).
 */
static void leave_out(const struct vb_view *view, struct vb_cq_shared *cq)
{
    atomic_fetch_or(&cq->notices, VB_PUSH_EVENT);
    atomic_store(&view->header->events_missed, 1);
}

static void write_event(const struct vb_view *view, struct vb_cq_shared *cq, uint32_t index,
                        int write_fd)
{
    if (VB_LIKELY(vb_channel_write(write_fd, index, cq->generation)))
        return;
    leave_out(view, cq);
    /* Once more, since the reader of the last record may have looked before this was noted. */
    vb_channel_write(write_fd, index, cq->generation);
}

void vb_cq_notice_missed(struct vb_adapter *adapter)
{
    if (!atomic_exchange(&adapter->self.header->events_missed, 0))
        return;
    vb_lock_take(&adapter->mutex);
    for (uint32_t i = 0; i < adapter->cq_pool.next; ++i)
        if (adapter->cqs[i])
            vb_cq_notice(adapter->cqs[i]);
    vb_lock_release(&adapter->mutex);
}

static void end_arming(struct vb_cq_shared *cq, uint32_t armed)
{
    if (armed > VB_ARM_ANY)
        atomic_compare_exchange_strong(&cq->armed, &armed, VB_ARM_NONE);
}

void vb_cq_wake(const struct vb_view *view, struct vb_cq_shared *cq, uint32_t index, int write_fd)
{
    uint32_t armed = atomic_load(&cq->armed);

    write_event(view, cq, index, write_fd);
    end_arming(cq, armed);
}

void vb_cq_write_event(struct vb_cq *cq)
{
    const struct vb_adapter *adapter = cq->context->adapter;
    struct vb_channel *channel = cq->channel;

    channel->events += cq->late;
    if (!channel->keeps)
        write_event(&adapter->self, cq->shared, cq->index, channel->write_fd);
    else if (!vb_channel_add(channel, cq->index, cq->generation))
        leave_out(&adapter->self, cq->shared);
    if (adapter->calls->readable)
        adapter->calls->readable(cq->context, channel->ibv.fd);
}

/* Leaves the notice first, so that a producer that dies in between causes one event too many and
 * not one too few. */
unsigned vb_cqe_refuse(struct vb_cq_shared *cq)
{
    bool first = !atomic_load(&cq->error);

    if (first) {
        atomic_fetch_or(&cq->notices, VB_PUSH_OVERRUN);
        atomic_store(&cq->error, 1);
    }
    vb_biased_release(&cq->lock);
    return first ? VB_PUSH_OVERRUN | VB_PUSH_REFUSED : VB_PUSH_REFUSED;
}

static void wake_own(struct vb_cq *cq)
{
    uint32_t armed = atomic_load(&cq->shared->armed);

    vb_cq_write_event(cq);
    end_arming(cq->shared, armed);
}

void vb_cq_notice(struct vb_cq *cq)
{
    uint32_t notices = atomic_exchange(&cq->shared->notices, 0);

    if ((notices & VB_PUSH_EVENT) && cq->channel)
        wake_own(cq);
    if (notices & VB_PUSH_OVERRUN)
        vb_event_raise(cq->context, IBV_EVENT_CQ_ERR, &cq->ibv);
}

void vb_cq_after_push(struct vb_cq *cq, unsigned pushed)
{
    if ((pushed & VB_PUSH_EVENT) && cq->channel)
        wake_own(cq);
    if (pushed & VB_PUSH_OVERRUN)
        vb_cq_notice(cq);
}

struct vb_cqe *vb_cq_begin(struct vb_cq *cq)
{
    struct vb_adapter *adapter = cq->context->adapter;
    unsigned refused;
    struct vb_cqe *entry =
        vb_cqe_reserve(adapter, &adapter->self, cq->shared, &adapter->gone, &refused);

    if (VB_UNLIKELY(!entry))
        vb_cq_after_push(cq, refused);
    return entry;
}

void vb_cq_end(struct vb_cq *cq, struct vb_cqe *entry, bool solicited)
{
    unsigned pushed = vb_cqe_publish(cq->context->adapter, cq->shared, entry, solicited);

    if (VB_UNLIKELY(pushed))
        vb_cq_after_push(cq, pushed);
}

void vb_cq_complete(struct vb_cq *cq, const struct vb_cqe *entry, bool solicited)
{
    struct vb_cqe *slot = vb_cq_begin(cq);

    if (!slot)
        return;
    memcpy(slot, entry, offsetof(struct vb_cqe, seq));
    vb_cq_end(cq, slot, solicited);
}

/* ---- creation ---- */

static void cq_release(struct vb_object *object)
{
    vb_cq_destroy((struct vb_cq *)((char *)object - offsetof(struct vb_cq, object)));
}

static struct vb_cqe *alloc_ring(struct vb_adapter *adapter, uint32_t entries)
{
    return vb_memory_heap_alloc(adapter->segment, (size_t)entries * sizeof(struct vb_cqe), VB_LINE);
}

static uint64_t *alloc_stamps(struct vb_adapter *adapter, uint32_t entries)
{
    return vb_memory_heap_alloc(adapter->segment, (size_t)entries * 2 * sizeof(uint64_t), VB_LINE);
}

int vb_cq_keep_stamps(struct vb_cq *cq)
{
    struct vb_adapter *adapter = cq->context->adapter;
    uint64_t *stamps;

    if (cq->stamps)
        return 0;
    if (!adapter->calls->now)
        return -EOPNOTSUPP;
    stamps = alloc_stamps(adapter, cq->mask + 1);
    if (!stamps)
        return -ENOMEM;
    cq->stamps = stamps;
    cq->shared->stamps = vb_memory_heap_offset(adapter->segment, stamps);
    return 0;
}

static uint64_t *stamp_at(const struct vb_cq *cq, uint32_t position)
{
    return &cq->stamps[position & (2 * cq->mask + 1)];
}

uint64_t vb_cq_stamp(const struct vb_cq *cq, uint32_t position)
{
    return *stamp_at(cq, position);
}

uint64_t vb_cq_last_stamp(const struct vb_cq *cq)
{
    return vb_cq_stamp(cq, vb_cq_taken(cq) - 1);
}

static int cq_take_number(struct vb_adapter *adapter, struct vb_cq *cq)
{
    int error;

    vb_lock_take(&adapter->mutex);
    error = vb_pool_take(&adapter->cq_pool, &cq->index);
    cq->generation = vb_random(adapter);
    vb_lock_release(&adapter->mutex);
    return error;
}

/* Called last, since the service thread uses every CQ in the table. */
static void enter_table(struct vb_adapter *adapter, struct vb_cq *cq)
{
    vb_lock_take(&adapter->mutex);
    adapter->cqs[cq->index] = cq;
    if (cq->channel)
        ++cq->channel->ibv.refcnt;
    vb_lock_release(&adapter->mutex);
}

static void cq_fill_abi(struct vb_cq *cq, void *cq_context)
{
    cq->ibv.context = cq->context->ibv;
    cq->ibv.channel = cq->channel ? &cq->channel->ibv : NULL;
    cq->ibv.cq_context = cq_context;
    cq->ibv.handle = cq->index;
    cq->ibv.cqe = (int)(cq->mask + 1);
    pthread_mutex_init(&cq->ibv.mutex, NULL);
    pthread_cond_init(&cq->ibv.cond, NULL);
}

static void cq_fill_shared(struct vb_cq *cq)
{
    struct vb_adapter *adapter = cq->context->adapter;
    struct vb_cq_shared *shared = &adapter->self.cq[cq->index];

    memset(shared, 0, sizeof(*shared));
    shared->ring = vb_memory_heap_offset(adapter->segment, cq->ring);
    shared->mask = cq->mask;
    shared->channel = cq->channel ? cq->channel->serial : 0;
    shared->generation = cq->generation;
    cq->shared = shared;
}

/* Gives the CQ a number and its part of the segment. */
static int cq_share(struct vb_cq *cq)
{
    struct vb_adapter *adapter = cq->context->adapter;
    int error = cq_take_number(adapter, cq);

    if (error)
        return error;
    cq_fill_shared(cq);
    cq->late = adapter->calls->written != NULL;
    error = cq->late ? vb_cq_keep_stamps(cq) : 0;
    if (error)
        vb_adapter_return_index(adapter, &adapter->cq_pool, cq->index);
    return error;
}

static VB_COLD int decline_size(struct vb_context *context, int cqe)
{
    return vb_decline(context, -EINVAL,
                      "cqe is {0i} and may be 1 to {1}, the device's max_cqe (query_device)",
                      (uint64_t)cqe, VB_MAX_CQE);
}

int vb_cq_create(struct vb_context *context, int cqe, void *cq_context, struct vb_channel *channel,
                 struct vb_cq **cq)
{
    struct vb_adapter *adapter = context->adapter;
    struct vb_cq *made;
    int error;

    if (cqe < 1 || cqe > VB_MAX_CQE)
        return decline_size(context, cqe);
    if (channel && channel->context != context)
        return vb_decline(context, -EINVAL, "the completion channel is another context's");
    made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    made->context = context;
    made->channel = channel;
    made->mask = vb_round_up_pow2((uint32_t)cqe) - 1;
    if (!adapter->barriers)
        vb_biased_forbid(&made->poll_lock, adapter->instance);
    made->largest = made->mask + 1;
    made->ring = alloc_ring(adapter, made->largest);
    error = made->ring ? cq_share(made) : -ENOMEM;
    if (error) {
        vb_memory_heap_free(adapter->segment, made->ring);
        free(made);
        return error;
    }
    cq_fill_abi(made, cq_context);
    enter_table(adapter, made);
    vb_object_add(context, &made->object, cq_release);
    *cq = made;
    return 0;
}

/* Waits until every event that the program has read is acknowledged (ibv_ack_cq_events). */
static void wait_for_acks(struct vb_cq *cq, uint32_t events_read)
{
    bool told = false;

    vb_lock_abi_take(&cq->ibv.mutex, VB_RANK_CQ_ACKS);
    while (cq->ibv.comp_events_completed != events_read)
        if (told)
            pthread_cond_wait(&cq->ibv.cond, &cq->ibv.mutex);
        else if ((told = vb_overdue_wait(&cq->ibv.cond, &cq->ibv.mutex)))
            vb_overdue_acks(cq->context->adapter, "CQ", events_read - cq->ibv.comp_events_completed,
                            "ibv_ack_cq_events");
    vb_lock_abi_release(&cq->ibv.mutex);
}

int vb_cq_destroy(struct vb_cq *cq)
{
    struct vb_adapter *adapter = cq->context->adapter;
    uint32_t events_read;

    if (atomic_load(&cq->users))
        return vb_decline_busy_cq(cq);
    vb_lock_take(&adapter->mutex);
    adapter->cqs[cq->index] = NULL;
    events_read = cq->events_read;
    if (cq->channel)
        --cq->channel->ibv.refcnt;
    vb_lock_release(&adapter->mutex);
    vb_event_retire(cq->context, &cq->ibv);
    if (!cq->context->closing)
        wait_for_acks(cq, events_read);
    vb_object_remove(cq->context, &cq->object);
    vb_memory_heap_free(adapter->segment, cq->stamps);
    vb_adapter_return_index(adapter, &adapter->cq_pool, cq->index);
    vb_memory_heap_free(adapter->segment, cq->ring);
    if (cq->parent)
        vb_pd_drop(cq->parent);
    pthread_mutex_destroy(&cq->ibv.mutex);
    pthread_cond_destroy(&cq->ibv.cond);
    vb_object_free(&cq->object, cq);
    return 0;
}

/*
 * Makes an event of an entry that came between the last poll and the arming. The specification asks
 * for none, since the program shall poll again; but hardware makes one, and programs that arm and
 * then sleep (UCX) rely on it. An entry that had its event makes no second one: perftest arms
 * before it polls.
 */
void vb_cq_wake_at_once(struct vb_cq *cq)
{
    uint32_t armed = atomic_load(&cq->shared->armed), from = atomic_load(&cq->shared->announced);

    if ((int32_t)(vb_cq_taken(cq) - from) > 0)
        from = vb_cq_taken(cq);
    while (vb_cq_has_entry_at(cq, from) && vb_cq_holds_event(cq->shared))
        ++from;
    if (!vb_cq_has_entry_at(cq, from) || (armed != VB_ARM_ANY && armed != VB_ARM_SOLICITED) ||
        !atomic_compare_exchange_strong(&cq->shared->armed, &armed, VB_ARM_NONE))
        return;
    while (vb_cq_has_entry_at(cq, from))
        ++from;
    atomic_store(&cq->shared->announced, from);
    vb_cq_write_event(cq);
}

void vb_cq_arm(struct vb_cq *cq, bool solicited_only)
{
    uint32_t want = solicited_only ? VB_ARM_SOLICITED : VB_ARM_ANY;
    uint32_t armed = atomic_load(&cq->shared->armed);

    if (VB_UNLIKELY(atomic_load(&cq->gather_count)) && armed == VB_ARM_NONE)
        vb_cq_hold(cq);
    /* Arming for any completion is not weakened by a later arming for solicited ones. */
    while ((armed < want || armed > VB_ARM_ANY) &&
           !atomic_compare_exchange_weak(&cq->shared->armed, &armed, want))
        ;
    atomic_thread_fence(memory_order_seq_cst);
    if (cq->channel && (!solicited_only || (cq->late && vb_cq_has_on_its_way(cq))))
        vb_cq_wake_at_once(cq);
    if (VB_UNLIKELY(atomic_load(&cq->waiting)) && cq->context->adapter->calls->armed)
        cq->context->adapter->calls->armed(cq);
}

/* ---- resizing ---- */

struct rings {
    struct vb_cqe *entries;
    uint64_t *stamps; /* NULL: the CQ keeps none */
    uint32_t mask;
};

static int cq_alloc_rings(struct vb_cq *cq, uint32_t entries, struct rings *made)
{
    struct vb_adapter *adapter = cq->context->adapter;

    /* A look without the lock (ready_entry) may use the mask of one ring and the base of another.
     */
    if (cq->largest < entries)
        cq->largest = entries;
    made->mask = entries - 1;
    made->entries = alloc_ring(adapter, cq->largest);
    made->stamps = cq->stamps ? alloc_stamps(adapter, entries) : NULL;
    if (made->entries && (made->stamps || !cq->stamps))
        return 0;
    vb_memory_heap_free(adapter->segment, made->entries);
    vb_memory_heap_free(adapter->segment, made->stamps);
    return -ENOMEM;
}

/* Makes the entries up to tail reachable in the new ring under their positions. The time of the
 * entry that was polled last goes with them: vb_cq_last_stamp may still be asked for it. */
static void move_entries(struct vb_cq *cq, const struct rings *to, uint32_t tail)
{
    for (uint32_t at = vb_cq_taken(cq); at != tail; ++at)
        memcpy(&to->entries[at & to->mask], &cq->ring[at & cq->mask], sizeof(*to->entries));
    for (uint32_t at = vb_cq_taken(cq) - 1; to->stamps && at != tail; ++at)
        to->stamps[at & (2 * to->mask + 1)] = *stamp_at(cq, at);
}

/* Exchanges the rings: the CQ gets the new ones, and `rings` the old ones, to be freed. */
static void change_rings(struct vb_cq *cq, struct rings *rings)
{
    struct vb_adapter *adapter = cq->context->adapter;
    struct rings old = {.entries = cq->ring, .mask = cq->mask};

    if (rings->stamps) {
        old.stamps = cq->stamps;
        cq->stamps = rings->stamps;
        cq->shared->stamps = vb_memory_heap_offset(adapter->segment, rings->stamps);
    }
    __atomic_store_n(&cq->ring, rings->entries, __ATOMIC_RELEASE);
    __atomic_store_n(&cq->mask, rings->mask, __ATOMIC_RELAXED);
    cq->shared->mask = rings->mask;
    cq->shared->ring = vb_memory_heap_offset(adapter->segment, rings->entries);
    cq->ibv.cqe = (int)(rings->mask + 1);
    *rings = old;
}

int vb_cq_resize(struct vb_cq *cq, int cqe)
{
    struct vb_adapter *adapter = cq->context->adapter;
    struct rings rings;
    uint32_t waiting, tail;
    bool fits;
    int error;

    if (cqe < 1 || cqe > VB_MAX_CQE)
        return decline_size(cq->context, cqe);
    error = cq_alloc_rings(cq, vb_round_up_pow2((uint32_t)cqe), &rings);
    if (error)
        return error;
    /* In this order: whoever holds poll_lock waits for nobody, so the port's threads may take it.
     */
    vb_biased_acquire(&cq->shared->lock, VB_RANK_CQ, adapter->instance, false);
    vb_biased_acquire(&cq->poll_lock, VB_RANK_CQ_POLL, adapter->instance, false);
    tail = __atomic_load_n(&cq->shared->tail, __ATOMIC_RELAXED);
    waiting = tail - vb_cq_taken(cq);
    fits = waiting <= rings.mask + 1;
    if (fits) {
        move_entries(cq, &rings, tail);
        change_rings(cq, &rings);
    }
    vb_biased_release(&cq->poll_lock);
    vb_biased_release(&cq->shared->lock);
    vb_memory_heap_free(adapter->segment, rings.entries);
    vb_memory_heap_free(adapter->segment, rings.stamps);
    if (fits)
        return 0;
    return vb_decline(cq->context, -EINVAL,
                      "{0} completions wait in the CQ and would not fit: poll them first", waiting);
}

void vb_cq_repair(struct vb_cq *cq, uint32_t dead_holder)
{
    struct vb_cq_shared *shared = cq->shared;
    const struct vb_view *self = &cq->context->adapter->self;

    /* It may have died between publishing the entry and moving the tail. */
    if (vb_biased_is_held_by(&shared->lock, dead_holder) &&
        atomic_load(&vb_cqe_at(self, shared, shared->tail)->seq) == shared->tail + 1)
        ++shared->tail;
    vb_biased_free_dead(&shared->lock, dead_holder);
}
