// SPDX-License-Identifier: Apache-2.0
/* A buddy allocator's tree (buddy.h). */
#include "buddy.h"

#include <stdbool.h>

static size_t node_of(const struct vb_buddy *buddy, size_t page, unsigned order)
{
    return (((size_t)1 << buddy->top) + page) >> order;
}

/* The order of the largest free block under a node of order `order`; -1 if there is none. */
static int largest_free(const struct vb_buddy *buddy, size_t node, unsigned order)
{
    return (int)order - buddy->lacks[node];
}

static void set_largest_free(struct vb_buddy *buddy, size_t node, unsigned order, int largest)
{
    buddy->lacks[node] = (unsigned char)((int)order - largest);
}

static void update_above(struct vb_buddy *buddy, size_t node, unsigned order)
{
    while (node > 1) {
        node /= 2;
        int left = largest_free(buddy, 2 * node, order),
            right = largest_free(buddy, 2 * node + 1, order);
        bool both_free = left == (int)order && right == (int)order;

        order++;
        set_largest_free(buddy, node, order, both_free ? (int)order : left > right ? left : right);
    }
}

/* The half whose largest free block fits `wanted` more tightly, so that large blocks survive. */
static size_t tighter_half(const struct vb_buddy *buddy, size_t node, unsigned order, int wanted)
{
    int left = largest_free(buddy, 2 * node, order),
        right = largest_free(buddy, 2 * node + 1, order);

    if (left < wanted)
        return 2 * node + 1;
    return right >= wanted && right < left ? 2 * node + 1 : 2 * node;
}

size_t vb_memory_buddy_take(struct vb_buddy *buddy, unsigned order)
{
    size_t node = 1;

    if (order > buddy->top || largest_free(buddy, node, buddy->top) < (int)order)
        return VB_BUDDY_NONE;
    for (unsigned at = buddy->top; at > order; at--)
        node = tighter_half(buddy, node, at - 1, (int)order);
    set_largest_free(buddy, node, order, -1);
    update_above(buddy, node, order);
    return (node << order) - ((size_t)1 << buddy->top);
}

int vb_memory_buddy_order_at(const struct vb_buddy *buddy, size_t page)
{
    unsigned order = 0;

    /* Below a block that was taken whole, every node still says that it is free. */
    while (order < buddy->top && buddy->lacks[node_of(buddy, page, order)] == 0)
        order++;
    bool taken = largest_free(buddy, node_of(buddy, page, order), order) == -1;
    return taken && page % ((size_t)1 << order) == 0 ? (int)order : -1;
}

void vb_memory_buddy_give(struct vb_buddy *buddy, size_t page, unsigned order)
{
    size_t node = node_of(buddy, page, order);

    buddy->lacks[node] = 0;
    update_above(buddy, node, order);
}

void vb_memory_buddy_shrink(struct vb_buddy *buddy, size_t page, unsigned smaller)
{
    size_t node = node_of(buddy, page, smaller);
    set_largest_free(buddy, node, smaller, -1);
    update_above(buddy, node, smaller);
}

_Bool vb_memory_buddy_grow(struct vb_buddy *buddy, size_t page, unsigned order, unsigned larger)
{
    if (larger > buddy->top || page % ((size_t)1 << larger) != 0)
        return false;
    for (unsigned at = order; at < larger; at++)
        if (buddy->lacks[node_of(buddy, page, at) + 1] != 0)
            return false;
    for (unsigned at = order; at < larger; at++)
        buddy->lacks[node_of(buddy, page, at)] = 0;
    set_largest_free(buddy, node_of(buddy, page, larger), larger, -1);
    update_above(buddy, node_of(buddy, page, larger), larger);
    return true;
}
