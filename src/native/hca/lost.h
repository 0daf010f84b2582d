// SPDX-License-Identifier: Apache-2.0
/*
 * Datagrams that are lost on this host by a mistake: a wrong Q_Key or QP number, an address that
 * leads nowhere. The sender has a success, as UD promises no more. Each is counted, and the log has
 * a line for each cause and queue pair. Called by whoever drops one: the sender's thread where
 * datagrams go directly, the packet engine where they came as packets.
 */
#ifndef VB_HCA_LOST_H
#define VB_HCA_LOST_H

#include "hca/adapter.h"
#include "hca/evidence.h"

_Static_assert((int)VB_LOST_CAUSES == (int)VB_LOST_KINDS, "a count for each");

struct vb_lost {
    enum vb_lost_cause cause;
    uint32_t from, to; /* QP numbers */
    uint32_t value, wanted;
};

/* A datagram of `qp`, or for it, is lost: the line, once for each cause. */
void vb_lost_tell(struct vb_qp *qp, const struct vb_lost *lost) __attribute__((cold, noinline));

/* The same, and it is counted: where there is no packet engine to count it. */
void vb_lost_direct(struct vb_qp *qp, const struct vb_lost *lost) __attribute__((cold, noinline));

/* How many of them were counted here under the counter at this place of struct vb_counters. */
uint64_t vb_lost_counted(const struct vb_adapter *adapter, uint32_t counter);

#endif
