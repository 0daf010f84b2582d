// SPDX-License-Identifier: Apache-2.0
/* When a thread that polls in vain yields (hca/yield.h), by a clock that the test sets. */
#include "hca/yield.h"

#include "check.h"

enum { POLL_NS = 10, PERIOD_NS = VB_YIELD_PERIOD * POLL_NS };

static struct vb_yield yield;
static uint64_t now = 1000000000;

static bool is_due_after_a_period(uint64_t takes)
{
    now += takes;
    yield.polls += VB_YIELD_PERIOD;
    return vb_yield_due(&yield, now) != VB_YIELD_NOT;
}

/* Periods of polls in vain until a yield is due, at most `most`. */
static int periods(uint64_t each, int most)
{
    int count = 0;

    while (count < most && !is_due_after_a_period(each))
        ++count;
    return count;
}

static void yields_for(uint64_t took)
{
    vb_yielded(&yield, now < yield.naps_until ? VB_YIELD_NAP : VB_YIELD_TURN, now, now + took);
    now += took;
}

static void a_yield_is_due_after_some_time(void)
{
    CHECK_EQ(periods(PERIOD_NS, 1000), VB_YIELD_AFTER_NS / PERIOD_NS); /* the first is the start */
    yields_for(300); /* nobody else wanted the processor */
    CHECK_EQ(periods(PERIOD_NS, 1000), VB_YIELD_AFTER_NS / PERIOD_NS - 1);
}

static void completions_in_between_put_it_off(void)
{
    yield = (struct vb_yield){0};
    for (int i = 0; i < 1000; ++i) {
        yield.polls = 0;
        CHECK_EQ(periods(PERIOD_NS, 10), 10);
    }
}

static void a_neighbour_that_comes_back_is_yielded_to_at_once(void)
{
    yields_for(5000);
    yield.polls = 0;
    CHECK_EQ(periods(PERIOD_NS, 1000), 0);
    yields_for(5000);
    CHECK_EQ(periods(PERIOD_NS, 1000), 0);
    yields_for(300); /* it has gone */
    CHECK_EQ(periods(PERIOD_NS, 10), 10);
}

static void who_has_other_work_keeps_the_processor(void)
{
    yields_for(5000);
    CHECK(!is_due_after_a_period(VB_YIELD_APART_NS + 1));
    CHECK_EQ(periods(VB_YIELD_APART_NS + 1, 1000), 1000);
    CHECK(periods(PERIOD_NS, 1000) < 1000);
}

static void beside_a_neighbour_that_computes_it_naps(void)
{
    uint64_t back;
    int naps = 0;

    yields_for(3000000);
    for (back = now; periods(PERIOD_NS, 1000) < 1000 && now < yield.naps_until; ++naps) {
        CHECK_EQ(vb_yield_due(&yield, now), VB_YIELD_NAP);
        yields_for(55000);
    }
    CHECK(naps > 100);
    CHECK(now - back <= VB_YIELD_NAPS_NS + 55000 + VB_YIELD_AFTER_NS + PERIOD_NS);
    CHECK_EQ(vb_yield_due(&yield, now), VB_YIELD_TURN); /* is it still there? */
    yields_for(300);
    CHECK_EQ(periods(PERIOD_NS, 10), 10);
}

int main(void)
{
    RUN(a_yield_is_due_after_some_time);
    RUN(completions_in_between_put_it_off);
    RUN(a_neighbour_that_comes_back_is_yielded_to_at_once);
    RUN(who_has_other_work_keeps_the_processor);
    RUN(beside_a_neighbour_that_computes_it_naps);
    return 0;
}
