// SPDX-License-Identifier: Apache-2.0
/*
 * Each function of malloc's family in front of the C library's: which requests are the shared
 * heap's, and that all of them keep what the C library promises. It is linked to
 * libverbena_heap.so, and starts itself again for other smallest requests.
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { PAGE = 4096, LEAST = 64 * 1024, MIB = 1024 * 1024 };

int verbena_heap_has(const void *block);

static size_t least_shared = LEAST;
/* More than there is, and half of what a product may be; volatile, lest the compiler knows. */
static volatile size_t too_large = SIZE_MAX / 2, factor = (size_t)1 << 40;

/* As /proc/self/maps has it. */
static bool is_shared(const void *block)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    bool found = false;

    while (fgets(line, sizeof(line), maps)) {
        uintptr_t low, high;

        if (strstr(line, "memfd:verbena-heap") &&
            sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &low, &high) == 2)
            found |= (uintptr_t)block >= low && (uintptr_t)block < high;
    }
    fclose(maps);
    return found;
}

/* It is writable, aligned, as large as asked for, and of this heap; it is freed. */
static void check_block(void *block, size_t align, size_t size, bool shared)
{
    CHECK(block);
    CHECK_EQ((uintptr_t)block % align, 0);
    CHECK_EQ(is_shared(block), shared);
    CHECK_EQ(verbena_heap_has(block) != 0, shared);
    CHECK(malloc_usable_size(block) >= size);
    memset(block, 0xa5, size);
    errno = 5;
    free(block);
    CHECK_EQ(errno, 5);
}

static void test_which_requests_are_shared(void)
{
    const size_t sizes[] = {1, PAGE - 1, PAGE, least_shared - 1, least_shared, 3 * MIB};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
        const size_t size = sizes[i];
        const bool large = size >= least_shared;

        check_block(malloc(size), 16, size, large);
        check_block(calloc(1, size), 16, size, large);
        check_block(calloc(size, 1), 16, size, large);
        check_block(realloc(NULL, size), 16, size, large);
        check_block(reallocarray(NULL, size, 1), 16, size, large);
        check_block(valloc(size), PAGE, size, large || size >= PAGE);
        check_block(pvalloc(size), PAGE, size, large || size >= PAGE);
    }
}

static void *by_posix_memalign(size_t align, size_t size)
{
    void *block = NULL;

    errno = 77;
    CHECK_EQ(posix_memalign(&block, align, size), 0);
    CHECK_EQ(errno, 77);
    return block;
}

static void test_which_aligned_requests_are_shared(void)
{
    const size_t aligns[] = {16, 64, PAGE / 2, PAGE, 2 * PAGE, 2 * MIB};
    const size_t sizes[] = {1, PAGE - 1, PAGE, least_shared - 1, least_shared, 5 * PAGE};

    for (size_t a = 0; a < sizeof(aligns) / sizeof(*aligns); ++a)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
            const size_t align = aligns[a], size = sizes[i];
            const bool shared = size >= least_shared || (align >= PAGE && size >= PAGE);

            check_block(memalign(align, size), align, size, shared);
            check_block(aligned_alloc(align, size), align, size, shared);
            check_block(by_posix_memalign(align, size), align, size, shared);
        }
}

static void test_bad_requests(void)
{
    void *const before = &least_shared;
    void *block = before;

    for (size_t align = 0; align < 8; ++align) {
        errno = 77;
        CHECK_EQ(posix_memalign(&block, align, MIB), EINVAL);
        CHECK(errno == 77 && block == before);
    }
    CHECK_EQ(posix_memalign(&block, 24, MIB), EINVAL);
    CHECK_EQ(posix_memalign(&block, 64, too_large), ENOMEM);
    CHECK(block == before);
    errno = 0;
    CHECK(!malloc(too_large) && errno == ENOMEM);
    errno = 0;
    CHECK(!calloc(factor, factor) && errno == ENOMEM);
    errno = 0;
    CHECK(!calloc(1, too_large) && errno == ENOMEM);
    errno = 0;
    CHECK(!reallocarray(NULL, factor, factor) && errno == ENOMEM);
    errno = 0;
    CHECK(!memalign(64, too_large) && errno == ENOMEM);
    CHECK_EQ(malloc_usable_size(NULL), 0);
    free(NULL);
}

