// SPDX-License-Identifier: Apache-2.0
/*
 * Small worlds with every kind of switch, and what came of each: the courses of the simulated
 * fabric. Hosts send bare frames at random. A course is the hash of all that a user of the room can
 * see: arrivals and losses with their times, counters, samples, routes, and the ends of runs. A
 * change of any rule moves it: the test prints what it found, and a change that is meant puts that
 * into the table.
 */
#include <malloc.h>

#include "check.h"
#include "event/detour.h"
#include "event/link.h"
#include "event/sample.h"
#include "event/switch.h"
#include "event/tap.h"
#include "event/telemetry.h"
#include "event/watchdog.h"
#include "routes.h"
#include "starved.h"
#include "wire/bytes.h"
#include "yard.h"

enum { HOSTS_MOST = 16, QUEUES_MOST = 64, STEPS = 60, ROUTES_MOST = 8 };
enum { EVEN_BYTES = 1250 }; /* 100 ns at 100 Gb/s */

static const uint64_t US = 1000000, GBPS = 1000000000;

struct yard {
    struct vb_world *world;
    uint32_t hosts, host[HOSTS_MOST];
    uint32_t left[HOSTS_MOST];
    uint32_t levels; /* service levels that frames have, from 0 */
    uint32_t groups; /* multicast groups that frames are for; 0: none */
    uint32_t
        reserving; /* this host's frames to the next one may use reserved buffer; 0: nobody's */
    bool manages;  /* some frames are for VL15 */
    bool is_even;  /* all times are multiples of the time of one frame */
    uint64_t chance, hash;
};

static struct yard yard;

static void see(uint64_t value)
{
    yard.hash = vb_world_mix(yard.hash * 31 + value);
}

static uint32_t draw(uint32_t below)
{
    return (uint32_t)((vb_world_splitmix(&yard.chance) >> 32) * below >> 32);
}

/* ---- hosts ----------------------------------------------------------------------------------- */

static void fill(struct vb_world_packet *at, uint32_t from)
{
    memset(at, 0, sizeof(*at));
    at->source = from + 1;
    at->target = (from + 1 + draw(yard.hosts - 1)) % yard.hosts + 1;
    if (from != yard.hosts / 2 && draw(3) == 0)
        at->target = yard.hosts / 2 + 1; /* which many send to */
    at->payload = (uint16_t)draw(4097);
    if (yard.is_even)
        at->payload = EVEN_BYTES - 84;
    at->bytes = (uint16_t)(at->payload + 84);
    at->level_marks = (uint8_t)(draw(yard.levels) << 4);
    vb_wire_put24(at->header + 5, draw(4));
    vb_wire_put24(at->header + 9, draw(1 << 24));
    at->hops = (uint8_t)yard.world->hop_limit;
    if (yard.groups && draw(2)) {
        at->level_marks |= VB_WORLD_TO_GROUP;
        at->target = draw(yard.groups);
    } else if (yard.reserving && from == yard.reserving && at->target == from + 2) {
        at->flags |= VB_WORLD_RESERVED;
    } else if (draw(8) == 0) {
        at->flags |= VB_WORLD_TCP;
    }
    if (yard.manages && draw(4) == 0)
        at->level_marks |= VB_WORLD_MANAGEMENT;
}

static void send_one(uint32_t from)
{
    struct vb_world *world = yard.world;
    uint32_t packet = vb_world_pool_take(&world->partition->pool);

    CHECK(packet != VB_WORLD_NONE);
    fill(vb_world_packet_at(world->partition, packet), from);
    if (world->traces)
        vb_world_telemetry_of(world->partition, packet)->hops = 0;
    vb_world_send(world->partition, yard.host[from], packet);
}

static void ready(void *context, uint32_t host)
{
    struct vb_world *world = yard.world;
    uint32_t number = world->node[yard.host[host]].port[0];

    (void)context;
    see(world->now);
    if (!yard.left[host])
        return;
    --yard.left[host];
    send_one(host);
    if (!yard.left[host] || number == VB_WORLD_NONE)
        return;
    if (world->port[number].lanes)
        vb_world_lanes_want_ready(world->partition, number);
    else
        vb_world_add(world->partition, world->port[number].free_at, VB_WORLD_READY, 0, number);
}

static void call(void *context, uint32_t host, uint32_t frames)
{
    bool idle = !yard.left[host];

    yard.left[host] += frames;
    see(vb_world_may_send(yard.world->partition, yard.host[host]));
    if (idle)
        ready(context, host);
}

