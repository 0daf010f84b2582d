// SPDX-License-Identifier: Apache-2.0
/* The simulation's agenda against a plain sort: by time, and in the order of coming within it. */
#include "check.h"
#include "event/agenda.h"
#include "starved.h"

enum { ENTRIES = 20000 };

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

static void leaves_in_order_of_time_and_coming(void)
{
    static struct added sorted[ENTRIES];
    struct vb_world_agenda agenda = {0};
    struct vb_world_agenda_entry entry;

    for (uint64_t i = 0; i < ENTRIES; ++i) {
        sorted[i] = (struct added){random_below(i % 3 ? 50 : 1ull << 40), i};
        CHECK_EQ(vb_world_agenda_add(&agenda, sorted[i].at, i), 0);
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

/* As a simulation does it: what is taken leads to more, some of it at the same time. */
static void stays_in_order_while_it_grows(void)
{
    struct vb_world_agenda agenda = {0};
    struct vb_world_agenda_entry entry, last = {0};
    uint64_t number = 0, taken = 0;

    for (; number < 100; ++number)
        CHECK_EQ(vb_world_agenda_add(&agenda, random_below(1000), number), 0);
    while (vb_world_agenda_take(&agenda, UINT64_MAX, &entry)) {
        CHECK(entry.at >= last.at);
        if (taken && entry.at == last.at)
            CHECK(entry.what > last.what);
        last = entry;
        ++taken;
        for (uint64_t more = random_below(3); more && number < ENTRIES; --more, ++number)
            CHECK_EQ(vb_world_agenda_add(
                         &agenda, entry.at + random_below(4) * random_below(1u << 20), number),
                     0);
    }
    CHECK_EQ(taken, number);
    vb_world_agenda_free(&agenda);
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

/* Takes all entries, in their order, though an allocation fails; returns whether one did. */
static bool all_come_in_spite(int allocation)
{
    struct added sorted[500];
    struct vb_world_agenda agenda = {0};
    struct vb_world_agenda_entry entry;
    bool failed = false;
    int taken = 0;

    random_state = 88172645463325252ull;
    for (uint64_t i = 0; i < 500; ++i) {
        sorted[i] = (struct added){random_below(i % 2 ? 40 : 1u << 20), i};
        CHECK_EQ(vb_world_agenda_add(&agenda, sorted[i].at, i), 0);
    }
    qsort(sorted, 500, sizeof(sorted[0]), compare);
    starved_after(allocation);
    while (taken < 500) {
        if (!vb_world_agenda_take(&agenda, UINT64_MAX, &entry)) {
            CHECK(agenda.starved && !failed);
            agenda.starved = false;
            failed = true;
            continue;
        }
        CHECK_EQ(entry.at, sorted[taken].at);
        CHECK_EQ(entry.what, sorted[taken].what);
        ++taken;
    }
    CHECK_EQ(starved_end(), failed);
    CHECK_EQ(agenda.count, 0);
    vb_world_agenda_free(&agenda);
    return failed;
}

static void without_memory_nothing_is_moved(void)
{
    int allocation = 0;

    while (all_come_in_spite(allocation))
        ++allocation;
    CHECK(allocation >= 3);
}

int main(void)
{
    RUN(leaves_in_order_of_time_and_coming);
    RUN(stays_in_order_while_it_grows);
    RUN(an_entry_in_the_past_is_refused);
    RUN(a_limit_takes_nothing);
    RUN(without_memory_nothing_is_moved);
    return 0;
}
