// SPDX-License-Identifier: Apache-2.0
/*
 * What flows, programs and the adapter ask of a host that has an inside (inside.h): host.c,
 * flows.c, nic.c and attachment.c call these functions where a request is posted, a packet leaves
 * or arrives, and a completion is written. A host without one never comes here.
 */
#ifndef VB_SIM_HOST_INSIDE_H
#define VB_SIM_HOST_INSIDE_H

#include "sim/inside.h"
#include "sim/state.h"

/* What a completion is for, or what a woken program gets: the argument of VB_SIM_CALL_TAKEN. */
enum vb_sim_taken {
    VB_SIM_TAKEN_SENT,     /* a flow's request is complete */
    VB_SIM_TAKEN_RECEIVED, /* a flow's message was received, and nothing follows */
    VB_SIM_TAKEN_LAST,     /* it was the last one: the flow's successors may start */
    VB_SIM_TAKEN_READABLE, /* a program's descriptor is readable */
};

/* Gives the host an inside, before it has flows or a program. -EBUSY: it has; -ENOMEM. */
int vb_sim_set_inside(struct vb_sim *sim, uint32_t host, const struct vb_inside_config *config);
const struct vb_inside *vb_sim_inside(const struct vb_sim *sim, uint32_t host);

/* Sends a packet once its payload is in the adapter. `qp` NULL: of no connection. */
void vb_sim_inside_send(struct vb_nic *nic, const struct vb_nic_qp *qp, uint32_t packet);
/* The first of the packets that wait leaves. */
void vb_sim_inside_leave(struct vb_sim_host *host);
/* A packet has arrived: the delay until it has its effect; 0: at once. */
uint64_t vb_sim_inside_arrived(struct vb_sim_host *host, uint32_t packet);
/* A flow has posted requests. VB_SIM_CALL_TOLD comes when the adapter has them. */
void vb_sim_inside_posted(struct vb_sim_qp *qp);
void vb_sim_inside_told(struct vb_sim_qp *qp, uint32_t requests);
/* A program has: so many, of so many bytes. VB_NIC_DOORBELL comes when the adapter has them. */
void vb_sim_inside_program_posted(struct vb_nic_qp *qp, uint32_t requests, uint32_t bytes);
/* A program's UD or UC request is complete when the packet that this adapter has sent last has left
 * it: VB_NIC_LEFT comes then. */
void vb_sim_inside_tells(struct vb_nic_qp *qp, const struct vb_nic *by);
/* So many completions of the host's program are written. */
void vb_sim_inside_program_completed(const struct vb_sim_host *host, uint32_t completions);
/* It has taken so many, and so many messages among them. */
void vb_sim_inside_program_polled(const struct vb_sim_host *host, uint32_t completions,
                                  uint32_t receives);
/* It computes for so many ps, `what` in slices, on a core. Returns the time from now to the end. */
uint64_t vb_sim_inside_computes(struct vb_sim *sim, uint32_t host, uint32_t core, uint8_t what,
                                uint64_t took);
/* A completion of a flow is written. VB_SIM_CALL_TAKEN comes when a core has taken it. */
void vb_sim_inside_completed(struct vb_sim_host *host, uint32_t flow, enum vb_sim_taken what);
/* A descriptor of the host's program is readable, or any (-1): it is woken, on the first core. */
void vb_sim_inside_readable(struct vb_sim_host *host, int fd);
/* VB_SIM_CALL_WAKE */
void vb_sim_inside_wake(struct vb_sim_host *host, uint32_t argument);
/* A flow begins or ends at this end; its core polls meanwhile. */
void vb_sim_inside_flow(const struct vb_sim_host *host, uint32_t flow, bool begins);

#endif
