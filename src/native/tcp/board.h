// SPDX-License-Identifier: Apache-2.0
/*
 * The scoreboard of a sender (RFC 6675): which segments are in flight, SACKed, or lost. A segment
 * is lost when three later segments are SACKed (DupThresh). The RFC computes pipe and losses from
 * the whole scoreboard for each acknowledgement; here both are updated incrementally, so that the
 * cost of a segment does not depend on the window. sender.c uses it.
 */
#ifndef VB_TCP_BOARD_H
#define VB_TCP_BOARD_H

#include <stdbool.h>
#include <stdint.h>

static const uint64_t VB_TCP_NONE = UINT64_MAX;

struct vb_tcp_board {
    uint8_t *state;       /* ring: the state of the segments from `first` up to `next` */
    uint32_t room;        /* a power of two */
    uint32_t pipe;        /* segments in flight */
    uint64_t first, next; /* SND.UNA, and the first segment that was never sent */
    uint64_t decided;     /* all segments before it are SACKed, lost or acknowledged */
    uint64_t resend_from; /* all lost segments before it were retransmitted */
    uint32_t sacked;      /* the number of SACKed segments from `decided` on */
};

void vb_tcp_board_free(struct vb_tcp_board *board);
/* Segment `next` is sent. -ENOMEM. */
int vb_tcp_board_send(struct vb_tcp_board *board);
/* A lost segment is retransmitted. */
void vb_tcp_board_resend(struct vb_tcp_board *board, uint64_t segment);
/* All segments before `next` are acknowledged. Returns how many of them were not before. */
uint32_t vb_tcp_board_acked(struct vb_tcp_board *board, uint64_t next);
/* A SACK block. */
void vb_tcp_board_sacked(struct vb_tcp_board *board, uint64_t begin, uint64_t end);
/* The timer has expired: all segments that are not SACKed are lost (RFC 6675, 5.1). */
void vb_tcp_board_lose_all(struct vb_tcp_board *board);
/* The first lost segment that was not retransmitted; or VB_TCP_NONE. */
uint64_t vb_tcp_board_lost(struct vb_tcp_board *board);

#endif
