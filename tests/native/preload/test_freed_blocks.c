// SPDX-License-Identifier: Apache-2.0
/*
 * What free() and realloc() report of blocks: those that the C library maps by themselves, and
 * others, once a region has been in them; what libibverbs.so.1 or the C library frees is not
 * reported. A library of the test's plays libibverbs.so.1.
 */
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "check.h"
#include "memory/watch.h"
#include "watch_peer.h"

enum { PAGE = 4096, MAPPED = 1 << 20, SMALL = 1000 };

static struct watch_peer *peer;

static void expect_count(unsigned count)
{
    if (peer->count != count)
        for (unsigned i = 0; i < peer->count; ++i)
            fprintf(stderr, "%d: %p %zu\n", peer->reports[i].change, peer->reports[i].at,
                    peer->reports[i].n);
    CHECK_EQ(peer->count, count);
    peer->count = 0;
}

static void expect(unsigned i, int change, uintptr_t at, size_t n)
{
    CHECK_EQ(peer->reports[i].change, change);
    CHECK_EQ(peer->reports[i].at, at);
    CHECK_EQ(peer->reports[i].n, n);
}

/* Where a mapped block's mapping begins, and how long it is. */
static uintptr_t low_of(const void *block)
{
    return (uintptr_t)block / PAGE * PAGE;
}

static size_t mapped_bytes(void *block)
{
    return (uintptr_t)block + malloc_usable_size(block) - low_of(block);
}

/* ---- mapped blocks ---- */

static void test_a_mapped_block_goes(void)
{
    for (int concerned = 0; concerned < 2; ++concerned) {
        uint8_t *block = malloc(MAPPED);
        const uintptr_t low = low_of(block);
        const size_t n = mapped_bytes(block);

        peer->count = 0;
        peer->concerned = concerned;
        free(block);
        expect(0, VB_MAPPING_GOES, low, n);
        if (concerned)
            expect(1, VB_MAPPING_WENT, low, n);
        expect_count(concerned ? 2 : 1);
    }
}

/* The C library moves the pages, or leaves the block and unmaps its end. */
static void test_a_mapped_block_is_resized(void)
{
    for (int concerned = 0; concerned < 2; ++concerned) {
        uint8_t *block = malloc(MAPPED), *same;
        const uintptr_t low = low_of(block);
        const size_t n = mapped_bytes(block);
        size_t left;

        block[0] = 7;
        peer->count = 0;
        peer->concerned = concerned;
        same = realloc(block, MAPPED / 2);
        CHECK(same == block && same[0] == 7);
        left = mapped_bytes(same);
        CHECK(left < n);
        expect(0, VB_MAPPING_GOES, low, n);
        if (concerned) {
            expect(1, VB_MAPPING_STAYED, low, n);
            expect(2, VB_MAPPING_GOES, low + left, n - left);
            expect(3, VB_MAPPING_WENT, low + left, n - left);
        }
        expect_count(concerned ? 4 : 1);
        block = realloc(same, MAPPED / 2 - 8); /* no page less */
        CHECK(block == same);
        expect(0, VB_MAPPING_GOES, low, left);
        if (concerned)
            expect(1, VB_MAPPING_STAYED, low, left);
        expect_count(concerned ? 2 : 1);
        CHECK(!realloc(block, 0));
        expect(0, VB_MAPPING_GOES, low, left);
        if (concerned)
            expect(1, VB_MAPPING_WENT, low, left);
        expect_count(concerned ? 2 : 1);
    }
}

static void test_a_mapped_block_moves(void)
{
    uint8_t *block = malloc(MAPPED), *moved;
    const uintptr_t low = low_of(block);
    const size_t n = mapped_bytes(block);

    peer->concerned = true;
    peer->count = 0;
    moved = realloc(block, 64 * (size_t)MAPPED);
    CHECK(moved);
    expect(0, VB_MAPPING_GOES, low, n);
    expect(1, moved == block ? VB_MAPPING_STAYED : VB_MAPPING_WENT, low, n);
    expect_count(2);
    CHECK(!realloc(moved, SIZE_MAX / 2) && errno == ENOMEM); /* it stays */
    expect(1, VB_MAPPING_STAYED, low_of(moved), mapped_bytes(moved));
    expect_count(2);
    free(moved);
    peer->count = 0;
}

