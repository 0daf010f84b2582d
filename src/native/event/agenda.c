// SPDX-License-Identifier: Apache-2.0
/*
 * The timing wheel of agenda.h: its slots, and the heaps beside it.
 * An entry beyond the wheel stays in the heap `far` although its slot enters the wheel later.
 */
#include "event/agenda.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_ROOM = 16,
    TIME_SHIFT = 64 - VB_AGENDA_WIDTH, /* in a key: the time within its slot comes first */
    RANK_BITS = TIME_SHIFT - 1,        /* and the first bits of the rank last */
    PART_WIDTH = 6,                    /* bits by which a slot is divided, and each part again */
    PARTS = 1 << PART_WIDTH,
    LAST_SHIFT = 64 - 4 * PART_WIDTH, /* no part is divided further */
    FEW = 40,                         /* entries that are sorted by insertion alone */
};

#define LATER_KEY (1ull << RANK_BITS) /* in the key of what is no arrival */

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

static int agenda_heap_grow(struct vb_world_agenda_heap *heap)
{
    uint32_t room = heap->room ? 2 * heap->room : FIRST_ROOM;
    struct vb_world_agenda_entry *grown = realloc(heap->entry, room * sizeof(*grown));

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
    uint32_t at;

    if (heap->count == heap->room && agenda_heap_grow(heap))
        return -ENOMEM;
    for (at = heap->count++; at && vb_world_agenda_precedes(entry, &heap->entry[(at - 1) / 2]);
         at = (at - 1) / 2)
        heap->entry[at] = heap->entry[(at - 1) / 2];
    heap->entry[at] = *entry;
    return 0;
}

static struct vb_world_agenda_entry agenda_heap_take(struct vb_world_agenda_heap *heap)
{
    struct vb_world_agenda_entry first = heap->entry[0];
    struct vb_world_agenda_entry moved = heap->entry[--heap->count];
    uint32_t at = 0, child;

    while ((child = 2 * at + 1) < heap->count) {
        if (child + 1 < heap->count &&
            vb_world_agenda_precedes(&heap->entry[child + 1], &heap->entry[child]))
            ++child;
        if (!vb_world_agenda_precedes(&heap->entry[child], &moved))
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

/*
 * The order of an entry in its slot as one number: its time within the slot, whether it is an
 * arrival, and the first bits of its rank, which are so many that two arrivals of one time seldom
 * have the same.
 */
static uint64_t agenda_key(const struct vb_world_agenda_entry *entry)
{
    uint64_t rank = vb_world_agenda_rank(entry);
    bool arrives = entry->what >> 32 == 0;

    return entry->at << TIME_SHIFT | (arrives ? rank >> (VB_AGENDA_RANK - RANK_BITS)
                                              : LATER_KEY | (rank >> (64 - RANK_BITS)));
}

static bool is_in_order(uint64_t base, const struct vb_world_agenda_entry *one,
                        const struct vb_world_agenda_entry *other)
{
    uint64_t at = base | one->at >> TIME_SHIFT;
    struct vb_world_agenda_entry first = {at, one->what}, second = {at, other->what};

    return one->at != other->at ? one->at < other->at : vb_world_agenda_precedes(&first, &second);
}

/*
 * Distributes the entries by bits of their keys to parts, in which they keep their order, and each
 * part with many again. Packets of a large fabric may arrive in step, so many may be of one time.
 */
static void spread(struct vb_world_agenda *agenda, struct vb_world_agenda_entry *entry,
                   uint32_t count, int shift)
{
    uint32_t place[PARTS] = {0}, before = 0;

    for (uint32_t i = 0; i < count; ++i)
        ++place[entry[i].at >> shift & (PARTS - 1)];
    for (uint32_t i = 0; i < PARTS; ++i) {
        uint32_t own = place[i];

        place[i] = before;
        before += own;
    }
    memcpy(agenda->scratch, entry, count * sizeof(*entry));
    for (uint32_t i = 0; i < count; ++i)
        entry[place[agenda->scratch[i].at >> shift & (PARTS - 1)]++] = agenda->scratch[i];
    before = 0;
    for (uint32_t i = 0; shift > LAST_SHIFT && i < PARTS; before = place[i++])
        if (place[i] - before > FEW)
            spread(agenda, entry + before, place[i] - before, shift - PART_WIDTH);
}

static void insert_in_order(uint64_t base, struct vb_world_agenda_entry *entry, uint32_t count)
{
    for (uint32_t i = 1; i < count; ++i) {
        struct vb_world_agenda_entry moved = entry[i];
        uint32_t at = i;

        for (; at && is_in_order(base, &moved, &entry[at - 1]); --at)
            entry[at] = entry[at - 1];
        entry[at] = moved;
    }
}

/* Each entry's rank is computed once: its key stands in place of its time meanwhile. */
static void sort(struct vb_world_agenda *agenda, struct vb_world_agenda_entry *entry,
                 uint32_t count)
{
    uint64_t base = entry->at >> VB_AGENDA_WIDTH << VB_AGENDA_WIDTH;

    for (uint32_t i = 0; i < count; ++i)
        entry[i].at = agenda_key(&entry[i]);
    if (count > FEW)
        spread(agenda, entry, count, 64 - PART_WIDTH);
    insert_in_order(base, entry, count);
    for (uint32_t i = 0; i < count; ++i)
        entry[i].at = base | entry[i].at >> TIME_SHIFT;
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
    if (slot->count > 1)
        sort(agenda, slot->entry, slot->count);
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
        far = agenda->far.entry[0].at >> VB_AGENDA_WIDTH;
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
    if (soon->count && (!first || vb_world_agenda_precedes(&soon->entry[0], first)))
        first = &(from = soon)->entry[0];
    if (far->count && (!first || vb_world_agenda_precedes(&far->entry[0], first)))
        first = &(from = far)->entry[0];
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

static uint64_t agenda_earlier(uint64_t at, const struct vb_world_agenda_entry *entry,
                               uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i)
        at = entry[i].at < at ? entry[i].at : at;
    return at;
}

uint64_t vb_world_agenda_first(const struct vb_world_agenda *agenda)
{
    uint64_t at = agenda_earlier(UINT64_MAX, agenda->soon.entry, agenda->soon.count > 0), number;

    at = agenda_earlier(at, agenda->far.entry, agenda->far.count > 0);
    if (agenda->next < agenda->end)
        return agenda_earlier(at, &agenda->sorted[agenda->next], 1);
    number = next_slot(agenda);
    if (number == UINT64_MAX || number == agenda->slot + VB_AGENDA_SLOTS) /* the current slot */
        return at;
    number %= VB_AGENDA_SLOTS;
    return agenda_earlier(at, agenda->wheel[number].entry, agenda->wheel[number].count);
}

/* What is added for a slot that is over goes into the heap `soon`. */
void vb_world_agenda_turn_back(struct vb_world_agenda *agenda, uint64_t at)
{
    if (agenda->last > at)
        agenda->last = at;
}

int vb_world_agenda_empty(struct vb_world_agenda *agenda,
                          int (*take)(void *context, const struct vb_world_agenda_entry *entry),
                          void *context)
{
    struct vb_world_agenda_entry entry;
    int error = 0;

    while (vb_world_agenda_take(agenda, UINT64_MAX, &entry))
        if (!error)
            error = take(context, &entry);
    return error;
}
