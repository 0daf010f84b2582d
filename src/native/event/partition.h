// SPDX-License-Identifier: Apache-2.0
/*
 * A partition of a world: some of its nodes, with their time, their pending events, and their
 * packets' free memory. Events are handled here: run.c runs the partitions, and every file of the
 * room, and sim, uses this header for what happens during a run.
 *
 * Partitions affect each other by what a link carries, and by vb_world_tell, at least a window
 * later, which is no longer than the shortest delay of a link between two of them. So all of them
 * run a window of time, in any order or at once; then what they have sent is delivered, and the
 * next window begins.
 *
 * How the nodes are divided changes no result. Events of one time are ordered by what they are, and
 * not by when they were added. Random numbers belong to a port, and never to a partition. Nothing
 * that a host or a switch does depends on the number of a packet in the world's memory.
 */
#ifndef VB_EVENT_PARTITION_H
#define VB_EVENT_PARTITION_H

#include "event/world.h"
#include "wire/bytes.h"

struct vb_world_partition {
    _Alignas(64) uint64_t now;
    struct vb_world *world;
    struct vb_world_port *port; /* vb_world.port */
    struct vb_world_node *node; /* vb_world.node */
    struct vb_world_pool pool;
    const struct vb_world_host_calls *on_host;
    void *hosts_context;
    uint64_t moved_at; /* when a packet moved last, or a flow ended */
    uint64_t events;
    uint64_t idle;     /* pending events that do not move packets: timers, pause refreshes */
    uint64_t watching; /* of these, those that do not keep a run from ending: storms */
    uint64_t made, copied, delivered, dropped; /* packets; `copied` by switches */
    int64_t kept; /* packets of the pool that are keepers (packet.h), or in a host */
    uint32_t number;
    int error;
    struct vb_world_agenda agenda;
};

enum vb_world_event {
    VB_WORLD_ARRIVE = 0, /* the first packet on the link to a port arrives */
    VB_WORLD_WAKE,       /* a port with lanes serves its queues */
    VB_WORLD_READY,      /* a host's port without lanes is free */
    VB_WORLD_REFRESH,    /* a pause frame is repeated before the pause ends */
    VB_WORLD_LINK_UP,
    VB_WORLD_LINK_DOWN,
    VB_WORLD_CALL,   /* vb_world_call */
    VB_WORLD_STORM,  /* a broken host repeats its pause frame */
    VB_WORLD_SAMPLE, /* a sampler writes a row: in vb_world.agenda, as is the next */
    VB_WORLD_HALT,   /* vb_world_halt */
};

/* An event in the agenda: its kind in 4 bits, a detail in 28, and an index in 32. */
enum { VB_WORLD_KIND_SHIFT = 60, VB_WORLD_DETAIL_SHIFT = 32 };

static inline uint64_t vb_world_what(enum vb_world_event event, uint32_t detail, uint32_t index)
{
    return (uint64_t)event << VB_WORLD_KIND_SHIFT | (uint64_t)detail << VB_WORLD_DETAIL_SHIFT |
           index;
}

static inline enum vb_world_event vb_world_event_of(uint64_t what)
{
    return (enum vb_world_event)(what >> VB_WORLD_KIND_SHIFT);
}

static inline uint32_t vb_world_detail_of(uint64_t what)
{
    return what >> VB_WORLD_DETAIL_SHIFT & 0xfffffff;
}

static inline void vb_world_add(struct vb_world_partition *part, uint64_t at,
                                enum vb_world_event event, uint32_t detail, uint32_t index)
{
    int error = vb_world_agenda_add(&part->agenda, at, vb_world_what(event, detail, index));

    if (__builtin_expect(error, 0))
        part->error = error;
}

/* Schedules an event between two windows: VB_WORLD_SAMPLE, or VB_WORLD_HALT. */
static inline void vb_world_plan(struct vb_world *world, uint64_t at, enum vb_world_event event,
                                 uint32_t detail, uint32_t index)
{
    int error = vb_world_agenda_add(&world->agenda, at, vb_world_what(event, detail, index));

    if (error)
        world->error = error;
}

/*
 * Schedules a call of vb_world_host_calls.call; `what` has 28 bits. It counts as an event that lets
 * no packet go on (vb_world_partition.idle). Of one node, all calls with one time differ in `what`
 * or `index`, or are the same to it.
 */
