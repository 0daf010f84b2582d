// SPDX-License-Identifier: Apache-2.0
#include "check.h"
#include "memory/copy.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUARD = 128, SMALL_MAX = 4096, GUARD_BYTE = 0xa5 };

static const char *const plans[] = {"libc", "avx2", "avx2-pages", "avx512", "avx512-pages"};

static void fill(unsigned char *at, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        at[i] = (unsigned char)(seed >> 56);
    }
}

static void *pages(size_t n)
{
    void *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static void check_guards(const unsigned char *dst, size_t n)
{
    for (size_t i = 1; i <= GUARD; i++) {
        CHECK_EQ(dst[-(ptrdiff_t)i], GUARD_BYTE);
        CHECK_EQ(dst[n + i - 1], GUARD_BYTE);
    }
}

static void check_small(size_t n, size_t to_offset, size_t from_offset)
{
    static unsigned char to[SMALL_MAX + 3 * GUARD], from[SMALL_MAX + GUARD];
    unsigned char *dst = to + GUARD + to_offset, *src = from + from_offset;

    memset(dst - GUARD, GUARD_BYTE, n + (size_t)2 * GUARD);
    fill(src, n, n * 64 + to_offset);
    vb_memory_copy(dst, src, n);
    CHECK(memcmp(dst, src, n) == 0);
    check_guards(dst, n);
}

static void test_every_small_size_at_every_alignment(void)
{
    for (size_t n = 0; n <= 200; n++)
        for (size_t to = 0; to < 64; to++)
            check_small(n, to, (to * 7 + n) % 64);
}

static void test_sizes_to_a_page_at_sampled_alignments(void)
{
    for (size_t n = 0; n <= SMALL_MAX; n++)
        for (size_t k = 0; k < 3; k++)
            check_small(n, (n * 13 + k * 29) % 64, (n * 5 + k * 17) % 64);
}

static void check_large(const struct vb_copy_plan *plan, unsigned char *to,
                        const unsigned char *from, size_t n)
{
    memset(to - GUARD, GUARD_BYTE, n + (size_t)2 * GUARD);
    vb_memory_copy_by_plan(plan, to, from, n);
    CHECK(memcmp(to, from, n) == 0);
    check_guards(to, n);
}

/* Every way to copy is forced: a plan that finds everything out of cache, and one that never does.
 */
static void test_large_sizes_by_every_plan(void)
{
    const size_t sizes[] = {64 * 1024,        256 * 1024 + 7,    256 * 1024 + 8, 256 * 1024 + 71,
                            (1 << 20) + 4095, 5 * (1 << 20) + 1, 8 << 20};
    const size_t space = (8 << 20) + 4096;
    unsigned char *to = pages(space), *from = pages(space);

    fill(from, space, 3);
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
        struct vb_copy_plan plan;
        if (!vb_memory_copy_plan_named(plans[p], &plan))
            continue;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (unsigned cached = 0; cached < 2; cached++) {
                plan.cached_rate = cached ? 0 : 1u << 31;
                check_large(&plan, to + GUARD + i * 13, from + i * 31 + cached, sizes[i]);
            }
    }
    munmap(to, space);
    munmap(from, space);
}

static void test_a_plan_exists_for_this_cpu(void)
{
    struct vb_copy_plan plan = vb_memory_copy_plan_of_cpu(), same;

    CHECK(vb_memory_copy_plan_named(plan.name, &same));
    CHECK(plan.cached != NULL);
    CHECK(!vb_memory_copy_plan_named("no such plan", &same));
}

struct watched {
    volatile uint64_t go; /* the round that the writer may copy */
    unsigned char *volatile to;
    volatile size_t n;
    unsigned char from[2][1 << 20]; /* by parity of the round */
    unsigned char area[(1 << 20) + 4096];
};

static void watch_round(struct watched *w, uint64_t round, size_t n, size_t offset)
{
    unsigned char *to = w->area + offset;

    memset(w->from[round & 1], (int)(round % 250) + 1, n);
    w->to = to;
    w->n = n;
    __atomic_store_n(&w->go, round, __ATOMIC_RELEASE);
    while (__atomic_load_n(to + n - 1, __ATOMIC_ACQUIRE) != (unsigned char)(round % 250 + 1))
        ;
    CHECK(memcmp(to, w->from[round & 1], n) == 0);
    while (__atomic_load_n(&w->go, __ATOMIC_ACQUIRE) == round) /* the copy has returned */
        ;
}

static void writer(struct watched *w, uint64_t rounds)
{
    for (uint64_t round = 1; round <= rounds; round++) {
        while (__atomic_load_n(&w->go, __ATOMIC_ACQUIRE) != round)
            ;
        vb_memory_copy(w->to, w->from[round & 1], w->n);
        __atomic_store_n(&w->go, 0, __ATOMIC_RELEASE);
    }
    _exit(0);
}

/* What an RDMA program does that polls on the end of its buffer, in two processes. */
static void test_a_peer_that_sees_the_last_byte_sees_all(void)
{
    const size_t sizes[] = {2,  7,  8,   9,   13,   16,    31,     48,
                            64, 65, 100, 777, 4096, 70001, 300000, 1 << 20};
    const size_t kinds = sizeof sizes / sizeof *sizes;
    const uint64_t rounds = 6000;
    struct watched *w = pages(sizeof *w);
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0)
        writer(w, rounds);
    for (uint64_t round = 1; round <= rounds; round++)
        watch_round(w, round, sizes[round % kinds], round * 37 % 509);
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    munmap(w, sizeof *w);
}

static volatile uint64_t counter __attribute__((aligned(64)));
static volatile int counting;

static void *count_by_copies(void *unused)
{
    (void)unused;
    for (uint64_t i = 1; i <= 2000000; i++) {
        uint64_t twice = i << 32 | i;
        vb_memory_copy((void *)(uintptr_t)&counter, &twice, sizeof twice);
    }
    counting = 0;
    return NULL;
}

static void test_eight_aligned_bytes_appear_in_one_store(void)
{
    pthread_t thread;
    uint64_t seen = 0;

    counting = 1;
    CHECK_EQ(pthread_create(&thread, NULL, count_by_copies, NULL), 0);
    while (counting) {
        uint64_t now = counter;
        CHECK((now >> 32) == (now & 0xffffffff));
        CHECK(now >= seen);
        seen = now;
    }
    pthread_join(thread, NULL);
}

int main(void)
{
    RUN(test_every_small_size_at_every_alignment);
    RUN(test_sizes_to_a_page_at_sampled_alignments);
    RUN(test_a_plan_exists_for_this_cpu);
    RUN(test_large_sizes_by_every_plan);
    RUN(test_a_peer_that_sees_the_last_byte_sees_all);
    RUN(test_eight_aligned_bytes_appear_in_one_store);
    return 0;
}
