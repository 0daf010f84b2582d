// SPDX-License-Identifier: Apache-2.0
/*
 * Carries packets over a link: a packet leaves by a port, and arrives or is lost.
 * switch.c, lanes.c and run.c send, and run.c calls vb_world_link_arrive.
 */
#include "event/link.h"

#include "event/gate.h"
#include "event/lanes.h"
#include "event/switch.h"
#include "event/tap.h"

/* Adds a packet to those on the link to a port. */
static inline void link_append(struct vb_world_partition *part, uint32_t to, uint32_t packet,
                               uint64_t at)
{
    struct vb_world_port *port = &part->port[to];

    if (port->arrive_first == VB_WORLD_NONE) {
        port->arrive_first = packet;
        vb_world_add(part, at, VB_WORLD_ARRIVE, 0, to);
    } else {
        vb_world_packet_at(part, port->arrive_last)->next = packet;
    }
    port->arrive_last = packet;
}

void vb_world_link_send(struct vb_world_partition *part, uint32_t number, uint32_t packet,
                        uint64_t start)
{
    struct vb_world_port *port = &part->port[number];
    struct vb_world_packet *sent = vb_world_packet_at(part, packet);
    uint64_t time = vb_world_byte_time(port, sent->bytes), early = 0;

    port->free_at = start + time;
    if (port->early && port->early < sent->bytes)
        early = (uint64_t)(sent->bytes - port->early) * port->byte_time;
    sent->at = port->free_at + port->delay - early;
    sent->next = VB_WORLD_NONE;
    ++port->traffic.packets;
    port->traffic.bytes += sent->bytes;
    port->traffic.busy += time;
    if (port->crosses)
        vb_world_cross(part, port, packet);
    else
        link_append(part, port->peer, packet, sent->at);
}

/*
 * The probability that at least one of `bits` bits is wrong, from the binary digits of their
 * number: if it is c for n bits, it is c (2 - c) for 2n. Logarithms of C libraries differ in the
 * last bit, so that runs with the same seed would differ between machines.
 */
static double packet_error_rate(double rate, uint32_t bits)
{
    double chance = 0;

    for (uint32_t bit = UINT32_C(1) << (31 - __builtin_clz(bits | 1)); bit; bit >>= 1) {
        chance *= 2 - chance;
        if (bits & bit)
            chance += rate * (1 - chance);
    }
    return chance;
}

/* Why the packet is lost on its way to this port: the link was down, or bit errors.
 * VB_WORLD_DROPS: it is not lost. */
static enum vb_world_drop_reason loss_reason(struct vb_world_port *port,
                                             const struct vb_world_packet *at)
{
    uint64_t time = at->bytes * 8 * VB_WORLD_SECOND / port->rate;

    if (port->is_down || (port->came_up && at->at < port->came_up + port->delay + time))
        return VB_WORLD_DROP_DOWN;
    if (port->bit_error_rate > 0 &&
        vb_world_chance(port) < packet_error_rate(port->bit_error_rate, 8u * at->bytes))
        return VB_WORLD_DROP_DAMAGED;
    return VB_WORLD_DROPS;
}

/* False: the link has lost the packet, which the transmitting port counts; or the port's gate keeps
 * it back. */
static bool link_delivers(struct vb_world_partition *part, struct vb_world_port *port,
                          uint32_t packet)
{
    const struct vb_world_packet *at = vb_world_packet_at(part, packet);
    enum vb_world_drop_reason loss = loss_reason(port, at);

    if (port->tap)
        port->tap->see(port->tap->context, part->now, port->peer, at, loss);
    if (loss != VB_WORLD_DROPS) {
        vb_world_drop(part, &part->port[port->peer], packet, loss);
        return false;
    }
    if (!port->is_gated || !vb_world_gate_refuses(part, port, at, VB_WORLD_IN))
        return true;
    vb_world_drop(part, port, packet, VB_WORLD_DROP_ROUTE);
    return false;
}

/*
 * Returns the credits of a packet that is lost, or that a host has taken. In InfiniBand the next
 * flow-control packet says how much was sent (IBA 7.9.4.3), so lost packets cost no credits; here
 * they are returned at once.
 */
static void link_give_back(struct vb_world_partition *part, struct vb_world_port *port,
                           uint32_t lane, uint32_t bytes)
{
    if (!port->lanes || port->lanes->lane[lane].input_flow_control != VB_WORLD_CREDITS)
        return;
    vb_world_lanes_arrived(part, port, lane, bytes);
    vb_world_lanes_released(part, port, lane, bytes, part->now);
}

void vb_world_link_arrive(struct vb_world_partition *part, uint32_t number)
{
    struct vb_world_port *port = &part->port[number];
    uint32_t packet = port->arrive_first;
    struct vb_world_packet *at = vb_world_packet_at(part, packet);

    port->arrive_first = at->next;
    if (at->next != VB_WORLD_NONE)
        vb_world_add(part, vb_world_packet_at(part, at->next)->at, VB_WORLD_ARRIVE, 0, number);
    if (__builtin_expect(port->slow_path, 0)) {
        uint32_t lane = at->lane, bytes = at->bytes;

        if (!link_delivers(part, port, packet)) {
            link_give_back(part, port, lane, bytes);
            return;
        }
    }
    if (port->sw) {
        vb_world_switch_arrive(part, port->sw, number, packet);
        return;
    }
    link_give_back(part, port, at->lane, at->bytes); /* a host takes what comes */
    ++part->delivered;
    part->on_host->arrive(part->hosts_context, port->host, packet);
}

void vb_world_link_set(struct vb_world_partition *part, uint32_t number, bool up)
{
    struct vb_world_port *port = &part->port[number];

    port->slow_path = true;
    port->is_down = !up;
    if (up)
        port->came_up = part->now;
}
