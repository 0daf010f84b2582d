// SPDX-License-Identifier: Apache-2.0
/*
 * What a simulated fabric refuses, and what it says of routes: links, tables, reservations and
 * storms that cannot be, loops and dead ends.
 */
#include "check.h"
#include "event/detour.h"
#include "event/sample.h"
#include "event/switch.h"
#include "event/tap.h"
#include "event/watchdog.h"
#include "routes.h"
#include "yard.h"

static const uint64_t GBPS = 1000000000;

static const struct vb_world_host_calls calls = {0};
static const struct vb_world_tap tap = {0};
static struct vb_world *world;
static uint32_t host[3];

static void open_world(void)
{
    CHECK_EQ(vb_world_create(7, &calls, NULL, &world), 0);
}

static struct vb_world_switch *world_switch(uint32_t node)
{
    return world->node[node].sw;
}

/* A switch is node 0, and host i is at its port i. The last port has no link. */
static void star(struct vb_world_switch_config config, uint32_t hosts, uint64_t rate)
{
    const int32_t routes[] = {0, 1, 2};

    config.ports = hosts + 1;
    yard_switch(world, &config);
    for (uint32_t i = 0; i < hosts; ++i)
        host[i] = yard_host(world, 0, i, rate, 1000);
    CHECK_EQ(vb_world_set_routes(world, world_switch(0), routes, hosts, 1), 0);
}

static int connected(uint32_t a, uint32_t a_port, uint32_t b, uint32_t b_port)
{
    const struct vb_world_link link = {.rate = GBPS};

    return vb_world_connect(world, a, a_port, b, b_port, &link);
}

static void links_that_cannot_be_are_refused(void)
{
    struct vb_world_switch_config one = yard_lanes(1, VB_WORLD_LOSSY, 0), two = one;
    uint32_t other, managed, lone;

    open_world();
    star(one, 2, GBPS);
    two.ports = one.ports = 2;
    two.lanes = 2;
    other = yard_switch(world, &two);
    one.management = 100;
    managed = yard_switch(world, &one);
    CHECK_EQ(vb_world_add_host(world, &lone), 0);
    CHECK_EQ(connected(0, 2, other, 0), -EINVAL);
    CHECK_EQ(connected(0, 2, managed, 0), -EINVAL);
    CHECK_EQ(connected(other, 0, other, 1), -EINVAL);
    CHECK_EQ(connected(lone, 0, 0, 1), -EBUSY);
    CHECK_EQ(connected(0, 1, lone, 0), -EBUSY);
    CHECK_EQ(vb_world_set_link(world, lone, 0, false, 1), -EINVAL);
    CHECK_EQ(vb_world_add_tap(world, lone, 0, &tap), -EINVAL);
    CHECK_EQ(vb_world_add_tap(world, 0, 3, &tap), -EINVAL);
    CHECK_EQ(vb_world_add_tap(world, lone + 1, 0, &tap), -EINVAL);
    CHECK_EQ(vb_world_add_storm(world, lone, 0, 0, 1), -EINVAL);
    CHECK_EQ(vb_world_add_storm(world, host[0], 0, 0, 1), -EINVAL); /* no pauses there */
    CHECK_EQ(connected(0, 2, lone, 0), 0);
    CHECK_EQ(vb_world_run(world, 10, UINT64_MAX), VB_WORLD_END_EMPTY);
    CHECK_EQ(vb_world_run(world, 9, UINT64_MAX), -EINVAL);
    CHECK_EQ(vb_world_run(world, 10, UINT64_MAX), VB_WORLD_END_EMPTY);
    vb_world_destroy(world);
}

static void tables_that_cannot_be_are_refused(void)
{
    const struct vb_world_detour_config detours = {0};
    const uint16_t group[] = {0, 1, 1, 0}, gap[] = {0, 2, 2, 0}, empty[] = {1, 0, 0, 0};
    uint8_t lanes[3 * 3 * 16] = {0};

    open_world();
    star(yard_lanes(1, VB_WORLD_LOSSY, 0), 2, GBPS);
    lanes[sizeof(lanes) - 1] = 1;
    CHECK_EQ(vb_world_switch_set_lanes(world_switch(0), lanes, false), -EINVAL);
    CHECK(!world_switch(0)->lane_of);
    CHECK_EQ(vb_world_set_detours(world, &detours, group, 2), -EINVAL); /* one has no group */
    CHECK_EQ(vb_world_set_detours(world, &detours, group, 4), -EINVAL);
    CHECK_EQ(vb_world_set_detours(world, &detours, gap, 3), -EINVAL);
    CHECK_EQ(vb_world_set_detours(world, &detours, empty, 3), -EINVAL);
    CHECK(!world->detours && !world_switch(0)->detour);
    vb_world_destroy(world);
}