/* ---- contents ---- */

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 7 + i / 256 + 3);
}

static void fill(uint8_t *block, size_t size)
{
    for (size_t i = 0; i < size; ++i)
        block[i] = byte_at(i);
}

static void check_filled(const uint8_t *block, size_t size)
{
    for (size_t i = 0; i < size; ++i)
        CHECK_EQ(block[i], byte_at(i));
}

/* From each size to each other, with neighbours that may not change. */
static void test_realloc_keeps_what_fits(void)
{
    const size_t sizes[] = {24, 1000, PAGE, LEAST - 1, LEAST, LEAST + 1, 5 * LEAST, MIB, 40 * MIB};
    enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

    for (int from = 0; from < SIZES; ++from)
        for (int to = 0; to < SIZES; ++to) {
            const size_t less = sizes[from] < sizes[to] ? sizes[from] : sizes[to];
            uint8_t *block = malloc(sizes[from]), *neighbours[4];

            fill(block, sizes[from]);
            block = realloc(block, sizes[to]);
            CHECK(block && malloc_usable_size(block) >= sizes[to]);
            CHECK_EQ(is_shared(block), sizes[to] >= least_shared);
            check_filled(block, less);
            fill(block, sizes[to]);
            for (int i = 0; i < 4; ++i)
                CHECK((neighbours[i] = malloc(sizes[to])));
            for (int i = 0; i < 4; ++i)
                free(neighbours[i]);
            check_filled(block, sizes[to]);
            free(block);
        }
}

static void test_realloc_of_nothing(void)
{
    uint8_t *large = malloc(MIB), *same;

    CHECK(!realloc(large, 0)); /* frees it */
    same = malloc(MIB);
    CHECK(same == large);
    fill(same, MIB);
    CHECK(!realloc(same, too_large) && errno == ENOMEM); /* and stays */
    check_filled(same, MIB);
    CHECK_EQ(malloc_usable_size(same), MIB);
    errno = 9;
    same = realloc(same, MIB - PAGE); /* where it is */
    CHECK(same == large && errno == 9);
    CHECK_EQ(malloc_usable_size(same), MIB - PAGE);
    free(same);
}

static void test_calloc_is_zeroed(void)
{
    static const size_t sizes[] = {100, LEAST, MIB, 20 * MIB};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
        uint8_t *block = malloc(sizes[i]);

        memset(block, 0xff, sizes[i]);
        free(block);
        block = calloc(1, sizes[i]);
        for (size_t at = 0; at < sizes[i]; ++at)
            CHECK_EQ(block[at], 0);
        free(block);
    }
}

/* ---- pages ---- */

static void expect_after_advice(uint8_t *at, int advice, int byte)
{
    memset(at, 0xff, 4 * PAGE);
    CHECK_EQ(madvise(at + PAGE, 2 * PAGE, advice), 0);
    CHECK_EQ(at[PAGE - 1], 0xff);
    CHECK_EQ(at[PAGE], byte);
    CHECK_EQ(at[3 * PAGE - 1], byte);
    CHECK_EQ(at[3 * PAGE], 0xff);
}

static void test_madvise(void)
{
    uint8_t *shared = memalign(PAGE, MIB);
    uint8_t *own = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    expect_after_advice(shared, MADV_DONTNEED, 0);
    expect_after_advice(shared, MADV_FREE, 0);
    expect_after_advice(shared, MADV_REMOVE, 0);
    expect_after_advice(shared, MADV_WILLNEED, 0xff);
    expect_after_advice(own, MADV_DONTNEED, 0);
    expect_after_advice(own, MADV_WILLNEED, 0xff);
    CHECK_EQ(madvise(own, PAGE, MADV_FREE), 0);
    CHECK(madvise(own, PAGE, MADV_REMOVE) == -1 && errno == EINVAL);
    CHECK(madvise(own + 1, PAGE, MADV_WILLNEED) == -1 && errno == EINVAL);
    munmap(own, MIB);
    free(shared);
}

