// SPDX-License-Identifier: Apache-2.0
/*
 * The queues of a port with lanes. switch.c and hosts add packets. A port sends a packet whenever
 * it is free and a lane may send, and schedules an event for the time at which that may change.
 */
#include "event/lanes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "event/link.h"
#include "event/switch.h"
#include "event/telemetry.h"
#include "event/watchdog.h"

enum { WAKE_IDLE = 1 };

/* One allocation that begins with the fields that each packet needs. */
static struct vb_world_lanes *lanes_allocate(uint32_t count, uint32_t inputs)
{
    size_t head = sizeof(struct vb_world_lanes) + count * sizeof(struct vb_world_lane);
    size_t size = head + (size_t)count * inputs * sizeof(struct vb_world_input_queue);
    struct vb_world_lanes *made;
    void *block;

    if (posix_memalign(&block, 64, size))
        return NULL;
    made = memset(block, 0, size);
    made->input_queue = (struct vb_world_input_queue *)((uint8_t *)block + head);
    return made;
}

struct vb_world_lanes *vb_world_lanes_create(uint32_t data, bool management, uint32_t inputs,
                                             const struct vb_world_arbiter_tables *tables)
{
    uint32_t count = data + management;
    struct vb_world_lanes *made = lanes_allocate(count, inputs);

    if (!made)
        return NULL;
    made->count = count;
    made->data = data;
    made->first = 1u << (management ? data : VB_WORLD_LANE_FIRST);
    made->inputs = inputs;
    made->wake_at = made->stalled_since = VB_WORLD_NEVER;
    for (uint32_t i = 0; i < 16; ++i)
        made->lane_of[i] = (uint8_t)(i % data);
    if (vb_world_arbiter_init(&made->arbiter, tables)) {
        vb_world_lanes_destroy(made);
        return NULL;
    }
    for (uint32_t i = 0; i < count * inputs; ++i)
        made->input_queue[i] =
            (struct vb_world_input_queue){VB_WORLD_NONE, VB_WORLD_NONE, VB_WORLD_NONE};
    for (uint32_t i = 0; i < count; ++i)
        made->lane[i].first_input = made->lane[i].last_input = VB_WORLD_NONE;
    return made;
}

void vb_world_lanes_destroy(struct vb_world_lanes *lanes)
{
    if (!lanes)
        return;
    vb_world_arbiter_free(&lanes->arbiter);
    free(lanes->own);
    free(lanes->control);
    free(lanes->watchdog);
    free(lanes);
}

int vb_world_lanes_arbitrate(struct vb_world_lanes *lanes,
                             const struct vb_world_arbiter_tables *tables)
{
    struct vb_world_arbiter_tables *own = malloc(sizeof(*own));
    struct vb_world_arbiter made = {0};

    if (own)
        *own = *tables;
    if (!own || vb_world_arbiter_init(&made, own)) {
        vb_world_arbiter_free(&made);
        free(own);
        return -ENOMEM;
    }
    vb_world_arbiter_free(&lanes->arbiter);
    free(lanes->own);
    lanes->own = own;
    lanes->arbiter = made;
    return 0;
}

uint64_t vb_world_lane_limit(const struct vb_world_lane *lane)
{
    uint64_t limit = lane->released + lane->peer_room;

    if (limit > lane->arrived + VB_WORLD_CREDIT_WINDOW && lane->peer_room > VB_WORLD_CREDIT_WINDOW)
        limit = lane->arrived + VB_WORLD_CREDIT_WINDOW;
    return limit;
}

bool vb_world_lane_is_open(const struct vb_world_partition *part, const struct vb_world_lane *lane,
                           uint32_t bytes)
{
    switch (lane->flow_control) {
    case VB_WORLD_CREDITS:
        return lane->sent + vb_world_credit_blocks(bytes) <= vb_world_lane_limit(lane);
    case VB_WORLD_PAUSES:
        return !lane->paused || part->now >= lane->paused_until;
    default:
        return true;
    }
}

