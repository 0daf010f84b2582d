// SPDX-License-Identifier: Apache-2.0
/*
 * The choice between the minimal route and a detour (event/detour.h), at its limits: queues and
 * lengths of routes, who may take a detour at all, how long a flow keeps its choice, and tables
 * that grow.
 */
#include "check.h"
#include "event/detour.h"
#include "routes.h"
#include "starved.h"
#include "wire/bytes.h"
#include "yard.h"

/* Three groups of one switch with one host each, all linked: host i is at switch i. There are only
 * three, so that a packet from group 0 to group 1 can go by group 2 alone. */
enum { GROUPS = 3, TO_HOST = 0, PORTS = 4 };

static const uint64_t RATE = 100000000000, DELAY = 1000000;

static const struct vb_world_host_calls no_hosts;

static struct vb_world *world;
static uint32_t in; /* by which packets of host 0 come to their switch */

static struct vb_world_switch *group_switch(uint32_t group)
{
    return world->node[group].sw;
}

/* The port of a group's switch that leads to another group. */
static struct vb_world_port *port_to(uint32_t group, uint32_t other)
{
    return &world->port[world->node[group].port[1 + other]];
}

/* Routes of the switches, where host `without` is at none; 3: each has its route. */
static void set_routes(uint32_t without)
{
    int32_t route[GROUPS];

    for (uint32_t node = 0; node < GROUPS; ++node) {
        for (uint32_t i = 0; i < GROUPS; ++i)
            route[i] = (int32_t)(i == without ? UINT32_MAX : i == node ? TO_HOST : 1 + i);
        CHECK_EQ(vb_world_set_routes(world, group_switch(node), route, GROUPS, 1), 0);
    }
}

static void open_groups(const struct vb_world_detour_config *config,
                        struct vb_world_switch_config as)
{
    const uint16_t group[] = {0, 1, 2, 0, 1, 2};
    uint32_t host;

    as.ports = PORTS;
    CHECK_EQ(vb_world_create(5, &no_hosts, NULL, &world), 0);
    for (uint32_t i = 0; i < GROUPS; ++i)
        CHECK_EQ(yard_switch(world, &as), i);
    for (uint32_t i = 0; i < GROUPS; ++i)
        host = yard_host(world, i, TO_HOST, RATE, DELAY);
    CHECK_EQ(host, 2 * GROUPS - 1);
    for (uint32_t i = 0; i < GROUPS; ++i)
        for (uint32_t j = i + 1; j < GROUPS; ++j)
            yard_connect(world, i, 1 + j, j, 1 + i, RATE, DELAY);
    set_routes(GROUPS);
    CHECK_EQ(vb_world_set_detours(world, config, group, 2 * GROUPS), 0);
    in = world->node[0].port[TO_HOST];
}

static struct vb_world_packet packet_of(uint32_t from, uint32_t to)
{
    return (struct vb_world_packet){
        .source = from + 1, .target = to + 1, .bytes = 1000, .payload = 900};
}

/* So many bytes wait at a port without lanes. */
static void set_queue(struct vb_world_port *port, uint64_t bytes)
{
    port->free_at = world->partition->now + bytes * port->byte_time;
}

/* Does a packet of this flow from host 0 to host 1 take a detour? */
static bool detours(uint32_t qp)
{
    struct vb_world_packet packet = packet_of(0, 1);

    vb_wire_put24(packet.header + 5, qp);
    return vb_world_detour_target(world->partition, group_switch(0), in, &packet) != 2;
}

/* ---- queues ---------------------------------------------------------------------------------- */