static void see_packet(uint32_t packet)
{
    const struct vb_world_packet *at = vb_world_packet_at(yard.world->partition, packet);

    /* by the numbers of hosts */
    see((at->source - 1u) | (uint64_t)(at->target - !(at->level_marks & VB_WORLD_TO_GROUP)) << 16 |
        (uint64_t)at->bytes << 32);
    see(at->level_marks | (uint64_t)at->flags << 8 | (uint64_t)at->hops << 16 |
        (uint64_t)at->header[4] << 24 | (uint64_t)at->lane << 32);
    if (!yard.world->traces)
        return;
    for (uint32_t i = 0; i < yard.world->telemetry[packet].hops; ++i) {
        const struct vb_world_telemetry_hop *hop = &yard.world->telemetry[packet].hop[i];

        see(hop->at);
        see(hop->sent);
        see(hop->rate);
        see(hop->queue | (uint64_t)hop->port << 32);
    }
}

static void arrive(void *context, uint32_t host, uint32_t packet)
{
    (void)context;
    see(yard.world->partition->now);
    see(host);
    see_packet(packet);
    vb_world_pool_give(&yard.world->partition->pool, packet);
}

static void dropped(void *context, struct vb_world_partition *part, uint32_t packet)
{
    (void)context;
    see(part->now ^ 1ull << 63);
    see_packet(packet);
}

static void copied(void *context, struct vb_world_partition *part, uint32_t packet, uint32_t copy,
                   bool another)
{
    (void)context;
    see((uint64_t)packet << 32 | copy);
    see(another | part->number << 1);
}

static void tapped(void *context, uint64_t now, uint32_t port, const struct vb_world_packet *packet,
                   enum vb_world_drop_reason loss)
{
    (void)context;
    see(now ^ (port | (uint64_t)packet->bytes << 32));
    see(loss);
}

static const struct vb_world_host_calls calls = {
    .arrive = arrive, .ready = ready, .call = call, .dropped = dropped, .copied = copied};
static const struct vb_world_tap tap = {.see = tapped};

/* ---- building -------------------------------------------------------------------------------- */

static void open_yard(uint32_t levels)
{
    memset(&yard, 0, sizeof(yard));
    yard.levels = levels;
    yard.chance = 1;
    CHECK_EQ(vb_world_create(7, &calls, NULL, &yard.world), 0);
}

static uint32_t add_switch(const struct vb_world_switch_config *config)
{
    return yard_switch(yard.world, config);
}

static struct vb_world_switch *switch_at(uint32_t node)
{
    return yard.world->node[node].sw;
}

static void connect(uint32_t a, uint32_t a_port, uint32_t b, uint32_t b_port, uint64_t rate,
                    uint64_t delay)
{
    yard_connect(yard.world, a, a_port, b, b_port, rate, delay);
}

static void add_host(uint32_t sw, uint32_t port, uint64_t rate, uint64_t delay)
{
    yard.host[yard.hosts++] = yard_host(yard.world, sw, port, rate, delay);
}

/* A switch is node 0, and host i is at its port i. The last port has no link. */
static void star(struct vb_world_switch_config config, uint32_t hosts, uint64_t rate)
{
    int32_t routes[HOSTS_MOST];

    config.ports = hosts + 1;
    add_switch(&config);
    for (uint32_t i = 0; i < hosts; ++i) {
        add_host(0, i, rate, US / 2 + (yard.is_even ? 0 : i * 1000));
        routes[i] = (int32_t)i;
    }
    CHECK_EQ(vb_world_set_routes(yard.world, switch_at(0), routes, hosts, 1), 0);
}

enum { EACH = 3, LEAVES = 3, SPINES = 2 }; /* hosts of a switch; switches of leaves() */

/* Three leaves with three hosts each, and two spines: each leaf has two ways to the others. */
static void leaves(struct vb_world_switch_config config)
{
    enum { ALL = LEAVES * EACH };
    int32_t routes[ALL * SPINES];

    config.ports = EACH + SPINES;
    for (uint32_t i = 0; i < LEAVES + SPINES; ++i)
        add_switch(&config);
    for (uint32_t i = 0; i < ALL; ++i)
        add_host(i / EACH, i % EACH, 100 * GBPS, US / 4);
    for (uint32_t i = 0; i < LEAVES * SPINES; ++i)
        connect(i / SPINES, EACH + i % SPINES, LEAVES + i % SPINES, i / SPINES, 100 * GBPS, US);
    for (uint32_t node = 0; node < LEAVES + SPINES; ++node) {
        for (uint32_t i = 0; i < ALL; ++i) {
            bool is_own = node < LEAVES && i / EACH == node;

            routes[SPINES * i] = (int32_t)(is_own ? i % EACH : node < LEAVES ? EACH : i / EACH);
            routes[SPINES * i + 1] = is_own || node >= LEAVES ? -1 : EACH + 1;
        }
        CHECK_EQ(vb_world_set_routes(yard.world, switch_at(node), routes, ALL, SPINES), 0);
    }
}

