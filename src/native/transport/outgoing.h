// SPDX-License-Identifier: Apache-2.0
/*
 * The beginning of every packet of a connection, and its BTH. The requester and the replies call
 * this: first the packet is opened, then its extended headers and payload are added, and the BTH is
 * written last, because it has the pad count.
 */
#ifndef VB_TRANSPORT_OUTGOING_H
#define VB_TRANSPORT_OUTGOING_H

#include "transport/transport.h"

/* An empty packet on the connection's path, with room for the BTH. */
static inline void vb_engine_packet_open(struct vb_endpoint *ep, struct vb_packet *packet)
{
    packet->path = &ep->path;
    packet->qp_num = ep->qp->number;
    packet->header_length = VB_BTH;
    packet->pad = 0;
    packet->reason = VB_PACKET_NEW;
}

/* `operation`: an opcode without the transport's bits. */
static inline struct vb_bth vb_engine_packet_bth(const struct vb_endpoint *ep,
                                                 const struct vb_packet *packet, uint8_t operation,
                                                 uint32_t psn)
{
    return (struct vb_bth){
        .opcode = (uint8_t)(ep->base | operation),
        .migrated = true,
        .pad = packet->pad,
        .pkey = vb_engine_qp_pkey(ep->qp),
        .dest_qp = ep->qp->shared->dest_qp_num,
        .psn = psn,
    };
}

#endif
