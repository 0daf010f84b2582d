// SPDX-License-Identifier: Apache-2.0
/*
 * Which stations begin next. Those that back off, or have the next frame at once, are in buckets of
 * about a slot, a ring of them, which is quicker than a heap: with 256 stations that always have a
 * frame, one of 1,518 bytes takes 2.0 us in place of 2.4. Sources at random are in a heap, since
 * most of their times are beyond the ring. `near` has those whose time has come, with the time at
 * which each begins: its own, or the end of the gap after the last episode. A station that defers
 * begins then without looking again, as 802.3 has it (4.2.3.2.2), so all that defer collide.
 */
#include "cable/state.h"

#include <math.h>

enum { PAIRS = 5 }; /* talkers, up to which pairs are quicker: 64-byte frames have so many */

static void heap_up(struct vb_cable_timer *heap, uint32_t at, struct vb_cable_timer moved)
{
    for (uint32_t above; at > 0; at = above) {
        above = (at - 1) / 2;
        if (heap[above].at <= moved.at)
            break;
        heap[at] = heap[above];
    }
    heap[at] = moved;
}

void vb_cable_wait(struct vb_cable *cable, uint32_t station, uint64_t until)
{
    const struct vb_cable_station *of = &cable->station[station];
    bool at_random = of->source_mean_ps > 0 && of->tried == 0;
    uint64_t bucket = until >> cable->bucket_bits;
    uint32_t at;

    cable->station[station].timer = until;
    if (bucket < cable->from)
        bucket = cable->from;
    if (at_random || bucket - cable->from >= VB_CABLE_BUCKETS) {
        heap_up(cable->heap, cable->in_heap++, (struct vb_cable_timer){until, station});
        return;
    }
    at = bucket % VB_CABLE_BUCKETS;
    cable->in_buckets++;
    cable->station[station].next = cable->bucket[at];
    cable->bucket[at] = station + 1;
    cable->filled[at / 64] |= UINT64_C(1) << at % 64;
}

/* The first bucket that has a station, from `from` on; UINT64_MAX: none has. */
static uint64_t cable_first_bucket(const struct vb_cable *cable)
{
    enum { WORDS = VB_CABLE_BUCKETS / 64 };
    uint32_t at = cable->from % VB_CABLE_BUCKETS, word = at / 64;
    uint64_t bits = cable->filled[word] & UINT64_MAX << at % 64;

    if (cable->in_buckets == 0)
        return UINT64_MAX;
    for (uint32_t i = 0; i <= WORDS; i++) {
        if (bits) {
            uint32_t found = word * 64 + (uint32_t)__builtin_ctzll(bits);

            return cable->from + (found - at) % VB_CABLE_BUCKETS;
        }
        word = (word + 1) % WORDS;
        bits = cable->filled[word];
    }
    return UINT64_MAX;
}

/* The earliest time for which a station waits; VB_CABLE_NEVER: none does. */
static uint64_t cable_first_timer(const struct vb_cable *cable)
{
    uint64_t first = cable->in_heap > 0 ? cable->heap[0].at : VB_CABLE_NEVER;
    uint64_t bucket = cable_first_bucket(cable);

    if (bucket == UINT64_MAX || bucket << cable->bucket_bits > first)
        return first;
    for (uint32_t i = cable->bucket[bucket % VB_CABLE_BUCKETS]; i != 0;) {
        const struct vb_cable_station *station = &cable->station[i - 1];

        if (station->timer < first)
            first = station->timer;
        i = station->next;
    }
    return first;
}

static uint32_t cable_heap_pop(struct vb_cable *cable)
{
    struct vb_cable_timer *heap = cable->heap;
    uint32_t first = heap[0].station, count = --cable->in_heap, at = 0;

    /* A hole goes down to a leaf, and the last one up from there: it is late, so it stays low. */
    for (uint32_t below; (below = 2 * at + 1) < count; at = below) {
        below += below + 1 < count && heap[below + 1].at < heap[below].at;
        heap[at] = heap[below];
    }
    heap_up(heap, at, heap[count]);
    return first;
}

