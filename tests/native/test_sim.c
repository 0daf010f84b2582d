// SPDX-License-Identifier: Apache-2.0
/* Simulated hosts: flows over the packet engine, and what is left of them when they have ended. */
#include "check.h"
#include "hca/counters.h"
#include "port/sim/state.h"

static const struct vb_sim_link link = {.rate = 100000000000, .delay = 1000000};
static struct vb_sim *sim;
static struct vb_world *world;

static void open_star(struct vb_sim_config config, struct vb_sim_switch_config switch_config,
                      uint32_t hosts)
{
    int32_t routes[64];
    struct vb_sim_switch *sw;
    uint32_t node, host;

    CHECK_EQ(vb_sim_create(&config, &sim), 0);
    world = vb_sim_world(sim);
    switch_config.ports = hosts;
    CHECK_EQ(vb_switch_create(&switch_config, &sw), 0);
    CHECK_EQ(vb_world_add_switch(world, sw, &node), 0);
    for (uint32_t i = 0; i < hosts; ++i) {
        CHECK_EQ(vb_sim_add_host(sim, &host), 0);
        CHECK_EQ(vb_world_connect(world, host, 0, node, i, &link), 0);
        routes[i] = (int32_t)i;
    }
    CHECK_EQ(vb_switch_set_routes(sw, routes, hosts, 1), 0);
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

    CHECK_EQ(vb_sim_add_flows(sim, &given, 1, &bad), 0);
}

static void finish(void)
{
    char text[200];

    CHECK_EQ(vb_world_run(world, VB_SIM_NEVER, UINT64_MAX), VB_SIM_END_EMPTY);
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
    uint64_t bad;

    open_star(vb_sim_defaults(), (struct vb_sim_switch_config){0}, 4);
    for (uint32_t i = 0; i < 20000; ++i) {
        given[i] = flow(i % 4, (i + 1) % 4, 1 + i % 9000);
        given[i].start = (20000 - i) * 3000000ull;
        given[i].opcode = i % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
        given[i].message = 4000;
        given[i].depth = (uint8_t)(i % 5);
    }
    CHECK_EQ(vb_sim_add_flows(sim, given, 20000, &bad), 0);
    finish();
    for (uint32_t i = 0; i < 20000; ++i)
        CHECK_EQ(flow_at(i)->state, VB_FLOW_DONE);
    CHECK_EQ(sim->free_slots, sim->slots);
    CHECK(sim->slots < 64);
    for (uint32_t i = 0; i < 4; ++i) {
        CHECK_EQ(vb_sim_host_counters(sim, i)->drop_no_qp, 0);
        CHECK(sim->host[i]->adapter.qp_pool.limit < 64);
    }
    vb_sim_destroy(sim);
}

/* More connections between two hosts than a number's lower bits tell apart. */
static void five_thousand_connections_at_once(void)
{
    struct vb_sim_config config = vb_sim_defaults();

    config.timeout = 0;
    open_star(config, (struct vb_sim_switch_config){0}, 2);
    for (uint32_t i = 0; i < 5000; ++i)
        add(flow(0, 1, 10000));
    finish();
    CHECK_EQ(vb_sim_host_counters(sim, 1)->payload_received, 50000000);
    CHECK_EQ(sim->slots, 10000);
    vb_sim_destroy(sim);
}

static void a_flow_whose_peer_is_cut_off_fails_with_its_reason(void)
{
    struct vb_sim_config config = vb_sim_defaults();
    struct vb_sim_flow given;

    config.timeout = 4;
    config.retry_cnt = 2;
    open_star(config, (struct vb_sim_switch_config){0}, 3);
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
    CHECK_EQ(sim->free_slots, sim->slots);
    vb_sim_destroy(sim);
}

/* Two flows share a host's link packet by packet, whatever their order of starting. */
static void connections_of_a_host_take_turns(void)
{
    open_star(vb_sim_defaults(), (struct vb_sim_switch_config){0}, 3);
    add(flow(0, 1, 1 << 20));
    add(flow(0, 2, 1 << 20));
    finish();
    CHECK(flow_at(1)->finish - flow_at(0)->finish < 2 * 4200 * 80);
    vb_sim_destroy(sim);
}

/* A connection that waits for credits of its lane does not keep another lane's from sending. */
static void a_blocked_lane_does_not_block_the_other(void)
{
    struct vb_sim_switch_config config = {.lanes = 2};
    struct vb_sim_flow given;

    for (int i = 0; i < 2; ++i) {
        config.lane[i].flow = (struct vb_sim_lane_config){VB_SIM_CREDITS, 32 << 10};
        config.tables.low[i] = (struct vb_arbiter_entry){(uint8_t)i, 64};
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
    struct vb_sim_switch_config switch_config = {.buffer = 32 << 10, .mark = {1000, 20000, 1}};

    config.congestion.kind = VB_CONGESTION_DCQCN;
    config.congestion.dcqcn = vb_dcqcn_paper();
    open_star(config, switch_config, 8);
    for (uint32_t i = 1; i < 8; ++i)
        add(flow(i, 0, 1 << 24));
    CHECK_EQ(vb_world_run(world, 300000000, UINT64_MAX), VB_SIM_END_TIME);
    CHECK(world->pool.in_use);
    CHECK(flow_at(3)->notices);
    vb_sim_destroy(sim);
}

/* The figures that the documentation gives for large worlds. */
static void hosts_and_packets_are_small(void)
{
    CHECK(vb_sim_host_bytes() <= 4096);
    CHECK(vb_sim_qp_bytes() <= 2048);
    CHECK_EQ(sizeof(struct vb_sim_packet), 64);
}

int main(void)
{
    RUN(queue_pairs_are_gone_with_their_flows);
    RUN(five_thousand_connections_at_once);
    RUN(a_flow_whose_peer_is_cut_off_fails_with_its_reason);
    RUN(connections_of_a_host_take_turns);
    RUN(a_blocked_lane_does_not_block_the_other);
    RUN(a_world_may_end_while_all_is_under_way);
    RUN(hosts_and_packets_are_small);
    return 0;
}
