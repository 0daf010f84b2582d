// SPDX-License-Identifier: Apache-2.0
/*
 * A simulated fabric: nodes, their ports, and the packets between them, in virtual time.
 *
 * Time is in integer picoseconds. A world has no globals and one thread; of two runs with the same
 * seed and the same calls each event is the same. The hosts are their user's (struct
 * vb_world_host_calls): this room carries packets and knows of them only what their links and
 * switches need.
 *
 * A port is the transmitting end of a link direction. What it has sent is a list in the order of
 * sending, of which only the first packet has an event; a port without lanes works out at once
 * when a packet will leave, so that its queue needs no events at all. A port with lanes
 * (lanes.h: queues, flow control, arbitration) has one event when something waits to be sent.
 */
#ifndef VB_EVENT_WORLD_H
#define VB_EVENT_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "event/agenda.h"
#include "event/mix.h"
#include "event/packet.h"

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

/* What the hosts do. `context` is vb_world.hosts_context, `host` a host's number. */
struct vb_world_host_calls {
    /* The packet is the host's from now on. */
    void (*arrive)(void *context, uint32_t host, uint32_t packet);
    /* The host's port may send again. */
    void (*ready)(void *context, uint32_t host);
    /* An event of their own (vb_world_call). */
    void (*call)(void *context, uint32_t what, uint32_t index);
    /* May be NULL. The packet is lost; it is still there, and not theirs. */
    void (*dropped)(void *context, uint32_t packet);
    /* May be NULL. A switch has copied a packet; `another`: there is one more than before. */
    void (*copied)(void *context, uint32_t packet, uint32_t copy, bool another);
};

enum vb_world_drop_reason {
    VB_WORLD_DROP_FULL = 0, /* no room in a lossy queue */
    VB_WORLD_DROP_ROUTE,    /* no way to its target */
    VB_WORLD_DROP_DAMAGED,  /* bit errors */
    VB_WORLD_DROP_DOWN,     /* the link was down */
    VB_WORLD_DROP_LIFETIME, /* waited too long at the head of its queue */
    VB_WORLD_DROP_HEADROOM, /* a lossless lane ran over: its headroom is too small */
    VB_WORLD_DROP_HOPS,     /* its hop limit ran out */
    VB_WORLD_DROP_WATCHDOG, /* its lane was paused for too long */
    VB_WORLD_DROPS
};

struct vb_world_port_counters {
    uint64_t packets, bytes; /* sent */
    uint64_t busy;           /* ps in which it sent */
    uint64_t queued_max;     /* bytes that waited to be sent, at most */
    uint64_t stalled; /* ps in which it had packets and no credit, or was paused (XmitWait) */
    uint64_t marked;
    uint64_t pauses; /* frames sent to stop the other end */
    uint64_t storms; /* how often the watchdog had to act */
    uint64_t dropped[VB_WORLD_DROPS];
};

/* Each packet touches the first line and the one with what is counted. */
struct vb_world_port {
    _Alignas(64) uint64_t free_at; /* the transmitter is busy until then */
    uint64_t delay;
    struct vb_world_switch *to_switch;  /* the switch at the other end; NULL: a host is there */
    struct vb_world_lanes *lanes;       /* NULL: one lossy queue */
    uint32_t to_host;                   /* the number of the host at the other end */
    uint32_t flight_first, flight_last; /* packets on the link, or bound to leave */
    uint32_t peer;                      /* port at the other end */
    uint32_t byte_time;                 /* ps; 0: it is no whole number */
    uint32_t node;
    uint32_t early;  /* a packet is given to the peer when so many bytes have come; 0: all */
    uint16_t number; /* among its node's */
    bool slow_path;  /* bit errors, was down, or somebody looks */
    bool is_down;
    _Alignas(64) struct vb_world_port_counters traffic;
    uint64_t rate;  /* bits per second */
    uint64_t carry; /* the fraction of a picosecond that the last packets left */
    double bit_error_rate;
    uint64_t came_up;               /* after it was down; 0: it never was */
    uint64_t pause_response;        /* ps from the end of a pause frame to its effect here */
    uint64_t reserved;              /* bits per second that flows were promised */
    uint64_t promised;              /* bytes of its queue that they were, without lanes */
    const struct vb_world_tap *tap; /* tap.h; NULL: nobody looks */
};

enum vb_world_node_kind { VB_WORLD_HOST, VB_WORLD_SWITCH };

