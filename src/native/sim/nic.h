// SPDX-License-Identifier: Apache-2.0
/*
 * The network adapter of a simulated host: what sending and receiving cost a connection, whoever
 * uses it. Flows (host.c) use it directly, and a program's HCA (hca.c) through its attachment. It
 * holds a connection while its packet waits in a lane, by its rate, or until the adapter has seen
 * the doorbell; it has HPCC's window, sends notifications, and keeps the port free while the bus is
 * busy. Two hosts may have different settings.
 */
#ifndef VB_SIM_NIC_H
#define VB_SIM_NIC_H

#include "event/partition.h"
#include "hca/packet.h"
#include "sim/congestion.h"

struct vb_inside;
struct vb_inside_qp;

/* Delays of 0 are none. */
struct vb_nic_config {
    struct vb_congestion congestion;
    uint64_t doorbell;        /* ps from posting to the first packet, if the QP was idle */
    uint64_t bus_rate;        /* bits per second at which payload is read from memory */
    uint64_t receive_latency; /* ps from the arrival of a packet to its effect */
    uint8_t notice_level;     /* of congestion notifications; VB_NIC_OWN_LEVEL: the connection's */
};

enum { VB_NIC_OWN_LEVEL = 16 };

/* A connection's congestion control, as a sender and as a receiver. */
struct vb_nic_reaction {
    struct vb_rate rate;
    uint64_t noticed_at; /* ps: when it last sent a notification */
};

/* A connection, also of TCP, or a queue pair for datagrams. */
struct vb_nic_qp {
    struct vb_nic_qp
        *next; /* in vb_nic_user.held, or in a queue of connections with more to send */
    struct vb_nic *nic;
    uint32_t slot;           /* a flow; or the index in vb_nic_table.qp */
    uint32_t generation;     /* the flow's end; or what tells those of one slot apart */
    uint32_t peer;           /* the address of a flow's other end, or the multicast group */
    uint16_t reaction_at;    /* where the struct vb_nic_reaction is, from here on; 0: it has none */
    uint8_t marks : 4;       /* enum vb_world_mark of a flow's packets */
    uint8_t lane : 4;        /* if waits_for_lane: which */
    bool has_turn : 1;       /* it is in such a queue */
    bool is_program : 1;     /* a program's; else a flow's */
    bool waits_for_lane : 1; /* it is in vb_nic_user.held */
    bool waits_for_rate : 1;
    bool waits_for_bell : 1;     /* the adapter has not seen the doorbell yet */
    bool is_told : 1;            /* in `pump`: the adapter knows of the requests of a doorbell */
    bool saw_bell : 1;           /* of datagrams: it has, and they are not all sent yet */
    struct vb_inside_qp *inside; /* NULL: its host has none (inside.h) */
};

/* What the adapter calls. */
struct vb_nic_calls {
    /* The connection sends no requests and READ responses; or it may again. */
    void (*hold)(struct vb_nic_qp *qp, bool held);
    /* Sets the limit of the packets in flight by this window. */
    void (*window)(struct vb_nic_qp *qp, const struct vb_hpcc *hpcc);
    /* Sends a CNP (vb_sim_congestion_write_cnp). */
    void (*cnp)(struct vb_nic_qp *qp, uint32_t psn);
    /* Sends what may be sent now. */
    void (*pump)(struct vb_nic_qp *qp);
};

/* The flows of a host; or a program's HCA, which may have two adapters as its ports. */
struct vb_nic_user {
    const struct vb_nic_calls *calls;
    struct vb_nic_qp *held; /* connections whose lane, or port, is not free */
};

struct vb_nic {
    struct vb_world_partition *part;
    const struct vb_nic_config *config; /* the world's, or the host's own */
    struct vb_nic_user *user[2];        /* flows, and a program */
    uint64_t bus_free_at; /* the end of the bus's transfer, before which no packet is sent */
    uint32_t node, number;
    bool ready_planned, bus_planned; /* an event is pending */
    bool is_one_of_two;              /* a program's HCA has another port, too */
    struct vb_inside *inside;        /* NULL: it costs nothing beyond `config` */
};

/* The events of adapters; their number is the low bits of `what` in vb_world_call. */
enum vb_nic_event {
    VB_NIC_RATE,
    VB_NIC_DOORBELL,
    VB_NIC_BUS,
    VB_NIC_LEFT, /* a packet of a program whose request is complete then (host_inside.h) */
    VB_NIC_EVENTS,
    VB_NIC_EVENT_BITS = 5
};

