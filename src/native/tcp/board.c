// SPDX-License-Identifier: Apache-2.0
/* The scoreboard of board.h as a ring of one byte for each segment. sender.c is its only caller. */
#include "tcp/board.h"

#include <errno.h>
#include <stdlib.h>

enum { UNDER_WAY = 1, CAME = 2, LOST = 4, AGAIN = 8 };
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
    *state_of(board, board->next++) = UNDER_WAY;
    ++board->pipe;
    return 0;
}

void vb_tcp_board_resend(struct vb_tcp_board *board, uint64_t segment)
{
    *state_of(board, segment) |= UNDER_WAY | AGAIN;
    ++board->pipe;
}

static void board_arrive(struct vb_tcp_board *board, uint8_t *state)
{
    board->pipe -= *state & UNDER_WAY;
    *state = CAME;
}

uint32_t vb_tcp_board_acked(struct vb_tcp_board *board, uint64_t next)
{
    uint32_t count = 0;

    if (next > board->next)
        next = board->next;
    for (; board->first < next; ++board->first, ++count) {
        uint8_t *state = state_of(board, board->first);

        if (!(*state & CAME))
            board_arrive(board, state);
        else if (board->first >= board->judged)
            --board->later;
    }
    if (board->judged < board->first)
        board->judged = board->first;
    if (board->again < board->first)
        board->again = board->first;
    return count;
}

static void board_judge(struct vb_tcp_board *board)
{
    while (board->later >= THRESHOLD) {
        uint8_t *state = state_of(board, board->judged);

        if (*state & CAME) {
            if (board->later == THRESHOLD)
                return;
            --board->later;
        } else {
            board->pipe -= *state & UNDER_WAY;
            *state = LOST;
        }
        ++board->judged;
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

        if (*state & CAME)
            continue;
        board_arrive(board, state);
        board->later += i >= board->judged;
    }
    board_judge(board);
}

void vb_tcp_board_lose_all(struct vb_tcp_board *board)
{
    for (uint64_t i = board->first; i < board->next; ++i) {
        uint8_t *state = state_of(board, i);

        if (!(*state & CAME))
            *state = LOST;
    }
    board->pipe = 0;
    board->judged = board->next;
    board->later = 0;
    board->again = board->first;
}

uint64_t vb_tcp_board_lost(struct vb_tcp_board *board)
{
    for (; board->again < board->judged; ++board->again)
        if ((*state_of(board, board->again) & (LOST | AGAIN)) == LOST)
            return board->again;
    return VB_TCP_NONE;
}