/* Two switches that pass packets for host 1 to and fro; host 2 has no route, and host 3 no link. */
static void loops_and_dead_ends_are_told(void)
{
    const struct vb_world_switch_config config = {.ports = 3};
    const int32_t routes[] = {0, 1, -1, 2};
    uint32_t lone_host;
    struct vb_world_packet packet = {.target = 2};
    struct vb_world_reservation wanted = {1, 0};
    struct vb_world_route *route;

    open_world();
    yard_switch(world, &config);
    yard_switch(world, &config);
    yard_host(world, 0, 0, 2 * GBPS, 1);
    yard_host(world, 1, 0, GBPS, 1);
    CHECK_EQ(vb_world_add_host(world, &lone_host), 0);
    yard_connect(world, 0, 1, 1, 1, 3 * GBPS, 1);
    for (uint32_t i = 0; i < 2; ++i)
        CHECK_EQ(vb_world_set_routes(world, world_switch(i), routes, 4, 1), 0);
    CHECK_EQ(vb_world_reaches(world, 2, 1), 0);
    CHECK_EQ(vb_world_reaches(world, 3, 1), -EHOSTUNREACH); /* another host */
    CHECK_EQ(vb_world_reaches(world, 2, 2), -ELOOP);
    CHECK_EQ(vb_world_reaches(world, 2, 3), -EHOSTUNREACH);
    CHECK_EQ(vb_world_reaches(world, 2, 4), -EHOSTUNREACH);
    CHECK_EQ(vb_world_reaches(world, 2, 5), -EHOSTUNREACH);
    CHECK_EQ(vb_world_reaches(world, 4, 1), -EHOSTUNREACH);
    CHECK_EQ(vb_world_slowest(world, 2, 1), 2 * GBPS);
    CHECK_EQ(vb_world_slowest(world, 4, 1), 0);
    CHECK_EQ(vb_world_reserve(world, 2, &packet, &wanted, &route), -EHOSTUNREACH);
    world->hop_limit = 5;
    CHECK_EQ(vb_world_reaches(world, 2, 2), 0);
    CHECK_EQ(vb_world_slowest(world, 2, 2), 2 * GBPS);
    vb_world_destroy(world);
}

static void a_route_with_several_ways_or_pauses_is_not_reserved(void)
{
    const int32_t routes[] = {0, -1, 1, 2};
    struct vb_world_packet packet = {.target = 2, .level_marks = 1 << 4};
    struct vb_world_reservation wanted = {1, 1};
    struct vb_world_route *route, *other;

    open_world();
    star(yard_pauses(false), 3, GBPS);
    world_switch(0)->reservable = 1;
    CHECK_EQ(vb_world_reserve(world, host[0], &packet, &wanted, &route), -EOPNOTSUPP);
    packet.level_marks = 2 << 4;
    CHECK_EQ(vb_world_reserve(world, host[0], &packet, &wanted, &route), 0);
    CHECK_EQ(vb_world_reserve(world, host[0], &packet, &wanted, &other), -EBUSY); /* none left */
    vb_world_release(world, route, &wanted);
    CHECK_EQ(vb_world_set_routes(world, world_switch(0), routes, 2, 2), 0);
    CHECK_EQ(vb_world_reserve(world, host[0], &packet, &wanted, &route), 0);
    vb_world_release(world, route, &wanted);
    world_switch(0)->balance = VB_WORLD_BY_PACKET;
    CHECK_EQ(vb_world_reserve(world, host[0], &packet, &wanted, &route), -EINVAL);
    packet.target = 1;
    CHECK_EQ(vb_world_reserve(world, host[1], &packet, &wanted, &route), 0);
    vb_world_release(world, route, &wanted);
    CHECK_EQ(world_switch(0)->reserved, 0);
    vb_world_destroy(world);
}

