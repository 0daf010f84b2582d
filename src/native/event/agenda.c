// SPDX-License-Identifier: Apache-2.0
/*
 * The timing wheel of agenda.h: its slots, and the heaps beside it.
 *
 * An entry beyond the wheel stays in the heap `far` although its slot enters the wheel later. It
 * was added before all entries of its time that are elsewhere, since those were added when the slot
 * was on the wheel already; and what is in `soon` was added after all else of its slot. So entries
 * of one time are taken from `far`, from the slot, and from `soon`, in this order.
 */
#include "event/agenda.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_ROOM = 16,
    PARTS = 64, /* of a slot, for sorting: 128 ps each */
    PART_WIDTH = VB_AGENDA_WIDTH - 6,
    FEW = 12, /* entries that are sorted by insertion alone */
};

_Static_assert(PARTS << PART_WIDTH == 1 << VB_AGENDA_WIDTH, "the parts are the slot");

void vb_world_agenda_free(struct vb_world_agenda *agenda)
{
    for (int i = 0; i < VB_AGENDA_SLOTS; ++i)
        free(agenda->wheel[i].entry);
    free(agenda->soon.entry);
    free(agenda->far.entry);
    free(agenda->scratch);
}

void vb_world_agenda_hint(struct vb_world_agenda *agenda, const void *array, size_t size)
{
    agenda->hint = array;
    agenda->hint_size = size;
}

void vb_world_agenda_watch(struct vb_world_agenda *agenda,
                           void (*near)(const void *context, uint64_t what), const void *context)
{
    agenda->near = near;
    agenda->near_context = context;
}

/* ---- the heaps ------------------------------------------------------------------------------- */

static bool precedes(const struct vb_world_agenda_ordered *one,
                     const struct vb_world_agenda_ordered *other)
{
    if (one->entry.at != other->entry.at)
        return one->entry.at < other->entry.at;
    return one->order < other->order;
}

static int agenda_heap_grow(struct vb_world_agenda_heap *heap)
{
    uint32_t room = heap->room ? 2 * heap->room : FIRST_ROOM;
    struct vb_world_agenda_ordered *grown = realloc(heap->entry, room * sizeof(*grown));

    if (!grown)
        return -ENOMEM;
    heap->entry = grown;
    heap->room = room;
    return 0;
}

int vb_world_agenda_push(struct vb_world_agenda *agenda, const struct vb_world_agenda_entry *entry)
{
    bool is_far = entry->at >> VB_AGENDA_WIDTH > agenda->slot;
    struct vb_world_agenda_heap *heap = is_far ? &agenda->far : &agenda->soon;
    struct vb_world_agenda_ordered added = {*entry, agenda->order++};
    uint32_t at;

    if (heap->count == heap->room && agenda_heap_grow(heap))
        return -ENOMEM;
    for (at = heap->count++; at && precedes(&added, &heap->entry[(at - 1) / 2]); at = (at - 1) / 2)
        heap->entry[at] = heap->entry[(at - 1) / 2];
    heap->entry[at] = added;
    return 0;
}

static struct vb_world_agenda_entry agenda_heap_take(struct vb_world_agenda_heap *heap)
{
    struct vb_world_agenda_entry first = heap->entry[0].entry;
    struct vb_world_agenda_ordered moved = heap->entry[--heap->count];
    uint32_t at = 0, child;

    while ((child = 2 * at + 1) < heap->count) {
        if (child + 1 < heap->count && precedes(&heap->entry[child + 1], &heap->entry[child]))
            ++child;
        if (!precedes(&heap->entry[child], &moved))
            break;
        heap->entry[at] = heap->entry[child];
        at = child;
    }
    heap->entry[at] = moved;
    return first;
}

/* ---- the slots ------------------------------------------------------------------------------- */

