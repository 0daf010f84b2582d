// SPDX-License-Identifier: Apache-2.0
/* A packet of a TCP connection as it looks on Ethernet, with IPv4 (RFC 791) and TCP (RFC 9293). */
#ifndef VB_SIM_TCP_FRAME_H
#define VB_SIM_TCP_FRAME_H

#include "sim/tcp.h"

enum {
    VB_SIM_TCP_FRONT = 14 + 20 + 20 + 4 + 8 * VB_TCP_SACKS, /* the longest headers */
    VB_SIM_TCP_LEAST = 60, /* Ethernet's least frame, without FCS */
};

/* What the packet does not say itself. */
struct vb_sim_tcp_stream {
    uint64_t bytes;  /* of the flow */
    uint64_t window; /* bytes: of the receiver, and said by both ends */
    uint32_t mss;
    bool has_ecn;    /* segments are ECN-capable; acknowledgements never are (RFC 3168, 6.1.4) */
    uint16_t damage; /* bits of the TCP checksum that are wrong */
};

/*
 * Writes the frame's headers, behind which its payload is zeros: how many bytes. Sequence numbers
 * begin with 1, as a SYN of number 0 would leave them.
 */
uint32_t vb_sim_tcp_write_front(uint8_t at[VB_SIM_TCP_FRONT],
                                const struct vb_sim_tcp_stream *stream,
                                const struct vb_world_packet *packet);

#endif
