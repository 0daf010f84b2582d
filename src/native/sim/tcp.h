// SPDX-License-Identifier: Apache-2.0
/*
 * Flows over TCP (tcp/sender.h, tcp/receiver.h), beside those of queue pairs. A connection has both
 * of its ends here, and lasts as long as its flow. A host's connections that have segments to send
 * take turns, and with the adapter's packets; acknowledgements go at once.
 *
 * The header of a TCP packet in the fabric has the places of enum vb_world_tcp_field: the slot and
 * the generation of its connection, flags, and the number of the segment, or of the next segment
 * that an acknowledgement expects. SACK blocks are two offsets from that number, of 4 bytes each.
 */
#ifndef VB_SIM_TCP_H
#define VB_SIM_TCP_H

#include "sim/state.h"
#include "tcp/receiver.h"
#include "tcp/sender.h"

enum { VB_SIM_LEVELS = 16 };

/* How much later than it came an acknowledgement is looked at (tcp.c). */
struct vb_sim_jitter {
    uint64_t most;   /* ps; 0: there is none */
    uint64_t random; /* the state of the connection's own random numbers */
    uint64_t until;  /* when the last acknowledgement is looked at */
    bool drifts;
    uint64_t drift, aim; /* ps besides: now, and where it goes to */
    uint64_t came_at;    /* the last acknowledgement */
};

struct vb_sim_connection {
    struct vb_tcp_sender sender;
    struct vb_tcp_receiver receiver;
    struct vb_sim_connection *next; /* of those of its host and level that have segments */
    uint64_t timer_at;              /* of the pending event; VB_WORLD_NEVER */
    struct vb_sim_jitter jitter;
    uint32_t flow, slot, generation;
    uint16_t source, target;   /* hosts */
    uint8_t level, back_level; /* of segments, of acknowledgements */
    bool has_turn;
};

/* A host that sends by TCP. */
struct vb_sim_tcp_host {
    struct vb_sim_connection *first[VB_SIM_LEVELS], *last[VB_SIM_LEVELS];
    uint32_t ready; /* set of the levels that have any */
    uint32_t turn;  /* the level that was last */
    bool was_last;  /* and not the adapter */
};

static inline bool vb_sim_tcp_has_more(const struct vb_sim_host *host)
{
    return host->tcp && host->tcp->ready;
}

void vb_sim_tcp_start(struct vb_sim *sim, uint32_t number);
void vb_sim_tcp_arrive(struct vb_sim_host *host, uint32_t packet);
/* A packet that has arrived is looked at: an acknowledgement perhaps only after some time. */
void vb_sim_tcp_take(struct vb_sim_host *host, uint32_t packet);
void vb_sim_tcp_expire(struct vb_sim *sim, uint32_t slot, uint32_t generation);
/* One segment, if there is one that may leave: its bytes; 0: there is none. */
uint32_t vb_sim_tcp_send(struct vb_sim_host *host);
void vb_sim_tcp_free(struct vb_sim *sim);

/* What a packet says. */
bool vb_sim_tcp_is_ack(const struct vb_world_packet *packet);
struct vb_tcp_segment vb_sim_tcp_segment(const struct vb_world_packet *packet);
struct vb_tcp_ack vb_sim_tcp_ack(const struct vb_world_packet *packet);
/* The flow of its connection; VB_WORLD_NONE: the connection is gone. */
uint32_t vb_sim_tcp_flow(const struct vb_sim *sim, const struct vb_world_packet *packet);

static inline uint32_t vb_sim_tcp_slot(const struct vb_world_packet *packet)
{
    return vb_wire_get24(packet->header + VB_WORLD_TCP_SLOT);
}

static inline uint32_t vb_sim_tcp_generation(const struct vb_world_packet *packet)
{
    return vb_wire_get24(packet->header + VB_WORLD_TCP_GENERATION);
}

#endif
