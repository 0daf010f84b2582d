// SPDX-License-Identifier: Apache-2.0
/*
 * The radix heap of agenda.h. run.c takes events from it, and every part of the room adds events
 * through vb_world_add. A time must not be before the last one that was taken.
 */
#include "event/agenda.h"

#include <errno.h>
#include <stdlib.h>

enum {
    FIRST_ROOM = 16,
    SOON = 13, /* vb_world_agenda_watch reports entries within 2^13 ps, 8 ns */
};

void vb_world_agenda_free(struct vb_world_agenda *agenda)
{
    for (int i = 0; i < VB_AGENDA_BUCKETS; ++i)
        free(agenda->bucket[i].entry);
}

void vb_world_agenda_hint(struct vb_world_agenda *agenda, const void *array, size_t size)
{
    agenda->hint = (uintptr_t)array;
    agenda->hint_size = size;
}

void vb_world_agenda_watch(struct vb_world_agenda *agenda,
                           void (*near)(const void *context, uint64_t what), const void *context)
{
    agenda->near = near;
    agenda->near_context = context;
}

int vb_world_agenda_grow(struct vb_world_agenda_bucket *bucket)
{
    uint32_t room = bucket->room ? 2 * bucket->room : FIRST_ROOM;
    struct vb_world_agenda_entry *grown = realloc(bucket->entry, room * sizeof(*grown));

    if (!grown)
        return -ENOMEM;
    bucket->entry = grown;
    bucket->room = room;
    return 0;
}

static uint64_t agenda_earliest(const struct vb_world_agenda_bucket *bucket)
{
    uint64_t first = bucket->entry[0].at;

    for (uint32_t i = 1; i < bucket->count; ++i)
        first = bucket->entry[i].at < first ? bucket->entry[i].at : first;
    return first;
}

/* The buckets below are empty, so entries of the same time keep their order. */
static int agenda_spread(struct vb_world_agenda *agenda, struct vb_world_agenda_bucket *bucket)
{
    for (uint32_t i = 0; i < bucket->count; ++i) {
        int error = vb_world_agenda_put(agenda, &bucket->entry[i]);
        uintptr_t used = agenda->hint + (uint32_t)bucket->entry[i].what * agenda->hint_size;

        if (agenda->near && (bucket->entry[i].at ^ agenda->last) >> SOON == 0)
            agenda->near(agenda->near_context, bucket->entry[i].what);
        else
            __builtin_prefetch((const void *)used, 1);
        if (error)
            return error;
    }
    return 0;
}

bool vb_world_agenda_advance(struct vb_world_agenda *agenda, uint64_t limit,
                             struct vb_world_agenda_entry *entry)
{
    struct vb_world_agenda_bucket *bucket, *now = &agenda->bucket[0];
    unsigned number;
    uint64_t first, before = agenda->last;

    now->count = agenda->taken = 0;
    if (!agenda->filled)
        return false;
    number = (unsigned)__builtin_ctzll(agenda->filled) + 1;
    bucket = &agenda->bucket[number];
    first = bucket->count == 1 ? bucket->entry[0].at : agenda_earliest(bucket);
    if (first > limit)
        return false;
    agenda->last = first;
    if (bucket->count == 1) {
        *entry = bucket->entry[0];
    } else {
        if (agenda_spread(agenda, bucket)) { /* no memory: undo what was moved */
            for (unsigned i = 0; i < number; ++i)
                agenda->bucket[i].count = 0;
            agenda->filled &= ~((1ull << (number - 1)) - 1);
            agenda->last = before;
            agenda->starved = true;
            return false;
        }
        *entry = now->entry[agenda->taken++];
    }
    bucket->count = 0;
    agenda->filled &= ~(1ull << (number - 1));
    --agenda->count;
    return true;
}
