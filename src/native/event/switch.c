// SPDX-License-Identifier: Apache-2.0
/*
 * A switch: it looks up the port by which a packet leaves, admits the packet to a buffer, marks it,
 * and gives it to the port. link.c calls it for packets that arrive, and lanes.c for packets that
 * have left.
 */
#include "event/switch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "event/detour.h"
#include "event/gate.h"
#include "event/link.h"
#include "event/telemetry.h"
#include "wire/bytes.h"

static int make_everywhere(struct vb_world_switch *sw)
{
    uint32_t ports = sw->config.ports;

    sw->everywhere.port = malloc(ports * sizeof(*sw->everywhere.port));
    if (!sw->everywhere.port)
        return -ENOMEM;
    for (uint32_t i = 0; i < ports; ++i)
        sw->everywhere.port[i] = (uint16_t)i;
    sw->everywhere.count = ports;
    return 0;
}

int vb_world_switch_create(const struct vb_world_switch_config *config, struct vb_world_switch **sw)
{
    struct vb_world_switch *made;

    made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    made->config = *config;
    made->lanes = config->lanes;
    made->buffer = config->buffer;
    made->mark = config->mark;
    made->fecn = config->fecn;
    made->balance = config->balance;
    if (config->floods && make_everywhere(made)) {
        vb_world_switch_destroy(made);
        return -ENOMEM;
    }
    *sw = made;
    return 0;
}

void vb_world_switch_destroy(struct vb_world_switch *sw)
{
    free(sw->lane_of);
    free(sw->victim);
    for (uint32_t i = 0; i < sw->groups; ++i)
        free(sw->group[i].port);
    free(sw->group);
    free(sw->everywhere.port);
    free(sw);
}

/* ---- lanes and ports --------------------------------------------------------------------------
 */

int vb_world_switch_set_lanes(struct vb_world_switch *sw, const uint8_t *lanes, bool by_lane)
{
    size_t count = (size_t)sw->config.ports * sw->config.ports * 16;
    uint8_t *copy;

    for (size_t i = 0; i < count; ++i)
        if (lanes[i] >= sw->config.lanes)
            return -EINVAL;
    copy = malloc(count);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, lanes, count);
    free(sw->lane_of);
    sw->lane_of = copy;
    sw->by_lane = by_lane;
    return 0;
}

int vb_world_switch_set_victim(struct vb_world_switch *sw, uint32_t port)
{
    if (!sw->victim)
        sw->victim = calloc(sw->config.ports, sizeof(*sw->victim));
    if (!sw->victim)
        return -ENOMEM;
    sw->victim[port] = true;
    return 0;
}

/*
 * What ECMP hashes; the QP number stands for the UDP source port, or the flow label. Addresses, the
 * first of which is 1, may have more than 16 bits, and the upper ones go where no others are.
 */
static uint64_t switch_flow(const struct vb_world_packet *packet)
{
    uint64_t source = packet->source - 1u, target = packet->target - 1u;

    return (source << 48 | (target & 0xffff) << 32 | vb_wire_get24(packet->header + 5)) ^
           (source >> 16) << 28 ^ (target >> 16) << 24;
}

/*
 * Chooses a port of a set. Spraying is random and not round robin: where data and acknowledgements,
 * or two flows, alternate, each of them would always get the same port. The switch has a random
 * sequence of its own, seeded by its salt.
 */
static uint32_t choose_port(struct vb_world_switch *sw, uint32_t set,
                            const struct vb_world_packet *packet)
{
    bool sprays = sw->balance == VB_WORLD_BY_PACKET;
    uint32_t first = sw->table.set[set], n = sw->table.set[set + 1] - first;
    uint64_t key =
        sprays ? sw->salt + VB_WORLD_GOLDEN * ++sw->sprayed : switch_flow(packet) ^ sw->salt;

    return sw->table.member[first + (uint32_t)((vb_world_mix(key) >> 32) * n >> 32)];
}

static inline uint32_t route(const struct vb_world *world, struct vb_world_switch *sw,
                             const struct vb_world_packet *packet, uint32_t target)
{
    uint32_t port = vb_world_table_entry(world->blocks, &sw->table, target);

    if (port != VB_WORLD_NO_PORT && port >= VB_WORLD_PORT_SET)
        port = choose_port(sw, port - VB_WORLD_PORT_SET, packet);
    return port != VB_WORLD_NO_PORT && sw->port[port] != VB_WORLD_NONE ? sw->port[port]
                                                                       : VB_WORLD_NONE;
}

