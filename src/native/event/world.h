// SPDX-License-Identifier: Apache-2.0
/*
 * A simulated fabric: nodes, their ports, and the packets between them, in virtual time.
 *
 * Time is in integer picoseconds. A world has no globals and is used by one thread; two runs with
 * the same seed and the same calls have the same events. The hosts are implemented by the user, sim
 * (struct vb_world_host_calls): this room transports packets and knows nothing of their protocols
 * but what links and switches need.
 *
 * A port is the transmitting end of one direction of a link. The packets on the link are a list, of
 * which only the first has an event. A port without lanes computes the departure of a packet when
 * it gets it, so its queue needs no events. A port with lanes (lanes.h: queues, flow control,
 * arbitration) has at most one event, while packets wait.
 */
#ifndef VB_EVENT_WORLD_H
#define VB_EVENT_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "event/agenda.h"
#include "event/mix.h"
#include "event/packet.h"
#include "event/table.h"

#define VB_WORLD_NEVER  UINT64_MAX
#define VB_WORLD_SECOND 1000000000000ull

struct vb_world_switch;
struct vb_world_lanes;
struct vb_world_tap;
struct vb_world_sampler;
struct vb_world_storm;
struct vb_world_telemetry;
struct vb_world_detours;
struct vb_world;

/* Implemented by sim. `context` is vb_world.hosts_context, `host` is the number of a host. */
struct vb_world_host_calls {
    /* The packet arrived; the host has to give it back to the pool. */
    void (*arrive)(void *context, uint32_t host, uint32_t packet);
    /* The host's port is free. */
    void (*ready)(void *context, uint32_t host);
    /* An event that vb_world_call has scheduled. */
    void (*call)(void *context, uint32_t what, uint32_t index);
    /* May be NULL. The packet is lost; it goes back to the pool after this call. */
    void (*dropped)(void *context, uint32_t packet);
    /* May be NULL. A switch has copied a packet; not `another`: the original goes no further. */
    void (*copied)(void *context, uint32_t packet, uint32_t copy, bool another);
    /* May be NULL where no switch is served. The packet is for a switch, and came by that port. */
    void (*managed)(void *context, uint32_t node, uint32_t port, uint32_t packet);
};

enum vb_world_drop_reason {
    VB_WORLD_DROP_FULL = 0, /* no room in a lossy queue */
    VB_WORLD_DROP_ROUTE,    /* no route to its target */
    VB_WORLD_DROP_DAMAGED,  /* bit errors */
    VB_WORLD_DROP_DOWN,     /* the link was down */
    VB_WORLD_DROP_LIFETIME, /* it was at the head of its queue for too long (HOQLife) */
    VB_WORLD_DROP_HEADROOM, /* a lossless lane's headroom was too small */
    VB_WORLD_DROP_HOPS,     /* its hop limit ran out */
    VB_WORLD_DROP_WATCHDOG, /* its lane was paused for too long */
    VB_WORLD_DROPS
};

struct vb_world_port_counters {
    uint64_t packets, bytes; /* sent */
    uint64_t busy;           /* ps of transmission */
    uint64_t queued_max;     /* the largest queue in bytes */
    uint64_t stalled;        /* ps in which packets waited for credits or by a pause (XmitWait) */
    uint64_t marked;
    uint64_t pauses; /* pause frames sent that stop the other end */
    uint64_t storms; /* storms that the watchdog has detected */
    uint64_t dropped[VB_WORLD_DROPS];
};

/* Each packet touches the first cache line and that of the counters. */
struct vb_world_port {
    _Alignas(64) uint64_t free_at;      /* end of the current transmission */
    uint64_t delay;                     /* ps: of the link */
    struct vb_world_switch *to_switch;  /* the switch at the other end; NULL: a host */
    struct vb_world_lanes *lanes;       /* NULL: one lossy queue */
    uint32_t to_host;                   /* the number of the host at the other end */
    uint32_t flight_first, flight_last; /* packets on the link; without lanes also in the queue */
    uint32_t peer;                      /* the port at the other end */
    uint32_t byte_time;                 /* ps; 0: it is not an integer */
    uint32_t node;
    uint32_t early;  /* cut-through: the peer gets a packet after so many bytes; 0: all */
    uint16_t number; /* in its node */
    bool slow_path;  /* the link has bit errors or a tap, or was down once */
    bool is_down;
    _Alignas(64) struct vb_world_port_counters traffic;
    uint64_t rate;  /* bits per second */
    uint64_t carry; /* the rest of the last division (vb_world_byte_time) */
    double bit_error_rate;
    uint64_t came_up;               /* ps: the end of the last outage; 0: there was none */
    uint64_t pause_response;        /* ps from the end of a pause frame to its effect here */
    uint64_t reserved_rate;         /* bits per second that flows have reserved */
    uint64_t reserved_buffer;       /* without lanes: bytes of the queue that flows have reserved */
    const struct vb_world_tap *tap; /* or NULL */
};

