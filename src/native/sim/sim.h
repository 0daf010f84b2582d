// SPDX-License-Identifier: Apache-2.0
/*
 * Simulated hosts: each an adapter with the packet engine that also runs live, on a port of a
 * simulated fabric (event/world.h); and flows, which post RDMA requests on them without a program.
 * The Python binding calls these functions, from one thread.
 *
 * These adapters are small: what adapters of live processes keep in a segment for their peers
 * (rings, tables for each possible object) is here only as large as it must be, or common to all
 * hosts. Payload is virtual. Every host has one memory region, all addresses, under one key.
 *
 * A flow has a connection of its own while it lasts: two queue pairs, made when it starts and gone
 * when it has ended. A number of a queue pair comes back only after many others, so that what is
 * late on the way does not meet the next connection.
 */
#ifndef VB_SIM_SIM_H
#define VB_SIM_SIM_H

#include "event/switch.h"
#include "event/world.h"
#include "sim/congestion.h"
#include "tcp/config.h"
#include "transport/engine.h"

struct vb_sim;

/* What a packet costs on the wire besides its transport headers, payload and pad. */
enum vb_sim_framing {
    VB_SIM_BARE = 0,   /* payload alone counts; packets without have VB_SIM_BARE_BYTES */
    VB_SIM_ETHERNET,   /* RoCE v2 over IPv4, with preamble and gap */
    VB_SIM_INFINIBAND, /* LRH and both CRCs, GRH of multicast */
};

enum { VB_SIM_BARE_BYTES = 64, VB_SIM_FLOW_DEPTH_MAX = 64, VB_SIM_OWN_LEVEL = 16 };

/* A flow's type besides those of queue pairs; its opcode is an enum vb_tcp_kind then. */
enum { VB_SIM_FLOW_TCP = 0x40 };

/* A jitter by the slowest link of the connection's way and its round trip (tcp.c). */
static const uint64_t VB_SIM_JITTER_AUTO = UINT64_MAX;

struct vb_sim_config {
    uint64_t seed;
    enum vb_sim_framing framing;
    uint16_t mtu;                   /* 256 to 4096, a power of two */
    uint8_t timeout;                /* local ACK timeout: 4.096 us * 2^timeout; 0: none */
    uint8_t retry_cnt;              /* 0: a lost packet ends the connection */
    uint8_t rd_atomic;              /* READs outstanding on a connection */
    struct vb_engine_config engine; /* virtual_payload is set anyway */
    struct vb_congestion congestion;
    uint8_t notice_level; /* of congestion notifications; VB_SIM_OWN_LEVEL: its connection's */
    struct vb_tcp_config tcp;
    /*
     * Up to so many ps, drawn anew each time, pass before a TCP connection begins, and from an
     * acknowledgement's arrival until its sender looks at it; 0: none. Without it flows through
     * queues that drop what does not fit lock in phase (Floyd and Jacobson, 1992).
     */
    uint64_t tcp_jitter;
    uint8_t hop_limit; /* of all packets; 0: none, and loops are refused */
    /* what a host's memory, bus and adapter add; 0: nothing */
    uint64_t doorbell;        /* ps from a post to its first packet, unless the QP is at work */
    uint64_t bus_rate;        /* bits per second at which what is sent comes from memory */
    uint64_t receive_latency; /* ps from a packet's end to what follows from it */
};

/* RoCE v2, MTU 4096, timeout 14 (67 ms), 7 retries, an ACK for each packet, packets in turn. */
struct vb_sim_config vb_sim_defaults(void);

enum vb_flow_state {
    VB_FLOW_WAITING = 0,
    VB_FLOW_RUNNING,
    VB_FLOW_DONE,
    VB_FLOW_FAILED,     /* `status` says how */
    VB_FLOW_REFUSED,    /* the bandwidth or the buffer that it wants was not there */
    VB_FLOW_INCOMPLETE, /* UC, UD: it has ended, and some of it was lost */
};

/*
 * A flow that waits for others starts `start` after the last of them was received. RC flows end
 * with the last acknowledgement or the last byte of a READ; UC and UD flows when nothing of them is
 * under way any more, and then `finish` is when the last packet arrived; they are done only if all
 * of it has. TCP flows end with the last acknowledgement. A flow that was refused has no `finish`.
 */
