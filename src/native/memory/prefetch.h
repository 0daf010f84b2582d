// SPDX-License-Identifier: Apache-2.0
/*
 * Prefetches of cache lines that another processor holds, for the path of a request. A prefetch
 * never faults, whatever the address.
 */
#ifndef VB_MEMORY_PREFETCH_H
#define VB_MEMORY_PREFETCH_H

/* The line will be written: asks for it alone, which takes as long as the work before the store. */
static inline void vb_memory_prefetch_to_write(const void *line)
{
#if defined(__x86_64__)
    /* The builtin needs -mprfchw; where a processor lacks the instruction it does nothing. */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

static inline void vb_memory_prefetch_to_read(const void *line)
{
    __builtin_prefetch(line, 0);
}

#endif
