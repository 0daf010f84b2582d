// SPDX-License-Identifier: Apache-2.0
/*
 * One direction of a link: how long a packet takes the transmitter, when it arrives, and whether it
 * is damaged or the link is down. lanes.c, control.c, switch.c and run.c use it.
 */
#ifndef VB_EVENT_LINK_H
#define VB_EVENT_LINK_H

#include "event/world.h"

/* How long so many bytes, at most 65535, take; fractions of a picosecond are carried over to the
 * next packet. */
static inline uint64_t vb_world_byte_time(struct vb_world_port *port, uint32_t bytes)
{
    uint64_t time;

    if (__builtin_expect(port->byte_time != 0, 1))
        return (uint64_t)bytes * port->byte_time;
    time = (uint64_t)bytes * 8 * VB_WORLD_SECOND + port->carry;
    port->carry = time % port->rate;
    return time / port->rate;
}

/* A pause of so many quanta of 512 bit times, of which half are as many ps as 64 bits hold. */
static inline uint64_t vb_world_pause_time(uint64_t rate, uint32_t quanta)
{
    uint64_t half = (uint64_t)quanta * 256 * VB_WORLD_SECOND;

    return half / rate * 2 + half % rate * 2 / rate;
}

/* The packet leaves at `start`, when the transmitter is free. */
void vb_world_link_send(struct vb_world *world, uint32_t port, uint32_t packet, uint64_t start);
/* The event VB_WORLD_ARRIVE. */
void vb_world_link_arrive(struct vb_world *world, uint32_t port);
void vb_world_link_set(struct vb_world *world, uint32_t port, bool up);

#endif
