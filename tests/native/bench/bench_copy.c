// SPDX-License-Identifier: Apache-2.0
/*
 * GB/s of one copying core, hot (the same two buffers again) and cold (walking through them), for
 * libc's memcpy, vb_memory_copy and every plan that this CPU runs with its non-temporal stores
 * forced. Not a part of the test-suite; takes about half a minute and 2 GiB.
 *
 *     cc -O3 -D_GNU_SOURCE -Isrc/native -o build/bench_copy tests/native/bench/bench_copy.c \
 *         src/native/memory/copy.c -pthread && taskset -c 1 build/bench_copy
 */
#include "memory/copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ROUNDS = 7, KIB = 1 << 10, MIB = 1 << 20 };

static const size_t walk = (size_t)1 << 30;
static const size_t sizes[] = {8,         64,      512,     4 * KIB,  64 * KIB,
                               256 * KIB, 1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB};
enum { SIZES = sizeof sizes / sizeof *sizes };

struct way {
    const char *name;
    struct vb_copy_plan plan;
    enum { LIBC, AS_CHOSEN, FORCED } kind;
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *pages(int value)
{
    void *at = mmap(NULL, walk, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        perror("bench_copy: 1 GiB of shared memory");
        exit(1);
    }
    return memset(at, value, walk);
}

static void copy_once(const struct way *way, char *to, const char *from, size_t n)
{
    __asm__ volatile("" : "+r"(n)); /* a size that the compiler does not know */
    if (way->kind == LIBC)
        memcpy(to, from, n);
    else if (way->kind == AS_CHOSEN)
        vb_memory_copy(to, from, n);
    else
        vb_memory_copy_by_plan(&way->plan, to, from, n);
}

static double rate(const struct way *way, char *to, const char *from, size_t n, size_t range)
{
    size_t total = n < 4 * KIB ? 4 * MIB : 128 * MIB, done = 0;
    double start = seconds();

    for (size_t at = 0; done < total; done += n) {
        copy_once(way, to + at, from + at, n);
        at = at + 2 * n <= range ? at + n : 0;
    }
    return (double)done / (seconds() - start) / 1e9;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median_rate(const struct way *way, char *to, const char *from, size_t n, bool cold)
{
    double rates[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        size_t start = cold ? (size_t)i * 128 * MIB : 0;
        rates[i] = rate(way, to + start, from + start, n, cold ? 128 * MIB : n);
    }
    qsort(rates, ROUNDS, sizeof *rates, ascending);
    return rates[ROUNDS / 2];
}

static void print_row(const struct way *way, char *to, const char *from, bool cold)
{
    printf("%-13s", way->name);
    for (int i = 0; i < SIZES; i++)
        printf("%9.1f", median_rate(way, to, from, sizes[i], cold));
    printf("\n");
    fflush(stdout);
}

static int find_ways(struct way *ways)
{
    static const char *const names[] = {"avx2", "avx2-pages", "avx512", "avx512-pages"};
    int found = 2;

    ways[0] = (struct way){.name = "memcpy", .kind = LIBC};
    ways[1] = (struct way){.name = "vb_memory_copy", .kind = AS_CHOSEN};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct way *way = &ways[found];
        if (!vb_memory_copy_plan_named(names[i], &way->plan))
            continue;
        way->name = names[i];
        way->kind = FORCED;
        way->plan.cached_rate = 1u << 31;
        found++;
    }
    return found;
}

int main(void)
{
    struct way ways[6];
    const int count = find_ways(ways);
    char *to = pages(1), *from = pages(2);

    printf("this CPU's plan: %s\n", vb_memory_copy_plan_of_cpu().name);
    for (int cold = 0; cold < 2; cold++) {
        printf("%-13s", cold ? "cold, GB/s" : "hot, GB/s");
        for (int i = 0; i < SIZES; i++)
            printf("%9zu", sizes[i]);
        printf("\n");
        for (int i = 0; i < count; i++)
            print_row(&ways[i], to, from, cold);
    }
    return 0;
}
