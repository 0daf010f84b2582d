// SPDX-License-Identifier: Apache-2.0
/*
 * The peer's half of a request, carried out by the requester's thread: the checks in the order of
 * the specification (IBA 9.7.4.1), the receive request that it takes, the completion that it
 * leaves, and the error state that a failed check puts the peer's QP in.
 */
#ifndef VB_PORT_DIRECT_RESPONDER_H
#define VB_PORT_DIRECT_RESPONDER_H

#include "hca/qp.h"
#include "port/direct/direct.h"
#include "port/direct/place.h"

/* A receive request in hand. */
struct vb_taken {
    const struct vb_recv_wqe *wqe;
    uint32_t position; /* in the receive queue, or the SRQ's request index */
    bool limit_reached;
};

/* Takes the next receive request for this QP: 0, -EAGAIN when there is none, -EPIPE. */
int vb_take_recv(struct vb_qp *qp, struct vb_taken *taken);

/* Completes it (entry: status, opcode, flags, byte_len, imm; data and kind when inline). */
enum ibv_wc_status vb_deliver(struct vb_qp *qp, struct vb_taken *taken, struct vb_cqe *entry,
                              bool solicited);

/* Where the receive request's elements are, up to `length` bytes; or the check that failed. */
enum vb_check vb_recv_spans(const struct vb_peer *peer, const struct vb_qp_shared *remote,
                            const struct vb_recv_wqe *wqe, uint64_t length, struct vb_spans *spans,
                            struct vb_evidence *evidence);

/* A remote region for a one-sided request: the check, and where it is. */
enum vb_check vb_remote_span(struct vb_qp *qp, uint32_t rkey, uint64_t addr, uint64_t length,
                             uint32_t need, struct vb_spans *spans,
                             const struct vb_mr_shared **region, struct vb_evidence *evidence);

/* Puts the peer's QP into ERR after a failed check and tells its process. */
void vb_fail_remote(struct vb_qp *qp, enum ibv_event_type event);

/* Tells the owner of the CQ what an entry demands (wake-up, overrun). */
void vb_after_remote_push(struct vb_direct *direct, struct vb_peer *peer, uint32_t cq,
                          unsigned pushed);

void vb_tell_qp_event(struct vb_direct *direct, struct vb_peer *peer,
                      const struct vb_qp_shared *remote, enum ibv_event_type event);

#endif
