// SPDX-License-Identifier: Apache-2.0
#ifndef VB_MEMORY_KEPT_H
#define VB_MEMORY_KEPT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Freed blocks that keep their memory for a while. A page of shared memory costs a microsecond and
 * more when it is first touched, so a program that allocates and frees in a loop would spend its
 * time in page faults. The oldest go first. Not thread-safe.
 */
struct vb_kept_block {
    size_t page, pages; /* the first, and how many of them may not be zeros */
    unsigned order;
};

enum { VB_KEPT_SLOTS = 32 };

struct vb_kept {
    struct vb_kept_block blocks[VB_KEPT_SLOTS]; /* oldest first */
    unsigned count;
    size_t pages, limit;
};

/* Whether a block of this size is worth keeping. */
static inline bool vb_memory_kept_wants(const struct vb_kept *kept, size_t pages)
{
    return pages <= kept->limit / 2;
}

/* The oldest, if more than `allowed` pages are kept or no slot is free. */
bool vb_memory_kept_expel(struct vb_kept *kept, size_t allowed, struct vb_kept_block *out);
/* False if no slot is free. */
bool vb_memory_kept_push(struct vb_kept *kept, const struct vb_kept_block *block);
/* The youngest of this order. */
bool vb_memory_kept_take(struct vb_kept *kept, unsigned order, struct vb_kept_block *out);

#endif
