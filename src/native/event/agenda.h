// SPDX-License-Identifier: Apache-2.0
/*
 * What is to happen, by time: a radix heap (Ahuja, Mehlhorn, Orlin and Tarjan, 1990). Simulated
 * time never goes back, so an entry's bucket is the highest bit in which its time differs from the
 * time taken last: adding costs no comparison, and each entry moves to lower buckets only. Entries
 * of one time leave in the order in which they came.
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
    uint64_t what; /* the user's */
};

struct vb_world_agenda_bucket {
    struct vb_world_agenda_entry *entry;
    uint32_t count, room;
};

struct vb_world_agenda {
    uint64_t last;   /* the time taken last */
    uint64_t filled; /* bit b - 1: bucket b has entries */
    uint32_t taken;  /* entries of bucket 0, those of `last`, that have left */
    bool starved;    /* vb_world_agenda_take failed for lack of memory, and may be tried again */
    uintptr_t hint;  /* vb_world_agenda_hint */
    size_t hint_size;
    void (*near)(const void *context, uint64_t what); /* vb_world_agenda_watch */
    const void *near_context;
    uint64_t count;
    struct vb_world_agenda_bucket bucket[VB_AGENDA_BUCKETS];
};

void vb_world_agenda_free(struct vb_world_agenda *agenda);

/*
 * The low half of `what` is mostly a place in this array: its line is fetched when an entry comes
 * near. Only a hint, so whatever else `what` is does no harm.
 */
void vb_world_agenda_hint(struct vb_world_agenda *agenda, const void *array, size_t size);

/*
 * `near` is called, perhaps more than once, with what comes soon, so that it can fetch what that
 * will need; the hint's lines are there by then.
 */
void vb_world_agenda_watch(struct vb_world_agenda *agenda,
                           void (*near)(const void *context, uint64_t what), const void *context);

int vb_world_agenda_grow(struct vb_world_agenda_bucket *bucket);
/* The first entry if it is not after `limit`, when no entry of `last` is left. */
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

/* -EINVAL: before what was taken last. -ENOMEM. */
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

/* The first entry, unless it comes after `limit`; false then, and when there is none. */
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
