// SPDX-License-Identifier: Apache-2.0
/*
 * The gates of ports (gate.h). The Python binding sets them between two events.
 */
#include "event/gate.h"

#include <errno.h>
#include <stdlib.h>

int vb_world_gate_set(struct vb_world *world, uint32_t number, const struct vb_world_gate *to)
{
    struct vb_world_port *port = &world->port[number];
    struct vb_world_gate *gate = port->gate;
    bool opens = gate && !gate->opens[VB_WORLD_OUT] && to->opens[VB_WORLD_OUT];

    if (!gate)
        gate = port->gate = calloc(1, sizeof(*gate));
    if (!gate)
        return -ENOMEM;
    port->is_gated = false;
    for (int way = 0; way < VB_WORLD_WAYS; ++way) {
        gate->opens[way] = to->opens[way];
        gate->keys[way] = to->keys[way];
        port->is_gated |= !to->opens[way] || to->keys[way];
    }
    gate->interval = to->interval;
    gate->wakes = to->wakes;
    port->slow_path =
        port->is_gated || port->bit_error_rate > 0 || port->tap || port->is_down || port->came_up;
    if (opens && !port->sw)
        vb_world_add(vb_world_partition_of(world, port->node), world->now, VB_WORLD_READY, 0,
                     number);
    return 0;
}

static void gate_halt(struct vb_world_partition *part, const struct vb_world_port *port)
{
    part->world->refused_at = (uint32_t)(port - part->port);
    if (!part->world->error)
        part->world->error = VB_WORLD_END_HALT;
}

/* The first packet that an ARMED port lets in. Of two ports in one event, one tells of its next. */
static void gate_wake(struct vb_world_partition *part, const struct vb_world_port *port)
{
    struct vb_world_gate *gate = port->gate;

    if (part->world->refused_at != VB_WORLD_NONE)
        return;
    gate->wakes = false;
    gate->is_woken = true;
    gate_halt(part, port);
}

bool vb_world_gate_refuses(struct vb_world_partition *part, const struct vb_world_port *port,
                           const struct vb_world_packet *packet, int way)
{
    struct vb_world_gate *gate = port->gate;
    uint32_t key = vb_wire_get16(packet->header + 2);

    if (packet->level_marks & VB_WORLD_MANAGEMENT)
        return false;
    if (!gate->opens[way]) {
        ++gate->shut[way];
        return true;
    }
    if (!gate->keys[way] || gate->keys[way][key >> 3] >> (key & 7) & 1 ||
        /* the node's agent looks at its P_Key */
        (!port->sw && vb_world_is_served(&part->node[port->node], packet))) {
        if (gate->wakes && way == VB_WORLD_IN)
            gate_wake(part, port);
        return false;
    }
    ++gate->refused[way];
    if (gate->interval && (!gate->told_at || part->now >= gate->told_at + gate->interval)) {
        gate->told_at = part->now;
        gate->last = *packet;
        gate_halt(part, port);
    }
    return true;
}
