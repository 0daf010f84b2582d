// SPDX-License-Identifier: Apache-2.0
/*
 * Inspects a world without changing it: counters, conservation of packets and credits, and routes.
 * The Python binding calls this, mostly once per run, and the hosts for routes. Who waits for whom
 * in a deadlock, and what a group's packets reach, is for Python (blocked.py, groups.py).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "event/lanes.h"
#include "event/switch.h"

/* A port without lanes counts packets when it gets them: subtracts those whose transmission has not
 * begun. */
static void take_off_queue(const struct vb_world *world, const struct vb_world_port *port,
                           struct vb_world_port_counters *traffic)
{
    uint32_t packet = world->port[port->peer].arrive_first;

    for (; packet != VB_WORLD_NONE; packet = world->packets.packet[packet].next) {
        const struct vb_world_packet *at = &world->packets.packet[packet];
        uint64_t time = at->bytes * 8 * VB_WORLD_SECOND / port->rate;
        bool is_early = port->early && port->early < at->bytes;
        uint64_t early = is_early ? (uint64_t)(at->bytes - port->early) * port->byte_time : 0;

        if (at->at + early - port->delay - time <= world->now)
            continue;
        --traffic->packets;
        traffic->bytes -= at->bytes;
    }
}

struct vb_world_port_counters vb_world_traffic(const struct vb_world *world,
                                               const struct vb_world_port *port)
{
    struct vb_world_port_counters traffic = port->traffic;

    if (port->free_at > world->now) {
        traffic.busy -= port->free_at - world->now;
        if (!port->lanes)
            take_off_queue(world, port, &traffic);
    }
    if (port->lanes && port->lanes->stalled_since != VB_WORLD_NEVER)
        traffic.stalled += world->now - port->lanes->stalled_since;
    return traffic;
}

/* Blocks that the other end has released, with the records that have not arrived yet. */
static uint64_t given_back(const struct vb_world_lanes *lanes, uint32_t number)
{
    uint64_t blocks = lanes->lane[number].released;

    for (uint32_t i = 0; i < lanes->control_count; ++i) {
        const struct vb_world_control *record = vb_world_lanes_control(lanes, i);

        if (record->lane == number && record->kind == VB_WORLD_CONTROL_RELEASED)
            blocks += record->value;
    }
    return blocks;
}

static const char *check_lane(const struct vb_world_port *port, uint32_t number, bool at_rest)
{
    const struct vb_world_lane *lane = &port->lanes->lane[number];

    if (lane->input_flow_control == VB_WORLD_CREDITS && lane->held > lane->room)
        return "holds more than it gave credits for";
    if (lane->input_flow_control == VB_WORLD_PAUSES && lane->above > lane->held)
        return "holds more in its headroom than it holds";
    if (lane->flow_control == VB_WORLD_CREDITS && lane->released > lane->sent)
        return "was given back more credits than it used";
    if (lane->flow_control == VB_WORLD_CREDITS && lane->sent > vb_world_lane_limit(lane))
        return "has sent more than it had credits for";
    if (!at_rest)
        return NULL;
    if (lane->packets || lane->bytes)
        return "still has packets in its queue";
    if (lane->held)
        return "still holds room for packets that are gone";
    if (lane->flow_control == VB_WORLD_CREDITS && given_back(port->lanes, number) != lane->sent)
        return "is owed credits";
    return NULL;
}

static const char *check_port(const struct vb_world_port *port, bool at_rest)
{
    if (port->traffic.dropped[VB_WORLD_DROP_HEADROOM])
        return "dropped packets of a lossless lane: its headroom is too small";
    for (uint32_t i = 0; port->lanes && i < port->lanes->count; ++i) {
        const char *wrong = check_lane(port, i, at_rest);

        if (wrong)
            return wrong;
    }
    if (port->reserved_rate > port->rate)
        return "has promised more than its rate";
    return at_rest && port->arrive_first != VB_WORLD_NONE ? "still has packets on its link" : NULL;
}

static const char *check_switch(const struct vb_world_switch *sw, bool at_rest)
{
    if (sw->lanes && sw->buffer && sw->used + sw->reserved_used > sw->buffer)
        return "holds more than its buffer";
    return at_rest && sw->reserved_used
               ? "still keeps room that was promised to packets that are gone"
               : NULL;
}

/* NULL: the packets of all partitions add up. */
static const char *check_packets(const struct vb_world *world, bool at_rest, char *text,
                                 size_t size)
{
    const struct vb_world_sums sums = vb_world_sums(world);

    if (sums.made + sums.copied + sums.kept != sums.delivered + sums.dropped + sums.in_use) {
        snprintf(text, size,
                 "of %" PRIu64 " packets %" PRIu64 " arrived, %" PRIu64 " were dropped and %" PRIu64
                 " are on their way",
                 sums.made + sums.copied, sums.delivered, sums.dropped, sums.in_use - sums.kept);
        return text;
    }
    if (at_rest && sums.in_use) {
        snprintf(text, size, "%" PRIu64 " packets are still on their way", sums.in_use);
        return text;
    }
    return NULL;
}

const char *vb_world_check(const struct vb_world *world, bool at_rest, char *text, size_t size)
{
    if (check_packets(world, at_rest, text, size))
        return text;
    for (uint32_t i = 0; i < world->nodes; ++i) {
        const struct vb_world_switch *sw = world->node[i].sw;
        const char *wrong = sw ? check_switch(sw, at_rest) : NULL;

        if (wrong) {
            snprintf(text, size, "node %" PRIu32 " %s", i, wrong);
            return text;
        }
    }
    for (uint32_t i = 0; i < world->ports; ++i) {
        const struct vb_world_port *port = &world->port[i];
        const char *wrong = check_port(port, at_rest);

        if (wrong) {
            snprintf(text, size, "port %u of node %" PRIu32 " %s", port->number, port->node, wrong);
            return text;
        }
    }
    return NULL;
}

/* The port by which the switch at the end of this port's link forwards to an address. */
static uint32_t next_port(const struct vb_world *world, uint32_t port, uint32_t address)
{
    const struct vb_world_switch *sw = world->node[world->port[world->port[port].peer].node].sw;

    return sw->config.extender ? vb_world_switch_through(world, sw, world->port[port].peer)
                               : vb_world_switch_first_port(world, sw, address);
}

/* vb_world_reaches; `*rate` is the lowest rate of the route. */
static int inspect_walk(const struct vb_world *world, uint32_t node, uint32_t address,
                        uint64_t *rate)
{
    uint32_t port = world->node[node].port[0];

    for (uint32_t hops = 0; hops <= world->nodes; ++hops) {
        const struct vb_world_node *end;

        if (port == VB_WORLD_NONE)
            return -EHOSTUNREACH;
        if (!*rate || world->port[port].rate < *rate)
            *rate = world->port[port].rate;
        end = &world->node[world->port[world->port[port].peer].node];
        if (end->kind == VB_WORLD_HOST)
            return vb_world_has_address(end, address) ? 0 : -EHOSTUNREACH;
        if (next_port(world, port, address) == VB_WORLD_NONE && end->sw->config.floods)
            return 0; /* it may be anywhere */
        port = next_port(world, port, address);
    }
    return world->hop_limit ? 0 : -ELOOP;
}

int vb_world_reaches(const struct vb_world *world, uint32_t node, uint32_t address)
{
    uint64_t rate = 0;

    return inspect_walk(world, node, address, &rate);
}

uint64_t vb_world_slowest(const struct vb_world *world, uint32_t node, uint32_t address)
{
    uint64_t rate = 0;

    inspect_walk(world, node, address, &rate);
    return rate;
}
