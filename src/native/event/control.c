// SPDX-License-Identifier: Apache-2.0
/*
 * Credits and pauses on their way from a receiver to the sender at the other end of its link.
 * switch.c and link.c create them, each with the time at which it arrives; lanes.c takes in those
 * that have arrived before it looks at its queues.
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
 * Room for one more. What has come by now may be taken in at any time; and an empty ring begins at
 * its beginning again, so that a large one touches no more lines than it has words.
 */
static int control_make_room(struct vb_world *world, struct vb_world_port *sender)
{
    struct vb_world_lanes *lanes = sender->lanes;

    if (!lanes->control_count)
        lanes->control_first = 0;
    if (lanes->control_count < lanes->control_room)
        return 0;
    vb_world_lanes_absorb(world, sender);
    return lanes->control_count < lanes->control_room ? 0 : control_grow(lanes);
}

/* Nearly always the latest: the place is sought from the end. */
static void control_tell(struct vb_world *world, uint32_t sender,
                         const struct vb_world_control *word)
{
    struct vb_world_lanes *lanes = world->port[sender].lanes;
    uint32_t at;

    if (control_make_room(world, &world->port[sender])) {
        world->error = -ENOMEM;
        return;
    }
    at = lanes->control_count++;
    if (at && word->at < lanes->control_last)
        for (; at && control_at(lanes, at - 1)->at > word->at; --at)
            *control_at(lanes, at) = *control_at(lanes, at - 1);
    else
        lanes->control_last = word->at;
    *control_at(lanes, at) = *word;
    if (!at)
        lanes->control_next = word->at;
    if (lanes->waiting && world->port[sender].free_at <= world->now)
        vb_world_lanes_plan(world, sender, word->at, false);
}

void vb_world_lane_take_in(struct vb_world_lane *lane, const struct vb_world_control *word,
                           uint64_t rate)
{
    switch (word->kind) {
    case VB_WORLD_CONTROL_RELEASED:
        lane->released += word->value;
        break;
    case VB_WORLD_CONTROL_ARRIVED:
        lane->arrived += word->value;
        break;
    default:
        lane->paused = word->value != 0;
        lane->paused_until = word->at + vb_world_pause_time(rate, word->value);
    }
}

void vb_world_lanes_absorb(struct vb_world *world, struct vb_world_port *port)
{
    struct vb_world_lanes *lanes = port->lanes;

    while (lanes->control_count && lanes->control_next <= world->now) {
        const struct vb_world_control *word = control_at(lanes, 0);

        vb_world_lane_take_in(&lanes->lane[word->lane], word, port->rate);
        if (__builtin_expect(lanes->watchdog && word->kind == VB_WORLD_CONTROL_PAUSE, 0))
            vb_world_watchdog_note(lanes, word);
        lanes->control_first = (lanes->control_first + 1) & (lanes->control_room - 1);
        if (--lanes->control_count)
            lanes->control_next = control_at(lanes, 0)->at;
    }
}

void vb_world_lanes_arrived(struct vb_world *world, struct vb_world_port *port, uint32_t lane,
                            uint32_t bytes)
{
    struct vb_world_control word = {.at = world->now + port->delay,
                                    .value = vb_world_credit_blocks(bytes),
                                    .lane = (uint16_t)lane,
                                    .kind = VB_WORLD_CONTROL_ARRIVED};

    /* With a buffer of less than the window what has arrived limits nothing. */
    if (port->lanes->lane[lane].room > VB_WORLD_CREDIT_WINDOW)
        control_tell(world, port->peer, &word);
}

void vb_world_lanes_released(struct vb_world *world, struct vb_world_port *port, uint32_t lane,
                             uint32_t bytes, uint64_t at)
{
    struct vb_world_control word = {.at = at + port->delay,
                                    .value = vb_world_credit_blocks(bytes),
                                    .lane = (uint16_t)lane,
                                    .kind = VB_WORLD_CONTROL_RELEASED};

    control_tell(world, port->peer, &word);
}

/* The frame goes before all that waits, after the one that is being sent. */
static void send_pause(struct vb_world *world, struct vb_world_port *port, uint32_t lane,
                       uint32_t quanta)
{
    uint64_t start = port->free_at > world->now ? port->free_at : world->now;
    struct vb_world_control word = {
        .value = quanta, .lane = (uint16_t)lane, .kind = VB_WORLD_CONTROL_PAUSE};

    port->free_at = start + vb_world_byte_time(port, VB_WORLD_PAUSE_BYTES);
    port->traffic.busy += port->free_at - start;
    word.at = port->free_at + port->delay + port->pause_response;
    control_tell(world, port->peer, &word);
}

void vb_world_lanes_pause(struct vb_world *world, struct vb_world_port *port, uint32_t lane,
                          uint32_t quanta)
{
    struct vb_world_lane *at = &port->lanes->lane[lane];

    at->stopped = quanta != 0;
    send_pause(world, port, lane, quanta);
    if (!quanta)
        return;
    ++port->traffic.pauses;
    if (at->refreshing)
        return;
    at->refreshing = true;
    ++world->idle;
    vb_world_add(world, world->now + vb_world_pause_time(port->rate, quanta) / 2, VB_WORLD_REFRESH,
                 lane, (uint32_t)(port - world->port));
}

void vb_world_lanes_refresh(struct vb_world *world, uint32_t port, uint32_t lane)
{
    struct vb_world_lane *at = &world->port[port].lanes->lane[lane];

    at->refreshing = false;
    if (at->stopped)
        vb_world_lanes_pause(world, &world->port[port], lane, VB_WORLD_QUANTA_MAX);
}
