// SPDX-License-Identifier: Apache-2.0
/*
 * The state of simulated hosts, queue pairs and flows, and the functions that the files of sim call
 * of each other. No other room includes this, but the Python binding does for packets' bytes.
 */
#ifndef VB_SIM_STATE_H
#define VB_SIM_STATE_H

#include <string.h>

#include "event/partition.h"
#include "event/telemetry.h"
#include "hca/cq.h"
#include "hca/mr.h"
#include "hca/qp.h"
#include "sim/attachment.h"
#include "sim/capture.h"
#include "sim/sim.h"
#include "sim/slab.h"
#include "transport/transport.h"
#include "wire/bytes.h"

/* The low bits of `what` in vb_world_call, beside enum vb_nic_event; the bits above are an
 * argument. */
enum vb_sim_call {
    VB_SIM_CALL_TIMER = VB_NIC_EVENTS,
    VB_SIM_CALL_START,    /* a flow starts */
    VB_SIM_CALL_RECEIVED, /* the receive latency of a packet is over */
    VB_SIM_CALL_END,      /* a UC or UD flow has no packet under way */
    VB_SIM_CALL_HCA,      /* the timer of a program's HCA */
    VB_SIM_CALL_DEPART,   /* a packet leaves that a fault rule of a program's HCA has held */
    VB_SIM_CALL_TCP,      /* the timer of a TCP connection */
    VB_SIM_CALL_TCP_ACK,  /* the jitter of an acknowledgement is over */
    VB_SIM_CALL_OPEN,     /* a flow has started at the other end */
    VB_SIM_CALL_CLOSE,    /* it has ended there */
    VB_SIM_CALL_LEAVE,    /* a packet's payload is in the adapter (host_inside.h) */
    VB_SIM_CALL_TAKEN,    /* a core has taken a completion of a flow */
    VB_SIM_CALL_TOLD,     /* the adapter knows of requests of a flow */
    VB_SIM_CALL_WAKE,     /* of a core, or a program (vb_sim_inside_wake) */
    VB_SIM_CALL_BITS = VB_NIC_EVENT_BITS
};

enum {
    VB_SIM_KEY = 1 << 8 | 0x5a, /* of the one memory region */
    VB_SIM_QKEY = 0x11111111,
};

/*
 * One end of a flow: its connection to the adapter and the simulation's own fields, which are one
 * cache line, and the queue pair. The endpoint of the packet engine, the send queue and the
 * reaction follow in the same piece of memory (flow_hca.c).
 */
struct vb_sim_qp {
    struct vb_nic_qp nic;         /* of UD: in vb_sim_host.datagrams */
    struct vb_world_route *route; /* of a flow that has reserved bandwidth or buffer; or NULL */
    uint64_t unposted;            /* bytes of the flow that are not in the send queue yet */
    uint32_t flow;                /* index in vb_sim.flow */
    uint32_t in_flight : 23;      /* UC and UD: the number of packets under way */
    uint32_t path : 7;            /* path bits: which of its port's addresses it sends from */
    uint32_t sent : 1;            /* UC and UD: the last packet has left */
    uint32_t has_buffer : 1;      /* the flow has reserved buffer */
    struct vb_qp_shared shared;
    struct vb_qp qp;
};

struct vb_sim_host {
    struct vb_adapter adapter;
    struct vb_context context;
    struct vb_sim *sim;
    struct vb_sim_share *share; /* of its partition */
    struct vb_engine *engine;
    struct vb_nic nic;
    struct vb_nic_user flows;
    struct vb_nic_config *own_config; /* of nic.config; NULL: it has the world's */
    struct vb_nic_qp *datagrams;      /* the last of the UD queue pairs that have more to send */
    bool datagram_turn;               /* datagrams and the engine's packets take turns */
    bool program_waits, program_next; /* a program has packets for the port; it is its turn there */
    uint64_t timer_at;                /* of the pending event; or VB_WORLD_NEVER */
    void *groups;                /* the adapter's table of multicast groups; NULL: it is in none */
    enum vb_sim_framing framing; /* of its packets, and the link layer of its port */
    uint32_t numbers;            /* the queue pair numbers that were given to flows */
    uint32_t late_first, late_last; /* packets during the receive latency; VB_WORLD_NONE: none */
    uint32_t held_first; /* a program's packets, by vb_sim_wire_packet.leave_at; VB_WORLD_NONE */
    struct vb_sim_attachment *attachment; /* of a program's HCA; or NULL */
    uint32_t attached_port;               /* the index of this host among the attachment's ports */
    struct vb_sim_tcp_host *tcp;          /* NULL: it has sent nothing by TCP */
    struct vb_sim_cct_log *log;           /* NULL: no event was logged */
};

