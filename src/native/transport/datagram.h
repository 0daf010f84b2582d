// SPDX-License-Identifier: Apache-2.0
/* UD by packets: one comes in; one goes out by vb_engine_datagram. What does not fit is dropped. */
#ifndef VB_TRANSPORT_DATAGRAM_H
#define VB_TRANSPORT_DATAGRAM_H

#include "transport/transport.h"

/* For one UD QP, which may have other senders at the same time. */
void vb_engine_datagram_receive(const struct vb_incoming *in, struct vb_qp *qp);

#endif
