// SPDX-License-Identifier: Apache-2.0
/*
 * Nanoseconds and GB/s of one core that sums, or copies and sums, the same hot buffer again, for
 * every way that this CPU knows. Below 1 KiB each call needs the result of the one before, as the
 * pieces of a packet do; from there on calls are independent, as packets are. Not a part of the
 * test-suite.
 *
 *     cc -O3 -D_GNU_SOURCE -Isrc/native -o build/bench_crc32 tests/native/bench/bench_crc32.c \
 *         src/native/wire/crc32*.c -pthread && taskset -c 1 build/bench_crc32
 */
#include "wire/crc32.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 9, MOST = 1 << 16, BUDGET = 1 << 26 };

static const size_t sizes[] = {8, 12, 16, 20, 28, 36, 48, 64, 128, 256, 1024, 4096, 4124, 65536};
static uint8_t from[MOST] __attribute__((aligned(64))), to[MOST] __attribute__((aligned(64)));

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double nanoseconds(const struct vb_crc32_way *way, bool copy, size_t n)
{
    const int calls = (int)(BUDGET / (n + 200));
    double best = 1;

    for (int round = 0; round < ROUNDS; round++) {
        uint32_t crc = VB_CRC32_START, chained = n < 1024 ? ~0u : 0;
        double start = seconds();
        for (int i = 0; i < calls; i++) {
            uint32_t from_here = crc & chained;
            crc ^= copy ? way->copy(from_here, to, from, n) : way->sum(from_here, from, n);
        }
        double took = (seconds() - start) / calls;
        best = took < best ? took : best;
        from[0] ^= (uint8_t)crc;
    }
    return best * 1e9;
}

static void print_kind(const struct vb_crc32_way *way, bool copy)
{
    printf("%-8s %-5s", way->name, copy ? "copy" : "sum");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double ns = nanoseconds(way, copy, sizes[i]);
        if (sizes[i] < 1024)
            printf(" %6.1fns", ns);
        else
            printf(" %6.1fGB", (double)sizes[i] / ns);
    }
    printf("\n");
}

int main(void)
{
    printf("%-14s", "bytes");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        printf(" %8zu", sizes[i]);
    printf("\n");
    memset(from, 7, sizeof from);
    for (size_t i = 0; vb_wire_crc32_way(i); i++) {
        print_kind(vb_wire_crc32_way(i), false);
        print_kind(vb_wire_crc32_way(i), true);
    }
    return 0;
}
