// SPDX-License-Identifier: Apache-2.0
/*
 * Parts of libverbena_heap.so over a heap of the test's own: which addresses count as the heap's,
 * to the byte, and the allocations that a search for the program's allocator makes. dlsym is the
 * test's, too.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "preload/heap/next.h"
#include "preload/heap/shared.h"

/* ---- a heap ---- */

static _Alignas(4096) uint8_t memory[64 * 1024];
static void *answer;
static int resized = -1;
static struct {
    size_t size, align;
    const char *by;
} asked;

void *verbena_heap_alloc(size_t size, size_t align)
{
    asked.size = size, asked.align = align, asked.by = "zeroed";
    errno = 123;
    return answer;
}

void *verbena_heap_alloc_unzeroed(size_t size, size_t align)
{
    asked.size = size, asked.align = align, asked.by = "unzeroed";
    errno = 123;
    return answer;
}

int verbena_heap_resize(void *block, size_t size)
{
    (void)block;
    asked.size = size;
    errno = 123;
    return resized;
}

static void check_bounds(size_t low, size_t high)
{
    CHECK(!vb_preload_shared_contains(memory + low - 1));
    CHECK(vb_preload_shared_contains(memory + low));
    CHECK(vb_preload_shared_contains(memory + high - 1));
    CHECK(!vb_preload_shared_contains(memory + high));
}

static void test_the_bounds_of_all_blocks(void)
{
    CHECK(!vb_preload_shared_contains(memory));
    CHECK(!vb_preload_shared_contains(NULL));
    CHECK(!vb_preload_shared_contains((void *)UINTPTR_MAX));
    answer = memory + 20000;
    CHECK(vb_preload_shared_alloc(1000, 64) == answer);
    CHECK(asked.size == 1000 && asked.align == 64 && strcmp(asked.by, "unzeroed") == 0);
    check_bounds(20000, 21000);
    answer = memory + 30000;
    CHECK(vb_preload_shared_alloc_zeroed(500) == answer);
    CHECK(asked.size == 500 && asked.align == 1 && strcmp(asked.by, "zeroed") == 0);
    check_bounds(20000, 30500);
    answer = memory + 10000;
    CHECK(vb_preload_shared_alloc(10, 1));
    check_bounds(10000, 30500);
    answer = memory + 15000; /* within */
    CHECK(vb_preload_shared_alloc(10, 1));
    check_bounds(10000, 30500);
}

static void test_a_full_heap(void)
{
    answer = NULL;
    errno = 7;
    CHECK(!vb_preload_shared_alloc(10, 1));
    CHECK_EQ(errno, 7);
    CHECK(!vb_preload_shared_alloc_zeroed(10));
    CHECK_EQ(errno, 7);
    check_bounds(10000, 30500);
}

static void test_a_block_that_grows(void)
{
    resized = 0;
    errno = 7;
    CHECK(vb_preload_shared_resize(memory + 30000, 2000));
    CHECK_EQ(errno, 7);
    CHECK_EQ(asked.size, 2000);
    check_bounds(10000, 32000);
    resized = -1;
    CHECK(!vb_preload_shared_resize(memory + 30000, 9000));
    CHECK_EQ(errno, 7);
    check_bounds(10000, 32000);
}

static void test_which_requests_it_wants(void)
{
    enum { LEAST = 64 * 1024, PAGE = VB_SHARED_PAGE };

    CHECK(!vb_preload_shared_wants(LEAST - 1) && vb_preload_shared_wants(LEAST));
    CHECK(!vb_preload_shared_wants_aligned(PAGE, PAGE - 1));
    CHECK(!vb_preload_shared_wants_aligned(PAGE - 1, PAGE));
    CHECK(vb_preload_shared_wants_aligned(PAGE, PAGE));
    CHECK(vb_preload_shared_wants_aligned(1, LEAST));
}

/* ---- what a search allocates ---- */

static void test_early_blocks(void)
{
    static const size_t aligns[] = {1, 8, 16, 32, 64, 4096};
    uint8_t *last = NULL, *block;

    for (int round = 0; round < 3; ++round)
        for (size_t i = 0; i < sizeof(aligns) / sizeof(*aligns); ++i) {
            const size_t size = 1 + i * 7, align = aligns[i] > 64 ? 64 : aligns[i];

            block = vb_preload_early_alloc(size, aligns[i]);
            CHECK(block && (uintptr_t)block % (align > 16 ? align : 16) == 0);
            CHECK(vb_preload_early_contains(block));
            CHECK(vb_preload_early_contains(block + size - 1));
            CHECK_EQ(vb_preload_early_usable(block), size);
            CHECK(!last || block >= last);
            for (size_t at = 0; at < size; ++at)
                CHECK_EQ(block[at], 0);
            memset(block, 0xff, size);
            last = block + size;
        }
    CHECK(!vb_preload_early_contains(NULL));
    CHECK(!vb_preload_early_contains(&aligns));
    CHECK(!vb_preload_early_contains(memory));
}

