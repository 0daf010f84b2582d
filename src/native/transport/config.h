// SPDX-License-Identifier: Apache-2.0
/*
 * The settings of a packet engine, and the one question that it asks of its carrier. A carrier
 * fills them in before vb_engine_create (engine.h); they do not change afterwards.
 */
#ifndef VB_TRANSPORT_CONFIG_H
#define VB_TRANSPORT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

struct vb_engine_config {
    bool virtual_payload;  /* payloads have a length and no bytes: nothing is read or placed */
    uint32_t window_bytes; /* the most that a QP has in flight; 0: 1 MiB */
    uint32_t ack_bytes;    /* an acknowledgement is asked for at least this often; 0: 256 KiB */
    uint32_t burst;        /* packets of one QP before the next QP's turn; 0: 64 */
    /*
     * Go-back-0, as in early RoCE adapters: after a loss a message begins anew, and its window is
     * as long as the message. No peer on a wire understands it: both ends must have it.
     */
    bool restart;
    /*
     * For a network of unknown speed: connections share a congestion window for each peer address,
     * packets that overtake others are kept, each lost packet is sent again by itself, and marks of
     * congestion are answered. Without it the window is as configured, whatever is lost. Simulated
     * flows have none of it.
     */
    bool adapts;
};

/*
 * Is this address one of port `port_num`'s, or, if that is 0, of any port of the host? Asked within
 * vb_engine_receive: of the sender of a multicast packet, which may be a QP that wants no copy of
 * its own packets, and of a datagram's destination, if the adapter has several ports.
 */
typedef bool vb_is_own_fn(void *context, uint8_t port_num, const uint8_t gid[16]);

#endif
