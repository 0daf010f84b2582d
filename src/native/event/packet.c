// SPDX-License-Identifier: Apache-2.0
/* Grows the array of packets. packet.h has the rest of the pool, inline, and calls this. */
#include "event/packet.h"

#include <stdlib.h>

enum { FIRST_ROOM = 1024 };

uint32_t vb_world_pool_grow(struct vb_world_pool *pool)
{
    if (pool->made == pool->room) {
        uint32_t room = pool->room ? 2 * pool->room : FIRST_ROOM;
        struct vb_world_packet *grown = NULL;

        if (room > pool->room && posix_memalign((void **)&grown, 64, room * sizeof(*grown)))
            grown = NULL;
        if (!grown)
            return VB_WORLD_NONE;
        if (pool->made)
            __builtin_memcpy(grown, pool->packet, pool->made * sizeof(*grown));
        free(pool->packet);
        pool->packet = grown;
        pool->room = room;
    }
    return pool->made++;
}

void vb_world_pool_free(struct vb_world_pool *pool)
{
    free(pool->packet);
}
