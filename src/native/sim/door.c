// SPDX-License-Identifier: Apache-2.0
/* Takes management packets from switches and hosts (door.h), and sends those of nodes. */
#include "sim/door.h"

#include <errno.h>
#include <string.h>

#include "event/switch.h"
#include "sim/state.h"

void vb_sim_door_take(void *context, uint32_t node, uint32_t port, uint32_t packet)
{
    struct vb_sim *sim = context;
    struct vb_world_packet *at = vb_world_packet_at(sim->world, packet);

    at->keeper = node;
    at->input = (uint16_t)port;
    at->next = VB_WORLD_NONE;
    if (sim->door_first == VB_WORLD_NONE)
        sim->door_first = packet;
    else
        vb_world_packet_at(sim->world, sim->door_last)->next = packet;
    sim->door_last = packet;
    if (!sim->world->error)
        sim->world->error = VB_WORLD_END_HALT;
}

/* Without an adapter and a server the packet counts as one without a route, at the link's other
 * end. */
bool vb_sim_door_arrive(struct vb_sim_host *host, uint32_t packet)
{
    struct vb_world *world = host->sim->world;
    const struct vb_world_packet *at = vb_world_packet_at(world, packet);
    const struct vb_world_node *node = &world->node[host->nic.node];

    if (vb_world_is_served(node, at)) {
        ++world->kept; /* until it was read */
        vb_sim_door_take(host->sim, host->nic.node, 0, packet);
        return true;
    }
    if (host->attachment || vb_wire_get24(at->header + 5) > 1)
        return false;
    ++world->port[world->port[node->port[0]].peer].traffic.dropped[VB_WORLD_DROP_ROUTE];
    vb_world_pool_give(&world->pool, packet);
    return true;
}

bool vb_sim_door_next(const struct vb_sim *sim, struct vb_sim_mad *mad)
{
    const struct vb_world_packet *at;
    const struct vb_sim_wire_packet *wire;

    if (sim->door_first == VB_WORLD_NONE)
        return false;
    at = vb_world_packet_at(sim->world, sim->door_first);
    wire = sim->wire_packet[sim->door_first];
    *mad = (struct vb_sim_mad){.node = at->keeper,
                               .port = at->input,
                               .source = (uint16_t)at->source,
                               .target = (uint16_t)at->target,
                               .level = at->level_marks >> 4,
                               .management = at->level_marks & VB_WORLD_MANAGEMENT,
                               .bytes = wire->bytes,
                               .length = wire->length};
    return true;
}

void vb_sim_door_taken(struct vb_sim *sim)
{
    struct vb_world *world = sim->world;
    const struct vb_world_packet *at = vb_world_packet_at(world, sim->door_first);
    uint32_t taken = sim->door_first;

    if (world->node[at->keeper].kind == VB_WORLD_HOST)
        --world->kept; /* it counts as delivered already */
    else
        ++world->delivered;
    sim->door_first = at->next;
    vb_world_pool_give(&world->pool, taken);
}

static void door_fill(struct vb_world_packet *at, struct vb_sim_wire_packet *wire,
                      const struct vb_sim_mad *mad)
{
    uint32_t headers = VB_BTH + VB_DETH;

    *wire = (struct vb_sim_wire_packet){.length = mad->length,
                                        .payload = mad->length - headers,
                                        .slid = mad->source,
                                        .level = mad->level};
    memcpy(wire->bytes, mad->bytes, mad->length);
    *at = (struct vb_world_packet){
        .source = mad->source,
        .target = mad->target,
        .level_marks = (uint8_t)(mad->level << 4 | (mad->management ? VB_WORLD_MANAGEMENT : 0)),
        .bytes = (uint16_t)vb_sim_wire_bytes(VB_SIM_INFINIBAND, headers, wire->payload),
        .payload = (uint16_t)wire->payload,
        .flags = VB_WORLD_HAS_BYTES};
    memcpy(at->header, mad->bytes, headers);
}

int vb_sim_door_send(struct vb_sim *sim, const struct vb_sim_mad *mad)
{
    struct vb_world *world = sim->world;
    const struct vb_world_node *node = &world->node[mad->node];
    uint32_t packet = vb_world_pool_take(&world->pool);
    struct vb_sim_wire_packet *wire =
        packet == VB_WORLD_NONE ? NULL : vb_sim_wire_packet_for(sim, packet);

    if (!wire) {
        if (packet != VB_WORLD_NONE)
            vb_world_pool_give(&world->pool, packet);
        return -ENOMEM;
    }
    door_fill(vb_world_packet_at(world, packet), wire, mad);
    vb_world_packet_at(world, packet)->hops = (uint8_t)world->hop_limit;
    if (world->traces)
        vb_world_telemetry_of(world, packet)->hops = 0;
    if (node->kind == VB_WORLD_HOST)
        vb_world_send(world, mad->node, packet);
    else
        vb_world_switch_send(world, node->sw, node->port[mad->port], packet);
    return world->error;
}

void vb_sim_on_door(struct vb_sim *sim, void (*waiting)(void *context), void *context)
{
    sim->on_door = waiting;
    sim->on_door_context = context;
}
