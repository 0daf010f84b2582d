// SPDX-License-Identifier: Apache-2.0
/*
 * malloc and its family for --shared-heap. Large blocks come from Verbena's shared heap, so that a
 * peer process can map them; all others come from the program's own allocator. A block's address
 * says which of the two it came from.
 */
#include "next.h"
#include "shared.h"

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static _Noreturn void stop_at_invalid_pointer(void)
{
    static const char text[] = "verbena: free() or realloc() of a pointer into the shared heap "
                               "that is not the start of a block in use\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    abort();
}

/* The size of a block of the shared heap. */
static size_t shared_size(void *block)
{
    size_t size = verbena_heap_size(block);

    if (size == 0)
        stop_at_invalid_pointer();
    return size;
}

EXPORT void *malloc(size_t size)
{
    if (vb_preload_shared_wants(size)) {
        void *block = vb_preload_shared_alloc(size, 1);
        if (block)
            return block;
    }
    const struct vb_next *next = vb_preload_next();
    return next ? next->malloc(size) : vb_preload_early_alloc(size, 1);
}

EXPORT void *calloc(size_t count, size_t size)
{
    size_t bytes;

    if (!__builtin_mul_overflow(count, size, &bytes) && vb_preload_shared_wants(bytes)) {
        void *block = vb_preload_shared_alloc_zeroed(bytes);
        if (block)
            return block;
    }
    const struct vb_next *next = vb_preload_next();
    return next ? next->calloc(count, size) : vb_preload_early_alloc(count * size, 1);
}

EXPORT void free(void *block)
{
    if (__builtin_expect(vb_preload_shared_contains(block), 0)) {
        int error = errno; /* free() does not change errno */
        shared_size(block);
        verbena_heap_free(block);
        errno = error;
        return;
    }
    if (vb_preload_early_contains(block))
        return;
    const struct vb_next *next = vb_preload_next();
    if (next)
        next->free(block);
}

/* The library that watches freed blocks (preload/paths/watch) calls these two: is the block one of
 * this library's, and which free() gets a block that is not? */
EXPORT int verbena_heap_has(const void *block)
{
    return vb_preload_shared_contains(block) || vb_preload_early_contains(block);
}

EXPORT void *verbena_heap_next_free(void)
{
    const struct vb_next *next = vb_preload_next();

    return next ? (void *)(uintptr_t)next->free : NULL;
}

// ---- realloc ----------------------------------------------------------------------------------

static void *malloc_move(void *block, size_t before, size_t size)
{
    void *moved = malloc(size);

    if (!moved)
        return NULL;
    memcpy(moved, block, before < size ? before : size);
    free(block);
    return moved;
}

static void *realloc_shared(void *block, size_t size)
{
    size_t before = shared_size(block);

    if (size == 0) {
        free(block);
        return NULL;
    }
    if (vb_preload_shared_wants(size) && vb_preload_shared_resize(block, size))
        return block;
    return malloc_move(block, before, size);
}

EXPORT void *realloc(void *block, size_t size)
{
    if (!block)
        return malloc(size);
    if (vb_preload_shared_contains(block))
        return realloc_shared(block, size);
    if (vb_preload_early_contains(block))
        return malloc_move(block, vb_preload_early_usable(block), size);
    const struct vb_next *next = vb_preload_next();
    if (vb_preload_shared_wants(size)) {
        void *moved = vb_preload_shared_alloc(size, 1);
        if (moved) {
            size_t before = next->malloc_usable_size(block);
            memcpy(moved, block, before < size ? before : size);
            next->free(block);
            return moved;
        }
    }
    return next->realloc(block, size);
}

EXPORT void *reallocarray(void *block, size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, bytes);
}

// ---- aligned ----------------------------------------------------------------------------------

static void *shared_aligned(size_t align, size_t size)
{
    return vb_preload_shared_wants_aligned(align, size) ? vb_preload_shared_alloc(size, align)
                                                        : NULL;
}

/* Defines an aligned allocation; the last arguments are those of the call. */
#define ALIGNED(name, parameters, align, size, ...)                                                \
    EXPORT void *name parameters                                                                   \
    {                                                                                              \
        void *block = shared_aligned(align, size);                                                 \
        const struct vb_next *next = block ? NULL : vb_preload_next();                             \
        if (next)                                                                                  \
            return next->name(__VA_ARGS__);                                                        \
        return block ? block : vb_preload_early_alloc(size, align);                                \
    }

ALIGNED(memalign, (size_t align, size_t size), align, size, align, size)
ALIGNED(aligned_alloc, (size_t align, size_t size), align, size, align, size)
ALIGNED(valloc, (size_t size), VB_SHARED_PAGE, size, size)
ALIGNED(pvalloc, (size_t size), VB_SHARED_PAGE, size, size)

EXPORT int posix_memalign(void **out, size_t align, size_t size)
{
    int error = errno; /* posix_memalign() returns its error and does not change errno */
    bool possible = align && align % sizeof(void *) == 0;
    void *block = possible ? shared_aligned(align, size) : NULL;
    const struct vb_next *next = block ? NULL : vb_preload_next();

    errno = error;
    if (next)
        return next->posix_memalign(out, align, size);
    if (!block)
        block = vb_preload_early_alloc(size, align);
    if (block)
        *out = block;
    return block ? 0 : ENOMEM;
}

EXPORT size_t malloc_usable_size(void *block)
{
    if (vb_preload_shared_contains(block))
        return shared_size(block);
    if (vb_preload_early_contains(block))
        return vb_preload_early_usable(block);
    const struct vb_next *next = vb_preload_next();
    return next ? next->malloc_usable_size(block) : 0;
}
