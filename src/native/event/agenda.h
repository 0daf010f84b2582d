// SPDX-License-Identifier: Apache-2.0
/*
 * The queue of pending events: a timing wheel (Varghese and Lauck, 1987) whose slots are sorted
 * when their time comes. Most events of a fabric are a link's delay ahead, so that adding one
 * writes it behind the others of its slot. Events of the slot whose time it is, and those that are
 * beyond the wheel, are in two heaps. run.c takes events, and every part of the room adds them
 * through vb_world_add. Events of one time are taken in the order of vb_world_agenda_rank, whenever
 * they were added; one that is added when its time has come precedes none that was taken already.
 */
#ifndef VB_EVENT_AGENDA_H
#define VB_EVENT_AGENDA_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "event/mix.h"

enum {
    VB_AGENDA_WIDTH = 13, /* a slot is 2^13 ps, 8 ns, and the wheel 4 microseconds */
    VB_AGENDA_SLOTS = 512,
    VB_AGENDA_RANK = 60,  /* bits of the rank of an arrival */
    VB_AGENDA_NEAR = 8,   /* vb_world_agenda_watch reports an entry so many before it is taken, */
    VB_AGENDA_NEARER = 3, /* and again */
};

#define VB_AGENDA_NOTHING UINT64_MAX /* no entry: for vb_world_agenda_watch */

struct vb_world_agenda_entry {
    uint64_t at;
    uint64_t what; /* the event; its low half is the index that vb_world_agenda_hint is about */
};

struct vb_world_agenda_slot {
    struct vb_world_agenda_entry *entry; /* in the order of adding; of the current slot, in order */
    uint32_t count, room;
};

struct vb_world_agenda_heap {
    struct vb_world_agenda_entry *entry; /* a binary heap */
    uint32_t count, room;
};

struct vb_world_agenda {
    uint64_t last;                        /* the time taken last */
    uint64_t slot;                        /* the number of the current slot */
    struct vb_world_agenda_entry *sorted; /* its entries; NULL: it has none */
    uint32_t next, end;                   /* those that were not taken */
    uint64_t count;
    struct vb_world_agenda_heap soon; /* added since their slot is the current one */
    struct vb_world_agenda_heap far;  /* the slot was beyond the wheel when they were added */
    uint64_t filled[VB_AGENDA_SLOTS / 64];
    struct vb_world_agenda_entry *scratch; /* as much room as the largest slot */
    uint32_t scratch_room;
    const char *hint; /* vb_world_agenda_hint */
    size_t hint_size;
    void (*near)(const void *context, uint64_t near, uint64_t nearer); /* vb_world_agenda_watch */
    const void *near_context;
    struct vb_world_agenda_slot wheel[VB_AGENDA_SLOTS];
};

void vb_world_agenda_free(struct vb_world_agenda *agenda);

/*
 * The low half of `what` is mostly an index of this array, whose element is prefetched some time
 * before the entry is taken. Any other number does no harm.
 */
void vb_world_agenda_hint(struct vb_world_agenda *agenda, const void *array, size_t size);

/*
 * `near` is called for entries that will be taken soon, so that it can prefetch what they need: for
 * each of them first as the near one, when the element of the hint is in the cache, and then as the
 * nearer one, when what was prefetched for the near one is. One of the two may be
 * VB_AGENDA_NOTHING.
 */
void vb_world_agenda_watch(struct vb_world_agenda *agenda,
                           void (*near)(const void *context, uint64_t near, uint64_t nearer),
                           const void *context);

/* Makes room for one more entry in the slot. -ENOMEM. */
int vb_world_agenda_grow(struct vb_world_agenda *agenda, struct vb_world_agenda_slot *slot);
/* Adds an entry to one of the heaps. -ENOMEM. */
int vb_world_agenda_push(struct vb_world_agenda *agenda, const struct vb_world_agenda_entry *entry);
/* vb_world_agenda_take where a heap may have the first entry, or the slot has none left. */
bool vb_world_agenda_advance(struct vb_world_agenda *agenda, uint64_t limit,
                             struct vb_world_agenda_entry *entry);

