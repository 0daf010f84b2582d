// SPDX-License-Identifier: Apache-2.0
/*
 * In-band telemetry (INT): each switch of a packet's route records the state of the port by which
 * the packet leaves. The records are an array beside the packets', which only a world with HPCC
 * has.
 */
#ifndef VB_EVENT_TELEMETRY_H
#define VB_EVENT_TELEMETRY_H

#include "event/partition.h"

enum { VB_WORLD_TELEMETRY_HOPS = 7 }; /* further switches are not recorded */

struct vb_world_telemetry_hop {
    uint64_t at;    /* ps */
    uint64_t sent;  /* txBytes: the port's counter of sent bytes */
    uint64_t rate;  /* bits per second */
    uint32_t queue; /* qLen: bytes that wait behind the packet */
    uint32_t port;
};

struct vb_world_telemetry {
    uint64_t sent_at; /* ps: when the data packet left its host */
    uint32_t hops;
    struct vb_world_telemetry_hop hop[VB_WORLD_TELEMETRY_HOPS];
};

/* From now on switches add telemetry to packets. -ENOMEM. */
int vb_world_trace(struct vb_world *world);
void vb_world_telemetry_free(struct vb_world *world);

static inline struct vb_world_telemetry *
vb_world_telemetry_of(const struct vb_world_partition *part, uint32_t packet)
{
    return &part->world->telemetry[packet];
}

/*
 * Adds a hop: a switch sends the packet by this port, and `queue` bytes wait behind it. `unsent`
 * bytes are in the port's counters already, and have not left.
 */
void vb_world_telemetry_add(struct vb_world_partition *part, uint32_t port, uint32_t packet,
                            uint64_t queue, uint64_t unsent);
void vb_world_telemetry_copy(struct vb_world_partition *part, uint32_t to, uint32_t from);

#endif
