// SPDX-License-Identifier: Apache-2.0
/* Reactions to congestion by themselves: what a sender's rate is after notifications and time. */
#include <stdbool.h>

#include "check.h"
#include "dcqcn_sets.h"
#include "sim/congestion.h"
#include "sim/sim.h"
#include "wire/opcode.h"

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
    struct vb_dcqcn_config config = dcqcn_paper();
    struct vb_dcqcn state = {0};

    vb_sim_dcqcn_sent(&state, &config, LINE, 1 << 30, 1000 * US);
    CHECK(near(vb_sim_dcqcn_rate(&state, &config, LINE, 1000 * US), LINE));
}

/* Alpha begins at 1: a half at the first, and so at each that follows before alpha has fallen. */
static void a_notification_cuts_by_half_of_alpha(void)
{
    struct vb_dcqcn_config config = dcqcn_paper();
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
    struct vb_dcqcn_config config = dcqcn_paper();
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
    struct vb_dcqcn_config config = dcqcn_paper();
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
    struct vb_dcqcn_config config = dcqcn_paper();
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
    struct vb_dcqcn_config config = dcqcn_adapter();
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
    struct vb_dcqcn_config config = dcqcn_paper();
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

/* ---- HPCC ------------------------------------------------------------------------------------ */

static const struct vb_hpcc_config hpcc = {
    .base_rtt = 10 * 1000000, .target = 0.95, .add = 100, .stages = 2};

/* A route of two links of which the first is idle. Both of `last` were seen at the same time. */
static struct vb_world_telemetry told(uint64_t at, uint64_t sent, uint32_t queue)
{
    return (struct vb_world_telemetry){
        .hops = 2,
        .hop = {{.at = at, .rate = 100000000000, .port = 7},
                {.at = at, .sent = sent, .rate = 100000000000, .queue = queue, .port = 9}}};
}

/* After so many picoseconds the busier link has sent so many bytes more. */
static void acknowledge(struct vb_hpcc *state, uint64_t after, uint64_t sent, uint32_t queue,
                        bool newer)
{
    struct vb_world_telemetry next =
        told(state->last.hop[1].at + after, state->last.hop[1].sent + sent, queue);

    next.sent_at = newer ? state->update_at : state->update_at - 1;
    vb_sim_hpcc_acknowledged(state, &hpcc, LINE, &next, next.hop[1].at + 5 * US);
}

/* 125,000 bytes are the window of the line; a link that sends them in a round trip is used by 1. */
static void a_window_follows_the_busiest_link(void)
{
    struct vb_hpcc state = {0};

    vb_sim_hpcc_start(&state, &hpcc, LINE);
    CHECK(near(state.window, 125000) && near(state.reference, 125000));
    acknowledge(&state, 1000 * US, 5000000, 25000, true); /* the first is compared with nothing */
    CHECK(near(state.window, 125000));
    CHECK_EQ(state.update_at, 1005 * US);
    acknowledge(&state, 10 * US, 125000, 25000, true); /* 1, and 0.2 for the queue */
    CHECK(near(state.used, 1.2));
    CHECK(near(state.window, 100 + 125000 * 0.95 / 1.2));
    CHECK(near(state.reference, state.window));
    CHECK(near(vb_sim_hpcc_rate(&state, &hpcc), state.window * 8e5));
    acknowledge(&state, 10 * US, 62500, 0, false); /* the smaller of both queues */
    CHECK(near(state.used, 0.5));
    CHECK(near(state.window, 200 + 125000 * 0.95 / 1.2));
    CHECK(near(state.reference, 100 + 125000 * 0.95 / 1.2));
    acknowledge(&state, 10 * US, 62500, 0, true);
    CHECK(near(state.window, 200 + 125000 * 0.95 / 1.2));
    CHECK_EQ(state.stage, 1);
    acknowledge(&state, 10 * US, 62500, 0, true);
    CHECK(near(state.window, 300 + 125000 * 0.95 / 1.2));
    CHECK_EQ(state.stage, 2);
    acknowledge(&state, 10 * US, 62500, 0, true); /* after its steps, by the ratio */
    CHECK(near(state.window, 125000));
    CHECK_EQ(state.stage, 0);
}

/* A measurement counts by its part of a round trip, and never more than whole. */
static void a_short_time_counts_for_less(void)
{
    struct vb_hpcc state = {0};

    vb_sim_hpcc_start(&state, &hpcc, LINE);
    acknowledge(&state, US, 1, 0, true);
    acknowledge(&state, 5 * US, 62500, 0, true);
    CHECK(near(state.used, 0.5));
    acknowledge(&state, 40 * US, 4 * 125000, 0, true);
    CHECK(near(state.used, 1));
    CHECK_EQ(state.stage, 0);
    acknowledge(&state, 10 * US, 118750, 0, true); /* the target itself is a cut */
    CHECK_EQ(state.stage, 0);
    acknowledge(&state, 10 * US, 125000ull * 8000, 0, true);
    CHECK(near(state.window, 125)); /* a thousandth of the line's */
}

/* Telemetry of another route, or of none, or that is no newer, says nothing. */
static void only_the_same_route_is_compared(void)
{
    static const struct {
        uint32_t hops, port;
        uint64_t after;
        bool counts;
    } cases[] = {{2, 9, 10, true}, {1, 9, 10, false}, {2, 8, 10, false}, {2, 9, 0, false}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct vb_world_telemetry first = told(10 * US, 0, 0), next;
        struct vb_hpcc state = {0};

        next = told(10 * US + cases[i].after * US, 250000, 0);
        next.hops = cases[i].hops;
        next.hop[1].port = cases[i].port;
        vb_sim_hpcc_start(&state, &hpcc, LINE);
        vb_sim_hpcc_acknowledged(&state, &hpcc, LINE, &first, 0);
        vb_sim_hpcc_acknowledged(&state, &hpcc, LINE, &next, 0);
        CHECK_EQ(state.window < 125000, cases[i].counts);
        CHECK(cases[i].counts ? state.used > 0 : state.used == 0);
        next = first = (struct vb_world_telemetry){0};
        vb_sim_hpcc_acknowledged(&state, &hpcc, LINE, &first, 0);
        vb_sim_hpcc_acknowledged(&state, &hpcc, LINE, &next, 0);
        CHECK_EQ(state.window < 125000, cases[i].counts);
    }
}

static void a_window_in_packets_is_one_at_least(void)
{
    struct vb_hpcc state = {.window = 99500};

    CHECK_EQ(vb_sim_hpcc_packets(&state, 1000, 200), 100);
    CHECK_EQ(vb_sim_hpcc_packets(&state, 1000, 100), 100);
    CHECK_EQ(vb_sim_hpcc_packets(&state, 1000, 99), 99);
    CHECK_EQ(vb_sim_hpcc_packets(&state, 1000, 0), 1);
    state.window = 10;
    CHECK_EQ(vb_sim_hpcc_packets(&state, 1000, 200), 1);
}

/* ---- kinds of congestion control ------------------------------------------------------------- */

/* A connection's notifications keep their distance; those of HPCC are its acknowledgements. */
static void notifications_keep_their_distance(void)
{
    struct vb_congestion congestion = {.kind = VB_CONGESTION_DCQCN, .notice_interval = 50};
    uint64_t noticed = 0;

    CHECK(vb_sim_congestion_is_notice_due(&congestion, &noticed, 0));
    CHECK_EQ(noticed, 1);
    CHECK(!vb_sim_congestion_is_notice_due(&congestion, &noticed, 50));
    CHECK(vb_sim_congestion_is_notice_due(&congestion, &noticed, 51));
    CHECK_EQ(noticed, 51);
    congestion.notice_interval = 0;
    CHECK(vb_sim_congestion_is_notice_due(&congestion, &noticed, 51));
    congestion.kind = VB_CONGESTION_HPCC;
    CHECK(!vb_sim_congestion_is_notice_due(&congestion, &noticed, 1000));
    congestion.kind = 0;
    CHECK(!vb_sim_congestion_is_notice_due(&congestion, &noticed, 1000));
}

/* By transport and operation, of all opcodes that there are. */
static void an_opcode_says_what_a_packet_brings(void)
{
    for (uint32_t opcode = 0; opcode < 256; ++opcode) {
        uint8_t transport = opcode & VB_TRANSPORT_MASK, operation = opcode & 0x1f;
        bool reliable = transport == VB_TRANSPORT_RC || transport == VB_TRANSPORT_XRC;

        CHECK_EQ(vb_sim_congestion_is_read_data((uint8_t)opcode),
                 reliable && operation >= 13 && operation <= 16);
        CHECK_EQ(vb_sim_congestion_brings_telemetry((uint8_t)opcode),
                 transport == VB_TRANSPORT_CNP || (reliable && operation == 17));
    }
}

/* A CNP has BECN, and telemetry the PSN that it is about. */
static void a_notification_is_a_cnp(void)
{
    uint8_t bytes[VB_CNP];
    struct vb_bth bth;

    memset(bytes, 0xff, sizeof(bytes));
    vb_sim_congestion_write_cnp(bytes, 0x8001, 0x123456, VB_CONGESTION_NOTICE);
    bth = vb_wire_bth_read(bytes);
    CHECK(bth.opcode == 0x81 && bth.becn && !bth.fecn && bth.pkey == 0x8001);
    CHECK(bth.dest_qp == 0x123456 && bth.psn == 0);
    for (uint32_t i = VB_BTH; i < VB_CNP; ++i)
        CHECK_EQ(bytes[i], 0);
    vb_sim_congestion_write_cnp(bytes, 0x8001, 0x123456, 0xabcdef);
    bth = vb_wire_bth_read(bytes);
    CHECK(bth.opcode == 0x81 && !bth.becn && bth.psn == 0xabcdef);
}

/* ---- settings -------------------------------------------------------------------------------- */

static void the_settings_are_those_documented(void)
{
    const struct vb_dcqcn_config paper = dcqcn_paper(), adapter = dcqcn_adapter();
    const struct vb_sim_config all = vb_sim_defaults();

    CHECK(paper.gain == 1.0 / 256 && paper.alpha_interval == 55 * US);
    CHECK(paper.raise_interval == 55 * US && paper.raise_bytes == 10000000);
    CHECK(paper.fast_steps == 5 && paper.add_rate == 40e6 && paper.fast_add_rate == 200e6);
    CHECK(paper.least_rate == 40e6 && paper.least_factor == 0.5 && paper.cut_interval == 0);
    CHECK(paper.target_clamped);
    CHECK(adapter.gain == 5.0 / 1024 && adapter.alpha_interval == US);
    CHECK(adapter.raise_interval == 300 * US && adapter.raise_bytes == 32767 * 64);
    CHECK(adapter.fast_steps == 1 && adapter.add_rate == 5e6 && adapter.fast_add_rate == 50e6);
    CHECK(adapter.least_rate == 1e6 && adapter.least_factor == 0.5);
    CHECK(adapter.cut_interval == 4 * US && !adapter.target_clamped);
    CHECK(all.framing == VB_SIM_ETHERNET && all.mtu == 4096 && all.timeout == 14);
    CHECK(all.retry_cnt == 7 && all.rd_atomic == 16 && all.hop_limit == 0);
    CHECK(all.engine.ack_bytes == 1 && all.engine.burst == 1);
    CHECK(all.nic.congestion.kind == 0 && all.nic.congestion.notice_interval == 50 * US);
    CHECK(all.tcp.mss == 1460 && all.tcp_jitter == VB_SIM_JITTER_AUTO);
    CHECK_EQ(all.nic.doorbell + all.nic.bus_rate + all.nic.receive_latency, 0);
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
    RUN(a_window_follows_the_busiest_link);
    RUN(a_short_time_counts_for_less);
    RUN(only_the_same_route_is_compared);
    RUN(a_window_in_packets_is_one_at_least);
    RUN(notifications_keep_their_distance);
    RUN(an_opcode_says_what_a_packet_brings);
    RUN(a_notification_is_a_cnp);
    RUN(the_settings_are_those_documented);
    return 0;
}
