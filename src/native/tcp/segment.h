// SPDX-License-Identifier: Apache-2.0
/*
 * A data segment and an acknowledgement, as sender.c, receiver.c and sim/tcp.c exchange them.
 * Segments are numbered from 0.
 */
#ifndef VB_TCP_SEGMENT_H
#define VB_TCP_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

enum { VB_TCP_SACKS = 3 }; /* SACK blocks of an acknowledgement: the most with timestamps */

struct vb_tcp_segment {
    uint64_t number;
    uint32_t length; /* bytes */
    bool again;      /* a retransmission */
    bool last;       /* of the stream */
    bool reduced;    /* CWR (RFC 3168) */
};

struct vb_tcp_block {
    uint64_t begin, end; /* the segments from `begin` up to `end`, without it */
};

struct vb_tcp_ack {
    uint64_t next; /* all segments before it have arrived */
    struct vb_tcp_block block[VB_TCP_SACKS];
    uint8_t blocks;
    bool echo;       /* ECE */
    uint64_t window; /* bytes, of a stream's receiver (stream.h); a flow's never changes */
};

#endif
