// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the program's own allocator (next.h), and serves the few allocations that this search
 * makes. The first call comes from the dynamic linker or from a library's constructor, before
 * there are threads.
 */
#include "next.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* malloc has no argument in which this state could be passed, so it belongs to the process. */
static struct vb_next next;
static enum { UNKNOWN, LOOKING, FOUND } state;

static _Alignas(64) unsigned char early[64 * 1024];
static size_t early_used;

static void next_look_up(void *function, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (!found)
        abort(); /* without any malloc not even a line on stderr can be written */
    memcpy(function, &found, sizeof found);
}

static void look_all_up(void)
{
    next_look_up(&next.malloc, "malloc");
    next_look_up(&next.calloc, "calloc");
    next_look_up(&next.realloc, "realloc");
    next_look_up(&next.free, "free");
    next_look_up(&next.memalign, "memalign");
    next_look_up(&next.posix_memalign, "posix_memalign");
    next_look_up(&next.aligned_alloc, "aligned_alloc");
    next_look_up(&next.valloc, "valloc");
    next_look_up(&next.pvalloc, "pvalloc");
    next_look_up(&next.malloc_usable_size, "malloc_usable_size");
}

const struct vb_next *vb_preload_next(void)
{
    if (__builtin_expect(__atomic_load_n(&state, __ATOMIC_ACQUIRE) == FOUND, 1))
        return &next;
    if (__atomic_load_n(&state, __ATOMIC_RELAXED) == LOOKING)
        return NULL;
    __atomic_store_n(&state, LOOKING, __ATOMIC_RELAXED);
    look_all_up();
    __atomic_store_n(&state, FOUND, __ATOMIC_RELEASE);
    return &next;
}

/* The size of a block stands before it. */
void *vb_preload_early_alloc(size_t size, size_t align)
{
    size_t unit = align > 16 ? align : 16;
    size_t start = (early_used + 16 + unit - 1) / unit * unit;

    if (size > sizeof early || start > sizeof early - size) {
        errno = ENOMEM;
        return NULL;
    }
    early_used = start + size;
    memcpy(early + start - sizeof size, &size, sizeof size);
    return early + start;
}

bool vb_preload_early_contains(const void *at)
{
    return (uintptr_t)at - (uintptr_t)early < sizeof early;
}

size_t vb_preload_early_usable(const void *at)
{
    size_t size;
    memcpy(&size, (const unsigned char *)at - sizeof size, sizeof size);
    return size;
}
