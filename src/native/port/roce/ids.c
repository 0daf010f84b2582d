// SPDX-License-Identifier: Apache-2.0
#include "port/roce/ids.h"

#include <string.h>

/*
 * With the packet's own word 15 identifications are believed at a time, so random damage passes in
 * 15 of 2^32 cases. Ahead is what was lost or went to other processes of this host, behind is what
 * another path of the network delayed.
 */
enum { BEHIND = 2, AHEAD = 8, AHEAD_OF_DOUBTED = 2 };
/* Linux' counter moves by less than one per timer tick of silence, at most 1000 a second. */
enum { TICK_NS = 1000000, TICKS_MAX = 4096 };
/* So many packets in a row must be wrong as they say before a sender's habit has changed. */
enum { CHANGE = 4, DOUBTS_MAX = 255 };

static struct vb_ids_sender *ids_find(struct vb_ids *ids, struct vb_ids_pair pair)
{
    uint32_t hash = (pair.source * 31 + pair.target) * 2654435761u;
    struct vb_ids_sender *sender = &ids->sender[hash >> 24];

    _Static_assert(VB_IDS_SENDERS == 256, "the hash's upper eight bits");
    if (sender->pair.source != pair.source || sender->pair.target != pair.target) {
        memset(sender, 0, sizeof(*sender));
        sender->pair = pair;
    }
    return sender;
}

static uint32_t ids_ticks(uint64_t since, uint64_t now)
{
    uint64_t ticks = (now - since) / TICK_NS;

    return ticks < TICKS_MAX ? (uint32_t)ticks : TICKS_MAX;
}

/* Does it follow what was seen, or precede it by at most `behind`? Without DF nobody is known to
 * count. */
static bool ids_follows(const struct vb_ids_seen *seen, const struct vb_ids_doubt *doubt,
                        uint32_t behind, uint32_t ahead)
{
    uint16_t distance = (uint16_t)(doubt->unseen.id - seen->unseen.id + behind);

    if (doubt->unseen.dont_fragment != seen->unseen.dont_fragment)
        return false;
    if (!doubt->unseen.dont_fragment)
        return doubt->unseen.id == seen->unseen.id;
    return distance <= behind + ahead + ids_ticks(seen->when, doubt->now);
}

/* The same bytes came before, and were not believed under another identification: damage does not
 * repeat itself. */
static bool ids_repeats(struct vb_ids *ids, const struct vb_ids_doubt *doubt)
{
    for (unsigned i = 0; i < VB_IDS_REPEATS; ++i)
        if (ids->repeat[i].length == doubt->length && ids->repeat[i].content == doubt->content &&
            ids->repeat[i].id != doubt->unseen.id)
            return true;
    ids->repeat[ids->next_repeat++ % VB_IDS_REPEATS] =
        (struct vb_ids_repeat){doubt->content, doubt->length, doubt->unseen.id};
    return false;
}

/*
 * A datagram that nobody sends again, of a sender of which nothing is known, or nothing new: it is
 * believed, or all of a program that sends one now and then would be lost. Of a sender that counts
 * on, one in a row at most is dropped.
 */
static bool ids_must_take(const struct vb_ids_sender *sender, const struct vb_ids_doubt *doubt)
{
    if (doubt->reliable || !doubt->unseen.dont_fragment || sender->kind == VB_IDS_PLACES)
        return false;
    return sender->kind == VB_IDS_UNKNOWN || sender->doubts > 1 ||
           ids_ticks(sender->believed.when, doubt->now) == TICKS_MAX;
}

static bool ids_is_next(const struct vb_ids_sender *sender, const struct vb_ids_doubt *doubt)
{
    return sender->kind == VB_IDS_COUNTS && ids_follows(&sender->believed, doubt, BEHIND, AHEAD);
}

/* Together with the packets before it that were not believed. */
static bool ids_convinces(struct vb_ids *ids, struct vb_ids_sender *sender,
                          const struct vb_ids_doubt *doubt)
{
    struct vb_ids_seen before = sender->doubted;
    bool repeats = ids_repeats(ids, doubt);

    sender->doubted = (struct vb_ids_seen){doubt->unseen, doubt->now};
    if (sender->doubts < DOUBTS_MAX)
        ++sender->doubts;
    if (sender->doubts < (sender->kind == VB_IDS_PLACES ? CHANGE : 2))
        return ids_must_take(sender, doubt);
    return repeats || ids_follows(&before, doubt, 0, AHEAD_OF_DOUBTED) ||
           ids_must_take(sender, doubt);
}

bool vb_ids_believes(struct vb_ids *ids, const struct vb_ids_doubt *doubt)
{
    struct vb_ids_sender *sender = ids_find(ids, doubt->pair);

    if (vb_ids_is_noted(ids, doubt->pair))
        ids->placed = (struct vb_ids_pair){0};
    /* Without DF there are engines in hardware with one number for all, 0 or 1. */
    if (!doubt->unseen.dont_fragment && doubt->unseen.id > 1)
        return false;
    if (!ids_is_next(sender, doubt) && !ids_convinces(ids, sender, doubt))
        return false;
    sender->kind = VB_IDS_COUNTS;
    sender->doubts = 0;
    sender->believed = (struct vb_ids_seen){doubt->unseen, doubt->now};
    return true;
}

void vb_ids_note_placed(struct vb_ids *ids, struct vb_ids_pair pair, uint16_t id, uint64_t now)
{
    struct vb_ids_sender *sender = ids_find(ids, pair);
    const struct vb_ids_doubt counted = {.unseen = {id, true}, .now = now};

    sender->doubts = 0;
    if (ids_is_next(sender, &counted)) { /* a counter passes 0 now and then */
        sender->believed = (struct vb_ids_seen){counted.unseen, now};
        return;
    }
    sender->kind = VB_IDS_PLACES;
    ids->placed = pair;
}
