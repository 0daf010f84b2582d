// SPDX-License-Identifier: Apache-2.0
/*
 * Which lane sends next: two tables of lanes and weights, as InfiniBand's VL arbitration has them
 * (IBA 7.6.9). The high-priority table goes first, for so many bytes as its limit grants while a
 * lane of the low one waits. Ethernet's strict classes are a high table without limit, its ETS
 * shares (IEEE 802.1Qaz) a low one that remembers what a long packet took too much.
 */
#ifndef VB_EVENT_ARBITER_H
#define VB_EVENT_ARBITER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_WORLD_ARBITER_ENTRIES = 64,
    VB_WORLD_ARBITER_UNIT = 64,         /* bytes; of weights */
    VB_WORLD_ARBITER_LIMIT_UNIT = 4096, /* bytes; of the high limit */
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
    bool remembers;     /* an entry that was overdrawn has less the next time */
};

struct vb_world_arbiter_turn {
    uint32_t entry;
    int32_t left[]; /* bytes; as many as the table has entries */
};

struct vb_world_arbiter {
    const struct vb_world_arbiter_tables *tables;
    struct vb_world_arbiter_turn *high, *low;
    int32_t high_left; /* bytes before the low table has its chance */
};

/* -ENOMEM. The tables stay the caller's. */
int vb_world_arbiter_init(struct vb_world_arbiter *arbiter,
                          const struct vb_world_arbiter_tables *tables);
void vb_world_arbiter_free(struct vb_world_arbiter *arbiter);
/* A lane of `ready`, a set that is not empty; VB_WORLD_ARBITER_NONE: no entry has any of them. */
int vb_world_arbiter_pick(struct vb_world_arbiter *arbiter, uint32_t ready, const uint32_t *bytes);

#endif
