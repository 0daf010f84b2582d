// SPDX-License-Identifier: Apache-2.0
/*
 * Memory for a million queue pairs: whole cache lines out of large blocks, so that none of it is
 * lost between them, and a list for each size of those that are free again.
 */
#ifndef VB_SIM_SLAB_H
#define VB_SIM_SLAB_H

#include <stddef.h>
#include <stdint.h>

enum { VB_SIM_SLAB_LINES = 64 }; /* what is longer is the allocator's */

struct vb_sim_slab {
    void *free[VB_SIM_SLAB_LINES + 1]; /* by lines */
    void *blocks;
    uint8_t *next; /* of the last block, what nobody has had */
    size_t left;
};

/* Zeros from a cache line's start on, or NULL. */
void *vb_sim_slab_take(struct vb_sim_slab *slab, size_t bytes);
/* `bytes` as it was taken with. */
void vb_sim_slab_give(struct vb_sim_slab *slab, void *memory, size_t bytes);
/* All that was taken has been given back. */
void vb_sim_slab_close(struct vb_sim_slab *slab);

#endif
