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

/* What happens to a mapping. */
enum vb_mapping {
    VB_MAPPING_PROTECTED, /* it is about to be made read-only, or not even that, or may be moved */
    VB_MAPPING_GOES,      /* it is about to be unmapped, or replaced by another… */
    VB_MAPPING_WENT,      /* …has been… */
    VB_MAPPING_STAYED,    /* …or has not: the system refused */
};

/* Who wants to know of changes to the ranges that were named; `told` runs in the program's thread,
 * and may wait. True: the change concerns it. */
struct vb_watcher {
    struct vb_watcher *next;
    bool (*told)(struct vb_watcher *watcher, uintptr_t at, size_t n, enum vb_mapping change);
};

void vb_watch_add(struct vb_watcher *watcher);
/* It is not called any more when this returns. */
void vb_watch_remove(struct vb_watcher *watcher);
/* Changes here concern somebody; never taken back. */
void vb_watch_range(uintptr_t at, size_t n);

/* Called by the watching library, of [at, +n). True: somebody is concerned; of a mapping that goes
 * it has to be said then what became of that. */
bool vb_watch_change(uintptr_t at, size_t n, enum vb_mapping change);

static inline void vb_watch_mapping(uintptr_t at, size_t n)
{
    vb_watch_change(at, n, VB_MAPPING_PROTECTED);
}

#endif
