// SPDX-License-Identifier: Apache-2.0
/*
 * Reservations of flows: bandwidth on each link of the route, and buffer in each switch. A flow has
 * no more bytes in flight than it has reserved, so it loses no packet, whatever others send. How
 * much of a buffer can be reserved is decided in Python (promises.py). sim/flows.c calls this when
 * a flow starts, and the Python binding for the route of a flow.
 */
#include <errno.h>
#include <stdlib.h>

#include "event/lanes.h"
#include "event/switch.h"

/* Does the switch forward all packets of a flow by one port? */
static bool reserve_is_steady(const struct vb_world *world, const struct vb_world_switch *sw,
                              const struct vb_world_packet *packet)
{
    return !sw->detour &&
           (sw->balance == VB_WORLD_BY_FLOW || packet->target >= sw->table.targets ||
            vb_world_table_entry(world->blocks, &sw->table, packet->target) < VB_WORLD_PORT_SET);
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
        if (!reserve_is_steady(world, end->sw, packet))
            return -EINVAL;
        port = vb_world_switch_route(world, end->sw, world->port[port].peer, packet);
    }
    return -EHOSTUNREACH;
}

/* ---- buffer ---------------------------------------------------------------------------------- */

/* has - less, or 0. */
static uint64_t difference(uint64_t has, uint64_t less)
{
    return has > less ? has - less : 0;
}

/* What can still be reserved at this port: buffer that is not in use now. */
static uint64_t buffer_left(const struct vb_world *world, const struct vb_world_switch *sw,
                            const struct vb_world_port *port)
{
    if (!sw->buffer)
        return UINT64_MAX;
    if (!sw->lanes)
        return difference(sw->reservable, port->reserved_buffer + vb_world_switch_others_queue(
                                                                      &world->partition[0], port));
    return difference(sw->reservable, sw->buffer - vb_world_switch_unreserved(sw) + sw->used);
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
