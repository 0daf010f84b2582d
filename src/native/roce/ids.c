// SPDX-License-Identifier: Apache-2.0
/*
 * Which IPv4 identifications are believed (ids.h says why one has to know). udp_receive.c asks
 * about each packet over IPv4 whose ICRC does not hold as the packet itself says.
 */
#include "roce/ids.h"

#include <string.h>

/*
 * A damaged packet passes if it says one of these after the flow's, the sender's or the unconfirmed
 * one's last, if it is unconfirmed and the flow's next one follows it, or if it is right as it
 * says: at most 15 of 2^16 identifications, each of which 1 in 2^16 random differences stands for.
 * Ahead is what was lost or went to other processes of this host, behind is what another path of
 * the network delayed.
 */
enum { FLOW_BEHIND = 1, FLOW_AHEAD = 7, SENDER_AHEAD = 2, UNCONFIRMED_AHEAD = 2 };
/* Linux' counter moves by less than one per timer tick of silence, at most 1000 a second. */
enum { TICK_NS = 1000000, TICKS_MAX = 4096 };
/* Of the ticks by which it could have moved and did not, so many still count: a packet that the
 * network delays makes the silence behind it look shorter than it was. */
enum { UNSPENT_MAX = 1024 };
/* So many packets in a row must be wrong as they say before a sender's habit has changed. */
enum { CHANGE = 4, DOUBTS_MAX = 255 };
/* Flows that overtake each other are not further apart: else the counter has jumped. */
enum { APART_MOST = 4096 };

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

struct vb_ids_flow *vb_roce_ids_flow(struct vb_ids *ids, struct vb_ids_pair pair,
                                     uint16_t source_port)
{
    uint32_t hash = ((pair.source * 31 + pair.target) * 31 + source_port) * 2654435761u;
    struct vb_ids_flow *set = ids->flow[hash >> 27], *oldest = set, *flow = set;

    _Static_assert(VB_IDS_SETS == 32, "the hash's upper five bits");
    for (; flow < set + VB_IDS_WAYS; ++flow) {
        if (flow->pair.source == pair.source && flow->pair.target == pair.target &&
            flow->source_port == source_port)
            break;
        if (flow->used < oldest->used)
            oldest = flow;
    }
    if (flow == set + VB_IDS_WAYS) {
        flow = oldest;
        *flow = (struct vb_ids_flow){.pair = pair, .source_port = source_port};
    }
    flow->used = ++ids->uses;
    return flow;
}

static uint32_t ids_ticks(uint64_t since, uint64_t now)
{
    uint64_t ticks = (now - since) / TICK_NS;

    return ticks < TICKS_MAX ? (uint32_t)ticks : TICKS_MAX;
}

/* Does it follow what was seen, or precede it by at most `behind`? Without DF nobody is known to
 * count. */
static bool ids_follows(struct vb_icrc_unseen seen, struct vb_icrc_unseen unseen, uint32_t behind,
                        uint32_t ahead)
{
    uint16_t after = (uint16_t)(unseen.id - seen.id), before = (uint16_t)-after;

    if (unseen.dont_fragment != seen.dont_fragment)
        return false;
    if (!unseen.dont_fragment)
        return unseen.id == seen.id;
    return after && (after <= ahead || before <= behind);
}

/* `ticks` of silence: so many more can follow. */
static bool ids_is_near(const struct vb_ids_sender *sender, const struct vb_ids_flow *flow,
                        struct vb_icrc_unseen unseen, uint32_t ticks)
{
    if (sender->kind != VB_IDS_COUNTS)
        return false;
    return ids_follows(sender->believed.unseen, unseen, 0, SENDER_AHEAD + ticks) ||
           (flow->is_known && ids_follows(flow->believed, unseen, FLOW_BEHIND, FLOW_AHEAD));
}

/*
 * By how much more than its packets the counter can have moved. A connection's packet that comes
 * after a pause is asked for again, so that few are believed.
 */
static uint32_t ids_pause(const struct vb_ids_sender *sender, const struct vb_ids_doubt *doubt)
{
    uint32_t ticks = sender->unspent + ids_ticks(sender->believed.when, doubt->now);

    if (doubt->reliable)
        return 0;
    return ticks < TICKS_MAX ? ticks : TICKS_MAX;
}

/*
 * A datagram that nobody sends again, of a sender of which nothing is known, or nothing new: it is
 * believed, or all of a program that sends one now and then would be lost. Of a sender that counts
 * on, one in a row at most is dropped, and none where other processes can have got what came
 * between: Linux waits four seconds before it sends an answer of its connection manager again.
 */
static bool ids_must_take(const struct vb_ids *ids, const struct vb_ids_sender *sender,
                          const struct vb_ids_doubt *doubt)
{
    if (doubt->reliable || !doubt->unseen.dont_fragment || sender->kind == VB_IDS_SEGMENTS)
        return false;
    return ids->shared || sender->kind == VB_IDS_UNKNOWN || sender->doubts > 1 ||
           ids_ticks(sender->believed.when, doubt->now) == TICKS_MAX;
}

/* How far it is behind the furthest one, of flows that overtake each other; 0: it is not. */
static bool ids_is_behind(struct vb_icrc_unseen seen, struct vb_icrc_unseen unseen, int most)
{
    int step = (int16_t)(unseen.id - seen.id);

    return step < 0 && step >= -most;
}