void vb_world_lanes_plan(struct vb_world_partition *part, uint32_t port, uint64_t at, bool idle)
{
    struct vb_world_lanes *lanes = part->port[port].lanes;

    if (lanes->wake_at <= at)
        return;
    lanes->wake_at = at;
    part->idle += idle;
    vb_world_add(part, at, VB_WORLD_WAKE, idle ? WAKE_IDLE : 0, port);
}

/* Appends an input that has packets to the round robin. */
static void lanes_join(struct vb_world_lane *lane, struct vb_world_input_queue *queues,
                       uint32_t input)
{
    queues[input].next = VB_WORLD_NONE;
    if (lane->first_input == VB_WORLD_NONE)
        lane->first_input = input;
    else
        queues[lane->last_input].next = input;
    lane->last_input = input;
}

static struct vb_world_packet *lanes_head_of(const struct vb_world_partition *part,
                                             const struct vb_world_lanes *lanes, uint32_t lane)
{
    const struct vb_world_input_queue *queues = &lanes->input_queue[lane * lanes->inputs];

    return vb_world_packet_at(part, queues[lanes->lane[lane].first_input].first);
}

static void lanes_append(struct vb_world_partition *part, struct vb_world_lanes *lanes,
                         uint32_t number, uint32_t input, uint32_t packet)
{
    struct vb_world_lane *lane = &lanes->lane[number];
    struct vb_world_input_queue *queues = &lanes->input_queue[number * lanes->inputs],
                                *queue = &queues[input];
    struct vb_world_packet *at = vb_world_packet_at(part, packet);

    at->next = VB_WORLD_NONE;
    if (!lane->packets)
        lane->head_since = part->now;
    lane->bytes += at->bytes;
    ++lane->packets;
    lanes->waiting |= 1u << number;
    if (queue->first == VB_WORLD_NONE) {
        queue->first = packet;
        lanes_join(lane, queues, input);
    } else {
        vb_world_packet_at(part, queue->last)->next = packet;
    }
    queue->last = packet;
}

/* Takes the first packet of the input whose turn it is, and passes the turn on. */
static uint32_t lanes_take(struct vb_world_partition *part, struct vb_world_lanes *lanes,
                           uint32_t number)
{
    struct vb_world_lane *lane = &lanes->lane[number];
    struct vb_world_input_queue *queues = &lanes->input_queue[number * lanes->inputs];
    uint32_t input = lane->first_input, packet = queues[input].first;
    struct vb_world_packet *at = vb_world_packet_at(part, packet);

    lane->first_input = queues[input].next;
    queues[input].first = at->next;
    if (at->next != VB_WORLD_NONE)
        lanes_join(lane, queues, input);
    lane->bytes -= at->bytes;
    lane->head_since = part->now;
    if (!--lane->packets)
        lanes->waiting &= ~(1u << number);
    return packet;
}

static void count_stall(struct vb_world_partition *part, struct vb_world_port *port)
{
    struct vb_world_lanes *lanes = port->lanes;

    if (lanes->stalled_since == VB_WORLD_NEVER)
        return;
    port->traffic.stalled += part->now - lanes->stalled_since;
    lanes->stalled_since = VB_WORLD_NEVER;
}

/* Sends a packet that is in no queue any more. */
static void lanes_send(struct vb_world_partition *part, uint32_t number, uint32_t lane,
                       uint32_t packet)
{
    struct vb_world_port *port = &part->port[number];
    struct vb_world_node *node = &part->node[port->node];
    struct vb_world_packet *at = vb_world_packet_at(part, packet);
    uint32_t input = at->input, input_lane = at->lane, bytes = at->bytes;
    uint32_t keeper = at->level_marks & VB_WORLD_COPY ? at->keeper : VB_WORLD_NONE;
    bool reserved = at->flags & VB_WORLD_RESERVED;

    at->lane = (uint8_t)lane;
    at->level_marks &= (uint8_t)~VB_WORLD_COPY;
    if (port->lanes->lane[lane].flow_control == VB_WORLD_CREDITS)
        port->lanes->lane[lane].sent += vb_world_credit_blocks(bytes);
    vb_world_link_send(part, number, packet, part->now);
    if (node->kind != VB_WORLD_SWITCH)
        return;
    if (__builtin_expect(part->world->traces, 0))
        vb_world_telemetry_add(part, number, packet, port->lanes->lane[lane].bytes, 0);
    if (__builtin_expect(keeper != VB_WORLD_NONE, 0))
        vb_world_switch_copy_left(part, node->sw, keeper, port->free_at);
    else
        vb_world_switch_left(part, node->sw, input, input_lane, bytes, reserved, port->free_at);
}

