// SPDX-License-Identifier: Apache-2.0
/*
 * Ports with lanes, to the picosecond, with hosts that send and take bare frames: credits, pauses
 * and their headroom, thresholds of a shared buffer, lifetimes.
 */
#include "check.h"
#include "event/link.h"
#include "event/switch.h"
#include "event/watchdog.h"
#include "routes.h"

enum { FRAME = 4096, FRAMES = 4096, HOSTS = 3 };

static const uint64_t RATE = 100000000000, METER = 5000;

struct fixture {
    struct vb_world *world;
    uint32_t host[HOSTS];
    struct vb_world_switch *sw;
    uint32_t arrived;
    uint64_t arrived_at[FRAMES];
    uint32_t arrived_from[FRAMES];
    uint32_t left[HOSTS], bytes[HOSTS], target[HOSTS]; /* that a host sends when it may */
};

static void send(struct fixture *fixture, uint32_t from, uint32_t to, uint32_t bytes)
{
    struct vb_world *world = fixture->world;
    uint32_t packet = vb_world_pool_take(&world->partition->pool);
    struct vb_world_packet *at = vb_world_packet_at(world->partition, packet);

    memset(at, 0, sizeof(*at));
    at->source = from + 1;
    at->target = to + 1;
    at->bytes = (uint16_t)bytes;
    vb_world_send(world->partition, fixture->host[from], packet);
}

static void arrive(void *context, uint32_t host, uint32_t packet)
{
    struct fixture *fixture = context;

    (void)host;
    CHECK(fixture->arrived < FRAMES);
    fixture->arrived_at[fixture->arrived] = fixture->world->partition->now;
    fixture->arrived_from[fixture->arrived++] =
        vb_world_packet_at(fixture->world->partition, packet)->source - 1;
    vb_world_pool_give(&fixture->world->partition->pool, packet);
}

/* As long as there is something left, one frame after the other. */
static void ready(void *context, uint32_t host)
{
    struct fixture *fixture = context;
    const struct vb_world_node *node = &fixture->world->node[fixture->host[host]];

    if (!fixture->left[host])
        return;
    --fixture->left[host];
    send(fixture, host, fixture->target[host], fixture->bytes[host]);
    if (fixture->left[host])
        vb_world_lanes_want_ready(fixture->world->partition, node->port[0]);
}

/* `index` frames to the target that is set. */
static void call(void *context, uint32_t host, uint32_t index)
{
    struct fixture *fixture = context;

    fixture->left[host] = index;
    ready(fixture, host);
}

static const struct vb_world_host_calls hosts = {.arrive = arrive, .ready = ready, .call = call};

static struct vb_world_switch_config one_lane(enum vb_world_flow_control flow_control)
{
    struct vb_world_switch_config config = {.ports = HOSTS, .lanes = 1};

    config.lane[0].flow.flow_control = flow_control;
    config.tables.low[0] = (struct vb_world_arbiter_entry){0, 64};
    config.tables.low_count = 1;
    return config;
}

static void open_fixture(struct fixture *fixture, struct vb_world_switch_config config,
                         uint64_t delay)
{
    struct vb_world_link link = {.rate = RATE, .delay = delay};
    const int32_t routes[HOSTS] = {0, 1, 2};
    uint32_t node;

    memset(fixture, 0, sizeof(*fixture));
    CHECK_EQ(vb_world_create(1, &hosts, fixture, &fixture->world), 0);
    CHECK_EQ(vb_world_switch_create(&config, &fixture->sw), 0);
    CHECK_EQ(vb_world_add_switch(fixture->world, fixture->sw, &node), 0);
    for (uint32_t i = 0; i < HOSTS; ++i) {
        CHECK_EQ(vb_world_add_host(fixture->world, &fixture->host[i]), 0);
        CHECK_EQ(vb_world_connect(fixture->world, fixture->host[i], 0, node, i, &link), 0);
        fixture->bytes[i] = FRAME;
    }
    CHECK_EQ(vb_world_set_routes(fixture->world, fixture->sw, routes, HOSTS, 1), 0);
}

static void plan(struct fixture *fixture, uint64_t at, uint32_t from, uint32_t to, uint32_t frames)
{
    fixture->target[from] = to;
    vb_world_call(fixture->world->partition, at, from, frames);
}