/* What is left of its ticks when it has moved to `unseen`. */
static uint32_t ids_unspent(const struct vb_ids_sender *sender, struct vb_icrc_unseen unseen,
                            uint64_t arrived)
{
    uint32_t steps = (uint16_t)(unseen.id - sender->believed.unseen.id - 1);
    uint32_t ticks = sender->unspent;

    if (sender->kind != VB_IDS_COUNTS)
        return UNSPENT_MAX;
    if (arrived > sender->believed.when)
        ticks += ids_ticks(sender->believed.when, arrived);
    if (!ids_is_behind(sender->believed.unseen, unseen, APART_MOST))
        ticks -= steps < ticks ? steps : ticks;
    return ticks < UNSPENT_MAX ? ticks : UNSPENT_MAX;
}

static void ids_believe(struct vb_ids_sender *sender, struct vb_ids_flow *flow,
                        struct vb_icrc_unseen unseen, uint64_t arrived)
{
    sender->unspent = (uint16_t)ids_unspent(sender, unseen, arrived);
    if (sender->kind != VB_IDS_COUNTS ||
        !ids_is_behind(sender->believed.unseen, unseen, APART_MOST))
        sender->believed.unseen = unseen;
    sender->believed.when = arrived;
    sender->kind = VB_IDS_COUNTS;
    sender->doubts = sender->placed = 0;
    if (!flow->is_known || !ids_is_behind(flow->believed, unseen, FLOW_BEHIND))
        flow->believed = unseen;
    flow->is_known = true;
    flow->is_doubted = false;
}

/* Did its bytes come before under another identification? */
static bool ids_is_repeated(const struct vb_ids *ids, const struct vb_ids_doubt *doubt)
{
    for (int i = 0; i < VB_IDS_REMEMBERED; ++i) {
        const struct vb_ids_remembered *before = &ids->remembered[i];

        if (before->content == doubt->content && before->length == doubt->length &&
            before->source_port == doubt->source_port && before->id != doubt->unseen.id &&
            before->pair.source == doubt->pair.source && before->pair.target == doubt->pair.target)
            return true;
    }
    return false;
}

static void ids_remember(struct vb_ids *ids, struct vb_ids_flow *flow,
                         const struct vb_ids_doubt *doubt)
{
    flow->doubted = doubt->unseen;
    flow->is_doubted = true;
    ids->remembered[ids->next_remembered++ % VB_IDS_REMEMBERED] = (struct vb_ids_remembered){
        doubt->pair, doubt->content, doubt->length, doubt->unseen.id, doubt->source_port};
}

/* Of one that is not expected, and whose identification can be. */
static enum vb_ids_verdict ids_weigh(struct vb_ids *ids, struct vb_ids_sender *sender,
                                     struct vb_ids_flow *flow, const struct vb_ids_doubt *doubt)
{
    bool follows =
        flow->is_doubted && ids_follows(flow->doubted, doubt->unseen, 0, UNCONFIRMED_AHEAD);
    bool right = follows || ids_is_repeated(ids, doubt);
    struct vb_icrc_unseen before = flow->doubted;

    if (sender->doubts < DOUBTS_MAX)
        ++sender->doubts;
    ids->counts = true;
    if (sender->kind == VB_IDS_SEGMENTS && sender->doubts < CHANGE) {
        ids_remember(ids, flow, doubt);
        return VB_IDS_WRONG;
    }
    if (follows && flow->unconfirmed) {
        ids_believe(sender, flow, before, doubt->earliest);
        return VB_IDS_CONFIRMS;
    }
    ids_remember(ids, flow, doubt);
    if (!right && !ids_must_take(ids, sender, doubt))
        return VB_IDS_DOUBTED;
    ids_believe(sender, flow, doubt->unseen, doubt->earliest);
    return VB_IDS_RIGHT;
}

enum vb_ids_verdict vb_roce_ids_check(struct vb_ids *ids, struct vb_ids_flow *flow,
                                      const struct vb_ids_doubt *doubt)
{
    struct vb_ids_sender *sender = ids_find(ids, doubt->pair);

    if (vb_roce_ids_is_noted(ids, doubt->pair))
        ids->placed = (struct vb_ids_pair){0};
    /* Without DF there are engines in hardware with one number for all, 0 or 1. */
    if (!doubt->unseen.dont_fragment && doubt->unseen.id > 1)
        return VB_IDS_WRONG;
    if (!ids_is_near(sender, flow, doubt->unseen, ids_pause(sender, doubt)))
        return ids_weigh(ids, sender, flow, doubt);
    ids_believe(sender, flow, doubt->unseen, doubt->earliest);
    return VB_IDS_RIGHT;
}

/* A counter passes 0 now and then. */
void vb_roce_ids_note_placed(struct vb_ids *ids, struct vb_ids_pair pair, uint16_t source_port,
                             uint16_t id, uint64_t now)
{
    struct vb_ids_sender *sender = ids_find(ids, pair);
    struct vb_icrc_unseen unseen = {id, true};

    sender->doubts = 0;
    if (sender->kind == VB_IDS_COUNTS) {
        struct vb_ids_flow *flow = vb_roce_ids_flow(ids, pair, source_port);

        if (ids_is_near(sender, flow, unseen, 0))
            ids_believe(sender, flow, unseen, now);
        if (++sender->placed < CHANGE)
            return;
    }
    sender->kind = VB_IDS_SEGMENTS;
    ids->placed = pair;
}
