// SPDX-License-Identifier: Apache-2.0
/*
 * Control records: credits and pauses that a receiver sends to the other end of its link. switch.c
 * and link.c make them, each with the time at which it arrives; lanes.c applies those that have
 * arrived before it serves its queues.
 */
#include <errno.h>
#include <stdlib.h>

#include "event/lanes.h"
#include "event/link.h"
#include "event/watchdog.h"

static struct vb_world_control *control_at(const struct vb_world_lanes *lanes, uint32_t n)
{
    return &lanes->control[(lanes->control_first + n) & (lanes->control_room - 1)];
}

const struct vb_world_control *vb_world_lanes_control(const struct vb_world_lanes *lanes,
                                                      uint32_t n)
{
    return control_at(lanes, n);
}

static int control_grow(struct vb_world_lanes *lanes)
{
    uint32_t room = lanes->control_room ? 2 * lanes->control_room : 16;
    struct vb_world_control *grown = malloc(room * sizeof(*grown));

    if (!grown)
        return -ENOMEM;
    for (uint32_t i = 0; i < lanes->control_count; ++i)
        grown[i] = *control_at(lanes, i);
    free(lanes->control);
    lanes->control = grown;
    lanes->control_room = room;
    lanes->control_first = 0;
    return 0;
}

/*
 * Makes room for one more record. Records that have arrived may be applied at any time. An empty
 * ring starts at its beginning again, so that a large ring touches few cache lines.
 */
static int control_make_room(struct vb_world_partition *part, struct vb_world_port *sender)
{
    struct vb_world_lanes *lanes = sender->lanes;

    if (!lanes->control_count)
        lanes->control_first = 0;
    if (lanes->control_count < lanes->control_room)
        return 0;
    vb_world_lanes_apply_control(part, sender);
    return lanes->control_count < lanes->control_room ? 0 : control_grow(lanes);
}

/* Records are ordered by time; a new one is nearly always the last. */
void vb_world_lanes_control_came(struct vb_world_partition *part, uint32_t sender,
                                 const struct vb_world_control *record)
{
    struct vb_world_lanes *lanes = part->port[sender].lanes;
    uint32_t at;

    if (control_make_room(part, &part->port[sender])) {
        part->error = -ENOMEM;
        return;
    }
    at = lanes->control_count++;
    if (at && record->at < lanes->control_last)
        for (; at && control_at(lanes, at - 1)->at > record->at; --at)
            *control_at(lanes, at) = *control_at(lanes, at - 1);
    else
        lanes->control_last = record->at;
    *control_at(lanes, at) = *record;
    if (!at)
        lanes->control_next = record->at;
    if (lanes->waiting && part->port[sender].free_at <= part->now)
        vb_world_lanes_plan(part, sender, record->at, false);
}

static void control_send(struct vb_world_partition *part, const struct vb_world_port *port,
                         const struct vb_world_control *record)
{
    if (port->crosses)
        vb_world_cross_control(part, port->peer, record);
    else
        vb_world_lanes_control_came(part, port->peer, record);
}

void vb_world_lane_apply(struct vb_world_lane *lane, const struct vb_world_control *record,
                         uint64_t rate)
{
    switch (record->kind) {
    case VB_WORLD_CONTROL_RELEASED:
        lane->released += record->value;
        break;
    case VB_WORLD_CONTROL_ARRIVED:
        lane->arrived += record->value;
        break;
    default:
        lane->paused = record->value != 0;
        lane->paused_until = record->at + vb_world_pause_time(rate, record->value);
    }
}

void vb_world_lanes_apply_control(struct vb_world_partition *part, struct vb_world_port *port)
{
    struct vb_world_lanes *lanes = port->lanes;

    while (lanes->control_count && lanes->control_next <= part->now) {
        const struct vb_world_control *record = control_at(lanes, 0);

        vb_world_lane_apply(&lanes->lane[record->lane], record, port->rate);
        if (__builtin_expect(lanes->watchdog && record->kind == VB_WORLD_CONTROL_PAUSE, 0))
            vb_world_watchdog_note(lanes, record);
        lanes->control_first = (lanes->control_first + 1) & (lanes->control_room - 1);
        if (--lanes->control_count)
            lanes->control_next = control_at(lanes, 0)->at;
    }
}

void vb_world_lanes_arrived(struct vb_world_partition *part, struct vb_world_port *port,
                            uint32_t lane, uint32_t bytes)
{
    struct vb_world_control record = {.at = part->now + port->delay,
                                      .value = vb_world_credit_blocks(bytes),
                                      .lane = (uint16_t)lane,
                                      .kind = VB_WORLD_CONTROL_ARRIVED};

    /* A buffer that is not larger than the window is limited by `released` alone. */
    if (port->lanes->lane[lane].room > VB_WORLD_CREDIT_WINDOW)
        control_send(part, port, &record);
}

void vb_world_lanes_released(struct vb_world_partition *part, struct vb_world_port *port,
                             uint32_t lane, uint32_t bytes, uint64_t at)
{
    struct vb_world_control record = {.at = at + port->delay,
                                      .value = vb_world_credit_blocks(bytes),
                                      .lane = (uint16_t)lane,
                                      .kind = VB_WORLD_CONTROL_RELEASED};

    control_send(part, port, &record);
}

/* A pause frame precedes all queued packets; a transmission that has begun is finished first. */
static void send_pause(struct vb_world_partition *part, struct vb_world_port *port, uint32_t lane,
                       uint32_t quanta)
{
    uint64_t start = port->free_at > part->now ? port->free_at : part->now;
    struct vb_world_control record = {
        .value = quanta, .lane = (uint16_t)lane, .kind = VB_WORLD_CONTROL_PAUSE};

    port->free_at = start + vb_world_byte_time(port, VB_WORLD_PAUSE_BYTES);
    port->traffic.busy += port->free_at - start;
    record.at = port->free_at + port->delay + port->pause_response;
    control_send(part, port, &record);
}

void vb_world_lanes_pause(struct vb_world_partition *part, struct vb_world_port *port,
                          uint32_t lane, uint32_t quanta)
{
    struct vb_world_lane *at = &port->lanes->lane[lane];

    at->stopped = quanta != 0;
    send_pause(part, port, lane, quanta);
    if (!quanta)
        return;
    ++port->traffic.pauses;
    if (at->refreshing)
        return;
    at->refreshing = true;
    ++part->idle;
    vb_world_add(part, part->now + vb_world_pause_time(port->rate, quanta) / 2, VB_WORLD_REFRESH,
                 lane, (uint32_t)(port - part->port));
}

void vb_world_lanes_refresh(struct vb_world_partition *part, uint32_t port, uint32_t lane)
{
    struct vb_world_lane *at = &part->port[port].lanes->lane[lane];

    at->refreshing = false;
    if (at->stopped)
        vb_world_lanes_pause(part, &part->port[port], lane, VB_WORLD_QUANTA_MAX);
}
