// SPDX-License-Identifier: Apache-2.0
/*
 * What the direct carrier does on a port of a live fabric (port/fabric.h): a request reaches its
 * peer only if the subnet's tables lead to the peer's port, and it is counted in its flow. All
 * functions need the QP's send lock, unless they say otherwise.
 */
#ifndef VB_DIRECT_FLOW_H
#define VB_DIRECT_FLOW_H

#include "direct/connection.h"
#include "port/fabric.h"

/* vb_carrier.execute of a connection. */
int vb_direct_fabric_execute(struct vb_qp *qp, const struct ibv_send_wr *wr,
                             struct vb_outcome *outcome);
/* The flow of a datagram. NULL: there is none. */
struct vb_fabric_flow *vb_direct_flow_of_datagram(struct vb_connection *to,
                                                  const struct ibv_send_wr *wr);
/* Counts a datagram. False: it is lost on its way, or before. */
bool vb_direct_flow_takes(struct vb_connection *to, const struct ibv_send_wr *wr,
                          struct vb_fabric_flow *flow);
/* The bytes of a request, and the packets that it has. */
uint64_t vb_direct_flow_packets(const struct vb_qp *qp, const struct ibv_send_wr *wr,
                                uint64_t *length);
/* Counts the packets of a request; without a flow nothing is. */
void vb_direct_flow_count(struct vb_fabric_flow *flow, const struct vb_qp *qp,
                          const struct ibv_send_wr *wr);
/* In a live fabric: does what this connection sends get lost? */
bool vb_direct_flow_is_lost(const struct vb_connection *to);
/* Writes a line of the log about the place where the QP's packets are lost. */
void vb_direct_flow_tell(struct vb_qp *qp, const struct vb_fabric_flow *flow);
/* The QP needs its flows no more. */
void vb_direct_flows_release(struct vb_connection *to);
/* In the service thread: the fabric's process has something to say, or has ended. */
void vb_direct_fabric_news(struct vb_direct *direct);

#endif
