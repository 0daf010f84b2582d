// SPDX-License-Identifier: Apache-2.0
/*
 * What a port of InfiniBand lets through beside SMPs, as a subnet manager has set it: its PortState
 * (IBA 7.2) and its partitions (IBA 10.9.3, 17.2.6). Python decides, and sets a gate only at ports
 * that keep something back; link.c, switch.c and run.c ask those ports.
 */
#ifndef VB_EVENT_GATE_H
#define VB_EVENT_GATE_H

#include "event/partition.h"

enum { VB_WORLD_IN = 0, VB_WORLD_OUT, VB_WORLD_WAYS };

struct vb_world_gate {
    bool opens[VB_WORLD_WAYS];          /* the port's state lets data in, or out */
    const uint8_t *keys[VB_WORLD_WAYS]; /* a bit for each P_Key that passes; NULL: all pass */
    uint64_t refused[VB_WORLD_WAYS];    /* packets with a P_Key that does not */
    uint64_t shut[VB_WORLD_WAYS];       /* packets while the state kept them back */
    uint64_t interval, told_at;         /* ps: a refusal halts the run at most so often */
    struct vb_world_packet last;        /* the one of which the run was halted */
    bool wakes;                         /* ARMED: the first packet that comes in halts the run */
    bool is_woken;                      /* the run was halted for that */
};

/*
 * Sets what a port lets through; `keys` outlives the world, or the next call. A host whose port
 * opens goes on to send. -ENOMEM.
 */
int vb_world_gate_set(struct vb_world *world, uint32_t port, const struct vb_world_gate *to);

/*
 * Does the port keep this packet back, which comes in or is to go out? The packet is counted then.
 * `interval` after the last one that it told of, it halts the run (vb_world.refused_at), and so
 * does the first one that an ARMED port lets in (IBA 7.2.7: data make the port ACTIVE).
 */
bool vb_world_gate_refuses(struct vb_world_partition *part, const struct vb_world_port *port,
                           const struct vb_world_packet *packet, int way);

/* Does the state of the port keep a host's data back? */
static inline bool vb_world_gate_is_shut(const struct vb_world_port *port)
{
    return __builtin_expect(port->is_gated, 0) && !port->gate->opens[VB_WORLD_OUT];
}

#endif
