// SPDX-License-Identifier: Apache-2.0
/*
 * In-band telemetry: what each switch on a packet's way says of the port that it leaves by. It lies
 * beside the packets, in an array of its own that a world without it does not have.
 */
#ifndef VB_EVENT_TELEMETRY_H
#define VB_EVENT_TELEMETRY_H

#include "event/world.h"

enum { VB_WORLD_TELEMETRY_HOPS = 7 }; /* switches that are told of; those beyond are not */

struct vb_world_telemetry_hop {
    uint64_t at;    /* ps */
    uint64_t sent;  /* bytes that the port has sent by then */
    uint64_t rate;  /* bits per second */
    uint32_t queue; /* bytes that still wait behind the packet */
    uint32_t port;
};

struct vb_world_telemetry {
    uint64_t sent_at; /* ps: when the packet of data left its host */
    uint32_t hops;
    struct vb_world_telemetry_hop hop[VB_WORLD_TELEMETRY_HOPS];
};

/* NULL: no memory, which ends the run. It moves when packets are made. */
struct vb_world_telemetry *vb_world_telemetry_of(struct vb_world *world, uint32_t packet);
/* A switch sends the packet by this port; behind it wait so many bytes, `unsent` are counted as
 * sent and are not yet. */
void vb_world_telemetry_add(struct vb_world *world, uint32_t port, uint32_t packet, uint64_t queue,
                            uint64_t unsent);
void vb_world_telemetry_copy(struct vb_world *world, uint32_t to, uint32_t from);

#endif