uint32_t vb_world_switch_route(const struct vb_world *world, struct vb_world_switch *sw,
                               uint32_t in, const struct vb_world_packet *packet)
{
    return sw->config.extender ? vb_world_switch_through(world, sw, in)
                               : route(world, sw, packet, packet->target);
}

/* ---- congestion ----------------------------------------------------------------------------- */

static bool switch_is_marked(struct vb_world_port *out, const struct vb_world_marking *mark,
                             uint64_t queue)
{
    if (!mark->high || queue <= mark->low)
        return false;
    if (queue >= mark->high)
        return true;
    return vb_world_chance(out) <
           mark->most * (double)(queue - mark->low) / (double)(mark->high - mark->low);
}

static void switch_mark(const struct vb_world_marking *marking, uint64_t queue,
                        struct vb_world_packet *packet, struct vb_world_port *out)
{
    if (__builtin_expect(marking->high && switch_is_marked(out, marking, queue), 0)) {
        packet->level_marks |= VB_WORLD_CE;
        ++out->traffic.marked;
    }
}

/* Sets FECN (IBA 9.2.2: the top bit of byte 4 of the BTH), with a probability by Marking_Rate. */
static void mark_fecn(const struct vb_world_switch *sw, struct vb_world_packet *packet,
                      struct vb_world_port *out)
{
    uint32_t rate = sw->config.fecn_rate;

    if (rate && vb_world_chance(out) * (rate + 1.0) >= 1)
        return;
    packet->header[4] |= 0x80;
    ++out->traffic.marked;
}

static uint64_t input_bytes(const struct vb_world_lane *input)
{
    return (uint64_t)input->held *
           (input->input_flow_control == VB_WORLD_CREDITS ? VB_WORLD_CREDIT_BLOCK : 1);
}

static bool is_in_victim_mask(const struct vb_world_switch *sw, const struct vb_world_port *out)
{
    return (sw->config.fecn_to_hosts && out->to_host) || (sw->victim && sw->victim[out->number]);
}

/* Is a packet that is to join this lane's queue part of a congestion (enum vb_world_fecn)? */
static bool is_congested(struct vb_world_partition *part, const struct vb_world_switch *sw,
                         const struct vb_world_port *in, struct vb_world_port *out, uint32_t lane,
                         const struct vb_world_packet *packet)
{
    const struct vb_world_lane *queue = &out->lanes->lane[lane];

    if (sw->config.fecn_at == VB_WORLD_FECN_INPUT)
        return input_bytes(&in->lanes->lane[packet->lane]) > sw->fecn;
    if (queue->bytes <= sw->fecn)
        return false;
    if (sw->config.fecn_at == VB_WORLD_FECN_OUTPUT || is_in_victim_mask(sw, out))
        return true;
    vb_world_lanes_apply_control(part, out);
    return vb_world_lane_is_open(part, queue, packet->bytes);
}

static uint64_t switch_smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- one lossy queue for each port ----------------------------------------------------------- */

uint64_t vb_world_switch_others_queue(const struct vb_world_partition *part,
                                      const struct vb_world_port *port)
{
    uint64_t queue = vb_world_backlog(part->now, port), reserved = 0;

    for (uint32_t i = port->reserved_buffer ? part->port[port->peer].arrive_first : VB_WORLD_NONE;
         i != VB_WORLD_NONE;) {
        const struct vb_world_packet *at = vb_world_packet_at(part, i);
        uint64_t sending = at->bytes * 8 * VB_WORLD_SECOND / port->rate + 1;

        if ((at->flags & VB_WORLD_RESERVED) && at->at >= part->now + port->delay + sending)
            reserved += at->bytes;
        i = at->next;
    }
    return queue - switch_smaller(queue, switch_smaller(reserved, port->reserved_buffer));
}

/* Is there room at this port? Reserved buffer is for the packets of its flows alone. */
static bool fits_port(const struct vb_world_partition *part, const struct vb_world_switch *sw,
                      const struct vb_world_port *port, const struct vb_world_packet *packet,
                      uint64_t queue)
{
    if (queue + packet->bytes > sw->buffer)
        return false;
    return !port->reserved_buffer || packet->flags & VB_WORLD_RESERVED ||
           vb_world_switch_others_queue(part, port) + packet->bytes + port->reserved_buffer <=
               sw->buffer;
}

