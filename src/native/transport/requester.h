// SPDX-License-Identifier: Apache-2.0
/*
 * The requester turns the send queue into request packets (IBA 9.7.3). It begins the requests in
 * order, checks each as a whole, and hands out one packet at a time as far as the window, the
 * responder's credits and its READ resources allow. The engine, the completer and the retries call
 * it, always under sq_lock.
 */
#ifndef VB_TRANSPORT_REQUESTER_H
#define VB_TRANSPORT_REQUESTER_H

#include "transport/transport.h"

/* Makes the next request packet; false: none can go now. */
bool vb_engine_requester_next(struct vb_endpoint *ep, struct vb_packet *packet, uint64_t now);

/*
 * Makes the packet at the cursor, and the cursor moves on; false: the connection has failed.
 * `packet` has no pieces yet, or those that vb_engine_elements_check has put there.
 */
bool vb_engine_requester_make(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe,
                              struct vb_packet *packet, uint64_t now);

/*
 * Brings the requester up to date with the QP: it came to RTS, its send queue was flushed, or
 * nothing is outstanding. Without a change this does nothing.
 */
void vb_engine_requester_sync(struct vb_endpoint *ep, uint64_t now);

/* Puts the cursor back on the first unanswered packet. */
void vb_engine_requester_go_back(struct vb_endpoint *ep, enum vb_packet_reason reason);
/* Puts the cursor at least on the first unanswered packet: `una` may have passed it. */
void vb_engine_requester_catch_up(struct vb_endpoint *ep);
/* The cursor passes requests that make no packet. */
void vb_engine_requester_pass_local(struct vb_endpoint *ep);

/* The end of the part of a READ in which packet `index` is: each request asks for one part. */
uint32_t vb_engine_requester_read_end(const struct vb_sq_wqe *wqe, uint32_t index);

/* The first request of the queue ends. If that is an error, the requests behind it are flushed. */
void vb_engine_requester_complete(struct vb_endpoint *ep, const struct vb_outcome *outcome);
/* UC: the requests of which all packets were handed out end. */
void vb_engine_requester_finish(struct vb_endpoint *ep);

/* Is it a request that takes a resource of the responder and is answered by itself? */
static inline bool vb_engine_is_read_or_atomic(const struct ibv_send_wr *wr)
{
    enum {
        OPCODES = 1u << IBV_WR_RDMA_READ | 1u << IBV_WR_ATOMIC_CMP_AND_SWP |
            1u << IBV_WR_ATOMIC_FETCH_AND_ADD | 1u << IBV_WR_FLUSH | 1u << IBV_WR_ATOMIC_WRITE,
    };

    return OPCODES >> wr->opcode & 1;
}

/* Was anything sent that is not answered? */
static inline bool vb_engine_requester_outstanding(const struct vb_requester *r)
{
    return r->una != r->sent_psn;
}

#endif