static void set_group(uint32_t node, uint32_t group, const uint16_t *ports, uint32_t count)
{
    CHECK_EQ(vb_world_switch_set_group(switch_at(node), group, ports, count), 0);
}

/*
 * A group of leaves() whose tree goes over the first spine: bit i of `members` is host i, and
 * `root` is a leaf that has members. A switch outside of the tree has the port that leads there.
 */
static void set_tree(uint32_t group, uint32_t members, uint32_t root)
{
    const uint32_t of_leaf = (1 << EACH) - 1;
    bool others = members & ~(of_leaf << EACH * root);
    uint16_t port[EACH + SPINES], spine[LEAVES];
    uint32_t leads = 0;

    for (uint32_t leaf = 0; leaf < LEAVES; ++leaf) {
        uint32_t own = members >> EACH * leaf & of_leaf, count = 0;

        for (uint16_t i = 0; i < EACH; ++i)
            if (own & 1u << i)
                port[count++] = i;
        if (own)
            spine[leads++] = (uint16_t)leaf;
        if (others || leaf != root)
            port[count++] = EACH;
        set_group(leaf, group, port, count);
    }
    set_group(LEAVES, group, spine, leads);
    port[0] = (uint16_t)root;
    set_group(LEAVES + 1, group, port, 1);
}

