// SPDX-License-Identifier: Apache-2.0
/* Reactions to congestion by themselves: what a sender's rate is after notifications and time. */
#include <stdbool.h>

#include "check.h"
#include "sim/congestion.h"

static const double LINE = 100e9;
static const uint64_t US = 1000000;

static bool near(double got, double wanted)
{
    double off = got / wanted - 1;

    if (off < -1e-9 || off > 1e-9)
        fprintf(stderr, "%.3f, not %.3f\n", got, wanted);
    return off > -1e-9 && off < 1e-9;
}

static void without_a_notification_the_rate_is_the_lines(void)
{
    struct vb_dcqcn_config config = vb_sim_dcqcn_paper();
    struct vb_dcqcn state = {0};

    vb_sim_dcqcn_sent(&state, &config, LINE, 1 << 30, 1000 * US);
    CHECK(near(vb_sim_dcqcn_rate(&state, &config, LINE, 1000 * US), LINE));
}

/* Alpha begins at 1: a half at the first, and so at each that follows before alpha has fallen. */
static void a_notification_cuts_by_half_of_alpha(void)
{
    struct vb_dcqcn_config config = vb_sim_dcqcn_paper();
    struct vb_dcqcn state = {0};

    vb_sim_dcqcn_notice(&state, &config, LINE, 100 * US);
    CHECK(near(vb_sim_dcqcn_rate(&state, &config, LINE, 100 * US), LINE / 2));
    CHECK(near(state.target, LINE));
    CHECK(near(state.alpha, 1));
    vb_sim_dcqcn_notice(&state, &config, LINE, 150 * US);
    CHECK(near(vb_sim_dcqcn_rate(&state, &config, LINE, 150 * US), LINE / 4));
    CHECK(near(state.target, LINE / 2));
}

static void alpha_falls_with_each_interval(void)
{
    struct vb_dcqcn_config config = vb_sim_dcqcn_paper();
    struct vb_dcqcn state = {0};
    double alpha = 1;

    vb_sim_dcqcn_notice(&state, &config, LINE, US);
    for (int i = 0; i < 10; ++i)
        alpha *= 255.0 / 256;
    vb_sim_dcqcn_rate(&state, &config, LINE, US + 10 * 55 * US);
    CHECK(near(state.alpha, alpha));
    vb_sim_dcqcn_notice(&state, &config, LINE, US + 10 * 55 * US);
    CHECK(near(state.alpha, alpha * 255 / 256 + 1.0 / 256));
}

/* Five steps halve the way to the target, whoever asks for the rate when; then that rises. */
static void time_recovers_and_then_adds(void)
{
    struct vb_dcqcn_config config = vb_sim_dcqcn_paper();
    struct vb_dcqcn state = {0}, asked = {0};
    double rate = LINE / 4, target = LINE / 2;

    vb_sim_dcqcn_notice(&state, &config, LINE, US);
    vb_sim_dcqcn_notice(&state, &config, LINE, 2 * US);
    asked = state;
    for (uint64_t step = 1; step <= 8; ++step) {
        uint64_t now = 2 * US + step * 55 * US;

        if (step >= config.fast_steps)
            target += config.add_rate;
        rate = (rate + target) / 2;
        CHECK(near(vb_sim_dcqcn_rate(&asked, &config, LINE, now), rate));
        CHECK(near(vb_sim_dcqcn_rate(&asked, &config, LINE, now + 54 * US), rate));
    }
    CHECK(near(vb_sim_dcqcn_rate(&state, &config, LINE, 2 * US + 8 * 55 * US), rate));
    CHECK(near(state.target, target));
}

static void bytes_count_as_time_does_and_both_together_for_more(void)
{
    struct vb_dcqcn_config config = vb_sim_dcqcn_paper();
    struct vb_dcqcn state = {0};
    double rate = LINE / 4, target = LINE / 2;

    config.raise_interval = 1000 * US;
    config.fast_steps = 1;
    vb_sim_dcqcn_notice(&state, &config, LINE, US);
    vb_sim_dcqcn_notice(&state, &config, LINE, 2 * US);
    vb_sim_dcqcn_sent(&state, &config, LINE, 4000000, 3 * US);
    CHECK(near(state.rate, rate));
    vb_sim_dcqcn_sent(&state, &config, LINE, 6000000, 4 * US);
    target += config.add_rate;
    rate = (rate + target) / 2;
    CHECK(near(state.rate, rate));
    target += config.fast_add_rate; /* the first step of time, after one of bytes: hyper increase */
    rate = (rate + target) / 2;
    CHECK(near(vb_sim_dcqcn_rate(&state, &config, LINE, 1002 * US), rate));
}

static void cuts_keep_their_distance_and_a_least_rate(void)
{
    struct vb_dcqcn_config config = vb_sim_dcqcn_adapter();
    struct vb_dcqcn state = {0};

    vb_sim_dcqcn_notice(&state, &config, LINE, 10 * US);
    vb_sim_dcqcn_notice(&state, &config, LINE, 13 * US); /* within 4 us */
    CHECK(near(state.rate, LINE / 2));
    for (uint64_t i = 1; i < 100; ++i)
        vb_sim_dcqcn_notice(&state, &config, LINE, (10 + 4 * i) * US);
    CHECK(near(state.rate, config.least_rate));
    CHECK(near(state.target, LINE)); /* none was raised since: the target is what it was */
}

