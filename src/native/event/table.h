// SPDX-License-Identifier: Apache-2.0
/*
 * The forwarding table of a switch: a port, or a set of ports, for each destination. As
 * InfiniBand's linear tables it consists of blocks of 64 entries (IBA 14.2.5.6). Equal blocks of
 * all switches are one piece of memory, since in a tree most switches have the same ports up. The
 * Python binding sets tables, and switch.c looks up each packet.
 */
#ifndef VB_EVENT_TABLE_H
#define VB_EVENT_TABLE_H

#include <stdint.h>

#include "event/switch.h"
#include "event/world.h"

enum { VB_WORLD_BLOCK = 64 };

struct vb_world_block {
    struct vb_world_block *next; /* of those with the same hash */
    uint64_t users;              /* tables that have it */
    uint16_t entry[VB_WORLD_BLOCK];
};

/*
 * Row h of `ports` has up to `width` ports for packets to destination h; -1 ends it. The world
 * keeps the blocks. -EINVAL: more than 32767 different rows with several ports; -ENOMEM. After an
 * error the switch has no routes.
 */
int vb_world_set_routes(struct vb_world *world, struct vb_world_switch *sw, const int32_t *ports,
                        uint32_t targets, uint32_t width);
void vb_world_blocks_free(struct vb_world *world);

/* A port, VB_WORLD_NO_PORT, or VB_WORLD_PORT_SET + a set of ports. */
static inline uint32_t vb_world_table_entry(const struct vb_world_switch *sw, uint32_t target)
{
    return target < sw->targets ? sw->table[target / VB_WORLD_BLOCK]->entry[target % VB_WORLD_BLOCK]
                                : VB_WORLD_NO_PORT;
}

/* The first port for packets to a host, as an index of vb_world.port; or VB_WORLD_NONE. */
static inline uint32_t vb_world_switch_first_port(const struct vb_world_switch *sw, uint32_t host)
{
    uint32_t port = vb_world_table_entry(sw, host);

    if (port == VB_WORLD_NO_PORT)
        return VB_WORLD_NONE;
    if (port >= VB_WORLD_PORT_SET)
        port = sw->member[sw->set[port - VB_WORLD_PORT_SET]];
    return sw->port[port];
}

#endif
