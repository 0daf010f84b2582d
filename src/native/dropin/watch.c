// SPDX-License-Identifier: Apache-2.0
/* What the watching library (preload/paths/watch) tells of the program. */
#include "memory/watch.h"
#include "dropin/export.h"
#include "dropin/verbena.h"
#include "memory/guard.h"

VB_EXPORT void verbena_watch_begin(void)
{
    vb_memory_watch_begin();
}

VB_EXPORT int verbena_mapping_changes(const void *at, size_t n)
{
    return vb_memory_watch_change((uintptr_t)at, n, VB_MAPPING_PROTECTED);
}

VB_EXPORT int verbena_mapping_freed(const void *at, size_t n)
{
    return vb_memory_watch_change((uintptr_t)at, n, VB_MAPPING_FREED);
}

VB_EXPORT void verbena_mapping_lost(const void *at, size_t n)
{
    vb_memory_watch_change((uintptr_t)at, n, VB_MAPPING_LOST);
}

VB_EXPORT const void *verbena_watch_map(void)
{
    return vb_memory_watch_map();
}

VB_EXPORT int verbena_mapping_goes(const void *at, size_t n)
{
    return vb_memory_watch_change((uintptr_t)at, n, VB_MAPPING_GOES);
}

VB_EXPORT void verbena_mapping_went(const void *at, size_t n, int went)
{
    vb_memory_watch_change((uintptr_t)at, n, went ? VB_MAPPING_WENT : VB_MAPPING_STAYED);
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