void vb_world_lanes_drop(struct vb_world_partition *part, uint32_t number, uint32_t lane,
                         enum vb_world_drop_reason reason)
{
    struct vb_world_port *port = &part->port[number];
    struct vb_world_node *node = &part->node[port->node];
    uint32_t packet = lanes_take(part, port->lanes, lane);
    const struct vb_world_packet *at = vb_world_packet_at(part, packet);

    if (!port->lanes->waiting)
        count_stall(part, port);
    if (node->kind == VB_WORLD_SWITCH && (at->level_marks & VB_WORLD_COPY))
        vb_world_switch_copy_left(part, node->sw, at->keeper, part->now);
    else if (node->kind == VB_WORLD_SWITCH)
        vb_world_switch_left(part, node->sw, at->input, at->lane, at->bytes,
                             at->flags & VB_WORLD_RESERVED, part->now);
    vb_world_drop(part, port, packet, reason);
}

/* Drops packets that were at the head of a queue for too long (IBA 18.2.5.4: HOQLife). */
static void drop_expired(struct vb_world_partition *part, uint32_t number)
{
    struct vb_world_lanes *lanes = part->port[number].lanes;

    for (uint32_t i = 0; i < lanes->count; ++i) {
        struct vb_world_lane *lane = &lanes->lane[i];

        while (lane->packets && part->now - lane->head_since >= lanes->lifetime)
            vb_world_lanes_drop(part, number, i, VB_WORLD_DROP_LIFETIME);
    }
}

/* Applies the lifetime and the watchdog before the port chooses a packet. */
static void check_waiting(struct vb_world_partition *part, uint32_t number)
{
    if (part->port[number].lanes->lifetime)
        drop_expired(part, number);
    if (part->port[number].lanes->watchdog)
        vb_world_watchdog_look(part, number);
}

static uint32_t open_lanes(const struct vb_world_partition *part, const struct vb_world_port *port,
                           uint32_t *bytes)
{
    const struct vb_world_lanes *lanes = port->lanes;
    uint32_t open = 0;

    for (uint32_t left = lanes->waiting; left; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);

        bytes[lane] = lanes_head_of(part, lanes, lane)->bytes;
        if (vb_world_lane_is_open(part, &lanes->lane[lane], bytes[lane]))
            open |= 1u << lane;
    }
    return open;
}

/* No lane may send: schedules an event for the first time at which that may change. */
static void wait_for_change(struct vb_world_partition *part, uint32_t number)
{
    struct vb_world_lanes *lanes = part->port[number].lanes;
    uint64_t expires = VB_WORLD_NEVER, dies = VB_WORLD_NEVER;

    if (lanes->stalled_since == VB_WORLD_NEVER)
        lanes->stalled_since = part->now;
    for (uint32_t left = lanes->waiting; left; left &= left - 1) {
        const struct vb_world_lane *lane = &lanes->lane[__builtin_ctz(left)];

        if (lane->flow_control == VB_WORLD_PAUSES && lane->paused_until < expires)
            expires = lane->paused_until;
        if (lanes->lifetime && lane->head_since + lanes->lifetime < dies)
            dies = lane->head_since + lanes->lifetime;
        if (lanes->watchdog) {
            uint64_t due = vb_world_watchdog_due(part, lanes, (uint32_t)__builtin_ctz(left));

            dies = due < dies ? due : dies;
        }
    }
    if (lanes->control_count)
        vb_world_lanes_plan(part, number, lanes->control_next, false);
    if (dies != VB_WORLD_NEVER)
        vb_world_lanes_plan(part, number, dies, false);
    if (expires != VB_WORLD_NEVER)
        vb_world_lanes_plan(part, number, expires, true);
}

