// SPDX-License-Identifier: Apache-2.0
/*
 * The forwarding table of a switch: a port, or a set of ports, for each destination. As
 * InfiniBand's linear tables it consists of blocks of 64 entries (IBA 14.2.5.6). Equal blocks of
 * all switches are one piece of memory, since in a tree most switches have the same ports up. The
 * Python binding sets tables (vb_world_set_routes), and switch.c looks up each packet.
 */
#ifndef VB_EVENT_TABLE_H
#define VB_EVENT_TABLE_H

#include <stdint.h>

enum { VB_WORLD_BLOCK = 64, VB_WORLD_NO_PORT = 0xffff, VB_WORLD_PORT_SET = 0x8000 };

struct vb_world_block {
    struct vb_world_block *next; /* of those with the same hash */
    uint64_t users;              /* tables that have it */
    uint16_t entry[VB_WORLD_BLOCK];
};

/* The blocks of all tables of a world, by hash. */
struct vb_world_blocks {
    struct vb_world_block **chain;
    uint32_t count, chains; /* `chains` is a power of two */
};

struct vb_world_table {
    struct vb_world_block **block;
    uint32_t targets; /* entries */
    uint32_t sets;
    uint32_t *set; /* the begin of each set of ports in `member`, and the end of the last */
    uint16_t *member;
};

/*
 * Row h of `ports` has up to `width` ports for packets to destination h; -1 ends it. -EINVAL: more
 * than 32767 different rows with several ports; -ENOMEM. After an error the table is empty.
 */
int vb_world_table_set(struct vb_world_table *table, struct vb_world_blocks *blocks,
                       const int32_t *ports, uint32_t targets, uint32_t width);
/* Frees the table, and leaves its blocks to vb_world_blocks_free. */
void vb_world_table_free(struct vb_world_table *table);
void vb_world_blocks_free(struct vb_world_blocks *blocks);

/* A port, VB_WORLD_NO_PORT, or VB_WORLD_PORT_SET + a set of ports. */
static inline uint32_t vb_world_table_entry(const struct vb_world_table *table, uint32_t target)
{
    return target < table->targets
               ? table->block[target / VB_WORLD_BLOCK]->entry[target % VB_WORLD_BLOCK]
               : VB_WORLD_NO_PORT;
}

#endif