enum vb_world_node_kind { VB_WORLD_HOST, VB_WORLD_SWITCH };

struct vb_world_node {
    enum vb_world_node_kind kind;
    uint32_t host; /* of a host: its number */
    struct vb_world_switch *sw;
    uint32_t *port; /* index in vb_world.port, or VB_WORLD_NONE: no link */
    uint32_t ports;
    uint32_t address : 24; /* the first of 2^lmc addresses (packet.h); 0: a switch without one */
    uint32_t lmc : 7;
    uint32_t is_served : 1; /* Python takes its management packets */
};

struct vb_world {
    uint64_t now;
    struct vb_world_agenda agenda;
    struct vb_world_pool pool;
    struct vb_world_port *port;
    struct vb_world_node *node;
    uint32_t ports, nodes, hosts;
    bool floods;        /* a switch floods (vb_world_switch_config) */
    bool traces;        /* switches add telemetry to packets (telemetry.h) */
    uint32_t hop_limit; /* 0: none, and forwarding loops are errors */
    const struct vb_world_host_calls *on_host;
    void *hosts_context;
    uint64_t random;
    uint64_t events;
    uint64_t idle;     /* pending events that do not move packets: timers, pause refreshes */
    uint64_t watching; /* of these, those that do not keep a run from ending: samples, storms */
    struct vb_world_sampler **sampler;
    struct vb_world_storm *storm;
    struct vb_world_telemetry *telemetry; /* by packet */
    uint32_t samplers, storms, telemetry_room;
    const uint16_t (*blocks)[VB_WORLD_BLOCK]; /* of all switches' tables */
    const uint32_t *lid_host;          /* the host with each LID; NULL: all have their number + 1 */
    struct vb_world_detours *detours;  /* NULL: all packets follow the forwarding tables */
    uint64_t made, delivered, dropped; /* packets */
    uint64_t copied;                   /* further packets that switches have made */
    uint32_t kept; /* packets of the pool that are keepers (packet.h), or in a host */
    bool is_quiet; /* set by the hosts: they have nothing more to send */
    int error;     /* ends the run: -ENOMEM, or VB_WORLD_END_HALT */
};

int vb_world_create(uint64_t seed, const struct vb_world_host_calls *hosts, void *context,
                    struct vb_world **world);
void vb_world_destroy(struct vb_world *world);

/* Nodes are numbered from 0. -EINVAL: VB_WORLD_HOSTS hosts exist; -ENOMEM. */
int vb_world_add_host(struct vb_world *world, uint32_t *node);
/* The world owns `sw` from now on, and frees it on failure. -ENOMEM. */
int vb_world_add_switch(struct vb_world *world, struct vb_world_switch *sw, uint32_t *node);

struct vb_world_link {
    uint64_t rate;  /* bits per second */
    uint64_t delay; /* ps */
    double bit_error_rate;
    uint64_t pause_response; /* ps from a pause frame's arrival to its effect */
};

/*
 * Both ports exist. -EINVAL: they belong to one node, or to switches with different lanes; -EBUSY:
 * a port has a link; -ENOMEM.
 */
int vb_world_connect(struct vb_world *world, uint32_t a, uint32_t a_port, uint32_t b,
                     uint32_t b_port, const struct vb_world_link *link);
/*
 * Takes both directions of the link at this port up or down at a future time. -EINVAL: there is no
 * link; -ENOMEM.
 */
int vb_world_set_link(struct vb_world *world, uint32_t node, uint32_t port, bool up, uint64_t at);

enum vb_world_end {
    VB_WORLD_END_TIME,   /* the time was reached */
    VB_WORLD_END_EVENTS, /* the number of events was reached */
    VB_WORLD_END_EMPTY,  /* no event is left */
    VB_WORLD_END_STUCK,  /* deadlock: packets wait for each other */
    VB_WORLD_END_HALT,   /* vb_world_halt: the run may be continued */
};

/*
 * Ends a run at a future time with VB_WORLD_END_HALT. With `looks` a run may end before, when
 * nothing else is left. -ENOMEM.
 */
int vb_world_halt(struct vb_world *world, uint64_t at, bool looks);

/*
 * Handles events up to and including the time `until`, at most `events` of them. Returns an enum
 * vb_world_end; -EINVAL: `until` is in the past; -ENOMEM.
 */
int vb_world_run(struct vb_world *world, uint64_t until, uint64_t events);

/*
 * Follows the forwarding tables from a host, given as a node, to the host with that address; of
 * several ports the first. 0; -EHOSTUNREACH; -ELOOP: a forwarding loop, and packets have no hop
 * limit.
 */
int vb_world_reaches(const struct vb_world *world, uint32_t node, uint32_t address);
/* The lowest rate on that route, in bits per second; 0: the first port has no link. */
uint64_t vb_world_slowest(const struct vb_world *world, uint32_t node, uint32_t address);

