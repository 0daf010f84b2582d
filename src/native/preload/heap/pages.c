// SPDX-License-Identifier: Apache-2.0
/*
 * madvise and mlockall for --shared-heap. On shared pages they mean something else than on private
 * ones; a program expects what they do to private memory.
 */
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

/* On shared pages MADV_DONTNEED keeps the contents and MADV_FREE fails; MADV_REMOVE zeroes them. */
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

/* Without MCL_ONFAULT the kernel would allocate every page of the sparse heap. */
EXPORT int mlockall(int flags)
{
    return (int)syscall(SYS_mlockall, flags | MCL_ONFAULT);
}
