// SPDX-License-Identifier: Apache-2.0
/*
 * A TCP receiver of one stream: it records the segments that have arrived, and makes
 * acknowledgements. sim/tcp.c calls it for each segment, and at its deadline.
 */
#ifndef VB_TCP_RECEIVER_H
#define VB_TCP_RECEIVER_H

#include "tcp/config.h"
#include "tcp/segment.h"

/* Adjacent segments that arrived out of order. */
struct vb_tcp_run {
    struct vb_tcp_block block;
    uint64_t touched; /* its last change; the most recent blocks are reported first (RFC 2018, 4) */
};

struct vb_tcp_receiver {
    uint64_t next;          /* RCV.NXT: all segments before it have arrived */
    struct vb_tcp_run *run; /* in the order of segments */
    uint32_t runs, room;
    uint32_t unacked;  /* segments that arrived since the last acknowledgement */
    uint64_t changes;  /* the number of changes of runs */
    uint64_t deadline; /* of the delayed acknowledgement; or VB_TCP_NEVER */
    bool is_dctcp;
    bool echo; /* acknowledgements have ECE */
};

void vb_tcp_receiver_open(struct vb_tcp_receiver *receiver, enum vb_tcp_kind kind);
void vb_tcp_receiver_close(struct vb_tcp_receiver *receiver);
/*
 * A segment arrived, CE-marked or not. Returns the number of acknowledgements to send, in this
 * order; two if DCTCP has to acknowledge earlier segments with another echo. -ENOMEM.
 */
int vb_tcp_receiver_take(struct vb_tcp_receiver *receiver, const struct vb_tcp_config *config,
                         const struct vb_tcp_segment *segment, bool marked, uint64_t now,
                         struct vb_tcp_ack ack[2]);
/* The deadline has come: makes the delayed acknowledgement. */
void vb_tcp_receiver_expire(struct vb_tcp_receiver *receiver, struct vb_tcp_ack *ack);

#endif