/* Four groups of one switch with three hosts, each linked to each; one link has two extenders. */
static void groups(struct vb_world_switch_config config, struct vb_world_detour_config detours)
{
    enum { GROUPS = 4, ALL = GROUPS * EACH };
    struct vb_world_switch_config extender = {
        .ports = 2, .lanes = config.lanes, .extender = 1 << 20, .tables = config.tables};
    uint16_t group[GROUPS + ALL];
    int32_t routes[ALL];

    config.ports = EACH + GROUPS;
    memcpy(extender.lane, config.lane, sizeof(config.lane));
    for (uint32_t i = 0; i < GROUPS; ++i)
        group[add_switch(&config)] = (uint16_t)i;
    for (uint32_t i = 0; i < ALL; ++i) {
        add_host(i / EACH, i % EACH, 100 * GBPS, US / 4);
        group[yard.host[i]] = (uint16_t)(i / EACH);
    }
    for (uint32_t a = 0; a < GROUPS; ++a)
        for (uint32_t b = a + 1; b < GROUPS; ++b)
            if (a || b > 1)
                connect(a, EACH + b, b, EACH + a, 40 * GBPS, US);
    for (uint32_t i = 0; i < 2; ++i)
        connect(add_switch(&extender), 0, i, EACH + 1 - i, 40 * GBPS, US);
    connect(GROUPS + ALL, 1, GROUPS + ALL + 1, 1, 40 * GBPS, 20 * US);
    for (uint32_t node = 0; node < GROUPS; ++node) {
        for (uint32_t i = 0; i < ALL; ++i)
            routes[i] = (int32_t)(i / EACH == node ? i % EACH : EACH + i / EACH);
        CHECK_EQ(vb_world_set_routes(yard.world, switch_at(node), routes, ALL, 1), 0);
    }
    CHECK_EQ(vb_world_set_detours(yard.world, &detours, group, GROUPS + ALL), 0);
    CHECK_EQ(vb_world_set_detours(yard.world, &detours, group, GROUPS + ALL), -EBUSY);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Each host sends so many frames, in bursts. */
static void plan(uint32_t frames, uint64_t apart)
{
    for (uint32_t host = 0; host < yard.hosts; ++host)
        for (uint32_t sent = 0, burst = 1; sent < frames; sent += burst) {
            burst = 1 + draw(8);
            vb_world_call(yard.world->partition,
                          sent * apart + (yard.is_even ? draw(10) * 100 : draw(1000)) * 1000ull,
                          host, burst);
        }
}

static void sample_all(void)
{
    struct vb_world_sampled_queue queue[QUEUES_MOST];
    uint32_t count = 0, number;

    for (uint32_t i = 0; i < yard.world->ports && count < QUEUES_MOST; ++i)
        queue[count++] = (struct vb_world_sampled_queue){
            i, yard.world->port[i].lanes ? i % yard.world->port[i].lanes->data : 0};
    CHECK_EQ(vb_world_add_sampler(yard.world, queue, count, 3 * US, 2 * US, 90, &number), 0);
    CHECK_EQ(vb_world_add_sampler(yard.world, queue, 1, US, 0, 1000, &number), 0);
}

static void see_samples(void)
{
    for (uint32_t i = 0; i < yard.world->samplers; ++i) {
        const struct vb_world_sampler *sampler = yard.world->sampler[i];

        see(sampler->rows);
        for (uint64_t j = 0; j < sampler->rows * sampler->queues; ++j) {
            const struct vb_world_sample *sample = &sampler->sample[j];

            see(sample->bytes | (uint64_t)sample->credits << 32);
            see(sample->held | (uint64_t)sample->paused << 32 | (uint64_t)sample->stopped << 40);
        }
        for (uint64_t j = 0; j < sampler->rows; ++j)
            see(sampler->at[j]);
    }
}

static void see_ports(void)
{
    char text[200];
    const char *wrong = vb_world_check(yard.world, false, text, sizeof(text));

    if (wrong)
        fprintf(stderr, "%s\n", wrong);
    CHECK(!wrong);
    for (uint32_t i = 0; i < yard.world->ports; ++i) {
        const struct vb_world_port *port = &yard.world->port[i];
        struct vb_world_port_counters traffic = vb_world_traffic(yard.world, port);

        see(traffic.packets);
        see(traffic.bytes);
        see(traffic.busy);
        see(traffic.queued_max);
        see(traffic.stalled);
        see(traffic.marked);
        see(traffic.pauses);
        see(traffic.storms);
        for (uint32_t reason = 0; reason < VB_WORLD_DROPS; ++reason)
            see(traffic.dropped[reason]);
        see(vb_world_backlog(yard.world->partition->now, port));
    }
}

static void see_routes(void)
{
    for (uint32_t i = 0; i < yard.hosts; ++i)
        for (uint32_t j = 0; j < yard.hosts; ++j) {
            see((uint64_t)vb_world_reaches(yard.world, yard.host[i], j + 1));
            see(vb_world_slowest(yard.world, yard.host[i], j + 1));
        }
}

/* Step by step, and then to the end. */
static int run(void)
{
    int end = VB_WORLD_END_TIME;

    for (uint64_t step = 0; step < STEPS && end == VB_WORLD_END_TIME; ++step) {
        end = vb_world_run(yard.world, yard.world->now + 3333333, step % 7 ? UINT64_MAX : 500);
        see((uint64_t)end);
        see(yard.world->partition->events);
        see_ports();
        if (end == VB_WORLD_END_EVENTS || end == VB_WORLD_END_HALT)
            end = VB_WORLD_END_TIME;
    }
    while (end == VB_WORLD_END_TIME || end == VB_WORLD_END_HALT) {
        end = vb_world_run(yard.world, VB_WORLD_NEVER, UINT64_MAX);
        see((uint64_t)end);
    }
    see(yard.world->now);
    see_ports();
    see_samples();
    see_routes();
    return end;
}

/* ---- courses: queues without lanes ----------------------------------------------------------- */

/* One fast link and slower ones, of which one has a rate whose byte takes no whole picoseconds. */
static void queues_that_mark_and_drop(void)
{
    const struct vb_world_link bad = {.rate = 100 * GBPS, .delay = US, .bit_error_rate = 3e-6};
    struct vb_world_switch_config config = {
        .buffer = 20000, .mark = {3000, 12000, 0.6}, .fecn = 9000, .fecn_rate = 2};

    open_yard(1);
    star(config, 4, 100 * GBPS / 3);
    CHECK_EQ(vb_world_add_host(yard.world, &yard.host[yard.hosts++]), 0);
    CHECK_EQ(vb_world_connect(yard.world, yard.host[4], 0, 0, 4, &bad), 0);
    CHECK_EQ(vb_world_add_host(yard.world, &yard.host[yard.hosts++]), 0); /* without a link */
    CHECK_EQ(vb_world_trace(yard.world), 0);
    CHECK_EQ(vb_world_add_tap(yard.world, yard.host[4], 0, &tap), 0);
    CHECK_EQ(vb_world_add_tap(yard.world, 0, 4, &tap), -EBUSY);
    CHECK_EQ(vb_world_set_link(yard.world, 0, 1, false, 20 * US), 0);
    CHECK_EQ(vb_world_set_link(yard.world, 0, 1, true, 31 * US), 0);
    CHECK_EQ(vb_world_halt(yard.world, 12345678, true), 0);
    CHECK_EQ(vb_world_halt(yard.world, 900 * US, true), 0);
    plan(200, US / 3);
    sample_all();
}

static void a_packet_is_passed_on_before_it_is_whole(void)
{
    open_yard(1);
    star((struct vb_world_switch_config){.cut_through = 200}, 5, 100 * GBPS);
    CHECK_EQ(vb_world_trace(yard.world), 0);
    plan(150, US / 5);
    sample_all();
}

/* Nothing is passed on early, since a packet might leave faster than it comes. */
static void cut_through_between_unequal_links(void)
{
    struct vb_world_switch_config config = {.cut_through = 200, .ports = 4};
    const int32_t routes[] = {0, 1, 2};

    open_yard(1);
    add_switch(&config);
    for (uint32_t i = 0; i < 3; ++i)
        add_host(0, i, (i + 3) * 20 * GBPS, US / 2);
    CHECK_EQ(vb_world_set_routes(yard.world, switch_at(0), routes, 3, 1), 0);
    plan(100, US / 3);
    sample_all();
}

static void routes_by_flow_and_hops_that_end(void)
{
    open_yard(1);
    leaves((struct vb_world_switch_config){.buffer = 40000});
    yard.world->hop_limit = 3;
    plan(120, US / 5);
    sample_all();
}

static void routes_by_packet(void)
{
    open_yard(1);
    leaves((struct vb_world_switch_config){.balance = VB_WORLD_BY_PACKET});
    yard.world->hop_limit = 4;
    plan(120, US / 5);
    sample_all();
}

static void a_switch_without_a_route_floods(void)
{
    int32_t routes[] = {0, -1, 2, -1, 4};

    open_yard(1);
    star((struct vb_world_switch_config){.floods = true, .buffer = 30000}, 5, 100 * GBPS);
    CHECK_EQ(vb_world_set_routes(yard.world, switch_at(0), routes, 5, 1), 0);
    CHECK_EQ(vb_world_trace(yard.world), 0);
    plan(50, US);
    sample_all();
}

static void reserve(uint64_t rate, uint64_t buffer, int expect)
{
    struct vb_world_packet packet = {.source = yard.reserving + 1, .target = yard.reserving + 2};
    struct vb_world_reservation wanted = {rate, buffer};
    struct vb_world_route *route;
    uint32_t from = yard.host[yard.reserving];

    CHECK_EQ(vb_world_reserve(yard.world, from, &packet, &wanted, &route), expect);
    if (expect)
        return;
    see(route->count);
    for (uint32_t i = 0; i < route->count; ++i)
        see(route->port[i]);
    vb_world_release(yard.world, route, &wanted);
    CHECK_EQ(vb_world_reserve(yard.world, from, &packet, &wanted, &route), 0);
    free(route);
}

static void a_reserved_queue(void)
{
    open_yard(1);
    star((struct vb_world_switch_config){.buffer = 30000}, 4, 50 * GBPS);
    switch_at(0)->reservable = 30000 - 8 * 140;
    yard.reserving = 1;
    reserve(20 * GBPS, 10000, 0);
    reserve(30 * GBPS, 8000, 0);
    reserve(1, 0, -EBUSY);
    reserve(0, 30000 - 18000 - 8 * 140 + 1, -EBUSY);
    reserve(0, 30000 - 18000 - 8 * 140, 0);
    plan(150, US / 5);
    sample_all();
}

/* ---- courses: lanes -------------------------------------------------------------------------- */

static void credits_and_tables(enum vb_world_turns turns, enum vb_world_fecn at)
{
    struct vb_world_switch_config config = yard_lanes(2, VB_WORLD_CREDITS, 9000);
    uint8_t lanes[7 * 7 * 16];

    config.tables.high[0] = (struct vb_world_arbiter_entry){1, 40};
    config.tables.high_count = 1;
    config.tables.high_limit = 1;
    config.tables.remembers = turns == VB_WORLD_BY_ARRIVAL;
    config.management = 5000;
    config.turns = turns;
    config.fecn = 4000;
    config.fecn_at = at;
    config.fecn_rate = 1;
    open_yard(4);
    yard.manages = true;
    star(config, 6, 100 * GBPS);
    for (size_t i = 0; i < sizeof(lanes); ++i)
        lanes[i] = (uint8_t)(i % 3 == 0);
    CHECK_EQ(vb_world_switch_set_lanes(switch_at(0), lanes, turns == VB_WORLD_BY_ARRIVAL), 0);
    CHECK_EQ(vb_world_switch_set_victim(switch_at(0), 2), 0);
    plan(150, US / 5);
    sample_all();
}

static void credits_of_inputs_in_turn(void)
{
    credits_and_tables(VB_WORLD_BY_INPUT, VB_WORLD_FECN_ROOT);
}

static void credits_by_arrival(void)
{
    credits_and_tables(VB_WORLD_BY_ARRIVAL, VB_WORLD_FECN_INPUT);
}

static void credits_with_marks_at_outputs(void)
{
    credits_and_tables(VB_WORLD_BY_INPUT, VB_WORLD_FECN_OUTPUT);
}

/* Buffers beyond the window of credits, a long link, and packets that wait for too long. */
static void a_window_of_credits_and_a_lifetime(void)
{
    struct vb_world_switch_config config = yard_lanes(1, VB_WORLD_CREDITS, 200000);

    config.lifetime = 9 * US;
    config.fecn = 20000;
    config.fecn_to_hosts = true;
    config.cut_through = 100;
    open_yard(1);
    leaves(config);
    CHECK_EQ(vb_world_trace(yard.world), 0);
    CHECK_EQ(vb_world_set_link(yard.world, 1, 4, false, 15 * US), 0);
    CHECK_EQ(vb_world_set_link(yard.world, 1, 4, true, 21 * US), 0);
    plan(150, US / 5);
    sample_all();
}

/* What has no route gives its credits back, though the buffers are larger than the window. */
static void credits_of_packets_without_a_route(void)
{
    const int32_t routes[] = {0, -1, 2, -1};

    open_yard(2);
    star(yard_lanes(2, VB_WORLD_CREDITS, 400000), 4, 100 * GBPS);
    CHECK_EQ(vb_world_set_routes(yard.world, switch_at(0), routes, 4, 1), 0);
    plan(400, US / 8);
    sample_all();
}

static void pauses_and_a_storm(bool forward, uint64_t end)
{
    open_yard(3);
    star(yard_pauses(forward), 5, 100 * GBPS);
    CHECK_EQ(vb_world_add_storm(yard.world, yard.host[3], 0, 10 * US, end), 0);
    CHECK_EQ(vb_world_add_storm(yard.world, yard.host[3], 2, 0, 1), -EINVAL);
    CHECK_EQ(vb_world_add_storm(yard.world, yard.host[3], 3, 0, 1), -EINVAL);
    plan(150, US / 5);
    sample_all();
}

static void a_watchdog_drops(void)
{
    pauses_and_a_storm(false, 100 * US);
}

static void a_watchdog_forwards(void)
{
    pauses_and_a_storm(true, 130 * US);
}

static void a_storm_without_end(void)
{
    pauses_and_a_storm(true, VB_WORLD_NEVER);
}

static void lanes_with_a_reservation(void)
{
    struct vb_world_switch_config config = yard_pauses(false);

    config.lane[0].flow.flow_control = VB_WORLD_LOSSY;
    config.lane[0].alpha = 0.5;
    config.watchdog.detect = 0;
    open_yard(3);
    star(config, 4, 100 * GBPS);
    switch_at(0)->reservable = 60000 - 8 * 140;
    yard.reserving = 2;
    reserve(20 * GBPS, 9000, 0);
    reserve(80 * GBPS + 1, 0, -EBUSY);
    reserve(0, 50000, -EBUSY);
    plan(150, US / 5);
    sample_all();
}

/* Each switch of a ring gives all its buffer to packets for the next. */
static void ring(struct vb_world_switch_config config)
{
    int32_t routes[4];

    config.ports = 3;
    open_yard(config.lanes);
    for (uint32_t i = 0; i < 4; ++i)
        add_switch(&config);
    for (uint32_t i = 0; i < 4; ++i)
        add_host(i, 0, 100 * GBPS, US / 4);
    for (uint32_t i = 0; i < 4; ++i)
        connect(i, 1, (i + 1) % 4, 2, 50 * GBPS, US);
    for (uint32_t node = 0; node < 4; ++node) {
        for (uint32_t i = 0; i < 4; ++i)
            routes[i] = i == node ? 0 : 1;
        CHECK_EQ(vb_world_set_routes(yard.world, switch_at(node), routes, 4, 1), 0);
    }
    plan(150, US / 4);
    sample_all();
}

static void a_ring_of_credits_blocks_itself(void)
{
    ring(yard_lanes(1, VB_WORLD_CREDITS, 8400));
}

static void a_ring_of_queues_by_arrival(void)
{
    struct vb_world_switch_config config = yard_lanes(1, VB_WORLD_CREDITS, 12800);

    config.turns = VB_WORLD_BY_ARRIVAL;
    ring(config);
}

static void a_ring_of_pauses_blocks_itself(void)
{
    struct vb_world_switch_config config = yard_pauses(false);

    config.watchdog.detect = 0;
    ring(config);
}

static void a_ring_with_a_lifetime_goes_on(void)
{
    struct vb_world_switch_config config = yard_lanes(1, VB_WORLD_CREDITS, 8400);

    config.lifetime = 20 * US;
    ring(config);
}

static void a_ring_with_a_watchdog_goes_on(void)
{
    ring(yard_pauses(false));
}

/* Frames come, leave and are paid back at the same moments. */
static void even_frames(struct vb_world_switch_config config)
{
    open_yard(config.lanes ? config.lanes : 1);
    yard.is_even = true;
    star(config, 5, 100 * GBPS);
    plan(150, US / 5);
    sample_all();
}

static void even_frames_in_queues(void)
{
    even_frames((struct vb_world_switch_config){.buffer = 8 * EVEN_BYTES,
                                                .mark = {2 * EVEN_BYTES, 5 * EVEN_BYTES, 0.5}});
}

static void even_frames_with_few_credits(void)
{
    even_frames(yard_lanes(2, VB_WORLD_CREDITS, 3 * 1280));
}

static void even_frames_with_credits_for_the_link(void)
{
    struct vb_world_switch_config config = yard_lanes(1, VB_WORLD_CREDITS, 12 * 1280);

    config.lifetime = 4 * US;
    even_frames(config);
}

static void even_frames_with_pauses(void)
{
    even_frames(yard_pauses(false));
}

/* ---- courses: groups ------------------------------------------------------------------------- */

static void to_groups(struct vb_world_switch_config config, bool traces)
{
    open_yard(config.lanes ? config.lanes : 1);
    leaves(config);
    CHECK(!traces || !vb_world_trace(yard.world));
    yard.groups = 4;
    set_tree(0, 1 << 0 | 1 << 4 | 1 << 7, 0);
    set_tree(1, (1 << LEAVES * EACH) - 1, 0);
    set_tree(2, 1 << 0 | 1 << 1, 0);
    plan(60, US / 4);
    sample_all();
}

static void copies_in_queues(void)
{
    to_groups((struct vb_world_switch_config){.buffer = 30000}, true);
}

static void copies_with_credits(void)
{
    to_groups(yard_lanes(2, VB_WORLD_CREDITS, 20000), false);
}

static void copies_with_pauses(void)
{
    to_groups(yard_pauses(false), false);
}

static void copies_whose_time_ends(void)
{
    struct vb_world_switch_config config = yard_lanes(1, VB_WORLD_CREDITS, 20000);

    config.lifetime = US / 3;
    to_groups(config, false);
}

/* ---- courses: detours ------------------------------------------------------------------------ */

static void all_packets_take_a_detour(void)
{
    /* The tree of hosts 1, 4 and 10, with the ports of extenders that lead there. */
    const uint16_t first[] = {1, EACH + 2, EACH + 3}, second[] = {1, EACH + 2};
    const uint16_t between[] = {EACH, EACH + 1}, last[] = {1, EACH}, far[] = {0, 1};

    open_yard(1);
    groups((struct vb_world_switch_config){0}, (struct vb_world_detour_config){0});
    yard.groups = 1;
    set_group(0, 0, first, 3);
    set_group(1, 0, second, 2);
    set_group(2, 0, between, 2);
    set_group(3, 0, last, 2);
    set_group(16, 0, &far[0], 1);
    set_group(17, 0, &far[1], 1);
    plan(120, US / 5);
    sample_all();
}

static void packets_choose_by_queues(void)
{
    open_yard(1);
    groups((struct vb_world_switch_config){0},
           (struct vb_world_detour_config){.adaptive = true, .by_packet = true, .threshold = 3000});
    plan(120, US / 5);
    sample_all();
}

static void flows_choose_by_queues(void)
{
    open_yard(2);
    groups(yard_lanes(2, VB_WORLD_LOSSY, 0),
           (struct vb_world_detour_config){.adaptive = true, .threshold = 3000, .gap = 3 * US});
    plan(120, US / 5);
    sample_all();
}

static void flows_choose_by_credits(void)
{
    open_yard(1);
    groups(yard_lanes(1, VB_WORLD_CREDITS, 100000),
           (struct vb_world_detour_config){.adaptive = true, .gap = 10 * US});
    plan(60, 2 * US);
    sample_all();
}

struct course {
    const char *name;
    void (*make)(void);
    int end;
    uint64_t delivered, dropped, hash; /* what came of it */
};

#define COURSE(make, end, delivered, dropped, hash) {#make, make, end, delivered, dropped, hash}

static const struct course courses[] = {
    COURSE(queues_that_mark_and_drop, 2, 599, 413, 0x915257bc7e76b37),
    COURSE(a_packet_is_passed_on_before_it_is_whole, 2, 766, 0, 0x2c8a6079e180a372),
    COURSE(cut_through_between_unequal_links, 2, 307, 0, 0x9d1bd4755a13161a),
    COURSE(routes_by_flow_and_hops_that_end, 2, 270, 832, 0xa8b8844d17f3130e),
    COURSE(routes_by_packet, 2, 1102, 0, 0xa4eeff6d6b8f3407),
    COURSE(a_switch_without_a_route_floods, 2, 512, 0, 0xc3870fb218e03f41),
    COURSE(a_reserved_queue, 2, 440, 172, 0x7111bf7515d2bb4b),
    COURSE(credits_of_inputs_in_turn, 2, 913, 7, 0x80cd0b4dc44c1db2),
    COURSE(credits_by_arrival, 2, 916, 4, 0xa62fb4ebd22c0f00),
    COURSE(credits_with_marks_at_outputs, 2, 913, 7, 0xd3baca7e58801552),
    COURSE(a_window_of_credits_and_a_lifetime, 2, 1293, 81, 0x382b70bcb19a2a7d),
    COURSE(credits_of_packets_without_a_route, 2, 989, 616, 0x1f440dfbf657be1a),
    COURSE(a_watchdog_drops, 2, 719, 47, 0x1f03fe0de49dcc18),
    COURSE(a_watchdog_forwards, 2, 744, 22, 0xe90dd6ccd6aa8575),
    COURSE(a_storm_without_end, 2, 744, 22, 0x1bbebbc48dc0e419),
    COURSE(lanes_with_a_reservation, 2, 576, 36, 0x5472dbf6fdb69e6f),
    COURSE(a_ring_of_credits_blocks_itself, 3, 71, 0, 0xc20a7963403f9531),
    COURSE(a_ring_of_queues_by_arrival, 3, 55, 0, 0x5392955529b58986),
    COURSE(a_ring_of_pauses_blocks_itself, 3, 299, 4, 0xfe2a00ff2d0b0017),
    COURSE(a_ring_with_a_lifetime_goes_on, 2, 546, 66, 0x1bd75554e6785510),
    COURSE(a_ring_with_a_watchdog_goes_on, 2, 536, 76, 0x550f6932462cf3d2),
    COURSE(even_frames_in_queues, 2, 742, 24, 0x5fd19d3918404470),
    COURSE(even_frames_with_few_credits, 2, 766, 0, 0xb97a0b7d87e87a7c),
    COURSE(even_frames_with_credits_for_the_link, 2, 766, 0, 0x75f41cd8ffaa347a),
    COURSE(even_frames_with_pauses, 2, 766, 0, 0xac2539d8dd30ef3b),
    COURSE(copies_in_queues, 2, 942, 220, 0x8fe1b03f5461e9d),
    COURSE(copies_with_credits, 2, 1146, 62, 0x6ad3ae0352e237f4),
    COURSE(copies_with_pauses, 2, 1093, 114, 0x67aa689a28320b57),
    COURSE(copies_whose_time_ends, 2, 720, 228, 0x10423a19cded4616),
    COURSE(all_packets_take_a_detour, 2, 2700, 0, 0x3c66a54d5c58d3b4),
    COURSE(packets_choose_by_queues, 2, 1467, 0, 0x85c66b3cc2fe1228),
    COURSE(flows_choose_by_queues, 2, 1467, 0, 0x3591ac3b4a581f4a),
    COURSE(flows_choose_by_credits, 2, 747, 0, 0x4dd65ea1f65f4cb3),
};

static void worlds_go_as_they_went(void)
{
    bool differs = false;

    for (size_t i = 0; i < sizeof(courses) / sizeof(courses[0]); ++i) {
        const struct course *of = &courses[i];
        const struct vb_world *world;
        long blocks = starved_blocks();
        int end;

        of->make();
        world = yard.world;
        end = run();
        if (end != of->end || world->partition->delivered != of->delivered ||
            world->partition->dropped != of->dropped || yard.hash != of->hash) {
            printf("    COURSE(%s, %d, %llu, %llu, 0x%llx),\n", of->name, end,
                   (unsigned long long)world->partition->delivered,
                   (unsigned long long)world->partition->dropped, (unsigned long long)yard.hash);
            differs = true;
        }
        vb_world_destroy(yard.world);
        CHECK_EQ(starved_blocks(), blocks);
    }
    CHECK(!differs);
}

int main(void)
{
    mallopt(M_PERTURB, 0x5a); /* what was not written is not 0 */
    RUN(worlds_go_as_they_went);
    return 0;
}