/* An element of a flow's list of successors: flows that start after it. */
struct vb_sim_successor {
    uint32_t flow, next; /* indices in vb_sim.flow and vb_sim.successor */
};

/*
 * A multicast group of programs, one of VB_MAX_GROUPS from VB_MAX_GROUPS on. The Python binding
 * names it whenever a port joins or leaves.
 */
struct vb_sim_program_group {
    uint8_t gid[16];
    uint32_t first; /* the host that is its first member; VB_WORLD_NONE: it has none */
};

/*
 * What the hosts of one partition (event/partition.h) have in common, because one thread runs them:
 * a completion queue for all flows, and memory of queue pairs.
 */
struct vb_sim_share {
    struct vb_sim *sim;
    struct vb_world_partition *part;
    struct vb_packet packet; /* the packet that an engine is sending */
    struct vb_path path;     /* the path of `packet`, if that is a datagram */
    struct vb_evidence *evidence;
    struct vb_adapter cq_adapter;
    struct vb_context cq_context;
    struct vb_cq *cq;
    struct vb_cq_shared *cq_shared;
    uint32_t completions; /* the number that was read */
    struct vb_sim_slab slab;
    uint64_t flows_ended; /* here */
};

/* The queue pairs of a flow that runs, at its source and its target; or its connection. */
union vb_sim_ends {
    struct vb_sim_qp *qp[2];
    struct vb_sim_connection *connection;
};

struct vb_sim {
    struct vb_world *world;
    struct vb_sim_config config;
    struct vb_sim_host **host;
    uint32_t hosts;
    struct vb_sim_share **share; /* by the number of the partition */
    uint32_t shares;
    /* common to all adapters */
    struct vb_segment_header *header;
    struct vb_mr_shared *mr;
    struct vb_recv_wqe *receive; /* the one receive request of all receive queues */
    struct vb_pd pd;
    bool barriers;
    /* flows */
    struct vb_sim_flow *flow;
    union vb_sim_ends *ends; /* by flow */
    uint64_t flows, flow_room;
    struct vb_sim_successor *successor;
    uint64_t successors, successor_room;
    uint32_t groups;
    uint32_t group_size[VB_MAX_GROUPS]; /* the number of members */
    struct vb_sim_capture *captures;
    /* programs (attachment.c) */
    struct vb_nic_table table;               /* their queue pairs */
    struct vb_sim_wire_packet **wire_packet; /* by packet */
    uint32_t wire_packets;
    struct vb_sim_program_group program_group[VB_MAX_GROUPS]; /* program_groups.c */
    uint32_t program_groups;
    vb_sim_group_change *on_group; /* set before programs join groups */
    void *on_group_context;
    bool groups_are_split; /* several groups may have one GID (program_groups.c) */
    int *readable_fd;      /* descriptors of programs that became readable */
    uint32_t readable, readable_room;
    /* management packets that wait for Python (door.c) */
    uint32_t door_first, door_last; /* VB_WORLD_NONE: none */
    void (*on_door)(void *context); /* called where the run does not end, since a program waits */
    void *on_door_context;
    /* sockets of programs (socket.c), by number; and what has happened to them */
    struct vb_sim_socket **socket;
    uint32_t sockets, socket_room;
    struct vb_sim_socket_news *news;
    uint32_t news_first, news_count, news_room;
};

static inline struct vb_sim_host *vb_sim_host_of(const struct vb_adapter *adapter)
{
    return (struct vb_sim_host *)((char *)(uintptr_t)adapter -
                                  offsetof(struct vb_sim_host, adapter));
}

static inline struct vb_sim_qp *vb_sim_qp_of(const struct vb_qp *qp)
{
    return (struct vb_sim_qp *)((char *)(uintptr_t)qp - offsetof(struct vb_sim_qp, qp));
}

static inline struct vb_sim_qp *vb_sim_qp_of_nic(const struct vb_nic_qp *qp)
{
    return (struct vb_sim_qp *)(uintptr_t)qp; /* its first member */
}

/* The source's queue pair of a flow that runs. */
static inline struct vb_sim_qp *vb_sim_flow_qp(const struct vb_sim *sim,
                                               const struct vb_sim_flow *flow)
{
    return sim->ends[flow - sim->flow].qp[0];
}

static inline struct vb_sim_host *vb_sim_qp_host(const struct vb_sim_qp *qp)
{
    return (struct vb_sim_host *)((char *)qp->qp.context - offsetof(struct vb_sim_host, context));
}

