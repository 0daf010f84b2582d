// SPDX-License-Identifier: Apache-2.0
/*
 * Private to hca.c and hca_pacing.c: what a program's HCA keeps of each queue pair, and what the
 * two files call of each other.
 */
#ifndef VB_SIM_HCA_STATE_H
#define VB_SIM_HCA_STATE_H

#include "sim/hca.h"
#include "transport/engine.h"
#include "transport/transport.h"

/* A connection whose packets wait sends no more requests; `port_data` of its QP. */
struct vb_sim_hca_qp {
    struct vb_qp *qp;
    struct vb_qp *next_held;
    uint8_t port;            /* the index of its port in the attachment */
    uint8_t level;           /* the service level whose lane it waits for */
    bool waits_for_port;     /* its last packet has not left: the lane or the port is not free */
    bool waits_for_rate;     /* the time has not come that its rate allows (hca_pacing.c) */
    uint64_t noticed_at;     /* the last congestion notification sent for it */
    struct vb_rate rate;     /* at which it may send */
    struct vb_timer at_rate; /* ps: when it may send again */
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

/* Called when a QP has one more, or one less, reason to wait. */
static inline void vb_sim_hca_hold(struct vb_qp *qp)
{
    const struct vb_sim_hca_qp *state = vb_sim_hca_qp_of(qp);

    vb_engine_hold(qp, state->waits_for_port || state->waits_for_rate);
}

/*
 * A packet leaves, unless a fault rule keeps it. How many bytes it takes on the wire; 0: it has not
 * left. `error`, which may be NULL: -EFAULT, its payload's memory is gone; -ENOMEM.
 */
uint32_t vb_sim_hca_emit(struct vb_sim_hca *hca, const struct vb_packet *packet, int *error);

/*
 * Where the world reacts to congestion (hca_pace.c). A packet of a connection has left, and
 * takes so many bytes on the wire: the next may leave when this one would have at its rate.
 */
void vb_sim_hca_pace(struct vb_sim_hca *hca, const struct vb_packet *packet, uint32_t bytes);
/* HPCC: a packet of a connection is to leave, with telemetry. */
void vb_sim_hca_trace(struct vb_sim_hca *hca, const struct vb_packet *packet);
/* The connection is gone. */
void vb_sim_hca_pace_leave(struct vb_sim_hca *hca, struct vb_sim_hca_qp *state);
/* Releases the connections whose rate lets them send again. */
void vb_sim_hca_pace_expire(struct vb_sim_hca *hca);
/* A packet came, and the engine has seen it: was it marked, is it a notification, what does its
 * telemetry say? */
void vb_sim_hca_congested(struct vb_sim_hca *hca, const struct vb_arrival *arrival, bool is_notice);

#endif
