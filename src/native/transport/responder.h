// SPDX-License-Identifier: Apache-2.0
/*
 * The responder carries out the peer's requests (IBA 9.7.4). Each check is a small function that
 * returns the next state, so the way of a packet through the states can be printed. The engine
 * calls it for each request packet of a connection, under its lock.
 */
#ifndef VB_TRANSPORT_RESPONDER_H
#define VB_TRANSPORT_RESPONDER_H

#include <stddef.h>

#include "transport/transport.h"

/* The states in the order in which a good packet passes them, and then the ways out. */
#define VB_RESPONDER_STATES(X)                                                                     \
    X(CHECK_PSN)                                                                                   \
    X(CHECK_SRQ)                                                                                   \
    X(CHECK_SEQUENCE)                                                                              \
    X(CHECK_ACCESS)                                                                                \
    X(CHECK_RESOURCES)                                                                             \
    X(CHECK_LENGTH)                                                                                \
    X(CHECK_KEY)                                                                                   \
    X(CHECK_FLUSH_KEY)                                                                             \
    X(EXECUTE)                                                                                     \
    X(COMPLETE)                                                                                    \
    X(ACKNOWLEDGE)                                                                                 \
    X(DUPLICATE)                                                                                   \
    X(OUT_OF_SEQUENCE)                                                                             \
    X(NOT_READY)                                                                                   \
    X(REFUSE)                                                                                      \
    X(DROP)                                                                                        \
    X(DONE)

enum vb_responder_state {
#define X(name) VB_RESPONDER_##name,
    VB_RESPONDER_STATES(X)
#undef X
};

/* Takes a request packet of a connection. */
void vb_engine_responder_receive(const struct vb_incoming *in);

/*
 * The way of the last request packet, as "CHECK_PSN CHECK_SEQUENCE DROP". Returns the length, as
 * snprintf does.
 */
int vb_engine_responder_path(const struct vb_engine *engine, char *text, size_t size);

/* The QP is in ERR: nothing is owed any more, and a receive request in hand is flushed with the
 * others. */
void vb_engine_responder_stop(struct vb_endpoint *ep);

#endif
