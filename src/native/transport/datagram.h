// SPDX-License-Identifier: Apache-2.0
/*
 * Unreliable datagrams (UD) by packets: what arrives for a UD QP (here), and what a UD QP sends
 * (vb_engine_datagram in engine.h). A datagram that no receive request fits is dropped and counted.
 */
#ifndef VB_TRANSPORT_DATAGRAM_H
#define VB_TRANSPORT_DATAGRAM_H

#include "transport/transport.h"

/*
 * Delivers a datagram to a UD QP. It takes the receive queue's rq_lock, since senders of this host
 * write to the same queue.
 */
void vb_engine_datagram_receive(const struct vb_incoming *in, struct vb_qp *qp);

#endif
