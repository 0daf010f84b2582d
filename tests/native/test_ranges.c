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
        change(&bench);
        search(&bench);
    }
    for (size_t i = 0; i < RANGES; ++i)
        if (bench.present[i])
            vb_memory_ranges_remove(&bench.root, &bench.range[i]);
    CHECK(!bench.root);
}

int main(void)
{
    RUN(what_overlaps_is_found_once);
    return 0;
}
