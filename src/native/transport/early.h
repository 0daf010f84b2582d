// SPDX-License-Identifier: Apache-2.0
/*
 * Requests of a connection that adapts which came before one that is missing: kept, and carried out
 * in their order when that one has come (gap.h). Responses: completer.c.
 */
#ifndef VB_TRANSPORT_EARLY_H
#define VB_TRANSPORT_EARLY_H

#include "transport/transport.h"

/* A request packet beyond the expected one. */
void vb_engine_early_keep(const struct vb_incoming *in);
/* The expected request packet, which may be damaged: it is missing, and asked for. */
void vb_engine_early_ask(const struct vb_incoming *in);
/* A request was carried out, which may be the one that was missing, `missing` being its PSN. */
void vb_engine_early_serve(const struct vb_incoming *in, uint32_t missing);
/* What is missing may have been waited for, of a connection that recovers. Under sq_lock. */
void vb_engine_early_overdue(struct vb_endpoint *ep, uint64_t now);

/* A SEND or WRITE of one packet without payload? */
static inline bool vb_engine_early_is_empty(const struct vb_incoming *in)
{
    uint32_t flags = in->opcode->flags;

    return !in->length && (flags & (VB_OPCODE_SEND | VB_OPCODE_WRITE)) &&
           (flags & VB_OPCODE_FIRST) && (flags & VB_OPCODE_LAST);
}

/*
 * A message begins with a PSN that was taken already. rdma_rxe counts the rest of an acknowledged
 * message, nothing, as a packet when its timer expires twice, and sends all that follows again with
 * PSNs that are greater by one: an empty packet where there was another. If it has no answer to
 * that, it sends the whole message in the empty one's place, and the PSNs are greater by all its
 * packets. Such PSNs are expected from then on; everything else is a duplicate.
 */
void vb_engine_early_renumber(const struct vb_incoming *in);

#endif