/* Taking an entry needs no memory, as there is enough for sorting the largest slot. */
int vb_world_agenda_grow(struct vb_world_agenda *agenda, struct vb_world_agenda_slot *slot)
{
    uint32_t room = slot->room ? 2 * slot->room : FIRST_ROOM;
    struct vb_world_agenda_entry *grown;

    if (room > agenda->scratch_room) {
        grown = realloc(agenda->scratch, room * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        agenda->scratch = grown;
        agenda->scratch_room = room;
    }
    grown = realloc(slot->entry, room * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    slot->entry = grown;
    slot->room = room;
    return 0;
}

static uint32_t part_of(const struct vb_world_agenda_entry *entry)
{
    return entry->at >> PART_WIDTH & (PARTS - 1);
}

/* Distributes the entries to the parts of the slot, in which they keep their order. */
static void spread(struct vb_world_agenda *agenda, struct vb_world_agenda_entry *entry,
                   uint32_t count)
{
    uint32_t place[PARTS] = {0}, before = 0;

    for (uint32_t i = 0; i < count; ++i)
        ++place[part_of(&entry[i])];
    for (uint32_t i = 0; i < PARTS; ++i) {
        uint32_t own = place[i];

        place[i] = before;
        before += own;
    }
    memcpy(agenda->scratch, entry, count * sizeof(*entry));
    for (uint32_t i = 0; i < count; ++i)
        entry[place[part_of(&agenda->scratch[i])]++] = agenda->scratch[i];
}

static void insert_in_order(struct vb_world_agenda_entry *entry, uint32_t count)
{
    for (uint32_t i = 1; i < count; ++i) {
        struct vb_world_agenda_entry moved = entry[i];
        uint32_t at = i;

        for (; at && entry[at - 1].at > moved.at; --at)
            entry[at] = entry[at - 1];
        entry[at] = moved;
    }
}

/* The number of the first slot with entries after the current one; UINT64_MAX: none has any. */
static uint64_t next_slot(const struct vb_world_agenda *agenda)
{
    uint32_t first = (agenda->slot + 1) % VB_AGENDA_SLOTS, words = VB_AGENDA_SLOTS / 64;
    uint64_t word = agenda->filled[first / 64] & ~0ull << first % 64;

    for (uint32_t i = 0; i <= words; ++i) {
        uint32_t number = (first / 64 + i) % words;

        if (i)
            word = agenda->filled[number];
        if (word) {
            uint32_t place = number * 64 + (uint32_t)__builtin_ctzll(word);

            return agenda->slot + 1 + (place - first) % VB_AGENDA_SLOTS;
        }
    }
    return UINT64_MAX;
}

/* Empties the current slot, all of whose entries were taken. */
static void agenda_leave_slot(struct vb_world_agenda *agenda)
{
    uint32_t place = agenda->slot % VB_AGENDA_SLOTS;

    if (!agenda->sorted)
        return;
    agenda->wheel[place].count = 0;
    agenda->filled[place / 64] &= ~(1ull << place % 64);
    agenda->sorted = NULL;
    agenda->next = agenda->end = 0;
}

/* Makes the slot the current one. Its entries, if it has any, are in order then. */
static void agenda_enter_slot(struct vb_world_agenda *agenda, uint64_t number)
{
    struct vb_world_agenda_slot *slot = &agenda->wheel[number % VB_AGENDA_SLOTS];

    agenda->slot = number;
    if (!slot->count)
        return;
    if (slot->count > FEW)
        spread(agenda, slot->entry, slot->count);
    insert_in_order(slot->entry, slot->count);
    agenda->sorted = slot->entry;
    agenda->end = slot->count;
    for (uint32_t i = 0; i < agenda->end && i < 2 * VB_AGENDA_NEAR; ++i)
        __builtin_prefetch(agenda->hint + (uint32_t)slot->entry[i].what * agenda->hint_size, 1);
}

/* Goes to the slot of the first entry, unless that is after `limit`. Nothing is left in the current
 * slot and in `soon`. False: there is no entry. */
static bool find_slot(struct vb_world_agenda *agenda, uint64_t limit)
{
    uint64_t number = next_slot(agenda), far = UINT64_MAX;

    if (agenda->far.count)
        far = agenda->far.entry[0].entry.at >> VB_AGENDA_WIDTH;
    if (far < number)
        number = far;
    if (number == UINT64_MAX || number > limit >> VB_AGENDA_WIDTH)
        return false;
    agenda_leave_slot(agenda);
    agenda_enter_slot(agenda, number);
    return true;
}

bool vb_world_agenda_advance(struct vb_world_agenda *agenda, uint64_t limit,
                             struct vb_world_agenda_entry *entry)
{
    struct vb_world_agenda_heap *soon = &agenda->soon, *far = &agenda->far, *from = NULL;
    const struct vb_world_agenda_entry *first;

    if (agenda->next == agenda->end && !soon->count && !find_slot(agenda, limit))
        return false;
    first = agenda->next < agenda->end ? &agenda->sorted[agenda->next] : NULL;
    if (soon->count && (!first || soon->entry[0].entry.at < first->at))
        first = &(from = soon)->entry[0].entry;
    if (far->count && (!first || far->entry[0].entry.at <= first->at))
        first = &(from = far)->entry[0].entry;
    if (!first || first->at > limit)
        return false;
    if (from) {
        *entry = agenda_heap_take(from);
    } else {
        vb_world_agenda_prefetch(agenda, first, agenda->end - agenda->next);
        *entry = *first;
        ++agenda->next;
    }
    agenda->last = entry->at;
    --agenda->count;
    return true;
}
