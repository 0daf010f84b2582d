// SPDX-License-Identifier: Apache-2.0
/*
 * Sending again beside the requester's cursor, on connections that adapt: packets that the
 * responder misses, and requests for responses that are missing here. The cursor stays where it is,
 * so nothing else is sent twice. retry.c decides what is sent again, and the requester asks for the
 * packets. All calls are made under sq_lock.
 */
#ifndef VB_TRANSPORT_MEND_H
#define VB_TRANSPORT_MEND_H

#include "transport/transport.h"

/*
 * The first `packets` unanswered packets are to be sent again. Nothing else follows until they are
 * answered, unless the peer keeps early packets.
 */
void vb_engine_mend_first(struct vb_endpoint *ep, uint32_t packets, enum vb_packet_reason reason,
                          uint64_t now);
/* The same for the one packet at `psn`, which is not the first. */
void vb_engine_mend_at(struct vb_endpoint *ep, uint32_t psn, uint64_t now);
/* The first missing response, and those missing with it, are to be asked for; other packets follow.
 */
void vb_engine_mend_ask(struct vb_endpoint *ep);

/* For a connection that recovers: are such packets to be sent, or to be answered, before others? */
bool vb_engine_mend_is_due(struct vb_endpoint *ep);
/* Makes the next such packet; false: none can go now. */
bool vb_engine_mend_next(struct vb_endpoint *ep, struct vb_packet *packet, uint64_t now);

/* The packet up to which a READ request that is sent again asks, in a part that ends at `end`. */
uint32_t vb_engine_mend_read_end(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe, uint32_t end);

#endif
