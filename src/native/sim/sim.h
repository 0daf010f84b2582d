// SPDX-License-Identifier: Apache-2.0
/*
 * Simulated hosts and flows. A host is an adapter with the packet engine of the real device, at a
 * port of a simulated fabric (event/world.h). A flow posts RDMA requests without a program. The
 * Python binding calls these functions, from one thread.
 *
 * These adapters are small: the rings and tables that a real adapter has in its segment are as
 * small as possible, or common to all hosts. Payload has a length and no bytes. Every host has one
 * memory region of all addresses, with one key.
 *
 * A flow has a connection of its own: two queue pairs, made when it starts and destroyed when it
 * ends. QP numbers are used again only after many others, so that a late packet does not reach a
 * later connection.
 */
#ifndef VB_SIM_SIM_H
#define VB_SIM_SIM_H

#include "event/switch.h"
#include "event/world.h"
#include "sim/nic.h"
#include "tcp/config.h"
#include "transport/engine.h"

struct vb_sim;

/* The framing of packets on the wire, around transport headers, payload and pad. */
enum vb_sim_framing {
    VB_SIM_BARE = 0,   /* the payload alone; packets without payload have VB_SIM_BARE_BYTES */
    VB_SIM_ETHERNET,   /* RoCE v2 over IPv4, with preamble and gap */
    VB_SIM_INFINIBAND, /* LRH and both CRCs, GRH of multicast */
};

enum { VB_SIM_BARE_BYTES = 64, VB_SIM_FLOW_DEPTH_MAX = 64 };

/* The type of a TCP flow, beside enum ibv_qp_type; its opcode is an enum vb_tcp_kind. */
enum { VB_SIM_FLOW_TCP = 0x40 };

/* A jitter by the slowest link of the connection's route and its round trip (tcp.c). */
static const uint64_t VB_SIM_JITTER_AUTO = UINT64_MAX;

struct vb_sim_config {
    uint64_t seed;
    enum vb_sim_framing framing;
    uint16_t mtu;                   /* 256 to 4096, a power of two */
    uint8_t timeout;                /* local ACK timeout: 4.096 us * 2^timeout; 0: none */
    uint8_t retry_cnt;              /* 0: a lost packet ends the connection */
    uint8_t rd_atomic;              /* READs outstanding on a connection */
    struct vb_engine_config engine; /* virtual_payload is always set */
    struct vb_nic_config nic;       /* of each host (vb_sim_set_nic) */
    struct vb_tcp_config tcp;
    /*
     * ps: the most of a random delay before a TCP connection begins, and before each
     * acknowledgement is processed; 0: none. Without it flows synchronise at drop-tail queues
     * (Floyd and Jacobson, 1992).
     */
    uint64_t tcp_jitter;
    uint8_t hop_limit; /* of all packets; 0: none, and forwarding loops are refused */
};

/* RoCE v2, MTU 4096, timeout 14 (67 ms), 7 retries, an ACK for each packet, round robin. */
struct vb_sim_config vb_sim_defaults(void);

enum vb_flow_state {
    VB_FLOW_WAITING = 0,
    VB_FLOW_RUNNING,
    VB_FLOW_DONE,
    VB_FLOW_FAILED,     /* `status` says how */
    VB_FLOW_REFUSED,    /* its reservation failed */
    VB_FLOW_INCOMPLETE, /* UC, UD: it has ended, and bytes were lost */
};

/*
 * `start` is a time, or of a flow with predecessors a delay after the last of them was received. RC
 * and TCP flows end with the last acknowledgement, or the last byte of a READ. UC and UD flows end
 * when no packet is under way, and their `finish` is the last packet's arrival; they are done only
 * if all bytes have arrived. A refused flow has no `finish`.
 */
struct vb_sim_flow {
    uint32_t source, target; /* hosts; a READ's data come from the target */
    uint64_t bytes;
    uint64_t start, finish; /* ps */
    uint64_t done; /* bytes of completed messages; UC, UD: bytes received. See vb_sim_flow_done */
    uint64_t lost; /* UC, UD: bytes that did not arrive, or of incomplete messages */
    uint64_t message; /* bytes of a request, at most 1 GiB */
    uint64_t reserve; /* bits per second that it reserves, and is limited to; 0: neither */
    uint64_t buffer;  /* RC: bytes in each switch that it reserves, and its limit in flight */
    struct vb_sim_flow_end {
        uint32_t qp;      /* the queue pair number; TCP: 0 */
        uint32_t resent;  /* packets sent again */
        uint32_t marked;  /* packets that arrived with a congestion mark */
        uint32_t notices; /* congestion notifications that arrived; TCP: echoes */
    } end[2];             /* the source, the target */
    union {
        uint32_t waits;    /* until it starts: predecessors that were not received yet */
        uint32_t timeouts; /* TCP: expirations of the timer */
    };
    uint32_t successor; /* the first of its list; VB_WORLD_NONE */
    uint8_t state;      /* enum vb_flow_state */
    uint8_t status;     /* enum ibv_wc_status */
    uint8_t level;      /* service level, or priority */
    uint8_t back_level; /* of the other direction: acknowledgements, READ responses */
    uint8_t depth;      /* requests outstanding */
    uint8_t opcode; /* IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ (RC), IBV_WR_SEND; or enum vb_tcp_kind */
    uint8_t type;   /* IBV_QPT_RC, IBV_QPT_UC or IBV_QPT_UD; VB_SIM_FLOW_TCP */
    bool to_group;  /* UD: the target is a multicast group */
    bool management; /* UD: on VL15 */
    uint8_t path;    /* the path bits of both ends' LIDs, as far as the ports' LMCs allow */
    uint16_t pkey;   /* of the source; the target is a full member of it. 0: the default one */
};