static struct vb_world_port *port_to(struct fixture *fixture, uint32_t host)
{
    return &fixture->world->port[fixture->sw->port[host]];
}

static void close_fixture(struct fixture *fixture, bool at_rest)
{
    char text[200];
    const char *wrong = vb_world_check(fixture->world, at_rest, text, sizeof(text));

    if (wrong)
        fprintf(stderr, "%s\n", wrong);
    CHECK(!wrong);
    vb_world_destroy(fixture->world);
}

static struct fixture fixture;

/* One frame of buffer: the next one leaves when the first one's room has been given back. */
static void a_sender_without_credits_waits_for_them(void)
{
    struct vb_world_switch_config config = one_lane(VB_WORLD_CREDITS);
    uint64_t ser = FRAME * 80, round = 2 * ser + 2 * 100 * METER;

    config.lane[0].flow.room = FRAME;
    open_fixture(&fixture, config, 100 * METER);
    plan(&fixture, 0, 0, 2, 5);
    CHECK_EQ(vb_world_run(fixture.world, VB_WORLD_NEVER, UINT64_MAX), VB_WORLD_END_EMPTY);
    CHECK_EQ(fixture.arrived, 5);
    for (uint32_t i = 0; i < 5; ++i)
        CHECK_EQ(fixture.arrived_at[i], round + i * round);
    CHECK_EQ(fixture.world->port[fixture.world->node[fixture.host[0]].port[0]].traffic.stalled,
             4 * (round - ser));
    close_fixture(&fixture, true);
}

/* Credits are counted in blocks of 64 bytes: a frame of 65 takes two of them. */
static void a_part_of_a_block_takes_a_block(void)
{
    struct vb_world_switch_config config = one_lane(VB_WORLD_CREDITS);
    uint64_t together = 0;

    config.lane[0].flow.room = 3 * VB_WORLD_CREDIT_BLOCK;
    open_fixture(&fixture, config, 100 * METER);
    fixture.bytes[0] = 65;
    plan(&fixture, 0, 0, 2, 2);
    CHECK_EQ(vb_world_run(fixture.world, VB_WORLD_NEVER, UINT64_MAX), VB_WORLD_END_EMPTY);
    CHECK(fixture.arrived_at[1] - fixture.arrived_at[0] > 2 * 100 * METER);
    close_fixture(&fixture, true);
    open_fixture(&fixture, config, 100 * METER);
    fixture.bytes[0] = 64;
    plan(&fixture, 0, 0, 2, 2);
    CHECK_EQ(vb_world_run(fixture.world, VB_WORLD_NEVER, UINT64_MAX), VB_WORLD_END_EMPTY);
    together = fixture.arrived_at[1] - fixture.arrived_at[0];
    CHECK_EQ(together, 64 * 80);
    close_fixture(&fixture, true);
}

/*
 * A sender goes up to what has room, and, where the buffer is larger than the window of FCCL, at
 * most a window beyond what has arrived (IBA 7.9.4.4).
 */
static void credits_end_with_the_room_or_the_window(void)
{
    enum { WINDOW = VB_WORLD_CREDIT_WINDOW };
    static const struct {
        uint32_t room;
        uint64_t released, arrived, limit;
    } cases[] = {
        {10, 0, 0, 10},
        {10, 7, 0, 17},
        {WINDOW, 50, 0, WINDOW + 50}, /* nobody tells of arrivals */
        {WINDOW + 1, 0, 0, WINDOW},
        {WINDOW + 1, 0, 1, WINDOW + 1},
        {WINDOW + 1, 0, 2, WINDOW + 1},
        {WINDOW + 1, 9, 9, WINDOW + 9},
        {2 * WINDOW, 0, 5, WINDOW + 5},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct vb_world_lane lane = {.flow_control = VB_WORLD_CREDITS,
                                     .peer_room = cases[i].room,
                                     .released = cases[i].released,
                                     .arrived = cases[i].arrived};

        CHECK_EQ(vb_world_lane_limit(&lane), cases[i].limit);
        lane.sent = cases[i].limit - 2;
        CHECK(vb_world_lane_is_open(NULL, &lane, 2 * VB_WORLD_CREDIT_BLOCK));
        CHECK(!vb_world_lane_is_open(NULL, &lane, 2 * VB_WORLD_CREDIT_BLOCK + 1));
    }
}

