// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks of the shared heap (shared.h). Any thread may call these functions.
 */
#include "shared.h"

#include <errno.h>
#include <stdint.h>

#include "memory/number.h"

static const size_t default_minimum = (size_t)64 * 1024;

/* No request is large before the constructor has run: the dynamic linker is still at work then, and
 * libibverbs.so.1 may not be initialized. */
static size_t minimum = SIZE_MAX;

/* The bounds of all blocks that the heap gave out. The heap is one range of addresses. */
static uintptr_t lowest = UINTPTR_MAX, end;

__attribute__((constructor)) static void start(void)
{
    size_t wanted = vb_memory_number_size_of_variable("VERBENA_SHARED_HEAP_MIN");

    if (wanted && wanted < VB_SHARED_PAGE)
        wanted = VB_SHARED_PAGE;
    minimum = wanted ? wanted : default_minimum;
}

bool vb_preload_shared_wants(size_t size)
{
    return size >= minimum;
}

bool vb_preload_shared_wants_aligned(size_t align, size_t size)
{
    return vb_preload_shared_wants(size) ||
           (minimum != SIZE_MAX && align >= VB_SHARED_PAGE && size >= VB_SHARED_PAGE);
}

static void lower(uintptr_t *bound, uintptr_t value)
{
    uintptr_t seen = __atomic_load_n(bound, __ATOMIC_RELAXED);

    while (value < seen && !__atomic_compare_exchange_n(bound, &seen, value, true, __ATOMIC_RELEASE,
                                                        __ATOMIC_RELAXED))
        ;
}

static void raise_to(uintptr_t *bound, uintptr_t value)
{
    uintptr_t seen = __atomic_load_n(bound, __ATOMIC_RELAXED);

    while (value > seen && !__atomic_compare_exchange_n(bound, &seen, value, true, __ATOMIC_RELEASE,
                                                        __ATOMIC_RELAXED))
        ;
}

static void saw(void *block, size_t size)
{
    lower(&lowest, (uintptr_t)block);
    raise_to(&end, (uintptr_t)block + size);
}

static void *alloc_by(void *(*alloc)(size_t, size_t), size_t size, size_t align)
{
    int error = errno;
    void *block = alloc(size, align);

    if (block)
        saw(block, size);
    else
        errno = error; /* the next allocator reports errors */
    return block;
}

void *vb_preload_shared_alloc(size_t size, size_t align)
{
    return alloc_by(verbena_heap_alloc_unzeroed ? verbena_heap_alloc_unzeroed : verbena_heap_alloc,
                    size, align);
}

void *vb_preload_shared_alloc_zeroed(size_t size)
{
    return alloc_by(verbena_heap_alloc, size, 1);
}

bool vb_preload_shared_resize(void *block, size_t size)
{
    int error = errno;
    bool done = verbena_heap_resize && verbena_heap_resize(block, size) == 0;

    if (done)
        saw(block, size);
    errno = error;
    return done;
}

bool vb_preload_shared_contains(const void *at)
{
    return (uintptr_t)at >= __atomic_load_n(&lowest, __ATOMIC_ACQUIRE) &&
           (uintptr_t)at < __atomic_load_n(&end, __ATOMIC_ACQUIRE);
}