static int lanes_choose(struct vb_world_partition *part, struct vb_world_port *port)
{
    uint32_t bytes[VB_WORLD_LANES], open;

    vb_world_lanes_apply_control(part, port);
    open = open_lanes(part, port, bytes);
    if (open & port->lanes->first)
        return __builtin_ctz(open & port->lanes->first);
    return open ? vb_world_arbiter_pick(&port->lanes->arbiter, open, bytes) : VB_WORLD_ARBITER_NONE;
}

/* Sends a packet if the port is free; if none may leave, calls a host that wants to send. */
static void lanes_serve(struct vb_world_partition *part, uint32_t number)
{
    struct vb_world_port *port = &part->port[number];
    struct vb_world_lanes *lanes = port->lanes;
    int lane;

    if (port->free_at > part->now) {
        if (lanes->waiting || lanes->wants_ready)
            vb_world_lanes_plan(part, number, port->free_at, false);
        return;
    }
    if (lanes->is_guarded && lanes->waiting)
        check_waiting(part, number);
    lane = lanes->waiting ? lanes_choose(part, port) : VB_WORLD_ARBITER_NONE;
    if (lane != VB_WORLD_ARBITER_NONE) {
        count_stall(part, port);
        lanes_send(part, number, (uint32_t)lane, lanes_take(part, lanes, (uint32_t)lane));
        if (lanes->waiting || lanes->wants_ready)
            vb_world_lanes_plan(part, number, port->free_at, false);
        return;
    }
    if (lanes->waiting)
        wait_for_change(part, number);
    if (lanes->wants_ready) {
        lanes->wants_ready = false;
        part->on_host->ready(part->hosts_context, part->node[port->node].host);
    }
}

void vb_world_lanes_wake(struct vb_world_partition *part, uint32_t port)
{
    struct vb_world_lanes *lanes = part->port[port].lanes;

    if (lanes->wake_at != part->now)
        return; /* an earlier event replaced it */
    lanes->wake_at = VB_WORLD_NEVER;
    lanes_serve(part, port);
}

void vb_world_lanes_want_ready(struct vb_world_partition *part, uint32_t port)
{
    struct vb_world_port *at = &part->port[port];

    at->lanes->wants_ready = true;
    if (at->free_at > part->now)
        vb_world_lanes_plan(part, port, at->free_at, false);
}

/*
 * Sends a packet at once if the port is free, no other waits, and its lane may send: the same as to
 * queue and choose it. False: it has to be queued.
 */
static bool lanes_pass(struct vb_world_partition *part, uint32_t number, uint32_t lane,
                       uint32_t packet)
{
    struct vb_world_port *port = &part->port[number];
    struct vb_world_lanes *lanes = port->lanes;
    uint32_t bytes[VB_WORLD_LANES];

    if (lanes->waiting || port->free_at > part->now || lanes->is_guarded)
        return false;
    bytes[lane] = vb_world_packet_at(part, packet)->bytes;
    vb_world_lanes_apply_control(part, port);
    if (!vb_world_lane_is_open(part, &lanes->lane[lane], bytes[lane]))
        return false;
    if (!(lanes->first >> lane & 1) &&
        vb_world_arbiter_pick(&lanes->arbiter, 1u << lane, bytes) == VB_WORLD_ARBITER_NONE)
        return false;
    if (bytes[lane] > port->traffic.queued_max)
        port->traffic.queued_max = bytes[lane];
    lanes_send(part, number, lane, packet);
    if (lanes->wants_ready)
        vb_world_lanes_plan(part, number, port->free_at, false);
    return true;
}

void vb_world_lanes_put(struct vb_world_partition *part, uint32_t port, uint32_t lane,
                        uint32_t input, uint32_t packet)
{
    struct vb_world_lanes *lanes = part->port[port].lanes;
    struct vb_world_port_counters *traffic = &part->port[port].traffic;

    if (lanes_pass(part, port, lane, packet))
        return;
    lanes_append(part, lanes, lane, input, packet);
    if (lanes->lane[lane].bytes > traffic->queued_max)
        traffic->queued_max = lanes->lane[lane].bytes;
    lanes_serve(part, port);
}
