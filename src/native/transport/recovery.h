// SPDX-License-Identifier: Apache-2.0
/*
 * What a connection needs while it recovers from loss, reordering or RNR. It is made at the first
 * of these, so that others do without, and given back when all has been well for a while.
 */
#ifndef VB_TRANSPORT_RECOVERY_H
#define VB_TRANSPORT_RECOVERY_H

#include "transport/transport.h"

/* The endpoint's, which adapts; NULL: there is no memory for one. */
struct vb_recovery *vb_engine_recovery_get(struct vb_endpoint *ep, uint64_t now);
void vb_engine_recovery_put(struct vb_endpoint *ep);
/* Its timer rings. Under sq_lock. */
void vb_engine_recovery_expired(struct vb_recovery *recovery, uint64_t now);
/* The engine ends. */
void vb_engine_recovery_free_all(struct vb_engine *engine);

#endif
