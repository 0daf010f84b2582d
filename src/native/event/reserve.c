// SPDX-License-Identifier: Apache-2.0
/* Bandwidth that is promised to a flow on each link of its way, as long as it lasts. */
#include <errno.h>
#include <stdlib.h>

#include "event/switch.h"

/* Does the switch at the end of this port send like packets by one port? */
static bool is_steady(const struct vb_sim_switch *sw, const struct vb_sim_packet *packet)
{
    return sw->balance == VB_SIM_BY_FLOW || packet->target >= sw->targets ||
           sw->table[packet->target] < VB_SIM_PORT_SET;
}

static int find_way(struct vb_world *world, uint32_t node, const struct vb_sim_packet *packet,
                    struct vb_sim_way *way)
{
    uint32_t port = world->node[node].port[0];

    for (way->count = 0; way->count < world->nodes;) {
        const struct vb_sim_node *end;

        if (port == VB_SIM_NONE)
            return -EHOSTUNREACH;
        way->port[way->count++] = port;
        end = &world->node[world->port[world->port[port].peer].node];
        if (end->kind == VB_SIM_HOST)
            return 0;
        if (!is_steady(end->sw, packet))
            return -EINVAL;
        port = vb_switch_route(end->sw, packet);
    }
    return -EHOSTUNREACH;
}

static bool has_room(const struct vb_world *world, const struct vb_sim_way *way, uint64_t rate)
{
    for (uint32_t i = 0; i < way->count; ++i) {
        const struct vb_sim_port *port = &world->port[way->port[i]];

        if (rate > port->rate - port->reserved)
            return false;
    }
    return true;
}

int vb_world_reserve(struct vb_world *world, uint32_t node, const struct vb_sim_packet *packet,
                     uint64_t rate, struct vb_sim_way **way)
{
    struct vb_sim_way *made = malloc(sizeof(*made) + world->nodes * sizeof(made->port[0]));
    struct vb_sim_way *fits;
    int error = made ? find_way(world, node, packet, made) : -ENOMEM;

    if (!error && !has_room(world, made, rate))
        error = -EBUSY;
    if (error) {
        free(made);
        return error;
    }
    for (uint32_t i = 0; i < made->count; ++i)
        world->port[made->port[i]].reserved += rate;
    fits = realloc(made, sizeof(*made) + made->count * sizeof(made->port[0]));
    *way = fits ? fits : made;
    return 0;
}

void vb_world_release(struct vb_world *world, struct vb_sim_way *way, uint64_t rate)
{
    for (uint32_t i = 0; i < way->count; ++i)
        world->port[way->port[i]].reserved -= rate;
    free(way);
}
