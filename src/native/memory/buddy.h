// SPDX-License-Identifier: Apache-2.0
#ifndef VB_MEMORY_BUDDY_H
#define VB_MEMORY_BUDDY_H

#include <stddef.h>

/*
 * Which pages of a range of 2^top pages are taken, in blocks of 2^order pages. A binary tree over
 * the range says for every node how many orders its largest free block lacks to the node's own:
 * 0 is entirely free, order + 1 has nothing free. So zeroed memory is an empty range, blocks
 * coalesce by themselves, and every call costs at most `top` steps. Not thread-safe.
 */
struct vb_buddy {
    unsigned char
        *lacks; /* VB_BUDDY_BYTES(top), zeroed; node 1 is the range, 2n and 2n+1 its halves */
    unsigned top;
};

#define VB_BUDDY_BYTES(top) ((size_t)2 << (top))
#define VB_BUDDY_NONE       ((size_t)-1)

/* The first page of a free block, now taken; VB_BUDDY_NONE if there is none of this order. */
size_t vb_memory_buddy_take(struct vb_buddy *buddy, unsigned order);
/* The order of the block that was taken at `page`, or -1. */
int vb_memory_buddy_order_at(const struct vb_buddy *buddy, size_t page);
/* These expect a block of this order at `page`. */
void vb_memory_buddy_give(struct vb_buddy *buddy, size_t page, unsigned order);
/* Expects a larger block there. */
void vb_memory_buddy_shrink(struct vb_buddy *buddy, size_t page, unsigned smaller);
/* False, and nothing is changed, if the pages that follow are not free or not of the same block. */
_Bool vb_memory_buddy_grow(struct vb_buddy *buddy, size_t page, unsigned order, unsigned larger);

#endif
