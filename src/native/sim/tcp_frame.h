// SPDX-License-Identifier: Apache-2.0
/* Ethernet frames of simulated TCP packets, for captures: IPv4 (RFC 791), TCP (RFC 9293). */
#ifndef VB_SIM_TCP_FRAME_H
#define VB_SIM_TCP_FRAME_H

#include "sim/tcp.h"

enum {
    VB_SIM_TCP_FRONT = 14 + 20 + 20 + 4 + 8 * VB_TCP_SACKS, /* the longest headers */
    VB_SIM_TCP_LEAST = 60, /* Ethernet's shortest frame, without FCS */
};

/* The connection's values that are not in the packet. */
struct vb_sim_tcp_stream {
    uint64_t bytes;  /* of the flow */
    uint64_t window; /* bytes: the receive window of both ends */
    uint32_t mss;
    bool has_ecn;    /* segments are ECN-capable; acknowledgements never are (RFC 3168, 6.1.4) */
    uint16_t damage; /* XORed to the TCP checksum */
};

/*
 * Writes the frame's headers and returns their length; the payload is zeros. The first byte of data
 * has sequence number 1, as after a SYN with number 0.
 */
uint32_t vb_sim_tcp_write_front(uint8_t at[VB_SIM_TCP_FRONT],
                                const struct vb_sim_tcp_stream *stream,
                                const struct vb_world_packet *packet);

#endif