/* The address of a host (event/packet.h) with these path bits, as far as it has them. */
static inline uint32_t vb_sim_address(const struct vb_sim_host *host, uint32_t path)
{
    const struct vb_world_node *node = &host->sim->world->node[host->nic.node];

    return VB_LIKELY(!path) ? node->address : node->address | (path & ((1u << node->lmc) - 1));
}

/* The partition of a world that has one: those of TCP, UC, UD, groups and programs. */
static inline struct vb_world_partition *vb_sim_whole(const struct vb_sim *sim)
{
    return sim->world->partition;
}

static inline uint64_t vb_sim_ns(const struct vb_sim_host *host)
{
    return host->nic.part->now / 1000;
}

static inline void vb_sim_write_gid(uint8_t gid[16], uint32_t host)
{
    memset(gid, 0, 16);
    gid[0] = 0xfd;
    vb_wire_put32(gid + 12, host + 1);
}

static inline void vb_sim_write_group(uint8_t gid[16], uint32_t group)
{
    memset(gid, 0, 16);
    gid[0] = 0xff; /* a permanent group (RFC 4291) */
    gid[1] = 0x0e;
    vb_wire_put32(gid + 12, group + 1);
}

/* groups.c */
void vb_sim_groups_free(struct vb_sim_host *host);
/* The number of hosts that receive packets from `source`: the group's members without itself. */
uint32_t vb_sim_group_receivers(const struct vb_sim *sim, uint32_t group, uint32_t source);
/* A switch has copied a packet of a UC or UD flow. */
void vb_sim_unreliable_copied(struct vb_sim *sim, const struct vb_world_packet *packet);

/* flow_hca.c: what all hosts have in common, and one host's adapter. -ENOMEM. */
int vb_sim_common_create(struct vb_sim *sim);
void vb_sim_common_destroy(struct vb_sim *sim);
/* The partitions have changed: connects each host with what its new one has. -ENOMEM. */
int vb_sim_divided(void *context);
int vb_sim_host_create(struct vb_sim *sim, struct vb_sim_host **host);
/* Destroys the queue pairs of flows and groups. */
void vb_sim_host_empty(struct vb_sim_host *host);
void vb_sim_host_destroy(struct vb_sim_host *host);
/* A new number for a queue pair of this host. */
uint32_t vb_sim_qp_number(struct vb_sim_host *host);
/*
 * A queue pair in RTS that is not connected yet; `depth`: of the send queue, 0: a responder. It is
 * not of a flow yet. -ENOMEM.
 */
int vb_sim_qp_create(struct vb_sim_host *host, enum ibv_qp_type type, uint32_t depth,
                     uint32_t number, struct vb_sim_qp **qp);
/* Connects it with a queue pair of another host. -ENOMEM. */
int vb_sim_qp_connect(struct vb_sim_qp *qp, const struct vb_sim_host *other, uint32_t number,
                      uint8_t level);
/* Gives the queue pair receive requests; vb_sim_qp_received posts one again. */
void vb_sim_qp_receives(struct vb_sim_qp *qp);
void vb_sim_qp_received(struct vb_sim_qp *qp, const struct vb_cqe *entry);
void vb_sim_qp_destroy(struct vb_sim_qp *qp);
extern const struct vb_host_calls vb_sim_port_calls;

/* host.c */
extern const struct vb_world_host_calls vb_sim_host_calls;
extern const struct vb_nic_calls vb_sim_flow_calls;
void vb_sim_host_pump(struct vb_sim_host *host);
void vb_sim_kick(struct vb_qp *qp);
/* Requests were posted: the adapter sees them now, or after the doorbell's delay. */
void vb_sim_doorbell(struct vb_sim_qp *qp);

/* datagrams.c */
static inline bool vb_sim_is_unreliable(const struct vb_sim_qp *qp)
{
    return qp->qp.type != IBV_QPT_RC;
}
/* Adds a UD queue pair to the host's list, if it has datagrams to send. */
void vb_sim_datagrams_add(struct vb_sim_qp *qp);
static inline void vb_sim_datagrams_remove(struct vb_sim_qp *qp)
{
    vb_sim_nic_queue_remove(&vb_sim_qp_host(qp)->datagrams, &qp->nic);
}
/* Makes the next datagram of the host in vb_sim_share.packet. NULL: there is none. */
struct vb_sim_qp *vb_sim_datagrams_next(struct vb_sim_host *host);
/* The source's queue pair of a UC or UD flow's packet. NULL: the flow has ended, or it is of none.
 */