/* A pause ends at its time, and at once when the frame says so. */
static void a_lane_is_open_when_no_pause_lasts(void)
{
    struct vb_world_partition part = {.now = 1000};
    struct vb_world_lane lane = {.flow_control = VB_WORLD_PAUSES};

    for (int paused = 0; paused < 2; ++paused)
        for (uint64_t until = 999; until <= 1001; ++until) {
            lane.paused = paused;
            lane.paused_until = until;
            CHECK_EQ(vb_world_lane_is_open(&part, &lane, 5000), !paused || until <= 1000);
        }
}

/* The fourth frame crosses the threshold, by so many bytes. */
static struct vb_world_switch_config crossed_by(uint32_t bytes, uint32_t spare)
{
    struct vb_world_switch_config config = one_lane(VB_WORLD_PAUSES);

    config.lane[0].stop = 4 * FRAME - bytes;
    config.lane[0].go = 2 * FRAME;
    config.lane[0].spare = spare;
    return config;
}

static struct vb_world_switch_config with_pauses(uint32_t spare)
{
    return crossed_by(1, spare);
}

/*
 * The worst case (IEEE 802.1Q, annex O): nothing leaves, the pause becomes due when a frame for
 * the same link has just begun, and reaches the sender when that has just begun one.
 */
static uint64_t lost(uint64_t delay, uint32_t crossed, uint32_t spare)
{
    uint64_t ser = FRAME * 80, due = 4 * ser + delay;
    uint64_t dropped;

    open_fixture(&fixture, crossed_by(crossed, spare), delay);
    port_to(&fixture, 2)->lanes->lane[0].paused = true;
    port_to(&fixture, 2)->lanes->lane[0].paused_until = VB_WORLD_NEVER;
    plan(&fixture, 0, 0, 2, 200);
    plan(&fixture, due - delay - ser - 1, 1, 0, 1); /* it begins a picosecond before */
    vb_world_run(fixture.world, 40 * ser + 4 * delay, UINT64_MAX);
    CHECK_EQ(port_to(&fixture, 0)->traffic.pauses, 1);
    dropped = port_to(&fixture, 0)->traffic.dropped[VB_WORLD_DROP_HEADROOM];
    vb_world_destroy(fixture.world);
    return dropped;
}

/* …and what the frame that makes it due has beyond the threshold. */
static void headroom_is_a_round_trip_and_two_frames(void)
{
    static const uint64_t meters[] = {100, 300, 2000};
    static const uint32_t crossed[] = {1, FRAME / 2, FRAME};

    for (size_t i = 0; i < sizeof(meters) / sizeof(meters[0]); ++i)
        for (size_t j = 0; j < sizeof(crossed) / sizeof(crossed[0]); ++j) {
            uint64_t delay = meters[i] * METER;
            uint32_t need = (uint32_t)(2 * delay / 80 + 2 * FRAME + VB_WORLD_PAUSE_BYTES);

            CHECK_EQ(lost(delay, crossed[j], need + crossed[j]), 0);
            CHECK(lost(delay, crossed[j], need + crossed[j] - FRAME) > 0);
        }
}

static void a_pause_ends_when_enough_has_left(void)
{
    uint64_t ser = FRAME * 80;

    open_fixture(&fixture, with_pauses(64 << 10), 100 * METER);
    port_to(&fixture, 2)->lanes->lane[0].paused = true;
    port_to(&fixture, 2)->lanes->lane[0].paused_until = 100 * ser;
    plan(&fixture, 0, 0, 2, 60);
    CHECK_EQ(vb_world_run(fixture.world, VB_WORLD_NEVER, UINT64_MAX), VB_WORLD_END_EMPTY);
    CHECK_EQ(fixture.arrived, 60);
    CHECK_EQ(fixture.arrived_at[0], 101 * ser + 100 * METER);
    CHECK(port_to(&fixture, 0)->traffic.pauses >= 1);
    CHECK_EQ(fixture.sw->used, 0);
    CHECK(!port_to(&fixture, 0)->lanes->lane[0].stopped);
    close_fixture(&fixture, true);
}

