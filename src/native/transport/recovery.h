// SPDX-License-Identifier: Apache-2.0
/*
 * The state that a connection needs while it recovers from loss, reordering or RNR (struct
 * vb_recovery). It is made at the first of these, so that most connections do without it, and given
 * back when the connection has been well for a second. All calls are made under the engine's lock.
 */
#ifndef VB_TRANSPORT_RECOVERY_H
#define VB_TRANSPORT_RECOVERY_H

#include "transport/transport.h"

/* The recovery state of an endpoint that adapts, made if there is none; NULL: no memory. */
struct vb_recovery *vb_engine_recovery_get(struct vb_endpoint *ep, uint64_t now);
/* The endpoint gives its recovery state back, if it has one. */
void vb_engine_recovery_put(struct vb_endpoint *ep);
/* Its timer has expired. Under sq_lock. */
void vb_engine_recovery_expired(struct vb_recovery *recovery, uint64_t now);
/* Frees those that no endpoint has, when the engine is destroyed. */
void vb_engine_recovery_free_all(struct vb_engine *engine);

#endif
