// SPDX-License-Identifier: Apache-2.0
/*
 * Receive requests of this adapter's own queues, for packets that arrive: the meaning of
 * direct/responder.h, where a peer takes them, without its other process.
 */
#ifndef VB_TRANSPORT_RECEIVE_H
#define VB_TRANSPORT_RECEIVE_H

#include "hca/qp.h"

struct vb_receive {
    const struct vb_recv_wqe *wqe;
    uint32_t position; /* in the receive queue, or the SRQ's request index */
};

/* The next one; it counts as taken when it completes. False: there is none. */
bool vb_engine_receive_take(struct vb_qp *qp, struct vb_receive *taken);
/* How many are posted and not taken; a QP with an SRQ has none of its own. */
uint32_t vb_engine_receive_count(const struct vb_qp *qp);

/*
 * Puts bytes `offset` to `offset + length` of a message in its buffers; `bytes` may be NULL: only
 * checked. VB_CHECK_OK, or the check that failed and its evidence.
 */
enum vb_check vb_engine_receive_place(struct vb_qp *qp, const struct vb_recv_wqe *wqe,
                                      uint64_t offset, const uint8_t *bytes, uint32_t length,
                                      struct vb_evidence *evidence);

/* Its completion: all of `entry` but wr_id, qp, wqe and kind. False: the CQ takes no more. */
bool vb_engine_receive_complete(struct vb_qp *qp, const struct vb_receive *taken,
                                struct vb_cqe *entry, bool solicited);

#endif
