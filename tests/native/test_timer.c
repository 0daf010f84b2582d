// SPDX-License-Identifier: Apache-2.0
/* Timers against a plain search: each ends once, at its time, in order, however often it is set. */
#include "check.h"
#include "transport/timer.h"

enum { TIMERS = 50, STEPS = 20000 };

static uint64_t random_state = 88172645463325252ull;

static uint32_t random_below(uint32_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32) % limit;
}

static uint64_t first_due(const uint64_t *due)
{
    uint64_t first = VB_NEVER;

    for (int i = 0; i < TIMERS; ++i)
        first = due[i] < first ? due[i] : first;
    return first;
}

static void each_timer_ends_at_its_time(void)
{
    struct vb_timers timers = {0};
    struct vb_timer timer[TIMERS];
    uint64_t due[TIMERS], now = 0;

    for (int i = 0; i < TIMERS; ++i) {
        CHECK_EQ(vb_engine_timer_join(&timers, &timer[i], 0), 0);
        due[i] = VB_NEVER;
    }
    for (int step = 0; step < STEPS; ++step) {
        uint32_t i = random_below(TIMERS);
        struct vb_timer *expired;

        due[i] = random_below(4) ? now + 1 + random_below(1000) : VB_NEVER;
        vb_engine_timer_set(&timers, &timer[i], due[i]);
        CHECK(vb_engine_timers_next(&timers) <= first_due(due));
        if (step % 97 == 0) {
            vb_engine_timer_leave(&timers, &timer[i]);
            CHECK_EQ(vb_engine_timer_join(&timers, &timer[i], 0), 0);
            due[i] = VB_NEVER;
        }
        now += random_below(40);
        while ((expired = vb_engine_timers_expire(&timers, now))) {
            uint32_t n = (uint32_t)(expired - timer);

            CHECK(due[n] <= now);
            due[n] = VB_NEVER;
        }
        CHECK(first_due(due) > now);
    }
    CHECK_EQ(timers.members, TIMERS);
    vb_engine_timers_free(&timers);
}

int main(void)
{
    RUN(each_timer_ends_at_its_time);
    return 0;
}
