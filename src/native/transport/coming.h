// SPDX-License-Identifier: Apache-2.0
/*
 * Which packets a reliable connection will take when they come to the engine, known before they do:
 * a simulated adapter asks this for each packet that arrives, and writes the payload of those only
 * to memory. Between that and vb_engine_receive other packets of the connection may be on their
 * way, so struct vb_coming goes ahead of the engine's own state. It is for engines that keep no
 * early packets (vb_engine_config.adapts is false).
 */
#ifndef VB_TRANSPORT_COMING_H
#define VB_TRANSPORT_COMING_H

#include <stdbool.h>
#include <stdint.h>

struct vb_qp;

/* PSNs, with a bit of their own once they are known. Zeroed memory is right at the beginning. */
struct vb_coming {
    uint32_t request;  /* the next one from the peer */
    uint32_t response; /* no READ response before this one is missing any more */
    uint32_t message;  /* of the first packet of the peer's message under way, for go-back-0 */
};

/* Does the connection take requests and READ responses in their order, each once? Of other packets
 * nothing is known. */
bool vb_engine_takes_in_order(uint8_t opcode);
/*
 * Will this packet be taken? The caller asks once for each packet for which
 * vb_engine_takes_in_order is true, in the order of their arrival. `bytes` are its headers.
 * `coming` is of the connection of the packet's QP, which vb_engine_find has found. A packet that
 * the engine refuses for another reason than its PSN counts as taken, and once more as sent again.
 */
bool vb_engine_will_take(struct vb_qp *qp, const uint8_t *bytes, struct vb_coming *coming);

#endif
