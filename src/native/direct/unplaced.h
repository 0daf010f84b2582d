// SPDX-License-Identifier: Apache-2.0
/*
 * The payload of a small SEND travels inside the completion and reaches its buffer when that is
 * polled. A WRITE, READ or atomic that follows on the same QP must find it in the buffer (IBA 9.5).
 * So a request that touches such a buffer first asks the peer to place what its CQ holds.
 */
#ifndef VB_DIRECT_UNPLACED_H
#define VB_DIRECT_UNPLACED_H

#include "direct/connection.h"
#include "direct/place.h"

/* A SEND's payload has gone into the peer's CQ inside its completion, for this buffer. */
static inline void vb_direct_unplaced_add(struct vb_connection *to, uint64_t low, uint64_t length)
{
    const struct vb_cq_shared *cq = vb_view_cq(&to->peer->view, to->remote->recv_cq);

    if (!to->unplaced_high || low < to->unplaced_low)
        to->unplaced_low = low;
    if (low + length > to->unplaced_high)
        to->unplaced_high = low + length;
    /* The entry's own position or, with other producers about, a later one: late is safe. */
    to->unplaced_cq_position = __atomic_load_n(&cq->tail, __ATOMIC_RELAXED) - 1;
}

/* The same for a list of buffers. */
void vb_direct_unplaced_note(struct vb_connection *to, const struct vb_spans *buffers);

int vb_direct_unplaced_settle_slowly(struct vb_connection *to, const struct vb_spans *target);

static inline int vb_direct_unplaced_settle(struct vb_connection *to, const struct vb_spans *target)
{
    return VB_UNLIKELY(to->unplaced_high) ? vb_direct_unplaced_settle_slowly(to, target) : 0;
}

#endif
