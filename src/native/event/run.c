// SPDX-License-Identifier: Apache-2.0
/*
 * Runs the events of a world in the order of time: each goes to the part of the room that it is
 * for. The hosts' user (sim) calls vb_world_run, and hosts send packets here.
 */
#include <errno.h>

#include "event/lanes.h"
#include "event/link.h"
#include "event/sample.h"
#include "event/switch.h"
#include "event/watchdog.h"

#define NEVER_LOOKED UINT64_MAX

/* ---- packets --------------------------------------------------------------------------------- */

static void world_lose(struct vb_world *world, uint32_t packet)
{
    ++world->dropped;
    if (world->on_host->dropped)
        world->on_host->dropped(world->hosts_context, packet);
    vb_world_pool_give(&world->pool, packet);
}

void vb_world_drop(struct vb_world *world, struct vb_world_port *port, uint32_t packet,
                   enum vb_world_drop_reason reason)
{
    ++port->traffic.dropped[reason];
    world_lose(world, packet);
}

void vb_world_send(struct vb_world *world, uint32_t node, uint32_t packet)
{
    uint32_t number = world->node[node].port[0];
    struct vb_world_port *port;
    struct vb_world_packet *at = vb_world_packet_at(world, packet);

    ++world->made;
    if (number == VB_WORLD_NONE) {
        world_lose(world, packet);
        return;
    }
    port = &world->port[number];
    if (!port->lanes) {
        at->lane = 0;
        vb_world_link_send(world, number, packet,
                           port->free_at > world->now ? port->free_at : world->now);
        return;
    }
    at->lane = (uint8_t)vb_world_lanes_of(port->lanes, at->level_marks);
    vb_world_lanes_put(world, number, at->lane, 0, packet);
}

bool vb_world_may_send(const struct vb_world *world, uint32_t node)
{
    uint32_t number = world->node[node].port[0];

    return number == VB_WORLD_NONE || world->port[number].free_at <= world->now;
}

/* ---- the run --------------------------------------------------------------------------------- */

static void dispatch_event(struct vb_world *world, uint64_t what)
{
    uint32_t index = (uint32_t)what, detail = vb_world_detail_of(what);

    switch (vb_world_event_of(what)) {
    case VB_WORLD_ARRIVE:
        vb_world_link_arrive(world, index);
        break;
    case VB_WORLD_WAKE:
        world->idle -= detail;
        vb_world_lanes_wake(world, index);
        break;
    case VB_WORLD_READY:
        world->on_host->ready(world->hosts_context, world->node[world->port[index].node].host);
        break;
    case VB_WORLD_REFRESH:
        --world->idle;
        vb_world_lanes_refresh(world, index, detail);
        break;
    case VB_WORLD_LINK_UP:
    case VB_WORLD_LINK_DOWN:
        --world->idle;
        vb_world_link_set(world, index, vb_world_event_of(what) == VB_WORLD_LINK_UP);
        break;
    case VB_WORLD_CALL:
        --world->idle;
        world->on_host->call(world->hosts_context, detail, index);
        break;
    case VB_WORLD_SAMPLE:
        vb_world_sampler_look(world, index);
        break;
    case VB_WORLD_STORM:
        world->idle -= detail;
        world->watching -= detail;
        vb_world_storm_pause(world, index);
        break;
    case VB_WORLD_HALT:
        --world->idle;
        world->watching -= detail;
        world->error = VB_WORLD_END_HALT;
        break;
    }
}

/* Is the port blocked by credits or by a pause that only another packet's departure can end? */
static bool waits_for_ever(const struct vb_world *world, const struct vb_world_port *port)
{
    const struct vb_world_lanes *lanes = port->lanes;

    if (!lanes || !lanes->waiting)
        return false;
    if (lanes->control_count || lanes->lifetime)
        return false;
    for (uint32_t left = lanes->waiting; left; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);

        if (lanes->lane[lane].flow_control == VB_WORLD_PAUSES &&
            !world->port[port->peer].lanes->lane[lane].stopped)
            return false;
    }
    return true;
}

/* A number that changes whenever a packet is made or ends. */
static uint64_t progress(const struct vb_world *world)
{
    return world->made + world->copied + world->delivered + world->dropped;
}

/* Called when no pending event lets a packet go on: is there a deadlock? */
static bool is_stuck(const struct vb_world *world)
{
    bool any = false;

    for (uint32_t i = 0; i < world->ports; ++i) {
        const struct vb_world_lanes *lanes = world->port[i].lanes;

        if (!lanes || !lanes->waiting)
            continue;
        if (!waits_for_ever(world, &world->port[i]))
            return false;
        any = true;
    }
    return any;
}

/* Timers that nothing waits for, samples and storms do not keep a run from ending. */
static bool is_over(const struct vb_world *world, uint64_t until)
{
    if (until != VB_WORLD_NEVER)
        return false;
    return (world->is_quiet && !world->pool.in_use) || world->agenda.count == world->watching;
}

/* Called when no event is left up to `until`. */
static int end_of_time(struct vb_world *world, uint64_t until)
{
    if (until != VB_WORLD_NEVER)
        world->now = until;
    return world->agenda.count > world->watching ? VB_WORLD_END_TIME : VB_WORLD_END_EMPTY;
}

/* Called when the events have been counted down, or one of them ended the run. */
static int end_of_events(struct vb_world *world)
{
    int error = world->error;

    if (error == VB_WORLD_END_HALT)
        world->error = 0;
    return error ? error : VB_WORLD_END_EVENTS;
}

int vb_world_halt(struct vb_world *world, uint64_t at, bool looks)
{
    ++world->idle;
    world->watching += looks;
    vb_world_add(world, at, VB_WORLD_HALT, looks, 0);
    return world->error;
}

int vb_world_run(struct vb_world *world, uint64_t until, uint64_t events)
{
    struct vb_world_agenda_entry entry;
    uint64_t looked_at = NEVER_LOOKED;

    if (until < world->now)
        return -EINVAL;
    for (; events && !world->error; --events) {
        if (__builtin_expect(world->agenda.count == world->idle, 0)) {
            if (world->pool.in_use && looked_at != progress(world) && is_stuck(world))
                return VB_WORLD_END_STUCK;
            if (is_over(world, until))
                return VB_WORLD_END_EMPTY;
            looked_at = progress(world);
        } else {
            looked_at = NEVER_LOOKED;
        }
        if (!vb_world_agenda_take(&world->agenda, until, &entry))
            return end_of_time(world, until);
        world->now = entry.at;
        ++world->events;
        dispatch_event(world, entry.what);
    }
    return end_of_events(world);
}
