// SPDX-License-Identifier: Apache-2.0
/* Calls about pages that mean something else for shared memory than for a program's own. */
#include "shared.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

/* On shared pages DONTNEED keeps the contents and FREE is refused; a program expects zeros. */
static int advice_for_shared(int advice)
{
    return advice == MADV_DONTNEED || advice == MADV_FREE ? MADV_REMOVE : advice;
}

EXPORT int madvise(void *at, size_t length, int advice)
{
    if (vb_preload_shared_contains(at))
        advice = advice_for_shared(advice);
    return (int)syscall(SYS_madvise, at, length, advice);
}

/* Without ONFAULT it would fill the whole sparse heap with memory. */
EXPORT int mlockall(int flags)
{
    return (int)syscall(SYS_mlockall, flags | MCL_ONFAULT);
}