/* Each link of a route has its own rate, the host's own one too. */
static void a_host_s_own_link_is_reserved_too(void)
{
    struct vb_world_packet packet = {.target = 2};
    const struct vb_world_reservation more = {GBPS * 6 / 10, 0}, rest = {GBPS * 4 / 10, 0};
    struct vb_world_route *route[3];

    open_world();
    star((struct vb_world_switch_config){0}, 3, GBPS);
    CHECK_EQ(vb_world_reserve(world, host[0], &packet, &more, &route[0]), 0);
    packet.target = 3;
    CHECK_EQ(vb_world_reserve(world, host[0], &packet, &more, &route[1]), -EBUSY);
    CHECK_EQ(vb_world_reserve(world, host[0], &packet, &rest, &route[1]), 0);
    CHECK_EQ(vb_world_reserve(world, host[1], &packet, &more, &route[2]), 0);
    vb_world_release(world, route[0], &more);
    vb_world_release(world, route[1], &rest);
    vb_world_release(world, route[2], &more);
    for (uint32_t i = 0; i < world->ports; ++i)
        CHECK_EQ(world->port[i].reserved_rate, 0);
    vb_world_destroy(world);
}

static void a_sampler_stops_at_its_limit(void)
{
    const struct vb_world_sampled_queue queue = {0};
    uint32_t number;

    open_world();
    star((struct vb_world_switch_config){0}, 2, GBPS);
    CHECK_EQ(vb_world_add_sampler(world, &queue, 1, 10, 5, 2, &number), 0);
    CHECK_EQ(vb_world_run(world, 14, UINT64_MAX), VB_WORLD_END_EMPTY);
    CHECK(!world->sampler[number]->stopped && world->sampler[number]->planned);
    CHECK_EQ(vb_world_run(world, 100, UINT64_MAX), VB_WORLD_END_EMPTY);
    CHECK(world->sampler[number]->stopped && !world->sampler[number]->planned);
    CHECK_EQ(world->sampler[number]->rows, 2);
    vb_world_destroy(world);
}

static void a_sampler_stops_when_it_is_told(void)
{
    const struct vb_world_sampled_queue queue = {0};
    uint32_t number;

    open_world();
    star((struct vb_world_switch_config){0}, 2, GBPS);
    CHECK_EQ(vb_world_add_sampler(world, &queue, 1, 10, 5, 100, &number), 0);
    CHECK_EQ(vb_world_run(world, 30, UINT64_MAX), VB_WORLD_END_EMPTY);
    CHECK_EQ(world->sampler[number]->rows, 3);
    vb_world_sampler_stop(world->sampler[number]);
    CHECK_EQ(vb_world_run(world, 50, UINT64_MAX), VB_WORLD_END_EMPTY);
    CHECK_EQ(world->sampler[number]->rows, 3);
    CHECK_EQ(world->agenda.count, 0);
    CHECK(!world->sampler[number]->planned);
    CHECK_EQ(world->partition->idle + world->watching, 0);
    vb_world_destroy(world);
}

/* All packets of the world but one are in use when a switch has to copy that one. */
static void a_copy_without_memory_ends_the_run(bool with_credits)
{
    struct vb_world_switch_config config = yard_lanes(with_credits, VB_WORLD_CREDITS, 8192);
    const uint16_t all[] = {0, 1, 2};
    struct vb_world_packet *at;
    uint32_t packet;

    open_world();
    star(config, 3, GBPS);
    CHECK_EQ(vb_world_switch_set_group(world_switch(0), 0, all, 3), 0);
    packet = vb_world_pool_take(&world->partition->pool);
    at = vb_world_packet_at(world->partition, packet);
    memset(at, 0, sizeof(*at));
    at->bytes = 100;
    at->level_marks = VB_WORLD_TO_GROUP;
    world->packets.room = world->packets.made;
    while (vb_world_pool_take(&world->partition->pool) != VB_WORLD_NONE) {
    }
    vb_world_send(world->partition, host[0], packet);
    CHECK_EQ(vb_world_run(world, VB_WORLD_NEVER, UINT64_MAX), -ENOMEM);
    vb_world_destroy(world);
}

static void copies_without_memory_end_the_run(void)
{
    a_copy_without_memory_ends_the_run(false);
    a_copy_without_memory_ends_the_run(true);
}

int main(void)
{
    RUN(links_that_cannot_be_are_refused);
    RUN(tables_that_cannot_be_are_refused);
    RUN(loops_and_dead_ends_are_told);
    RUN(a_route_with_several_ways_or_pauses_is_not_reserved);
    RUN(copies_without_memory_end_the_run);
    RUN(a_host_s_own_link_is_reserved_too);
    RUN(a_sampler_stops_at_its_limit);
    RUN(a_sampler_stops_when_it_is_told);
    return 0;
}
