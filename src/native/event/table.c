// SPDX-License-Identifier: Apache-2.0
/*
 * Sets the forwarding tables of table.h. This runs once for each switch, and again where routes
 * change.
 */
#include "event/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CHAINS = 256 };

/* ---- blocks ---------------------------------------------------------------------------------- */

static uint64_t block_hash(const uint16_t *entry)
{
    uint64_t hash = 0, words[VB_WORLD_BLOCK / 4];

    memcpy(words, entry, sizeof(words));
    for (uint32_t i = 0; i < VB_WORLD_BLOCK / 4; ++i)
        hash = vb_world_mix(hash ^ words[i]);
    return hash;
}

static int blocks_grow(struct vb_world *world)
{
    uint32_t room = world->block_chains ? 2 * world->block_chains : FIRST_CHAINS;
    struct vb_world_block **grown = calloc(room, sizeof(*grown));

    if (!grown)
        return -ENOMEM;
    for (uint32_t i = 0; i < world->block_chains; ++i)
        while (world->block[i]) {
            struct vb_world_block *moved = world->block[i];
            struct vb_world_block **chain = &grown[block_hash(moved->entry) & (room - 1)];

            world->block[i] = moved->next;
            moved->next = *chain;
            *chain = moved;
        }
    free(world->block);
    world->block = grown;
    world->block_chains = room;
    return 0;
}

/* The block with these entries, which gets one more user. NULL: no memory. */
static struct vb_world_block *block_take(struct vb_world *world, const uint16_t *entry)
{
    struct vb_world_block **chain, *found;

    if (world->blocks == world->block_chains && blocks_grow(world))
        return NULL;
    chain = &world->block[block_hash(entry) & (world->block_chains - 1)];
    for (found = *chain; found; found = found->next)
        if (memcmp(found->entry, entry, sizeof(found->entry)) == 0)
            break;
    if (!found) {
        found = calloc(1, sizeof(*found));
        if (!found)
            return NULL;
        memcpy(found->entry, entry, sizeof(found->entry));
        found->next = *chain;
        *chain = found;
        ++world->blocks;
    }
    ++found->users;
    return found;
}

static void block_give(struct vb_world *world, struct vb_world_block *block)
{
    struct vb_world_block **at;

    if (--block->users)
        return;
    at = &world->block[block_hash(block->entry) & (world->block_chains - 1)];
    while (*at != block)
        at = &(*at)->next;
    *at = block->next;
    --world->blocks;
    free(block);
}

void vb_world_blocks_free(struct vb_world *world)
{
    for (uint32_t i = 0; i < world->block_chains; ++i)
        while (world->block[i]) {
            struct vb_world_block *next = world->block[i]->next;

            free(world->block[i]);
            world->block[i] = next;
        }
    free(world->block);
}

/* ---- sets of ports --------------------------------------------------------------------------- */

static uint32_t row_length(const int32_t *row, uint32_t width)
{
    uint32_t n = 0;

    while (n < width && row[n] >= 0)
        ++n;
    return n;
}

static bool switch_is_set(const struct vb_world_switch *sw, uint32_t set, const int32_t *row,
                          uint32_t n)
{
    if (sw->set[set + 1] - sw->set[set] != n)
        return false;
    for (uint32_t i = 0; i < n; ++i)
        if (sw->member[sw->set[set] + i] != (uint32_t)row[i])
            return false;
    return true;
}

/* Neighbouring hosts often have equal rows, so the last sets are searched first. */
static int find_set(struct vb_world_switch *sw, const int32_t *row, uint32_t n, uint32_t *set)
{
    uint16_t *member;
    uint32_t *begin;

    for (*set = sw->sets; (*set)-- > 0;)
        if (switch_is_set(sw, *set, row, n))
            return 0;
    if (sw->sets >= VB_WORLD_PORT_SET - 1)
        return -EINVAL;
    begin = realloc(sw->set, (sw->sets + 2) * sizeof(*begin));
    if (!begin)
        return -ENOMEM;
    sw->set = begin;
    if (!sw->sets)
        begin[0] = 0;
    member = realloc(sw->member, (begin[sw->sets] + n) * sizeof(*member));
    if (!member)
        return -ENOMEM;
    sw->member = member;
    for (uint32_t i = 0; i < n; ++i)
        member[begin[sw->sets] + i] = (uint16_t)row[i];
    begin[sw->sets + 1] = begin[sw->sets] + n;
    *set = sw->sets++;
    return 0;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int set_entry(struct vb_world_switch *sw, uint16_t *entry, const int32_t *row,
                     uint32_t width)
{
    uint32_t n = row_length(row, width), set;
    int error;

    if (n < 2) {
        *entry = n ? (uint16_t)row[0] : VB_WORLD_NO_PORT;
        return 0;
    }
    error = find_set(sw, row, n, &set);
    *entry = (uint16_t)(VB_WORLD_PORT_SET + set);
    return error;
}

static uint32_t blocks_of(uint32_t targets)
{
    return (targets + VB_WORLD_BLOCK - 1) / VB_WORLD_BLOCK;
}

static void table_give(struct vb_world *world, struct vb_world_block **table, uint32_t blocks)
{
    for (uint32_t i = 0; i < blocks; ++i)
        block_give(world, table[i]);
    free(table);
}

/* Fills `table` with blocks. After an error it has `*made` of them. */
static int table_make(struct vb_world *world, struct vb_world_switch *sw, const int32_t *ports,
                      uint32_t targets, uint32_t width, struct vb_world_block **table,
                      uint32_t *made)
{
    for (*made = 0; *made < blocks_of(targets); ++*made) {
        uint32_t first = *made * VB_WORLD_BLOCK;
        uint16_t entry[VB_WORLD_BLOCK];

        for (uint32_t i = 0; i < VB_WORLD_BLOCK; ++i) {
            int error = 0;

            entry[i] = VB_WORLD_NO_PORT;
            if (first + i < targets)
                error = set_entry(sw, &entry[i], ports + (size_t)(first + i) * width, width);
            if (error)
                return error;
        }
        table[*made] = block_take(world, entry);
        if (!table[*made])
            return -ENOMEM;
    }
    return 0;
}

int vb_world_set_routes(struct vb_world *world, struct vb_world_switch *sw, const int32_t *ports,
                        uint32_t targets, uint32_t width)
{
    struct vb_world_block **table =
        malloc((blocks_of(targets) + 1) * sizeof(struct vb_world_block *));
    uint32_t made;
    int error;

    if (!table)
        return -ENOMEM;
    sw->sets = 0; /* the old table's sets are overwritten */
    error = table_make(world, sw, ports, targets, width, table, &made);
    table_give(world, sw->table, blocks_of(sw->targets));
    sw->table = table;
    sw->targets = error ? 0 : targets;
    if (error) {
        table_give(world, table, made);
        sw->table = NULL;
    }
    return error;
}
