// SPDX-License-Identifier: Apache-2.0
/*
 * syscall(), by which a program may take memory away without the functions of mappings.c. The
 * system calls that do so are reported in the same way. All others are passed on by a jump, so
 * that a call that returns twice (clone) finds the stack unchanged.
 */
#include <sys/mman.h>
#include <sys/syscall.h>

#include "preload/paths/next.h"
#include "preload/paths/watch/mappings.h"

/* Every argument of a system call has the width of a register. */
typedef long system_call(long number, long a, long b, long c, long d, long e, long f);

VB_EXPORT system_call verbena_syscall __asm__("syscall");

/* As the C library declares it. */
typedef long bare_call(long number, ...);
#define NEXT_CALL(...) VB_NEXT_AS(bare_call, syscall)(__VA_ARGS__)

static void *bare_at(long address)
{
    return (void *)address; // NOLINT(performance-no-int-to-ptr)
}

static int bare_munmap(void *low, size_t length)
{
    return (int)NEXT_CALL(SYS_munmap, low, length);
}

static int bare_shmdt(const void *low)
{
    return (int)NEXT_CALL(SYS_shmdt, low);
}

static void *bare_mmap(void *low, size_t length, int protection, int flags, int fd, off_t offset)
{
    return bare_at(
        NEXT_CALL(SYS_mmap, low, length, (long)protection, (long)flags, (long)fd, offset));
}

static void *bare_mremap(void *low, size_t length, size_t wanted, int flags, void *target)
{
    return bare_at(NEXT_CALL(SYS_mremap, low, length, wanted, (long)flags, target));
}

long verbena_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    switch (number) {
    case SYS_munmap:
        return vb_preload_watched_munmap(bare_munmap, bare_at(a), (size_t)b);
    case SYS_mmap:
        return (long)vb_preload_watched_mmap(bare_mmap, bare_at(a), (size_t)b, (int)c, (int)d,
                                             (int)e, f);
    case SYS_mremap:
        return (long)vb_preload_watched_mremap(bare_mremap, bare_at(a), (size_t)b, (size_t)c,
                                               (int)d, bare_at(e));
    case SYS_shmdt:
        return vb_preload_watched_shmdt(bare_shmdt, bare_at(a));
    case SYS_mprotect:
    case SYS_pkey_mprotect:
        vb_preload_watched_mprotect(bare_at(a), (size_t)b,
                                    number == SYS_mprotect ? (int)c : PROT_NONE);
        break;
    }
    return VB_NEXT_AS(system_call, syscall)(number, a, b, c, d, e, f);
}