static long resident_kib(void)
{
    FILE *status = fopen("/proc/self/status", "re");
    char line[256];
    long kib = 0;

    while (fgets(line, sizeof(line), status))
        if (strncmp(line, "RssShmem:", 9) == 0)
            kib = atol(line + 9);
    fclose(status);
    return kib;
}

static void test_locking_all_memory(void)
{
    uint8_t *shared = malloc(MIB);

    memset(shared, 1, MIB);
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) {
        printf("memory cannot be locked: %s\n", strerror(errno));
        return;
    }
    CHECK(resident_kib() < 100 * 1024);
    CHECK_EQ(munlockall(), 0);
    CHECK(mlockall(0) == -1 && errno == EINVAL);
    free(shared);
}

/* ---- pointers that are none ---- */

static void free_inside(void)
{
    free((uint8_t *)malloc(MIB) + PAGE);
}

static void realloc_inside(void)
{
    CHECK(realloc((uint8_t *)malloc(MIB) + PAGE, 2 * MIB));
}

static void free_twice(void)
{
    void *volatile block = malloc(MIB);

    free(block);
    free(block);
}

static void expect_abort(void (*run)(void))
{
    char said[256] = "";
    int pipes[2], status;

    CHECK_EQ(pipe(pipes), 0);
    fflush(stdout);
    if (fork() == 0) {
        dup2(pipes[1], STDERR_FILENO);
        run();
        _exit(0);
    }
    close(pipes[1]);
    CHECK(read(pipes[0], said, sizeof(said) - 1) > 0);
    close(pipes[0]);
    CHECK(wait(&status) > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(strcmp(said, "verbena: free() or realloc() of a pointer into the shared heap that is not "
                       "the start of a block in use\n") == 0);
}

static void test_wrong_pointers_end_the_program(void)
{
    expect_abort(free_inside);
    expect_abort(realloc_inside);
    expect_abort(free_twice);
}

/* ---- other smallest requests ---- */

static const struct {
    const char *text;
    size_t least;
} settings[] = {
    {"1", PAGE},          {"4095", PAGE}, {"4096", PAGE},     {"4097", 4097},
    {"1000000", 1000000}, {"1M", MIB},    {"nothing", LEAST}, {"", LEAST},
};

static void test_the_smallest_request_can_be_set(const char *program)
{
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); ++i) {
        char least[32];
        int status;

        snprintf(least, sizeof(least), "%zu", settings[i].least);
        fflush(stdout);
        if (fork() == 0) {
            setenv("VERBENA_SHARED_HEAP_MIN", settings[i].text, 1);
            close(STDERR_FILENO); /* which hears of what is no size */
            execl("/proc/self/exe", program, least, NULL);
            _exit(1);
        }
        CHECK(wait(&status) > 0);
        if (status)
            fprintf(stderr, "VERBENA_SHARED_HEAP_MIN=%s\n", settings[i].text);
        CHECK_EQ(status, 0);
    }
}

int main(int argc, char **argv)
{
    mallopt(M_MMAP_THRESHOLD, 256 * MIB);
    if (argc == 2) {
        least_shared = strtoul(argv[1], NULL, 10);
        test_which_requests_are_shared();
        test_which_aligned_requests_are_shared();
        return 0;
    }
    unsetenv("VERBENA_SHARED_HEAP_MIN");
    RUN(test_which_requests_are_shared);
    RUN(test_which_aligned_requests_are_shared);
    RUN(test_bad_requests);
    RUN(test_realloc_keeps_what_fits);
    RUN(test_realloc_of_nothing);
    RUN(test_calloc_is_zeroed);
    RUN(test_madvise);
    RUN(test_locking_all_memory);
    RUN(test_wrong_pointers_end_the_program);
    test_the_smallest_request_can_be_set(argv[0]);
    return 0;
}
