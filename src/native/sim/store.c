// SPDX-License-Identifier: Apache-2.0
#include "sim/store.h"

#include <stdlib.h>
#include <string.h>

#include "hca/layout.h"

enum { BLOCK = 256 << 10 };

#if defined(__SANITIZE_ADDRESS__) /* it is to see each for itself */
#define LINES_MOST 0
#else
#define LINES_MOST VB_STORE_LINES
#endif

/* A free piece, or the first line of a block. */
struct piece {
    struct piece *next;
};

static size_t lines_of(size_t bytes)
{
    return (bytes + VB_LINE - 1) / VB_LINE;
}

static void *store_allocate(size_t bytes)
{
    void *made = NULL;

    return posix_memalign(&made, VB_LINE, bytes) ? NULL : made;
}

static int add_block(struct vb_store *store)
{
    struct piece *block = store_allocate(BLOCK);

    if (!block)
        return -1;
    block->next = store->blocks;
    store->blocks = block;
    store->next = (uint8_t *)block + VB_LINE;
    store->left = BLOCK - VB_LINE;
    return 0;
}

/* What is left of a block is less than a piece, and lost. */
static void *store_cut(struct vb_store *store, size_t bytes)
{
    uint8_t *piece;

    if (store->left < bytes && add_block(store))
        return NULL;
    piece = store->next;
    store->next += bytes;
    store->left -= bytes;
    return piece;
}

void *vb_sim_store_take(struct vb_store *store, size_t bytes)
{
    size_t lines = lines_of(bytes);
    struct piece *taken;

    if (lines > LINES_MOST) {
        taken = store_allocate(bytes);
    } else if (store->free[lines]) {
        taken = store->free[lines];
        store->free[lines] = taken->next;
    } else {
        taken = store_cut(store, lines * VB_LINE);
    }
    return taken ? memset(taken, 0, bytes) : NULL;
}

void vb_sim_store_give(struct vb_store *store, void *memory, size_t bytes)
{
    size_t lines = lines_of(bytes);
    struct piece *piece = memory;

    if (lines > LINES_MOST) {
        free(memory);
        return;
    }
    piece->next = store->free[lines];
    store->free[lines] = piece;
}

void vb_sim_store_close(struct vb_store *store)
{
    struct piece *block = store->blocks;

    while (block) {
        struct piece *next = block->next;

        free(block);
        block = next;
    }
}
