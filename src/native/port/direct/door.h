// SPDX-License-Identifier: Apache-2.0
/*
 * An XRC request whose target QP is one process's and whose SRQ is another's (hca/xrc.h). The
 * requester's thread reaches both: it looks at the target QP in the first, and carries the request
 * out in the second, through the SRQ's door.
 */
#ifndef VB_PORT_DIRECT_DOOR_H
#define VB_PORT_DIRECT_DOOR_H

#include "hca/qp.h"

/*
 * Under the QP's sq_lock, with its peer there. VB_CHECK_OK: `stand_in` is the QP for this request,
 * with the door as its other end, and what fails the other end fails the QP's own. What it has
 * taken of the SRQ when the request has to wait serves the next one that comes through the door.
 */
enum vb_check vb_door_enter(struct vb_qp *qp, uint32_t srq_num, struct vb_qp *stand_in);
void vb_door_leave(struct vb_qp *qp, const struct vb_qp *stand_in);

#endif
