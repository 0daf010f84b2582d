// SPDX-License-Identifier: Apache-2.0
#include "yard.h"

#include "check.h"

uint32_t yard_switch(struct vb_world *world, const struct vb_world_switch_config *config)
{
    struct vb_world_switch *sw;
    uint32_t node;

    CHECK_EQ(vb_world_switch_create(config, &sw), 0);
    CHECK_EQ(vb_world_add_switch(world, sw, &node), 0);
    return node;
}

void yard_connect(struct vb_world *world, uint32_t a, uint32_t a_port, uint32_t b, uint32_t b_port,
                  uint64_t rate, uint64_t delay)
{
    const struct vb_world_link link = {.rate = rate, .delay = delay, .pause_response = 40000};

    CHECK_EQ(vb_world_connect(world, a, a_port, b, b_port, &link), 0);
}

uint32_t yard_host(struct vb_world *world, uint32_t sw, uint32_t port, uint64_t rate,
                   uint64_t delay)
{
    uint32_t node;

    CHECK_EQ(vb_world_add_host(world, &node), 0);
    yard_connect(world, node, 0, sw, port, rate, delay);
    return node;
}

struct vb_world_switch_config yard_lanes(uint32_t lanes, enum vb_world_flow_control flow,
                                         uint32_t room)
{
    struct vb_world_switch_config config = {.lanes = lanes};

    for (uint32_t i = 0; i < lanes; ++i) {
        config.lane[i].flow = (struct vb_world_lane_config){flow, room};
        config.tables.low[i] = (struct vb_world_arbiter_entry){(uint8_t)i, (uint8_t)(20 + 30 * i)};
    }
    config.tables.low_count = lanes;
    return config;
}

struct vb_world_switch_config yard_pauses(bool forward)
{
    struct vb_world_switch_config config = yard_lanes(3, VB_WORLD_PAUSES, 0);

    config.buffer = 60000;
    config.lane[0].stop = 12000;
    config.lane[0].go = 6000;
    config.lane[1].alpha = 0.5;
    config.lane[1].go = 5000;
    config.lane[0].spare = config.lane[1].spare = 60000;
    config.lane[2].flow.flow_control = VB_WORLD_LOSSY;
    config.lane[2].alpha = 0.75;
    config.lane[2].mark = (struct vb_world_marking){2000, 9000, 0.4};
    config.watchdog = (struct vb_world_watchdog_config){
        .detect = 60 * 1000000ull, .restore = 25 * 1000000ull, .forward = forward};
    return config;
}
