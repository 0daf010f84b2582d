// SPDX-License-Identifier: Apache-2.0
/*
 * The simulation's agenda against a plain sort: by time, and within it by what the event is.
 * Packets that arrive at one time, at several ports, have another order at each time.
 */
#include "check.h"
#include "event/agenda.h"
#include "starved.h"

enum { ENTRIES = 20000 };

/* No arrival: entries of one time are in the order of the other bits. */
#define LATER (1ull << 60)

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_below(uint64_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 16) % limit;
}

struct added {
    uint64_t at, what;
};

static int compare(const void *a, const void *b)
{
    const struct added *left = a, *right = b;

    if (left->at != right->at)
        return left->at < right->at ? -1 : 1;
    return left->what < right->what ? -1 : 1;
}

static void leaves_in_order(void)
{
    static struct added sorted[ENTRIES];
    struct vb_world_agenda agenda = {0};
    struct vb_world_agenda_entry entry;

    for (uint64_t i = 0; i < ENTRIES; ++i) {
        sorted[i] =
            (struct added){random_below(i % 3 ? 50 : 1ull << 40), LATER | i * 7919 % ENTRIES};
        CHECK_EQ(vb_world_agenda_add(&agenda, sorted[i].at, sorted[i].what), 0);
    }
    qsort(sorted, ENTRIES, sizeof(sorted[0]), compare);
    for (int i = 0; i < ENTRIES; ++i) {
        CHECK(vb_world_agenda_take(&agenda, UINT64_MAX, &entry));
        CHECK_EQ(entry.at, sorted[i].at);
        CHECK_EQ(entry.what, sorted[i].what);
    }
    CHECK(!vb_world_agenda_take(&agenda, UINT64_MAX, &entry));
    CHECK_EQ(agenda.count, 0);
    vb_world_agenda_free(&agenda);
}

/*
 * Of the ports at which packets arrive at one time, each is taken at each place about as often as
 * the others, though they are always added in one order; what is no arrival comes after them.
 */
static void arrivals_of_one_time_take_turns(void)
{
    enum { PORTS = 5, TIMES = 10000 };
    static int taken[PORTS][PORTS];
    struct vb_world_agenda agenda = {0};
    struct vb_world_agenda_entry entry;

    for (uint64_t at = 0; at < TIMES * 81920ull; at += 81920) {
        CHECK_EQ(vb_world_agenda_add(&agenda, at, LATER), 0);
        for (uint64_t port = 0; port < PORTS; ++port)
            CHECK_EQ(vb_world_agenda_add(&agenda, at, port), 0);
        for (int i = 0; i < PORTS; ++i) {
            CHECK(vb_world_agenda_take(&agenda, at, &entry));
            CHECK(entry.what < PORTS);
            ++taken[entry.what][i];
        }
        CHECK(vb_world_agenda_take(&agenda, at, &entry));
        CHECK_EQ(entry.what, LATER);
    }
    for (int port = 0; port < PORTS; ++port)
        for (int place = 0; place < PORTS; ++place)
            CHECK(abs(taken[port][place] - TIMES / PORTS) < TIMES / PORTS / 10);
    vb_world_agenda_free(&agenda);
}

/*
 * How a world is divided must not change the order, so the order of adding does not: few and many
 * entries at one time and at the next ones, arrivals and others.
 */
static void the_order_of_adding_changes_nothing(void)
{
    enum { MOST = 10007 }; /* a prime */

    for (uint64_t times = 1; times < 2000; times *= 4) {
        struct vb_world_agenda agenda[2] = {{0}, {0}};
        struct vb_world_agenda_entry one, other, last = {0};

        for (uint64_t i = 0; i < MOST; ++i)
            for (uint64_t k = 0; k < 2; ++k) {
                uint64_t n = (1 + 7918 * k) * i % MOST;

                CHECK_EQ(
                    vb_world_agenda_add(&agenda[k], (1 << 14) + n % times, n % 5 ? n : LATER | n),
                    0);
            }
        for (int i = 0; i < MOST; ++i, last = one) {
            CHECK(vb_world_agenda_take(&agenda[0], UINT64_MAX, &one));
            CHECK(vb_world_agenda_take(&agenda[1], UINT64_MAX, &other));
            CHECK(one.at == other.at && one.what == other.what);
            CHECK(!i || vb_world_agenda_precedes(&last, &one));
        }
        vb_world_agenda_free(&agenda[0]);
        vb_world_agenda_free(&agenda[1]);
    }
}

