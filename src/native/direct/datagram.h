// SPDX-License-Identifier: Apache-2.0
/* The state that a UD QP keeps of its destinations (datagram.c). */
#ifndef VB_DIRECT_DATAGRAM_H
#define VB_DIRECT_DATAGRAM_H

struct vb_qp;

/* A UD QP is being reset or destroyed: forgets whom it has sent to. */
void vb_direct_destinations_free(struct vb_qp *qp);

#endif
