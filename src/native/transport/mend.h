// SPDX-License-Identifier: Apache-2.0
/*
 * What is sent again beside the requester's cursor, where connections adapt: packets that the
 * responder misses, and requests for responses that are missing here. retry.c decides what, the
 * requester asks for the packets. The cursor stays. All under sq_lock.
 */
#ifndef VB_TRANSPORT_MEND_H
#define VB_TRANSPORT_MEND_H

#include "transport/transport.h"

/*
 * So many packets from the first unanswered one on. Nothing else follows until they are answered,
 * unless the peer keeps what comes early.
 */
void vb_engine_mend_first(struct vb_endpoint *ep, uint32_t packets, enum vb_packet_reason reason,
                          uint64_t now);
/* The same for one packet that is not the first. */
void vb_engine_mend_at(struct vb_endpoint *ep, uint32_t psn, uint64_t now);
/* A request for the first response that is missing, and what is missing with it. Others follow. */
void vb_engine_mend_ask(struct vb_endpoint *ep);

/* Of one that recovers: is it the turn of these, or are they waited for? */
bool vb_engine_mend_is_due(struct vb_endpoint *ep);
/* Then the next of them; false: none can go now. */
bool vb_engine_mend_next(struct vb_endpoint *ep, struct vb_packet *packet, uint64_t now);

/*
 * Up to which packet a READ request that is made so asks, of a part that ends at `end`.
 */
uint32_t vb_engine_mend_read_end(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe, uint32_t end);

#endif
