// SPDX-License-Identifier: Apache-2.0
/*
 * A simulated fabric: nodes, their ports, and the packets between them, in virtual time.
 *
 * Time is in integer picoseconds. A world has no globals and one user; two runs with the same seed
 * and the same calls have the same events. The hosts are implemented by the user, sim (struct
 * vb_world_host_calls): this room transports packets and knows nothing of their protocols but what
 * links and switches need.
 *
 * The nodes are divided into partitions (partition.h), each with its own time and its own pending
 * events. How they are divided, and how many threads run them, changes no result.
 *
 * The packets on a link are a list at the port where they arrive, of which only the first has an
 * event. A port without lanes computes the departure of a packet when it gets it, so its queue
 * needs no events. A port with lanes (lanes.h: queues, flow control, arbitration) has at most one
 * event, while packets wait.
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
struct vb_world_gate;
struct vb_world_sampler;
struct vb_world_storm;
struct vb_world_telemetry;
struct vb_world_detours;
struct vb_world;
struct vb_world_partition;
struct vb_world_crew;

/*
 * Implemented by sim. `context` is vb_world.hosts_context, `host` is the number of a host. Several
 * threads call the functions, each for the hosts of the partitions that it runs.
 */
struct vb_world_host_calls {
    /* The packet arrived; the host has to give it back to the pool. */
    void (*arrive)(void *context, uint32_t host, uint32_t packet);
    /* The host's port is free. */
    void (*ready)(void *context, uint32_t host);
    /* An event that vb_world_call has scheduled. */
    void (*call)(void *context, uint32_t what, uint32_t index);
    /* May be NULL. The packet is lost; it goes back to the pool after this call. */
    void (*dropped)(void *context, struct vb_world_partition *part, uint32_t packet);
    /* May be NULL. A switch has copied a packet; not `another`: the original goes no further. */
    void (*copied)(void *context, struct vb_world_partition *part, uint32_t packet, uint32_t copy,
                   bool another);
    /* May be NULL where no switch is served. The packet is for a switch, and came by that port. */
    void (*managed)(void *context, uint32_t node, uint32_t port, uint32_t packet);
    /* May be NULL: never. The hosts have nothing more to send. */
    bool (*is_quiet)(const void *context);
    /* Required where vb_world_call is used: the node that an event of it belongs to. */
    uint32_t (*node_of)(const void *context, uint32_t what, uint32_t index);
    /* May be NULL. The partitions have changed. -ENOMEM. */
    int (*divided)(void *context);
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

/*
 * One end of a link: it transmits in one direction, and receives in the other. Each packet touches
 * the first cache line, and at the transmitting end that of the counters.
 */
struct vb_world_port {
    _Alignas(64) uint64_t free_at;      /* end of the current transmission */
    uint64_t delay;                     /* ps: of the link */
    struct vb_world_switch *sw;         /* whose port it is; NULL: a host's */
    struct vb_world_lanes *lanes;       /* NULL: one lossy queue */
    uint32_t host;                      /* the number of the host whose port it is */
    uint32_t arrive_first, arrive_last; /* packets on the link to this port; where the other end
                                           has no lanes also those in its queue */
    uint32_t peer;                      /* the port at the other end */
    uint32_t byte_time;                 /* ps; 0: it is not an integer */
    uint32_t node;
    uint32_t early;  /* cut-through: the peer gets a packet after so many bytes; 0: all */
    uint16_t number; /* in its node */
    bool slow_path;  /* the link to this port has bit errors or a tap, was down once, or is_gated */
    bool crosses : 1;  /* the other end is in another partition */
    bool is_gated : 1; /* `gate` keeps something back */
    _Alignas(64) struct vb_world_port_counters traffic;
    uint64_t rate;   /* bits per second */
    uint64_t carry;  /* the rest of the last division (vb_world_byte_time) */
    uint64_t random; /* the state of the port's own random numbers */
    double bit_error_rate;
    uint32_t out_first, out_last;   /* sent to another partition in this window (partition.h) */
    bool is_down;                   /* the link to this port */
    bool to_host;                   /* a host is at the other end */
    uint64_t came_up;               /* ps: the end of the last outage; 0: there was none */
    uint64_t pause_response;        /* ps from the end of a pause frame to its effect here */
    uint64_t reserved_rate;         /* bits per second that flows have reserved */
    uint64_t reserved_buffer;       /* without lanes: bytes of the queue that flows have reserved */
    const struct vb_world_tap *tap; /* or NULL */
    struct vb_world_gate *gate;     /* gate.h; NULL: there was never one */
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
    uint32_t partition;     /* index in vb_world.partition */
    uint32_t joined;        /* another node of the same partition, or itself (partition.c) */
};

struct vb_world {
    uint64_t now; /* between two runs; in events: vb_world_partition.now */
    struct vb_world_port *port;
    struct vb_world_node *node;
    const uint16_t (*blocks)[VB_WORLD_BLOCK]; /* of all switches' tables */
    const uint32_t *lid_host; /* the host with each LID; NULL: all have their number + 1 */
    bool floods;              /* a switch floods (vb_world_switch_config) */
    bool traces;              /* switches add telemetry to packets (telemetry.h) */
    bool is_whole;            /* it has one partition, and each event may end a run */
    bool is_undivided;        /* it has one partition */
    bool is_divided_anew;     /* the nodes are to be divided before the next run */
    uint32_t hop_limit;       /* 0: none, and forwarding loops are errors */
    uint32_t refused_at;      /* the port whose gate has halted the run; or VB_WORLD_NONE */
    uint32_t ports, nodes, hosts;
    struct vb_world_packets packets;      /* of all partitions */
    struct vb_world_telemetry *telemetry; /* by packet; NULL: none */
    struct vb_world_partition *partition;
    uint32_t partitions;
    uint32_t threads;           /* the most that run it */
    uint32_t worth_a_thread;    /* events of a window for each thread: with fewer one runs it */
    struct vb_world_crew *crew; /* crew.h; NULL: one thread runs the world */
    uint64_t window;            /* ps: no partition affects another one earlier; 0: there is one */
    const struct vb_world_host_calls *on_host;
    void *hosts_context;
    uint64_t seed, random;
    struct vb_world_agenda agenda; /* samples, and where runs are halted */
    uint64_t watching; /* events there, and storms, that do not keep a run from ending */
    struct vb_world_sampler **sampler;
    struct vb_world_storm *storm;
    uint32_t samplers, storms;
    struct vb_world_detours *detours; /* NULL: all packets follow the forwarding tables */
    int error;                        /* ends the run: -ENOMEM, or VB_WORLD_END_HALT */
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

/* What all partitions have counted together. */
struct vb_world_sums {
    uint64_t events, pending, idle, watching;
    uint64_t made, copied, delivered, dropped, kept, in_use; /* packets */
};

struct vb_world_sums vb_world_sums(const struct vb_world *world);
/* No event is left that a run waits for. */
bool vb_world_has_nothing(const struct vb_world *world);

/*
 * Checks that packets and credits are conserved: returns NULL, or a sentence in `text` about what
 * is wrong. `at_rest`: no packet may be in the fabric.
 */
const char *vb_world_check(const struct vb_world *world, bool at_rest, char *text, size_t size);

#endif
