// SPDX-License-Identifier: Apache-2.0
/*
 * A segment of data and an acknowledgement, as sender, receiver and sim/tcp.c pass them on.
 * Segments are counted from 0.
 */
#ifndef VB_TCP_SEGMENT_H
#define VB_TCP_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

enum { VB_TCP_SACKS = 3 }; /* blocks of an acknowledgement: with timestamps there is room for 3 */

struct vb_tcp_segment {
    uint64_t number;
    uint32_t length; /* bytes */
    bool again;      /* sent before */
    bool last;       /* of the stream */
    bool reduced;    /* CWR (RFC 3168) */
};

struct vb_tcp_block {
    uint64_t begin, end; /* segments, up to before `end` */
};

struct vb_tcp_ack {
    uint64_t next; /* all segments before it have come */
    struct vb_tcp_block block[VB_TCP_SACKS];
    uint8_t blocks;
    bool echo; /* ECE */
};

#endif
