// SPDX-License-Identifier: Apache-2.0
/*
 * A TCP sender and receiver of one direction of a connection, without I/O: arriving packets and the
 * time in ps are arguments, and packets to be sent are returned. Payload has a length and no bytes.
 * Segments are numbered from 0. All but a flow's last have the same size; those of a socket's
 * stream (stream.h) have any.
 *
 * RFC 5681 and 6675 (windows, recovery with SACK), 3042, 6298 (timer), 6928 (initial window), 3168
 * (ECN), 9438 (CUBIC), 8257 (DCTCP). A connection begins in ESTABLISHED: there is no SYN, and a
 * FIN only of streams.
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
    uint64_t window;         /* bytes: the receive window */
    uint64_t first_rto;      /* ps: the RTO before the first measurement; 0: least_rto */
    uint64_t least_rto, most_rto;
    uint32_t retries;   /* expirations of the timer before giving up (RFC 1122, 4.2.3.5: R2) */
    uint64_t ack_delay; /* ps: the delayed ACK timer; 0: each segment is acknowledged at once */
    double dctcp_gain;  /* g */
    bool ecn;           /* ECN of Reno and CUBIC; DCTCP always uses it */
};

/* MSS 1460, 10 segments, 16 MiB, RTO 200 ms to 60 s, 15 retries, no delay, g = 1/16, no ECN. */
struct vb_tcp_config vb_tcp_defaults(void);

#endif