struct vb_world_node {
    enum vb_world_node_kind kind;
    uint32_t host; /* its number among the hosts */
    struct vb_world_switch *sw;
    uint32_t *port; /* by number; VB_WORLD_NONE: nothing is plugged in */
    uint32_t ports;
};

struct vb_world {
    uint64_t now;
    struct vb_world_agenda agenda;
    struct vb_world_pool pool;
    struct vb_world_port *port;
    struct vb_world_node *node;
    uint32_t ports, nodes, hosts;
    bool floods;        /* one of the switches does */
    bool traces;        /* switches write telemetry into packets' records */
    uint32_t hop_limit; /* of packets, 0: none; with one the tables may lead round */
    const struct vb_world_host_calls *on_host;
    void *hosts_context;
    uint64_t random;
    uint64_t events;
    uint64_t idle; /* pending events that move no packet by themselves: timers, refreshed pauses */
    uint64_t watching; /* of these, those that nobody waits for: a look (sample.h), a storm */
    struct vb_world_sampler **sampler;
    struct vb_world_storm *storm;
    struct vb_world_telemetry *telemetry; /* by packet */
    uint32_t samplers, storms, telemetry_room;
    struct vb_world_detours *detours;  /* detour.h; NULL: packets take the ways of the tables */
    uint64_t made, delivered, dropped; /* packets */
    uint64_t copied;                   /* more of them, made by switches for multicast */
    uint32_t kept; /* of the pool, and under way no more: for its copies' room, or in a host */
    bool is_quiet; /* the hosts have nothing more to do (theirs to say) */
    int error;     /* -ENOMEM: the run cannot go on; VB_WORLD_END_HALT: it is to end now */
};

int vb_world_create(uint64_t seed, const struct vb_world_host_calls *hosts, void *context,
                    struct vb_world **world);
void vb_world_destroy(struct vb_world *world);

/* Numbers of nodes count up from 0. Negative errno. */
int vb_world_add_host(struct vb_world *world, uint32_t *node);
/* `sw` is the world's from now on; on failure too. */
int vb_world_add_switch(struct vb_world *world, struct vb_world_switch *sw, uint32_t *node);

struct vb_world_link {
    uint64_t rate;  /* bits per second */
    uint64_t delay; /* ps */
    double bit_error_rate;
    uint64_t pause_response; /* ps after which either end does what a pause frame says */
};

/* The ports are there. -EINVAL: one node, or switches whose lanes differ; -EBUSY: plugged in. */
int vb_world_connect(struct vb_world *world, uint32_t a, uint32_t a_port, uint32_t b,
                     uint32_t b_port, const struct vb_world_link *link);
/* Both directions of the link at this port, at a time to come. -EINVAL: nothing is plugged in. */
int vb_world_set_link(struct vb_world *world, uint32_t node, uint32_t port, bool up, uint64_t at);

enum vb_world_end {
    VB_WORLD_END_TIME,   /* the time has come */
    VB_WORLD_END_EVENTS, /* so many events happened */
    VB_WORLD_END_EMPTY,  /* nothing will happen any more */
    VB_WORLD_END_STUCK,  /* packets wait for each other, for ever */
    VB_WORLD_END_HALT,   /* vb_world_halt asked for it: the run may be gone on with at once */
};

/* A run is to end then, unless it is over before; a time to come. With `looks` only to be looked
 * at: no run waits for it. -ENOMEM. */
int vb_world_halt(struct vb_world *world, uint64_t at, bool looks);

/* Up to and with `until`; at most `events`. enum vb_world_end; -EINVAL: in the past; -ENOMEM. */
int vb_world_run(struct vb_world *world, uint64_t until, uint64_t events);

/*
 * The ports that wait for each other, from the first one that is found blocked along what it waits
 * for, until one comes twice or a host is reached; the number of ports.
 */
uint32_t vb_world_blocked(const struct vb_world *world, uint32_t *port, uint32_t room);

/*
 * Do the tables lead from this node, a host, to that host? Of several ways the first is followed.
 * 0, -EHOSTUNREACH; -ELOOP: they lead round, and packets have no hop limit.
 */
int vb_world_reaches(const struct vb_world *world, uint32_t node, uint32_t host);
/* The lowest rate on that way, in bits per second, as far as the tables lead; 0: nowhere. */
uint64_t vb_world_slowest(const struct vb_world *world, uint32_t node, uint32_t host);

/*
 * The same for a multicast group, of which a packet is followed to all its ends. -EHOSTUNREACH: it
 * has none.
 */
