// SPDX-License-Identifier: Apache-2.0
/*
 * The calls by which a program takes memory away, or the right to write to it. Verbena hears of it
 * before it happens: what has arrived for a receive buffer there is put into it while it can be.
 */
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/types.h> /* off64_t */

#include "preload/paths/next.h"
#include "preload/paths/watch/watch.h"

__attribute__((constructor)) static void begin(void)
{
    if (verbena_watch_begin)
        verbena_watch_begin();
}

static void tell(const void *at, size_t n)
{
    if (verbena_mapping_changes)
        verbena_mapping_changes(at, n);
}

VB_EXPORT int munmap(void *at, size_t length)
{
    tell(at, length);
    return VB_NEXT(munmap)(at, length);
}

VB_EXPORT int mprotect(void *at, size_t length, int protection)
{
    if (!(protection & PROT_WRITE))
        tell(at, length);
    return VB_NEXT(mprotect)(at, length, protection);
}

VB_EXPORT int pkey_mprotect(void *at, size_t length, int protection, int key)
{
    tell(at, length);
    return VB_NEXT(pkey_mprotect)(at, length, protection, key);
}

VB_EXPORT void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    if (flags & MAP_FIXED)
        tell(at, length);
    return VB_NEXT(mmap)(at, length, protection, flags, fd, offset);
}

VB_EXPORT void *mmap64(void *at, size_t length, int protection, int flags, int fd, off64_t offset)
{
    if (flags & MAP_FIXED)
        tell(at, length);
    return VB_NEXT(mmap64)(at, length, protection, flags, fd, offset);
}

VB_EXPORT void *mremap(void *at, size_t length, size_t wanted, int flags, ...)
{
    void *target = NULL;
    va_list more;

    va_start(more, flags);
    if (flags & MREMAP_FIXED)
        target = va_arg(more, void *);
    va_end(more);
    tell(at, length);
    if (target)
        tell(target, wanted);
    return VB_NEXT(mremap)(at, length, wanted, flags, target);
}

/* Its length is not known here: whatever lies behind its start may be a part of it. */
VB_EXPORT int shmdt(const void *at)
{
    tell(at, SIZE_MAX - (uintptr_t)at);
    return VB_NEXT(shmdt)(at);
}
