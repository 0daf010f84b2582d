// SPDX-License-Identifier: Apache-2.0
/*
 * The elements (SGEs) of a request: their keys are checked, a packet is pointed at a part of them,
 * a response is copied into a part of them. The requester, the completer and the datagrams call
 * this, under the engine's lock or the QP's sq_lock. Each packet has the keys of its part checked,
 * since a region may be deregistered between two packets.
 */
#ifndef VB_TRANSPORT_PIECES_H
#define VB_TRANSPORT_PIECES_H

#include "hca/packet.h"
#include "hca/qp.h"
#include "memory/guard.h"

/*
 * Checks the keys of all elements for `need` (0 to read them); false: `outcome` says why. If
 * `packet` is not NULL, it is pointed at all of them: it must be made before the lock is released,
 * and vb_engine_elements_gather then does not check these keys again.
 */
bool vb_engine_elements_check(struct vb_qp *qp, const struct ibv_send_wr *wr, uint32_t need,
                              struct vb_packet *packet, struct vb_outcome *outcome);
/* The sum of the elements' lengths. */
uint64_t vb_engine_elements_length(const struct ibv_send_wr *wr);

/*
 * Points the packet, which has no pieces yet or those of vb_engine_elements_check, at the bytes
 * from `offset` to `offset + length` of the request, and checks that their memory is still mapped.
 */
bool vb_engine_elements_gather(struct vb_qp *qp, const struct ibv_send_wr *wr, uint64_t offset,
                               uint32_t length, struct vb_packet *packet,
                               struct vb_outcome *outcome);
/* Copies a response into the bytes from `offset` on. If `bytes` is NULL, only the keys are checked.
 */
bool vb_engine_elements_scatter(struct vb_qp *qp, const struct ibv_send_wr *wr, uint64_t offset,
                                const uint8_t *bytes, uint32_t length, struct vb_outcome *outcome);

static inline void vb_engine_packet_add(struct vb_packet *packet, const uint8_t *bytes,
                                        uint32_t length)
{
    packet->piece[packet->piece_count++] = (struct vb_piece){bytes, length};
    packet->payload_length += length;
}

#endif
