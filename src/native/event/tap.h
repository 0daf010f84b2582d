// SPDX-License-Identifier: Apache-2.0
/*
 * A tap is a function that is called for each packet at the end of a link. The captures of sim set
 * taps.
 */
#ifndef VB_EVENT_TAP_H
#define VB_EVENT_TAP_H

#include "event/world.h"

struct vb_world_tap {
    /* `port` sent the packet. `loss`: why the link lost it; VB_WORLD_DROPS: it arrived. */
    void (*see)(void *context, uint64_t now, uint32_t port, const struct vb_world_packet *packet,
                enum vb_world_drop_reason loss);
    void *context;
};

/*
 * Taps both directions of the link at this port. The caller keeps `tap` alive as long as the world.
 * -EINVAL: the port has no link; -EBUSY: the link has a tap.
 */
int vb_world_add_tap(struct vb_world *world, uint32_t node, uint32_t port,
                     const struct vb_world_tap *tap);

#endif
