// SPDX-License-Identifier: Apache-2.0
/*
 * The retry thread: comes back to queue pairs whose requests wait while the program sleeps, and
 * flushes those in ERR. A program that polls does the same itself, and sooner. It sleeps when no
 * QP needs it; unlike the service thread it may wait for a peer.
 */
#ifndef VB_DIRECT_RETRY_H
#define VB_DIRECT_RETRY_H

#include "direct/direct.h"

/* vb_host_calls.look. */
void vb_direct_retry_look(struct vb_adapter *adapter);

int vb_direct_retry_start(struct vb_direct *direct);
void vb_direct_retry_stop(struct vb_direct *direct);

void vb_direct_retry_attend(struct vb_direct *direct, struct vb_qp *qp);
/* A request of a QP in the list, or of one that comes next, waits for less than a millisecond. */
void vb_direct_retry_hurry(struct vb_direct *direct);
/* Up to `room` of the QPs in the list whose requests complete in this CQ; how many. */
unsigned vb_direct_retry_waiting(struct vb_direct *direct, const struct vb_cq *cq,
                                 struct vb_qp **qps, unsigned room);
/* Returns when the thread neither has the QP in its list nor in hand. */
void vb_direct_retry_leave(struct vb_direct *direct, struct vb_qp *qp);

#endif
