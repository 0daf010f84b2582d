// SPDX-License-Identifier: Apache-2.0
/*
 * Requests that came before a missing one, on a connection that adapts: they are kept (gap.h), and
 * carried out in their order when the missing one has come. The responder calls this. Responses
 * that come early are the completer's.
 */
#ifndef VB_TRANSPORT_EARLY_H
#define VB_TRANSPORT_EARLY_H

#include "transport/transport.h"

/* Keeps a request packet that came before the expected one, or drops it. */
void vb_engine_early_keep(const struct vb_incoming *in);
/* The expected request packet came damaged: it counts as missing, and is asked for. */
void vb_engine_early_ask(const struct vb_incoming *in);
/*
 * A request packet was taken. If it was the missing one, whose PSN is `missing`, the kept packets
 * that follow it are carried out.
 */
void vb_engine_early_serve(const struct vb_incoming *in, uint32_t missing);
/* The recovery timer has expired: is the wait for a missing packet over? Under sq_lock. */
void vb_engine_early_overdue(struct vb_endpoint *ep, uint64_t now);

/* Is it a SEND or WRITE of one packet without payload? */
static inline bool vb_engine_early_is_empty(const struct vb_incoming *in)
{
    uint32_t flags = in->opcode->flags;

    return !in->length && (flags & (VB_OPCODE_SEND | VB_OPCODE_WRITE)) &&
           (flags & VB_OPCODE_FIRST) && (flags & VB_OPCODE_LAST);
}

/*
 * A message begins with a PSN that another packet had. Linux's rdma_rxe does that: when its timer
 * expires twice, it sends the rest of an acknowledged message, which is nothing, as an empty
 * packet, and all that follows with PSNs that are greater by one. If that is not answered, it sends
 * the whole message in the empty packet's place, and the PSNs are greater by all its packets. This
 * recognizes the two cases and expects such PSNs from then on; any other such message is a
 * duplicate.
 */
void vb_engine_early_renumber(const struct vb_incoming *in);

#endif