/* V10: 65535 quanta of 512 bits. */
static void a_pause_lasts_as_long_as_its_quanta(void)
{
    CHECK_EQ(vb_world_pause_time(10000000000, 65535), 3355392000);
    CHECK_EQ(vb_world_pause_time(40000000000, 65535), 838848000);
    CHECK_EQ(vb_world_pause_time(100000000000, 65535), 335539200);
    CHECK_EQ(vb_world_pause_time(200000000000, 65535), 167769600);
    CHECK_EQ(vb_world_pause_time(400000000000, 65535), 83884800);
}

/* One that is blocked for longer than a pause lasts is told so again, and loses nothing. */
static void a_pause_is_refreshed(void)
{
    uint64_t whole = vb_world_pause_time(RATE, VB_WORLD_QUANTA_MAX);

    open_fixture(&fixture, with_pauses(64 << 10), 100 * METER);
    port_to(&fixture, 2)->lanes->lane[0].paused = true;
    port_to(&fixture, 2)->lanes->lane[0].paused_until = 3 * whole;
    plan(&fixture, 0, 0, 2, 60);
    CHECK_EQ(vb_world_run(fixture.world, 3 * whole - 1, UINT64_MAX), VB_WORLD_END_TIME);
    CHECK_EQ(fixture.arrived, 0);
    CHECK_EQ(port_to(&fixture, 0)->traffic.pauses, 6);
    CHECK_EQ(vb_world_run(fixture.world, VB_WORLD_NEVER, UINT64_MAX), VB_WORLD_END_EMPTY);
    CHECK_EQ(fixture.arrived, 60);
    close_fixture(&fixture, true);
}

/* Choudhury and Hahne: with alpha 1 one queue comes to half of the buffer, two to a third each. */
static void a_queue_gets_its_part_of_the_shared_buffer(void)
{
    struct vb_world_switch_config config = one_lane(VB_WORLD_LOSSY);
    uint32_t buffer = 60 * FRAME;

    config.buffer = buffer;
    config.lane[0].alpha = 1;
    open_fixture(&fixture, config, 0);
    port_to(&fixture, 2)->lanes->lane[0].flow_control = VB_WORLD_PAUSES;
    port_to(&fixture, 2)->lanes->lane[0].paused = true;
    port_to(&fixture, 2)->lanes->lane[0].paused_until = VB_WORLD_NEVER;
    plan(&fixture, 0, 0, 2, 100);
    vb_world_run(fixture.world, VB_WORLD_SECOND, UINT64_MAX);
    CHECK_EQ(port_to(&fixture, 2)->lanes->lane[0].bytes, buffer / 2);
    CHECK_EQ(fixture.sw->used, buffer / 2);
    CHECK_EQ(port_to(&fixture, 2)->traffic.dropped[VB_WORLD_DROP_FULL], 70);
    port_to(&fixture, 0)->lanes->lane[0].flow_control = VB_WORLD_PAUSES;
    port_to(&fixture, 0)->lanes->lane[0].paused = true;
    port_to(&fixture, 0)->lanes->lane[0].paused_until = VB_WORLD_NEVER;
    plan(&fixture, VB_WORLD_SECOND, 1, 0, 100);
    vb_world_run(fixture.world, 2 * VB_WORLD_SECOND, UINT64_MAX);
    CHECK_EQ(port_to(&fixture, 0)->lanes->lane[0].bytes, buffer / 4); /* half of what was free */
    close_fixture(&fixture, false);
}

/* Who waits too long at the head of a queue is dropped, and its credits are given back. */
static void a_lifetime_clears_a_blocked_queue(void)
{
    struct vb_world_switch_config config = one_lane(VB_WORLD_CREDITS);

    config.lane[0].flow.room = 4 * FRAME;
    config.lifetime = 10 * FRAME * 80;
    open_fixture(&fixture, config, 100 * METER);
    port_to(&fixture, 2)->lanes->lane[0].peer_room = 0;
    plan(&fixture, 0, 0, 2, 10);
    CHECK_EQ(vb_world_run(fixture.world, VB_WORLD_NEVER, UINT64_MAX), VB_WORLD_END_EMPTY);
    CHECK_EQ(fixture.arrived, 0);
    CHECK_EQ(fixture.world->partition->dropped, 10);
    CHECK_EQ(port_to(&fixture, 0)->lanes->lane[0].held, 0);
    close_fixture(&fixture, true);
}

