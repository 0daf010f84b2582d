// SPDX-License-Identifier: Apache-2.0
/*
 * The forwarding table of a switch: a port, or a set of ports, for each address (packet.h). As
 * InfiniBand's linear tables it consists of blocks of 64 entries (IBA 14.2.5.6). Equal blocks of
 * all switches are one piece of memory, since in a tree most switches have the same ports up.
 * Python makes the tables and owns their memory (forwarding.py), and switch.c looks up each packet.
 */
#ifndef VB_EVENT_TABLE_H
#define VB_EVENT_TABLE_H

#include <stdint.h>

enum { VB_WORLD_BLOCK = 64, VB_WORLD_NO_PORT = 0xffff, VB_WORLD_PORT_SET = 0x8000 };

struct vb_world_table {
    const uint32_t *block; /* for each 64 addresses, the number of a block of vb_world.blocks */
    uint32_t targets;      /* addresses */
    uint32_t sets;
    const uint32_t *set; /* the begin of each set of ports in `member`, and the end of the last */
    const uint16_t *member;
};

/* A port, VB_WORLD_NO_PORT, or VB_WORLD_PORT_SET + a set of ports. */
static inline uint32_t vb_world_table_entry(const uint16_t (*blocks)[VB_WORLD_BLOCK],
                                            const struct vb_world_table *table, uint32_t target)
{
    return target < table->targets
               ? blocks[table->block[target / VB_WORLD_BLOCK]][target % VB_WORLD_BLOCK]
               : VB_WORLD_NO_PORT;
}

#endif
