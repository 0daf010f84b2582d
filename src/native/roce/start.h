// SPDX-License-Identifier: Apache-2.0
/*
 * The ICRC's register before the BTH, kept for as long as packets of one flow and length follow
 * each other: they differ in the IPv4 identification alone.
 */
#ifndef VB_ROCE_START_H
#define VB_ROCE_START_H

#include <string.h>

#include "wire/icrc.h"

struct vb_start {
    struct vb_icrc_flow flow;
    uint32_t length;
    uint32_t without_id;
    bool has_id;
};

static inline void vb_roce_start_change(struct vb_start *start, const struct vb_icrc_flow *flow,
                                        uint32_t length)
{
    start->flow = *flow;
    start->length = length;
    start->has_id = vb_wire_icrc_is_ipv4(flow);
    start->without_id = vb_wire_icrc_start_udp(flow, length);
}

/* `length` as in wire/icrc.h. DF is set. */
static inline uint32_t vb_roce_start_udp(struct vb_start *start, const struct vb_icrc_flow *flow,
                                         uint16_t id, uint32_t length)
{
    if (__builtin_expect(start->length != length || memcmp(&start->flow, flow, sizeof(*flow)) != 0,
                         0))
        vb_roce_start_change(start, flow, length);
    return start->has_id ? vb_wire_icrc_with(start->without_id, (struct vb_icrc_unseen){id, true})
                         : start->without_id;
}

#endif