/* Inputs take turns, however long one of them has been waiting with how much. */
static void inputs_take_turns(void)
{
    struct vb_world_switch_config config = one_lane(VB_WORLD_CREDITS);
    uint64_t ser = FRAME * 80;

    config.lane[0].flow.room = 64 * FRAME;
    open_fixture(&fixture, config, 0);
    port_to(&fixture, 2)->lanes->lane[0].flow_control = VB_WORLD_PAUSES;
    port_to(&fixture, 2)->lanes->lane[0].paused = true;
    port_to(&fixture, 2)->lanes->lane[0].paused_until = 30 * ser;
    plan(&fixture, 0, 0, 2, 40);
    plan(&fixture, 20 * ser, 1, 2, 10);
    CHECK_EQ(vb_world_run(fixture.world, VB_WORLD_NEVER, UINT64_MAX), VB_WORLD_END_EMPTY);
    CHECK_EQ(fixture.arrived, 50);
    for (uint32_t i = 0; i < 50; ++i)
        CHECK_EQ(fixture.arrived_from[i], i < 20 ? i % 2 : 0);
    vb_world_destroy(fixture.world);
}

/* A storm is due `detect` after the pause began, or after the first packet became the first. */
static void a_watchdog_is_due_while_a_pause_lasts(void)
{
    static const struct {
        uint64_t from, to, head;
        bool is_active;
        uint64_t due;
    } cases[] = {
        {100, 1001, 0, false, 150},           {100, 1001, 100, false, 150},
        {100, 1001, 101, false, 151},         {100, 1001, 990, false, 1040},
        {100, 1001, 0, true, VB_WORLD_NEVER}, {100, 1000, 0, false, VB_WORLD_NEVER},
        {100, 999, 0, false, VB_WORLD_NEVER}, {VB_WORLD_NEVER, 1001, 0, false, VB_WORLD_NEVER},
    };
    struct vb_world_switch_config config = one_lane(VB_WORLD_PAUSES);
    struct vb_world_lanes *lanes;

    config.watchdog.detect = 50;
    open_fixture(&fixture, config, METER);
    lanes = port_to(&fixture, 1)->lanes;
    fixture.world->partition->now = 1000;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        lanes->watchdog->lane[0] =
            (struct vb_world_watched_lane){cases[i].from, cases[i].to, cases[i].is_active};
        lanes->lane[0].head_since = cases[i].head;
        CHECK_EQ(vb_world_watchdog_due(fixture.world->partition, lanes, 0), cases[i].due);
    }
    close_fixture(&fixture, true);
}

/* ---- what vb_world_check finds -------------------------------------------------------------- */

static void expect_wrong(bool at_rest, const char *says)
{
    char text[200] = "";
    const char *wrong = vb_world_check(fixture.world, at_rest, text, sizeof(text));

    if (!wrong || !strstr(wrong, says))
        fprintf(stderr, "%s: %s\n", says, wrong ? wrong : "nothing");
    CHECK(wrong && strstr(wrong, says));
}

/* While it runs, and at rest alone. */
static void expect_wrong_always(const char *says)
{
    expect_wrong(false, says);
    expect_wrong(true, says);
}

static void expect_wrong_at_rest(const char *says)
{
    char text[200];
    const char *wrong = vb_world_check(fixture.world, false, text, sizeof(text));

    if (wrong)
        fprintf(stderr, "%s: %s\n", says, wrong);
    CHECK(!wrong);
    expect_wrong(true, says);
}

#define WITH(what, value, expect)                                                                  \
    do {                                                                                           \
        typeof(what) kept_ = (what);                                                               \
                                                                                                   \
        (what) = (value);                                                                          \
        expect;                                                                                    \
        (what) = kept_;                                                                            \
    } while (0)

