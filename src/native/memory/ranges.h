// SPDX-License-Identifier: Apache-2.0
/*
 * Ranges of addresses, found by what they overlap: a treap in the order of their first addresses,
 * in which each node knows the highest end in its subtree. The nodes belong to the caller, who also
 * locks. Adding, removing and a search that finds nothing take logarithmic time.
 */
#ifndef VB_MEMORY_RANGES_H
#define VB_MEMORY_RANGES_H

#include <stdint.h>

struct vb_range {
    uintptr_t low, high; /* [low, high), set by the caller */
    uintptr_t highest;   /* end in this subtree */
    struct vb_range *left, *right;
};

void vb_memory_ranges_add(struct vb_range **root, struct vb_range *range);
/* The range must be in the tree. */
void vb_memory_ranges_remove(struct vb_range **root, struct vb_range *range);

/* Calls `each` for every range that overlaps [low, high); it must not change the tree. */
typedef void vb_range_visitor(struct vb_range *range, void *with);
void vb_memory_ranges_visit(struct vb_range *root, uintptr_t low, uintptr_t high,
                            vb_range_visitor *each, void *with);

#endif