/* Flow `then` is a successor of `first`; both are indices of the array of flows. */
struct vb_sim_dependency {
    uint32_t first, then;
};

int vb_sim_create(const struct vb_sim_config *config, struct vb_sim **sim);
void vb_sim_destroy(struct vb_sim *sim);
struct vb_world *vb_sim_world(struct vb_sim *sim);
/*
 * The world has one partition from now on, and each event may end a run: programs, and functions of
 * Python, act at the time of an event. -ENOMEM.
 */
int vb_sim_keep_whole(struct vb_sim *sim);

/* -EINVAL: 65536 hosts are there. -ENOMEM. */
int vb_sim_add_host(struct vb_sim *sim, uint32_t *node);
/*
 * Sets the framing of this host in place of the configuration's, so that a world may have Ethernet
 * and InfiniBand. -EINVAL: no such host, or a program's HCA is attached to it.
 */
int vb_sim_set_framing(struct vb_sim *sim, uint32_t host, enum vb_sim_framing framing);
/*
 * Gives the host's adapter settings of its own, before it has flows or a program. With HPCC as
 * congestion control in one of them, all hosts have it. -ENOMEM.
 */
int vb_sim_set_nic(struct vb_sim *sim, uint32_t host, const struct vb_nic_config *config);
/*
 * Makes a multicast group: each of these hosts gets a queue pair that is a member. The ports of the
 * switches are set by vb_world_switch_set_group. There are at most VB_MAX_GROUPS groups. -ENOMEM.
 */
int vb_sim_add_group(struct vb_sim *sim, const uint32_t *hosts, uint32_t count, uint32_t *group);
const struct vb_counters *vb_sim_host_counters(const struct vb_sim *sim, uint32_t host);

/*
 * Flows are given by source, target, bytes, start, message (0: the largest), level, depth (0: 1),
 * opcode and type (0: RC). The caller, verbena.sim.World, checks the values of each, flows to
 * groups, what flows reserve, and that none waits for itself. vb_sim_check_flows checks the other
 * routes: `*bad` is the index of the flow with the error. -EHOSTUNREACH, -ELOOP: vb_world_reaches,
 * in either direction.
 */
int vb_sim_check_flows(const struct vb_sim *sim, const struct vb_sim_flow *flows, uint64_t count,
                       uint64_t *bad);
/* Adds copies of these flows, with dependencies between them. -ENOMEM. */
int vb_sim_add_flows(struct vb_sim *sim, const struct vb_sim_flow *flows, uint64_t count,
                     const struct vb_sim_dependency *after, uint64_t afters);
const struct vb_sim_flow *vb_sim_flows(const struct vb_sim *sim, uint64_t *count);
/* The flow's bytes that are done by now, with those of an incomplete message. */
uint64_t vb_sim_flow_done(const struct vb_sim *sim, const struct vb_sim_flow *flow);
uint64_t vb_sim_flows_left(const struct vb_sim *sim);

/* A flow's index in the congestion control table has reached the trigger of its service level. */
struct vb_sim_cct_event {
    uint64_t at;
    uint32_t flow;
};

struct vb_sim_cct_log {
    uint64_t events; /* the number of events ever; `event` is a ring of the last ones */
    struct vb_sim_cct_event event[VB_CCT_LOG];
};

/* NULL: it has logged nothing. */
const struct vb_sim_cct_log *vb_sim_host_cct_log(const struct vb_sim *sim, uint32_t host);

/* Bytes that a packet takes on the wire. */
uint32_t vb_sim_wire_bytes(enum vb_sim_framing framing, uint32_t headers, uint32_t payload);
/* Bytes of memory of a host, and of a queue pair of depth 1. */
uint64_t vb_sim_host_bytes(void);
uint64_t vb_sim_qp_bytes(void);

#endif
