// SPDX-License-Identifier: Apache-2.0
/*
 * What the preloaded library (preload/paths/watch) calls when the program changes its mappings,
 * its handlers of faults or its signal masks. Each call goes to memory/watch.c or memory/guard.c.
 */
#include "memory/watch.h"
#include "dropin/export.h"
#include "dropin/verbena.h"
#include "memory/guard.h"

VB_EXPORT void verbena_watch_begin(void)
{
    vb_memory_watch_begin();
}

VB_EXPORT int verbena_mapping(const void *at, size_t n, int change)
{
    return vb_memory_watch_change((uintptr_t)at, n, (enum vb_mapping)change);
}

VB_EXPORT const void *verbena_watch_map(void)
{
    return vb_memory_watch_map();
}

VB_EXPORT int verbena_fault_action(int number, const struct sigaction *action,
                                   struct sigaction *old)
{
    return vb_memory_guard_action(number, action, old);
}

VB_EXPORT void verbena_mask_changes(void)
{
    vb_memory_guard_mask_changes();
}
