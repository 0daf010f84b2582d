// SPDX-License-Identifier: Apache-2.0
/*
 * Requests of a connection that adapts which came before one that is missing: kept, and carried out
 * in their order when that one has come (gap.h). Responses: completer.c.
 */
#ifndef VB_HCA_EARLY_H
#define VB_HCA_EARLY_H

#include "hca/transport.h"

/* A request packet beyond the expected one. */
void vb_early_keep(const struct vb_incoming *in);
/* The expected request packet, which may be damaged: it is missing, and asked for. */
void vb_early_ask(const struct vb_incoming *in);
/* A request was carried out, which may be the one that was missing, `missing` being its PSN. */
void vb_early_serve(const struct vb_incoming *in, uint32_t missing);
/* What is missing may have been waited for, of a connection that recovers. Under sq_lock. */
void vb_early_overdue(struct vb_endpoint *ep, uint64_t now);

#endif
