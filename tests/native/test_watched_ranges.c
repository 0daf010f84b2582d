// SPDX-License-Identifier: Apache-2.0
/*
 * Who hears of changes to mappings (memory/watch.h), and what the map says of where ranges are,
 * beside a search among the ranges themselves.
 */
#include "memory/watch.h"

#include "check.h"

/* ---- who hears of changes -------------------------------------------------------------------- */

enum { LISTENERS = 3, LOW = 64 << 20 };

static struct listener {
    struct vb_watcher watcher;
    bool concerned;
    int heard;
    uintptr_t at;
    size_t n;
    enum vb_mapping change;
} listeners[LISTENERS];

static bool listen(struct vb_watcher *watcher, uintptr_t at, size_t n, enum vb_mapping change)
{
    struct listener *of = (struct listener *)watcher;

    ++of->heard;
    of->at = at;
    of->n = n;
    of->change = change;
    errno = EDOM;
    return of->concerned;
}

static void expect_heard(bool is_there, uintptr_t at, size_t n, unsigned who)
{
    for (int answer = 0; answer < 1 << LISTENERS; ++answer) {
        bool concerned = false;

        for (int i = 0; i < LISTENERS; ++i) {
            listeners[i].heard = 0;
            listeners[i].concerned = answer >> i & 1;
            concerned |= is_there && (answer & who) >> i & 1;
        }
        errno = 7;
        CHECK_EQ(vb_memory_watch_change(at, n, VB_MAPPING_LOST), concerned);
        CHECK_EQ(errno, 7);
        for (int i = 0; i < LISTENERS; ++i) {
            CHECK_EQ(listeners[i].heard, is_there && (who >> i & 1));
            if (!listeners[i].heard)
                continue;
            CHECK_EQ(listeners[i].at, at);
            CHECK_EQ(listeners[i].n, n);
            CHECK_EQ(listeners[i].change, VB_MAPPING_LOST);
        }
    }
}

/* All of them, and of no change below or above all ranges. */
static void changes_are_heard_where_ranges_are(void)
{
    const uintptr_t high = LOW + 3000;

    for (int i = 0; i < LISTENERS; ++i) {
        listeners[i].watcher.changed = listen;
        vb_memory_watch_add(&listeners[i].watcher);
    }
    expect_heard(false, LOW, 1, 7); /* there is no range yet */
    vb_memory_watch_range(LOW + 2000, 1000);
    vb_memory_watch_range(LOW, 10);
    vb_memory_watch_range(LOW + 100, 10);
    expect_heard(true, LOW, 1, 7);
    expect_heard(true, high - 1, 1, 7);
    expect_heard(true, LOW + 1000, 1, 7);
    expect_heard(true, LOW - 5, 6, 7);
    expect_heard(false, LOW - 5, 5, 7);
    expect_heard(false, high, 1, 7);
    expect_heard(true, 5, SIZE_MAX - 2, 7); /* to the end of the addresses */
    vb_memory_watch_remove(&listeners[1].watcher);
    expect_heard(true, LOW, 1, 5);
    vb_memory_watch_remove(&listeners[1].watcher);
    vb_memory_watch_remove(&listeners[2].watcher);
    expect_heard(true, LOW, 1, 1);
    vb_memory_watch_remove(&listeners[0].watcher);
    expect_heard(true, LOW, 1, 0);
    vb_memory_watch_add(&listeners[1].watcher);
    vb_memory_watch_add(&listeners[0].watcher);
    vb_memory_watch_remove(&listeners[1].watcher);
    expect_heard(true, LOW, 1, 1);
    vb_memory_watch_forget();
    expect_heard(true, LOW, 1, 0);
}

/* ---- where ranges may be --------------------------------------------------------------------- */

static uintptr_t drawn(uintptr_t below)
{
    static uint64_t seed = 99;

    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

enum { RANGES = 6, LOWEST = 512 << 20 };

#define UNIT       VB_WATCH_UNIT
#define PAGE_BYTES VB_WATCH_PAGE

static struct {
    uintptr_t low, high; /* both in the range */
} ranges[RANGES];

/* The units of a range that the map has: of its first page and its last one. */
static bool has_unit(int i, uintptr_t unit)
{
    uintptr_t low = ranges[i].low, high = ranges[i].high, page = unit * UNIT / PAGE_BYTES;

    return unit >= low / UNIT && unit <= high / UNIT &&
           (page == low / PAGE_BYTES || page == high / PAGE_BYTES);
}

/* May a block hold a range? Its own pages are those between its first and last one. */
static bool may_hold(uintptr_t low, uintptr_t high)
{
    for (int i = 0; i < RANGES; ++i) {
        for (uintptr_t page = low / PAGE_BYTES + 1; page < high / PAGE_BYTES; ++page)
            if (page >= ranges[i].low / PAGE_BYTES && page <= ranges[i].high / PAGE_BYTES)
                return true;
        for (uintptr_t unit = low / UNIT; unit <= high / UNIT; ++unit) {
            uintptr_t page = unit * UNIT / PAGE_BYTES;

            if ((page == low / PAGE_BYTES || page == high / PAGE_BYTES) && has_unit(i, unit))
                return true;
        }
    }
    return false;
}

static void a_block_that_holds_a_range_is_known(void)
{
    const struct vb_watch_map *map = vb_memory_watch_map();
    int held = 0, free = 0;

    for (int i = 0; i < RANGES; ++i) {
        uintptr_t n = 1 + drawn(i % 2 ? 100 : 4 * PAGE_BYTES);

        ranges[i].low = LOWEST + (uintptr_t)i * 7 * PAGE_BYTES + drawn(2 * PAGE_BYTES);
        ranges[i].high = ranges[i].low + n - 1;
        vb_memory_watch_range(ranges[i].low, n);
    }
    vb_memory_watch_range(LOWEST - 20 * PAGE_BYTES, 0); /* nothing is there */
    for (int i = 0; i < 40000; ++i) {
        uintptr_t at = LOWEST - 2 * PAGE_BYTES + drawn((RANGES * 7 + 4) * PAGE_BYTES);
        size_t n = 1 + drawn(i % 3 == 0 ? 200 : i % 3 == 1 ? 2 * PAGE_BYTES : 9 * PAGE_BYTES);
        bool holds = may_hold(at, at + n - 1);

        CHECK_EQ(vb_memory_watch_may_meet(map, at, n), holds);
        *(holds ? &held : &free) += 1;
    }
    CHECK(held > 1000 && free > 1000);
    CHECK(!vb_memory_watch_may_meet(map, LOWEST - 20 * PAGE_BYTES, 10));
}

/* Of a very long range the beginning is in the map. */
static void a_long_range_is_known_by_its_beginning(void)
{
    const struct vb_watch_map *map = vb_memory_watch_map();
    const uintptr_t at = (uintptr_t)1 << 30;

    vb_memory_watch_range(at, VB_WATCH_LONGEST + 100 * PAGE_BYTES);
    CHECK(vb_memory_watch_may_meet(map, at, 16));
    CHECK(vb_memory_watch_may_meet(map, at + VB_WATCH_LONGEST - 1, 1));
    CHECK(!vb_memory_watch_may_meet(map, at + VB_WATCH_LONGEST, 50 * PAGE_BYTES));
    CHECK(vb_memory_watch_may_meet(map, at + VB_WATCH_LONGEST, VB_WATCH_LONGEST + 1));
}

int main(void)
{
    RUN(changes_are_heard_where_ranges_are);
    RUN(a_block_that_holds_a_range_is_known);
    RUN(a_long_range_is_known_by_its_beginning);
    return 0;
}
