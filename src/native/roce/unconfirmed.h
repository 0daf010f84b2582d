// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that are neither believed nor dropped yet: each waits for the next one of its flow, which
 * may confirm it (ids.h). udp_receive.c parks them, under its caller's lock. A flow has one at
 * most.
 */
#ifndef VB_ROCE_UNCONFIRMED_H
#define VB_ROCE_UNCONFIRMED_H

#include "hca/packet.h"
#include "roce/ids.h"

enum { VB_UNCONFIRMED_PLACES = 64, VB_UNCONFIRMED_BYTES = VB_HEADERS_MAX + 4096 + VB_ICRC };

struct vb_unconfirmed {
    struct vb_arrival arrival;
    struct vb_ids_flow *flow; /* NULL: the place is free */
    uint64_t until;           /* ns */
    uint16_t source_port, id;
    uint8_t bytes[VB_UNCONFIRMED_BYTES];
};

struct vb_unconfirmed_store {
    struct vb_unconfirmed *places; /* made for the first packet */
    unsigned next, count;
};

/* The place of the flow's packet; NULL: it has none. */
struct vb_unconfirmed *vb_roce_unconfirmed_find(const struct vb_unconfirmed_store *store,
                                                const struct vb_ids_flow *flow);
/*
 * A place for a packet of that many bytes with its ICRC, whose flow has none; NULL: it is too long,
 * or there is no memory. It may be another's, the oldest: its `flow` says so, and it is to be freed
 * and asked for again.
 */
struct vb_unconfirmed *vb_roce_unconfirmed_next(struct vb_unconfirmed_store *store, uint32_t bytes);
void vb_roce_unconfirmed_put(struct vb_unconfirmed_store *store, struct vb_unconfirmed *at,
                             struct vb_ids_flow *flow);
/* Its bytes stay until the next one is put. */
void vb_roce_unconfirmed_free(struct vb_unconfirmed_store *store, struct vb_unconfirmed *at);
/* The one that waits longest; NULL: none does. */
struct vb_unconfirmed *vb_roce_unconfirmed_oldest(const struct vb_unconfirmed_store *store);

#endif
