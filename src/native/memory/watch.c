// SPDX-License-Identifier: Apache-2.0
/* The watchers of this process's mappings and the maps of watched pages (watch.h). */
#include "memory/watch.h"

#include <errno.h>
#include <pthread.h>

#include "lock/order.h"

/* Mappings belong to the process, so these are the process's. */
static bool is_on;
/* Threads look at the same time: one that waits in `changed` holds up no other that frees memory.
 */
static pthread_rwlock_t watching = PTHREAD_RWLOCK_INITIALIZER;
static struct vb_watcher *watchers;
static _Atomic uintptr_t lowest = UINTPTR_MAX, highest; /* the hull of the ranges */
static struct vb_watch_map map;

void vb_memory_watch_begin(void)
{
    is_on = true;
}

bool vb_memory_watch_is_on(void)
{
    return is_on;
}

static void watch_lock(void)
{
    vb_lock_order_check(VB_RANK_WATCH);
    pthread_rwlock_wrlock(&watching);
    vb_lock_order_took(&watching, VB_RANK_WATCH);
}

static void watch_unlock(void)
{
    vb_lock_order_released(&watching);
    pthread_rwlock_unlock(&watching);
}

void vb_memory_watch_add(struct vb_watcher *watcher)
{
    watch_lock();
    watcher->next = watchers;
    watchers = watcher;
    watch_unlock();
}

void vb_memory_watch_remove(struct vb_watcher *watcher)
{
    watch_lock();
    for (struct vb_watcher **at = &watchers; *at; at = &(*at)->next)
        if (*at == watcher) {
            *at = watcher->next;
            break;
        }
    watch_unlock();
}

void vb_memory_watch_forget(void)
{
    vb_lock_order_forget(&watching);
    pthread_rwlock_init(&watching, NULL); /* a thread of the parent's may have had it */
    watchers = NULL;
}

static void watch_set_bits(_Atomic uint64_t *words, uintptr_t first, uintptr_t last)
{
    for (uintptr_t word = first / VB_WATCH_WORD; word <= last / VB_WATCH_WORD; ++word)
        atomic_fetch_or(&words[word % VB_WATCH_WORDS], vb_memory_watch_bits(first, last, word));
}

/* Where the page of `at` begins and ends, of what lies in [low, high]. */
static uintptr_t page_low(uintptr_t at, uintptr_t low)
{
    uintptr_t start = at & ~(VB_WATCH_PAGE - 1);

    return start > low ? start : low;
}

static uintptr_t page_high(uintptr_t at, uintptr_t high)
{
    uintptr_t end = at | (VB_WATCH_PAGE - 1);

    return end < high ? end : high;
}

static void put_in_map(uintptr_t low, uintptr_t high)
{
    watch_set_bits(map.units, low / VB_WATCH_UNIT, page_high(low, high) / VB_WATCH_UNIT);
    watch_set_bits(map.units, page_low(high, low) / VB_WATCH_UNIT, high / VB_WATCH_UNIT);
    watch_set_bits(map.pages, low / VB_WATCH_PAGE, high / VB_WATCH_PAGE);
    atomic_store(&map.is_used, true);
}

/* Pages that lie wholly between a block's first and last are the block's own. */
bool vb_memory_watch_may_meet_there(const struct vb_watch_map *of, uintptr_t low, uintptr_t high)
{
    uintptr_t first = low / VB_WATCH_PAGE, last = high / VB_WATCH_PAGE;

    return (last - first > 1 && vb_memory_watch_any(of->pages, first + 1, last - 1)) ||
           vb_memory_watch_any(of->units, low / VB_WATCH_UNIT,
                               page_high(low, high) / VB_WATCH_UNIT) ||
           vb_memory_watch_any(of->units, page_low(high, low) / VB_WATCH_UNIT,
                               high / VB_WATCH_UNIT);
}

void vb_memory_watch_range(uintptr_t at, size_t n)
{
    uintptr_t low = atomic_load(&lowest), high = atomic_load(&highest);

    while (at < low && !atomic_compare_exchange_weak(&lowest, &low, at))
        ;
    while (at + n > high && !atomic_compare_exchange_weak(&highest, &high, at + n))
        ;
    if (n)
        put_in_map(at, at + (n < VB_WATCH_LONGEST ? n : VB_WATCH_LONGEST) - 1);
}

const struct vb_watch_map *vb_memory_watch_map(void)
{
    return &map;
}

bool vb_memory_watch_change(uintptr_t at, size_t n, enum vb_mapping change)
{
    int saved = errno;
    bool concerned = false;

    if (at >= atomic_load(&highest) || (at + n <= atomic_load(&lowest) && at + n >= at))
        return false;
    pthread_rwlock_rdlock(&watching);
    vb_lock_order_took(&watching, VB_RANK_WATCH);
    for (struct vb_watcher *watcher = watchers; watcher; watcher = watcher->next)
        concerned |= watcher->changed(watcher, at, n, change);
    watch_unlock();
    errno = saved;
    return concerned;
}
