// SPDX-License-Identifier: Apache-2.0
/* Simulated hosts: flows over the packet engine, and what is left of them when they have ended. */
#include <malloc.h>

#include "check.h"
#include "dcqcn_sets.h"
#include "event/sample.h"
#include "event/switch.h"
#include "hca/counters.h"
#include "routes.h"
#include "sim/state.h"

static const struct vb_world_link cable = {.rate = 100000000000, .delay = 1000000};
static struct vb_sim *sim;
static struct vb_world *world;

static void open_star(struct vb_sim_config config, struct vb_world_switch_config switch_config,
                      uint32_t hosts)
{
    int32_t routes[64];
    struct vb_world_switch *sw;
    uint32_t node, host;

    CHECK_EQ(vb_sim_create(&config, &sim), 0);
    world = vb_sim_world(sim);
    switch_config.ports = hosts;
    CHECK_EQ(vb_world_switch_create(&switch_config, &sw), 0);
    CHECK_EQ(vb_world_add_switch(world, sw, &node), 0);
    for (uint32_t i = 0; i < hosts; ++i) {
        CHECK_EQ(vb_sim_add_host(sim, &host), 0);
        CHECK_EQ(vb_world_connect(world, host, 0, node, i, &cable), 0);
        routes[i] = (int32_t)i;
    }
    CHECK_EQ(vb_world_set_routes(world, sw, routes, hosts, 1), 0);
}

static struct vb_sim_flow flow(uint32_t source, uint32_t target, uint64_t bytes)
{
    return (struct vb_sim_flow){.source = source,
                                .target = target,
                                .bytes = bytes,
                                .start = world->now,
                                .opcode = IBV_WR_RDMA_WRITE};
}

static void add(struct vb_sim_flow given)
{
    uint64_t bad;

    CHECK_EQ(vb_sim_check_flows(sim, &given, 1, &bad), 0);
    CHECK_EQ(vb_sim_add_flows(sim, &given, 1, NULL, 0), 0);
}

static void finish(void)
{
    char text[200];

    CHECK_EQ(vb_world_run(world, VB_WORLD_NEVER, UINT64_MAX), VB_WORLD_END_EMPTY);
    CHECK(!vb_world_check(world, true, text, sizeof(text)));
    CHECK_EQ(vb_sim_flows_left(sim), 0);
}

static const struct vb_sim_flow *flow_at(uint64_t number)
{
    uint64_t count;
    const struct vb_sim_flow *flows = vb_sim_flows(sim, &count);

    CHECK(number < count);
    return &flows[number];
}

static void queue_pairs_are_gone_with_their_flows(void)
{
    static struct vb_sim_flow given[20000];

    open_star(vb_sim_defaults(), (struct vb_world_switch_config){0}, 4);
    for (uint32_t i = 0; i < 20000; ++i) {
        given[i] = flow(i % 4, (i + 1) % 4, 1 + i % 9000);
        given[i].start = (20000 - i) * 3000000ull;
        given[i].opcode = i % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
        given[i].message = 4000;
        given[i].depth = (uint8_t)(i % 5);
    }
    CHECK_EQ(vb_sim_add_flows(sim, given, 20000, NULL, 0), 0);
    finish();
    for (uint32_t i = 0; i < 20000; ++i)
        CHECK_EQ(flow_at(i)->state, VB_FLOW_DONE);
    for (uint32_t i = 0; i < 4; ++i) {
        CHECK_EQ(vb_sim_host_counters(sim, i)->drop_no_qp, 0);
        CHECK_EQ(sim->host[i]->adapter.qp_pool.limit, VB_QPS_PER_SLOT); /* numbers do not repeat */
    }
    vb_sim_destroy(sim);
}

/* More connections between two hosts than a number's lower bits tell apart. */
static void five_thousand_connections_at_once(void)
{
    struct vb_sim_config config = vb_sim_defaults();

    config.timeout = 0;
    open_star(config, (struct vb_world_switch_config){0}, 2);
    for (uint32_t i = 0; i < 5000; ++i)
        add(flow(0, 1, 10000));
    finish();
    CHECK_EQ(vb_sim_host_counters(sim, 1)->payload_received, 50000000);
    vb_sim_destroy(sim);
}

