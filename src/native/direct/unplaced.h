// SPDX-License-Identifier: Apache-2.0
/*
 * A small SEND travels inside the completion and reaches its buffer when that is polled. A WRITE,
 * READ or atomic that follows on the same QP must find it there (IBA 9.5), so before one that
 * touches such a buffer the peer is asked to place what it has.
 */
#ifndef VB_DIRECT_UNPLACED_H
#define VB_DIRECT_UNPLACED_H

#include "direct/connection.h"
#include "direct/place.h"

/* A SEND's payload has gone into the peer's CQ inside its completion, for these buffers. */
void vb_direct_unplaced_note(struct vb_connection *to, const struct vb_spans *buffers);

int vb_direct_unplaced_settle_slowly(struct vb_connection *to, const struct vb_spans *target);

static inline int vb_direct_unplaced_settle(struct vb_connection *to, const struct vb_spans *target)
{
    return VB_UNLIKELY(to->unplaced_high) ? vb_direct_unplaced_settle_slowly(to, target) : 0;
}

#endif
