// SPDX-License-Identifier: Apache-2.0
/*
 * The memory of a world's packets, and the batches in which partitions exchange free ones. packet.h
 * has the rest of the pool, inline, and calls this.
 */
#include "event/packet.h"

#include <errno.h>
#include <sys/mman.h>

enum { MOST_ROOM = 1 << 27, LEAST_ROOM = 1 << 16 };

/* In vb_world_packets.full: the first packet of the first batch, below a number of changes. */
enum { CHANGES_SHIFT = 32 };

int vb_world_packets_open(struct vb_world_packets *packets)
{
    *packets = (struct vb_world_packets){.room = MOST_ROOM, .full = VB_WORLD_NONE};
    for (; packets->room >= LEAST_ROOM; packets->room /= 2) {
        void *made = mmap(NULL, packets->room * sizeof(*packets->packet), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (made == MAP_FAILED)
            continue;
        packets->packet = made;
        return 0;
    }
    return -ENOMEM;
}

void vb_world_packets_close(struct vb_world_packets *packets)
{
    if (packets->packet)
        munmap(packets->packet, packets->room * sizeof(*packets->packet));
}

/* A free batch is a list of packets; `at` of its first one names the next batch. */
static void batch_give(struct vb_world_packets *all, uint32_t first)
{
    uint64_t full = __atomic_load_n(&all->full, __ATOMIC_RELAXED), wanted;

    do {
        all->packet[first].at = (uint32_t)full;
        wanted = ((full >> CHANGES_SHIFT) + 1) << CHANGES_SHIFT | first;
    } while (!__atomic_compare_exchange_n(&all->full, &full, wanted, true, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
}

/* The number of changes differs if the batch was taken and given back meanwhile. */
static uint32_t batch_take(struct vb_world_packets *all)
{
    uint64_t full = __atomic_load_n(&all->full, __ATOMIC_ACQUIRE), wanted;

    do {
        if ((uint32_t)full == VB_WORLD_NONE)
            return VB_WORLD_NONE;
        wanted = ((full >> CHANGES_SHIFT) + 1) << CHANGES_SHIFT |
                 (uint32_t)__atomic_load_n(&all->packet[(uint32_t)full].at, __ATOMIC_RELAXED);
    } while (!__atomic_compare_exchange_n(&all->full, &full, wanted, true, __ATOMIC_ACQUIRE,
                                          __ATOMIC_ACQUIRE));
    return (uint32_t)full;
}

/* A batch of packets that were never taken. */
static uint32_t batch_make(struct vb_world_packets *all)
{
    uint32_t first = __atomic_fetch_add(&all->made, VB_WORLD_BATCH, __ATOMIC_RELAXED);

    if (first > all->room - VB_WORLD_BATCH) {
        __atomic_fetch_sub(&all->made, VB_WORLD_BATCH, __ATOMIC_RELAXED);
        return VB_WORLD_NONE;
    }
    for (uint32_t i = 0; i < VB_WORLD_BATCH; ++i)
        all->packet[first + i].next = i + 1 < VB_WORLD_BATCH ? first + i + 1 : VB_WORLD_NONE;
    return first;
}

void vb_world_pool_open(struct vb_world_pool *pool, struct vb_world_packets *packets)
{
    *pool = (struct vb_world_pool){
        .packet = packets->packet, .all = packets, .free = VB_WORLD_NONE, .spare = VB_WORLD_NONE};
}

static void pool_empty(struct vb_world_pool *pool, uint32_t first, struct vb_world_pool *heir)
{
    while (first != VB_WORLD_NONE) {
        uint32_t next = pool->packet[first].next;

        vb_world_pool_give(heir, first);
        ++heir->in_use; /* it was free here */
        first = next;
    }
}

void vb_world_pool_close(struct vb_world_pool *pool, struct vb_world_pool *heir)
{
    pool_empty(pool, pool->free, heir);
    pool_empty(pool, pool->spare, heir);
    heir->in_use += pool->in_use;
}

bool vb_world_pool_fill(struct vb_world_pool *pool)
{
    uint32_t batch = pool->spare;

    pool->spare = VB_WORLD_NONE;
    if (batch == VB_WORLD_NONE)
        batch = batch_take(pool->all);
    if (batch == VB_WORLD_NONE)
        batch = batch_make(pool->all);
    if (batch == VB_WORLD_NONE)
        return false;
    pool->free = batch;
    pool->count = VB_WORLD_BATCH;
    return true;
}

void vb_world_pool_put_aside(struct vb_world_pool *pool)
{
    if (pool->spare != VB_WORLD_NONE)
        batch_give(pool->all, pool->spare);
    pool->spare = pool->free;
    pool->free = VB_WORLD_NONE;
    pool->count = 0;
}
