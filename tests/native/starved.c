// SPDX-License-Identifier: Apache-2.0
/* Allocations that fail (starved.h): malloc and its family of a test program. */
#include "starved.h"

#include <errno.h>
#include <stdlib.h>

#include "memory/heap.h"

enum { NEVER = -1 };

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *at, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
int __real_posix_memalign(void **made, size_t align, size_t size);
void __real_free(void *at);
void *__real_vb_memory_heap_alloc(struct vb_heap *heap, size_t n, size_t align);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *at, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
int __wrap_posix_memalign(void **made, size_t align, size_t size);
void __wrap_free(void *at);
void *__wrap_vb_memory_heap_alloc(struct vb_heap *heap, size_t n, size_t align);

static _Thread_local int until_failure = NEVER; /* allocations that still succeed */
static _Atomic long blocks;                     /* that are not freed */

void starved_after(int allocations)
{
    until_failure = allocations;
}

bool starved_end(void)
{
    bool failed = until_failure == NEVER;

    until_failure = NEVER;
    return failed;
}

long starved_blocks(void)
{
    return blocks;
}

static bool starved_now(void)
{
    return until_failure != NEVER && until_failure-- == 0;
}

static void *starved_count(void *made)
{
    blocks += made != NULL;
    return made;
}

/* Of a segment, or of the shared heap: all of its blocks may go with it, so they are not counted.
 */
void *__wrap_vb_memory_heap_alloc(struct vb_heap *heap, size_t n, size_t align)
{
    return starved_now() ? NULL : __real_vb_memory_heap_alloc(heap, n, align);
}

void *__wrap_malloc(size_t size)
{
    return starved_now() ? NULL : starved_count(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return starved_now() ? NULL : starved_count(__real_calloc(count, size));
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return starved_now() ? NULL : starved_count(__real_aligned_alloc(align, size));
}

int __wrap_posix_memalign(void **made, size_t align, size_t size)
{
    int error = starved_now() ? ENOMEM : __real_posix_memalign(made, align, size);

    blocks += !error;
    return error;
}

void *__wrap_realloc(void *at, size_t size)
{
    void *made = starved_now() ? NULL : __real_realloc(at, size);

    blocks += made && !at;
    return made;
}

void __wrap_free(void *at)
{
    blocks -= at != NULL;
    __real_free(at);
}
