// SPDX-License-Identifier: Apache-2.0
/*
 * The telemetry records, one for each packet of the pool. Hosts begin a record, and switch.c and
 * lanes.c add a hop when a packet leaves a switch.
 */
#include "event/telemetry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct vb_world_telemetry *vb_world_telemetry_of(struct vb_world *world, uint32_t packet)
{
    if (packet >= world->telemetry_room) {
        uint32_t room = world->pool.room;
        struct vb_world_telemetry *grown = realloc(world->telemetry, room * sizeof(*grown));

        if (!grown) {
            world->error = -ENOMEM;
            return NULL;
        }
        memset(grown + world->telemetry_room, 0, (room - world->telemetry_room) * sizeof(*grown));
        world->telemetry = grown;
        world->telemetry_room = room;
    }
    return &world->telemetry[packet];
}

void vb_world_telemetry_add(struct vb_world *world, uint32_t number, uint32_t packet,
                            uint64_t queue, uint64_t unsent)
{
    const struct vb_world_port *port = &world->port[number];
    struct vb_world_telemetry *telemetry = vb_world_telemetry_of(world, packet);

    if (!telemetry || !vb_world_packet_at(world, packet)->payload ||
        telemetry->hops == VB_WORLD_TELEMETRY_HOPS)
        return;
    telemetry->hop[telemetry->hops++] =
        (struct vb_world_telemetry_hop){.at = world->now,
                                        .sent = port->traffic.bytes - unsent,
                                        .rate = port->rate,
                                        .queue = queue < UINT32_MAX ? (uint32_t)queue : UINT32_MAX,
                                        .port = number};
}

void vb_world_telemetry_copy(struct vb_world *world, uint32_t to, uint32_t from)
{
    struct vb_world_telemetry *telemetry = vb_world_telemetry_of(world, to > from ? to : from);

    if (telemetry)
        world->telemetry[to] = world->telemetry[from];
}
