// SPDX-License-Identifier: Apache-2.0
/*
 * A switch: forwarding, and whether a packet finds room. Without lanes it has one lossy queue for
 * each port, with a limit of its own; with lanes (lanes.h) each of them is lossy, or lossless by
 * credits or by pauses, whatever the others are.
 */
#ifndef VB_EVENT_SWITCH_H
#define VB_EVENT_SWITCH_H

#include "event/lanes.h"

struct vb_world_detour;

enum vb_world_balance {
    VB_WORLD_BY_FLOW = 0, /* a hash of source, target and QP: the packets of a flow together */
    VB_WORLD_BY_PACKET,   /* each packet by chance (Dixit, Prakash, Hu and Kompella, 2013) */
};

enum vb_world_turns {
    VB_WORLD_BY_INPUT = 0, /* an output takes a packet of each input in turn (a crossbar) */
    VB_WORLD_BY_ARRIVAL, /* an output has one queue, whoever its packets came by (shared memory) */
};

/*
 * What is looked at before a packet gets FECN. At the root of a congestion a lane has credits, and
 * its victims have none (IBA A10.2.1.1.1).
 */
enum vb_world_fecn {
    VB_WORLD_FECN_ROOT =
        0,                /* the queue that it joins, if its lane may send or Victim_Mask has it */
    VB_WORLD_FECN_OUTPUT, /* that queue, of victims too: as with each bit of Victim_Mask set */
    VB_WORLD_FECN_INPUT,  /* what its input holds, wherever it is to go */
};

struct vb_world_marking {
    uint32_t low, high; /* bytes of the queue: none is marked up to `low`, with `most` at `high` */
    double most; /* chance of a mark at `high`; above it all are marked; low = high = 0: none */
};

struct vb_world_class_config {
    struct vb_world_lane_config flow;
    struct vb_world_marking mark;
    double alpha;   /* lossy: at most so many times the free shared buffer in one queue; 0: any */
    uint32_t stop;  /* pauses: bytes of one input at which its sender is paused */
    uint32_t go;    /* pauses: bytes at which a paused sender may go on */
    uint32_t spare; /* headroom of each input, beside the buffer: bytes that may still come */
};

struct vb_world_switch_config {
    uint32_t ports;
    uint32_t lanes;  /* 0: one lossy queue for each port */
    uint64_t buffer; /* bytes; for each port without lanes, shared by all with them; 0: no limit */
    struct vb_world_marking mark; /* without lanes */
    struct vb_world_class_config lane[VB_WORLD_LANES];
    struct vb_world_arbiter_tables tables;
    enum vb_world_balance balance;
    enum vb_world_turns turns;
    uint32_t cut_through; /* bytes after which a packet is passed on; 0: when all of it is there */
    uint64_t lifetime;    /* ps at the head of a queue; 0: for ever */
    uint32_t fecn;        /* bytes above which packets get FECN; 0: never */
    enum vb_world_fecn fecn_at;
    uint32_t fecn_rate; /* Marking_Rate: the mean number of packets between two that get it */
    bool
        fecn_to_hosts; /* VB_WORLD_FECN_ROOT: at ports to hosts the packets of victims get it too */
    /*
     * A range extender: what comes by one of its two ports leaves by the other. These are the bytes
     * of buffer of each lane for what comes by port 1 from the other one of the pair, which has
     * credits for all of them: between the two FCCL's window does not hold. 0: a switch.
     */
    uint32_t extender;
    bool floods; /* what has no port in the table leaves by all ports but the one it came by */
    uint32_t management; /* bytes of each output's queue for VL15; 0: there is none */
    struct vb_world_watchdog_config watchdog; /* of lanes with pauses; detect 0: there is none */
};

enum { VB_WORLD_NO_PORT = 0xffff, VB_WORLD_PORT_SET = 0x8000 };

/* By which ports packets of a multicast group leave, but for the one by which they came. */
struct vb_world_group {
    uint16_t *port;
    uint32_t count;
};

struct vb_world_switch {
    uint16_t *table; /* by host: a port, VB_WORLD_NO_PORT, or VB_WORLD_PORT_SET + a set of ports */
    uint32_t *port;  /* the node's */
    struct vb_world_detour *detour; /* NULL: none; all packets take the ways of the table */
    uint32_t targets;               /* length of the table */
    uint32_t lanes, fecn;
    enum vb_world_balance balance;
    uint64_t buffer;
    struct vb_world_marking mark;
    uint64_t used;     /* bytes of the shared buffer, in which headroom has no part */
    uint64_t promised; /* of the buffer, to flows; without lanes of all ports' together */
    uint64_t kept;     /* with lanes: of packets in what was promised */
    uint32_t *set;     /* where each set begins in `member`; one more than there are sets */
    uint16_t *member;
    uint32_t sets;
    uint64_t salt;
    uint64_t sprayed; /* packets that took one of several ways by chance */
    uint8_t *lane_of; /* SL to VL: [(input * ports + output) * 16 + level]; NULL: as it came */
    bool by_lane;     /* lane_of has a packet's lane in place of its level */
    bool *victim;     /* Victim_Mask, by port; NULL: none is in it, but by fecn_to_hosts */
    struct vb_world_group *group;
    uint32_t groups;
    struct vb_world_group everywhere; /* all ports, of a switch that floods */
    struct vb_world_switch_config config;
};