/* Entries from `at` on may be added, though a later one was taken. */
void vb_world_agenda_turn_back(struct vb_world_agenda *agenda, uint64_t at);
/* The time of the first entry; UINT64_MAX: there is none. */
uint64_t vb_world_agenda_first(const struct vb_world_agenda *agenda);
/*
 * Takes all entries, in no order, and calls `take` for each. It returns an error, or 0, and the
 * rest is dropped after an error.
 */
int vb_world_agenda_empty(struct vb_world_agenda *agenda,
                          int (*take)(void *context, const struct vb_world_agenda_entry *entry),
                          void *context);

/*
 * The place of an entry among those of its time: by `what`, after the arrivals, which are below
 * 2^32. These are in an order that is drawn for each time, so that of the ports of a switch at
 * which packets arrive in step none is always the first.
 */
static inline uint64_t vb_world_agenda_rank(const struct vb_world_agenda_entry *entry)
{
    return entry->what >> 32
               ? entry->what
               : vb_world_mix(entry->at + entry->what * VB_WORLD_GOLDEN) >> (64 - VB_AGENDA_RANK);
}

static inline bool vb_world_agenda_precedes(const struct vb_world_agenda_entry *one,
                                            const struct vb_world_agenda_entry *other)
{
    return one->at < other->at ||
           (one->at == other->at && vb_world_agenda_rank(one) < vb_world_agenda_rank(other));
}

/* -EINVAL: `at` is before the time taken last. -ENOMEM. */
static inline int vb_world_agenda_add(struct vb_world_agenda *agenda, uint64_t at, uint64_t what)
{
    struct vb_world_agenda_entry entry = {at, what};
    uint64_t number = at >> VB_AGENDA_WIDTH, place = number % VB_AGENDA_SLOTS;
    struct vb_world_agenda_slot *slot = &agenda->wheel[place];
    int error = 0;

    if (__builtin_expect(at < agenda->last, 0))
        return -EINVAL;
    if (number <= agenda->slot || number - agenda->slot >= VB_AGENDA_SLOTS) {
        error = vb_world_agenda_push(agenda, &entry);
    } else {
        if (__builtin_expect(slot->count == slot->room, 0))
            error = vb_world_agenda_grow(agenda, slot);
        if (__builtin_expect(error, 0))
            return error;
        slot->entry[slot->count++] = entry;
        agenda->filled[place / 64] |= 1ull << place % 64;
    }
    agenda->count += !error;
    return error;
}

/* Prefetches for entries that follow `first` in its slot, of which `left` are left. */
static inline void vb_world_agenda_prefetch(const struct vb_world_agenda *agenda,
                                            const struct vb_world_agenda_entry *first,
                                            uint32_t left)
{
    if (left <= VB_AGENDA_NEARER || !agenda->near)
        return;
    agenda->near(agenda->near_context,
                 left > VB_AGENDA_NEAR ? first[VB_AGENDA_NEAR].what : VB_AGENDA_NOTHING,
                 first[VB_AGENDA_NEARER].what);
    if (left > 2 * VB_AGENDA_NEAR)
        __builtin_prefetch(
            agenda->hint + (uint32_t)first[2 * VB_AGENDA_NEAR].what * agenda->hint_size, 1);
}

/* Takes the first entry. False: there is none, or its time is after `limit`. */
static inline bool vb_world_agenda_take(struct vb_world_agenda *agenda, uint64_t limit,
                                        struct vb_world_agenda_entry *entry)
{
    const struct vb_world_agenda_entry *first = agenda->sorted + agenda->next;

    if (agenda->next == agenda->end ||
        (agenda->soon.count && vb_world_agenda_precedes(&agenda->soon.entry[0], first)) ||
        (agenda->far.count && vb_world_agenda_precedes(&agenda->far.entry[0], first)))
        return vb_world_agenda_advance(agenda, limit, entry);
    if (first->at > limit)
        return false;
    vb_world_agenda_prefetch(agenda, first, agenda->end - agenda->next);
    *entry = *first;
    ++agenda->next;
    agenda->last = entry->at;
    --agenda->count;
    return true;
}

#endif
