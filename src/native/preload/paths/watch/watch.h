// SPDX-License-Identifier: Apache-2.0
/*
 * What libibverbs.so.1 is told of the program's mappings, handlers and masks (memory/watch.h and
 * memory/guard.h there); weak, so that a program without that library runs as it would.
 */
#ifndef VB_PRELOAD_WATCH_H
#define VB_PRELOAD_WATCH_H

#include <signal.h>
#include <stddef.h>

__attribute__((weak)) void verbena_watch_begin(void);
__attribute__((weak)) int verbena_mapping_changes(const void *at, size_t n);
__attribute__((weak)) int verbena_mapping_freed(const void *at, size_t n);
__attribute__((weak)) void verbena_mapping_lost(const void *at, size_t n);
__attribute__((weak)) const void *verbena_watch_map(void);
__attribute__((weak)) int verbena_mapping_goes(const void *at, size_t n);
__attribute__((weak)) void verbena_mapping_went(const void *at, size_t n, int went);
__attribute__((weak)) int verbena_fault_action(int number, const struct sigaction *action,
                                               struct sigaction *old);
__attribute__((weak)) void verbena_mask_changes(void);

/* Of the library of --shared-heap, where that is loaded: is a block its own, and who frees others?
 */
__attribute__((weak)) int verbena_heap_has(const void *block);
__attribute__((weak)) void *verbena_heap_next_free(void);

#endif
