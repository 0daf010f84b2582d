// SPDX-License-Identifier: Apache-2.0
/*
 * The PFC watchdog, and hosts that cause a pause storm. lanes.c calls the watchdog before a port
 * chooses a lane; run.c calls vb_world_storm_pause.
 */
#include "event/watchdog.h"

#include <errno.h>
#include <stdlib.h>

#include "event/link.h"
#include "event/switch.h"

struct vb_world_watchdog *vb_world_watchdog_create(const struct vb_world_watchdog_config *config,
                                                   uint32_t lanes)
{
    struct vb_world_watchdog *made = calloc(1, sizeof(*made) + lanes * sizeof(made->lane[0]));

    if (!made)
        return NULL;
    made->config = *config;
    for (uint32_t i = 0; i < lanes; ++i)
        made->lane[i].paused_from = VB_WORLD_NEVER;
    return made;
}

void vb_world_watchdog_note(struct vb_world_lanes *lanes, const struct vb_world_control *record)
{
    struct vb_world_watched_lane *watched = &lanes->watchdog->lane[record->lane];
    struct vb_world_lane *lane = &lanes->lane[record->lane];
    bool was_paused = watched->paused_from != VB_WORLD_NEVER && record->at <= watched->paused_to;

    if (record->at >= watched->paused_to + lanes->watchdog->config.restore)
        watched->is_active = false;
    watched->paused_to = lane->paused_until; /* = record->at when the pause ends */
    if (!record->value)
        watched->paused_from = VB_WORLD_NEVER;
    else if (!was_paused)
        watched->paused_from = record->at;
    if (watched->is_active && lanes->watchdog->config.forward)
        lane->paused = false;
}

/* The time counts from the pause's begin, or from when the first packet became first, if later. */
uint64_t vb_world_watchdog_due(const struct vb_world_partition *part,
                               const struct vb_world_lanes *lanes, uint32_t lane)
{
    const struct vb_world_watched_lane *watched = &lanes->watchdog->lane[lane];
    uint64_t since = lanes->lane[lane].head_since;

    if (watched->is_active || watched->paused_from == VB_WORLD_NEVER ||
        watched->paused_to <= part->now)
        return VB_WORLD_NEVER;
    return (watched->paused_from > since ? watched->paused_from : since) +
           lanes->watchdog->config.detect;
}

/* Is there a storm on this lane now? */
static bool acts_on(struct vb_world_partition *part, struct vb_world_port *port, uint32_t lane)
{
    const struct vb_world_watchdog_config *config = &port->lanes->watchdog->config;
    struct vb_world_watched_lane *watched = &port->lanes->watchdog->lane[lane];

    if (watched->is_active && part->now >= watched->paused_to + config->restore)
        watched->is_active = false;
    if (watched->is_active || vb_world_watchdog_due(part, port->lanes, lane) > part->now)
        return watched->is_active;
    watched->is_active = true;
    ++port->traffic.storms;
    if (config->forward)
        port->lanes->lane[lane].paused = false;
    return true;
}

void vb_world_watchdog_look(struct vb_world_partition *part, uint32_t number)
{
    struct vb_world_port *port = &part->port[number];

    vb_world_lanes_apply_control(part, port);
    for (uint32_t left = port->lanes->waiting; left; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);

        if (port->lanes->lane[lane].flow_control != VB_WORLD_PAUSES || !acts_on(part, port, lane) ||
            port->lanes->watchdog->config.forward)
            continue;
        while (port->lanes->lane[lane].packets)
            vb_world_lanes_drop(part, number, lane, VB_WORLD_DROP_WATCHDOG);
    }
}

/* ---- storms ---------------------------------------------------------------------------------- */

struct vb_world_storm {
    uint32_t port, lane;
    uint64_t end;
};

/* A storm without end does not keep a run from ending. */
static void watchdog_plan(struct vb_world_partition *part, uint32_t number, uint64_t at)
{
    bool endless = part->world->storm[number].end == VB_WORLD_NEVER;

    part->idle += endless;
    part->watching += endless;
    vb_world_add(part, at, VB_WORLD_STORM, endless, number);
}

void vb_world_storm_pause(struct vb_world_partition *part, uint32_t number)
{
    const struct vb_world_storm *storm = &part->world->storm[number];
    struct vb_world_port *port = &part->port[storm->port];
    struct vb_world_lane *lane = &port->lanes->lane[storm->lane];
    uint64_t next = part->now + vb_world_pause_time(port->rate, VB_WORLD_QUANTA_MAX) / 2;

    lane->refreshing = part->now < storm->end; /* no VB_WORLD_REFRESH event of its own */
    vb_world_lanes_pause(part, port, storm->lane, lane->refreshing ? VB_WORLD_QUANTA_MAX : 0);
    if (lane->refreshing)
        watchdog_plan(part, number, next < storm->end ? next : storm->end);
}

uint32_t vb_world_storm_node(const struct vb_world *world, uint32_t number)
{
    return world->port[world->storm[number].port].node;
}

int vb_world_add_storm(struct vb_world *world, uint32_t node, uint32_t lane, uint64_t start,
                       uint64_t end)
{
    struct vb_world_storm *grown;
    uint32_t port;

    port = world->node[node].port[0];
    if (port == VB_WORLD_NONE || !world->port[port].lanes ||
        lane >= world->port[port].lanes->data ||
        world->port[port].lanes->lane[lane].flow_control != VB_WORLD_PAUSES)
        return -EINVAL;
    grown = realloc(world->storm, (world->storms + 1) * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    world->storm = grown;
    grown[world->storms] = (struct vb_world_storm){port, lane, end};
    watchdog_plan(vb_world_partition_of(world, node), world->storms++, start);
    return vb_world_partition_of(world, node)->error;
}
