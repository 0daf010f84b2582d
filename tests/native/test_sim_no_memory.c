// SPDX-License-Identifier: Apache-2.0
/*
 * Simulated worlds for which there is not enough memory: each allocation of a world with all kinds
 * of flows fails once. What failed says so, and nothing is left when the world is gone.
 */
#include "check.h"
#include "dcqcn_sets.h"
#include "event/sample.h"
#include "event/switch.h"
#include "routes.h"
#include "sim/state.h"
#include "starved.h"

enum { HOSTS = 4 };

static const struct vb_world_link cable = {.rate = 100000000000, .delay = 1000000};

/* A switch with one lane that has credits, a group, victims, and a table of lanes. */
static int add_switch(struct vb_world *world, struct vb_world_switch **sw)
{
    static const uint8_t lanes[HOSTS * HOSTS * 16];
    const int32_t routes[2 * HOSTS] = {0, -1, 1, -1, 2, 3, 3, 2};
    const uint16_t ports[HOSTS] = {0, 1, 2, 3};
    struct vb_world_switch_config config = {.ports = HOSTS, .lanes = 1, .management = 4096};
    uint32_t node;
    int error;

    config.lane[0].flow = (struct vb_world_lane_config){VB_WORLD_CREDITS, 32 << 10};
    config.tables.low[0] = (struct vb_world_arbiter_entry){0, 64};
    config.tables.low_count = 1;
    error = vb_world_switch_create(&config, sw);
    if (error)
        return error;
    error = vb_world_add_switch(world, *sw, &node);
    if (!error)
        error = vb_world_set_routes(world, *sw, routes, HOSTS, 2);
    if (!error)
        error = vb_world_switch_set_lanes(*sw, lanes, false);
    if (!error)
        error = vb_world_switch_set_victim(*sw, 1);
    return error ? error : vb_world_switch_set_group(*sw, 0, ports, HOSTS);
}

static int add_hosts(struct vb_sim *sim)
{
    const uint32_t members[] = {1, 2, 3};
    uint32_t node, group;
    int error = 0;

    for (uint32_t i = 0; i < HOSTS && !error; ++i) {
        error = vb_sim_add_host(sim, &node);
        if (!error)
            error = vb_world_connect(vb_sim_world(sim), node, 0, 0, i, &cable);
    }
    return error ? error : vb_sim_add_group(sim, members, 3, &group);
}

static struct vb_sim_flow made(uint32_t source, uint32_t target, unsigned type, unsigned opcode)
{
    return (struct vb_sim_flow){.source = source,
                                .target = target,
                                .bytes = 1 << 17,
                                .message = type == IBV_QPT_UD ? 4096 : 10000,
                                .depth = 4,
                                .type = (uint8_t)type,
                                .opcode = (uint8_t)opcode};
}

static int add_all_kinds(struct vb_sim *sim)
{
    const struct vb_sim_dependency after[] = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
    struct vb_sim_flow given[] = {
        made(0, 1, IBV_QPT_RC, IBV_WR_RDMA_WRITE), made(1, 2, IBV_QPT_UC, IBV_WR_SEND),
        made(1, 3, IBV_QPT_UD, IBV_WR_SEND),       made(2, 0, IBV_QPT_RC, IBV_WR_RDMA_READ),
        made(0, 0, IBV_QPT_UD, IBV_WR_SEND),       made(3, 1, VB_SIM_FLOW_TCP, VB_TCP_CUBIC),
        made(3, 0, VB_SIM_FLOW_TCP, VB_TCP_DCTCP)};
    uint64_t bad;
    int error;

    given[4].to_group = true;
    error = vb_sim_check_flows(sim, given, sizeof(given) / sizeof(*given), &bad);
    return error ? error : vb_sim_add_flows(sim, given, sizeof(given) / sizeof(*given), after, 4);
}

static int build_and_run(struct vb_sim *sim)
{
    struct vb_world_sampled_queue queue = {.lane = 0};
    struct vb_world *world = vb_sim_world(sim);
    struct vb_world_switch *sw;
    uint32_t sampler;
    int error = add_switch(world, &sw);

    if (!error)
        error = add_hosts(sim);
    if (error)
        return error;
    queue.port = world->node[0].port[1];
    error = vb_world_add_sampler(world, &queue, 1, 1000000, 0, 1000, &sampler);
    if (!error)
        error = add_all_kinds(sim);
    if (error)
        return error;
    error = vb_world_run(world, VB_WORLD_NEVER, UINT64_MAX);
    return error == VB_WORLD_END_EMPTY ? 0 : error;
}

static int in_spite(int allocation)
{
    struct vb_sim_config config = vb_sim_defaults();
    struct vb_sim *sim;
    int error;

    config.nic.congestion.kind = VB_CONGESTION_DCQCN;
    config.nic.congestion.dcqcn = dcqcn_paper();
    starved_after(allocation);
    error = vb_sim_create(&config, &sim);
    if (error)
        return error;
    error = build_and_run(sim);
    vb_sim_destroy(sim);
    return error;
}

static void each_allocation_may_fail(void)
{
    long before = starved_blocks();
    bool failed = true;

    for (int allocation = 0; failed; ++allocation) {
        int error = in_spite(allocation);

        failed = starved_end();
        CHECK_EQ(error, failed ? -ENOMEM : 0);
        CHECK_EQ(starved_blocks(), before);
    }
}

int main(void)
{
    RUN(each_allocation_may_fail);
    return 0;
}
