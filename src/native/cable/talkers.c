// SPDX-License-Identifier: Apache-2.0
/*
 * The stations of an episode: those in `near` that begin before they hear another one, in the order
 * in which they begin. After a long frame they are many, and all begin within the longest delay.
 */
#include "cable/state.h"

#include <string.h>

enum { PAIRS = 5 }; /* talkers, up to which pairs are quicker: 64-byte frames have so many */
enum { FEW = 8 };   /* candidates, up to which sorting without cells is quicker */

/* Each pair, which is quicker for few. */
static void cable_hear_in_pairs(struct vb_cable *cable, uint32_t count)
{
    struct vb_cable_talker *talker = cable->talker;

    for (uint32_t i = 1; i < count; i++)
        for (uint32_t j = 0; j < i; j++) {
            uint64_t at = talker[i].place, to = talker[j].place,
                     apart = at < to ? to - at : at - to;
            uint64_t there = talker[i].start + apart, here = talker[j].start + apart;

            talker[i].heard = here < talker[i].heard ? here : talker[i].heard;
            talker[j].heard = there < talker[j].heard ? there : talker[j].heard;
        }
}

/*
 * What comes from one side along the cable, in the order of places: `first` is the earliest start
 * so far, as it would be at place 0.
 */
static void cable_hear_along(struct vb_cable *cable, uint32_t count)
{
    int64_t first = INT64_MAX / 2, heard;
    uint32_t words = cable->stations / 64 + 1, *order = cable->talker_at, found = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t rank = cable->station[cable->talker[i].station].rank;

        cable->among[rank / 64] |= UINT64_C(1) << rank % 64;
        order[rank] = i;
    }
    for (uint32_t word = 0; word < words; word++) {
        for (uint64_t bits = cable->among[word]; bits != 0; bits &= bits - 1)
            order[found++] = order[word * 64 + (uint32_t)__builtin_ctzll(bits)];
        cable->among[word] = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct vb_cable_talker *talker = &cable->talker[order[i]];
        int64_t place = (int64_t)talker->place;

        talker->heard = (uint64_t)(first + place);
        if (first > (int64_t)talker->start - place)
            first = (int64_t)talker->start - place;
    }
    first = INT64_MAX / 2;
    for (uint32_t i = count; i-- > 0;) {
        struct vb_cable_talker *talker = &cable->talker[order[i]];
        int64_t place = (int64_t)talker->place;

        heard = first - place;
        if ((uint64_t)heard < talker->heard)
            talker->heard = (uint64_t)heard;
        if (first > (int64_t)talker->start + place)
            first = (int64_t)talker->start + place;
    }
}

/* On a hub the first one heard is the same for all but itself. */
static void cable_hear_by_hub(struct vb_cable *cable, uint32_t count)
{
    uint64_t first = VB_CABLE_NEVER / 2, second = first;
    uint32_t whose = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = cable->talker[i].start + cable->talker[i].place;

        if (at < first) {
            second = first;
            first = at;
            whose = i;
        } else if (at < second) {
            second = at;
        }
    }
    for (uint32_t i = 0; i < count; i++)
        cable->talker[i].heard = (i == whose ? second : first) + cable->talker[i].place;
}

/* Sets `heard` of the first `count` talkers, without a look at each pair of many. */
static void cable_hear(struct vb_cable *cable, uint32_t count)
{
    if (cable->longest_ps == 0)
        return;
    if (cable->config.star)
        cable_hear_by_hub(cable, count);
    else if (count <= PAIRS)
        cable_hear_in_pairs(cable, count);
    else
        cable_hear_along(cable, count);
}

/*
 * Sets `key` to the keys of candidates, nearly in order. Each is put into the cell of its time, or
 * into the next free one of the same word; the few for which none is free come last.
 */
