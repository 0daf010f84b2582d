// SPDX-License-Identifier: Apache-2.0
/*
 * Detours in a network of groups that are joined to each other (a dragonfly): a packet to another
 * group goes by way of a third one, always (Valiant and Brebner, 1981), or when the first switch
 * finds its own queues shorter that way (UGAL-L of Singh, 2005; Kim, Dally, Scott and Abts, ISCA
 * 2008).
 *
 * The third group is a hash of the flow, or of the packet, that each switch can work out; the
 * packet carries one bit, that it has not been there. Both parts of the way are those of the
 * forwarding tables.
 */
#ifndef VB_EVENT_DETOUR_H
#define VB_EVENT_DETOUR_H

#include "event/switch.h"

struct vb_world_detour_config {
    bool adaptive;      /* by queues; false: each packet */
    bool by_packet;     /* each packet for itself; false: the packets of a flow together */
    uint32_t threshold; /* bytes times links by which the queue of the short way is to be longer */
    uint64_t gap;       /* ps without a packet, after which a flow's way is chosen again */
};

/* What a flow's last packet did. */
struct vb_world_flowlet {
    uint64_t key; /* 0: free */
    uint64_t seen;
};

/* A switch's own. */
struct vb_world_detour {
    const struct vb_world_detours *all;
    struct vb_world_flowlet *flow; /* by hash */
    uint32_t flows, room;          /* no more than half of it is used */
    uint16_t group;
};

/*
 * `group`: of each node; those behind `count` are range extenders. -EINVAL: a group without a host,
 * or a switch that is left out; -EBUSY: there are detours already; -ENOMEM.
 */
int vb_world_set_detours(struct vb_world *world, const struct vb_world_detour_config *config,
                         const uint16_t *group, uint32_t count);
void vb_world_detours_free(struct vb_world *world);
void vb_world_detour_destroy(struct vb_world_detour *detour);

/* The host to which the tables are to lead a packet that came by port `in` of the world. */
uint32_t vb_world_detour_target(struct vb_world *world, struct vb_world_switch *sw, uint32_t in,
                                struct vb_world_packet *packet);

#endif
