// SPDX-License-Identifier: Apache-2.0
/*
 * The requester: turns the send queue into request packets (IBA 9.7.3). It begins requests in
 * order, checks each as a whole, and hands out one packet at a time as far as the window, the
 * responder's credits and its READ resources allow. Everything here is under sq_lock.
 */
#ifndef VB_TRANSPORT_REQUESTER_H
#define VB_TRANSPORT_REQUESTER_H

#include "transport/transport.h"

/* The next request packet; false: none can go now. */
bool vb_engine_requester_next(struct vb_endpoint *ep, struct vb_packet *packet, uint64_t now);

/* The packet at the cursor, which moves on; false: the connection has failed. */
bool vb_engine_requester_make(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe,
                              struct vb_packet *packet, uint64_t now);

/* The QP came to RTS, or its send queue was flushed or emptied: where the requester stands. */
void vb_engine_requester_sync(struct vb_endpoint *ep, uint64_t now);

/* The cursor back to the first unanswered packet. */
void vb_engine_requester_go_back(struct vb_endpoint *ep, enum vb_packet_reason reason);
/* The cursor at least to the first unanswered packet: `una` may have passed it. */
void vb_engine_requester_catch_up(struct vb_endpoint *ep);

/* A packet of a READ request in the last of `packets`: requests ask for a part of it each. */
uint32_t vb_engine_requester_read_end(const struct vb_sq_wqe *wqe, uint32_t index);

/* The first request of the queue ends; RC: with its successors flushed if that is an error. */
void vb_engine_requester_complete(struct vb_endpoint *ep, const struct vb_outcome *outcome);
/* Those that were handed out to the end end (UC). */
void vb_engine_requester_finish(struct vb_endpoint *ep);

/* Those that take resources of the responder, and are answered each by itself. */
static inline bool vb_engine_is_read_or_atomic(const struct ibv_send_wr *wr)
{
    enum {
        OPCODES = 1u << IBV_WR_RDMA_READ | 1u << IBV_WR_ATOMIC_CMP_AND_SWP |
            1u << IBV_WR_ATOMIC_FETCH_AND_ADD | 1u << IBV_WR_FLUSH | 1u << IBV_WR_ATOMIC_WRITE,
    };

    return OPCODES >> wr->opcode & 1;
}

static inline bool vb_engine_requester_outstanding(const struct vb_requester *r)
{
    return r->una != r->sent_psn;
}

#endif
