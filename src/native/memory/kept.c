// SPDX-License-Identifier: Apache-2.0
/* The list of freed blocks that still have their pages, the oldest first (kept.h). */
#include "kept.h"

#include <string.h>

static void remove_at(struct vb_kept *kept, unsigned index)
{
    struct vb_kept_block *at = &kept->blocks[index];

    kept->pages -= at->pages;
    kept->count--;
    memmove(at, at + 1, (kept->count - index) * sizeof *at);
}

bool vb_memory_kept_expel(struct vb_kept *kept, size_t allowed, struct vb_kept_block *out)
{
    if (kept->count == 0 || (kept->count < VB_KEPT_SLOTS && kept->pages <= allowed))
        return false;
    *out = kept->blocks[0];
    remove_at(kept, 0);
    return true;
}

bool vb_memory_kept_push(struct vb_kept *kept, const struct vb_kept_block *block)
{
    if (kept->count == VB_KEPT_SLOTS)
        return false;
    kept->blocks[kept->count++] = *block;
    kept->pages += block->pages;
    return true;
}

bool vb_memory_kept_take(struct vb_kept *kept, unsigned order, struct vb_kept_block *out)
{
    for (unsigned i = kept->count; i-- > 0;)
        if (kept->blocks[i].order == order) {
            *out = kept->blocks[i];
            remove_at(kept, i);
            return true;
        }
    return false;
}