int vb_world_group_reaches(const struct vb_world *world, uint32_t node, uint32_t group);

/*
 * Makes the group's tables in all switches: a tree to these hosts (nodes), which senders everywhere
 * reach. -EHOSTUNREACH: no way leads from one of them to another, and nothing is changed; -ENOMEM.
 */
int vb_world_set_tree(struct vb_world *world, uint32_t group, const uint32_t *members,
                      uint32_t count);

/* The ports that a flow's packets leave by, on their way to a host. */
struct vb_world_route {
    uint32_t count;
    uint32_t port[];
};

struct vb_world_reservation {
    uint64_t rate;   /* bits per second of each link of the way; 0: none */
    uint64_t buffer; /* bytes of each switch, for packets with VB_WORLD_PROMISED; 0: none */
};

/*
 * Promises that on the way from `node` that packets like this one take, and says which way it is
 * (free it). -EBUSY: a link or a switch has less left, and nothing was promised; -EINVAL: packets
 * take different ways; -EOPNOTSUPP: a lane of the way loses nothing, so that there is no buffer to
 * be promised; -EHOSTUNREACH; -ENOMEM.
 */
int vb_world_reserve(struct vb_world *world, uint32_t node, const struct vb_world_packet *packet,
                     const struct vb_world_reservation *promise, struct vb_world_route **way);
void vb_world_release(struct vb_world *world, struct vb_world_route *way,
                      const struct vb_world_reservation *promise);
/*
 * Bytes that each switch of that way could promise if it had promised nothing and were empty;
 * UINT64_MAX: any, or there is no one way.
 */
uint64_t vb_world_buffer_most(struct vb_world *world, uint32_t node,
                              const struct vb_world_packet *packet);

/*
 * What the port has sent by now: packets that have begun to leave, the time up to now, and with it
 * a stall that goes on. (Its own figures are ahead of that: a port without lanes counts what
 * waits.)
 */
struct vb_world_port_counters vb_world_traffic(const struct vb_world *world,
                                               const struct vb_world_port *port);

/* What must hold: NULL, or a sentence about what does not. At rest: nothing is in the fabric. */
const char *vb_world_check(const struct vb_world *world, bool at_rest, char *text, size_t size);

/* ---- for hosts, links and switches ---------------------------------------------------------- */

enum vb_world_event {
    VB_WORLD_ARRIVE = 0, /* the first packet of a port's flight is at the other end */
    VB_WORLD_WAKE,       /* a port with lanes looks at its queues again */
    VB_WORLD_READY,      /* a host's port without lanes is free */
    VB_WORLD_REFRESH,    /* a pause is said again before it ends */
    VB_WORLD_LINK_UP,
    VB_WORLD_LINK_DOWN,
    VB_WORLD_CALL,   /* the hosts' own */
    VB_WORLD_SAMPLE, /* a sampler looks at its queues */
    VB_WORLD_STORM,  /* a host that is broken sends another pause */
    VB_WORLD_HALT,   /* vb_world_halt */
};

static inline void vb_world_add(struct vb_world *world, uint64_t at, enum vb_world_event event,
                                uint32_t detail, uint32_t index)
{
    int error = vb_world_agenda_add(
        &world->agenda, at, (uint64_t)event << 56 | (uint64_t)(detail & 0xffffff) << 32 | index);

    if (__builtin_expect(error, 0))
        world->error = error;
}

/* Comes back as vb_world_host_calls.call; it frees no packet that waits for another
 * (vb_world.idle). */
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

static inline uint64_t vb_world_splitmix(uint64_t *state)
{
    return vb_world_mix(*state += VB_WORLD_GOLDEN);
}

static inline uint64_t vb_world_random(struct vb_world *world)
{
    return vb_world_splitmix(&world->random);
}

/* In [0, 1). */
static inline double vb_world_chance(struct vb_world *world)
{
    return (double)(vb_world_random(world) >> 11) * 0x1p-53;
}

void vb_world_drop(struct vb_world *world, struct vb_world_port *port, uint32_t packet,
                   enum vb_world_drop_reason reason);

/* A packet of a host's own making goes to its port; what the port does with it is its own. */
void vb_world_send(struct vb_world *world, uint32_t node, uint32_t packet);
/* May the port of a host be given another packet now? */
bool vb_world_may_send(const struct vb_world *world, uint32_t node);

/* The queue before a port without lanes, in bytes, as it is now. */
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
