// SPDX-License-Identifier: Apache-2.0
/*
 * One direction of a link: the time of transmission, the arrival, bit errors and outages. lanes.c,
 * control.c, switch.c and run.c use it.
 */
#ifndef VB_EVENT_LINK_H
#define VB_EVENT_LINK_H

#include "event/partition.h"

/* The time of transmission of up to 65535 bytes; fractions of a picosecond are carried over to the
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

/* The duration of a pause. Half of the 512 bit times of a quantum, so that 64 bits are enough. */
static inline uint64_t vb_world_pause_time(uint64_t rate, uint32_t quanta)
{
    uint64_t half = (uint64_t)quanta * 256 * VB_WORLD_SECOND;

    return half / rate * 2 + half % rate * 2 / rate;
}

/* Sends the packet at `start`, when the transmitter is free. */
void vb_world_link_send(struct vb_world_partition *part, uint32_t port, uint32_t packet,
                        uint64_t start);
/* Handles the event VB_WORLD_ARRIVE. */
void vb_world_link_arrive(struct vb_world_partition *part, uint32_t port);
void vb_world_link_set(struct vb_world_partition *part, uint32_t port, bool up);

#endif