/* When the last episode and the gap are over at a station. */
static uint64_t cable_free_at(const struct vb_cable *cable, uint32_t station)
{
    const struct vb_cable_busy *busy = &cable->busy;
    int64_t place = (int64_t)cable->station[station].place, end;

    if (cable->config.star) {
        end = (station == busy->longest_is ? busy->second : busy->longest) + place;
    } else {
        end = busy->rising - place;
        if (end < busy->falling + place)
            end = busy->falling + place;
    }
    end = end < 0 ? 0 : end + (int64_t)cable->gap_ps;
    if ((uint64_t)end < cable->station[station].ready)
        return cable->station[station].ready;
    return (uint64_t)end;
}

/* Slots before one in which a station of `stations` begins, with probability 1 / stations. */
static uint64_t cable_ideal_slots(struct vb_cable *cable)
{
    if (cable->stations == 1)
        return 0;
    return (uint64_t)(log(vb_cable_fraction(cable)) / cable->ideal_log);
}

static void cable_plan(struct vb_cable *cable, uint32_t index)
{
    struct vb_cable_station *station = &cable->station[index];
    uint64_t is_free = cable_free_at(cable, index);

    if (cable->config.ideal) {
        if (station->timer < is_free)
            station->timer = is_free;
        station->attempt = station->timer + cable->slot_ps * cable_ideal_slots(cable);
        return;
    }
    station->attempt = station->timer < is_free ? is_free : station->timer;
    if (!station->deferred && station->timer < is_free && station->ready < is_free) {
        station->deferred = true;
        station->counters.deferred++;
    }
}

/* Puts a station to those in `near` from `first` on, by their times, or at one time by number. */
static void cable_put_near(struct vb_cable *cable, uint32_t first, uint32_t station)
{
    uint64_t timer = cable->station[station].timer;
    uint32_t at = cable->in_near++;

    for (; at > first; at--) {
        uint32_t before = cable->near[at - 1];

        if (cable->station[before].timer < timer ||
            (cable->station[before].timer == timer && before < station))
            break;
        cable->near[at] = before;
    }
    cable->near[at] = station;
}

/* Those of a bucket whose time is not after `until`. */
static void cable_empty(struct vb_cable *cable, uint32_t at, uint64_t until)
{
    uint32_t i = cable->bucket[at], left = 0, next, first = cable->in_near;

    for (; i != 0; i = next) {
        struct vb_cable_station *station = &cable->station[i - 1];

        next = station->next;
        if (station->timer > until) {
            station->next = left;
            left = i;
        } else {
            cable_put_near(cable, first, i - 1);
        }
    }
    cable->in_buckets -= cable->in_near - first;
    for (; first < cable->in_near; first++)
        cable_plan(cable, cable->near[first]);
    cable->bucket[at] = left;
    if (left == 0)
        cable->filled[at / 64] &= ~(UINT64_C(1) << at % 64);
}

static void cable_come_near(struct vb_cable *cable, uint64_t until)
{
    uint64_t last = until >> cable->bucket_bits;

    if (last < cable->from)
        last = cable->from;
    for (;;) {
        uint64_t bucket = cable_first_bucket(cable);

        if (bucket > last)
            break;
        cable->from = bucket;
        cable_empty(cable, bucket % VB_CABLE_BUCKETS, until);
        if (bucket == last)
            break;
    }
    cable->from = last;
    while (cable->in_heap > 0 && cable->heap[0].at <= until) {
        uint32_t station = cable_heap_pop(cable);

        cable->near[cable->in_near++] = station;
        cable_plan(cable, station);
    }
}

void vb_cable_settle(struct vb_cable *cable)
{
    for (uint32_t i = 0; i < cable->in_near; i++)
        cable_plan(cable, cable->near[i]);
}

static uint64_t cable_earliest_near(const struct vb_cable *cable)
{
    uint64_t start = VB_CABLE_NEVER;

    for (uint32_t i = 0; i < cable->in_near; i++) {
        uint64_t attempt = cable->station[cable->near[i]].attempt;

        if (attempt < start)
            start = attempt;
    }
    return start;
}

/* The cable is free everywhere, and the first station begins when it wants to. */
static uint64_t cable_earliest_of_none_near(struct vb_cable *cable)
{
    uint64_t start = cable_first_timer(cable);

    if (start != VB_CABLE_NEVER)
        cable_come_near(cable, start + cable->longest_ps);
    return start;
}

