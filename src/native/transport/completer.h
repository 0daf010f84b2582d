// SPDX-License-Identifier: Apache-2.0
/*
 * The completer: what the peer's responses mean for the send queue (IBA 9.7.5, 9.7.6). Requests
 * complete in order by PSN; what is missing is asked for again from the first missing packet on.
 */
#ifndef VB_TRANSPORT_COMPLETER_H
#define VB_TRANSPORT_COMPLETER_H

#include "transport/transport.h"

/* A response packet, under sq_lock. */
void vb_engine_completer_receive(const struct vb_incoming *in);

#endif
