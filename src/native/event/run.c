// SPDX-License-Identifier: Apache-2.0
/*
 * Runs a world: its partitions handle the events of one window of time after the other, and each
 * event goes to the part of the room that it is for. The hosts' user (sim) calls vb_world_run, and
 * hosts send packets here.
 */
#include <errno.h>

#include "event/crew.h"
#include "event/gate.h"
#include "event/lanes.h"
#include "event/link.h"
#include "event/sample.h"
#include "event/switch.h"
#include "event/watchdog.h"

#define NEVER_LOOKED UINT64_MAX

/* ---- packets --------------------------------------------------------------------------------- */

static void world_lose(struct vb_world_partition *part, uint32_t packet)
{
    ++part->dropped;
    if (part->on_host->dropped)
        part->on_host->dropped(part->hosts_context, part, packet);
    vb_world_pool_give(&part->pool, packet);
}

void vb_world_drop(struct vb_world_partition *part, struct vb_world_port *port, uint32_t packet,
                   enum vb_world_drop_reason reason)
{
    ++port->traffic.dropped[reason];
    world_lose(part, packet);
}

void vb_world_send(struct vb_world_partition *part, uint32_t node, uint32_t packet)
{
    uint32_t number = part->node[node].port[0];
    struct vb_world_port *port;
    struct vb_world_packet *at = vb_world_packet_at(part, packet);

    ++part->made;
    part->moved_at = part->now;
    if (number == VB_WORLD_NONE) {
        world_lose(part, packet);
        return;
    }
    port = &part->port[number];
    if (__builtin_expect(port->is_gated, 0) &&
        vb_world_gate_refuses(part, port, at, VB_WORLD_OUT)) {
        vb_world_drop(part, port, packet, VB_WORLD_DROP_ROUTE);
        return;
    }
    __builtin_prefetch(&part->port[number ^ 1], 1);
    if (!port->lanes) {
        at->lane = 0;
        vb_world_link_send(part, number, packet,
                           port->free_at > part->now ? port->free_at : part->now);
        return;
    }
    at->lane = (uint8_t)vb_world_lanes_of(port->lanes, at->level_marks);
    vb_world_lanes_put(part, number, at->lane, 0, packet);
}

bool vb_world_may_send(const struct vb_world_partition *part, uint32_t node)
{
    uint32_t number = part->node[node].port[0];

    return number == VB_WORLD_NONE ||
           (part->port[number].free_at <= part->now && !vb_world_gate_is_shut(&part->port[number]));
}

/* ---- a partition ----------------------------------------------------------------------------- */

static void dispatch_event(struct vb_world_partition *part, uint64_t what)
{
    uint32_t index = (uint32_t)what, detail = vb_world_detail_of(what);

    switch (vb_world_event_of(what)) {
    case VB_WORLD_ARRIVE:
        part->moved_at = part->now;
        vb_world_link_arrive(part, index);
        break;
    case VB_WORLD_WAKE:
        part->idle -= detail;
        if (!detail)
            part->moved_at = part->now;
        vb_world_lanes_wake(part, index);
        break;
    case VB_WORLD_READY:
        part->moved_at = part->now;
        part->on_host->ready(part->hosts_context, part->port[index].host);
        break;
    case VB_WORLD_REFRESH:
        --part->idle;
        vb_world_lanes_refresh(part, index, detail);
        break;
    case VB_WORLD_LINK_UP:
    case VB_WORLD_LINK_DOWN:
        --part->idle;
        vb_world_link_set(part, index, vb_world_event_of(what) == VB_WORLD_LINK_UP);
        break;
    case VB_WORLD_CALL:
        --part->idle;
        part->on_host->call(part->hosts_context, detail, index);
        break;
    default:
        part->idle -= detail;
        part->watching -= detail;
        if (!detail)
            part->moved_at = part->now;
        vb_world_storm_pause(part, index);
    }
}

/* Handles the first event, if its time is not after `limit`. */
static inline bool partition_step(struct vb_world_partition *part, uint64_t limit)
{
    struct vb_world_agenda_entry entry;

    if (!vb_world_agenda_take(&part->agenda, limit, &entry))
        return false;
    part->now = entry.at;
    ++part->events;
    dispatch_event(part, entry.what);
    return true;
}

