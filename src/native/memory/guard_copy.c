// SPDX-License-Identifier: Apache-2.0
/*
 * Copies, atomic words and tests of memory that may be gone (guard.h): by the processor where a
 * fault comes back as an error, and by the kernel where it would end the process.
 */
#include "memory/guard.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "memory/copy.h"
#include "memory/descriptor.h"
#include "memory/process_heap.h"

/* ---- guarded functions --------------------------------------------------------------------- */

VB_GUARDED int vb_memory_fault_copy(void *dst, const void *src, size_t n)
{
    vb_memory_copy(dst, src, n);
    return vb_memory_guard_passed();
}

VB_GUARDED int vb_memory_guarded_fetch_add(void *word, uint64_t add, uint64_t *old)
{
    *old = __atomic_fetch_add((uint64_t *)word, add, __ATOMIC_SEQ_CST);
    return vb_memory_guard_passed();
}

VB_GUARDED int vb_memory_guarded_compare_swap(void *word, uint64_t compare, uint64_t swap,
                                              uint64_t *old)
{
    __atomic_compare_exchange_n((uint64_t *)word, &compare, swap, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    *old = compare;
    return vb_memory_guard_passed();
}

VB_GUARDED int vb_memory_guarded_store(void *word, uint64_t value)
{
    __atomic_store_n((uint64_t *)word, value, __ATOMIC_SEQ_CST);
    return vb_memory_guard_passed();
}

enum { PAGE = 4096 };

VB_GUARDED static int touch(uint8_t *at, const uint8_t *end, bool to_write)
{
    const uint8_t nothing =
        (uint8_t)vb_memory_guard_passed(); /* clang makes a load of an OR with 0 */

    for (; at < end; at = (uint8_t *)(((uintptr_t)at | (PAGE - 1)) + 1))
        if (to_write)
            __atomic_fetch_or(at, nothing, __ATOMIC_RELAXED);
        else
            (void)*(volatile uint8_t *)at;
    return vb_memory_guard_passed();
}

/* ---- where a fault would end the process ---------------------------------------------------- */

enum { PIPE_BYTES = 64 << 10 }; /* that it takes without a reader */

static int copy_through(const int ends[2], uint8_t *to, const uint8_t *from, size_t n)
{
    while (n) {
        ssize_t part = write(ends[1], from, n < PIPE_BYTES ? n : PIPE_BYTES);

        if (part <= 0 || read(ends[0], to, (size_t)part) != part)
            return -EFAULT;
        to += part;
        from += part;
        n -= (size_t)part;
    }
    return 0;
}

/* Where cross-process copies are forbidden, as in some containers. */
static int copy_by_pipe(void *dst, const void *src, size_t n)
{
    int ends[2], error;

    if (vb_memory_descriptor_pipe(ends))
        return vb_memory_fault_copy(dst, src,
                                    n); /* no descriptor is left: the risk is all there is */
    error = copy_through(ends, dst, src, n);
    close(ends[0]);
    close(ends[1]);
    return error;
}

static int copy_by_kernel(void *dst, const void *src, size_t n)
{
    for (size_t done = 0; done < n;) {
        struct iovec from = {(uint8_t *)(uintptr_t)src + done, n - done};
        struct iovec to = {(uint8_t *)dst + done, n - done};
        ssize_t part = process_vm_writev(getpid(), &from, 1, &to, 1, 0);

        if (part < 0 && errno != EFAULT)
            return copy_by_pipe(to.iov_base, from.iov_base, n - done);
        if (part <= 0)
            return -EFAULT;
        done += (size_t)part;
    }
    return 0;
}

/* The process's heap: what is there stays there, but for a program that takes malloc's own away. */
static bool guard_copy_is_steady(const void *at, size_t n)
{
    const struct vb_heap *heap = vb_memory_process_heap_if_any();

    return heap && vb_memory_heap_contains(heap, at, n);
}

int vb_memory_doubtful_copy(void *dst, const void *src, size_t n, unsigned doubt)
{
    int saved = errno, error;

    if ((!(doubt & VB_DOUBT_TO) || guard_copy_is_steady(dst, n)) &&
        (!(doubt & VB_DOUBT_FROM) || guard_copy_is_steady(src, n))) {
        vb_memory_guard_learn();
        errno = saved;
        return vb_memory_fault_copy(dst, src, n);
    }
    error = vb_memory_guard_ask() ? vb_memory_fault_copy(dst, src, n) : copy_by_kernel(dst, src, n);
    errno = saved;
    return error;
}

/* What madvise() knows since Linux 5.14; headers of an older C library do not name them. */
enum { POPULATE_READ = 22, POPULATE_WRITE = 23 };

/* Populates pages as a touch would. EINVAL is also the answer of a kernel before 5.14. */
static bool is_populated(void *at, size_t n, bool to_write, bool *known)
{
    const uintptr_t page = 4096;
    uintptr_t start = (uintptr_t)at & ~(page - 1);
    char here;

    *known = madvise((void *)((uintptr_t)&here & ~(page - 1)), page, POPULATE_READ) == 0;
    return *known && madvise((void *)start, (uintptr_t)at + n - start,
                             to_write ? POPULATE_WRITE : POPULATE_READ) == 0;
}

bool vb_memory_is_mapped(void *at, size_t n, bool to_write)
{
    bool known = false, mapped = false;
    int saved = errno;

    if (!vb_memory_guard_holds() && !guard_copy_is_steady(at, n) && !vb_memory_guard_ask())
        mapped = is_populated(at, n, to_write, &known);
    errno = saved;
    return known ? mapped : touch(at, (uint8_t *)at + n, to_write) == 0;
}
