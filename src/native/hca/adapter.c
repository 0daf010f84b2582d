// SPDX-License-Identifier: Apache-2.0
/*
 * The adapter of a process: its pools of indices, its contexts and their lists of objects. The host
 * (host) and the simulated host (sim) make and destroy an adapter; the other files of this room
 * call the rest. An adapter outlives all of its contexts.
 */
#include "hca/adapter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hca/event.h"
#include "hca/host_calls.h"
#include "hca/mr.h"
#include "memory/descriptor.h"
#include "memory/heap.h"

/*
 * A packet names the queue pair that it is for, and not the one that sent it. A peer that does not
 * know yet that the other end was destroyed must not reach a new queue pair of the same number: its
 * packets could pass for duplicates there, and be acknowledged.
 */
enum { QPS_RESTING = 256 };

static uint32_t *free_at(struct vb_pool *pool, uint32_t i)
{
    return &pool->free[(pool->free_first + i) & (pool->free_room - 1)];
}

int vb_pool_take(struct vb_pool *pool, uint32_t *number)
{
    if (pool->free_count > pool->resting || (pool->free_count && pool->next == pool->limit)) {
        *number = *free_at(pool, 0);
        ++pool->free_first;
        --pool->free_count;
    } else if (pool->next < pool->limit) {
        *number = pool->next++;
    } else {
        return -ENOMEM;
    }
    return 0;
}

static bool adapter_grow(struct vb_pool *pool)
{
    uint32_t room = pool->free_room ? pool->free_room * 2 : 64;
    uint32_t *grown = malloc(room * sizeof(*grown));

    if (!grown)
        return false;
    for (uint32_t i = 0; i < pool->free_count; ++i)
        grown[i] = *free_at(pool, i);
    free(pool->free);
    pool->free = grown;
    pool->free_first = 0;
    pool->free_room = room;
    return true;
}

void vb_pool_return(struct vb_pool *pool, uint32_t number)
{
    if (pool->free_count == pool->free_room && !adapter_grow(pool))
        return; /* the number stays unused, which harms nothing */
    *free_at(pool, pool->free_count) = number;
    ++pool->free_count;
}

int vb_adapter_take_index(struct vb_adapter *adapter, struct vb_pool *pool, uint32_t *index)
{
    int error;

    vb_lock_take(&adapter->mutex);
    error = vb_pool_take(pool, index);
    vb_lock_release(&adapter->mutex);
    return error;
}

void vb_adapter_return_index(struct vb_adapter *adapter, struct vb_pool *pool, uint32_t index)
{
    vb_lock_take(&adapter->mutex);
    vb_pool_return(pool, index);
    vb_lock_release(&adapter->mutex);
}

/*
 * A number may need a new slot, which the packet carrier notes under its lock ROCE. A holder of
 * ROCE waits for SQ, and a poster holds SQ while it waits for the adapter's mutex. So one thread at
 * a time asks for a number under `lifetime`, which comes before ROCE, and not under that mutex.
 */
int vb_adapter_take_number(struct vb_adapter *adapter, struct vb_pool *pool, uint32_t *index,
                           uint32_t *number)
{
    int error;

    vb_lock_take(&adapter->lifetime);
    error = vb_adapter_take_index(adapter, pool, index);
    if (!error) {
        error = adapter->calls->number(adapter, *index, number);
        if (error)
            vb_adapter_return_index(adapter, pool, *index);
    }
    vb_lock_release(&adapter->lifetime);
    return error;
}

uint32_t vb_random(struct vb_adapter *adapter)
{
    return (uint32_t)vb_random_next(&adapter->random);
}

static bool lies_within(uint64_t offset, uint64_t length, uint64_t size)
{
    return offset <= size && length <= size - offset;
}

static bool is_table(uint64_t offset, uint64_t length, uint64_t size)
{
    return offset % VB_LINE == 0 && lies_within(offset, length, size);
}

static bool is_power_of_two(uint32_t number)
{
    return number && (number & (number - 1)) == 0;
}

/* A peer wrote the header. */
static bool has_tables(const struct vb_segment_header *header, uint64_t size)
{
    return is_power_of_two(header->mr_entries) &&
           is_table(header->mr, sizeof(struct vb_mr_shared) * header->mr_entries, size) &&
           is_table(header->qp, sizeof(struct vb_qp_shared) * VB_MAX_QP, size) &&
           is_table(header->cq, sizeof(struct vb_cq_shared) * VB_MAX_CQ, size) &&
           is_table(header->srq, sizeof(struct vb_srq_shared) * VB_MAX_SRQ, size) &&
           is_table(header->evidence, sizeof(struct vb_evidence) * VB_EVIDENCE_RECORDS, size) &&
           is_table(header->group, sizeof(struct vb_group_shared) * VB_MAX_GROUPS, size);
}

/* Copies the header, so that what is checked is what is used: the peer may change it at any time.
 */
