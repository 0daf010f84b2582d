// SPDX-License-Identifier: Apache-2.0
#include "memory/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

/* Mappings belong to the process, so these are the process's. */
static bool is_on;
static pthread_mutex_t watching = PTHREAD_MUTEX_INITIALIZER;
static struct vb_watcher *watchers;
static _Atomic uintptr_t lowest = UINTPTR_MAX, highest; /* the hull of the ranges */

void vb_watch_begin(void)
{
    is_on = true;
}

bool vb_watch_is_on(void)
{
    return is_on;
}

void vb_watch_add(struct vb_watcher *watcher)
{
    pthread_mutex_lock(&watching);
    watcher->next = watchers;
    watchers = watcher;
    pthread_mutex_unlock(&watching);
}

void vb_watch_remove(struct vb_watcher *watcher)
{
    pthread_mutex_lock(&watching);
    for (struct vb_watcher **at = &watchers; *at; at = &(*at)->next)
        if (*at == watcher) {
            *at = watcher->next;
            break;
        }
    pthread_mutex_unlock(&watching);
}

void vb_watch_range(uintptr_t at, size_t n)
{
    uintptr_t low = atomic_load(&lowest), high = atomic_load(&highest);

    while (at < low && !atomic_compare_exchange_weak(&lowest, &low, at))
        ;
    while (at + n > high && !atomic_compare_exchange_weak(&highest, &high, at + n))
        ;
}

bool vb_watch_change(uintptr_t at, size_t n, enum vb_mapping change)
{
    int saved = errno;
    bool concerned = false;

    if (at >= atomic_load(&highest) || (at + n <= atomic_load(&lowest) && at + n >= at))
        return false;
    pthread_mutex_lock(&watching);
    for (struct vb_watcher *watcher = watchers; watcher; watcher = watcher->next)
        concerned |= watcher->told(watcher, at, n, change);
    pthread_mutex_unlock(&watching);
    errno = saved;
    return concerned;
}
