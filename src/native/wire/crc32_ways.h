// SPDX-License-Identifier: Apache-2.0
/*
 * The implementations of the CRC that need instructions which not every CPU has. crc32.c calls this
 * once; crc32_x86.c or crc32_arm.c answers.
 */
#ifndef VB_WIRE_CRC32_WAYS_H
#define VB_WIRE_CRC32_WAYS_H

#include <stddef.h>

struct vb_crc32_way;

enum { VB_CRC32_CPU_WAYS = 4 };

#if defined(__x86_64__) || defined(__aarch64__)
/* Stores those that this CPU can run, the fastest first, and returns their number. */
size_t vb_wire_crc32_cpu_ways(const struct vb_crc32_way *ways[]);
#else
static inline size_t vb_wire_crc32_cpu_ways(const struct vb_crc32_way *ways[])
{
    (void)ways;
    return 0;
}
#endif

#endif
