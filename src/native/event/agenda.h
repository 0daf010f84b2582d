// SPDX-License-Identifier: Apache-2.0
/*
 * The queue of pending events: a radix heap (Ahuja, Mehlhorn, Orlin and Tarjan, 1990). Simulated
 * time never goes back, so an entry's bucket is the highest bit in which its time differs from the
 * time taken last: adding an entry compares nothing, and entries move to lower buckets only.
 * Entries of the same time are taken in the order in which they were added.
 */
#ifndef VB_EVENT_AGENDA_H
#define VB_EVENT_AGENDA_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VB_AGENDA_BUCKETS = 65 };

struct vb_world_agenda_entry {
    uint64_t at;
    uint64_t what; /* the event; its low half is the index that vb_world_agenda_hint is about */
};

struct vb_world_agenda_bucket {
    struct vb_world_agenda_entry *entry;
    uint32_t count, room;
};

struct vb_world_agenda {
    uint64_t last;   /* the time taken last */
    uint64_t filled; /* bit b - 1: bucket b has entries */
    uint32_t taken;  /* entries of bucket 0, whose time is `last`, that were taken */
    bool starved;    /* vb_world_agenda_take had no memory; it may be called again */
    uintptr_t hint;  /* vb_world_agenda_hint */
    size_t hint_size;
    void (*near)(const void *context, uint64_t what); /* vb_world_agenda_watch */
    const void *near_context;
    uint64_t count;
    struct vb_world_agenda_bucket bucket[VB_AGENDA_BUCKETS];
};

void vb_world_agenda_free(struct vb_world_agenda *agenda);

/*
 * The low half of `what` is mostly an index of this array, whose element is prefetched some time
 * before the entry is taken. Any other number does no harm.
 */
void vb_world_agenda_hint(struct vb_world_agenda *agenda, const void *array, size_t size);

/*
 * `near` is called, perhaps more than once, for entries that will be taken within nanoseconds, so
 * that it can prefetch what they need. The element of the hint is in the cache by then.
 */
void vb_world_agenda_watch(struct vb_world_agenda *agenda,
                           void (*near)(const void *context, uint64_t what), const void *context);

int vb_world_agenda_grow(struct vb_world_agenda_bucket *bucket);
/* vb_world_agenda_take, when no entry of `last` is left. */
bool vb_world_agenda_advance(struct vb_world_agenda *agenda, uint64_t limit,
                             struct vb_world_agenda_entry *entry);

static inline int vb_world_agenda_put(struct vb_world_agenda *agenda,
                                      const struct vb_world_agenda_entry *entry)
{
    uint64_t differs = entry->at ^ agenda->last;
    unsigned number = differs ? 64 - (unsigned)__builtin_clzll(differs) : 0;
    struct vb_world_agenda_bucket *bucket = &agenda->bucket[number];

    if (__builtin_expect(bucket->count == bucket->room, 0)) {
        int error = vb_world_agenda_grow(bucket);

        if (error)
            return error;
    }
    bucket->entry[bucket->count++] = *entry;
    if (number)
        agenda->filled |= 1ull << (number - 1);
    return 0;
}

/* -EINVAL: `at` is before the time taken last. -ENOMEM. */
static inline int vb_world_agenda_add(struct vb_world_agenda *agenda, uint64_t at, uint64_t what)
{
    struct vb_world_agenda_entry entry = {at, what};
    int error;

    if (__builtin_expect(at < agenda->last, 0))
        return -EINVAL;
    error = vb_world_agenda_put(agenda, &entry);
    if (__builtin_expect(!error, 1))
        ++agenda->count;
    return error;
}

/* Takes the first entry. False: there is none, or its time is after `limit`. */
static inline bool vb_world_agenda_take(struct vb_world_agenda *agenda, uint64_t limit,
                                        struct vb_world_agenda_entry *entry)
{
    struct vb_world_agenda_bucket *now = &agenda->bucket[0];

    if (agenda->taken == now->count)
        return vb_world_agenda_advance(agenda, limit, entry);
    if (agenda->last > limit)
        return false;
    *entry = now->entry[agenda->taken++];
    --agenda->count;
    return true;
}

#endif
