// SPDX-License-Identifier: Apache-2.0
/*
 * Which carrier a queue pair of the host has. A connection goes direct to a peer on this host and
 * by RoCE packets to all others, which is decided here, once, at INIT to RTR. Where a datagram goes
 * is decided by its address handle: direct if the destination GID is one of the host's own, both
 * ways if it is a multicast group's.
 */
#ifndef VB_HOST_CARRIERS_H
#define VB_HOST_CARRIERS_H

#include "hca/qp.h"

/* vb_host_calls.connect: 0, or what vb_direct_connect and vb_roce_connect return. */
int vb_host_connect(struct vb_qp *qp);
/* vb_host_calls.disconnect */
void vb_host_disconnect(struct vb_qp *qp);

#endif
