// SPDX-License-Identifier: Apache-2.0
/*
 * A slab allocator for up to a million queue pairs: whole cache lines out of large blocks, and a
 * free list for each size. flow_hca.c uses it.
 */
#ifndef VB_SIM_SLAB_H
#define VB_SIM_SLAB_H

#include <stddef.h>
#include <stdint.h>

enum { VB_SIM_SLAB_LINES = 64 }; /* longer pieces come from posix_memalign */

struct vb_sim_slab {
    void *free[VB_SIM_SLAB_LINES + 1]; /* by number of lines */
    void *blocks;
    uint8_t *next; /* the unused rest of the last block */
    size_t left;
};

/* Returns zeroed memory that begins at a cache line, or NULL. */
void *vb_sim_slab_take(struct vb_sim_slab *slab, size_t bytes);
/* Gives memory back; `bytes` as in the call that took it. */
void vb_sim_slab_give(struct vb_sim_slab *slab, void *memory, size_t bytes);
/* All memory has been given back before. */
void vb_sim_slab_close(struct vb_sim_slab *slab);

#endif
