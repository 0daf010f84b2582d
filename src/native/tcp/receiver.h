// SPDX-License-Identifier: Apache-2.0
/*
 * A TCP receiver of one stream: which segments have come, and which acknowledgements are to be
 * sent. sim/tcp.c calls it for each segment, and at its deadline.
 */
#ifndef VB_TCP_RECEIVER_H
#define VB_TCP_RECEIVER_H

#include "tcp/config.h"
#include "tcp/segment.h"

/* Segments that came before others did. */
struct vb_tcp_island {
    struct vb_tcp_block block;
    uint64_t touched; /* when, among all changes: those of late are told of first (RFC 2018, 4) */
};

struct vb_tcp_receiver {
    uint64_t next;                /* all before it have come */
    struct vb_tcp_island *island; /* in the order of segments */
    uint32_t islands, room;
    uint32_t silent; /* segments that came since the last acknowledgement */
    uint64_t changes;
    uint64_t deadline; /* of the next acknowledgement; VB_TCP_NEVER */
    bool is_dctcp;
    bool echo; /* ECE is to be said */
};

void vb_tcp_receiver_open(struct vb_tcp_receiver *receiver, enum vb_tcp_kind kind);
void vb_tcp_receiver_close(struct vb_tcp_receiver *receiver);
/*
 * A segment came, marked or not. How many acknowledgements are to be sent, in this order: two when
 * DCTCP's receiver has to tell of earlier segments that their mark was another. -ENOMEM.
 */
int vb_tcp_receiver_take(struct vb_tcp_receiver *receiver, const struct vb_tcp_config *config,
                         const struct vb_tcp_segment *segment, bool marked, uint64_t now,
                         struct vb_tcp_ack ack[2]);
/* The deadline has come. */
void vb_tcp_receiver_expire(struct vb_tcp_receiver *receiver, struct vb_tcp_ack *ack);

#endif
