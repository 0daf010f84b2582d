// SPDX-License-Identifier: Apache-2.0
/*
 * Changes to the process's mappings, and who wants to know of them. Under `verbena run` a library
 * (preload/paths/watch) interposes the calls by which a program changes its mappings, its handlers
 * of faults and its signal masks, and reports them here: the process is watched then. In a process
 * that is not watched nothing is reported, and callers must not rely on it.
 * docs/design.md ("Other memory at the same addresses") says what remains unseen in either case.
 */
#ifndef VB_MEMORY_WATCH_H
#define VB_MEMORY_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Called by the watching library, before there are other threads. */
void vb_memory_watch_begin(void);
bool vb_memory_watch_is_on(void);

/* What happens to a mapping. */
enum vb_mapping {
    VB_MAPPING_PROTECTED, /* it is about to be made read-only, or not even that, or may be moved */
    VB_MAPPING_FREED,     /* so are these bytes, at any later time: the C library has them back */
    VB_MAPPING_GOES,      /* it is about to be unmapped, or replaced by another */
    VB_MAPPING_WENT,      /* it has been unmapped, or replaced by another */
    VB_MAPPING_STAYED,    /* it has not, since the system refused what was announced as GOES */
    VB_MAPPING_LOST,      /* it was unmapped already; what arrived there was put there before */
};

/* Who wants to know of changes to the ranges that were named; `changed` runs in the program's
 * thread, and may wait. True: the change concerns it. */
struct vb_watcher {
    struct vb_watcher *next;
    bool (*changed)(struct vb_watcher *watcher, uintptr_t at, size_t n, enum vb_mapping change);
};

void vb_memory_watch_add(struct vb_watcher *watcher);
/* It is not called any more when this returns. */
void vb_memory_watch_remove(struct vb_watcher *watcher);
/* In a forked child, whose memory is nobody's yet. */
void vb_memory_watch_forget(void);
/* Changes here concern somebody; never taken back. */
void vb_memory_watch_range(uintptr_t at, size_t n);

/*
 * Where the ranges are, as two maps of bits: the pages that they touch, and units of 16 bytes,
 * which is how glibc aligns blocks, of a range's first page and last page. So a block on the page
 * of a range, but not in it, is told from one that is. The watching library looks here when a block
 * is freed: a search among the regions would cost more than the rest of free(). Places that lie a
 * map's period apart have one bit, and no bit is taken back; so a range may seem to be where none
 * is, which costs that search. Of a range above VB_WATCH_LONGEST only the beginning is in the map:
 * a block that holds the range holds that.
 */
#define VB_WATCH_PAGE    ((uintptr_t)4096)
#define VB_WATCH_UNIT    ((uintptr_t)16)
#define VB_WATCH_LONGEST ((size_t)64 << 20)
#define VB_WATCH_WORD    ((uintptr_t)64)      /* bits for a word */
#define VB_WATCH_WORDS   ((uintptr_t)1 << 18) /* of each map, most of which no program touches */

struct vb_watch_map {
    atomic_bool is_used;
    _Atomic uint64_t pages[VB_WATCH_WORDS];
    _Atomic uint64_t units[VB_WATCH_WORDS];
};

const struct vb_watch_map *vb_memory_watch_map(void);

/* Of the bits first to last, those in the word. */
static inline uint64_t vb_memory_watch_bits(uintptr_t first, uintptr_t last, uintptr_t word)
{
    uint64_t bits = UINT64_MAX;

    if (word == first / VB_WATCH_WORD)
        bits &= UINT64_MAX << first % VB_WATCH_WORD;
    if (word == last / VB_WATCH_WORD)
        bits &= UINT64_MAX >> (VB_WATCH_WORD - 1 - last % VB_WATCH_WORD);
    return bits;
}

/* Is one of the bits first to last set? */
static inline bool vb_memory_watch_any(const _Atomic uint64_t *words, uintptr_t first,
                                       uintptr_t last)
{
    for (uintptr_t word = first / VB_WATCH_WORD; word <= last / VB_WATCH_WORD; ++word)
        if (atomic_load_explicit(&words[word % VB_WATCH_WORDS], memory_order_relaxed) &
            vb_memory_watch_bits(first, last, word))
            return true;
    return false;
}

/* Some page of [low, high] is a range's. False: no range is there. */
bool vb_memory_watch_may_meet_there(const struct vb_watch_map *map, uintptr_t low, uintptr_t high);

/* False: no range is in [at, +n), which is not empty. */
static inline bool vb_memory_watch_may_meet(const struct vb_watch_map *map, uintptr_t at, size_t n)
{
    uintptr_t low = at / VB_WATCH_PAGE, high = (at + n - 1) / VB_WATCH_PAGE;
    uintptr_t word = low / VB_WATCH_WORD;

    if (!atomic_load_explicit(&map->is_used, memory_order_relaxed))
        return false;
    if (word == high / VB_WATCH_WORD &&
        !(atomic_load_explicit(&map->pages[word % VB_WATCH_WORDS], memory_order_relaxed) &
          vb_memory_watch_bits(low, high, word)))
        return false;
    return n > VB_WATCH_LONGEST || vb_memory_watch_may_meet_there(map, at, at + n - 1);
}

/* Called by the watching library, of [at, +n). True: somebody is concerned; of a mapping that goes
 * it has to be said then what became of that. */
bool vb_memory_watch_change(uintptr_t at, size_t n, enum vb_mapping change);

static inline void vb_memory_watch_mapping(uintptr_t at, size_t n)
{
    vb_memory_watch_change(at, n, VB_MAPPING_PROTECTED);
}

#endif