uint64_t vb_cable_earliest(struct vb_cable *cable)
{
    uint64_t start, timer;

    cable_come_near(cable, cable->busy.until);
    if (cable->in_near == 0 && !cable->config.ideal)
        return cable_earliest_of_none_near(cable);
    start = cable_earliest_near(cable);
    while ((timer = cable_first_timer(cable)) <= start && timer != VB_CABLE_NEVER) {
        cable_come_near(cable, timer);
        start = cable_earliest_near(cable);
    }
    if (start != VB_CABLE_NEVER)
        cable_come_near(cable, start + cable->longest_ps);
    return start;
}

/* Each pair, which is quicker for few. */
static void cable_hear_in_pairs(struct vb_cable *cable, uint32_t count)
{
    struct vb_cable_talker *talker = cable->talker;

    for (uint32_t i = 1; i < count; i++)
        for (uint32_t j = 0; j < i; j++) {
            uint64_t apart = vb_cable_distance(cable, talker[i].station, talker[j].station);
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
        int64_t place = (int64_t)cable->station[talker->station].place;

        talker->heard = (uint64_t)(first + place);
        if (first > (int64_t)talker->start - place)
            first = (int64_t)talker->start - place;
    }
    first = INT64_MAX / 2;
    for (uint32_t i = count; i-- > 0;) {
        struct vb_cable_talker *talker = &cable->talker[order[i]];
        int64_t place = (int64_t)cable->station[talker->station].place;

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
        uint64_t at = cable->talker[i].start + cable->station[cable->talker[i].station].place;

        if (at < first) {
            second = first;
            first = at;
            whose = i;
        } else if (at < second) {
            second = at;
        }
    }
    for (uint32_t i = 0; i < count; i++)
        cable->talker[i].heard =
            (i == whose ? second : first) + cable->station[cable->talker[i].station].place;
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
 * The candidates of an episode from `start` on by their attempts; those of one instant keep their
 * order. `key` has what an attempt is behind `start` and the candidate's number, which are quicker
 * to move than talkers.
 */
static void cable_sort_talkers(struct vb_cable *cable, const uint32_t *candidate, uint32_t count,
                               uint64_t start)
{
    uint64_t *key = cable->key;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t moved = (cable->station[candidate[i]].attempt - start) << VB_CABLE_NUMBER_BITS | i;
        uint32_t at = i;

        for (; at > 0 && key[at - 1] > moved; at--)
            key[at] = key[at - 1];
        key[at] = moved;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t station = candidate[key[i] & ((UINT64_C(1) << VB_CABLE_NUMBER_BITS) - 1)];

        cable->talker[i] = (struct vb_cable_talker){
            .start = cable->station[station].attempt, .heard = VB_CABLE_NEVER, .station = station};
    }
}

/*
 * A station hears a candidate that itself hears another one only later than that other one (the
 * distances are those of a line or star), so all candidates may be asked.
 */
void vb_cable_gather(struct vb_cable *cable, uint64_t start)
{
    struct vb_cable_talker *talker = cable->talker;
    uint32_t candidates = 0, stay = 0, *candidate = cable->talker_at;

    for (uint32_t i = 0; i < cable->in_near; i++) {
        uint32_t station = cable->near[i];

        if (cable->station[station].attempt <= start + cable->longest_ps)
            candidate[candidates++] = station;
        else
            cable->near[stay++] = station;
    }
    cable_sort_talkers(cable, candidate, candidates, start);
    if (candidates > 1)
        cable_hear(cable, candidates);
    cable->talkers = 0;
    for (uint32_t i = 0; i < candidates; i++) {
        if (cable->longest_ps > 0 && talker[i].heard < talker[i].start)
            cable->near[stay++] = talker[i].station;
        else
            talker[cable->talkers++] = talker[i];
    }
    cable->in_near = stay;
    if (cable->talkers == candidates)
        return;
    for (uint32_t i = 0; i < cable->talkers; i++)
        talker[i].heard = VB_CABLE_NEVER;
    if (cable->talkers > 1)
        cable_hear(cable, cable->talkers);
}
