// SPDX-License-Identifier: Apache-2.0
/*
 * A switch: forwarding tables, and admission of packets to buffers. Without lanes it has one lossy
 * queue for each port, with a limit of its own. With lanes (lanes.h) each lane is lossy, or
 * lossless by credits or by pauses, independently of the others.
 */
#ifndef VB_EVENT_SWITCH_H
#define VB_EVENT_SWITCH_H

#include "event/lanes.h"

struct vb_world_detour;

enum vb_world_balance {
    VB_WORLD_BY_FLOW = 0, /* by a hash of source, target and QP (ECMP) */
    VB_WORLD_BY_PACKET,   /* at random for each packet (Dixit, Prakash, Hu and Kompella, 2013) */
};

enum vb_world_turns {
    VB_WORLD_BY_INPUT = 0, /* an output serves its inputs round robin (a crossbar) */
    VB_WORLD_BY_ARRIVAL,   /* an output has one queue for all inputs (shared memory) */
};

/*
 * The queue that decides whether a packet gets FECN. At the root of a congestion a lane has
 * credits, and at its victims it has none (IBA A10.2.1.1.1).
 */
enum vb_world_fecn {
    VB_WORLD_FECN_ROOT = 0, /* the output queue, if its lane may send or Victim_Mask has its port */
    VB_WORLD_FECN_OUTPUT,   /* the output queue, as if all ports were in Victim_Mask */
    VB_WORLD_FECN_INPUT,    /* the input buffer, whichever output its packets have */
};

struct vb_world_marking {
    uint32_t low, high; /* bytes of the queue: Kmin, Kmax; both 0: nothing is marked */
    double most;        /* Pmax: the probability at `high`; above all packets are marked */
};

struct vb_world_class_config {
    struct vb_world_lane_config flow;
    struct vb_world_marking mark;
    double alpha;   /* lossy: a queue has at most alpha times the free shared buffer; 0: no limit */
    uint32_t stop;  /* pauses: bytes of one input at which its sender is paused (XOFF) */
    uint32_t go;    /* pauses: bytes at which a paused sender may go on (XON) */
    uint32_t spare; /* pauses: bytes of headroom of each input, beside the shared buffer */
};

struct vb_world_switch_config {
    uint32_t ports;
    uint32_t lanes;  /* 0: one lossy queue for each port */
    uint64_t buffer; /* bytes: of each port without lanes, shared with lanes; 0: no limit */
    struct vb_world_marking mark; /* without lanes */
    struct vb_world_class_config lane[VB_WORLD_LANES];
    struct vb_world_arbiter_tables tables;
    enum vb_world_balance balance;
    enum vb_world_turns turns;
    uint32_t cut_through; /* bytes after which a packet is forwarded; 0: store and forward */
    uint64_t lifetime;    /* ps at the head of a queue (HOQLife); 0: no limit */
    uint32_t fecn;        /* bytes above which packets get FECN; 0: never */
    enum vb_world_fecn fecn_at;
    uint32_t fecn_rate; /* Marking_Rate: the mean number of packets between two that get it */
    bool fecn_to_hosts; /* VB_WORLD_FECN_ROOT: the ports to hosts are in Victim_Mask */
    /*
     * A range extender: packets that come by one of its two ports leave by the other. The number is
     * the buffer of each lane at port 1, the port to the other extender, which has credits for all
     * of it: FCCL's window does not apply between the two. 0: a switch.
     */
    uint32_t extender;
    bool floods;         /* packets without a route leave by all ports but their own */
    uint32_t management; /* bytes of each output's queue for VL15; 0: no VL15 */
    struct vb_world_watchdog_config watchdog; /* of lanes with pauses; detect 0: none */
};

/* The ports of a multicast group. A packet leaves by all of them but the one by which it came. */
struct vb_world_group {
    uint16_t *port;
    uint32_t count;
};