static void a_flow_whose_peer_is_cut_off_fails_with_its_reason(void)
{
    struct vb_sim_config config = vb_sim_defaults();
    struct vb_sim_flow given;

    config.timeout = 4;
    config.retry_cnt = 2;
    open_star(config, (struct vb_world_switch_config){0}, 3);
    CHECK_EQ(vb_world_set_link(world, 0, 2, false, 50000000), 0);
    for (uint32_t i = 0; i < 30; ++i) {
        given = flow(0, 2, 1 << 20);
        given.message = 1 << 16;
        given.depth = 16;
        add(given);
    }
    add(flow(0, 1, 1 << 20));
    finish();
    for (uint32_t i = 0; i < 30; ++i) {
        CHECK_EQ(flow_at(i)->state, VB_FLOW_FAILED);
        CHECK_EQ(flow_at(i)->status, IBV_WC_RETRY_EXC_ERR);
    }
    CHECK_EQ(flow_at(30)->state, VB_FLOW_DONE);
    CHECK_EQ(vb_sim_host_counters(sim, 0)->retries_exhausted, 30);
    CHECK_EQ(sim->table.free_slots, sim->table.slots);
    vb_sim_destroy(sim);
}

/* Two flows share a host's link packet by packet, whatever their order of starting. */
static void connections_of_a_host_take_turns(void)
{
    open_star(vb_sim_defaults(), (struct vb_world_switch_config){0}, 3);
    add(flow(0, 1, 1 << 20));
    add(flow(0, 2, 1 << 20));
    finish();
    CHECK(flow_at(1)->finish - flow_at(0)->finish < 2 * 4200 * 80);
    vb_sim_destroy(sim);
}

/* A connection that waits for credits of its lane does not keep another lane's from sending. */
static void a_blocked_lane_does_not_block_the_other(void)
{
    struct vb_world_switch_config config = {.lanes = 2};
    struct vb_sim_flow given;

    for (int i = 0; i < 2; ++i) {
        config.lane[i].flow = (struct vb_world_lane_config){VB_WORLD_CREDITS, 32 << 10};
        config.tables.low[i] = (struct vb_world_arbiter_entry){(uint8_t)i, 64};
    }
    config.tables.low_count = 2;
    open_star(vb_sim_defaults(), config, 5);
    /* On lane 0 host 0 has a third of the link to host 1; lane 1 has the rest of its own. */
    add(flow(0, 1, 1 << 20));
    add(flow(3, 1, 1 << 20));
    add(flow(4, 1, 1 << 20));
    given = flow(0, 2, 1 << 20);
    given.level = 1;
    add(given);
    finish();
    CHECK(flow_at(3)->finish < 150000000ull); /* and not the 172 us of taking turns */
    /* One packet of the connection waits, and not its window: the engine keeps the others. */
    CHECK(world->port[world->node[1].port[0]].traffic.queued_max < 2 * 4200);
    vb_sim_destroy(sim);
}

static void a_world_may_end_while_all_is_under_way(void)
{
    struct vb_sim_config config = vb_sim_defaults();
    struct vb_world_switch_config switch_config = {.buffer = 32 << 10, .mark = {1000, 20000, 1}};

    config.nic.congestion.kind = VB_CONGESTION_DCQCN;
    config.nic.congestion.dcqcn = dcqcn_paper();
    open_star(config, switch_config, 8);
    for (uint32_t i = 1; i < 8; ++i)
        add(flow(i, 0, 1 << 24));
    CHECK_EQ(vb_world_run(world, 300000000, UINT64_MAX), VB_WORLD_END_TIME);
    CHECK(world->partition->pool.in_use);
    CHECK(flow_at(3)->end[0].notices);
    vb_sim_destroy(sim);
}