static void what_is_wrong_with_a_lane_is_told(void)
{
    struct vb_world_switch_config config = one_lane(VB_WORLD_CREDITS);
    struct vb_world_port *port;
    struct vb_world_lane *lane;

    config.lane[0].flow.room = 2 * FRAME;
    open_fixture(&fixture, config, 100 * METER);
    plan(&fixture, 0, 0, 2, 5);
    CHECK_EQ(vb_world_run(fixture.world, VB_WORLD_NEVER, UINT64_MAX), VB_WORLD_END_EMPTY);
    port = &fixture.world->port[fixture.world->node[fixture.host[0]].port[0]];
    lane = &port->lanes->lane[0]; /* the sending end */
    WITH(lane->released, lane->sent + 1, expect_wrong_always("given back more credits than it"));
    WITH(lane->sent, vb_world_lane_limit(lane) + 1,
         expect_wrong_always("more than it had credits"));
    WITH(lane->sent, lane->sent - 1, expect_wrong_at_rest("port 0 of node 1 is owed credits"));
    WITH(lane->packets, 1, expect_wrong_at_rest("still has packets in its queue"));
    WITH(lane->bytes, 1, expect_wrong_at_rest("still has packets in its queue"));
    lane = &fixture.world->port[fixture.sw->port[0]].lanes->lane[0]; /* the other end */
    WITH(lane->held, lane->room,
         expect_wrong_at_rest("still holds room for packets that are gone"));
    WITH(lane->held, lane->room + 1, expect_wrong_always("holds more than it gave credits for"));
    lane->input_flow_control = VB_WORLD_PAUSES;
    WITH(lane->above, lane->held + 1, expect_wrong_always("more in its headroom than it holds"));
    vb_world_destroy(fixture.world);
}

static void what_is_wrong_with_a_port_or_a_switch_is_told(void)
{
    struct vb_world_port *port;
    char text[200];

    open_fixture(&fixture, one_lane(VB_WORLD_LOSSY), 100 * METER);
    plan(&fixture, 0, 0, 2, 5);
    CHECK_EQ(vb_world_run(fixture.world, VB_WORLD_NEVER, UINT64_MAX), VB_WORLD_END_EMPTY);
    port = port_to(&fixture, 2);
    WITH(port->traffic.dropped[VB_WORLD_DROP_HEADROOM], 1, expect_wrong_always("is too small"));
    WITH(port->reserved_rate, port->rate + 1,
         expect_wrong_always("has promised more than its rate"));
    WITH(port->arrive_first, 0, expect_wrong_at_rest("still has packets on its link"));
    fixture.sw->buffer = 1000;
    WITH(fixture.sw->used, 1001, expect_wrong_always("node 0 holds more than its buffer"));
    fixture.sw->used = 900;
    WITH(fixture.sw->reserved_used, 101, expect_wrong_always("node 0 holds more than its buffer"));
    WITH(fixture.sw->reserved_used, 100, expect_wrong_at_rest("node 0 still keeps room"));
    fixture.sw->buffer = 0;
    CHECK(!vb_world_check(fixture.world, true, text, sizeof(text)));
    WITH(fixture.world->partition->made, 6,
         expect_wrong_always("of 6 packets 5 arrived, 0 were dropped and 0"));
    fixture.world->partition->pool.in_use = 1;
    WITH(fixture.world->partition->made, 6,
         expect_wrong_at_rest("1 packets are still on their way"));
    WITH(fixture.world->partition->copied, 1,
         expect_wrong_at_rest("1 packets are still on their way"));
    fixture.world->partition->pool.in_use = 0;
    vb_world_destroy(fixture.world);
}

int main(void)
{
    RUN(a_sender_without_credits_waits_for_them);
    RUN(a_part_of_a_block_takes_a_block);
    RUN(credits_end_with_the_room_or_the_window);
    RUN(a_lane_is_open_when_no_pause_lasts);
    RUN(headroom_is_a_round_trip_and_two_frames);
    RUN(a_pause_ends_when_enough_has_left);
    RUN(a_pause_lasts_as_long_as_its_quanta);
    RUN(a_pause_is_refreshed);
    RUN(a_queue_gets_its_part_of_the_shared_buffer);
    RUN(a_lifetime_clears_a_blocked_queue);
    RUN(inputs_take_turns);
    RUN(a_watchdog_is_due_while_a_pause_lasts);
    RUN(what_is_wrong_with_a_lane_is_told);
    RUN(what_is_wrong_with_a_port_or_a_switch_is_told);
    return 0;
}
