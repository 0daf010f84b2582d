// SPDX-License-Identifier: Apache-2.0
/*
 * Forwarding tables for tests, which otherwise Python makes (verbena.sim.forwarding). Blocks are
 * not shared, and the memory of tables is never freed: it is a mapping, so that it counts as no
 * leak.
 */
#ifndef VB_TESTS_ROUTES_H
#define VB_TESTS_ROUTES_H

#include "event/switch.h"

/*
 * Row h of `ports` has up to `width` ports for packets to host h; -1 ends it. Hosts have their
 * default addresses. Returns 0.
 */
int vb_world_set_routes(struct vb_world *world, struct vb_world_switch *sw, const int32_t *ports,
                        uint32_t targets, uint32_t width);

#endif