static struct vb_segment_header copy_header(const struct vb_segment_header *from)
{
    struct vb_segment_header header;

    memcpy(&header, from, sizeof(header));
    atomic_signal_fence(memory_order_seq_cst); /* the copy is not read from there again */
    return header;
}

int vb_view_open(struct vb_view *view, void *base, uint64_t size, uint64_t header_offset)
{
    struct vb_segment_header header;
    uint8_t *start = base;

    if (header_offset % VB_LINE || !lies_within(header_offset, sizeof(header), size))
        return -EPROTO;
    header = copy_header((const struct vb_segment_header *)(const void *)(start + header_offset));
    if (header.magic != VB_SEGMENT_MAGIC || header.version != VB_LAYOUT_VERSION ||
        header.header_size != sizeof(header) || !has_tables(&header, size))
        return -EPROTO;
    view->base = start;
    view->size = size;
    view->nowhere = header_offset + sizeof(header);
    if (!lies_within(view->nowhere, VB_STAGE_BYTES, size))
        return -EPROTO;
    view->header = (struct vb_segment_header *)(void *)(start + header_offset);
    view->mr = (struct vb_mr_shared *)(void *)(start + header.mr);
    view->mr_last = header.mr_entries - 1;
    view->qp = (struct vb_qp_shared *)(void *)(start + header.qp);
    view->cq = (struct vb_cq_shared *)(void *)(start + header.cq);
    view->srq = (struct vb_srq_shared *)(void *)(start + header.srq);
    view->evidence = (struct vb_evidence *)(void *)(start + header.evidence);
    view->group = (struct vb_group_shared *)(void *)(start + header.group);
    return 0;
}

static int alloc_table(struct vb_heap *segment, size_t size, uint64_t *offset)
{
    void *table = vb_memory_heap_alloc(segment, size, VB_LINE);

    if (!table)
        return -ENOMEM;
    *offset = vb_memory_heap_offset(segment, table);
    return 0;
}

enum { PARTS_OF_FILE = 4, PARTS_OF_SPACE = 64 };

static uint32_t mr_entries_within(uint32_t entries, int resource, unsigned parts)
{
    struct rlimit limit;

    if (getrlimit(resource, &limit) == 0)
        while (entries > VB_MR_WINDOW &&
               entries * sizeof(struct vb_mr_shared) > limit.rlim_cur / parts)
            entries /= 2;
    return entries;
}

/* The entries of the region table: fewer where the size of files or the address space is limited
 * (`ulimit -f`, `ulimit -v`), so that the table takes a quarter of the segment at most. */
static uint32_t mr_entries(void)
{
    return mr_entries_within(mr_entries_within(VB_MR_ENTRIES, RLIMIT_FSIZE, PARTS_OF_FILE),
                             RLIMIT_AS, PARTS_OF_SPACE);
}

static int lay_out(struct vb_adapter *adapter)
{
    struct vb_heap *segment = adapter->segment;
    struct vb_segment_header *header =
        vb_memory_heap_alloc(segment, sizeof(*header) + VB_STAGE_BYTES, VB_LINE);

    if (!header)
        return -ENOMEM;
    adapter->keys.entries = header->mr_entries = mr_entries();
    header->mr_epoch = (uint64_t)adapter->instance << 32 | 1;
    if (alloc_table(segment, header->mr_entries * sizeof(struct vb_mr_shared), &header->mr) ||
        alloc_table(segment, VB_MAX_QP * sizeof(struct vb_qp_shared), &header->qp) ||
        alloc_table(segment, VB_MAX_CQ * sizeof(struct vb_cq_shared), &header->cq) ||
        alloc_table(segment, VB_MAX_SRQ * sizeof(struct vb_srq_shared), &header->srq) ||
        alloc_table(segment, VB_EVIDENCE_RECORDS * sizeof(struct vb_evidence), &header->evidence) ||
        alloc_table(segment, VB_MAX_GROUPS * sizeof(struct vb_group_shared), &header->group))
        return -ENOMEM;
    header->version = VB_LAYOUT_VERSION;
    header->header_size = sizeof(*header);
    header->instance = adapter->instance;
    header->pid = (uint32_t)getpid();
    header->magic = VB_SEGMENT_MAGIC;
    return vb_view_open(&adapter->self, (uint8_t *)header - vb_memory_heap_offset(segment, header),
                        vb_memory_heap_size(segment), vb_memory_heap_offset(segment, header));
}

void vb_adapter_open_locks(struct vb_adapter *adapter)
{
    vb_lock_init(&adapter->mutex, VB_RANK_ADAPTER);
    vb_lock_init(&adapter->groups, VB_RANK_GROUPS);
    vb_lock_init(&adapter->lifetime, VB_RANK_LIFETIME);
    vb_lock_init(&adapter->gone_mutex, VB_RANK_GONE);
    vb_lock_init(&adapter->xrc, VB_RANK_XRC);
    vb_lock_init(&adapter->binding, VB_RANK_BINDING);
}

