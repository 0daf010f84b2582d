// SPDX-License-Identifier: Apache-2.0
/*
 * Captures what the direct port carries, as the packets that it would have been. PSNs count from
 * each QP's sq_psn as if packets went. Where one is open the host's port executes through it; where
 * none is, nothing of it is on a request's path.
 */
#ifndef VB_HOST_CAPTURE_DIRECT_H
#define VB_HOST_CAPTURE_DIRECT_H

#include "hca/qp.h"
#include "wrap/capture.h"

struct vb_capture_direct;

/* Errors as vb_wrap_capture_open. */
int vb_host_capture_direct_open(const struct vb_capture_config *config,
                                struct vb_capture_direct **capture);
/* NULL: nothing. */
void vb_host_capture_direct_close(struct vb_capture_direct *capture);
/* As vb_wrap_capture_tell. */
void vb_host_capture_direct_tell(struct vb_capture_direct *capture, void (*failed)(int error));

/* INIT to RTR: its PSNs begin anew. */
void vb_host_capture_direct_connect(struct vb_capture_direct *capture, const struct vb_qp *qp);

/* vb_direct_execute, and the packets of it. */
int vb_host_capture_direct_execute(struct vb_capture_direct *capture, struct vb_qp *qp,
                                   const struct ibv_send_wr *wr, struct vb_outcome *outcome);

#endif
