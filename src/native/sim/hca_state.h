// SPDX-License-Identifier: Apache-2.0
/*
 * The state of a queue pair of a program's HCA, and the functions that hca.c and hca_pacing.c call
 * of each other. No other file includes this.
 */
#ifndef VB_SIM_HCA_STATE_H
#define VB_SIM_HCA_STATE_H

#include "sim/hca.h"
#include "transport/engine.h"
#include "transport/transport.h"

/* vb_verbs_qp.port_data. A connection whose last packet waits sends no further packets. */
struct vb_sim_hca_qp {
    struct vb_qp *qp;
    struct vb_qp *next_held;
    uint8_t port;            /* the index of its port in the attachment */
    uint8_t level;           /* if waits_for_port: the service level */
    bool waits_for_port;     /* its last packet waits for its lane or for the port */
    bool waits_for_rate;     /* its next packet has to wait by its rate (hca_pacing.c) */
    uint64_t noticed_at;     /* ps: when its last congestion notification was sent */
    struct vb_rate rate;     /* its congestion control */
    struct vb_timer at_rate; /* ps: the end of waits_for_rate */
};

static inline struct vb_sim_hca_qp *vb_sim_hca_qp_of(const struct vb_qp *qp)
{
    return qp->verbs->port_data;
}

static inline struct vb_qp *vb_sim_hca_sender(const struct vb_packet *packet)
{
    return ((struct vb_endpoint *)((char *)(uintptr_t)packet->path -
                                   offsetof(struct vb_endpoint, path)))
        ->qp;
}

/* Called when waits_for_port or waits_for_rate has changed. */
static inline void vb_sim_hca_hold(struct vb_qp *qp)
{
    const struct vb_sim_hca_qp *state = vb_sim_hca_qp_of(qp);

    vb_engine_hold(qp, state->waits_for_port || state->waits_for_rate);
}

/*
 * Sends a packet, unless a fault rule holds it. Returns its length on the wire; 0: it has not left.
 * `error` may be NULL: -EFAULT, its payload's memory is gone; -ENOMEM.
 */
uint32_t vb_sim_hca_emit(struct vb_sim_hca *hca, const struct vb_packet *packet, int *error);

/*
 * hca_pacing.c: congestion control. A packet of a connection has left, with so many bytes on the
 * wire: holds the connection until the packet would have been sent at the connection's rate.
 */
void vb_sim_hca_pace(struct vb_sim_hca *hca, const struct vb_packet *packet, uint32_t bytes);
/* HPCC: sets the telemetry of a packet that is to leave. */
void vb_sim_hca_trace(struct vb_sim_hca *hca, const struct vb_packet *packet);
/* The connection ends. */
void vb_sim_hca_pace_leave(struct vb_sim_hca *hca, struct vb_sim_hca_qp *state);
/* Releases the connections whose wait is over. */
void vb_sim_hca_pace_expire(struct vb_sim_hca *hca);
/* The engine has handled an arriving packet: reacts to marks, notifications and telemetry. */
void vb_sim_hca_congested(struct vb_sim_hca *hca, const struct vb_arrival *arrival, bool is_notice);

#endif
