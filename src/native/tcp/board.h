// SPDX-License-Identifier: Apache-2.0
/*
 * The scoreboard of a sender (RFC 6675): what of its segments is under way, was received out of
 * order, or is lost. A segment is lost when three later ones have come (DupThresh). What is worked
 * out there for each acknowledgement from the whole board is kept up to date here, so that a
 * segment costs the same however large the window is.
 */
#ifndef VB_TCP_BOARD_H
#define VB_TCP_BOARD_H

#include <stdbool.h>
#include <stdint.h>

static const uint64_t VB_TCP_NONE = UINT64_MAX;

struct vb_tcp_board {
    uint8_t *state;       /* ring: of each segment from `first` to before `next` */
    uint32_t room;        /* a power of two */
    uint32_t pipe;        /* segments under way */
    uint64_t first, next; /* SND.UNA, and what was never sent yet */
    uint64_t judged;      /* of all before it is known that they came or were lost */
    uint64_t again;       /* none before it is lost and was not sent again */
    uint32_t later;       /* received ones from `judged` on */
};

void vb_tcp_board_free(struct vb_tcp_board *board);
/* `next` leaves. -ENOMEM. */
int vb_tcp_board_send(struct vb_tcp_board *board);
/* A lost one leaves again. */
void vb_tcp_board_resend(struct vb_tcp_board *board, uint64_t segment);
/* All before `next` have come: how many did the sender not know of as acknowledged? */
uint32_t vb_tcp_board_acked(struct vb_tcp_board *board, uint64_t next);
/* These have come, though not all before them. */
void vb_tcp_board_sacked(struct vb_tcp_board *board, uint64_t begin, uint64_t end);
/* The timer has expired: whatever did not come is lost (RFC 6675, 5.1). */
void vb_tcp_board_lose_all(struct vb_tcp_board *board);
/* The first that is lost and was not sent again; VB_TCP_NONE. */
uint64_t vb_tcp_board_lost(struct vb_tcp_board *board);

#endif
