// SPDX-License-Identifier: Apache-2.0
/*
 * Which stations begin next. Those whose time is far are in a heap; `near` has those whose time
 * has come, with the time at which each begins: its own, or the end of the gap after the last
 * episode. A station that defers begins then without looking again, as 802.3 has it
 * (4.2.3.2.2), so all that defer collide.
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
    cable->station[station].timer = until;
    heap_up(cable->heap, cable->in_heap++, (struct vb_cable_timer){until, station});
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
    return (uint64_t)(log(vb_cable_fraction(cable)) / log1p(-1.0 / cable->stations));
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

static void cable_come_near(struct vb_cable *cable, uint64_t until)
{
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

uint64_t vb_cable_earliest(struct vb_cable *cable)
{
    uint64_t start;

    cable_come_near(cable, cable->busy.until);
    start = cable_earliest_near(cable);
    while (cable->in_heap > 0 && cable->heap[0].at <= start) {
        cable_come_near(cable, cable->heap[0].at);
        start = cable_earliest_near(cable);
    }
    if (start != VB_CABLE_NEVER)
        cable_come_near(cable, start + cable->longest_ps);
    return start;
}

/* Whether a station hears one of the talkers before it begins. */
static bool cable_hears(const struct vb_cable *cable, uint32_t station, uint64_t begins)
{
    for (uint32_t i = 0; i < cable->talkers; i++)
        if (cable->talker[i].start + vb_cable_distance(cable, cable->talker[i].station, station) <
            begins)
            return true;
    return false;
}

/* By start; of one instant in the order of stations' numbers, which makes no difference. */
static void cable_sort_talkers(struct vb_cable_talker *talker, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct vb_cable_talker moved = talker[i];
        uint32_t at = i;

        for (; at > 0 && talker[at - 1].start > moved.start; at--)
            talker[at] = talker[at - 1];
        talker[at] = moved;
    }
}

void vb_cable_gather(struct vb_cable *cable, uint64_t start)
{
    struct vb_cable_talker *talker = cable->talker;
    uint32_t candidates = 0, stay = 0;

    for (uint32_t i = 0; i < cable->in_near; i++) {
        uint32_t station = cable->near[i];
        uint64_t attempt = cable->station[station].attempt;

        if (attempt <= start + cable->longest_ps)
            talker[candidates++] = (struct vb_cable_talker){.start = attempt, .station = station};
        else
            cable->near[stay++] = station;
    }
    cable_sort_talkers(talker, candidates);
    cable->talkers = 0;
    for (uint32_t i = 0; i < candidates; i++) {
        if (cable->longest_ps > 0 && cable_hears(cable, talker[i].station, talker[i].start))
            cable->near[stay++] = talker[i].station;
        else
            talker[cable->talkers++] = talker[i];
    }
    cable->in_near = stay;
}
