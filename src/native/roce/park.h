// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that are neither believed nor dropped yet: each waits for the next one of its flow, which
 * may confirm it (ids.h). udp_receive.c parks them, under its caller's lock. A flow has one at
 * most.
 */
#ifndef VB_ROCE_PARK_H
#define VB_ROCE_PARK_H

#include "hca/packet.h"
#include "roce/ids.h"

enum { VB_PARK_PLACES = 64, VB_PARK_BYTES = VB_HEADERS_MAX + 4096 + VB_ICRC };

struct vb_parked {
    struct vb_arrival arrival;
    struct vb_ids_flow *flow; /* NULL: the place is free */
    uint64_t until;           /* ns */
    uint16_t source_port, id;
    uint8_t bytes[VB_PARK_BYTES];
};

struct vb_park {
    struct vb_parked *places; /* made for the first packet */
    unsigned next, count;
};

/* The place of the flow's packet; NULL: it has none. */
struct vb_parked *vb_roce_park_find(const struct vb_park *park, const struct vb_ids_flow *flow);
/*
 * A place for a packet of that many bytes with its ICRC, whose flow has none; NULL: it is too long,
 * or there is no memory. It may be another's, the oldest: its `flow` says so, and it is to be freed
 * and asked for again.
 */
struct vb_parked *vb_roce_park_next(struct vb_park *park, uint32_t bytes);
void vb_roce_park_put(struct vb_park *park, struct vb_parked *at, struct vb_ids_flow *flow);
/* Its bytes stay until the next one is put. */
void vb_roce_park_free(struct vb_park *park, struct vb_parked *at);
/* The one that waits longest; NULL: none does. */
struct vb_parked *vb_roce_park_oldest(const struct vb_park *park);

#endif
