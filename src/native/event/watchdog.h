// SPDX-License-Identifier: Apache-2.0
/*
 * PFC watchdog and pause storms. A broken adapter sends pause frames without end (a pause storm),
 * and packets for it fill the fabric. A switch's watchdog detects an output lane that has been
 * paused for `detect` without sending a packet. From then on it drops the lane's packets, or sends
 * them in spite of the pause, until the lane has not been paused for `restore`.
 */
#ifndef VB_EVENT_WATCHDOG_H
#define VB_EVENT_WATCHDOG_H

#include "event/lanes.h"

struct vb_world_watched_lane {
    uint64_t paused_from; /* VB_WORLD_NEVER: the lane is not paused */
    uint64_t paused_to;   /* the end of the last pause */
    bool is_active;       /* the watchdog has detected a storm */
};

struct vb_world_watchdog {
    struct vb_world_watchdog_config config;
    struct vb_world_watched_lane lane[];
};

/* NULL: no memory. The caller frees it with free(). */
struct vb_world_watchdog *vb_world_watchdog_create(const struct vb_world_watchdog_config *config,
                                                   uint32_t lanes);
/* Called when a pause frame has been applied to a lane. */
void vb_world_watchdog_note(struct vb_world_lanes *lanes, const struct vb_world_control *record);
/* Called before a port chooses a packet: drops or releases the packets of lanes in a storm. */
void vb_world_watchdog_look(struct vb_world_partition *part, uint32_t port);
/* The time at which the watchdog would detect a storm on this lane; or VB_WORLD_NEVER. */
uint64_t vb_world_watchdog_due(const struct vb_world_partition *part,
                               const struct vb_world_lanes *lanes, uint32_t lane);

/*
 * The host at `node` pauses its switch on this lane from `start` to `end`; VB_WORLD_NEVER: without
 * end. The times are not in the past. -EINVAL: no such lane, or one without pauses; -ENOMEM.
 */
int vb_world_add_storm(struct vb_world *world, uint32_t node, uint32_t lane, uint64_t start,
                       uint64_t end);
uint32_t vb_world_storm_node(const struct vb_world *world, uint32_t number);
/* Handles the event VB_WORLD_STORM: sends the next pause frame. */
void vb_world_storm_pause(struct vb_world_partition *part, uint32_t number);

#endif