struct vb_sim_qp *vb_sim_unreliable_sender(const struct vb_sim *sim,
                                           const struct vb_world_packet *packet);
/* A packet of a UC or UD flow has arrived, or was lost. */
void vb_sim_unreliable_arrived(struct vb_sim_host *host, const struct vb_world_packet *packet,
                               uint64_t accepted);
void vb_sim_unreliable_dropped(struct vb_sim *sim, const struct vb_world_packet *packet);
/* Ends the UC or UD flow if all its packets have left and none is under way. */
void vb_sim_unreliable_check_end(struct vb_sim_qp *qp);
/* Ends it: bytes that have not arrived are lost. */
void vb_sim_unreliable_end(struct vb_sim_qp *qp);

/* flows.c, dependencies.c */
/* Makes room for so many dependencies. -ENOMEM. */
int vb_sim_dependencies_reserve(struct vb_sim *sim, uint64_t afters);
/* Adds them; `base` is the number of the first flow. */
void vb_sim_dependencies_add(struct vb_sim *sim, const struct vb_sim_dependency *after,
                             uint64_t afters, uint32_t base);
/* The flow was received: schedules the successors that have no other predecessor left. */
void vb_sim_dependencies_release(struct vb_sim *sim, struct vb_sim_flow *flow);

/* Hosts reach each other only if their link layers are the same. */
static inline bool vb_sim_same_link_layer(const struct vb_sim_host *one,
                                          const struct vb_sim_host *other)
{
    return (one->framing == VB_SIM_INFINIBAND) == (other->framing == VB_SIM_INFINIBAND);
}
/* The GRH that InfiniBand's multicast packets always have (IBA 9.4, 10.5). */
static inline uint32_t vb_sim_grh_bytes(const struct vb_sim_host *host, uint8_t marks)
{
    return host->framing == VB_SIM_INFINIBAND && (marks & VB_WORLD_TO_GROUP) ? VB_GRH : 0;
}

/* door.c: takes a management packet that came to a node by this port. */
void vb_sim_door_take(void *context, uint32_t node, uint32_t port, uint32_t packet);

/* The same for a host. False: the packet is for the program's adapter. */
bool vb_sim_door_arrive(struct vb_sim_host *host, uint32_t packet);

/* attachment.c: the memory for a packet's bytes; NULL: no memory. */
struct vb_sim_wire_packet *vb_sim_wire_packet_for(struct vb_sim *sim, uint32_t packet);
/* attachment.c: events for a host's program, whose packets have VB_WORLD_HAS_BYTES. */
void vb_sim_attachment_arrive(struct vb_sim_host *host, uint32_t packet);
void vb_sim_attachment_ready(struct vb_sim_host *host);
/* VB_NIC_LEFT */
void vb_sim_attachment_left(struct vb_nic_qp *nic);
/* Will the program's HCA write the payload of a packet that has arrived to memory? */
bool vb_sim_attachment_will_take(struct vb_sim_host *host, uint32_t packet);
void vb_sim_attachment_expire(struct vb_sim_host *host);
void vb_sim_attachments_free(struct vb_sim *sim);
/* attachment.c: a program may run, since this descriptor has become readable; or, in another
 * process, that of a host: ~fd. */
void vb_sim_note_readable(struct vb_sim *sim, int fd);
/* The same for a host that has an inside, whose program an interrupt has woken; -1: any. */
void vb_sim_attachment_wake(struct vb_sim_host *host, int fd);
/* The time vb_sim_wire_packet.leave_at of the first packet that is held has come. */
void vb_sim_wire_packet_leave(struct vb_sim_host *host);
void vb_sim_wire_packet_copied(struct vb_sim *sim, uint32_t packet, uint32_t copy);

void vb_sim_flow_start(struct vb_sim *sim, uint32_t number);
/* A core of its host has taken a completion of the flow: enum vb_sim_taken. */
void vb_sim_flow_taken(struct vb_sim *sim, uint32_t number, uint32_t what);
/* The flow's target gets its queue pair, or loses it. */
void vb_sim_flow_open(struct vb_sim *sim, uint32_t number);
void vb_sim_flow_close(struct vb_sim *sim, uint32_t number);
/* Handles the completions that the last call of this host's engine has written. */
void vb_sim_flows_complete(struct vb_sim_host *host);
void vb_sim_flow_end(struct vb_sim *sim, struct vb_sim_flow *flow, enum vb_flow_state state);
void vb_sim_flows_free(struct vb_sim *sim);

#endif
