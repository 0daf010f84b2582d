// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks of memory that are cut into cache lines, with a free list for each number of lines.
 * flow_hca.c takes queue pairs from it. What is left at the end of a block is never used.
 */
#include "sim/slab.h"

#include <stdlib.h>
#include <string.h>

#include "hca/layout.h"

enum { BLOCK = 256 << 10 };

#if defined(__SANITIZE_ADDRESS__) /* so that it checks each piece */
#define LINES_MOST 0
#else
#define LINES_MOST VB_SIM_SLAB_LINES
#endif

/* A free piece, or the first line of a block. */
struct piece {
    struct piece *next;
};

static size_t lines_of(size_t bytes)
{
    return (bytes + VB_LINE - 1) / VB_LINE;
}

static void *slab_allocate(size_t bytes)
{
    void *made = NULL;

    return posix_memalign(&made, VB_LINE, bytes) ? NULL : made;
}

/* Without memory it changes nothing. */
static void add_block(struct vb_sim_slab *slab)
{
    struct piece *block = slab_allocate(BLOCK);

    if (!block)
        return;
    block->next = slab->blocks;
    slab->blocks = block;
    slab->next = (uint8_t *)block + VB_LINE;
    slab->left = BLOCK - VB_LINE;
}

/* The rest of the old block is smaller than the piece, and is not used any more. */
static void *slab_cut(struct vb_sim_slab *slab, size_t bytes)
{
    uint8_t *piece;

    if (slab->left < bytes)
        add_block(slab);
    if (slab->left < bytes)
        return NULL;
    piece = slab->next;
    slab->next += bytes;
    slab->left -= bytes;
    return piece;
}

void *vb_sim_slab_take(struct vb_sim_slab *slab, size_t bytes)
{
    size_t lines = lines_of(bytes);
    struct piece *taken;

    if (lines > LINES_MOST) {
        taken = slab_allocate(bytes);
    } else if (slab->free[lines]) {
        taken = slab->free[lines];
        slab->free[lines] = taken->next;
    } else {
        taken = slab_cut(slab, lines * VB_LINE);
    }
    return taken ? memset(taken, 0, bytes) : NULL;
}

void vb_sim_slab_give(struct vb_sim_slab *slab, void *memory, size_t bytes)
{
    size_t lines = lines_of(bytes);
    struct piece *piece = memory;

    if (lines > LINES_MOST) {
        free(memory);
        return;
    }
    piece->next = slab->free[lines];
    slab->free[lines] = piece;
}

void vb_sim_slab_close(struct vb_sim_slab *slab)
{
    struct piece *block = slab->blocks;

    while (block) {
        struct piece *next = block->next;

        free(block);
        block = next;
    }
}
