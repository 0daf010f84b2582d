// SPDX-License-Identifier: Apache-2.0
/*
 * Datagrams that are lost by a mistake of a program: a wrong Q_Key or QP number, an address that
 * leads nowhere. UD promises no delivery, so the sender's request succeeds. Each loss is counted,
 * and the log has one line for each cause and queue pair. Whoever drops a datagram calls this: the
 * sender's thread with the direct carrier, the receiver's packet engine otherwise.
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

/* A datagram of `qp`, or for it, is lost: writes the line, once for each cause. */
void vb_lost_log(struct vb_qp *qp, const struct vb_lost *lost) __attribute__((cold, noinline));

/* The same, and counts it, for the direct carrier; a packet engine counts by itself. */
void vb_lost_direct(struct vb_qp *qp, const struct vb_lost *lost) __attribute__((cold, noinline));

/* The number of losses, by vb_lost_direct or of completions, that belong to the counter at this
 * place of struct vb_counters. */
uint64_t vb_lost_counted(const struct vb_adapter *adapter, uint32_t counter);

#endif