struct vb_world_switch {
    struct vb_world_table table;
    uint32_t *port;                 /* by number: index in vb_world.port (vb_world_node.port) */
    struct vb_world_detour *detour; /* NULL: all packets follow the table */
    uint32_t lanes, fecn;
    enum vb_world_balance balance;
    uint64_t buffer;
    struct vb_world_marking mark;
    uint64_t used;          /* bytes of the shared buffer, without headroom */
    uint64_t reserved;      /* bytes that flows have reserved, at all ports together */
    uint64_t reserved_used; /* with lanes: bytes of packets in the reserved buffer */
    uint64_t reservable;    /* bytes that flows may reserve while it is empty, if it has a buffer */
    uint64_t salt;
    uint64_t sprayed; /* packets that chose one of several ports at random */
    uint8_t *lane_of; /* SL to VL: [(input * ports + output) * 16 + level]; NULL: as it came */
    bool by_lane;     /* lane_of is indexed by the packet's lane in place of its level */
    bool *victim;     /* Victim_Mask, by port; NULL: empty, but see fecn_to_hosts */
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
 * `lanes` is [input][output][16]: the output lane by service level, or with `by_lane` by the input
 * lane. -EINVAL: no such lane; -ENOMEM.
 */
int vb_world_switch_set_lanes(struct vb_world_switch *sw, const uint8_t *lanes, bool by_lane);

/* Puts a port into Victim_Mask. -ENOMEM. */
int vb_world_switch_set_victim(struct vb_world_switch *sw, uint32_t port);

/* The lane on the next link. `input` and `output` are numbers of the switch's ports. */
static inline uint32_t vb_world_switch_lane(const struct vb_world_switch *sw, uint32_t input,
                                            uint32_t output, uint32_t lane, uint32_t level)
{
    size_t row = ((size_t)input * sw->config.ports + output) * 16;

    if (!sw->lane_of || lane >= sw->lanes)
        return lane;
    return sw->lane_of[row + (__builtin_expect(sw->by_lane, 0) ? lane : level)];
}

/*
 * The port by which the switch forwards a packet that came by port `in`, both as indices of
 * vb_world.port; VB_WORLD_NONE: none.
 */
uint32_t vb_world_switch_route(const struct vb_world *world, struct vb_world_switch *sw,
                               uint32_t in, const struct vb_world_packet *packet);

/* The first port for packets to an address, as an index of vb_world.port; or VB_WORLD_NONE. */
static inline uint32_t vb_world_switch_first_port(const struct vb_world *world,
                                                  const struct vb_world_switch *sw,
                                                  uint32_t address)
{
    uint32_t port = vb_world_table_entry(world->blocks, &sw->table, address);

    if (port == VB_WORLD_NO_PORT)
        return VB_WORLD_NONE;
    if (port >= VB_WORLD_PORT_SET)
        port = sw->table.member[sw->table.set[port - VB_WORLD_PORT_SET]];
    return sw->port[port];
}

/* The other port of a range extender; VB_WORLD_NONE: it is a switch. */
static inline uint32_t vb_world_switch_through(const struct vb_world *world,
                                               const struct vb_world_switch *sw, uint32_t in)
{
    return sw->config.extender ? sw->port[1 - world->port[in].number] : VB_WORLD_NONE;
}

/* Sets the ports of a multicast group; the switch has them. -ENOMEM. */
int vb_world_switch_set_group(struct vb_world_switch *sw, uint32_t group, const uint16_t *ports,
                              uint32_t count);

/* Sends a packet of the switch itself, which is in no input's buffer, by `out`. */
void vb_world_switch_send(struct vb_world_partition *part, struct vb_world_switch *sw, uint32_t out,
                          uint32_t packet);
void vb_world_switch_arrive(struct vb_world_partition *part, struct vb_world_switch *sw,
                            uint32_t in, uint32_t packet);
/*
 * A packet that came by that port and lane has left at the time `at`: its room becomes free.
 * `reserved`: it was in a reserved buffer.
 */
void vb_world_switch_left(struct vb_world_partition *part, struct vb_world_switch *sw,
                          uint32_t input, uint32_t lane, uint32_t bytes, bool reserved,
                          uint64_t at);
/* The same for a copy; the keeper's room becomes free when its last copy has left. */
void vb_world_switch_copy_left(struct vb_world_partition *part, struct vb_world_switch *sw,
                               uint32_t keeper, uint64_t at);
/* multicast.c: forwards a packet for a group that came by port `in`. */
void vb_world_switch_replicate(struct vb_world_partition *part, struct vb_world_switch *sw,
                               uint32_t in, uint32_t packet);
/* multicast.c: forwards a packet without a route by all ports. */
void vb_world_switch_flood(struct vb_world_partition *part, struct vb_world_switch *sw, uint32_t in,
                           uint32_t packet);
/* Bytes of the shared buffer that are not reserved. */
static inline uint64_t vb_world_switch_unreserved(const struct vb_world_switch *sw)
{
    uint64_t taken = sw->reserved > sw->reserved_used ? sw->reserved : sw->reserved_used;

    return sw->buffer > taken ? sw->buffer - taken : 0;
}

/*
 * Without lanes: the bytes of a port's queue that are not in reserved buffer. A packet that is
 * being sent counts as one of them.
 */
uint64_t vb_world_switch_others_queue(const struct vb_world_partition *part,
                                      const struct vb_world_port *port);

/* Forwards a packet by `out`, an index of vb_world.port. */
void vb_world_switch_forward(struct vb_world_partition *part, struct vb_world_switch *sw,
                             uint32_t in, uint32_t out, uint32_t packet);
/* Finds room in a buffer. False: there is none, and the packet was dropped. */
bool vb_world_switch_admit(struct vb_world_partition *part, struct vb_world_switch *sw,
                           struct vb_world_port *in, struct vb_world_port *out, uint32_t queue,
                           uint32_t packet);
/* Drops a packet that was not admitted, and returns its credits. */
void vb_world_switch_discard(struct vb_world_partition *part, struct vb_world_port *in,
                             uint32_t packet, enum vb_world_drop_reason reason);

#endif
