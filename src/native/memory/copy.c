// SPDX-License-Identifier: Apache-2.0
/* Copies of more than 64 bytes, by the instructions of this processor (copy.h). */
#include "copy.h"

#include <pthread.h>
#include <string.h>

enum {
    VB_COPY_PAGE = 4096,
    VB_COPY_PROBE = 32 * 1024,
    VB_COPY_PROBED_MIN = 256 * 1024, /* below it the probe is too large a part of the copy */
};

static void copy_libc(void *dst, const void *src, size_t n)
{
    memcpy(dst, src, n);
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define STREAM_LINE_AVX512(to, from)                                                               \
    _mm512_stream_si512((void *)(to), _mm512_loadu_si512((const void *)(from)))

#define STREAM_LINE_AVX2(to, from)                                                                 \
    do {                                                                                           \
        __m256i low_ = _mm256_loadu_si256((const __m256i *)(const void *)(from));                  \
        __m256i high_ = _mm256_loadu_si256((const __m256i *)(const void *)(from) + 1);             \
        _mm256_stream_si256((__m256i *)(void *)(to), low_);                                        \
        _mm256_stream_si256((__m256i *)(void *)(to) + 1, high_);                                   \
    } while (0)

/*
 * Non-temporal stores, interleaved over `pages` pages. The order suits the memory controller: Intel
 * server CPUs gain two thirds from 8 pages at a time, AMD Zen 5 loses a third by them.
 */
#define DEFINE_STREAM(function, isa, line, pages)                                                  \
    __attribute__((target(isa))) static void function(void *dst, const void *src, size_t n)        \
    {                                                                                              \
        unsigned char *to = dst;                                                                   \
        const unsigned char *from = src;                                                           \
        size_t head = -(uintptr_t)to % VB_COPY_LINE;                                               \
        const size_t stripe = (size_t)(pages) * VB_COPY_PAGE;                                      \
                                                                                                   \
        if (n <= head) {                                                                           \
            memcpy(to, from, n);                                                                   \
            return;                                                                                \
        }                                                                                          \
        memcpy(to, from, head);                                                                    \
        to += head, from += head, n -= head;                                                       \
        for (; n >= stripe; n -= stripe, to += stripe, from += stripe)                             \
            for (size_t at = 0; at < VB_COPY_PAGE; at += VB_COPY_LINE)                             \
                for (size_t page = 0; page < stripe; page += VB_COPY_PAGE)                         \
                    line(to + page + at, from + page + at);                                        \
        for (; n >= VB_COPY_LINE; n -= VB_COPY_LINE, to += VB_COPY_LINE, from += VB_COPY_LINE)     \
            line(to, from);                                                                        \
        memcpy(to, from, n);                                                                       \
        _mm_sfence();                                                                              \
    }

DEFINE_STREAM(stream_avx2, "avx2", STREAM_LINE_AVX2, 1)
DEFINE_STREAM(stream_avx2_pages, "avx2", STREAM_LINE_AVX2, 8)
DEFINE_STREAM(stream_avx512, "avx512f", STREAM_LINE_AVX512, 1)
DEFINE_STREAM(stream_avx512_pages, "avx512f", STREAM_LINE_AVX512, 8)

static void copy_movsb(void *dst, const void *src, size_t n)
{
    __asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(n) : : "memory");
}

static unsigned cpu_family(void)
{
    unsigned eax, ebx, ecx, edx;

    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        return 0;
    return ((eax >> 8) & 0xf) + ((eax >> 20) & 0xff);
}

static unsigned long long ticks(void)
{
    return __builtin_ia32_rdtsc();
}

bool vb_memory_copy_plan_named(const char *name, struct vb_copy_plan *out)
{
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2"), avx512 = __builtin_cpu_supports("avx512f");
    const struct {
        const char *name;
        vb_copy_fn *uncached;
        bool runs;
    } known[] = {
        {"libc", NULL, true},
        {"avx2", stream_avx2, avx2},
        {"avx2-pages", stream_avx2_pages, avx2},
        {"avx512", stream_avx512, avx512},
        {"avx512-pages", stream_avx512_pages, avx512},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0 && known[i].runs) {
            *out = (struct vb_copy_plan){known[i].name, copy_libc, known[i].uncached, 6};
            return true;
        }
    return false;
}

struct vb_copy_plan vb_memory_copy_plan_of_cpu(void)
{
    struct vb_copy_plan plan;
    const bool amd = (__builtin_cpu_init(), __builtin_cpu_is("amd"));

    if (!vb_memory_copy_plan_named(amd ? "avx512" : "avx512-pages", &plan) &&
        !vb_memory_copy_plan_named(amd ? "avx2" : "avx2-pages", &plan))
        vb_memory_copy_plan_named("libc", &plan);
    if (amd && cpu_family() >= 0x1a) { /* Zen 5: 60 GB/s in its level 3 cache, 20 in memory */
        plan.cached = copy_movsb;
        plan.cached_rate = 12;
    }
    return plan;
}

#else

static unsigned long long ticks(void)
{
    return 0;
}

bool vb_memory_copy_plan_named(const char *name, struct vb_copy_plan *out)
{
    *out = vb_memory_copy_plan_of_cpu();
    return strcmp(name, out->name) == 0;
}

struct vb_copy_plan vb_memory_copy_plan_of_cpu(void)
{
    return (struct vb_copy_plan){"libc", copy_libc, NULL, 0};
}

#endif

static void copy_much(const struct vb_copy_plan *plan, unsigned char *to, const unsigned char *from,
                      size_t n)
{
    unsigned long long start = ticks();
    memcpy(to, from, VB_COPY_PROBE);
    unsigned long long took = ticks() - start;
    bool in_cache = took * plan->cached_rate <= VB_COPY_PROBE;
    vb_copy_fn *copy = in_cache || !plan->uncached ? plan->cached : plan->uncached;

    copy(to + VB_COPY_PROBE, from + VB_COPY_PROBE, n - VB_COPY_PROBE);
}

static void copy_last8(void *dst, const void *src, size_t body)
{
    vb_memory_copy_order_stores();
    vb_memory_copy_last8((unsigned char *)dst + body, (const unsigned char *)src + body);
}

void vb_memory_copy_by_plan(const struct vb_copy_plan *plan, void *dst, const void *src, size_t n)
{
    size_t body = n - 8;

    if (body < VB_COPY_PROBED_MIN)
        memcpy(dst, src, body);
    else
        copy_much(plan, dst, src, body);
    copy_last8(dst, src, body);
}

/* This file's only state: a property of the CPU, found by the first large copy. */
static pthread_once_t plan_found = PTHREAD_ONCE_INIT;
static struct vb_copy_plan plan_found_value;

static void find_plan(void)
{
    plan_found_value = vb_memory_copy_plan_of_cpu();
}

void vb_memory_copy_large(void *dst, const void *src, size_t n)
{
    if (n < VB_COPY_PROBED_MIN) {
        memcpy(dst, src, n - 8);
        copy_last8(dst, src, n - 8);
        return;
    }
    pthread_once(&plan_found, find_plan);
    vb_memory_copy_by_plan(&plan_found_value, dst, src, n);
}