/* The minimal route has one link between switches, the detour two. */
static void a_detour_has_to_have_the_smaller_product(void)
{
    static const struct {
        uint64_t minimal, other;
        uint32_t threshold;
        bool detours;
    } cases[] = {
        {0, 0, 0, false},        {1, 0, 0, true},           {2000, 1000, 0, false},
        {2001, 1000, 0, true},   {1999, 1000, 0, false},    {3000, 0, 3000, false},
        {3001, 0, 3000, true},   {5000, 1000, 3000, false}, {5001, 1000, 3000, true},
        {1000, 50000, 0, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct vb_world_detour_config config = {
            .adaptive = true, .by_packet = true, .threshold = cases[i].threshold};

        open_groups(&config, (struct vb_world_switch_config){0});
        set_queue(port_to(0, 1), cases[i].minimal);
        set_queue(port_to(0, 2), cases[i].other);
        CHECK_EQ(detours(1), cases[i].detours);
        vb_world_destroy(world);
    }
}

/* Of a port with lanes all lanes but VL15 count, and the credits that it waits for. */
static void the_queue_of_lanes_is_their_sum(void)
{
    const struct vb_world_detour_config config = {
        .adaptive = true, .by_packet = true, .threshold = 1000};
    struct vb_world_switch_config as = yard_lanes(2, VB_WORLD_CREDITS, 64000);

    as.management = 5000;
    for (int more = 0; more < 2; ++more) {
        struct vb_world_lane *lane;

        open_groups(&config, as);
        lane = port_to(0, 1)->lanes->lane;
        lane[2].bytes = 50000;
        CHECK(!detours(1));
        lane[0].bytes = 300;
        lane[1].bytes = 60 + (uint32_t)more;
        lane[1].sent = 17;
        lane[1].released = 7; /* ten blocks are 640 bytes */
        CHECK_EQ(detours(1), more);
        lane[1].released = 8;
        CHECK(!detours(1));
        vb_world_destroy(world);
    }
}

/* Where one of the two routes is none, or both begin alike, the packet follows the table. */
static void without_two_routes_there_is_no_choice(void)
{
    const struct vb_world_detour_config config = {.adaptive = true, .by_packet = true};
    const int32_t alike[] = {TO_HOST, 2, 2};

    open_groups(&config, (struct vb_world_switch_config){0});
    set_queue(port_to(0, 1), 5000);
    CHECK(detours(1));
    set_routes(2);
    CHECK(!detours(1));
    set_routes(1);
    CHECK(!detours(1));
    CHECK_EQ(vb_world_set_routes(world, group_switch(0), alike, GROUPS, 1), 0);
    CHECK(!detours(1));
    vb_world_destroy(world);
}

/* ---- who may --------------------------------------------------------------------------------- */

/* Packets of hosts to another group's host, and no management packets. */
static void only_packets_to_another_group_take_a_detour(void)
{
    const struct vb_world_detour_config always = {0};
    struct vb_world_packet packet;
    uint32_t between;

    open_groups(&always, (struct vb_world_switch_config){0});
    packet = packet_of(0, 1);
    CHECK_EQ(vb_world_detour_target(world->partition, group_switch(0), in, &packet), 3);
    CHECK_EQ(packet.flags, VB_WORLD_DETOUR);
    between = world->node[2].port[1]; /* it comes to the intermediate group, and goes on */
    CHECK_EQ(vb_world_detour_target(world->partition, group_switch(2), between, &packet), 2);
    CHECK_EQ(packet.flags, 0);
    CHECK_EQ(vb_world_detour_target(world->partition, group_switch(1), between, &packet), 2);
    CHECK_EQ(packet.flags, 0); /* one from another switch does not begin a detour */

    packet = packet_of(0, 1);
    packet.level_marks = VB_WORLD_MANAGEMENT;
    CHECK_EQ(vb_world_detour_target(world->partition, group_switch(0), in, &packet), 2);
    packet = packet_of(0, 0);
    CHECK_EQ(vb_world_detour_target(world->partition, group_switch(0), in, &packet), 1);
    packet = packet_of(0, GROUPS); /* which is no host */
    CHECK_EQ(vb_world_detour_target(world->partition, group_switch(0), in, &packet), GROUPS + 1);
    CHECK_EQ(packet.flags, 0);
    vb_world_destroy(world);
}

/* With two groups there is no third one to go by. */
static void two_groups_have_no_detour(void)
{
    const struct vb_world_detour_config always = {0};
    const uint16_t group[] = {0, 1, 1, 0, 1, 1};
    struct vb_world_packet packet;

    open_groups(&always, (struct vb_world_switch_config){0});
    vb_world_detours_free(world);
    CHECK(!group_switch(0)->detour && !world->detours);
    CHECK_EQ(vb_world_set_detours(world, &always, group, 2 * GROUPS), 0);
    packet = packet_of(0, 1);
    CHECK_EQ(vb_world_detour_target(world->partition, group_switch(0), in, &packet), 2);
    vb_world_destroy(world);
}

/* ---- flows ----------------------------------------------------------------------------------- */

/* A flow keeps its choice until more than `gap` has passed without a packet. */
static void a_flow_keeps_its_choice_for_a_gap(void)
{
    const struct vb_world_detour_config config = {.adaptive = true, .gap = 100};

    open_groups(&config, (struct vb_world_switch_config){0});
    CHECK(!detours(1));
    set_queue(port_to(0, 1), 1000000);
    CHECK(detours(2)); /* another flow chooses now */
    CHECK(!detours(1));
    world->partition->now += 100;
    CHECK(!detours(1));
    world->partition->now += 100; /* since the last packet, not since the choice */
    CHECK(!detours(1));
    world->partition->now += 101;
    CHECK(detours(1));
    set_queue(port_to(0, 1), 0);
    CHECK(detours(1));
    world->partition->now += 101;
    CHECK(!detours(1));
    vb_world_destroy(world);
}

/* Each flow of many has its own choice; those whose gap has passed make room. */
static void many_flows_have_their_own_choices(void)
{
    enum { MANY = 500 };
    const struct vb_world_detour_config config = {.adaptive = true, .gap = 1000};
    const struct vb_world_detour *detour;
    uint32_t room;

    open_groups(&config, (struct vb_world_switch_config){0});
    for (uint32_t qp = 0; qp < MANY; ++qp) {
        set_queue(port_to(0, 1), qp % 3 ? 0 : 1000000);
        CHECK_EQ(detours(qp), qp % 3 == 0);
    }
    set_queue(port_to(0, 1), 0);
    for (uint32_t qp = 0; qp < MANY; ++qp)
        CHECK_EQ(detours(qp), qp % 3 == 0);
    detour = group_switch(0)->detour;
    CHECK_EQ(detour->flows, MANY);
    CHECK(2 * detour->flows <= detour->room && detour->room < 8 * MANY);
    room = detour->room;
    world->partition->now += 1001;
    for (uint32_t qp = MANY; 2 * detour->flows < room; ++qp)
        detours(qp);
    detours(1000000); /* the table is made anew, without those of the past */
    CHECK_EQ(detour->flows, room / 2 - MANY + 1);
    CHECK_EQ(detour->room, 2 * room);
    vb_world_destroy(world);
}

/* Source and target belong to a flow as its QP number does. */
static void a_flow_is_source_target_and_qp(void)
{
    const struct vb_world_detour_config config = {.adaptive = true, .gap = 1000};
    struct vb_world_packet other = packet_of(0, 2);

    open_groups(&config, (struct vb_world_switch_config){0});
    set_queue(port_to(0, 1), 1000000);
    CHECK(detours(0));
    set_queue(port_to(0, 1), 0);
    CHECK_EQ(vb_world_detour_target(world->partition, group_switch(0), in, &other), 3);
    CHECK(detours(0));
    CHECK_EQ(group_switch(0)->detour->flows, 2);
    for (uint32_t bit = 0; bit < 24; ++bit)
        CHECK(!detours(1u << bit));
    CHECK_EQ(group_switch(0)->detour->flows, 2 + 24);
    other = packet_of(0, 2);
    other.header[4] = other.header[8] = 1; /* which are no part of the number */
    vb_world_detour_target(world->partition, group_switch(0), in, &other);
    CHECK_EQ(group_switch(0)->detour->flows, 2 + 24);
    vb_world_destroy(world);
}

/* A table that cannot grow ends the run; the packet follows the minimal route. */
static void a_flow_without_memory_ends_the_run(void)
{
    const struct vb_world_detour_config config = {.adaptive = true, .gap = 1000};

    open_groups(&config, (struct vb_world_switch_config){0});
    set_queue(port_to(0, 1), 1000000);
    starved_after(0);
    CHECK(!detours(0));
    CHECK(starved_end());
    CHECK_EQ(world->partition->error, -ENOMEM);
    vb_world_destroy(world);
    CHECK_EQ(starved_blocks(), 0);
}

int main(void)
{
    RUN(a_detour_has_to_have_the_smaller_product);
    RUN(the_queue_of_lanes_is_their_sum);
    RUN(without_two_routes_there_is_no_choice);
    RUN(only_packets_to_another_group_take_a_detour);
    RUN(two_groups_have_no_detour);
    RUN(a_flow_keeps_its_choice_for_a_gap);
    RUN(many_flows_have_their_own_choices);
    RUN(a_flow_is_source_target_and_qp);
    RUN(a_flow_without_memory_ends_the_run);
    return 0;
}
