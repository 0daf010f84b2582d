// SPDX-License-Identifier: Apache-2.0
/* Parts of a message in the memory that its elements name; each key is checked each time. */
#ifndef VB_TRANSPORT_PIECES_H
#define VB_TRANSPORT_PIECES_H

#include "hca/packet.h"
#include "hca/qp.h"
#include "memory/guard.h"

/* The request's elements, checked for `need` (0 to read them); false: `outcome` says why. */
bool vb_engine_elements_check(struct vb_qp *qp, const struct ibv_send_wr *wr, uint32_t need,
                              struct vb_outcome *outcome);
/* Their bytes together. */
uint64_t vb_engine_elements_length(const struct ibv_send_wr *wr);

/* Points the packet at bytes `offset` to `offset + length` of the request. */
bool vb_engine_elements_gather(struct vb_qp *qp, const struct ibv_send_wr *wr, uint64_t offset,
                               uint32_t length, struct vb_packet *packet,
                               struct vb_outcome *outcome);
/* Puts a response there. `bytes` may be NULL: only checked. */
bool vb_engine_elements_scatter(struct vb_qp *qp, const struct ibv_send_wr *wr, uint64_t offset,
                                const uint8_t *bytes, uint32_t length, struct vb_outcome *outcome);

static inline void vb_engine_packet_add(struct vb_packet *packet, const uint8_t *bytes,
                                        uint32_t length)
{
    packet->piece[packet->piece_count++] = (struct vb_piece){bytes, length};
    packet->payload_length += length;
}

#endif