static void forward(struct vb_world_partition *part, struct vb_world_switch *sw, uint32_t out,
                    uint32_t packet)
{
    struct vb_world_port *port = &part->port[out];
    struct vb_world_packet *at = vb_world_packet_at(part, packet);
    uint64_t queue = vb_world_backlog(part->now, port);

    if (sw->buffer && !fits_port(part, sw, port, at, queue)) {
        vb_world_drop(part, port, packet, VB_WORLD_DROP_FULL);
        return;
    }
    switch_mark(&sw->mark, queue, at, port);
    if (__builtin_expect(sw->fecn && queue > sw->fecn, 0))
        mark_fecn(sw, at, port);
    if (queue + at->bytes > port->traffic.queued_max)
        port->traffic.queued_max = queue + at->bytes;
    vb_world_link_send(part, out, packet, port->free_at > part->now ? port->free_at : part->now);
    if (__builtin_expect(part->world->traces, 0)) /* the queue before the packet came */
        vb_world_telemetry_add(part, out, packet, queue, queue + at->bytes);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static bool switch_has_room(const struct vb_world_switch *sw, uint32_t bytes)
{
    return !sw->buffer || sw->used + bytes <= vb_world_switch_unreserved(sw);
}

/* Dynamic thresholds (Choudhury and Hahne, 1998): the limit is a part of the free buffer. */
static uint64_t threshold(const struct vb_world_switch *sw, double alpha)
{
    uint64_t open = vb_world_switch_unreserved(sw), left = open > sw->used ? open - sw->used : 0;
    double most = alpha * (double)left;

    return sw->buffer && alpha > 0 && most < 0x1p63 ? (uint64_t)most : UINT64_MAX;
}

/* A retransmission while the first packet is under way may exceed the reservation: then the packet
 * is admitted as any other. */
static bool admit_reserved(struct vb_world_switch *sw, struct vb_world_packet *packet)
{
    if (sw->reserved_used + packet->bytes <= sw->reserved) {
        sw->reserved_used += packet->bytes;
        return true;
    }
    packet->flags &= (uint8_t)~VB_WORLD_RESERVED;
    return false;
}

static bool admit_lossy(struct vb_world_partition *part, struct vb_world_switch *sw, uint32_t lane,
                        uint32_t queue, struct vb_world_port *out, uint32_t packet)
{
    struct vb_world_packet *at = vb_world_packet_at(part, packet);
    uint32_t bytes = at->bytes;

    if (__builtin_expect(at->flags & VB_WORLD_RESERVED, 0) && admit_reserved(sw, at))
        return true;
    if (switch_has_room(sw, bytes) && queue + bytes <= threshold(sw, sw->config.lane[lane].alpha)) {
        sw->used += bytes;
        return true;
    }
    vb_world_drop(part, out, packet, VB_WORLD_DROP_FULL);
    return false;
}

/* How many of the next `bytes` of an input go into the shared buffer, and not into the headroom. */
static uint32_t switch_share(const struct vb_world_switch *sw,
                             const struct vb_world_class_config *config,
                             const struct vb_world_lane *input, uint32_t bytes)
{
    uint64_t stop = config->stop ? config->stop : threshold(sw, config->alpha);
    uint64_t open = sw->buffer ? vb_world_switch_unreserved(sw) : UINT64_MAX;
    uint64_t left = stop - switch_smaller(stop, input->held - input->above);

    left = switch_smaller(left, open - switch_smaller(open, sw->used));
    return (uint32_t)switch_smaller(left, bytes);
}

/*
 * Bytes above an input's threshold, or for which the shared buffer has no room, go into the input's
 * headroom, and stay there when the threshold changes (as in switches with a headroom for each
 * priority group). A pause ends when the headroom is empty.
 */
static bool admit_paused(struct vb_world_partition *part, struct vb_world_switch *sw, uint32_t lane,
                         struct vb_world_port *in, uint32_t packet)
{
    const struct vb_world_class_config *config = &sw->config.lane[lane];
    struct vb_world_lane *input = &in->lanes->lane[lane];
    uint32_t bytes = vb_world_packet_at(part, packet)->bytes;
    uint32_t shared = switch_share(sw, config, input, bytes);

    if (input->above + (uint64_t)(bytes - shared) > config->spare) {
        vb_world_drop(part, in, packet, VB_WORLD_DROP_HEADROOM);
        return false;
    }
    sw->used += shared;
    input->held += bytes;
    input->above += bytes - shared;
    if (input->above && !input->stopped)
        vb_world_lanes_pause(part, in, lane, VB_WORLD_QUANTA_MAX);
    return true;
}

/* Departing bytes free the headroom first. */
static void release_paused(struct vb_world_partition *part, struct vb_world_switch *sw,
                           uint32_t lane, struct vb_world_port *in, uint32_t bytes)
{
    struct vb_world_lane *input = &in->lanes->lane[lane];
    uint32_t own = (uint32_t)switch_smaller(input->above, bytes);

    sw->used -= bytes - own;
    input->held -= bytes;
    input->above -= own;
    if (input->stopped && !input->above && input->held <= sw->config.lane[lane].go)
        vb_world_lanes_pause(part, in, lane, 0);
}

bool vb_world_switch_admit(struct vb_world_partition *part, struct vb_world_switch *sw,
                           struct vb_world_port *in, struct vb_world_port *out, uint32_t queue,
                           uint32_t packet)
{
    struct vb_world_packet *at = vb_world_packet_at(part, packet);
    struct vb_world_lane *input = &in->lanes->lane[at->lane];

    switch (input->input_flow_control) {
    case VB_WORLD_CREDITS:
        input->held += vb_world_credit_blocks(at->bytes);
        vb_world_lanes_arrived(part, in, at->lane, at->bytes);
        return true;
    case VB_WORLD_PAUSES:
        return admit_paused(part, sw, at->lane, in, packet);
    case VB_WORLD_VL15:
        if (queue + at->bytes <= sw->config.management)
            return true;
        vb_world_drop(part, out, packet, VB_WORLD_DROP_FULL);
        return false;
    default:
        return admit_lossy(part, sw, at->lane, queue, out, packet);
    }
}

static void queue_packet(struct vb_world_partition *part, struct vb_world_switch *sw,
                         struct vb_world_port *in, uint32_t out, uint32_t packet)
{
    struct vb_world_port *port = &part->port[out];
    struct vb_world_packet *at = vb_world_packet_at(part, packet);
    uint32_t lane =
        vb_world_switch_lane(sw, in->number, port->number, at->lane, at->level_marks >> 4);
    uint32_t queue;

    queue = port->lanes->lane[lane].bytes;
    if (!(at->level_marks & VB_WORLD_COPY) &&
        !vb_world_switch_admit(part, sw, in, port, queue, packet))
        return;
    if (lane < sw->lanes)
        switch_mark(&sw->config.lane[lane].mark, queue, at, port);
    if (__builtin_expect(sw->fecn && is_congested(part, sw, in, port, lane, at), 0))
        mark_fecn(sw, at, port);
    at->input = in->number;
    vb_world_lanes_put(part, out, lane, sw->config.turns == VB_WORLD_BY_INPUT ? in->number : 0,
                       packet);
}

/* Returns the credits of a packet that goes no further. */
static void return_credits(struct vb_world_partition *part, struct vb_world_port *in,
                           uint32_t packet)
{
    const struct vb_world_packet *at = vb_world_packet_at(part, packet);

    if (in->lanes && in->lanes->lane[at->lane].input_flow_control == VB_WORLD_CREDITS) {
        vb_world_lanes_arrived(part, in, at->lane, at->bytes);
        vb_world_lanes_released(part, in, at->lane, at->bytes, part->now);
    }
}

void vb_world_switch_discard(struct vb_world_partition *part, struct vb_world_port *in,
                             uint32_t packet, enum vb_world_drop_reason reason)
{
    return_credits(part, in, packet);
    vb_world_drop(part, in, packet, reason);
}

/* The port's gate keeps a packet back, which may be a copy. */
static void switch_refuse(struct vb_world_partition *part, struct vb_world_switch *sw, uint32_t in,
                          uint32_t packet)
{
    const struct vb_world_packet *at = vb_world_packet_at(part, packet);

    if (at->level_marks & VB_WORLD_COPY) {
        vb_world_switch_copy_left(part, sw, at->keeper, part->now);
        vb_world_drop(part, &part->port[in], packet, VB_WORLD_DROP_ROUTE);
        return;
    }
    vb_world_switch_discard(part, &part->port[in], packet, VB_WORLD_DROP_ROUTE);
}

void vb_world_switch_forward(struct vb_world_partition *part, struct vb_world_switch *sw,
                             uint32_t in, uint32_t out, uint32_t packet)
{
    if (__builtin_expect(part->port[out].is_gated, 0) &&
        vb_world_gate_refuses(part, &part->port[out], vb_world_packet_at(part, packet),
                              VB_WORLD_OUT))
        switch_refuse(part, sw, in, packet);
    else if (sw->lanes)
        queue_packet(part, sw, &part->port[in], out, packet);
    else
        forward(part, sw, out, packet);
}

/* The packet is as one that came on VL15, so that its departure frees no room of an input. */
void vb_world_switch_send(struct vb_world_partition *part, struct vb_world_switch *sw, uint32_t out,
                          uint32_t packet)
{
    const struct vb_world_port *port = &part->port[out];
    struct vb_world_packet *at = vb_world_packet_at(part, packet);

    ++part->made;
    at->lane = port->lanes ? (uint8_t)port->lanes->data : 0;
    at->input = port->number;
    if (!port->lanes || (at->level_marks & VB_WORLD_MANAGEMENT))
        vb_world_switch_forward(part, sw, out, out, packet);
    else
        vb_world_lanes_put(part, out, vb_world_lanes_of(port->lanes, at->level_marks),
                           sw->config.turns == VB_WORLD_BY_INPUT ? port->number : 0, packet);
}

/* Decrements the hop limit. False: it is 0 now, and the packet is dropped (RFC 1812). */
static bool decrement_hops(struct vb_world_packet *packet)
{
    return --packet->hops != 0;
}

/* A router drops a flooded packet, whose link-layer address is not its own. */
static bool is_flooded(const struct vb_world_packet *packet)
{
    return packet->flags & VB_WORLD_FLOODED;
}

static void forward_unknown(struct vb_world_partition *part, struct vb_world_switch *sw,
                            uint32_t in, uint32_t packet)
{
    const struct vb_world_packet *at = vb_world_packet_at(part, packet);
    uint32_t node = part->port[in].node;

    if (vb_world_is_served(&part->node[node], at)) {
        return_credits(part, &part->port[in], packet);
        part->on_host->managed(part->hosts_context, node, part->port[in].number, packet);
        return;
    }
    if (sw->config.floods && !(at->flags & VB_WORLD_HAS_BYTES))
        vb_world_switch_flood(part, sw, in, packet);
    else
        vb_world_switch_discard(part, &part->port[in], packet, VB_WORLD_DROP_ROUTE);
}

/* What a router drops before it forwards. True: it was dropped. An extender is no router. */
static bool is_dropped(struct vb_world_partition *part, const struct vb_world_switch *sw,
                       uint32_t in, uint32_t packet)
{
    struct vb_world_packet *at = vb_world_packet_at(part, packet);
    enum vb_world_drop_reason reason = VB_WORLD_DROPS;

    if (sw->config.extender)
        return false;
    if (part->world->hop_limit && !decrement_hops(at))
        reason = VB_WORLD_DROP_HOPS;
    else if (is_flooded(at))
        reason = VB_WORLD_DROP_ROUTE;
    if (reason != VB_WORLD_DROPS)
        vb_world_switch_discard(part, &part->port[in], packet, reason);
    return reason != VB_WORLD_DROPS;
}

void vb_world_switch_arrive(struct vb_world_partition *part, struct vb_world_switch *sw,
                            uint32_t in, uint32_t packet)
{
    struct vb_world_packet *at = vb_world_packet_at(part, packet);
    uint32_t out, target = at->target;

    if (__builtin_expect(part->world->hop_limit || part->world->floods, 0) &&
        is_dropped(part, sw, in, packet))
        return;
    if (__builtin_expect(at->level_marks & VB_WORLD_TO_GROUP, 0)) {
        vb_world_switch_replicate(part, sw, in, packet);
        return;
    }
    if (__builtin_expect(sw->detour != NULL, 0))
        target = vb_world_detour_target(part, sw, in, at);
    out = route(part->world, sw, at, target);
    __builtin_prefetch(&part->port[out ^ 1], 1);
    if (__builtin_expect(out == VB_WORLD_NONE, 0)) /* an extender has no table */
        out = vb_world_switch_through(part->world, sw, in);
    if (__builtin_expect(out == VB_WORLD_NONE, 0))
        forward_unknown(part, sw, in, packet);
    else
        vb_world_switch_forward(part, sw, in, out, packet);
}

void vb_world_switch_left(struct vb_world_partition *part, struct vb_world_switch *sw,
                          uint32_t input, uint32_t lane, uint32_t bytes, bool reserved, uint64_t at)
{
    struct vb_world_port *in = &part->port[sw->port[input]];
    struct vb_world_lane *from = &in->lanes->lane[lane];

    if (from->input_flow_control == VB_WORLD_CREDITS) {
        from->held -= vb_world_credit_blocks(bytes);
        vb_world_lanes_released(part, in, lane, bytes, at);
        return;
    }
    if (from->input_flow_control == VB_WORLD_VL15)
        return;
    if (__builtin_expect(reserved && from->input_flow_control == VB_WORLD_LOSSY, 0)) {
        sw->reserved_used -= bytes;
        return;
    }
    if (from->input_flow_control == VB_WORLD_PAUSES)
        release_paused(part, sw, lane, in, bytes);
    else
        sw->used -= bytes;
}
