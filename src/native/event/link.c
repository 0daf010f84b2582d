// SPDX-License-Identifier: Apache-2.0
/*
 * Carries packets over a link: a packet leaves by a port, and arrives or is lost.
 * switch.c, lanes.c and run.c send, and run.c calls vb_world_link_arrive.
 */
#include "event/link.h"

#include "event/lanes.h"
#include "event/switch.h"
#include "event/tap.h"

void vb_world_link_send(struct vb_world *world, uint32_t number, uint32_t packet, uint64_t start)
{
    struct vb_world_port *port = &world->port[number];
    struct vb_world_packet *sent = vb_world_packet_at(world, packet);
    uint64_t time = vb_world_byte_time(port, sent->bytes), early = 0;

    port->free_at = start + time;
    if (port->early && port->early < sent->bytes)
        early = (uint64_t)(sent->bytes - port->early) * port->byte_time;
    sent->at = port->free_at + port->delay - early;
    sent->next = VB_WORLD_NONE;
    ++port->traffic.packets;
    port->traffic.bytes += sent->bytes;
    port->traffic.busy += time;
    if (port->flight_first == VB_WORLD_NONE) {
        port->flight_first = packet;
        vb_world_add(world, sent->at, VB_WORLD_ARRIVE, 0, number);
    } else {
        vb_world_packet_at(world, port->flight_last)->next = packet;
    }
    port->flight_last = packet;
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

/* Why the packet is lost: the link was down while it was on it, or bit errors. VB_WORLD_DROPS: it
 * is not lost. */
static enum vb_world_drop_reason loss_reason(struct vb_world *world,
                                             const struct vb_world_port *port,
                                             const struct vb_world_packet *at)
{
    uint64_t time = at->bytes * 8 * VB_WORLD_SECOND / port->rate;

    if (port->is_down || (port->came_up && at->at < port->came_up + port->delay + time))
        return VB_WORLD_DROP_DOWN;
    if (port->bit_error_rate > 0 &&
        vb_world_chance(world) < packet_error_rate(port->bit_error_rate, 8u * at->bytes))
        return VB_WORLD_DROP_DAMAGED;
    return VB_WORLD_DROPS;
}

/* False: the link has lost the packet. */
static bool link_delivers(struct vb_world *world, uint32_t number, uint32_t packet)
{
    struct vb_world_port *port = &world->port[number];
    const struct vb_world_packet *at = vb_world_packet_at(world, packet);
    enum vb_world_drop_reason loss = loss_reason(world, port, at);

    if (port->tap)
        port->tap->see(port->tap->context, number, at, loss);
    if (loss == VB_WORLD_DROPS)
        return true;
    vb_world_drop(world, port, packet, loss);
    return false;
}

/*
 * Returns the credits of a packet that is lost, or that a host has taken. In InfiniBand the next
 * flow-control packet says how much was sent (IBA 7.9.4.3), so lost packets cost no credits; here
 * they are returned at once.
 */
static void link_give_back(struct vb_world *world, struct vb_world_port *port, uint32_t lane,
                           uint32_t bytes)
{
    struct vb_world_port *peer = &world->port[port->peer];

    if (!port->lanes || port->lanes->lane[lane].flow_control != VB_WORLD_CREDITS)
        return;
    vb_world_lanes_arrived(world, peer, lane, bytes);
    vb_world_lanes_released(world, peer, lane, bytes, world->now);
}

void vb_world_link_arrive(struct vb_world *world, uint32_t number)
{
    struct vb_world_port *port = &world->port[number];
    uint32_t packet = port->flight_first;
    struct vb_world_packet *at = vb_world_packet_at(world, packet);

    port->flight_first = at->next;
    if (at->next != VB_WORLD_NONE)
        vb_world_add(world, vb_world_packet_at(world, at->next)->at, VB_WORLD_ARRIVE, 0, number);
    if (__builtin_expect(port->slow_path, 0)) {
        uint32_t lane = at->lane, bytes = at->bytes;

        if (!link_delivers(world, number, packet)) {
            link_give_back(world, port, lane, bytes);
            return;
        }
    }
    if (port->to_switch) {
        vb_world_switch_arrive(world, port->to_switch, port->peer, packet);
        return;
    }
    link_give_back(world, port, at->lane, at->bytes); /* a host takes what comes */
    ++world->delivered;
    world->on_host->arrive(world->hosts_context, port->to_host, packet);
}

void vb_world_link_set(struct vb_world *world, uint32_t number, bool up)
{
    struct vb_world_port *port = &world->port[number];

    port->slow_path = true;
    port->is_down = !up;
    if (up)
        port->came_up = world->now;
}
