// SPDX-License-Identifier: Apache-2.0
/* Every way to sum against one bit after the other. */
#include "check.h"
#include "wire/crc32.h"

#include <stdbool.h>
#include <sys/mman.h>

enum { SPACE = 1 << 14, GUARD = 64, GUARD_BYTE = 0xa5, ALIGNMENTS = 64 };

static uint8_t bytes[SPACE], target[SPACE];

static void fill(uint64_t seed)
{
    for (size_t i = 0; i < SPACE; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(seed >> 56);
    }
}

static uint32_t by_bits(uint32_t crc, const uint8_t *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return crc;
}

static void check_sum(const struct vb_crc32_way *way, const uint8_t *at, size_t n, uint32_t start)
{
    CHECK_EQ(way->sum(start, at, n), by_bits(start, at, n));
}

static void check_copy(const struct vb_crc32_way *way, size_t to, size_t from, size_t n)
{
    memset(target + to, GUARD_BYTE, n + (size_t)2 * GUARD);
    CHECK_EQ(way->copy(7, target + to + GUARD, bytes + from, n), by_bits(7, bytes + from, n));
    CHECK(memcmp(target + to + GUARD, bytes + from, n) == 0);
    for (size_t i = 0; i < GUARD; i++) {
        CHECK_EQ(target[to + i], GUARD_BYTE);
        CHECK_EQ(target[to + GUARD + n + i], GUARD_BYTE);
    }
}

static void every_small_length_at_every_alignment(const struct vb_crc32_way *way)
{
    for (size_t n = 0; n <= 330; n++)
        for (size_t at = 0; at < ALIGNMENTS; at++) {
            check_sum(way, bytes + at, n, 0x12345678u * (uint32_t)(at + 1));
            check_copy(way, (at * 7 + n) % ALIGNMENTS, at, n);
        }
}

static void sampled_lengths_to_two_pages(const struct vb_crc32_way *way)
{
    for (size_t n = 330; n <= 8200; n += 1 + n % 3) {
        check_sum(way, bytes + n % ALIGNMENTS, n, VB_CRC32_START);
        check_copy(way, n * 5 % ALIGNMENTS, n * 3 % ALIGNMENTS, n);
    }
}

static void pieces_sum_to_the_whole(const struct vb_crc32_way *way)
{
    const uint32_t whole = by_bits(VB_CRC32_START, bytes, 1000);

    for (size_t first = 0; first <= 1000; first++) {
        uint32_t crc = way->sum(VB_CRC32_START, bytes, first);
        CHECK_EQ(way->copy(crc, target, bytes + first, 1000 - first), whole);
    }
}

/* Bytes that cannot be read follow, and others stand before. */
static void nothing_outside_is_touched(const struct vb_crc32_way *way)
{
    const size_t page = 4096;
    uint8_t *at = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(at != MAP_FAILED);
    at += page;
    CHECK_EQ(mprotect(at, page, PROT_READ | PROT_WRITE), 0);
    memcpy(at, bytes, page);
    for (size_t n = 0; n <= page; n += n < 600 ? 1 : 61) {
        CHECK_EQ(way->sum(1, at + page - n, n), by_bits(1, at + page - n, n));
        CHECK_EQ(way->copy(1, target, at, n), by_bits(1, at, n));
        CHECK_EQ(way->copy(1, at + page - n, bytes, n), by_bits(1, bytes, n));
    }
    munmap(at - page, 3 * page);
}

static void test_known_sums(void)
{
    CHECK_EQ(~vb_wire_crc32(VB_CRC32_START, "123456789", 9), 0xcbf43926u);
    CHECK_EQ(vb_wire_crc32(VB_CRC32_START, "\xff\xff\xff\xff\xff\xff\xff\xff", 8), 0xdebb20e3u);
    CHECK_EQ(vb_wire_crc32(5, NULL, 0), 5);
    CHECK_EQ(vb_wire_crc32_copy(VB_CRC32_START, target, "123456789", 9), ~0xcbf43926u);
    CHECK(memcmp(target, "123456789", 9) == 0);
}

static void test_the_last_way_is_the_table(void)
{
    size_t count = 0;

    while (vb_wire_crc32_way(count))
        count++;
    CHECK(count >= 1);
    CHECK(strcmp(vb_wire_crc32_way(count - 1)->name, "table") == 0);
}

#if defined(__x86_64__)

/* Is this word in the line of /proc/cpuinfo that begins so? */
static bool cpu_says(const char *begin, const char *word)
{
    FILE *cpus = fopen("/proc/cpuinfo", "re");
    char line[8192], spaced[32];
    bool found = false;

    CHECK(cpus);
    snprintf(spaced, sizeof(spaced), " %s ", word);
    while (!found && fgets(line, sizeof(line) - 1, cpus))
        if (strncmp(line, begin, strlen(begin)) == 0) {
            line[strcspn(line, "\n")] = ' ';
            found = strstr(line, spaced) != NULL;
        }
    fclose(cpus);
    return found;
}

static bool cpu_has(const char *const flags[])
{
    bool all = true;

    for (; *flags; ++flags)
        all &= cpu_says("flags", *flags);
    return all;
}

/* The ways that the kernel's flags of the CPU allow, the fastest first. */
static void test_the_ways_of_this_cpu(void)
{
    static const char *const with_16[] = {"pclmulqdq", "sse4_1", NULL};
    static const char *const with_32[] = {"avx2", "vpclmulqdq", NULL};
    static const char *const with_64[] = {"avx512bw", "avx512vl", "bmi2", NULL};
    static const char *const with_affine[] = {"gfni", NULL};
    const bool x16 = cpu_has(with_16), x32 = x16 && cpu_has(with_32);
    const bool x64 = x32 && cpu_has(with_64), affine = x64 && cpu_has(with_affine);
    const bool amd = cpu_says("vendor_id", "AuthenticAMD");
    char expected[64] = "", found[64] = "";

    strcat(expected, affine && amd ? "gfni " : "");
    strcat(expected, x64 ? "avx512 " : "");
    strcat(expected, affine && !amd ? "gfni " : "");
    strcat(expected, x32 ? "avx2 " : "");
    strcat(expected, x16 ? "pclmul " : "");
    strcat(expected, "table ");
    for (size_t i = 0; vb_wire_crc32_way(i); i++)
        strcat(strcat(found, vb_wire_crc32_way(i)->name), " ");
    if (strcmp(found, expected) != 0)
        fprintf(stderr, "%s, not %s\n", found, expected);
    CHECK(strcmp(found, expected) == 0);
}

#endif

int main(void)
{
    fill(3);
#if defined(__x86_64__)
    RUN(test_the_ways_of_this_cpu);
#endif
    RUN(test_known_sums);
    RUN(test_the_last_way_is_the_table);
    for (size_t i = 0; vb_wire_crc32_way(i); i++) {
        const struct vb_crc32_way *way = vb_wire_crc32_way(i);
        every_small_length_at_every_alignment(way);
        sampled_lengths_to_two_pages(way);
        pieces_sum_to_the_whole(way);
        nothing_outside_is_touched(way);
        printf("ok %s\n", way->name);
    }
    return 0;
}
