// SPDX-License-Identifier: Apache-2.0
/*
 * Receive requests of this adapter's own queues, taken and completed for packets that arrive. The
 * responder and the datagrams call this under the engine's lock, of UD also under the queue's
 * rq_lock. Where a peer takes such a request from its own process, direct/responder.h does the
 * same.
 */
#ifndef VB_TRANSPORT_RECEIVE_H
#define VB_TRANSPORT_RECEIVE_H

#include "hca/qp.h"

/* Takes the next request; it counts as taken when it completes. False: there is none. */
bool vb_engine_receive_take(struct vb_qp *qp, struct vb_receive *taken);
/* The number of requests that are posted and not taken; a QP with an SRQ has none of its own. */
uint32_t vb_engine_receive_count(const struct vb_qp *qp);

/*
 * Copies the bytes from `offset` to `offset + length` of a message into the request's buffers. If
 * `bytes` is NULL, only the keys are checked. Returns VB_CHECK_OK, or the check that failed, with
 * its evidence.
 */
enum vb_check vb_engine_receive_place(struct vb_qp *qp, const struct vb_recv_wqe *wqe,
                                      uint64_t offset, const uint8_t *bytes, uint32_t length,
                                      struct vb_evidence *evidence);

/*
 * Writes the request's completion. `entry` has everything but wr_id, qp, wqe and kind. False: the
 * CQ takes no more entries.
 */
bool vb_engine_receive_complete(struct vb_qp *qp, const struct vb_receive *taken,
                                struct vb_cqe *entry, bool solicited);

#endif
