// SPDX-License-Identifier: Apache-2.0
/*
 * Which entries of the region table are in use. A new region gets a random one within a window of
 * at least 2^16 entries, and of more than twice as many as there are regions. So the table's pages
 * in use are at most 4 MiB, or 256 bytes for each of the most regions that there were at a time; a
 * bit and a 64th for each entry come to that.
 *
 * A key has 32 bits, and all of them are random, whatever the window: the lowest of its upper 24
 * bits are the entry's index, as many as the window has when the entry is taken, and the rest of
 * the 24 are drawn besides (mr.c), so that no two entries share all 24. The lower 8 bits are drawn,
 * too. A look-up tries the present window, and then the smaller ones that there have been. Half of
 * the table stays free, so that in the largest window an index without another entry's name is
 * left.
 */
#ifndef VB_HCA_KEYS_H
#define VB_HCA_KEYS_H

#include <stdint.h>

#include "hca/random.h"

struct vb_keys {
    uint64_t *taken; /* a bit for each entry below `window` */
    uint64_t *full;  /* a bit for each word of those */
    uint32_t window; /* a power of two, or 0 before the first */
    uint32_t count;
    uint32_t entries; /* of the whole table, a power of two */
};

/* An entry that is free, never 0. -ENOMEM: there is none left, or no memory. */
int vb_keys_take(struct vb_keys *keys, struct vb_random *random, uint32_t *index);
void vb_keys_return(struct vb_keys *keys, uint32_t index);
/* The first entry in use from `index` on, or the window where there is none. */
uint32_t vb_keys_next(const struct vb_keys *keys, uint32_t index);
void vb_keys_free(struct vb_keys *keys);

#endif
