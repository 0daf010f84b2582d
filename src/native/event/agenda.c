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
    MOST_PARTS = 256,                  /* among which the entries of a slot are divided at once */
    FEW_BITS = 5,
    FEW = 1 << FEW_BITS, /* entries that are not divided */
    FIRST_BITS = 32 - FEW_BITS,
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
                           void (*near)(const void *context, uint64_t near, uint64_t nearer),
                           const void *context)
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

/* Of two entries of a slot with the same key, their times are equal and their ranks are not. */
static bool precedes_by_rank(uint64_t base, const struct vb_world_agenda_entry *one,
                             const struct vb_world_agenda_entry *other)
{
    uint64_t at = base | one->at >> TIME_SHIFT;
    struct vb_world_agenda_entry first = {at, one->what}, second = {at, other->what};

    return vb_world_agenda_precedes(&first, &second);
}

static void insert_in_order(uint64_t base, struct vb_world_agenda_entry *entry, uint32_t count)
{
    for (uint32_t i = 1; i < count; ++i) {
        struct vb_world_agenda_entry moved = entry[i];
        uint32_t at = i;

        for (; at && moved.at <= entry[at - 1].at; --at) {
            if (moved.at == entry[at - 1].at && !precedes_by_rank(base, &moved, &entry[at - 1]))
                break;
            entry[at] = entry[at - 1];
        }
        entry[at] = moved;
    }
}

/* Four numbers that the processor compares at once. */
typedef int32_t four __attribute__((vector_size(16)));

/* How many of the numbers in `count` fours are less than one. */
static uint32_t count_less(const four *number, uint32_t count, int32_t than)
{
    four less = {0}, thans = {than, than, than, than};

    for (uint32_t i = 0; i < count; ++i)
        less -= number[i] < thans;
    return (uint32_t)(less[0] + less[1] + less[2] + less[3]);
}

/*
 * Orders up to FEW entries by their keys' first bits: those of what they exceed `least` by, without
 * the last `shift`. Their places make these numbers different, and each entry goes to the place of
 * which as many numbers are less, since a branch for each comparison would be guessed wrong mostly.
 * Keys with the same first bits are rare, and `sort` looks at them again.
 */
static void order_few(struct vb_world_agenda_entry *entry, uint32_t count, uint64_t least,
                      int shift)
{
    struct vb_world_agenda_entry copy[FEW];
    union {
        int32_t one[FEW];
        four four[FEW / 4];
    } number;
    uint32_t fours = (count + 3) / 4;

    number.four[fours - 1] = (four){INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t first = (uint32_t)((entry[i].at - least) >> shift) << FEW_BITS | i;

        number.one[i] = (int32_t)(first ^ 1u << 31);
        copy[i] = entry[i];
    }
    for (uint32_t i = 0; i < count; ++i)
        entry[count_less(number.four, fours, number.one[i])] = copy[i];
}

/* How far the keys are shifted, such that their range becomes a fraction of the number of entries.
 */
static int shift_of(uint64_t range, uint32_t count)
{
    uint32_t parts = count / 4 < MOST_PARTS ? count / 4 : MOST_PARTS;
    int wide = 64 - __builtin_clzll(range), narrow = 31 - __builtin_clz(parts);

    return wide > narrow ? wide - narrow : 0;
}

/*
 * Distributes many entries by their keys to parts of equal ranges of keys, and each part with many
 * again. Packets of a large fabric may arrive in step, so many may be of one time: then the ranks
 * divide them.
 */
static void spread(struct vb_world_agenda *agenda, struct vb_world_agenda_entry *entry,
                   uint32_t count)
{
    uint32_t place[MOST_PARTS], before = 0, parts;
    uint64_t least = UINT64_MAX, greatest = 0;
    int shift;

    for (uint32_t i = 0; i < count; ++i) {
        least = entry[i].at < least ? entry[i].at : least;
        greatest = entry[i].at > greatest ? entry[i].at : greatest;
    }
    if (least == greatest)
        return;
    shift = shift_of(greatest - least, count);
    parts = (uint32_t)((greatest - least) >> shift) + 1;
    memset(place, 0, parts * sizeof(*place));
    for (uint32_t i = 0; i < count; ++i)
        ++place[(entry[i].at - least) >> shift];
    for (uint32_t i = 0; i < parts; ++i) {
        uint32_t own = place[i];

        place[i] = before;
        before += own;
    }
    memcpy(agenda->scratch, entry, count * sizeof(*entry));
    for (uint32_t i = 0; i < count; ++i)
        entry[place[(agenda->scratch[i].at - least) >> shift]++] = agenda->scratch[i];
    before = 0;
    for (uint32_t i = 0; i < parts; before = place[i++]) {
        if (place[i] - before > FEW)
            spread(agenda, entry + before, place[i] - before);
        else if (place[i] - before > 1)
            order_few(entry + before, place[i] - before, least + ((uint64_t)i << shift),
                      shift > FIRST_BITS ? shift - FIRST_BITS : 0);
    }
}

/* Each entry's rank is computed once: its key stands in place of its time meanwhile. */
static void sort(struct vb_world_agenda *agenda, struct vb_world_agenda_entry *entry,
                 uint32_t count)
{
    uint64_t base = entry->at >> VB_AGENDA_WIDTH << VB_AGENDA_WIDTH;
    bool wrong = false;

    for (uint32_t i = 0; i < count; ++i)
        entry[i].at = agenda_key(&entry[i]);
    if (count > FEW)
        spread(agenda, entry, count);
    else
        order_few(entry, count, 0, 64 - FIRST_BITS);
    for (uint32_t i = 1; i < count; ++i)
        wrong |= entry[i].at <= entry[i - 1].at;
    if (wrong)
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

/* Prefetches for the first entries of the current slot, and for those of the next. */
static void prefetch_slots(const struct vb_world_agenda *agenda)
{
    uint64_t number = next_slot(agenda);
    const struct vb_world_agenda_slot *next = &agenda->wheel[number % VB_AGENDA_SLOTS];

    for (uint32_t i = 0; agenda->near && i < agenda->end && i < VB_AGENDA_NEAR; ++i)
        agenda->near(agenda->near_context, agenda->sorted[i].what, VB_AGENDA_NOTHING);
    for (uint32_t i = VB_AGENDA_NEAR; i < agenda->end && i < 2 * VB_AGENDA_NEAR; ++i)
        __builtin_prefetch(agenda->hint + (uint32_t)agenda->sorted[i].what * agenda->hint_size, 1);
    if (number == UINT64_MAX)
        return;
    for (uint32_t i = 0; i < next->count && i < 2 * VB_AGENDA_NEAR; ++i)
        __builtin_prefetch(agenda->hint + (uint32_t)next->entry[i].what * agenda->hint_size, 1);
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
    prefetch_slots(agenda);
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