enum { VB_NIC_GENERATIONS = 1 << 20 };

/*
 * What an event says in its upper bits, beside the slot: the generation, above a bit for programs.
 */
static inline uint32_t vb_sim_nic_argument(const struct vb_nic_qp *qp)
{
    return qp->generation << 1 | qp->is_program;
}

/* The queue pairs of programs. */
struct vb_nic_table {
    struct vb_nic_qp **qp; /* by slot; NULL: free */
    uint32_t *free_slot;
    uint32_t slots, free_slots, room;
    uint32_t generations; /* the number of those that were ever in it */
};

/*
 * The caller has set `nic`, `reaction_at` and `is_program`, and of a flow `slot` and `generation`.
 * Only a connection that is acknowledged has a window. -ENOMEM.
 */
int vb_sim_nic_open(struct vb_nic_qp *qp, bool is_acknowledged);
void vb_sim_nic_close(struct vb_nic_qp *qp);
/* Opens the queue pair of a program, and gives it a slot. -ENOMEM. */
int vb_sim_nic_join(struct vb_nic_table *table, struct vb_nic_qp *qp, bool is_acknowledged);
void vb_sim_nic_leave(struct vb_nic_table *table, struct vb_nic_qp *qp);
/* NULL: it is gone. */
struct vb_nic_qp *vb_sim_nic_find(const struct vb_nic_table *table, uint32_t slot,
                                  uint32_t generation);
/* Calls `pump` after that delay. */
void vb_sim_nic_tell_after(struct vb_nic_qp *qp, uint64_t delay);
/* The event VB_NIC_LEFT, after that delay. */
void vb_sim_nic_left_after(struct vb_nic_qp *qp, uint64_t delay);
/* The event VB_NIC_RATE or VB_NIC_DOORBELL of this connection. */
void vb_sim_nic_wait_is_over(struct vb_nic_qp *qp, enum vb_nic_event event);

/* Queues are rings, of which `last` is the last one; NULL: empty. Adds it, or removes it, if it is
 * not there already, or is there. */
void vb_sim_nic_queue_add(struct vb_nic_qp **last, struct vb_nic_qp *qp);
void vb_sim_nic_queue_remove(struct vb_nic_qp **last, struct vb_nic_qp *qp);

bool vb_sim_nic_may_send(const struct vb_nic *nic);
/* Packets of this level wait at the port. `level_marks` as in struct vb_world_packet. */
bool vb_sim_nic_is_blocked(const struct vb_nic *nic, uint8_t level_marks);
/* Releases the connections whose lane and port are free. */
void vb_sim_nic_release(struct vb_nic_user *user);
/* There is more to send: has the users called when the port and the bus are free. */
void vb_sim_nic_want_ready(struct vb_nic *nic);
/* An idle queue pair has new requests. True: it is held until the adapter has seen the doorbell. */
bool vb_sim_nic_ring(struct vb_nic_qp *qp);
/* The same, after a delay in ps. */
void vb_sim_nic_ring_after(struct vb_nic_qp *qp, uint64_t delay);

/*
 * Sends a packet; `qp` is the connection whose telemetry it gets, or NULL. Returns its bytes on the
 * wire.
 */
uint32_t vb_sim_nic_send(struct vb_nic *nic, struct vb_nic_qp *qp, uint32_t packet);
/*
 * A packet of the connection has left, with so many bytes on the wire (0: it was lost before).
 * Holds the connection while it waits in its lane, and until it would have been sent at the
 * connection's rate, or the rate `limit` in bits/s, if that is not 0.
 */
void vb_sim_nic_sent(struct vb_nic_qp *qp, uint32_t level, uint32_t payload, uint32_t bytes,
                     uint64_t limit);

/*
 * The packet engine has handled a packet of this connection, whose data have this service level:
 * reacts to marks, notifications and telemetry. `is_notice`: it was a CNP, and accepted. True:
 * InfiniBand logs the event (vb_cct_level.trigger).
 */
bool vb_sim_nic_received(struct vb_nic_qp *qp, const struct vb_arrival *arrival, uint32_t level,
                         const struct vb_world_telemetry *telemetry, bool is_notice);
/* Has a switch marked the packet, by ECN or FECN? */
static inline bool vb_sim_nic_is_marked(const struct vb_arrival *arrival)
{
    return (arrival->traffic_class & 3) == 3 || (arrival->bytes[4] & 0x80);
}

#endif
