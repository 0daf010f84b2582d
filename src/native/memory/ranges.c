// SPDX-License-Identifier: Apache-2.0
/* A treap of address ranges (ranges.h). */
#include "memory/ranges.h"

#include <stdbool.h>
#include <stddef.h>

/* A heap order that is as good as random: the node's address, mixed (the constant is 2^64 divided
 * by the golden ratio). */
static uint64_t priority(const struct vb_range *range)
{
    uint64_t mixed = (uint64_t)(uintptr_t)range * 0x9e3779b97f4a7c15u;

    return (mixed ^ mixed >> 32) * 0x9e3779b97f4a7c15u;
}

/* Ranges that begin at one address are in the order of their nodes. */
static bool ranges_is_before(const struct vb_range *a, const struct vb_range *b)
{
    return a->low != b->low ? a->low < b->low : (uintptr_t)a < (uintptr_t)b;
}

static void update(struct vb_range *node)
{
    node->highest = node->high;
    if (node->left && node->left->highest > node->highest)
        node->highest = node->left->highest;
    if (node->right && node->right->highest > node->highest)
        node->highest = node->right->highest;
}

/* Into those before `key` and the others. */
static void ranges_split(struct vb_range *node, const struct vb_range *key,
                         struct vb_range **before, struct vb_range **after)
{
    if (!node) {
        *before = *after = NULL;
    } else if (ranges_is_before(node, key)) {
        ranges_split(node->right, key, &node->right, after);
        *before = node;
        update(node);
    } else {
        ranges_split(node->left, key, before, &node->left);
        *after = node;
        update(node);
    }
}

/* All of `before` comes first. */
static struct vb_range *ranges_join(struct vb_range *before, struct vb_range *after)
{
    struct vb_range *top;

    if (!before || !after)
        return before ? before : after;
    if (priority(before) > priority(after)) {
        top = before;
        top->right = ranges_join(before->right, after);
    } else {
        top = after;
        top->left = ranges_join(before, after->left);
    }
    update(top);
    return top;
}

void vb_memory_ranges_add(struct vb_range **root, struct vb_range *range)
{
    struct vb_range *node = *root;

    if (node && priority(node) > priority(range)) {
        vb_memory_ranges_add(ranges_is_before(node, range) ? &node->right : &node->left, range);
        update(node);
        return;
    }
    ranges_split(node, range, &range->left, &range->right);
    update(range);
    *root = range;
}

void vb_memory_ranges_remove(struct vb_range **root, struct vb_range *range)
{
    struct vb_range *node = *root;

    if (node == range) {
        *root = ranges_join(node->left, node->right);
        return;
    }
    vb_memory_ranges_remove(ranges_is_before(node, range) ? &node->right : &node->left, range);
    update(node);
}

void vb_memory_ranges_visit(struct vb_range *root, uintptr_t low, uintptr_t high,
                            vb_range_visitor *each, void *with)
{
    if (!root || root->highest <= low)
        return;
    vb_memory_ranges_visit(root->left, low, high, each, with);
    if (root->low >= high)
        return;
    if (root->high > low)
        each(root, with);
    vb_memory_ranges_visit(root->right, low, high, each, with);
}