static struct vb_sim_flow unreliable(uint32_t source, uint32_t target, enum ibv_qp_type type)
{
    struct vb_sim_flow made = flow(source, target, 1 << 18);

    made.type = (uint8_t)type;
    made.opcode = IBV_WR_SEND;
    made.message = type == IBV_QPT_UD ? 4096 : 10000;
    made.depth = 4;
    return made;
}

/* One of each kind, a group, VL15, a promise, and somebody who looks; until `at`, or to the end. */
static void run_all_kinds(uint64_t at)
{
    struct vb_sim_config config = vb_sim_defaults();
    struct vb_world_switch_config switch_config = {.lanes = 1, .management = 4096};
    const uint32_t members[] = {1, 2, 3};
    const uint16_t ports[] = {0, 1, 2, 3};
    const struct vb_sim_dependency after[] = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
    struct vb_sim_flow given[8];
    struct vb_world_sampled_queue queue;
    uint32_t group, sampler;
    uint64_t bad;

    config.nic.doorbell = config.nic.receive_latency = 100000;
    config.nic.bus_rate = 200000000000;
    switch_config.lane[0].flow = (struct vb_world_lane_config){VB_WORLD_CREDITS, 32 << 10};
    switch_config.tables.low[0] = (struct vb_world_arbiter_entry){0, 64};
    switch_config.tables.low_count = 1;
    open_star(config, switch_config, 4);
    CHECK_EQ(vb_sim_add_group(sim, members, 3, &group), 0);
    CHECK_EQ(vb_world_switch_set_group(world->node[0].sw, group, ports, 4), 0);
    queue = (struct vb_world_sampled_queue){.port = world->node[0].port[1], .lane = 0};
    CHECK_EQ(vb_world_add_sampler(world, &queue, 1, 1000000, 0, 1000, &sampler), 0);
    given[0] = unreliable(0, 1, IBV_QPT_RC);
    given[1] = unreliable(1, 2, IBV_QPT_UC);
    given[2] = unreliable(1, 3, IBV_QPT_UD);
    given[3] = flow(2, 0, 1 << 18);
    given[4] = unreliable(0, group, IBV_QPT_UD);
    given[4].to_group = true;
    given[5] = unreliable(3, 1, IBV_QPT_UD);
    given[5].management = true;
    given[6] = given[7] = flow(0, 1, 1 << 18);
    given[6].reserve = given[7].reserve = 60000000000;
    CHECK_EQ(vb_sim_check_flows(sim, given, 8, &bad), 0);
    CHECK_EQ(vb_sim_add_flows(sim, given, 8, after, 4), 0);
    if (at) {
        CHECK_EQ(vb_world_run(world, at, UINT64_MAX), VB_WORLD_END_TIME);
        CHECK(world->partition->pool.in_use);
        return;
    }
    finish();
    for (uint32_t i = 0; i < 7; ++i)
        CHECK_EQ(flow_at(i)->state, i == 5 ? VB_FLOW_INCOMPLETE : VB_FLOW_DONE);
    CHECK_EQ(flow_at(7)->state, VB_FLOW_REFUSED);
    CHECK_EQ(flow_at(4)->done, 3 << 18);
    CHECK_EQ(flow_at(5)->done + flow_at(5)->lost, 1 << 18); /* a burst does not fit into VL15 */
    CHECK(flow_at(5)->lost > 0);
    CHECK(world->sampler[sampler]->rows > 10);
}

static void all_kinds_end_and_leave_nothing(void)
{
    run_all_kinds(0);
    vb_sim_destroy(sim);
    for (uint64_t at = 3000000; at < 30000000; at += 3000000) {
        run_all_kinds(at);
        vb_sim_destroy(sim);
    }
}

enum { LEAVES = 64, SPINES = 16, HOSTS = LEAVES * SPINES };

