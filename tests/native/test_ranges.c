// SPDX-License-Identifier: Apache-2.0
/* Ranges by what they overlap, beside a list that is searched from end to end. */
#include <stdbool.h>

#include "check.h"
#include "hca/random.h"
#include "memory/ranges.h"

enum { RANGES = 300, ROUNDS = 3000, SPACE = 1 << 12, LONGEST = 200 };

struct bench {
    struct vb_random random;
    struct vb_range range[RANGES];
    bool present[RANGES];
    struct vb_range *root;
};

static uint64_t below(struct bench *bench, uint64_t limit)
{
    return vb_random_next(&bench->random) % limit;
}

/* Some begin at one address, some are the same. */
static void change(struct bench *bench)
{
    size_t i = below(bench, RANGES);
    struct vb_range *range = &bench->range[i];

    if (bench->present[i]) {
        vb_memory_ranges_remove(&bench->root, range);
    } else {
        range->low = below(bench, SPACE);
        range->high = range->low + 1 + below(bench, LONGEST);
        vb_memory_ranges_add(&bench->root, range);
    }
    bench->present[i] = !bench->present[i];
}

/* In order, each node with the highest end below it; returns how deep the tree is. */
static unsigned check_tree(const struct vb_range *node, const struct vb_range **last)
{
    uintptr_t highest;
    unsigned left, right;

    if (!node)
        return 0;
    left = check_tree(node->left, last);
    CHECK(!*last || (*last)->low < node->low || ((*last)->low == node->low && *last < node));
    *last = node;
    right = check_tree(node->right, last);
    highest = node->high;
    if (node->left && node->left->highest > highest)
        highest = node->left->highest;
    if (node->right && node->right->highest > highest)
        highest = node->right->highest;
    CHECK(node->highest == highest);
    return 1 + (left > right ? left : right);
}

struct found {
    struct bench *bench;
    unsigned times[RANGES];
};

static void count(struct vb_range *range, void *with)
{
    struct found *found = with;

    ++found->times[range - found->bench->range];
}

static void search(struct bench *bench)
{
    uintptr_t low = below(bench, SPACE), high = low + 1 + below(bench, LONGEST);
    struct found found = {.bench = bench};

    vb_memory_ranges_visit(bench->root, low, high, count, &found);
    for (size_t i = 0; i < RANGES; ++i) {
        const struct vb_range *range = &bench->range[i];

        CHECK_EQ(found.times[i], bench->present[i] && range->low < high && range->high > low);
    }
}

static void what_overlaps_is_found_once(void)
{
    static struct bench bench = {.random.key[0] = 1};

    for (int i = 0; i < ROUNDS; ++i) {
        const struct vb_range *last = NULL;

        change(&bench);
        CHECK(check_tree(bench.root, &last) < 40);
        search(&bench);
    }
    for (size_t i = 0; i < RANGES; ++i)
        if (bench.present[i])
            vb_memory_ranges_remove(&bench.root, &bench.range[i]);
    CHECK(!bench.root);
}

/* Also where each begins behind the one before, the tree is about as deep as a random one. */
static void ranges_in_order_make_no_list(void)
{
    enum { MANY = 4096 };
    static struct vb_range range[MANY];
    struct vb_range *root = NULL;
    const struct vb_range *last;

    for (unsigned i = 0; i < MANY; ++i) {
        range[i] = (struct vb_range){.low = 10 * i, .high = 10 * i + 5};
        vb_memory_ranges_add(&root, &range[i]);
    }
    last = NULL;
    CHECK(check_tree(root, &last) < 80);
    for (unsigned i = 0; i < MANY; i += 2)
        vb_memory_ranges_remove(&root, &range[i]);
    last = NULL;
    CHECK(check_tree(root, &last) < 80);
}

int main(void)
{
    RUN(what_overlaps_is_found_once);
    RUN(ranges_in_order_make_no_list);
    return 0;
}
