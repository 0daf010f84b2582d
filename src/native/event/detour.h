// SPDX-License-Identifier: Apache-2.0
/*
 * Non-minimal routing in a network of connected groups (a dragonfly): a packet to another group is
 * sent to an intermediate group first, always (Valiant and Brebner, 1981), or when the queues at
 * the first switch favour that (UGAL-L of Singh, 2005; Kim, Dally, Scott and Abts, ISCA 2008).
 *
 * The intermediate group is a hash of the flow, or of the packet, which every switch computes
 * again; the packet has a flag until it gets there. Both parts of the route follow the forwarding
 * tables.
 */
#ifndef VB_EVENT_DETOUR_H
#define VB_EVENT_DETOUR_H

#include "event/switch.h"

struct vb_world_detour_config {
    bool adaptive;      /* by queues (UGAL-L); false: all packets (Valiant) */
    bool by_packet;     /* for each packet; false: for each flowlet */
    uint32_t threshold; /* bytes times links by which the minimal route has to be worse */
    uint64_t gap;       /* ps without a packet after which a flow chooses again */
};

/* The choice of a flow's last packet. */
struct vb_world_flowlet {
    uint64_t ends; /* source, target, and two bits of detour.c; 0: free */
    uint32_t qp;
    uint64_t seen; /* ps: the last packet */
};

/* The state of one switch. */
struct vb_world_detour {
    const struct vb_world_detours *all;
    struct vb_world_flowlet *flow; /* a hash table */
    uint32_t flows, room;          /* at most half of it is used */
    uint16_t group;
};

/*
 * `group` has the group of the first `count` nodes; all further nodes are range extenders. -EINVAL:
 * a group without a host, or a switch without a group; -EBUSY: called before; -ENOMEM.
 */
int vb_world_set_detours(struct vb_world *world, const struct vb_world_detour_config *config,
                         const uint16_t *group, uint32_t count);
void vb_world_detours_free(struct vb_world *world);
void vb_world_detour_destroy(struct vb_world_detour *detour);

/* The host whose route a packet follows that came by `in`, an index of vb_world.port. */
uint32_t vb_world_detour_target(struct vb_world_partition *part, struct vb_world_switch *sw,
                                uint32_t in, struct vb_world_packet *packet);

#endif
