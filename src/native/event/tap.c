// SPDX-License-Identifier: Apache-2.0
/* Sets a tap on both directions of a link. link.c calls the tap. */
#include "event/tap.h"

#include "event/partition.h"

#include <errno.h>

int vb_world_add_tap(struct vb_world *world, uint32_t number, uint32_t port,
                     const struct vb_world_tap *tap)
{
    const struct vb_world_node *node = number < world->nodes ? &world->node[number] : NULL;
    struct vb_world_port *end, *peer;

    if (!node || port >= node->ports || node->port[port] == VB_WORLD_NONE)
        return -EINVAL;
    end = &world->port[node->port[port]];
    peer = &world->port[end->peer];
    if (end->tap)
        return -EBUSY;
    end->tap = peer->tap = tap;
    vb_world_join(world, number, peer->node); /* both directions are in one file */
    end->slow_path = peer->slow_path = true;
    return 0;
}
