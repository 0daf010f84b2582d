// SPDX-License-Identifier: Apache-2.0
/*
 * malloc and its family while the program's own allocator is looked for: the search allocates, too,
 * and gets memory that outlives it. dlsym and the shared heap, which has no room, are the test's.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>

#include "check.h"
#include "preload/heap/next.h"

void *verbena_heap_alloc(size_t size, size_t align)
{
    (void)size;
    (void)align;
    return NULL;
}

void verbena_heap_free(void *block)
{
    (void)block;
}

size_t verbena_heap_size(const void *block)
{
    (void)block;
    return 0;
}

int verbena_heap_has(const void *block);
void *verbena_heap_next_free(void);

/* ---- what a search does ---------------------------------------------------------------------- */

enum { KINDS = 9, BYTES = 100 };

static unsigned char *early[KINDS];
static bool searched, moved_well, zeroed, no_next;

static bool is_zero(const unsigned char *block, size_t size)
{
    for (size_t i = 0; i < size; ++i)
        if (block[i])
            return false;
    return true;
}

/* Once, in the first look-up; nothing is checked yet, as that would allocate. */
static void allocate_early(void)
{
    void *block = NULL;

    early[0] = malloc(BYTES);
    early[1] = calloc(10, BYTES / 10);
    early[2] = memalign(64, BYTES);
    early[3] = aligned_alloc(128, BYTES);
    early[4] = valloc(BYTES);
    early[5] = pvalloc(BYTES);
    early[6] = posix_memalign(&block, 256, BYTES) ? NULL : block;
    early[7] = realloc(NULL, BYTES);
    early[8] = malloc(BYTES);
    zeroed = early[1] && is_zero(early[1], BYTES);
    no_next = verbena_heap_next_free() == NULL;
    for (int i = 0; i < BYTES; ++i)
        early[8][i] = (unsigned char)i;
    early[8] = realloc(early[8], 2 * BYTES);
    moved_well = true;
    for (int i = 0; early[8] && i < BYTES; ++i)
        moved_well &= early[8][i] == i;
    free(malloc(BYTES));
    free(NULL);
}

void *dlsym(void *handle, const char *name)
{
    static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.16", "GLIBC_2.17"};
    void *found = NULL;

    if (!searched) {
        searched = true;
        allocate_early();
    }
    for (int i = 0; i < 3 && !found; ++i)
        found = dlvsym(handle, name, versions[i]);
    return found;
}

static void test_blocks_of_the_search(void)
{
    static const size_t aligns[KINDS] = {16, 16, 64, 128, 4096, 4096, 256, 16, 16};

    CHECK(searched && zeroed && moved_well && no_next);
    for (int i = 0; i < KINDS; ++i) {
        const size_t size = i == 8 ? 2 * BYTES : BYTES;

        CHECK(early[i]);
        CHECK(vb_preload_early_contains(early[i]) && verbena_heap_has(early[i]));
        CHECK_EQ((uintptr_t)early[i] % (aligns[i] < 64 ? aligns[i] : 64), 0);
        CHECK_EQ(malloc_usable_size(early[i]), size);
        for (int other = 0; other < i; ++other)
            CHECK(early[i] >= early[other] + BYTES || early[other] >= early[i] + size);
    }
}

/* They move to the allocator that was found when they grow, and may be freed. */
static void test_blocks_of_the_search_afterwards(void)
{
    for (int i = 0; i < KINDS; ++i) {
        const size_t size = malloc_usable_size(early[i]);
        unsigned char *block;

        for (size_t at = 0; at < size; ++at)
            early[i][at] = (unsigned char)(at + 1);
        if (i % 2) {
            free(early[i]);
            continue;
        }
        block = realloc(early[i], 10 * BYTES);
        CHECK(block && !vb_preload_early_contains(block) && !verbena_heap_has(block));
        for (size_t at = 0; at < size; ++at)
            CHECK_EQ(block[at], (unsigned char)(at + 1));
        free(block);
        block = realloc(early[i], 10); /* what fits */
        CHECK(block && malloc_usable_size(block) >= 10);
        for (size_t at = 0; at < 10; ++at)
            CHECK_EQ(block[at], (unsigned char)(at + 1));
        free(block);
    }
}

static void test_other_blocks_are_the_next_allocators(void)
{
    unsigned char *block = malloc(BYTES), *same;

    CHECK(!vb_preload_early_contains(block) && !verbena_heap_has(block));
    same = realloc(block, BYTES - 40); /* stays where it is, as glibc's do */
    CHECK(same == block);
    free(same);
    CHECK((uintptr_t)verbena_heap_next_free() == (uintptr_t)vb_preload_next()->free);
}

int main(void)
{
    free(malloc(1));
    RUN(test_blocks_of_the_search);
    RUN(test_blocks_of_the_search_afterwards);
    RUN(test_other_blocks_are_the_next_allocators);
    return 0;
}
