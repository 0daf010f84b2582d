// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that are neither believed nor dropped yet: each waits for the next packet of its flow,
 * which may confirm it (ids.h). udp_receive.c keeps them here, under the carrier's lock. A flow has
 * one at most.
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
    struct vb_unconfirmed *places; /* NULL until the first packet comes */
    unsigned next, count;
};

/* The place of the flow's packet; NULL: it has none. */
struct vb_unconfirmed *vb_roce_unconfirmed_find(const struct vb_unconfirmed_store *store,
                                                const struct vb_ids_flow *flow);
/*
 * A place for a packet of so many bytes with its ICRC, whose flow has none yet; NULL: it is too
 * long, or there is no memory. If the place's `flow` is not NULL it is that of the oldest packet,
 * which the caller frees first.
 */
struct vb_unconfirmed *vb_roce_unconfirmed_next(struct vb_unconfirmed_store *store, uint32_t bytes);
void vb_roce_unconfirmed_put(struct vb_unconfirmed_store *store, struct vb_unconfirmed *at,
                             struct vb_ids_flow *flow);
/* The packet's bytes stay until the next vb_roce_unconfirmed_put. */
void vb_roce_unconfirmed_free(struct vb_unconfirmed_store *store, struct vb_unconfirmed *at);
/* The packet that waits longest; NULL: none waits. */
struct vb_unconfirmed *vb_roce_unconfirmed_oldest(const struct vb_unconfirmed_store *store);

#endif
