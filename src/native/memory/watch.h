// SPDX-License-Identifier: Apache-2.0
/*
 * Is this process watched? Under `verbena run` a library (preload/paths/watch) stands in front of
 * the calls by which a program changes its mappings, its handlers of faults and its signal masks,
 * and tells of them. Without it nobody tells, and who would rely on that has to go another way.
 * What the system's own library or a bare system call does remains unseen in either case.
 */
#ifndef VB_MEMORY_WATCH_H
#define VB_MEMORY_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Called by the watching library, before there are other threads. */
void vb_watch_begin(void);
bool vb_watch_is_on(void);

/* Who wants to know of changes to the ranges that were named; `told` runs in the program's thread
 * before the change, and may wait. */
struct vb_watcher {
    struct vb_watcher *next;
    void (*told)(struct vb_watcher *watcher, uintptr_t at, size_t n);
};

void vb_watch_add(struct vb_watcher *watcher);
/* It is not called any more when this returns. */
void vb_watch_remove(struct vb_watcher *watcher);
/* Changes here concern somebody; never taken back. */
void vb_watch_range(uintptr_t at, size_t n);

/* Called by the watching library: [at, +n) is about to be unmapped, replaced or protected. */
void vb_watch_mapping(uintptr_t at, size_t n);

#endif