/* The caller has checked the configuration (verbena.sim.world_settings). -ENOMEM. */
int vb_world_switch_create(const struct vb_world_switch_config *config,
                           struct vb_world_switch **sw);
void vb_world_switch_destroy(struct vb_world_switch *sw);

/*
 * Row h of `ports`, `width` of them, are the ports that lead to host h; -1 ends it. -EINVAL: more
 * than 32767 different rows; -ENOMEM.
 */
int vb_world_switch_set_routes(struct vb_world_switch *sw, const int32_t *ports, uint32_t targets,
                               uint32_t width);
/*
 * `lanes`: [input][output][16] of them, by level, or by the lane that a packet came by. -EINVAL: no
 * such lane.
 */
int vb_world_switch_set_lanes(struct vb_world_switch *sw, const uint8_t *lanes, bool by_lane);

/* Puts a port into Victim_Mask. -ENOMEM. */
int vb_world_switch_set_victim(struct vb_world_switch *sw, uint32_t port);

/* The lane on the next link, for ports with these numbers of the switch. */
static inline uint32_t vb_world_switch_lane(const struct vb_world_switch *sw, uint32_t input,
                                            uint32_t output, uint32_t lane, uint32_t level)
{
    size_t row = ((size_t)input * sw->config.ports + output) * 16;

    if (!sw->lane_of || lane >= sw->lanes)
        return lane;
    return sw->lane_of[row + (__builtin_expect(sw->by_lane, 0) ? lane : level)];
}

/*
 * The port of the world by which the switch passes a packet on that came by port `in` of the world;
 * VB_WORLD_NONE: none.
 */
uint32_t vb_world_switch_route(const struct vb_world *world, struct vb_world_switch *sw,
                               uint32_t in, const struct vb_world_packet *packet);
/* The other port of a range extender; VB_WORLD_NONE: it is a switch. */
static inline uint32_t vb_world_switch_through(const struct vb_world *world,
                                               const struct vb_world_switch *sw, uint32_t in)
{
    return sw->config.extender ? sw->port[1 - world->port[in].number] : VB_WORLD_NONE;
}
/* The switch has these ports. -ENOMEM. */
int vb_world_switch_set_group(struct vb_world_switch *sw, uint32_t group, const uint16_t *ports,
                              uint32_t count);

void vb_world_switch_arrive(struct vb_world *world, struct vb_world_switch *sw, uint32_t in,
                            uint32_t packet);
/* A packet that had come by that port and lane, promised its room or not, is gone at `at`. */
void vb_world_switch_left(struct vb_world *world, struct vb_world_switch *sw, uint32_t input,
                          uint32_t lane, uint32_t bytes, bool promised, uint64_t at);
/* The same for one of the keeper's copies: their room is free when the last of them has left. */
void vb_world_switch_copy_left(struct vb_world *world, struct vb_world_switch *sw, uint32_t keeper,
                               uint64_t at);
/* multicast.c: a packet for a group that came by port `in`. */
void vb_world_switch_replicate(struct vb_world *world, struct vb_world_switch *sw, uint32_t in,
                               uint32_t packet);
/* multicast.c: nobody knows where its target is. */
void vb_world_switch_flood(struct vb_world *world, struct vb_world_switch *sw, uint32_t in,
                           uint32_t packet);
/* Bytes of the shared buffer that are neither promised nor hold promised packets. */
static inline uint64_t vb_world_switch_open(const struct vb_world_switch *sw)
{
    uint64_t taken = sw->promised > sw->kept ? sw->promised : sw->kept;

    return sw->buffer > taken ? sw->buffer - taken : 0;
}

/*
 * Bytes of a port's queue, without lanes, that are others' than those it is promised to: its
 * promised packets take none of their share. One that is being sent counts as others'.
 */
uint64_t vb_world_switch_others(const struct vb_world *world, const struct vb_world_port *port);

/* Passes one of the copies on, for multicast.c; `out` is a port of the world. */
void vb_world_switch_pass_on(struct vb_world *world, struct vb_world_switch *sw, uint32_t in,
                             uint32_t out, uint32_t packet);
/* False: there is no room, and the packet was dropped. */
bool vb_world_switch_admit(struct vb_world *world, struct vb_world_switch *sw,
                           struct vb_world_port *in, struct vb_world_port *out, uint32_t queue,
                           uint32_t packet);
/* It goes no further, and was let in nevertheless. */
void vb_world_switch_discard(struct vb_world *world, struct vb_world_port *in, uint32_t packet,
                             enum vb_world_drop_reason reason);

#endif
