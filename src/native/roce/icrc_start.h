// SPDX-License-Identifier: Apache-2.0
/*
 * The ICRC's register before the BTH, for udp_send.c and udp_receive.c. It depends on the flow and
 * on the packet's length alone, and over IPv4 on the identification, so the registers of the
 * lengths that were seen last are kept: a connection's requests and acknowledgements alternate.
 * One cache belongs to one lock.
 */
#ifndef VB_ROCE_ICRC_START_H
#define VB_ROCE_ICRC_START_H

#include <string.h>

#include "wire/icrc.h"

struct vb_icrc_start {
    struct vb_icrc_flow flow;
    uint32_t length;     /* of the packet; 0: the entry is empty */
    uint32_t before_bth; /* over IPv4 with identification 0 and DF clear */
    bool has_id;         /* it is IPv4's */
};

enum { VB_ICRC_STARTS = 8 }; /* by length: those of one message's packets do not collide */

struct vb_icrc_starts {
    struct vb_icrc_start entry[VB_ICRC_STARTS];
};

static inline void vb_roce_icrc_start_fill(struct vb_icrc_start *start,
                                           const struct vb_icrc_flow *flow, uint32_t length)
{
    start->flow = *flow;
    start->length = length;
    start->has_id = vb_wire_icrc_is_ipv4(flow);
    start->before_bth = vb_wire_icrc_start_udp(flow, length);
}

/* For a packet of `length` bytes (wire/icrc.h) with this identification and DF set. */
static inline uint32_t vb_roce_icrc_start(struct vb_icrc_starts *starts,
                                          const struct vb_icrc_flow *flow, uint16_t id,
                                          uint32_t length)
{
    struct vb_icrc_start *start = &starts->entry[length / 4 % VB_ICRC_STARTS];

    if (__builtin_expect(start->length != length || memcmp(&start->flow, flow, sizeof(*flow)) != 0,
                         0))
        vb_roce_icrc_start_fill(start, flow, length);
    return start->has_id ? vb_wire_icrc_with(start->before_bth, (struct vb_icrc_unseen){id, true})
                         : start->before_bth;
}

#endif
