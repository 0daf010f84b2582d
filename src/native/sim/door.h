// SPDX-License-Identifier: Apache-2.0
/*
 * Management packets of nodes that Python serves: to queue pairs 0 and 1 of a host or a switch, and
 * directed-route SMPs. They wait here until the Python binding takes them (_world_doors.pxi), for
 * which a run ends after the event that brought one, and nodes send theirs from here.
 */
#ifndef VB_SIM_DOOR_H
#define VB_SIM_DOOR_H

#include <stdbool.h>
#include <stdint.h>

struct vb_sim;

struct vb_sim_mad {
    uint32_t node;
    uint16_t port;           /* by which it came, or leaves */
    uint16_t source, target; /* LIDs */
    uint8_t level;           /* service level */
    bool management;         /* on VL15 */
    const uint8_t *bytes;    /* BTH, DETH and payload; valid until vb_sim_door_taken */
    uint32_t length;
};

/* The packet that has waited longest. False: there is none. */
bool vb_sim_door_next(const struct vb_sim *sim, struct vb_sim_mad *mad);
/* That packet was read. */
void vb_sim_door_taken(struct vb_sim *sim);
/* Sends a packet, whose port has a link, now. -ENOMEM. */
int vb_sim_door_send(struct vb_sim *sim, const struct vb_sim_mad *mad);

/* Called where packets wait and the run does not end, since a program waits for the time. */
void vb_sim_on_door(struct vb_sim *sim, void (*waiting)(void *context), void *context);

#endif
