// SPDX-License-Identifier: Apache-2.0
/* Parts of simulated fabrics without protocols: switches, hosts and links that have to fit. */
#ifndef VB_TESTS_YARD_H
#define VB_TESTS_YARD_H

#include "event/switch.h"

/* These return the number of the node. */
uint32_t yard_switch(struct vb_world *world, const struct vb_world_switch_config *config);
uint32_t yard_host(struct vb_world *world, uint32_t sw, uint32_t port, uint64_t rate,
                   uint64_t delay);
void yard_connect(struct vb_world *world, uint32_t a, uint32_t a_port, uint32_t b, uint32_t b_port,
                  uint64_t rate, uint64_t delay);

/* Lanes of one kind, with different weights. */
struct vb_world_switch_config yard_lanes(uint32_t lanes, enum vb_world_flow_control flow,
                                         uint32_t room);
/* Lane 0 pauses at a threshold of its own, lane 1 at a part of the buffer, and lane 2 drops. */
struct vb_world_switch_config yard_pauses(bool forward);

#endif
