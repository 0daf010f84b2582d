// SPDX-License-Identifier: Apache-2.0
/*
 * A TCP receiver: it keeps the blocks of segments that came out of order, and decides when an
 * acknowledgement is due and what it says. sim/tcp.c calls it and sends the acknowledgement.
 */
#include "tcp/receiver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 4, MOST_SILENT = 2 /* RFC 5681, 4.2 */ };

void vb_tcp_receiver_open(struct vb_tcp_receiver *receiver, enum vb_tcp_kind kind)
{
    *receiver =
        (struct vb_tcp_receiver){.deadline = VB_TCP_NEVER, .is_dctcp = kind == VB_TCP_DCTCP};
}

void vb_tcp_receiver_close(struct vb_tcp_receiver *receiver)
{
    free(receiver->island);
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

/* The latest of those that changed before `before`; NULL. */
static const struct vb_tcp_island *receiver_latest(const struct vb_tcp_receiver *receiver,
                                                   uint64_t before)
{
    const struct vb_tcp_island *found = NULL;

    for (uint32_t i = 0; i < receiver->islands; ++i) {
        const struct vb_tcp_island *at = &receiver->island[i];

        if (at->touched < before && (!found || at->touched > found->touched))
            found = at;
    }
    return found;
}

static void receiver_fill(const struct vb_tcp_receiver *receiver, struct vb_tcp_ack *ack)
{
    uint64_t before = UINT64_MAX;

    *ack = (struct vb_tcp_ack){.next = receiver->next, .echo = receiver->echo};
    while (ack->blocks < VB_TCP_SACKS) {
        const struct vb_tcp_island *island = receiver_latest(receiver, before);

        if (!island)
            return;
        ack->block[ack->blocks++] = island->block;
        before = island->touched;
    }
}

void vb_tcp_receiver_expire(struct vb_tcp_receiver *receiver, struct vb_tcp_ack *ack)
{
    receiver->silent = 0;
    receiver->deadline = VB_TCP_NEVER;
    receiver_fill(receiver, ack);
}

/* ---- what came ------------------------------------------------------------------------------- */

static int receiver_make_room(struct vb_tcp_receiver *receiver)
{
    uint32_t room = receiver->room ? 2 * receiver->room : FIRST_ROOM;
    struct vb_tcp_island *grown;

    if (receiver->islands < receiver->room)
        return 0;
    grown = realloc(receiver->island, room * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    receiver->island = grown;
    receiver->room = room;
    return 0;
}

static void remove_island(struct vb_tcp_receiver *receiver, uint32_t at)
{
    --receiver->islands;
    memmove(&receiver->island[at], &receiver->island[at + 1],
            (receiver->islands - at) * sizeof(*receiver->island));
}

/* The first island that ends at or after this segment; they are few, and the last is likely. */
static uint32_t receiver_place_of(const struct vb_tcp_receiver *receiver, uint64_t segment)
{
    uint32_t at = receiver->islands;

    while (at && receiver->island[at - 1].block.end >= segment)
        --at;
    return at;
}

static int add_island(struct vb_tcp_receiver *receiver, uint64_t segment)
{
    uint32_t at = receiver_place_of(receiver, segment);
    struct vb_tcp_island *island;

    if (receiver_make_room(receiver))
        return -ENOMEM;
    island = &receiver->island[at];
    if (at < receiver->islands && island->block.begin <= segment + 1) {
        if (island->block.begin > segment)
            island->block.begin = segment;
        if (island->block.end == segment)
            ++island->block.end;
        if (at + 1 < receiver->islands && island[1].block.begin == island->block.end) {
            island->block.end = island[1].block.end;
            remove_island(receiver, at + 1);
        }
    } else {
        memmove(island + 1, island, (receiver->islands - at) * sizeof(*island));
        island->block = (struct vb_tcp_block){segment, segment + 1};
        ++receiver->islands;
    }
    island->touched = receiver->changes++;
    return 0;
}

static int receiver_add(struct vb_tcp_receiver *receiver, uint64_t segment)
{
    if (segment > receiver->next)
        return add_island(receiver, segment);
    if (segment < receiver->next)
        return 0; /* it had come */
    ++receiver->next;
    if (receiver->islands && receiver->island[0].block.begin == receiver->next) {
        receiver->next = receiver->island[0].block.end;
        remove_island(receiver, 0);
    }
    return 0;
}

/* RFC 3168, 6.1.3: from a mark on, until the sender says that it has shrunk its window. */
static void note_mark(struct vb_tcp_receiver *receiver, const struct vb_tcp_segment *segment,
                      bool marked)
{
    if (segment->reduced)
        receiver->echo = false;
    if (marked)
        receiver->echo = true;
}

/* RFC 8257, 3.2: the echo is that of the segments acknowledged; true: there were others. */
static bool change_mark(struct vb_tcp_receiver *receiver, bool marked, struct vb_tcp_ack *ack)
{
    bool told = receiver->echo != marked && receiver->silent;

    if (told)
        vb_tcp_receiver_expire(receiver, ack);
    receiver->echo = marked;
    return told;
}

int vb_tcp_receiver_take(struct vb_tcp_receiver *receiver, const struct vb_tcp_config *config,
                         const struct vb_tcp_segment *segment, bool marked, uint64_t now,
                         struct vb_tcp_ack ack[2])
{
    bool in_order = segment->number == receiver->next && !receiver->islands;
    int count = 0;

    if (receiver->is_dctcp)
        count = change_mark(receiver, marked, ack);
    else if (config->ecn) /* without it a mark means nothing (RFC 3168, 5) */
        note_mark(receiver, segment, marked);
    if (receiver_add(receiver, segment->number))
        return -ENOMEM;
    if (!in_order || segment->last || !config->ack_delay || ++receiver->silent == MOST_SILENT) {
        vb_tcp_receiver_expire(receiver, &ack[count]);
        return count + 1;
    }
    receiver->deadline = now + config->ack_delay;
    return count;
}