static void in_the_end_the_line_is_free_again(void)
{
    struct vb_dcqcn_config config = vb_sim_dcqcn_paper();
    struct vb_dcqcn state = {0};

    vb_sim_dcqcn_notice(&state, &config, LINE, US);
    CHECK(near(vb_sim_dcqcn_rate(&state, &config, LINE, 10000000 * US), LINE));
    CHECK(state.rate == 0); /* nothing is counted any more */
    vb_sim_dcqcn_notice(&state, &config, LINE, 10000001 * US);
    CHECK(state.rate > 0.99 * LINE); /* alpha has fallen meanwhile */
}

static void the_table_goes_up_by_notices_and_down_by_time(void)
{
    struct vb_cct_config config = {
        .entry = {0, 1, 3, 7}, .limit = 3, .level[5] = {.increase = 2, .timer = 100 * US}};
    struct vb_cct state = {0};

    CHECK(near(vb_sim_cct_rate(&state, &config, 5, 0), 1));
    vb_sim_cct_notice(&state, &config, 5, 10 * US);
    CHECK(near(vb_sim_cct_rate(&state, &config, 5, 10 * US), 1.0 / 4));
    vb_sim_cct_notice(&state, &config, 5, 20 * US);
    CHECK(near(vb_sim_cct_rate(&state, &config, 5, 20 * US), 1.0 / 8)); /* not beyond the limit */
    CHECK(near(vb_sim_cct_rate(&state, &config, 5, 109 * US), 1.0 / 8));
    CHECK(near(vb_sim_cct_rate(&state, &config, 5, 110 * US), 1.0 / 4));
    CHECK(near(vb_sim_cct_rate(&state, &config, 5, 210 * US), 1.0 / 2));
    CHECK(near(vb_sim_cct_rate(&state, &config, 5, 310 * US), 1));
}

/* IBA A10: a packet's time is shifted to the right, and multiplied. */
static void an_entry_is_a_shift_and_a_multiplier(void)
{
    const struct vb_cct_config config = {.entry = {1, 1 << 14 | 1, 2 << 14 | 3, 3 << 14 | 16383}};

    for (uint32_t i = 0; i < 4; ++i) {
        const double gap[] = {1, 0.5, 0.75, 16383.0 / 8};
        struct vb_cct state = {.index = i, .falls_at = 1};

        CHECK(near(vb_sim_cct_rate(&state, &config, 0, 0), 1 / (1 + gap[i])));
    }
}

/* Two service levels, one of which begins at an entry above 0 and comes back to it. */
static void a_level_has_its_own_steps_timer_and_least_index(void)
{
    const struct vb_cct_config config = {
        .entry = {0, 1, 3, 7, 15},
        .limit = 4,
        .level = {{.increase = 1, .timer = 100 * US}, {.increase = 2, .timer = US, .min = 1}}};
    struct vb_cct slow = {0}, fast = {0};

    CHECK(near(vb_sim_cct_rate(&fast, &config, 1, 0), 1.0 / 2));
    vb_sim_cct_notice(&slow, &config, 0, 10 * US);
    vb_sim_cct_notice(&fast, &config, 1, 10 * US);
    CHECK(near(vb_sim_cct_rate(&slow, &config, 0, 10 * US), 1.0 / 2));
    CHECK(near(vb_sim_cct_rate(&fast, &config, 1, 10 * US), 1.0 / 8));
    CHECK(near(vb_sim_cct_rate(&fast, &config, 1, 11 * US), 1.0 / 4));
    CHECK(near(vb_sim_cct_rate(&fast, &config, 1, 1000 * US), 1.0 / 2));
    CHECK(near(vb_sim_cct_rate(&slow, &config, 0, 1000 * US), 1));
}

/* Once for each time that the index gets there, from below. */
static void a_notification_that_reaches_the_trigger_says_so(void)
{
    const struct vb_cct_config config = {
        .limit = 9, .level = {{.increase = 2, .timer = 100 * US, .trigger = 3}}};
    struct vb_cct state = {0};

    CHECK(!vb_sim_cct_notice(&state, &config, 0, US));
    CHECK(vb_sim_cct_notice(&state, &config, 0, US));
    CHECK(!vb_sim_cct_notice(&state, &config, 0, US));
    vb_sim_cct_rate(&state, &config, 0, 401 * US); /* at 2 again */
    CHECK(vb_sim_cct_notice(&state, &config, 0, 401 * US));
    CHECK(!vb_sim_cct_notice(&state, &config, 1, 402 * US)); /* a level without a trigger */
}

int main(void)
{
    RUN(without_a_notification_the_rate_is_the_lines);
    RUN(a_notification_cuts_by_half_of_alpha);
    RUN(alpha_falls_with_each_interval);
    RUN(time_recovers_and_then_adds);
    RUN(bytes_count_as_time_does_and_both_together_for_more);
    RUN(cuts_keep_their_distance_and_a_least_rate);
    RUN(in_the_end_the_line_is_free_again);
    RUN(the_table_goes_up_by_notices_and_down_by_time);
    RUN(an_entry_is_a_shift_and_a_multiplier);
    RUN(a_level_has_its_own_steps_timer_and_least_index);
    RUN(a_notification_that_reaches_the_trigger_says_so);
    return 0;
}
