// SPDX-License-Identifier: Apache-2.0
/*
 * Flows over TCP (tcp/sender.h, tcp/receiver.h), and each direction of a connection of sockets. A
 * connection struct has both ends of one direction; that of a flow exists as long as its flow runs,
 * and those of sockets are parts of them (sim/socket.h). A host serves its connections round robin,
 * in turns with the adapter's packets; acknowledgements are sent at once.
 *
 * The header of a TCP packet in the fabric has the places of enum vb_world_tcp_field: the flow,
 * flags, and the number of the segment, or of the next segment
 * that an acknowledgement expects. SACK blocks are two offsets from that number, of 4 bytes each.
 * Packets of sockets also have a window, and their segments an acknowledgement (sim/socket.h).
 */
#ifndef VB_SIM_TCP_H
#define VB_SIM_TCP_H

#include "sim/state.h"
#include "tcp/receiver.h"
#include "tcp/sender.h"

enum { VB_SIM_LEVELS = 16 };

/* The random delay of acknowledgements at their sender (tcp.c). */
struct vb_sim_jitter {
    uint64_t most;       /* ps; 0: no jitter */
    uint64_t random;     /* the state of the connection's own random numbers */
    uint64_t until;      /* when the last acknowledgement is processed */
    bool drifts;         /* it has a slowly changing part, `drift`, too */
    uint64_t drift, aim; /* ps: its value, and the value that it approaches */
    uint64_t came_at;    /* when the last acknowledgement arrived */
};

/* The flags of a packet's header; two bits from VB_SIM_TCP_BLOCKS_SHIFT on are the number of SACK
 * blocks. */
enum vb_sim_tcp_flag {
    VB_SIM_TCP_IS_ACK = 1,
    VB_SIM_TCP_IS_LAST = 2,
    VB_SIM_TCP_IS_REDUCED = 4,
    VB_SIM_TCP_HAS_ECHO = 8,
    VB_SIM_TCP_BLOCKS_SHIFT = 4,
    VB_SIM_TCP_IS_PARCEL = 64, /* a packet of sockets that Python has made */
};

struct vb_sim_connection {
    struct vb_nic_qp nic; /* in vb_sim_tcp_host, with those of its level that have segments */
    struct vb_sim_socket *socket;       /* its source, of which this is a part; NULL: a flow's */
    const struct vb_tcp_config *config; /* the world's; a socket has its own */
    struct vb_tcp_sender sender;
    struct vb_tcp_receiver receiver;
    uint64_t timer_at; /* of the pending event; or VB_WORLD_NEVER */
    struct vb_sim_jitter jitter;
    uint32_t flow;
    uint32_t late_first, late_last; /* acknowledgements that wait for their jitter, or NONE */
    uint32_t source, target;        /* hosts */
    uint8_t level, back_level;      /* of segments, of acknowledgements */
};

/* The connections of a host that have segments to send, by priority. */
struct vb_sim_tcp_host {
    struct vb_nic_qp *last[VB_SIM_LEVELS]; /* vb_sim_nic_queue_add */
    uint32_t ready;                        /* set of the levels that have connections */
    uint32_t turn;                         /* the level that was served last */
    bool was_last; /* the last packet of the host was TCP's, and not the adapter's */
};

static inline bool vb_sim_tcp_has_more(const struct vb_sim_host *host)
{
    return host->tcp && host->tcp->ready;
}

/* Opens a connection whose flow, levels, hosts, socket and config are set. */
void vb_sim_tcp_open(struct vb_sim *sim, struct vb_sim_connection *connection, uint8_t kind,
                     uint64_t bytes);
/* Frees what a connection has, and the memory of a flow's. */
void vb_sim_tcp_close(struct vb_sim *sim, struct vb_sim_connection *connection);
/* There may be something to send: to be called after each change of a stream. */
void vb_sim_tcp_attend(struct vb_sim *sim, struct vb_sim_connection *connection);
void vb_sim_tcp_send_ack(struct vb_sim *sim, struct vb_sim_connection *connection,
                         const struct vb_tcp_ack *ack);
/* Bytes of a frame's headers, from Ethernet's to TCP's; of a parcel to IPv4's. */
uint32_t vb_sim_tcp_headers(const struct vb_world_packet *packet);
/* Bytes of a TCP packet on the wire. */
uint32_t vb_sim_tcp_wire_bytes(enum vb_sim_framing framing, uint32_t options, uint32_t payload);
/* A host's connections are served from now on. -ENOMEM. */
int vb_sim_tcp_open_host(struct vb_sim_host *host);
void vb_sim_tcp_start(struct vb_sim *sim, uint32_t number);
void vb_sim_tcp_arrive(struct vb_sim_host *host, uint32_t packet);
/* The jitter of the connection's first acknowledgement that waits is over. */
void vb_sim_tcp_take_late(struct vb_sim *sim, uint32_t flow);
/* The timer of a connection. */
void vb_sim_tcp_expire(struct vb_sim *sim, uint32_t flow);
/* Sends a segment, if one may leave. Returns its bytes; 0: none. */
uint32_t vb_sim_tcp_send(struct vb_sim_host *host);
void vb_sim_tcp_free(struct vb_sim *sim);

/* The contents of a TCP packet. */
bool vb_sim_tcp_is_ack(const struct vb_world_packet *packet);
struct vb_tcp_segment vb_sim_tcp_segment(const struct vb_world_packet *packet);
struct vb_tcp_ack vb_sim_tcp_ack(const struct vb_world_packet *packet);
static inline uint32_t vb_sim_tcp_flow(const struct vb_world_packet *packet)
{
    return (uint32_t)packet->header[VB_WORLD_TCP_FLOW_TOP] << 24 |
           vb_wire_get24(packet->header + VB_WORLD_TCP_FLOW);
}

#endif
