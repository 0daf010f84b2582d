// SPDX-License-Identifier: Apache-2.0
#ifndef VB_MEMORY_COPY_H
#define VB_MEMORY_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Copies between regions that a peer may be watching.
 *
 * Programs poll on the last bytes of an RDMA WRITE. So everywhere in this file the last bytes are
 * stored after all the others are visible: a peer that sees the last byte of a copy sees the whole
 * of it. If the copy ends on a multiple of eight, its last eight bytes appear in one store, and so
 * does a whole copy of 1, 2, 4 or 8 bytes to an address aligned to its size.
 *
 * dst and src must not overlap.
 */

enum { VB_COPY_INLINE_MAX = 64, VB_COPY_LINE = 64 };

typedef void vb_copy_fn(void *dst, const void *src, size_t n);

/*
 * How this CPU copies much. Non-temporal stores go past the caches: up to half as fast again as
 * memcpy when the memory is in no cache, and half as fast when it is. So the first 32 KiB of a
 * large copy are timed, and say where the rest is.
 */
struct vb_copy_plan {
    const char *name;
    vb_copy_fn *cached;   /* for memory in a cache */
    vb_copy_fn *uncached; /* ordered before later stores; NULL: always `cached` */
    unsigned cached_rate; /* bytes per tick of the time-stamp counter: below it is out of cache */
};

/* The one for this CPU; the others are for tests and measurements. */
struct vb_copy_plan vb_memory_copy_plan_of_cpu(void);
/* "libc", "avx2", "avx2-pages", "avx512", "avx512-pages"; false if this CPU cannot run it. */
bool vb_memory_copy_plan_named(const char *name, struct vb_copy_plan *out);
void vb_memory_copy_by_plan(const struct vb_copy_plan *plan, void *dst, const void *src, size_t n);

/* 8 bytes and more; vb_memory_copy() is the one to call. */
void vb_memory_copy_large(void *dst, const void *src, size_t n);

typedef uint64_t __attribute__((aligned(1), may_alias)) vb_any_u64;
typedef uint32_t __attribute__((aligned(4), may_alias)) vb_word_u32;
typedef uint16_t __attribute__((aligned(2), may_alias)) vb_word_u16;

static inline void vb_memory_copy_order_stores(void)
{
    __atomic_thread_fence(__ATOMIC_RELEASE); /* no instruction on x86, whose stores stay in order */
}

static inline void vb_memory_copy_bytes_in_order(unsigned char *dst, const unsigned char *src,
                                                 size_t n)
{
    for (size_t i = 0; i < n; i++)
        __atomic_store_n(dst + i, src[i], __ATOMIC_RELEASE);
}

/* A store that crosses a cache line can become visible in two halves, in either order. */
static inline bool vb_memory_copy_store_splits(const unsigned char *p, size_t n)
{
    return ((uintptr_t)p % VB_COPY_LINE) + n > VB_COPY_LINE;
}

static inline void vb_memory_copy_last8(unsigned char *dst, const unsigned char *src)
{
    if (__builtin_expect(vb_memory_copy_store_splits(dst, 8), 0))
        vb_memory_copy_bytes_in_order(dst, src, 8);
    else
        *(volatile vb_any_u64 *)dst = *(const vb_any_u64 *)src;
}

static inline void vb_memory_copy_below8(unsigned char *dst, const unsigned char *src, size_t n)
{
    if ((uintptr_t)dst % 4 != 0 || (uintptr_t)src % 4 != 0) {
        vb_memory_copy_bytes_in_order(dst, src, n);
        return;
    }
    size_t at = 0;
    if (n & 4) {
        __atomic_store_n((vb_word_u32 *)dst, *(const vb_word_u32 *)src, __ATOMIC_RELEASE);
        at = 4;
    }
    if (n & 2) {
        __atomic_store_n((vb_word_u16 *)(dst + at), *(const vb_word_u16 *)(src + at),
                         __ATOMIC_RELEASE);
        at += 2;
    }
    if (n & 1)
        __atomic_store_n(dst + at, src[at], __ATOMIC_RELEASE);
}

/* 1 to 56 bytes by two or four stores that overlap; up to 7 bytes past n when n < 8. */
static inline void vb_memory_copy_body(unsigned char *dst, const unsigned char *src, size_t n)
{
    if (n <= 8) {
        __builtin_memcpy(dst, src, 8);
    } else if (n <= 16) {
        __builtin_memcpy(dst, src, 8);
        __builtin_memcpy(dst + n - 8, src + n - 8, 8);
    } else if (n <= 32) {
        __builtin_memcpy(dst, src, 16);
        __builtin_memcpy(dst + n - 16, src + n - 16, 16);
    } else {
        __builtin_memcpy(dst, src, 32);
        __builtin_memcpy(dst + n - 32, src + n - 32, 32);
    }
}

static inline void vb_memory_copy(void *dst, const void *src, size_t n)
{
    unsigned char *to = dst;
    const unsigned char *from = src;

    if (n > VB_COPY_INLINE_MAX) {
        vb_memory_copy_large(dst, src, n);
        return;
    }
    if (n < 8) {
        vb_memory_copy_below8(to, from, n);
        return;
    }
    if (n > 8) {
        vb_memory_copy_body(to, from, n - 8);
        vb_memory_copy_order_stores();
    }
    vb_memory_copy_last8(to + n - 8, from + n - 8);
}

#endif
