// SPDX-License-Identifier: Apache-2.0
/*
 * Sets the forwarding tables of table.h. This runs once for each switch, and again where routes
 * change.
 */
#include "event/table.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "event/mix.h"

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

static int blocks_grow(struct vb_world_blocks *blocks)
{
    uint32_t room = blocks->chains ? 2 * blocks->chains : FIRST_CHAINS;
    struct vb_world_block **grown = calloc(room, sizeof(*grown));

    if (!grown)
        return -ENOMEM;
    for (uint32_t i = 0; i < blocks->chains; ++i)
        while (blocks->chain[i]) {
            struct vb_world_block *moved = blocks->chain[i];
            struct vb_world_block **chain = &grown[block_hash(moved->entry) & (room - 1)];

            blocks->chain[i] = moved->next;
            moved->next = *chain;
            *chain = moved;
        }
    free(blocks->chain);
    blocks->chain = grown;
    blocks->chains = room;
    return 0;
}

/* The block with these entries, which gets one more user. NULL: no memory. */
static struct vb_world_block *block_take(struct vb_world_blocks *blocks, const uint16_t *entry)
{
    struct vb_world_block **chain, *found;

    if (blocks->count == blocks->chains && blocks_grow(blocks))
        return NULL;
    chain = &blocks->chain[block_hash(entry) & (blocks->chains - 1)];
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
        ++blocks->count;
    }
    ++found->users;
    return found;
}

static void block_give(struct vb_world_blocks *blocks, struct vb_world_block *block)
{
    struct vb_world_block **at;

    if (--block->users)
        return;
    at = &blocks->chain[block_hash(block->entry) & (blocks->chains - 1)];
    while (*at != block)
        at = &(*at)->next;
    *at = block->next;
    --blocks->count;
    free(block);
}

void vb_world_blocks_free(struct vb_world_blocks *blocks)
{
    for (uint32_t i = 0; i < blocks->chains; ++i)
        while (blocks->chain[i]) {
            struct vb_world_block *next = blocks->chain[i]->next;

            free(blocks->chain[i]);
            blocks->chain[i] = next;
        }
    free(blocks->chain);
}

/* ---- sets of ports --------------------------------------------------------------------------- */

static uint32_t row_length(const int32_t *row, uint32_t width)
{
    uint32_t n = 0;

    while (n < width && row[n] >= 0)
        ++n;
    return n;
}

static bool table_has_set(const struct vb_world_table *table, uint32_t set, const int32_t *row,
                          uint32_t n)
{
    if (table->set[set + 1] - table->set[set] != n)
        return false;
    for (uint32_t i = 0; i < n; ++i)
        if (table->member[table->set[set] + i] != (uint32_t)row[i])
            return false;
    return true;
}

/* Neighbouring hosts often have equal rows, so the last sets are searched first. */
static int find_set(struct vb_world_table *table, const int32_t *row, uint32_t n, uint32_t *set)
{
    uint16_t *member;
    uint32_t *begin;

    for (*set = table->sets; (*set)-- > 0;)
        if (table_has_set(table, *set, row, n))
            return 0;
    if (table->sets >= VB_WORLD_PORT_SET - 1)
        return -EINVAL;
    begin = realloc(table->set, (table->sets + 2) * sizeof(*begin));
    if (!begin)
        return -ENOMEM;
    table->set = begin;
    if (!table->sets)
        begin[0] = 0;
    member = realloc(table->member, (begin[table->sets] + n) * sizeof(*member));
    if (!member)
        return -ENOMEM;
    table->member = member;
    for (uint32_t i = 0; i < n; ++i)
        member[begin[table->sets] + i] = (uint16_t)row[i];
    begin[table->sets + 1] = begin[table->sets] + n;
    *set = table->sets++;
    return 0;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int set_entry(struct vb_world_table *table, uint16_t *entry, const int32_t *row,
                     uint32_t width)
{
    uint32_t n = row_length(row, width), set;
    int error;

    if (n < 2) {
        *entry = n ? (uint16_t)row[0] : VB_WORLD_NO_PORT;
        return 0;
    }
    error = find_set(table, row, n, &set);
    *entry = (uint16_t)(VB_WORLD_PORT_SET + set);
    return error;
}

static uint32_t blocks_of(uint32_t targets)
{
    return (targets + VB_WORLD_BLOCK - 1) / VB_WORLD_BLOCK;
}

static void give_all(struct vb_world_blocks *blocks, struct vb_world_block **block, uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i)
        block_give(blocks, block[i]);
    free(block);
}

/* Makes the block whose rows begin at `ports`, of which there are `rows`. */
static int make_block(struct vb_world_table *table, struct vb_world_blocks *blocks,
                      const int32_t *ports, uint32_t rows, uint32_t width,
                      struct vb_world_block **made)
{
    uint16_t entry[VB_WORLD_BLOCK];

    for (uint32_t i = 0; i < VB_WORLD_BLOCK; ++i) {
        int error = 0;

        entry[i] = VB_WORLD_NO_PORT;
        if (i < rows)
            error = set_entry(table, &entry[i], ports + (size_t)i * width, width);
        if (error)
            return error;
    }
    *made = block_take(blocks, entry);
    return *made ? 0 : -ENOMEM;
}

int vb_world_table_set(struct vb_world_table *table, struct vb_world_blocks *blocks,
                       const int32_t *ports, uint32_t targets, uint32_t width)
{
    struct vb_world_block **made = calloc(blocks_of(targets) + 1, sizeof(struct vb_world_block *));
    uint32_t count;
    int error = 0;

    if (!made)
        return -ENOMEM;
    table->sets = 0; /* the old table's sets are overwritten */
    for (count = 0; count < blocks_of(targets) && !error; count += !error) {
        uint32_t first = count * VB_WORLD_BLOCK;

        error = make_block(table, blocks, ports + (size_t)first * width, targets - first, width,
                           &made[count]);
    }
    give_all(blocks, table->block, blocks_of(table->targets));
    table->block = error ? NULL : made;
    table->targets = error ? 0 : targets;
    if (error)
        give_all(blocks, made, count);
    return error;
}

void vb_world_table_free(struct vb_world_table *table)
{
    free(table->block);
    free(table->set);
    free(table->member);
}
