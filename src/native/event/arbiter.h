// SPDX-License-Identifier: Apache-2.0
/*
 * Chooses the lane that sends next by two tables of lanes and weights: InfiniBand's VL arbitration
 * (IBA 7.6.9). The high-priority table is served first, up to its limit of bytes while a lane of
 * the low-priority table waits. Ethernet's strict classes are a high table without a limit, and its
 * ETS shares (IEEE 802.1Qaz) a low table that remembers overdrawn weights.
 */
#ifndef VB_EVENT_ARBITER_H
#define VB_EVENT_ARBITER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_WORLD_ARBITER_ENTRIES = 64,
    VB_WORLD_ARBITER_UNIT = 64,         /* bytes of a weight of 1 */
    VB_WORLD_ARBITER_LIMIT_UNIT = 4096, /* bytes of a high limit of 1 */
    VB_WORLD_ARBITER_NO_LIMIT = 255,
    VB_WORLD_ARBITER_NONE = -1,
};

struct vb_world_arbiter_entry {
    uint8_t lane;
    uint8_t weight; /* 0: the entry is skipped */
};

struct vb_world_arbiter_tables {
    struct vb_world_arbiter_entry high[VB_WORLD_ARBITER_ENTRIES], low[VB_WORLD_ARBITER_ENTRIES];
    uint32_t high_count, low_count;
    uint8_t high_limit; /* 0: one packet */
    bool remembers;     /* what an entry sent beyond its weight is taken from its next turn */
};

struct vb_world_arbiter_turn {
    uint32_t entry;
    int32_t left[]; /* bytes, for each entry of the table */
};

struct vb_world_arbiter {
    const struct vb_world_arbiter_tables *tables;
    struct vb_world_arbiter_turn *high, *low;
    int32_t high_left; /* bytes before the low table is served */
    int8_t only; /* the one lane that the tables name; VB_WORLD_ARBITER_NONE: they name several */
};

/* -ENOMEM. The caller keeps `tables` alive as long as the arbiter. */
int vb_world_arbiter_init(struct vb_world_arbiter *arbiter,
                          const struct vb_world_arbiter_tables *tables);
void vb_world_arbiter_free(struct vb_world_arbiter *arbiter);
/*
 * `ready` is the set of lanes that have a packet, of `bytes` each, and may send; it is not empty.
 * Returns one of them, or VB_WORLD_ARBITER_NONE if no table has any.
 */
int vb_world_arbiter_pick(struct vb_world_arbiter *arbiter, uint32_t ready, const uint32_t *bytes);

#endif