static void cable_spread_keys(struct vb_cable *cable, const struct vb_cable_near *candidate,
                              uint32_t count, uint64_t start)
{
    uint64_t free[VB_CABLE_CELLS / 64];
    uint32_t spare = 0, found = 0;

    memset(free, 0xff, sizeof(free));
    for (uint32_t i = 0; i < count; i++) {
        uint64_t behind = candidate[i].attempt - start, key = behind << VB_CABLE_NUMBER_BITS | i;
        uint64_t cell = behind >> cable->cell_shift, word = cell / 64;
        uint64_t later = free[word] & UINT64_MAX << cell % 64;

        if (later == 0) {
            cable->spare[spare++] = key;
            continue;
        }
        free[word] ^= later & -later;
        cable->cell[word * 64 + (uint32_t)__builtin_ctzll(later)] = key;
    }
    for (uint32_t word = 0; word < VB_CABLE_CELLS / 64; word++)
        for (uint64_t taken = ~free[word]; taken != 0; taken &= taken - 1)
            cable->key[found++] = cable->cell[word * 64 + (uint32_t)__builtin_ctzll(taken)];
    for (uint32_t i = 0; i < spare; i++)
        cable->key[found++] = cable->spare[i];
}

/*
 * The candidates of an episode from `start` on by their attempts; those of one instant keep their
 * order. `key` has what an attempt is behind `start` and the candidate's number, which are quicker
 * to move than talkers.
 */
static void cable_sort_talkers(struct vb_cable *cable, const struct vb_cable_near *candidate,
                               uint32_t count, uint64_t start)
{
    uint64_t *key = cable->key;

    if (count > FEW)
        cable_spread_keys(cable, candidate, count, start);
    else
        for (uint32_t i = 0; i < count; i++)
            key[i] = (candidate[i].attempt - start) << VB_CABLE_NUMBER_BITS | i;
    for (uint32_t i = 1; i < count; i++) {
        uint64_t moved = key[i];
        uint32_t at = i;

        for (; at > 0 && key[at - 1] > moved; at--)
            key[at] = key[at - 1];
        key[at] = moved;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct vb_cable_near *of =
            &candidate[key[i] & ((UINT64_C(1) << VB_CABLE_NUMBER_BITS) - 1)];

        cable->talker[i] = (struct vb_cable_talker){.start = of->attempt,
                                                    .heard = VB_CABLE_NEVER,
                                                    .place = cable->station[of->station].place,
                                                    .station = of->station};
    }
}

/* Candidates that hear another one before they begin stay in `near`, of which `stay` do already. */
static void cable_leave_near(struct vb_cable *cable, uint32_t candidates, uint32_t stay)
{
    struct vb_cable_talker *talker = cable->talker;

    cable->talkers = 0;
    for (uint32_t i = 0; i < candidates; i++) {
        if (talker[i].heard < talker[i].start)
            cable->near[stay++].station = talker[i].station;
        else
            talker[cable->talkers++] = talker[i];
    }
    cable->in_near = stay;
    for (uint32_t i = 0; i < cable->talkers; i++)
        talker[i].heard = VB_CABLE_NEVER;
    if (cable->talkers > 1)
        cable_hear(cable, cable->talkers);
}

/*
 * A station hears a candidate that itself hears another one only later than that other one (the
 * distances are those of a line or star), so all candidates may be asked.
 */
void vb_cable_gather(struct vb_cable *cable, uint64_t start)
{
    struct vb_cable_near *candidate = cable->candidate, *near = cable->near;
    uint32_t candidates = 0, stay = 0;
    bool heard_before = false;

    for (uint32_t i = 0; i < cable->in_near; i++) {
        bool begins = near[i].attempt <= start + cable->longest_ps;

        candidate[candidates] = near[i];
        near[stay] = near[i];
        candidates += begins;
        stay += !begins;
    }
    cable_sort_talkers(cable, candidate, candidates, start);
    if (candidates > 1)
        cable_hear(cable, candidates);
    for (uint32_t i = 0; i < candidates; i++)
        heard_before |= cable->talker[i].heard < cable->talker[i].start;
    cable->talkers = candidates;
    cable->in_near = stay;
    if (heard_before)
        cable_leave_near(cable, candidates, stay);
}