void vb_adapter_close_locks(struct vb_adapter *adapter)
{
    vb_lock_destroy(&adapter->mutex);
    vb_lock_destroy(&adapter->groups);
    vb_lock_destroy(&adapter->lifetime);
    vb_lock_destroy(&adapter->xrc);
    vb_lock_destroy(&adapter->binding);
}

int vb_adapter_create(struct vb_heap *segment, struct vb_heap *heap,
                      const struct vb_host_calls *port, uint32_t instance, uint64_t seed,
                      struct vb_adapter *adapter)
{
    memset(adapter, 0, sizeof(*adapter));
    adapter->segment = segment;
    adapter->heap = heap;
    adapter->calls = port;
    adapter->instance = instance;
    vb_adapter_ports_default(adapter->ports);
    adapter->port_count = 1;
    adapter->random.key[0] = seed;
    adapter->barriers = vb_barrier_register();
    adapter->qp_pool.limit = VB_MAX_QP;
    adapter->qp_pool.resting = QPS_RESTING;
    adapter->cq_pool.limit = VB_MAX_CQ;
    adapter->srq_pool.limit = VB_MAX_SRQ;
    adapter->pd_pool.limit = VB_MAX_PD;
    adapter->qps = calloc(VB_MAX_QP, sizeof(*adapter->qps));
    adapter->live = calloc(VB_MAX_QP / 64, sizeof(*adapter->live));
    adapter->cqs = calloc(VB_MAX_CQ, sizeof(*adapter->cqs));
    adapter->srqs = calloc(VB_MAX_SRQ, sizeof(*adapter->srqs));
    vb_adapter_open_locks(adapter);
    if (adapter->qps && adapter->live && adapter->cqs && adapter->srqs && lay_out(adapter) == 0)
        return 0;
    vb_adapter_destroy(adapter);
    return -ENOMEM;
}

void vb_adapter_destroy(struct vb_adapter *adapter)
{
    free(adapter->qp_pool.free);
    free(adapter->cq_pool.free);
    free(adapter->srq_pool.free);
    vb_keys_free(&adapter->keys);
    free(adapter->pd_pool.free);
    free(adapter->qps);
    free(adapter->live);
    free(adapter->cqs);
    free(adapter->srqs);
    vb_adapter_close_locks(adapter);
    vb_null_unmap(adapter);
}

int vb_context_open(struct vb_adapter *adapter, struct ibv_context *ibv,
                    struct vb_context **context)
{
    struct vb_context *ctx = calloc(1, sizeof(*ctx));

    if (!ctx)
        return -ENOMEM;
    ctx->async_fd = vb_memory_descriptor_raise(eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC));
    if (ctx->async_fd < 0) {
        int error = errno;
        free(ctx);
        return -error;
    }
    ctx->ibv = ibv;
    ctx->adapter = adapter;
    vb_lock_init(&ctx->mutex, VB_RANK_CONTEXT);
    pthread_cond_init(&ctx->acked, NULL);
    vb_lock_init(&ctx->declines.mutex, VB_RANK_DECLINES);
    *context = ctx;
    return 0;
}

static uint32_t release_all(struct vb_context *context, bool keeps_memory)
{
    uint32_t count = 0;

    /* No event is read any more, so no destroyer must wait for one. */
    context->closing = true;
    vb_event_drop_all(context);
    /* Newest first, since an object is older than those that use it. */
    while (context->objects) {
        struct vb_object *object = context->objects;

        object->kept = keeps_memory;
        object->release(object);
        ++count;
    }
    vb_event_drop_all(context);
    close(context->async_fd);
    return count;
}

uint32_t vb_context_end(struct vb_context *context)
{
    return release_all(context, true);
}

void vb_context_free(struct vb_context *context)
{
    vb_lock_destroy(&context->declines.mutex);
    pthread_cond_destroy(&context->acked);
    vb_lock_destroy(&context->mutex);
    free(context);
}

void vb_context_close(struct vb_context *context)
{
    release_all(context, false);
    vb_context_free(context);
}

void vb_object_add(struct vb_context *context, struct vb_object *object,
                   void (*release)(struct vb_object *))
{
    vb_lock_take(&context->mutex);
    object->release = release;
    object->next = context->objects;
    object->link = &context->objects;
    if (object->next)
        object->next->link = &object->next;
    context->objects = object;
    vb_lock_release(&context->mutex);
}

void vb_object_remove(struct vb_context *context, struct vb_object *object)
{
    vb_lock_take(&context->mutex);
    *object->link = object->next;
    if (object->next)
        object->next->link = object->link;
    vb_lock_release(&context->mutex);
}

void vb_object_free(struct vb_object *object, void *memory)
{
    if (!object->kept)
        free(memory);
}
