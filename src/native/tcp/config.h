// SPDX-License-Identifier: Apache-2.0
/*
 * A TCP sender and receiver of one direction of a connection, without a wire: what is to be sent is
 * returned, what came is an argument, and so is the time, in ps. Payload has a length and no bytes,
 * and segments are counted from 0: all but a stream's last are of one size.
 *
 * RFC 5681 and 6675 (windows, recovery with SACK), 3042, 6298 (timer), 6928 (initial window), 3168
 * (ECN), 9438 (CUBIC), 8257 (DCTCP). A connection is there already when it is opened: there is no
 * handshake and no end.
 */
#ifndef VB_TCP_CONFIG_H
#define VB_TCP_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

static const uint64_t VB_TCP_NEVER = UINT64_MAX;

enum vb_tcp_kind { VB_TCP_RENO = 0, VB_TCP_CUBIC, VB_TCP_DCTCP, VB_TCP_KINDS };

struct vb_tcp_config {
    uint32_t mss;            /* bytes of a segment */
    uint32_t initial_window; /* segments */
    uint64_t window;         /* bytes that a receiver takes beyond what it has acknowledged */
    uint64_t first_rto;      /* ps, before a round trip was measured; 0: least_rto */
    uint64_t least_rto, most_rto;
    uint32_t retries;   /* times in a row that the timer may expire (RFC 1122, 4.2.3.5: R2) */
    uint64_t ack_delay; /* ps for which a single segment is not acknowledged; 0: each is at once */
    double dctcp_gain;  /* g */
    bool ecn;           /* of Reno and CUBIC; DCTCP always has it */
};

/* MSS 1460, 10 segments, 16 MiB, RTO 200 ms to 60 s, 15 retries, no delay, g = 1/16, no ECN. */
struct vb_tcp_config vb_tcp_defaults(void);

#endif
