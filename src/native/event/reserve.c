// SPDX-License-Identifier: Apache-2.0
/*
 * What is promised to a flow as long as it lasts: bandwidth on each link of its way, and buffer in
 * each switch. The flow has no more in flight than it was promised buffer, so it loses nothing,
 * whatever comes from others. Some of each buffer is never promised, so that acknowledgements, of
 * promised flows as well, find room.
 */
#include <errno.h>
#include <stdlib.h>

#include "event/lanes.h"
#include "event/switch.h"

/* Does the switch at the end of this port send like packets by one port? */
static bool reserve_is_steady(const struct vb_world_switch *sw,
                              const struct vb_world_packet *packet)
{
    return !sw->detour && (sw->balance == VB_WORLD_BY_FLOW || packet->target >= sw->targets ||
                           sw->table[packet->target] < VB_WORLD_PORT_SET);
}

static int reserve_find_way(struct vb_world *world, uint32_t node,
                            const struct vb_world_packet *packet, struct vb_world_route *way)
{
    uint32_t port = world->node[node].port[0];

    for (way->count = 0; way->count < world->nodes;) {
        const struct vb_world_node *end;

        if (port == VB_WORLD_NONE)
            return -EHOSTUNREACH;
        way->port[way->count++] = port;
        end = &world->node[world->port[world->port[port].peer].node];
        if (end->kind == VB_WORLD_HOST)
            return 0;
        if (!reserve_is_steady(end->sw, packet))
            return -EINVAL;
        port = vb_world_switch_route(world, end->sw, world->port[port].peer, packet);
    }
    return -EHOSTUNREACH;
}

/* ---- buffer ---------------------------------------------------------------------------------- */

/* Bytes that lanes with pauses may hold before they send a pause. */
static uint64_t before_pauses(const struct vb_world_switch *sw)
{
    uint64_t each = 0, ports = 0;

    for (uint32_t i = 0; i < sw->lanes; ++i)
        if (sw->config.lane[i].flow.flow_control == VB_WORLD_PAUSES)
            each += sw->config.lane[i].stop;
    for (uint32_t i = 0; each && i < sw->config.ports; ++i)
        ports += sw->port[i] != VB_WORLD_NONE;
    return each * ports;
}

/* An acknowledgement, a NAK or a notification on Ethernet, with HPCC's telemetry. */
enum { ANSWER_BYTES = 98 + 42 };

/*
 * What is kept for acknowledgements: two from each link, as many as come in while the port that
 * they leave by sends a packet; and enough for a lane's `alpha` to let two of them wait.
 */
static uint64_t reserve_for_answers(const struct vb_world_switch *sw)
{
    uint64_t ports = 0, most;

    for (uint32_t i = 0; i < sw->config.ports; ++i)
        ports += sw->port[i] != VB_WORLD_NONE;
    most = 2 * ANSWER_BYTES * ports;
    for (uint32_t i = 0; i < sw->lanes; ++i) {
        const struct vb_world_class_config *lane = &sw->config.lane[i];
        double least = lane->alpha > 0 ? 2 * ANSWER_BYTES / lane->alpha : 0;

        if (lane->flow.flow_control == VB_WORLD_LOSSY && least > (double)most)
            most = least < (double)sw->buffer ? (uint64_t)least : sw->buffer;
    }
    return most;
}

static uint64_t above(uint64_t has, uint64_t less)
{
    return has > less ? has - less : 0;
}

/* What the switch can promise when it is empty and has promised nothing. */
static uint64_t reserve_buffer_most(const struct vb_world_switch *sw)
{
    return sw->buffer ? above(sw->buffer, reserve_for_answers(sw) + before_pauses(sw)) : UINT64_MAX;
}

/* What this port's switch can still promise; it is not in use now. */
static uint64_t buffer_left(const struct vb_world *world, const struct vb_world_switch *sw,
                            const struct vb_world_port *port)
{
    if (!sw->buffer)
        return UINT64_MAX;
    if (!sw->lanes)
        return above(reserve_buffer_most(sw), port->promised + vb_world_switch_others(world, port));
    return above(reserve_buffer_most(sw), sw->buffer - vb_world_switch_open(sw) + sw->used);
}

