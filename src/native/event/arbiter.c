// SPDX-License-Identifier: Apache-2.0
/*
 * Picks the lane that sends next from the two tables of arbiter.h. lanes.c calls it with the lanes
 * that have a packet and may send; a table's entry pays for the bytes that it sent.
 */
#include "event/arbiter.h"

#include <errno.h>
#include <stdlib.h>

static void begin_turn(struct vb_world_arbiter_turn *turn,
                       const struct vb_world_arbiter_entry *entry, bool remembers)
{
    int32_t *left = &turn->left[turn->entry];
    int32_t debt = remembers && *left < 0 ? *left : 0;

    *left = debt + (int32_t)entry[turn->entry].weight * VB_WORLD_ARBITER_UNIT;
}

/* Bytes that the high table may send before the low one is served; a limit of 0 is one packet. */
static int32_t grant(const struct vb_world_arbiter_tables *tables)
{
    return tables->high_limit ? tables->high_limit * VB_WORLD_ARBITER_LIMIT_UNIT : 1;
}

static struct vb_world_arbiter_turn *new_turn(uint32_t entries)
{
    return calloc(1,
                  sizeof(struct vb_world_arbiter_turn) + (entries ? entries : 1) * sizeof(int32_t));
}

/* The lane that all entries with a weight have; VB_WORLD_ARBITER_NONE: there are several, or none.
 */
static int only_lane(const struct vb_world_arbiter_tables *tables)
{
    uint32_t lanes = 0;

    for (uint32_t i = 0; i < tables->high_count; ++i)
        lanes |= tables->high[i].weight ? 1u << tables->high[i].lane : 0;
    for (uint32_t i = 0; i < tables->low_count; ++i)
        lanes |= tables->low[i].weight ? 1u << tables->low[i].lane : 0;
    return lanes && !(lanes & (lanes - 1)) ? __builtin_ctz(lanes) : VB_WORLD_ARBITER_NONE;
}

int vb_world_arbiter_init(struct vb_world_arbiter *arbiter,
                          const struct vb_world_arbiter_tables *tables)
{
    arbiter->tables = tables;
    arbiter->high = new_turn(tables->high_count);
    arbiter->low = new_turn(tables->low_count);
    arbiter->high_left = grant(tables);
    arbiter->only = (int8_t)only_lane(tables);
    if (!arbiter->high || !arbiter->low)
        return -ENOMEM;
    begin_turn(arbiter->high, tables->high, false);
    begin_turn(arbiter->low, tables->low, false);
    return 0;
}

void vb_world_arbiter_free(struct vb_world_arbiter *arbiter)
{
    free(arbiter->high);
    free(arbiter->low);
}

/*
 * Returns the current entry's lane, or that of the next entry with a packet. An overdrawn entry may
 * need several rounds before it may send again, so the search goes on while any lane is ready.
 */
static int pick(const struct vb_world_arbiter_entry *entry, uint32_t count,
                struct vb_world_arbiter_turn *turn, uint32_t ready, bool remembers)
{
    bool any = false;

    for (uint32_t tries = 0; count && (tries <= count || any); ++tries) {
        const struct vb_world_arbiter_entry *at = &entry[turn->entry];

        if (at->weight && (ready >> at->lane & 1)) {
            if (turn->left[turn->entry] > 0)
                return at->lane;
            any = true;
        }
        turn->entry = turn->entry + 1 == count ? 0 : turn->entry + 1;
        begin_turn(turn, entry, remembers);
    }
    return VB_WORLD_ARBITER_NONE;
}

static int pick_low(struct vb_world_arbiter *arbiter, uint32_t ready)
{
    const struct vb_world_arbiter_tables *tables = arbiter->tables;

    return pick(tables->low, tables->low_count, arbiter->low, ready, tables->remembers);
}

int vb_world_arbiter_pick(struct vb_world_arbiter *arbiter, uint32_t ready, const uint32_t *bytes)
{
    const struct vb_world_arbiter_tables *tables = arbiter->tables;
    int lane, low;

    if (arbiter->only != VB_WORLD_ARBITER_NONE) /* what it has sent makes no difference */
        return ready >> arbiter->only & 1 ? arbiter->only : VB_WORLD_ARBITER_NONE;
    lane = pick(tables->high, tables->high_count, arbiter->high, ready, false);
    if (lane == VB_WORLD_ARBITER_NONE) {
        lane = pick_low(arbiter, ready);
        if (lane != VB_WORLD_ARBITER_NONE)
            arbiter->low->left[arbiter->low->entry] -= (int32_t)bytes[lane];
        arbiter->high_left = grant(tables);
        return lane;
    }
    if (tables->high_limit != VB_WORLD_ARBITER_NO_LIMIT && arbiter->high_left <= 0) {
        low = pick_low(arbiter, ready);
        arbiter->high_left = grant(tables);
        if (low != VB_WORLD_ARBITER_NONE) {
            arbiter->low->left[arbiter->low->entry] -= (int32_t)bytes[low];
            return low;
        }
    }
    arbiter->high->left[arbiter->high->entry] -= (int32_t)bytes[lane];
    arbiter->high_left -= (int32_t)bytes[lane];
    return lane;
}
