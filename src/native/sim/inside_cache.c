// SPDX-License-Identifier: Apache-2.0
/*
 * A cache of translations with the least recently used one replaced: a table of buckets, and all
 * slots in a ring from the newest to the oldest. inside.c calls it. Nothing is allocated after it
 * was opened.
 */
#include "sim/inside_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "event/mix.h"

enum { FIRST_BUCKETS = 64 }; /* a power of two */

struct vb_inside_cached {
    uint64_t key;
    uint32_t newer, older; /* slots of the ring */
    uint32_t chain;        /* the next slot of the bucket, plus 1 */
};

int vb_sim_inside_cache_open(struct vb_inside_cache *cache, uint32_t entries)
{
    uint32_t buckets = 1;

    *cache = (struct vb_inside_cache){.entries = entries};
    if (!entries)
        return 0;
    while (buckets < entries)
        buckets *= 2;
    cache->buckets = buckets;
    cache->mask = (buckets < FIRST_BUCKETS ? buckets : FIRST_BUCKETS) - 1;
    cache->slot = calloc(entries, sizeof(*cache->slot));
    cache->bucket = calloc(buckets, sizeof(*cache->bucket));
    return cache->slot && cache->bucket ? 0 : -ENOMEM;
}

void vb_sim_inside_cache_close(struct vb_inside_cache *cache)
{
    free(cache->slot);
    free(cache->bucket);
}

static uint32_t *cache_bucket(const struct vb_inside_cache *cache, uint64_t key)
{
    return &cache->bucket[vb_world_mix(key) & cache->mask];
}

static void cache_unlink(struct vb_inside_cache *cache, uint32_t slot)
{
    struct vb_inside_cached *at = &cache->slot[slot];

    cache->slot[at->newer].older = at->older;
    cache->slot[at->older].newer = at->newer;
    if (cache->oldest == slot)
        cache->oldest = at->newer;
}

/* Makes it the newest of a ring that has others, or is not empty. */
static void cache_link(struct vb_inside_cache *cache, uint32_t slot)
{
    struct vb_inside_cached *at = &cache->slot[slot];

    at->older = cache->newest;
    at->newer = cache->oldest;
    cache->slot[cache->newest].newer = slot;
    cache->slot[cache->oldest].older = slot;
    cache->newest = slot;
}

static void cache_forget(struct vb_inside_cache *cache, uint32_t slot)
{
    uint32_t *at = cache_bucket(cache, cache->slot[slot].key);

    while (*at != slot + 1)
        at = &cache->slot[*at - 1].chain;
    *at = cache->slot[slot].chain;
}

static void cache_chain(struct vb_inside_cache *cache, uint32_t slot)
{
    uint32_t *bucket = cache_bucket(cache, cache->slot[slot].key);

    cache->slot[slot].chain = *bucket;
    *bucket = slot + 1;
}

/* Twice as many buckets, once all have a slot on average: a table as large as the cache may become
 * would be read from memory that is far from the processor, however few pages are used. */
static void cache_grow(struct vb_inside_cache *cache)
{
    cache->mask = cache->mask * 2 + 1;
    memset(cache->bucket, 0, (cache->mask + 1) * sizeof(*cache->bucket));
    for (uint32_t slot = 0; slot < cache->used; ++slot)
        cache_chain(cache, slot);
}

/* A slot for another key, that is not in the ring. */
static uint32_t cache_free_slot(struct vb_inside_cache *cache)
{
    uint32_t slot = cache->oldest;

    if (cache->used < cache->entries) {
        if (cache->used > cache->mask && cache->mask + 1 < cache->buckets)
            cache_grow(cache);
        return cache->used++;
    }
    cache_forget(cache, slot);
    cache_unlink(cache, slot);
    return slot;
}

bool vb_sim_inside_cache_touch(struct vb_inside_cache *cache, uint64_t key)
{
    uint32_t slot;

    if (!cache->slot)
        return true;
    for (slot = *cache_bucket(cache, key); slot; slot = cache->slot[slot - 1].chain)
        if (cache->slot[slot - 1].key == key) {
            ++cache->hits;
            if (cache->newest != slot - 1) {
                cache_unlink(cache, slot - 1);
                cache_link(cache, slot - 1);
            }
            return true;
        }
    ++cache->misses;
    slot = cache_free_slot(cache);
    if (cache->used == 1) /* the ring of one */
        cache->newest = cache->oldest = cache->slot[slot].newer = cache->slot[slot].older = slot;
    else
        cache_link(cache, slot);
    cache->slot[slot].key = key;
    cache_chain(cache, slot);
    return false;
}