static inline void vb_world_call(struct vb_world_partition *part, uint64_t at, uint32_t what,
                                 uint32_t index)
{
    ++part->idle;
    vb_world_add(part, at, VB_WORLD_CALL, what, index);
}

/* The partition of a node. */
static inline struct vb_world_partition *vb_world_partition_of(const struct vb_world *world,
                                                               uint32_t node)
{
    return &world->partition[world->node[node].partition];
}

/*
 * As vb_world_call, of an event for a node that may be in another partition. `at` is at least
 * vb_world.window from now.
 */
void vb_world_tell(struct vb_world_partition *part, uint32_t node, uint64_t at, uint32_t what,
                   uint32_t index);
/* Passes a packet on to the partition at the other end of this port's link. */
void vb_world_cross(struct vb_world_partition *part, struct vb_world_port *port, uint32_t packet);
struct vb_world_control;
/* Passes a control record on to the partition of port `to`. */
void vb_world_cross_control(struct vb_world_partition *part, uint32_t to,
                            const struct vb_world_control *record);

/* Divides the nodes anew, if that was asked for. -ENOMEM. */
int vb_world_divide(struct vb_world *world);
/* Two nodes are to be in one partition. */
void vb_world_join(struct vb_world *world, uint32_t one, uint32_t other);
/* Delivers what was sent to a partition. */
void vb_world_deliver(struct vb_world *world, uint32_t number);
/* Makes the first partition, which has all nodes. -ENOMEM. */
int vb_world_partitions_open(struct vb_world *world);
/* Called when the arrays of nodes and ports have moved in memory. */
void vb_world_partitions_update(struct vb_world *world);
void vb_world_partitions_free(struct vb_world *world);
/* build.c: prefetches what two coming events need (vb_world_agenda_watch). */
void vb_world_prefetch(const void *part, uint64_t near, uint64_t nearer);

static inline struct vb_world_packet *vb_world_packet_at(const struct vb_world_partition *part,
                                                         uint32_t number)
{
    return &part->pool.packet[number];
}

static inline bool vb_world_has_address(const struct vb_world_node *node, uint32_t address)
{
    return (node->address ^ address) >> node->lmc == 0;
}

/*
 * Is this a management packet (QP0 or QP1) for a node that takes such packets: to one of its LIDs,
 * or a directed-route SMP?
 */
static inline bool vb_world_is_served(const struct vb_world_node *node,
                                      const struct vb_world_packet *packet)
{
    return node->is_served && (packet->flags & VB_WORLD_HAS_BYTES) &&
           vb_wire_get24(packet->header + 5) < 2 &&
           (packet->target == VB_WORLD_PERMISSIVE ||
            (packet->target && vb_world_has_address(node, packet->target)));
}

/* The host with this address; VB_WORLD_NONE: there is none. */
static inline uint32_t vb_world_host_of(const struct vb_world *world, uint32_t address)
{
    return __builtin_expect(!world->lid_host, 1) ? address - 1 : world->lid_host[address & 0xffff];
}

static inline uint64_t vb_world_splitmix(uint64_t *state)
{
    return vb_world_mix(*state += VB_WORLD_GOLDEN);
}

/* Uniform in [0, 1), of the port's random numbers. */
static inline double vb_world_chance(struct vb_world_port *port)
{
    return (double)(vb_world_splitmix(&port->random) >> 11) * 0x1p-53;
}

void vb_world_drop(struct vb_world_partition *part, struct vb_world_port *port, uint32_t packet,
                   enum vb_world_drop_reason reason);

/* Sends a packet of a host by the host's port; without a link the packet is lost. */
void vb_world_send(struct vb_world_partition *part, uint32_t node, uint32_t packet);
/* Is the host's port free? */
bool vb_world_may_send(const struct vb_world_partition *part, uint32_t node);

/* The queue of a port without lanes at that time, in bytes. */
static inline uint64_t vb_world_backlog(uint64_t now, const struct vb_world_port *port)
{
    uint64_t wait = port->free_at > now ? port->free_at - now : 0;

    if (!wait)
        return 0;
    return port->byte_time ? wait / port->byte_time
                           : (uint64_t)((double)wait * (double)port->rate / 8e12);
}

#endif
