// SPDX-License-Identifier: Apache-2.0
/* The scoreboard of board.h as a ring of one byte for each segment. sender.c is its only caller. */
#include "tcp/board.h"

#include <errno.h>
#include <stdlib.h>

enum { IN_FLIGHT = 1, SACKED = 2, LOST = 4, RESENT = 8 };
enum { THRESHOLD = 3, FIRST_ROOM = 16 };

static uint8_t *state_of(struct vb_tcp_board *board, uint64_t segment)
{
    return &board->state[segment & (board->room - 1)];
}

void vb_tcp_board_free(struct vb_tcp_board *board)
{
    free(board->state);
}

static int board_grow(struct vb_tcp_board *board)
{
    uint32_t room = board->room ? 2 * board->room : FIRST_ROOM;
    uint8_t *grown = room ? malloc(room) : NULL;

    if (!grown)
        return -ENOMEM;
    for (uint64_t i = board->first; i < board->next; ++i)
        grown[i & (room - 1)] = *state_of(board, i);
    free(board->state);
    board->state = grown;
    board->room = room;
    return 0;
}

int vb_tcp_board_send(struct vb_tcp_board *board)
{
    if (board->next - board->first == board->room && board_grow(board))
        return -ENOMEM;
    *state_of(board, board->next++) = IN_FLIGHT;
    ++board->pipe;
    return 0;
}

void vb_tcp_board_resend(struct vb_tcp_board *board, uint64_t segment)
{
    *state_of(board, segment) |= IN_FLIGHT | RESENT;
    ++board->pipe;
}

static void board_mark_sacked(struct vb_tcp_board *board, uint8_t *state)
{
    board->pipe -= *state & IN_FLIGHT;
    *state = SACKED;
}

uint32_t vb_tcp_board_acked(struct vb_tcp_board *board, uint64_t next)
{
    uint32_t count = 0;

    if (next > board->next)
        next = board->next;
    for (; board->first < next; ++board->first, ++count) {
        uint8_t *state = state_of(board, board->first);

        if (!(*state & SACKED))
            board_mark_sacked(board, state);
        else if (board->first >= board->decided)
            --board->sacked;
    }
    if (board->decided < board->first)
        board->decided = board->first;
    if (board->resend_from < board->first)
        board->resend_from = board->first;
    return count;
}

static void board_find_lost(struct vb_tcp_board *board)
{
    while (board->sacked >= THRESHOLD) {
        uint8_t *state = state_of(board, board->decided);

        if (*state & SACKED) {
            --board->sacked;
        } else {
            board->pipe -= *state & IN_FLIGHT;
            *state = LOST;
        }
        ++board->decided;
    }
}

void vb_tcp_board_sacked(struct vb_tcp_board *board, uint64_t begin, uint64_t end)
{
    if (begin < board->first)
        begin = board->first;
    if (end > board->next)
        end = board->next;
    for (uint64_t i = begin; i < end; ++i) {
        uint8_t *state = state_of(board, i);

        if (*state & SACKED)
            continue;
        board_mark_sacked(board, state);
        board->sacked += i >= board->decided;
    }
    board_find_lost(board);
}

void vb_tcp_board_lose_all(struct vb_tcp_board *board)
{
    for (uint64_t i = board->first; i < board->next; ++i) {
        uint8_t *state = state_of(board, i);

        if (!(*state & SACKED))
            *state = LOST;
    }
    board->pipe = 0;
    board->decided = board->next;
    board->sacked = 0;
    board->resend_from = board->first;
}

uint64_t vb_tcp_board_lost(struct vb_tcp_board *board)
{
    for (; board->resend_from < board->decided; ++board->resend_from)
        if ((*state_of(board, board->resend_from) & (LOST | RESENT)) == LOST)
            return board->resend_from;
    return VB_TCP_NONE;
}
