// SPDX-License-Identifier: Apache-2.0
/*
 * What libibverbs.so.1 exports for this library, which reports the program's mappings, handlers of
 * faults and signal masks to it (memory/watch.h and memory/guard.h). The symbols are weak, so that
 * a program without libibverbs.so.1 runs as it would without this library.
 */
#ifndef VB_PRELOAD_WATCH_H
#define VB_PRELOAD_WATCH_H

#include <signal.h>
#include <stddef.h>

__attribute__((weak)) void verbena_watch_begin(void);
__attribute__((weak)) int verbena_mapping(const void *at, size_t n, int change);
__attribute__((weak)) const void *verbena_watch_map(void);
__attribute__((weak)) int verbena_fault_action(int number, const struct sigaction *action,
                                               struct sigaction *old);
__attribute__((weak)) void verbena_mask_changes(void);

/* Exported by the library of --shared-heap, if that is loaded: is a block one of its own, and which
 * free() gets the others? */
__attribute__((weak)) int verbena_heap_has(const void *block);
__attribute__((weak)) void *verbena_heap_next_free(void);

#endif
