// SPDX-License-Identifier: Apache-2.0
/*
 * Which stations begin next. Those that back off, or have the next frame at once, are in buckets of
 * about a slot, a ring of them, which is quicker than a heap (by a sixth with 256 stations that
 * always have a frame of 1,518 bytes). Sources at random are in a heap, since most of their times
 * are beyond the ring. `near` has those whose time has come, with the time at which each begins:
 * its own, or the end of the gap after the last episode. A station that defers begins then without
 * looking again, as 802.3 has it (4.2.3.2.2), so all that defer collide.
 */
#include "cable/state.h"

#include <math.h>

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
    if (bucket == cable->from && until < cable->from_timer)
        cable->from_timer = until;
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

/* When a station whose time has come begins if it hears nothing. */
static inline uint64_t cable_attempt(struct vb_cable *cable, struct vb_cable_station *station,
                                     uint64_t is_free)
{
    if (cable->config.ideal) {
        if (station->timer < is_free)
            station->timer = is_free;
        return station->timer + cable->slot_ps * cable_ideal_slots(cable);
    }
    if (!station->deferred && station->timer < is_free && station->ready < is_free) {
        station->deferred = true;
        station->counters.deferred++;
    }
    return station->timer < is_free ? is_free : station->timer;
}

/* The attempts of those in `near` from `first` on. */
static void cable_plan(struct vb_cable *cable, uint32_t first)
{
    for (uint32_t i = first; i < cable->in_near; i++) {
        struct vb_cable_near *near = &cable->near[i];
        uint64_t is_free = cable_free_at(cable, near->station);

        near->attempt = cable_attempt(cable, &cable->station[near->station], is_free);
    }
}

/*
 * Sorts those in `near` from `first` on, which come by buckets, by their times, or at one time by
 * number. `attempt` is the time yet.
 */
static void cable_sort_near(struct vb_cable *cable, uint32_t first)
{
    struct vb_cable_near *near = cable->near;

    for (uint32_t i = first + 1; i < cable->in_near; i++) {
        struct vb_cable_near moved = near[i];
        uint32_t at = i;

        for (; at > first && near[at - 1].attempt >= moved.attempt; at--) {
            if (near[at - 1].attempt == moved.attempt && near[at - 1].station < moved.station)
                break;
            near[at] = near[at - 1];
        }
        near[at] = moved;
    }
}

static void cable_put_near(struct vb_cable *cable, uint32_t station)
{
    cable->near[cable->in_near++] = (struct vb_cable_near){cable->station[station].timer, station};
}

/* All of a bucket. */
static void cable_empty(struct vb_cable *cable, uint64_t bucket)
{
    uint32_t at = bucket % VB_CABLE_BUCKETS, i = cable->bucket[at];

    do {
        cable_put_near(cable, i - 1);
        i = cable->station[i - 1].next;
    } while (i != 0);
    cable->bucket[at] = 0;
    cable->filled[at / 64] &= ~(UINT64_C(1) << at % 64);
}

/* Those of the bucket `from` whose time is not after `until`. */
static void cable_empty_until(struct vb_cable *cable, uint64_t until)
{
    uint32_t at = cable->from % VB_CABLE_BUCKETS, left = 0, next;
    uint64_t earliest = VB_CABLE_NEVER;

    for (uint32_t i = cable->bucket[at]; i != 0; i = next) {
        struct vb_cable_station *station = &cable->station[i - 1];

        next = station->next;
        if (station->timer > until) {
            station->next = left;
            left = i;
            earliest = station->timer < earliest ? station->timer : earliest;
        } else {
            cable_put_near(cable, i - 1);
        }
    }
    cable->bucket[at] = left;
    cable->from_timer = earliest;
    if (left == 0)
        cable->filled[at / 64] &= ~(UINT64_C(1) << at % 64);
}

/* The buckets up to the one of `until`, which may keep stations of later times. */
static void cable_empty_buckets(struct vb_cable *cable, uint64_t until)
{
    uint64_t last = until >> cable->bucket_bits, bucket;
    uint32_t first = cable->in_near;

    if (last < cable->from)
        last = cable->from;
    if (last == cable->from && until < cable->from_timer)
        return;
    while ((bucket = cable_first_bucket(cable)) < last) {
        cable->from = bucket;
        cable_empty(cable, bucket);
    }
    cable->from = last;
    cable_empty_until(cable, until);
    cable->in_buckets -= cable->in_near - first;
    cable_sort_near(cable, first);
    cable_plan(cable, first);
}

static void cable_come_near(struct vb_cable *cable, uint64_t until)
{
    cable_empty_buckets(cable, until);
    while (cable->in_heap > 0 && cable->heap[0].at <= until) {
        cable_put_near(cable, cable_heap_pop(cable));
        cable_plan(cable, cable->in_near - 1);
    }
}

void vb_cable_settle(struct vb_cable *cable)
{
    cable_plan(cable, 0);
}

static uint64_t cable_earliest_near(const struct vb_cable *cable)
{
    uint64_t start = VB_CABLE_NEVER;

    for (uint32_t i = 0; i < cable->in_near; i++) {
        uint64_t attempt = cable->near[i].attempt;

        start = attempt < start ? attempt : start;
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
    while (start > cable->busy.until && (timer = cable_first_timer(cable)) <= start &&
           timer != VB_CABLE_NEVER) {
        cable_come_near(cable, timer);
        start = cable_earliest_near(cable);
    }
    if (start != VB_CABLE_NEVER)
        cable_come_near(cable, start + cable->longest_ps);
    return start;
}
