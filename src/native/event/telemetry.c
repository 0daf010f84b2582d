// SPDX-License-Identifier: Apache-2.0
/*
 * The telemetry records, one for each packet of the world: reserved addresses, as the packets'
 * are. Hosts begin a record, and switch.c and
 * lanes.c add a hop when a packet leaves a switch.
 */
#include "event/telemetry.h"

#include <errno.h>
#include <sys/mman.h>

int vb_world_trace(struct vb_world *world)
{
    size_t size = world->packets.room * sizeof(*world->telemetry);
    void *made;

    if (world->traces)
        return 0;
    made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0);
    if (made == MAP_FAILED)
        return -ENOMEM;
    world->telemetry = made;
    world->traces = true;
    return 0;
}

void vb_world_telemetry_free(struct vb_world *world)
{
    if (world->telemetry)
        munmap(world->telemetry, world->packets.room * sizeof(*world->telemetry));
}

void vb_world_telemetry_add(struct vb_world_partition *part, uint32_t number, uint32_t packet,
                            uint64_t queue, uint64_t unsent)
{
    const struct vb_world_port *port = &part->port[number];
    struct vb_world_telemetry *telemetry = vb_world_telemetry_of(part, packet);

    if (!vb_world_packet_at(part, packet)->payload || telemetry->hops == VB_WORLD_TELEMETRY_HOPS)
        return;
    telemetry->hop[telemetry->hops++] =
        (struct vb_world_telemetry_hop){.at = part->now,
                                        .sent = port->traffic.bytes - unsent,
                                        .rate = port->rate,
                                        .queue = queue < UINT32_MAX ? (uint32_t)queue : UINT32_MAX,
                                        .port = number};
}

void vb_world_telemetry_copy(struct vb_world_partition *part, uint32_t to, uint32_t from)
{
    *vb_world_telemetry_of(part, to) = *vb_world_telemetry_of(part, from);
}