/* As a simulation does it: what is taken leads to more, up to `most` steps later. */
static void grows_in_order(uint64_t most, uint64_t step)
{
    struct vb_world_agenda agenda = {0};
    struct vb_world_agenda_entry entry, last = {0};
    uint64_t number = 0, taken = 0;

    for (; number < 100; ++number)
        CHECK_EQ(vb_world_agenda_add(&agenda, random_below(1000), LATER | number), 0);
    while (vb_world_agenda_take(&agenda, UINT64_MAX, &entry)) {
        CHECK(entry.at >= last.at);
        if (taken && entry.at == last.at)
            CHECK(entry.what > last.what);
        last = entry;
        ++taken;
        for (uint64_t more = random_below(3); more && number < ENTRIES; --more, ++number)
            CHECK_EQ(vb_world_agenda_add(&agenda,
                                         entry.at + random_below(4) * random_below(most) * step,
                                         LATER | number),
                     0);
    }
    CHECK_EQ(taken, number);
    vb_world_agenda_free(&agenda);
}

/* Some of it at the same time; with few steps, most of it: within a slot, and across a few. */
static void stays_in_order_while_it_grows(void)
{
    grows_in_order(1u << 20, 1);
    grows_in_order(12, 1);
    grows_in_order(12, 1000);
    grows_in_order(12, 1u << 14);
    grows_in_order(12, 1u << 24);
}

static void an_entry_in_the_past_is_refused(void)
{
    struct vb_world_agenda agenda = {0};
    struct vb_world_agenda_entry entry;

    CHECK_EQ(vb_world_agenda_add(&agenda, 10, 1), 0);
    CHECK(vb_world_agenda_take(&agenda, UINT64_MAX, &entry));
    CHECK_EQ(vb_world_agenda_add(&agenda, 9, 2), -EINVAL);
    CHECK_EQ(vb_world_agenda_add(&agenda, 10, 3), 0);
    CHECK(vb_world_agenda_take(&agenda, UINT64_MAX, &entry));
    CHECK_EQ(entry.what, 3);
    vb_world_agenda_free(&agenda);
}

/* To stop at a limit is not to go there: what comes between it and the next entry still fits. */
static void a_limit_takes_nothing(void)
{
    struct vb_world_agenda agenda = {0};
    struct vb_world_agenda_entry entry;

    CHECK_EQ(vb_world_agenda_add(&agenda, 1000, 1), 0);
    CHECK_EQ(vb_world_agenda_add(&agenda, 1001, 2), 0);
    CHECK(!vb_world_agenda_take(&agenda, 999, &entry));
    CHECK_EQ(vb_world_agenda_add(&agenda, 500, 3), 0);
    CHECK(vb_world_agenda_take(&agenda, 1000, &entry));
    CHECK_EQ(entry.what, 3);
    CHECK(vb_world_agenda_take(&agenda, 1000, &entry));
    CHECK_EQ(entry.what, 1);
    CHECK(!vb_world_agenda_take(&agenda, 1000, &entry));
    CHECK_EQ(agenda.count, 1);
    vb_world_agenda_free(&agenda);
}

/* Adds and takes as a simulation does, at delays of every size, against a plain list; an allocation
 * may fail, and then the entry is not added. Returns whether one did. */
static bool all_come_in_spite(int allocation)
{
    enum { KEPT = 400 };
    static struct added kept[KEPT];
    struct vb_world_agenda agenda = {0};
    struct vb_world_agenda_entry entry;
    uint64_t now = 0, number = 0;
    int count = 0;
    bool failed;

    random_state = 88172645463325252ull;
    starved_after(allocation);
    for (int step = 0; step < 20000; ++step) {
        bool adds = count < KEPT && random_below(KEPT) >= (uint64_t)count;
        int first = 0;

        if (adds) {
            uint64_t at = now + random_below(1ull << random_below(26));

            if (vb_world_agenda_add(&agenda, at, LATER | number) == 0)
                kept[count++] = (struct added){at, LATER | number};
            ++number;
            CHECK_EQ(agenda.count, count);
            continue;
        }
        for (int i = 1; i < count; ++i)
            first = compare(&kept[i], &kept[first]) < 0 ? i : first;
        if (!count)
            continue;
        if (kept[first].at) /* a limit takes nothing, and changes nothing */
            CHECK(!vb_world_agenda_take(&agenda, kept[first].at - 1, &entry));
        CHECK(vb_world_agenda_take(&agenda, random_below(2) ? kept[first].at : UINT64_MAX, &entry));
        CHECK_EQ(entry.at, kept[first].at);
        CHECK_EQ(entry.what, kept[first].what);
        now = entry.at;
        kept[first] = kept[--count];
    }
    failed = starved_end();
    vb_world_agenda_free(&agenda);
    CHECK_EQ(starved_blocks(), 0);
    return failed;
}

