// SPDX-License-Identifier: Apache-2.0
/*
 * A TCP receiver: it records the segments that arrive out of order, and decides when an
 * acknowledgement is sent and what it contains. sim/tcp.c calls it and sends the acknowledgement.
 */
#include "tcp/receiver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 4, MOST_UNACKED = 2 /* RFC 5681, 4.2 */ };

void vb_tcp_receiver_open(struct vb_tcp_receiver *receiver, enum vb_tcp_kind kind)
{
    *receiver =
        (struct vb_tcp_receiver){.deadline = VB_TCP_NEVER, .is_dctcp = kind == VB_TCP_DCTCP};
}

void vb_tcp_receiver_close(struct vb_tcp_receiver *receiver)
{
    free(receiver->run);
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

/* The run with the last change before `before`; or NULL. */
static const struct vb_tcp_run *receiver_latest(const struct vb_tcp_receiver *receiver,
                                                uint64_t before)
{
    const struct vb_tcp_run *found = NULL;

    for (uint32_t i = 0; i < receiver->runs; ++i) {
        const struct vb_tcp_run *at = &receiver->run[i];

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
        const struct vb_tcp_run *run = receiver_latest(receiver, before);

        if (!run)
            return;
        ack->block[ack->blocks++] = run->block;
        before = run->touched;
    }
}

void vb_tcp_receiver_expire(struct vb_tcp_receiver *receiver, struct vb_tcp_ack *ack)
{
    receiver->unacked = 0;
    receiver->deadline = VB_TCP_NEVER;
    receiver_fill(receiver, ack);
}

/* ---- segments -------------------------------------------------------------------------------- */

static int receiver_make_room(struct vb_tcp_receiver *receiver)
{
    uint32_t room = receiver->room ? 2 * receiver->room : FIRST_ROOM;
    struct vb_tcp_run *grown;

    if (receiver->runs < receiver->room)
        return 0;
    grown = realloc(receiver->run, room * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    receiver->run = grown;
    receiver->room = room;
    return 0;
}

static void remove_run(struct vb_tcp_receiver *receiver, uint32_t at)
{
    --receiver->runs;
    memmove(&receiver->run[at], &receiver->run[at + 1],
            (receiver->runs - at) * sizeof(*receiver->run));
}

/* The first run that ends at or after this segment. Runs are few, and it is mostly the last. */
static uint32_t receiver_place_of(const struct vb_tcp_receiver *receiver, uint64_t segment)
{
    uint32_t at = receiver->runs;

    while (at && receiver->run[at - 1].block.end >= segment)
        --at;
    return at;
}

static int add_run(struct vb_tcp_receiver *receiver, uint64_t segment)
{
    uint32_t at = receiver_place_of(receiver, segment);
    struct vb_tcp_run *run;

    if (receiver_make_room(receiver))
        return -ENOMEM;
    run = &receiver->run[at];
    if (at < receiver->runs && run->block.begin <= segment + 1) {
        if (run->block.begin > segment)
            run->block.begin = segment;
        if (run->block.end == segment)
            ++run->block.end;
        if (at + 1 < receiver->runs && run[1].block.begin == run->block.end) {
            run->block.end = run[1].block.end;
            remove_run(receiver, at + 1);
        }
    } else {
        memmove(run + 1, run, (receiver->runs - at) * sizeof(*run));
        run->block = (struct vb_tcp_block){segment, segment + 1};
        ++receiver->runs;
    }
    run->touched = receiver->changes++;
    return 0;
}

static int receiver_add(struct vb_tcp_receiver *receiver, uint64_t segment)
{
    if (segment > receiver->next)
        return add_run(receiver, segment);
    if (segment < receiver->next)
        return 0; /* a duplicate */
    ++receiver->next;
    if (receiver->runs && receiver->run[0].block.begin == receiver->next) {
        receiver->next = receiver->run[0].block.end;
        remove_run(receiver, 0);
    }
    return 0;
}

/* RFC 3168, 6.1.3: ECE from a CE mark until the sender's CWR. */
static void note_mark(struct vb_tcp_receiver *receiver, const struct vb_tcp_segment *segment,
                      bool marked)
{
    if (segment->reduced)
        receiver->echo = false;
    if (marked)
        receiver->echo = true;
}

/* RFC 8257, 3.2: ECE is the mark of acknowledged segments. True: `ack` is for earlier ones. */
static bool change_mark(struct vb_tcp_receiver *receiver, bool marked, struct vb_tcp_ack *ack)
{
    bool told = receiver->echo != marked && receiver->unacked;

    if (told)
        vb_tcp_receiver_expire(receiver, ack);
    receiver->echo = marked;
    return told;
}

int vb_tcp_receiver_take(struct vb_tcp_receiver *receiver, const struct vb_tcp_config *config,
                         const struct vb_tcp_segment *segment, bool marked, uint64_t now,
                         struct vb_tcp_ack ack[2])
{
    bool in_order = segment->number == receiver->next && !receiver->runs;
    int count = 0;

    if (receiver->is_dctcp)
        count = change_mark(receiver, marked, ack);
    else if (config->ecn) /* without it a mark means nothing (RFC 3168, 5) */
        note_mark(receiver, segment, marked);
    if (receiver_add(receiver, segment->number))
        return -ENOMEM;
    if (!in_order || segment->last || !config->ack_delay || ++receiver->unacked == MOST_UNACKED) {
        vb_tcp_receiver_expire(receiver, &ack[count]);
        return count + 1;
    }
    receiver->deadline = now + config->ack_delay;
    return count;
}