void vb_world_partition_run(struct vb_world_partition *part, uint64_t limit)
{
    while (!part->error && partition_step(part, limit)) {
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

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

/*
 * Timers that nothing waits for may have expired in the last window: the run has ended when
 * something moved last.
 */
static int end_when_moved(struct vb_world *world, int end)
{
    uint64_t moved_at = 0;

    for (uint32_t i = 0; i < world->partitions; ++i)
        if (world->partition[i].moved_at > moved_at)
            moved_at = world->partition[i].moved_at;
    world->now = moved_at > world->now ? moved_at : world->now;
    for (uint32_t i = 0; i < world->partitions; ++i) {
        world->partition[i].now = world->now;
        vb_world_agenda_turn_back(&world->partition[i].agenda, world->now);
    }
    return end;
}

/*
 * Why the run ends although events may be left; or -1. Timers that nothing waits for, samples and
 * storms do not keep it from ending. `*looked` is the number of packets that were made or have
 * ended when a deadlock was looked for last.
 */
static int end_before_events(struct vb_world *world, uint64_t until, uint64_t *looked)
{
    const struct vb_world_sums sums = vb_world_sums(world);
    uint64_t progress = sums.made + sums.copied + sums.delivered + sums.dropped;
    bool is_quiet;

    if (sums.pending != sums.idle) {
        *looked = NEVER_LOOKED;
        return -1;
    }
    if (sums.in_use && *looked != progress && is_stuck(world))
        return end_when_moved(world, VB_WORLD_END_STUCK);
    *looked = progress;
    if (until != VB_WORLD_NEVER)
        return -1;
    is_quiet = world->on_host->is_quiet && world->on_host->is_quiet(world->hosts_context);
    if (is_quiet && !sums.in_use)
        return end_when_moved(world, VB_WORLD_END_EMPTY);
    return sums.pending == sums.watching ? VB_WORLD_END_EMPTY : -1;
}

bool vb_world_has_nothing(const struct vb_world *world)
{
    const struct vb_world_sums sums = vb_world_sums(world);

    return sums.pending == sums.watching;
}

static uint64_t latest(const struct vb_world *world)
{
    uint64_t now = world->now;

    for (uint32_t i = 0; i < world->partitions; ++i)
        if (world->partition[i].now > now)
            now = world->partition[i].now;
    return now;
}

/* Called when no event is left up to `until`. */
static int end_of_time(struct vb_world *world, uint64_t until)
{
    const struct vb_world_sums sums = vb_world_sums(world);

    if (until != VB_WORLD_NEVER)
        world->now = until;
    return sums.pending > sums.watching ? VB_WORLD_END_TIME : VB_WORLD_END_EMPTY;
}

/* An error, or VB_WORLD_END_HALT, that ends the run; 0: none. It is not reported again. */
static int end_by_error(struct vb_world *world)
{
    int error = world->error;

    for (uint32_t i = 0; i < world->partitions && !error; ++i)
        error = world->partition[i].error;
    if (error == VB_WORLD_END_HALT)
        world->error = 0;
    return error;
}

/* ---- the run --------------------------------------------------------------------------------- */

int vb_world_halt(struct vb_world *world, uint64_t at, bool looks)
{
    world->watching += looks;
    vb_world_plan(world, at, VB_WORLD_HALT, looks, 0);
    return world->error;
}

/* Handles the first event between two windows. */
static void run_planned(struct vb_world *world)
{
    struct vb_world_agenda_entry entry;

    if (!vb_world_agenda_take(&world->agenda, VB_WORLD_NEVER, &entry))
        return;
    world->now = entry.at;
    if (vb_world_event_of(entry.what) == VB_WORLD_SAMPLE) {
        vb_world_sampler_look(world, (uint32_t)entry.what);
        return;
    }
    world->watching -= vb_world_detail_of(entry.what);
    world->error = VB_WORLD_END_HALT;
}

static uint64_t world_first(const struct vb_world *world)
{
    uint64_t first = VB_WORLD_NEVER;

    for (uint32_t i = 0; i < world->partitions; ++i) {
        uint64_t at = vb_world_agenda_first(&world->partition[i].agenda);

        first = at < first ? at : first;
    }
    return first;
}

/* The last time of the window that begins at `first`. */
static uint64_t window_end(const struct vb_world *world, uint64_t first, uint64_t planned,
                           uint64_t until)
{
    uint64_t end = world->window ? first + world->window - 1 : first;

    if (planned - 1 < end)
        end = planned - 1;
    return end < until ? end : until;
}

static int run_windows(struct vb_world *world, uint64_t until, uint64_t events)
{
    uint64_t looked = NEVER_LOOKED, start = vb_world_sums(world).events;
    int end;

    while ((end = end_by_error(world)) == 0) {
        uint64_t first, planned;

        if (vb_world_sums(world).events - start >= events)
            return VB_WORLD_END_EVENTS;
        end = end_before_events(world, until, &looked);
        if (end >= 0)
            return end;
        first = world_first(world);
        planned = vb_world_agenda_first(&world->agenda);
        if (first > until && planned > until)
            return end_of_time(world, until);
        if (planned <= first)
            run_planned(world);
        else
            vb_world_crew_run(world, window_end(world, first, planned, until));
    }
    return end;
}

/* One event at a time, each of which may end the run. */
static int run_events(struct vb_world *world, uint64_t until, uint64_t events)
{
    struct vb_world_partition *part = world->partition;
    uint64_t looked = NEVER_LOOKED;
    int end = 0;

    for (; events; --events) {
        uint64_t planned = VB_WORLD_NEVER;

        if (__builtin_expect(world->error || part->error, 0))
            return end_by_error(world);
        if (__builtin_expect(part->agenda.count == part->idle, 0) &&
            (end = end_before_events(world, until, &looked)) >= 0)
            return end;
        if (__builtin_expect(world->agenda.count != 0, 0))
            planned = vb_world_agenda_first(&world->agenda);
        if (planned && partition_step(part, planned - 1 < until ? planned - 1 : until)) {
            world->now = part->now;
        } else if (planned <= until && planned != VB_WORLD_NEVER) {
            run_planned(world);
            part->now = world->now;
        } else {
            return end_of_time(world, until);
        }
    }
    end = end_by_error(world);
    return end ? end : VB_WORLD_END_EVENTS;
}

int vb_world_run(struct vb_world *world, uint64_t until, uint64_t events)
{
    int end;

    if (until < world->now)
        return -EINVAL;
    end = vb_world_divide(world);
    if (end)
        return end;
    if (world->is_whole)
        end = run_events(world, until, events);
    else
        end = run_windows(world, until, events);
    world->now = latest(world);
    for (uint32_t i = 0; i < world->partitions; ++i)
        world->partition[i].now = world->now;
    return end;
}
