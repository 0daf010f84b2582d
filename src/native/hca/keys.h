// SPDX-License-Identifier: Apache-2.0
/*
 * Which entries of the region table are in use. mr.c takes and returns entries under the adapter's
 * mutex. A new region gets a random entry of the window: the first entries of the table, at least
 * 2^16 of them and more than twice as many as there are regions. So the pages of the table that are
 * in use have at most 4 MiB, or 256 bytes for each of the most regions that existed at one time.
 *
 * All 32 bits of a key are random, whatever the window. The upper 24 bits end with the entry's
 * index, in as many bits as the window has when the entry is taken; mr.c draws the bits before it
 * so that no two entries share all 24, and the lower 8 bits. A look-up tries the present window and
 * then the smaller ones that were used before. Half of the table stays free, so that even in the
 * largest window an entry can be found whose 24 bits no other has.
 */
#ifndef VB_HCA_KEYS_H
#define VB_HCA_KEYS_H

#include <stdint.h>

#include "hca/random.h"

struct vb_keys {
    uint64_t *taken;  /* a bit for each entry below `window` */
    uint64_t *full;   /* a bit for each word of `taken` that has no free entry */
    uint32_t window;  /* entries, a power of two; 0 before the first region */
    uint32_t count;   /* entries in use */
    uint32_t entries; /* entries of the whole table, a power of two */
};

/* Takes a free entry, never 0. -ENOMEM: no entry or no memory is left. */
int vb_keys_take(struct vb_keys *keys, struct vb_random *random, uint32_t *index);
void vb_keys_return(struct vb_keys *keys, uint32_t index);
/* The first entry in use from `index` on, or the window where there is none. */
uint32_t vb_keys_next(const struct vb_keys *keys, uint32_t index);
void vb_keys_free(struct vb_keys *keys);

#endif