/* ---- other blocks ---- */

static void test_a_block_without_a_region(void)
{
    void *block = malloc(SMALL);

    peer->concerned = true;
    peer->count = 0;
    block = realloc(block, 2 * SMALL);
    free(block);
    free(NULL);
    malloc_trim(0);
    expect_count(0);
}

static void *freed_within;

static void free_within(void)
{
    free(freed_within);
}

static void test_what_is_not_reported(void)
{
    FILE *stream = fopen("/dev/null", "re");
    void *block = malloc(SMALL), *mapped = malloc(MAPPED), *outer = malloc(MAPPED);

    watch_peer_region(stream, 16);
    watch_peer_region(block, 16);
    peer->concerned = true;
    peer->count = 0;
    CHECK_EQ(fclose(stream), 0); /* the C library frees it */
    watch_peer_free(block);
    watch_peer_free(mapped);
    expect_count(0);
    freed_within = malloc(SMALL);
    watch_peer_region(freed_within, 16);
    peer->within = free_within;
    free(outer);
    expect_count(2); /* of the outer one alone */
    freed_within = malloc(MAPPED);
    outer = malloc(MAPPED);
    peer->within = free_within;
    CHECK(!realloc(outer, 0));
    expect_count(2);
    free(malloc(MAPPED)); /* and the next again */
    expect_count(2);
}

/* From its first byte to its last; errno stays. */
static void test_a_block_with_a_region(void)
{
    const size_t places[] = {0, 16, SMALL - 16};

    for (int i = 0; i < 6; ++i) {
        uint8_t *block = malloc(SMALL);
        const size_t n = malloc_usable_size(block);

        watch_peer_region(block + places[i % 3], 16);
        peer->concerned = false;
        peer->count = 0;
        errno = 9;
        if (i < 3)
            free(block);
        else
            CHECK(!realloc(block, 0));
        CHECK_EQ(errno, 9);
        expect(0, VB_MAPPING_FREED, (uintptr_t)block, n);
        expect_count(1);
    }
}

/* From then on any call may make the heap shorter, which is reported. */
static void test_the_heap_becomes_shorter(void)
{
    enum { BLOCKS = 600 };
    static void *blocks[BLOCKS];
    uint8_t *before, *after;
    unsigned lost = 0;

    for (int i = 0; i < BLOCKS; ++i)
        blocks[i] = malloc(SMALL);
    watch_peer_region(blocks[BLOCKS - 1], 16);
    peer->concerned = true;
    peer->count = 0;
    before = sbrk(0);
    free(blocks[BLOCKS - 1]);
    expect(0, VB_MAPPING_FREED, (uintptr_t)blocks[BLOCKS - 1], peer->reports[0].n);
    expect_count(1);
    peer->concerned = false;
    for (int i = BLOCKS - 2; i >= 0; --i)
        free(blocks[i]);
    malloc_trim(0);
    after = sbrk(0);
    CHECK(after < before);
    for (unsigned i = 0; i < peer->count; ++i)
        if (peer->reports[i].change == VB_MAPPING_LOST) {
            CHECK_EQ((const uint8_t *)peer->reports[i].at + peer->reports[i].n, before);
            before -= peer->reports[i].n;
            ++lost;
        }
    CHECK(lost >= 1 && before == after);
    peer->count = 0;
}

int main(void)
{
    peer = watch_peer();
    mallopt(M_MMAP_THRESHOLD, MAPPED / 8);
    mallopt(M_TRIM_THRESHOLD, 16 * PAGE);
    RUN(test_a_mapped_block_goes);
    RUN(test_a_mapped_block_is_resized);
    RUN(test_a_mapped_block_moves);
    RUN(test_a_block_without_a_region);
    RUN(test_what_is_not_reported);
    RUN(test_a_block_with_a_region);
    RUN(test_the_heap_becomes_shorter);
    return 0;
}
