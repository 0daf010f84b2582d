// SPDX-License-Identifier: Apache-2.0
/*
 * A pool of packets that wait for their time, or for later packets (held.h). wrap.c calls it under
 * its mutex. Its memory is allocated when the rules are set.
 */
#include "wrap/held.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A binary heap with the packet on top that is due first. */
struct heap {
    struct vb_held **entry;
    uint32_t count;
};

struct vb_held_pool {
    struct vb_held *entries;
    struct vb_held *free;
    uint32_t room, touched; /* entries from `touched` on were never used: no memory yet */
    uint32_t taken;
    uint64_t order;
    struct heap heap[VB_WRAP_DIRECTIONS];
    struct vb_held waiting; /* head of a ring of the packets that wait for later ones */
};

int vb_wrap_held_create(uint32_t room, struct vb_held_pool **pool)
{
    struct vb_held_pool *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    *pool = made;
    made->waiting.next = made->waiting.previous = &made->waiting;
    made->entries = calloc(room, sizeof(*made->entries));
    for (int i = 0; i < VB_WRAP_DIRECTIONS; ++i)
        made->heap[i].entry = calloc(room, sizeof(struct vb_held *));
    if (!made->entries || !made->heap[VB_WRAP_OUT].entry || !made->heap[VB_WRAP_IN].entry) {
        vb_wrap_held_destroy(made);
        return -ENOMEM;
    }
    made->room = room;
    return 0;
}

void vb_wrap_held_destroy(struct vb_held_pool *pool)
{
    if (!pool)
        return;
    for (int i = 0; i < VB_WRAP_DIRECTIONS; ++i)
        free(pool->heap[i].entry);
    free(pool->entries);
    free(pool);
}

struct vb_held *vb_wrap_held_take(struct vb_held_pool *pool)
{
    struct vb_held *held = pool->free;

    if (held)
        pool->free = held->next;
    else if (pool->touched < pool->room)
        held = &pool->entries[pool->touched++];
    else
        return NULL;
    held->pool = pool;
    held->next = held->previous = NULL;
    held->icrc_flip = 0;
    held->note[0] = '\0';
    ++pool->taken;
    return held;
}

void vb_wrap_held_give_back(struct vb_held *held)
{
    struct vb_held_pool *pool = held->pool;

    held->next = pool->free;
    pool->free = held;
    --pool->taken;
}

bool vb_wrap_held_is_empty(const struct vb_held_pool *pool)
{
    return pool->taken == 0;
}

/* ---- the heap ---- */

static bool held_is_before(const struct vb_held *a, const struct vb_held *b)
{
    return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static void held_place(struct heap *heap, struct vb_held *held, uint32_t at)
{
    heap->entry[at] = held;
    held->place = at;
}

static void held_sift_up(struct heap *heap, struct vb_held *held, uint32_t at)
{
    for (; at && held_is_before(held, heap->entry[(at - 1) / 2]); at = (at - 1) / 2)
        held_place(heap, heap->entry[(at - 1) / 2], at);
    held_place(heap, held, at);
}

static void held_sift_down(struct heap *heap, struct vb_held *held, uint32_t at)
{
    for (uint32_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && held_is_before(heap->entry[child + 1], heap->entry[child]))
            ++child;
        if (!held_is_before(heap->entry[child], held))
            break;
        held_place(heap, heap->entry[child], at);
    }
    held_place(heap, held, at);
}

/* ---- coming and going ---- */

static void stop_waiting(struct vb_held *held)
{
    if (!held->next)
        return;
    held->next->previous = held->previous;
    held->previous->next = held->next;
    held->next = held->previous = NULL;
}

void vb_wrap_held_push(struct vb_held *held, uint64_t due, uint32_t by)
{
    struct vb_held_pool *pool = held->pool;
    struct heap *heap = &pool->heap[held->direction];

    held->due = due;
    held->order = pool->order++;
    held->by = by;
    if (by) {
        held->previous = pool->waiting.previous;
        held->next = &pool->waiting;
        held->previous->next = held->next->previous = held;
    }
    held_sift_up(heap, held, heap->count++);
}

void vb_wrap_held_passed(struct vb_held_pool *pool, enum vb_wrap_direction direction,
                         uint32_t qp_num)
{
    struct vb_held *next;

    for (struct vb_held *held = pool->waiting.next; held != &pool->waiting; held = next) {
        next = held->next;
        if (held->direction != direction || held->qp_num != qp_num || --held->by)
            continue;
        stop_waiting(held);
        held->due = 0;
        held_sift_up(&pool->heap[direction], held, held->place);
    }
}

struct vb_held *vb_wrap_held_pop(struct vb_held_pool *pool, enum vb_wrap_direction direction,
                                 uint64_t now)
{
    struct heap *heap = &pool->heap[direction];
    struct vb_held *held = heap->count ? heap->entry[0] : NULL;

    if (!held || held->due > now)
        return NULL;
    stop_waiting(held);
    --heap->count;
    if (heap->count)
        held_sift_down(heap, heap->entry[heap->count], 0);
    return held;
}

uint64_t vb_wrap_held_deadline(const struct vb_held_pool *pool)
{
    uint64_t deadline = UINT64_MAX;

    for (int i = 0; i < VB_WRAP_DIRECTIONS; ++i)
        if (pool->heap[i].count && pool->heap[i].entry[0]->due < deadline)
            deadline = pool->heap[i].entry[0]->due;
    return deadline;
}

uint64_t vb_wrap_held_last(const struct vb_held_pool *pool, enum vb_wrap_direction direction)
{
    const struct heap *heap = &pool->heap[direction];
    uint64_t last = 0;

    for (uint32_t k = 0; k < heap->count; ++k)
        if (heap->entry[k]->due >= last)
            last = heap->entry[k]->due |
                   1; /* not 0, which says that none is held: released packets are due at 0 */
    return last;
}

void vb_wrap_held_release(struct vb_held_pool *pool)
{
    for (int i = 0; i < VB_WRAP_DIRECTIONS; ++i) {
        struct heap *heap = &pool->heap[i];
        uint32_t count = heap->count;

        /* all have one due time, so `order` keeps them in the order pushed */
        heap->count = 0;
        for (uint32_t k = 0; k < count; ++k) {
            heap->entry[k]->due = 0;
            held_sift_up(heap, heap->entry[k], heap->count++);
        }
    }
}
