// SPDX-License-Identifier: Apache-2.0
/* Heaps of a test, and what lies in their blocks. */
#ifndef VB_TESTS_HEAP_BLOCKS_H
#define VB_TESTS_HEAP_BLOCKS_H

#include <stdbool.h>
#include <sys/stat.h>

#include "check.h"
#include "memory/heap.h"

enum { MIB = 1 << 20 };

static inline struct vb_heap *heap_of(size_t size)
{
    struct vb_heap *heap = NULL;

    CHECK_EQ(vb_memory_heap_create(size, &heap), 0);
    return heap;
}

/* Bytes of memory behind the heap's file. */
static inline size_t resident(const struct vb_heap *heap)
{
    struct stat status;

    CHECK_EQ(fstat(vb_memory_heap_fd(heap), &status), 0);
    return (size_t)status.st_blocks * 512;
}

static inline bool all_are(const unsigned char *at, size_t n, int value)
{
    return n == 0 || (at[0] == value && memcmp(at, at + 1, n - 1) == 0);
}

#endif