/* The route of a flow: the ports by which its packets leave, in order. */
struct vb_world_route {
    uint32_t count;
    uint32_t port[];
};

struct vb_world_reservation {
    uint64_t rate;   /* bits per second of each link of the route */
    uint64_t buffer; /* bytes in each switch, for packets with VB_WORLD_RESERVED */
};

/*
 * Makes a reservation along the route of packets like this one from `node`, and returns the route,
 * which vb_world_release frees. On failure nothing is reserved. -EBUSY: a link or a switch has less
 * left; -EINVAL: the packets have several routes; -EOPNOTSUPP: a lane of the route is lossless, and
 * has no buffer to reserve; -EHOSTUNREACH; -ENOMEM.
 */
int vb_world_reserve(struct vb_world *world, uint32_t node, const struct vb_world_packet *packet,
                     const struct vb_world_reservation *reservation, struct vb_world_route **route);
void vb_world_release(struct vb_world *world, struct vb_world_route *route,
                      const struct vb_world_reservation *reservation);
/*
 * The port's counters as of now. (port->traffic of a port without lanes counts packets when they
 * enter the queue; here only those are counted whose transmission has begun.)
 */
struct vb_world_port_counters vb_world_traffic(const struct vb_world *world,
                                               const struct vb_world_port *port);

/*
 * Checks that packets and credits are conserved: returns NULL, or a sentence in `text` about what
 * is wrong. `at_rest`: no packet may be in the fabric.
 */
const char *vb_world_check(const struct vb_world *world, bool at_rest, char *text, size_t size);

/* ---- for hosts, links and switches ---------------------------------------------------------- */

enum vb_world_event {
    VB_WORLD_ARRIVE = 0, /* the first packet on a port's link arrives */
    VB_WORLD_WAKE,       /* a port with lanes serves its queues */
    VB_WORLD_READY,      /* a host's port without lanes is free */
    VB_WORLD_REFRESH,    /* a pause frame is repeated before the pause ends */
    VB_WORLD_LINK_UP,
    VB_WORLD_LINK_DOWN,
    VB_WORLD_CALL,   /* vb_world_call */
    VB_WORLD_SAMPLE, /* a sampler writes a row */
    VB_WORLD_STORM,  /* a broken host repeats its pause frame */
    VB_WORLD_HALT,   /* vb_world_halt */
};

/* An event in the agenda: its kind in 4 bits, a detail in 28, and an index in 32. */
enum { VB_WORLD_KIND_SHIFT = 60, VB_WORLD_DETAIL_SHIFT = 32 };

static inline enum vb_world_event vb_world_event_of(uint64_t what)
{
    return (enum vb_world_event)(what >> VB_WORLD_KIND_SHIFT);
}

static inline uint32_t vb_world_detail_of(uint64_t what)
{
    return what >> VB_WORLD_DETAIL_SHIFT & 0xfffffff;
}

static inline void vb_world_add(struct vb_world *world, uint64_t at, enum vb_world_event event,
                                uint32_t detail, uint32_t index)
{
    int error = vb_world_agenda_add(&world->agenda, at,
                                    (uint64_t)event << VB_WORLD_KIND_SHIFT |
                                        (uint64_t)detail << VB_WORLD_DETAIL_SHIFT | index);

    if (__builtin_expect(error, 0))
        world->error = error;
}

/*
 * Schedules a call of vb_world_host_calls.call; `what` has 28 bits. It counts as an event that lets
 * no packet go on (vb_world.idle).
 */
static inline void vb_world_call(struct vb_world *world, uint64_t at, uint32_t what, uint32_t index)
{
    ++world->idle;
    vb_world_add(world, at, VB_WORLD_CALL, what, index);
}

static inline struct vb_world_packet *vb_world_packet_at(const struct vb_world *world,
                                                         uint32_t number)
{
    return &world->pool.packet[number];
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

static inline uint64_t vb_world_random(struct vb_world *world)
{
    return vb_world_splitmix(&world->random);
}

/* Uniform in [0, 1). */
static inline double vb_world_chance(struct vb_world *world)
{
    return (double)(vb_world_random(world) >> 11) * 0x1p-53;
}

void vb_world_drop(struct vb_world *world, struct vb_world_port *port, uint32_t packet,
                   enum vb_world_drop_reason reason);

/* Sends a packet of a host by the host's port; without a link the packet is lost. */
void vb_world_send(struct vb_world *world, uint32_t node, uint32_t packet);
/* Is the host's port free? */
bool vb_world_may_send(const struct vb_world *world, uint32_t node);

/* The queue of a port without lanes now, in bytes. */
static inline uint64_t vb_world_backlog(const struct vb_world *world,
                                        const struct vb_world_port *port)
{
    uint64_t wait = port->free_at > world->now ? port->free_at - world->now : 0;

    if (!wait)
        return 0;
    return port->byte_time ? wait / port->byte_time
                           : (uint64_t)((double)wait * (double)port->rate / 8e12);
}

#endif