/* They do not overlap, to the last that fits. */
static void test_early_blocks_end(void)
{
    uint8_t *first = vb_preload_early_alloc(1, 1), *block = first, *last = NULL;
    const size_t all = 64 * 1024;
    size_t total = 0, count = 0;

    errno = 0;
    CHECK(!vb_preload_early_alloc(SIZE_MAX, 1) && errno == ENOMEM);
    CHECK(!vb_preload_early_alloc(SIZE_MAX - 64, 64));
    CHECK(!vb_preload_early_alloc(all, 1));
    CHECK(!vb_preload_early_alloc(all + 1, 1));
    for (;; ++count) {
        uint8_t *next = vb_preload_early_alloc(100, 16);

        if (!next)
            break;
        CHECK(next >= block + (count ? 100 : 1) + sizeof(size_t));
        CHECK(next <= block + (count ? 100 : 1) + 32);
        block = next;
        total = (size_t)(block - first) + 100;
        memset(block, (int)count, 100);
        CHECK_EQ(vb_preload_early_usable(block), 100);
    }
    CHECK_EQ(errno, ENOMEM);
    CHECK(count > 400 && total < all);
    CHECK(!vb_preload_early_alloc(100, 1));
    while ((block = vb_preload_early_alloc(1, 1)))
        last = block;
    CHECK(last);
    for (total = 0; vb_preload_early_contains(last + total); ++total)
        ;
    CHECK(total >= 1 && total <= 32); /* where the next would begin behind the end */
}

/* ---- the search ---- */

static const char *missing;
static int searches, answered_while_searching;

static void *c_librarys(const char *name)
{
    void *library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), *found = NULL;
    static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.16", "GLIBC_2.17"};

    for (int i = 0; i < 3 && !found; ++i) /* x86-64; aligned_alloc; AArch64 */
        found = dlvsym(library, name, versions[i]);
    return found;
}

void *dlsym(void *handle, const char *name)
{
    CHECK(handle == RTLD_NEXT);
    ++searches;
    answered_while_searching += vb_preload_next() != NULL;
    return missing && strcmp(missing, name) == 0 ? NULL : c_librarys(name);
}

static const char *const functions[] = {
    "malloc",         "calloc", "realloc", "free",          "memalign",
    "posix_memalign", "valloc", "pvalloc", "aligned_alloc", "malloc_usable_size"};

enum { FUNCTIONS = sizeof(functions) / sizeof(*functions) };

static void test_a_function_that_is_missing(void)
{
    for (int i = 0; i < FUNCTIONS; ++i) {
        int status;

        fflush(stdout);
        if (fork() == 0) {
            missing = functions[i];
            vb_preload_next();
            _exit(0);
        }
        CHECK(wait(&status) > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

static void test_the_search(void)
{
    const struct vb_next *next = vb_preload_next();

    CHECK(next);
    CHECK_EQ(searches, FUNCTIONS);
    CHECK_EQ(answered_while_searching, 0);
    CHECK(vb_preload_next() == next); /* once is enough */
    CHECK_EQ(searches, FUNCTIONS);
#define CHECK_FOUND(name) CHECK((uintptr_t)next->name == (uintptr_t)c_librarys(#name))
    CHECK_FOUND(malloc);
    CHECK_FOUND(calloc);
    CHECK_FOUND(realloc);
    CHECK_FOUND(free);
    CHECK_FOUND(memalign);
    CHECK_FOUND(posix_memalign);
    CHECK_FOUND(aligned_alloc);
    CHECK_FOUND(valloc);
    CHECK_FOUND(pvalloc);
    CHECK_FOUND(malloc_usable_size);
}

int main(void)
{
    RUN(test_the_bounds_of_all_blocks);
    RUN(test_a_full_heap);
    RUN(test_a_block_that_grows);
    RUN(test_which_requests_it_wants);
    RUN(test_early_blocks);
    RUN(test_early_blocks_end);
    RUN(test_a_function_that_is_missing);
    RUN(test_the_search);
    return 0;
}
