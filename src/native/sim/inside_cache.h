// SPDX-License-Identifier: Apache-2.0
/*
 * A cache of translations that forgets the least recently used one: the IOTLB of a root complex, or
 * an adapter's table of pages. inside.c looks up each page that a transfer touches.
 */
#ifndef VB_SIM_INSIDE_CACHE_H
#define VB_SIM_INSIDE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

struct vb_inside_cache {
    struct vb_inside_cached *slot; /* NULL: there is no cache, and every look-up is a hit */
    uint32_t *bucket;              /* the first slot of each, plus 1; 0: none */
    uint32_t entries, used;
    uint32_t buckets, mask;  /* `mask` of those that are used: more as slots are */
    uint32_t newest, oldest; /* slots */
    uint64_t hits, misses;
};

/* `entries` 0: none. -ENOMEM. */
int vb_sim_inside_cache_open(struct vb_inside_cache *cache, uint32_t entries);
void vb_sim_inside_cache_close(struct vb_inside_cache *cache);
/* True: the key is in the cache. Otherwise it is from now on, in place of the oldest. */
bool vb_sim_inside_cache_touch(struct vb_inside_cache *cache, uint64_t key);

#endif
