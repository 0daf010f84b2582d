// SPDX-License-Identifier: Apache-2.0
/*
 * Management packets of nodes that Python serves: to queue pairs 0 and 1 of a host or a switch, and
 * directed-route SMPs. They wait here until the Python binding takes them (_world_doors.pxi), for
 * which a run ends after the event that brought one. Nodes send theirs there, too.
 */
#include "sim/state.h"

void vb_sim_door_take(void *context, uint32_t node, uint32_t port, uint32_t packet)
{
    struct vb_sim *sim = context;
    struct vb_world_packet *at = vb_world_packet_at(vb_sim_whole(sim), packet);

    at->keeper = node;
    at->input = (uint16_t)port;
    at->next = VB_WORLD_NONE;
    if (sim->door_first == VB_WORLD_NONE)
        sim->door_first = packet;
    else
        vb_world_packet_at(vb_sim_whole(sim), sim->door_last)->next = packet;
    sim->door_last = packet;
    if (!sim->world->error)
        sim->world->error = VB_WORLD_END_HALT;
}

/* Without an adapter and a server the packet counts as one without a route, at the link's other
 * end. */
bool vb_sim_door_arrive(struct vb_sim_host *host, uint32_t packet)
{
    struct vb_world_partition *part = host->nic.part;
    const struct vb_world_packet *at = vb_world_packet_at(part, packet);
    const struct vb_world_node *node = &part->node[host->nic.node];

    if (vb_world_is_served(node, at)) {
        ++part->kept; /* until it was read */
        vb_sim_door_take(host->sim, host->nic.node, 0, packet);
        return true;
    }
    if (host->attachment || vb_wire_get24(at->header + 5) > 1)
        return false;
    ++part->port[part->port[node->port[0]].peer].traffic.dropped[VB_WORLD_DROP_ROUTE];
    vb_world_pool_give(&part->pool, packet);
    return true;
}