struct vb_sim_flow {
    uint32_t source, target; /* hosts; a READ's data come from the target */
    uint64_t bytes;
    uint64_t start, finish; /* ps */
    uint64_t done;    /* bytes of the messages that have ended; UC, UD: that were received; of a
                         running RC flow see vb_sim_flow_done */
    uint64_t lost;    /* UC, UD: bytes that did not arrive, or are of a message that did not */
    uint64_t message; /* bytes of one request, at most 1 GiB */
    uint64_t reserve; /* bits per second, which it is promised and limited to; 0: neither */
    uint64_t buffer;  /* bytes of each switch, likewise, of what is in flight (RC); 0: neither */
    uint32_t resent;  /* packets sent again */
    uint32_t marked;  /* packets that came with a congestion mark */
    uint32_t notices; /* congestion notifications, TCP: echoes, that the sender got */
    uint32_t slot;    /* of its queue pair or connection, while it runs */
    union {
        uint32_t waits;    /* until it starts: flows that it waits for */
        uint32_t timeouts; /* TCP: times that its timer expired */
    };
    uint32_t edge;      /* the first of those that wait for it */
    uint8_t state;      /* enum vb_flow_state */
    uint8_t status;     /* enum ibv_wc_status */
    uint8_t level;      /* service level, or priority */
    uint8_t back_level; /* of what comes back: acknowledgements, a READ's data */
    uint8_t depth;      /* requests outstanding */
    uint8_t opcode;     /* IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ (RC), IBV_WR_SEND; or TCP's kind */
    uint8_t type;       /* IBV_QPT_RC, IBV_QPT_UC or IBV_QPT_UD; VB_SIM_FLOW_TCP */
    bool to_group;      /* UD: the target is a multicast group */
    bool management;    /* UD: on VL15 */
};

/* `then` waits for `first`; both are places in the array that they are given with. */
struct vb_sim_dependency {
    uint32_t first, then;
};

int vb_sim_create(const struct vb_sim_config *config, struct vb_sim **sim);
void vb_sim_destroy(struct vb_sim *sim);
struct vb_world *vb_sim_world(struct vb_sim *sim);

/* -EINVAL: 65536 hosts are there. -ENOMEM. */
int vb_sim_add_host(struct vb_sim *sim, uint32_t *node);
/*
 * What the host sends has this framing from now on, in place of the configuration's: so one world
 * has Ethernet and InfiniBand. -EINVAL: no such host, or a program's adapter knows it already.
 */
int vb_sim_set_framing(struct vb_sim *sim, uint32_t host, enum vb_sim_framing framing);
/*
 * A multicast group: a queue pair of each of these hosts, which are in no other place, is in it.
 * The switches' ports are for vb_world_switch_set_group. Up to VB_MAX_GROUPS of them; -ENOMEM.
 */
int vb_sim_add_group(struct vb_sim *sim, const uint32_t *hosts, uint32_t count, uint32_t *group);
const struct vb_counters *vb_sim_host_counters(const struct vb_sim *sim, uint32_t host);

/*
 * Copies of these, whose source, target, bytes, start, message (0: as large as may be), level,
 * depth (0: 1), opcode and type (0: RC) are set. The caller, verbena.sim.World, has checked each of
 * them by itself: here it is checked whether their ways carry them. -EINVAL: packets of a flow that
 * reserves have several ways; -EHOSTUNREACH, -ELOOP: the tables lead one of its ways elsewhere, or
 * round; -EMSGSIZE: `depth` of its messages are more than the buffer that it reserves; -EOPNOTSUPP:
 * there is none to reserve on its way; -ENOSPC: it reserves more than vb_sim_buffer_most; -EDEADLK:
 * it waits for itself, through others. `*bad` is then the flow's place. -ENOMEM.
 */
int vb_sim_add_flows(struct vb_sim *sim, const struct vb_sim_flow *flows, uint64_t count,
                     uint64_t *bad);
/* Bytes that each switch of a flow's way could promise, if it were empty; UINT64_MAX: any. */
uint64_t vb_sim_buffer_most(const struct vb_sim *sim, const struct vb_sim_flow *flow);
/* The same with flows that wait for others of them. */
int vb_sim_add_waiting_flows(struct vb_sim *sim, const struct vb_sim_flow *flows, uint64_t count,
                             const struct vb_sim_dependency *after, uint64_t afters, uint64_t *bad);
const struct vb_sim_flow *vb_sim_flows(const struct vb_sim *sim, uint64_t *count);
/* Bytes of it that are done by now, also of a message that has not ended. */
uint64_t vb_sim_flow_done(const struct vb_sim *sim, const struct vb_sim_flow *flow);
uint64_t vb_sim_flows_left(const struct vb_sim *sim);

/* A flow's index in its congestion control table came to the trigger of its service level. */
struct vb_sim_cct_event {
    uint64_t at;
    uint32_t flow;
};

struct vb_sim_cct_log {
    uint64_t events; /* all that there were; the last VB_CCT_LOG of them, in turn: */
    struct vb_sim_cct_event event[VB_CCT_LOG];
};

/* NULL: it has none. */
const struct vb_sim_cct_log *vb_sim_host_cct_log(const struct vb_sim *sim, uint32_t host);

/* What every host and queue pair needs, in bytes: for the limits of memory. */
uint64_t vb_sim_host_bytes(void);
uint64_t vb_sim_qp_bytes(void);

#endif