/* As many hosts as spines on each leaf: two lanes with credits, d-mod-k. */
static void open_two_tiers(void)
{
    struct vb_sim_config config = vb_sim_defaults();
    struct vb_world_switch_config leaf = {.ports = 2 * SPINES, .lanes = 2}, spine;
    int32_t routes[HOSTS];
    uint32_t leaves[LEAVES], spines[SPINES], host;
    struct vb_world_switch *sw;

    for (int i = 0; i < 2; ++i) {
        leaf.lane[i].flow = (struct vb_world_lane_config){VB_WORLD_CREDITS, 64 << 10};
        leaf.tables.low[i] = (struct vb_world_arbiter_entry){(uint8_t)i, 64};
    }
    leaf.tables.low_count = 2;
    spine = leaf;
    spine.ports = LEAVES;
    CHECK_EQ(vb_sim_create(&config, &sim), 0);
    world = vb_sim_world(sim);
    for (uint32_t i = 0; i < SPINES; ++i) {
        CHECK_EQ(vb_world_switch_create(&spine, &sw), 0);
        CHECK_EQ(vb_world_add_switch(world, sw, &spines[i]), 0);
        for (uint32_t h = 0; h < HOSTS; ++h)
            routes[h] = (int32_t)(h / SPINES);
        CHECK_EQ(vb_world_set_routes(world, sw, routes, HOSTS, 1), 0);
    }
    for (uint32_t i = 0; i < LEAVES; ++i) {
        CHECK_EQ(vb_world_switch_create(&leaf, &sw), 0);
        CHECK_EQ(vb_world_add_switch(world, sw, &leaves[i]), 0);
        for (uint32_t h = 0; h < HOSTS; ++h)
            routes[h] = (int32_t)(h / SPINES == i ? h % SPINES : SPINES + h % SPINES);
        CHECK_EQ(vb_world_set_routes(world, sw, routes, HOSTS, 1), 0);
        for (uint32_t s = 0; s < SPINES; ++s) {
            CHECK_EQ(vb_sim_add_host(sim, &host), 0);
            CHECK_EQ(vb_world_connect(world, host, 0, leaves[i], s, &cable), 0);
            CHECK_EQ(vb_world_connect(world, leaves[i], SPINES + s, spines[s], i, &cable), 0);
        }
    }
}

static uint64_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* All in: switches, links, tables, a connection of each host, and what is under way. */
static void a_thousand_hosts_fit(void)
{
    uint64_t before = allocated(), host;
    char text[200];

    open_two_tiers();
    for (uint32_t i = 0; i < HOSTS; ++i)
        add(flow(i, (i + 17) % HOSTS, 1 << 20));
    CHECK_EQ(vb_world_run(world, 40000000, UINT64_MAX), VB_WORLD_END_TIME);
    CHECK(world->partition->pool.in_use > 10 * HOSTS);
    CHECK(!vb_world_check(world, false, text, sizeof(text)));
    host = (allocated() - before) / HOSTS;
    if (host > 32 << 10)
        fprintf(stderr, "%llu bytes for each host\n", (unsigned long long)host);
    CHECK(host <= 32 << 10);
    vb_sim_destroy(sim);
}

/* The figures that the documentation gives for large worlds. */
static void hosts_and_packets_are_small(void)
{
    CHECK(vb_sim_host_bytes() <= 4096);
    CHECK(vb_sim_qp_bytes() <= 1024 + sizeof(struct vb_nic_reaction));
    CHECK_EQ(sizeof(struct vb_world_packet), 64);
}

int main(void)
{
    RUN(queue_pairs_are_gone_with_their_flows);
    RUN(five_thousand_connections_at_once);
    RUN(a_flow_whose_peer_is_cut_off_fails_with_its_reason);
    RUN(connections_of_a_host_take_turns);
    RUN(a_blocked_lane_does_not_block_the_other);
    RUN(a_world_may_end_while_all_is_under_way);
    RUN(all_kinds_end_and_leave_nothing);
    RUN(a_thousand_hosts_fit);
    RUN(hosts_and_packets_are_small);
    return 0;
}
