// SPDX-License-Identifier: Apache-2.0
/* The ways to sum that need instructions which not every CPU has. */
#ifndef VB_WIRE_CRC32_WAYS_H
#define VB_WIRE_CRC32_WAYS_H

#include <stddef.h>

struct vb_crc32_way;

enum { VB_CRC32_CPU_WAYS = 4 };

#if defined(__x86_64__) || defined(__aarch64__)
/* Those that this CPU knows, the fastest first; returns their number. */
size_t vb_wire_crc32_cpu_ways(const struct vb_crc32_way *ways[]);
#else
static inline size_t vb_wire_crc32_cpu_ways(const struct vb_crc32_way *ways[])
{
    (void)ways;
    return 0;
}
#endif

#endif