/* Is there room in each switch, in lanes of which it could be promised? */
static int check_buffer(const struct vb_world *world, const struct vb_world_route *way,
                        const struct vb_world_packet *packet, uint64_t bytes)
{
    const struct vb_world_port *first = &world->port[way->port[0]];
    uint32_t lane = first->lanes ? vb_world_lanes_of(first->lanes, packet->level_marks) : 0;
    int error = 0;

    for (uint32_t i = 1; i < way->count; ++i) {
        const struct vb_world_port *out = &world->port[way->port[i]];
        const struct vb_world_port *in = &world->port[world->port[way->port[i - 1]].peer];
        const struct vb_world_switch *sw = world->node[out->node].sw;

        if (sw->lanes && in->lanes->lane[lane].input_flow_control != VB_WORLD_LOSSY)
            return -EOPNOTSUPP;
        if (buffer_left(world, sw, out) < bytes)
            error = -EBUSY;
        if (sw->lanes)
            lane =
                vb_world_switch_lane(sw, in->number, out->number, lane, packet->level_marks >> 4);
    }
    return error;
}

uint64_t vb_world_buffer_most(struct vb_world *world, uint32_t node,
                              const struct vb_world_packet *packet)
{
    struct vb_world_route *way = malloc(sizeof(*way) + world->nodes * sizeof(way->port[0]));
    uint64_t most = UINT64_MAX;

    if (way && !reserve_find_way(world, node, packet, way))
        for (uint32_t i = 1; i < way->count; ++i) {
            uint64_t has = reserve_buffer_most(world->node[world->port[way->port[i]].node].sw);

            most = has < most ? has : most;
        }
    free(way);
    return most;
}

static void hold_buffer(struct vb_world *world, const struct vb_world_route *way, uint64_t bytes)
{
    for (uint32_t i = 1; i < way->count; ++i) {
        struct vb_world_port *port = &world->port[way->port[i]];

        port->promised += bytes;
        world->node[port->node].sw->promised += bytes;
    }
}

/* ---- both ------------------------------------------------------------------------------------ */

static bool has_rate(const struct vb_world *world, const struct vb_world_route *way, uint64_t rate)
{
    for (uint32_t i = 0; i < way->count; ++i) {
        const struct vb_world_port *port = &world->port[way->port[i]];

        if (rate > port->rate - port->reserved)
            return false;
    }
    return true;
}

static void promise_all(struct vb_world *world, const struct vb_world_route *way, uint64_t rate,
                        uint64_t buffer)
{
    for (uint32_t i = 0; i < way->count; ++i)
        world->port[way->port[i]].reserved += rate;
    hold_buffer(world, way, buffer);
}

int vb_world_reserve(struct vb_world *world, uint32_t node, const struct vb_world_packet *packet,
                     const struct vb_world_reservation *promise, struct vb_world_route **way)
{
    struct vb_world_route *made = malloc(sizeof(*made) + world->nodes * sizeof(made->port[0]));
    struct vb_world_route *fits;
    int error = made ? reserve_find_way(world, node, packet, made) : -ENOMEM;

    if (!error && promise->buffer)
        error = check_buffer(world, made, packet, promise->buffer);
    if (!error && !has_rate(world, made, promise->rate))
        error = -EBUSY;
    if (error) {
        free(made);
        return error;
    }
    promise_all(world, made, promise->rate, promise->buffer);
    fits = realloc(made, sizeof(*made) + made->count * sizeof(made->port[0]));
    *way = fits ? fits : made;
    return 0;
}

void vb_world_release(struct vb_world *world, struct vb_world_route *way,
                      const struct vb_world_reservation *promise)
{
    promise_all(world, way, 0 - promise->rate, 0 - promise->buffer);
    free(way);
}
