// SPDX-License-Identifier: Apache-2.0
/*
 * syscall(), by which a program may take memory away past the calls of mappings.c: those numbers go
 * there. All others are passed on by a jump, so that a call that returns twice (clone) finds the
 * stack as it was.
 */
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include "preload/paths/next.h"

/* Every argument of a system call is a register's width. */
typedef long system_call(long number, long a, long b, long c, long d, long e, long f);

VB_EXPORT system_call verbena_syscall __asm__("syscall");

static void *at(long address)
{
    return (void *)address; // NOLINT(performance-no-int-to-ptr)
}

long verbena_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    switch (number) {
    case SYS_munmap:
        return munmap(at(a), (size_t)b);
    case SYS_mprotect:
        return mprotect(at(a), (size_t)b, (int)c);
    case SYS_pkey_mprotect:
        return pkey_mprotect(at(a), (size_t)b, (int)c, (int)d);
    case SYS_mmap:
        return (long)mmap(at(a), (size_t)b, (int)c, (int)d, (int)e, (off_t)f);
    case SYS_mremap:
        return (long)mremap(at(a), (size_t)b, (size_t)c, (int)d, at(e));
    case SYS_shmdt:
        return shmdt(at(a));
    default:
        return VB_NEXT_AS(system_call, syscall)(number, a, b, c, d, e, f);
    }
}