static void without_memory_an_entry_is_not_added(void)
{
    int allocation = 0;

    while (all_come_in_spite(allocation))
        ++allocation;
    CHECK(allocation >= 10);
}

/* The time does not go on where a limit was reached: entries before the next one still fit. */
static void entries_fit_between_a_limit_and_the_next(void)
{
    static const uint64_t gaps[] = {100, 5000, 1 << 14, 1 << 20, 1ull << 24, 1ull << 40};

    for (size_t i = 0; i < sizeof(gaps) / sizeof(gaps[0]); ++i) {
        struct vb_world_agenda agenda = {0};
        struct vb_world_agenda_entry entry;
        uint64_t at = 3 * gaps[i];

        CHECK_EQ(vb_world_agenda_add(&agenda, at, LATER | 1), 0);
        CHECK(!vb_world_agenda_take(&agenda, at - 1, &entry));
        CHECK_EQ(vb_world_agenda_add(&agenda, at - 1, 2), 0);
        CHECK_EQ(vb_world_agenda_add(&agenda, gaps[i], 3), 0);
        CHECK_EQ(vb_world_agenda_add(&agenda, at, LATER | 4), 0);
        CHECK_EQ(vb_world_agenda_add(&agenda, 0, 5), 0);
        for (int k = 0; k < 5; ++k) {
            static const uint64_t order[] = {5, 3, 2, LATER | 1, LATER | 4};

            CHECK(vb_world_agenda_take(&agenda, at, &entry));
            CHECK_EQ(entry.what, order[k]);
        }
        CHECK_EQ(agenda.count, 0);
        vb_world_agenda_free(&agenda);
    }
}

/* ---- what is prefetched ---------------------------------------------------------------------- */

static struct {
    uint64_t near[1000], nearer[1000];
    uint32_t nears, nearers;
} seen;

static void note_near(const void *context, uint64_t near, uint64_t nearer)
{
    CHECK(context == &seen);
    if (near != VB_AGENDA_NOTHING)
        seen.near[seen.nears++] = near;
    if (nearer != VB_AGENDA_NOTHING)
        seen.nearer[seen.nearers++] = nearer;
}

/* All entries of a slot are reported before they are taken, and all but the first ones again. */
static void an_entry_is_near_before_it_is_taken(void)
{
    static char array[1000];
    struct vb_world_agenda agenda = {0};
    struct vb_world_agenda_entry entry;

    vb_world_agenda_watch(&agenda, note_near, &seen);
    vb_world_agenda_hint(&agenda, array, 1);
    for (uint64_t i = 0; i < 1000; ++i)
        CHECK_EQ(vb_world_agenda_add(&agenda, (1 << 14) + i * 8, i), 0);
    for (uint32_t i = 0; i < 1000; ++i) {
        CHECK(vb_world_agenda_take(&agenda, UINT64_MAX, &entry));
        CHECK_EQ(entry.what, i);
        CHECK_EQ(seen.nears, i + VB_AGENDA_NEAR < 1000 ? i + VB_AGENDA_NEAR + 1 : 1000);
        CHECK_EQ(seen.nearers, i + VB_AGENDA_NEARER < 1000 ? i + 1 : 1000 - VB_AGENDA_NEARER);
    }
    for (uint32_t i = 0; i < seen.nears; ++i)
        CHECK_EQ(seen.near[i], i);
    for (uint32_t i = 0; i < seen.nearers; ++i)
        CHECK_EQ(seen.nearer[i], i + VB_AGENDA_NEARER);
    vb_world_agenda_free(&agenda);
}

int main(void)
{
    RUN(leaves_in_order);
    RUN(arrivals_of_one_time_take_turns);
    RUN(the_order_of_adding_changes_nothing);
    RUN(stays_in_order_while_it_grows);
    RUN(an_entry_in_the_past_is_refused);
    RUN(a_limit_takes_nothing);
    RUN(entries_fit_between_a_limit_and_the_next);
    RUN(without_memory_an_entry_is_not_added);
    RUN(an_entry_is_near_before_it_is_taken);
    return 0;
}
