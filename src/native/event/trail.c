// SPDX-License-Identifier: Apache-2.0
#include "event/trail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct vb_sim_trail *vb_world_trail_of(struct vb_world *world, uint32_t packet)
{
    if (packet >= world->trails) {
        uint32_t room = world->pool.room;
        struct vb_sim_trail *grown = realloc(world->trail, room * sizeof(*grown));

        if (!grown) {
            world->error = -ENOMEM;
            return NULL;
        }
        memset(grown + world->trails, 0, (room - world->trails) * sizeof(*grown));
        world->trail = grown;
        world->trails = room;
    }
    return &world->trail[packet];
}

void vb_world_trail_add(struct vb_world *world, uint32_t number, uint32_t packet, uint64_t queue,
                        uint64_t unsent)
{
    const struct vb_sim_port *port = &world->port[number];
    struct vb_sim_trail *trail = vb_world_trail_of(world, packet);

    if (!trail || !vb_world_packet(world, packet)->payload || trail->hops == VB_SIM_TRAIL_HOPS)
        return;
    trail->hop[trail->hops++] =
        (struct vb_sim_hop){.at = world->now,
                            .sent = port->traffic.bytes - unsent,
                            .rate = port->rate,
                            .queue = queue < UINT32_MAX ? (uint32_t)queue : UINT32_MAX,
                            .port = number};
}

void vb_world_trail_copy(struct vb_world *world, uint32_t to, uint32_t from)
{
    struct vb_sim_trail *trail = vb_world_trail_of(world, to > from ? to : from);

    if (trail)
        world->trail[to] = world->trail[from];
}
