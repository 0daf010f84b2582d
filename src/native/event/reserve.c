// SPDX-License-Identifier: Apache-2.0
/*
 * Reservations of flows: bandwidth on each link of the route, and buffer in each switch. A flow has
 * no more bytes in flight than it has reserved, so it loses no packet, whatever others send. A part
 * of each buffer cannot be reserved, so that acknowledgements find room. sim/flows.c calls this.
 */
#include <errno.h>
#include <stdlib.h>

#include "event/lanes.h"
#include "event/switch.h"
#include "event/table.h"

/* Does the switch forward all packets of a flow by one port? */
static bool reserve_is_steady(const struct vb_world_switch *sw,
                              const struct vb_world_packet *packet)
{
    return !sw->detour && (sw->balance == VB_WORLD_BY_FLOW || packet->target >= sw->targets ||
                           vb_world_table_entry(sw, packet->target) < VB_WORLD_PORT_SET);
}

static int reserve_find_route(struct vb_world *world, uint32_t node,
                              const struct vb_world_packet *packet, struct vb_world_route *route)
{
    uint32_t port = world->node[node].port[0];

    for (route->count = 0; route->count < world->nodes;) {
        const struct vb_world_node *end;

        if (port == VB_WORLD_NONE)
            return -EHOSTUNREACH;
        route->port[route->count++] = port;
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

/* Bytes that lanes with pauses may hold before they send a pause frame. */
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
 * Buffer for acknowledgements: two of each link, which may arrive while their output sends a
 * packet; and enough that a lane's `alpha` admits two of them.
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

/* has - less, or 0. */
static uint64_t difference(uint64_t has, uint64_t less)
{
    return has > less ? has - less : 0;
}

/* The most that can be reserved in the switch while it is empty. */
static uint64_t reserve_buffer_most(const struct vb_world_switch *sw)
{
    return sw->buffer ? difference(sw->buffer, reserve_for_answers(sw) + before_pauses(sw))
                      : UINT64_MAX;
}

/* What can still be reserved at this port: buffer that is not in use now. */
static uint64_t buffer_left(const struct vb_world *world, const struct vb_world_switch *sw,
                            const struct vb_world_port *port)
{
    if (!sw->buffer)
        return UINT64_MAX;
    if (!sw->lanes)
        return difference(reserve_buffer_most(sw),
                          port->reserved_buffer + vb_world_switch_others_queue(world, port));
    return difference(reserve_buffer_most(sw),
                      sw->buffer - vb_world_switch_unreserved(sw) + sw->used);
}

/* Can so many bytes be reserved in each switch of the route? */
static int check_buffer(const struct vb_world *world, const struct vb_world_route *route,
                        const struct vb_world_packet *packet, uint64_t bytes)
{
    const struct vb_world_port *first = &world->port[route->port[0]];
    uint32_t lane = first->lanes ? vb_world_lanes_of(first->lanes, packet->level_marks) : 0;
    int error = 0;

    for (uint32_t i = 1; i < route->count; ++i) {
        const struct vb_world_port *out = &world->port[route->port[i]];
        const struct vb_world_port *in = &world->port[world->port[route->port[i - 1]].peer];
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
    struct vb_world_route *route = malloc(sizeof(*route) + world->nodes * sizeof(route->port[0]));
    uint64_t most = UINT64_MAX;

    if (route && !reserve_find_route(world, node, packet, route))
        for (uint32_t i = 1; i < route->count; ++i) {
            uint64_t has = reserve_buffer_most(world->node[world->port[route->port[i]].node].sw);

            most = has < most ? has : most;
        }
    free(route);
    return most;
}

static void hold_buffer(struct vb_world *world, const struct vb_world_route *route, uint64_t bytes)
{
    for (uint32_t i = 1; i < route->count; ++i) {
        struct vb_world_port *port = &world->port[route->port[i]];

        port->reserved_buffer += bytes;
        world->node[port->node].sw->reserved += bytes;
    }
}

/* ---- buffer and bandwidth -------------------------------------------------------------------- */

static bool has_rate(const struct vb_world *world, const struct vb_world_route *route,
                     uint64_t rate)
{
    for (uint32_t i = 0; i < route->count; ++i) {
        const struct vb_world_port *port = &world->port[route->port[i]];

        if (rate > port->rate - port->reserved_rate)
            return false;
    }
    return true;
}

static void reserve_all(struct vb_world *world, const struct vb_world_route *route, uint64_t rate,
                        uint64_t buffer)
{
    for (uint32_t i = 0; i < route->count; ++i)
        world->port[route->port[i]].reserved_rate += rate;
    hold_buffer(world, route, buffer);
}

int vb_world_reserve(struct vb_world *world, uint32_t node, const struct vb_world_packet *packet,
                     const struct vb_world_reservation *reservation, struct vb_world_route **route)
{
    struct vb_world_route *made = malloc(sizeof(*made) + world->nodes * sizeof(made->port[0]));
    struct vb_world_route *fits;
    int error = made ? reserve_find_route(world, node, packet, made) : -ENOMEM;

    if (!error && reservation->buffer)
        error = check_buffer(world, made, packet, reservation->buffer);
    if (!error && !has_rate(world, made, reservation->rate))
        error = -EBUSY;
    if (error) {
        free(made);
        return error;
    }
    reserve_all(world, made, reservation->rate, reservation->buffer);
    fits = realloc(made, sizeof(*made) + made->count * sizeof(made->port[0]));
    *route = fits ? fits : made;
    return 0;
}

void vb_world_release(struct vb_world *world, struct vb_world_route *route,
                      const struct vb_world_reservation *reservation)
{
    reserve_all(world, route, 0 - reservation->rate, 0 - reservation->buffer);
    free(route);
}
