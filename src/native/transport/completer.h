// SPDX-License-Identifier: Apache-2.0
/*
 * The completer: what the peer's responses mean for the send queue (IBA 9.7.5, 9.7.6). Requests
 * complete in the order of their PSNs. If a response is missing, the requester asks for it again
 * from the first missing packet on.
 */
#ifndef VB_TRANSPORT_COMPLETER_H
#define VB_TRANSPORT_COMPLETER_H

#include "transport/transport.h"

/* Takes a response packet. Under sq_lock. */
void vb_engine_completer_receive(const struct vb_incoming *in);

#endif
