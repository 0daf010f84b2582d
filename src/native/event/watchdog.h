// SPDX-License-Identifier: Apache-2.0
/*
 * Pauses that do not end. An adapter that is broken sends them for ever (a pause storm), and what
 * waits for it fills the fabric. A switch's watchdog looks at each lane that it sends by: when
 * packets have waited for so long without one leaving while the lane is paused, it drops them and
 * all that follow, or sends them in spite of the pause; until the lane has not been paused for a
 * while.
 */
#ifndef VB_EVENT_WATCHDOG_H
#define VB_EVENT_WATCHDOG_H

#include "event/lanes.h"

/* The watchdog's state of one lane. */
struct vb_world_watched_lane {
    uint64_t paused_from; /* VB_WORLD_NEVER: it is not */
    uint64_t paused_to;   /* when the last pause ends, or ended */
    bool acts;
};

struct vb_world_watchdog {
    struct vb_world_watchdog_config config;
    struct vb_world_watched_lane guard[];
};

/* NULL: no memory. free() it. */
struct vb_world_watchdog *vb_world_watchdog_create(const struct vb_world_watchdog_config *config,
                                                   uint32_t lanes);
/* A pause was taken in, or the end of one. */
void vb_world_watchdog_note(struct vb_world_lanes *lanes, const struct vb_world_control *word);
/* Before a port with packets chooses one: does what is to be done about lanes that are paused. */
void vb_world_watchdog_look(struct vb_world *world, uint32_t port);
/* When a lane that waits is to be looked at again; VB_WORLD_NEVER. */
uint64_t vb_world_watchdog_due(const struct vb_world *world, const struct vb_world_lanes *lanes,
                               uint32_t lane);

/*
 * The host at `node` pauses its switch on this lane from `start` on, without end, or up to `end`.
 * The times are not in the past. -EINVAL: no such lane, or one without pauses; -ENOMEM.
 */
int vb_world_add_storm(struct vb_world *world, uint32_t node, uint32_t lane, uint64_t start,
                       uint64_t end);
/* The event VB_WORLD_STORM. */
void vb_world_storm_pause(struct vb_world *world, uint32_t number);

#endif
