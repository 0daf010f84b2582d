// SPDX-License-Identifier: Apache-2.0
/*
 * A tap on a link: a function that sees each packet at the end of the link, with what became of it.
 * The captures of sim are its only user.
 */
#ifndef VB_EVENT_TAP_H
#define VB_EVENT_TAP_H

#include "event/world.h"

struct vb_world_tap {
    /* `port` sent it. `fate`: why it was lost on the way, or VB_WORLD_DROPS: it was not. */
    void (*see)(void *context, uint32_t port, const struct vb_world_packet *packet,
                enum vb_world_drop_reason fate);
    void *context;
};

/*
 * Both directions of the link at this port; the tap stays its owner's. A link that nobody looks at
 * is none the slower. -EINVAL: nothing is plugged in there; -EBUSY: somebody looks already.
 */
int vb_world_add_tap(struct vb_world *world, uint32_t node, uint32_t port,
                     const struct vb_world_tap *tap);

#endif
