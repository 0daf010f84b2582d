// SPDX-License-Identifier: Apache-2.0
/* The heap that a process's calls share, and the sizes that the environment gives. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "memory/number.h"
#include "memory/process_heap.h"

static void numbers_are_whole_and_decimal(void)
{
    static const struct {
        const char *text;
        bool is_number;
        uint64_t number;
    } cases[] = {
        {"0", true, 0},   {"9", true, 9},    {"10", true, 10},
        {"", false, 0},   {"4x", false, 0},  {"-1", false, 0},
        {"1 ", false, 0}, {"0x1", false, 0}, {"18446744073709551615", true, UINT64_MAX},
        {"/", false, 0},  {":", false, 0},   {"18446744073709551616", false, 0},
        {"K", false, 0},  {"1K", false, 0},  {"99999999999999999999999999", false, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
        uint64_t number = 77;

        CHECK_EQ(vb_memory_number_parse(cases[i].text, &number), cases[i].is_number);
        CHECK_EQ(number, cases[i].is_number ? cases[i].number : 77);
    }
}

static void sizes_may_have_a_unit(void)
{
    static const struct {
        const char *text;
        uint64_t size; /* 0: it is none */
    } cases[] = {
        {"7", 7},
        {"1K", 1 << 10},
        {"3k", 3 << 10},
        {"5M", 5 << 20},
        {"5m", 5 << 20},
        {"2G", 2ull << 30},
        {"2g", 2ull << 30},
        {"1T", 0},
        {"K", 0},
        {"1KB", 0},
        {"1 K", 0},
        {"17179869183G", 17179869183ull << 30},
        {"", 0},
        {"17179869184G", 0},
        {"1.5M", 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
        uint64_t size = 77;

        CHECK_EQ(vb_memory_number_parse_size(cases[i].text, &size), cases[i].size != 0);
        CHECK_EQ(size, cases[i].size ? cases[i].size : 77);
    }
}

static void numbers_of_records_are_hexadecimal(void)
{
    static const struct {
        const char *record;
        uint64_t least, most, number;
        size_t length; /* that was read; 0: the record is damaged */
    } cases[] = {
        {"0 9 ", 0, 0, 0, 2},
        {"1f ", 0, 0x1f, 0x1f, 3},
        {"a0 ", 0xa0, 0xa0, 0xa0, 3},
        {"ffffffffffffffff ", 1, UINT64_MAX, UINT64_MAX, 17},
        {"000000000000000b ", 1, UINT64_MAX, 11, 17},
        {"0000000000000000b ", 1, UINT64_MAX, 1, 0}, /* more digits than any number has */
        {"20 ", 3, 0x1f, 3, 0},
        {"2 ", 3, 0x1f, 3, 0},
        {"5", 3, 9, 3, 0},
        {"5,", 3, 9, 3, 0},
        {"", 3, 9, 3, 0},
        {" ", 0, 9, 0, 0},
        {"A ", 0, 99, 0, 0},
        {"g ", 0, 99, 0, 0},
        {"0x1 ", 0, 99, 0, 0},
        {"-1 ", 0, UINT64_MAX, 0, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
        struct vb_number_reader reader = {.at = cases[i].record};

        CHECK(vb_memory_number_take(&reader, cases[i].least, cases[i].most) == cases[i].number);
        CHECK_EQ(reader.damaged, cases[i].length == 0);
        CHECK_EQ(reader.at - cases[i].record, cases[i].length);
        CHECK_EQ(vb_memory_number_take(&reader, 77, 77), 77); /* it stays damaged, or is so now */
        CHECK(reader.damaged);
    }
}

/* What is written to stderr while the variable is read. */
static size_t read_variable(const char *value, char said[300])
{
    int ends[2], kept = dup(STDERR_FILENO);
    size_t size;
    ssize_t length;

    CHECK_EQ(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    CHECK_EQ(value ? setenv("VERBENA_TEST_SIZE", value, 1) : unsetenv("VERBENA_TEST_SIZE"), 0);
    size = vb_memory_number_size_of_variable("VERBENA_TEST_SIZE");
    dup2(kept, STDERR_FILENO);
    close(ends[1]);
    length = read(ends[0], said, 299);
    said[length < 0 ? 0 : length] = '\0';
    close(ends[0]);
    close(kept);
    return size;
}

static void a_variable_that_is_no_size_is_told(void)
{
    char said[300];

    CHECK_EQ(read_variable(NULL, said), 0);
    CHECK_EQ(said[0], 0);
    CHECK_EQ(read_variable("", said), 0);
    CHECK_EQ(said[0], 0);
    CHECK_EQ(read_variable("3M", said), 3 << 20);
    CHECK_EQ(said[0], 0);
    CHECK(read_variable("18446744073709551615", said) == SIZE_MAX);
    CHECK_EQ(said[0], 0);
    CHECK_EQ(read_variable("0", said), 0);
    CHECK(strstr(said, "VERBENA_TEST_SIZE=0 is not a size and ignored"));
    CHECK_EQ(read_variable("3 MB", said), 0);
    CHECK(strstr(said, "VERBENA_TEST_SIZE=3 MB is not a size and ignored"));
    CHECK_EQ(said[strlen(said) - 1], '\n');
}

static void there_is_one_heap_and_a_child_has_its_own(void)
{
    struct vb_heap *heap;
    uint8_t *block;
    int status;

    setenv("VERBENA_HEAP_SIZE", "64M", 1);
    CHECK(!vb_memory_process_heap_if_any());
    heap = vb_memory_process_heap();
    CHECK(heap != NULL);
    CHECK(vb_memory_process_heap_if_any() == heap);
    CHECK(vb_memory_process_heap() == heap);
    CHECK_EQ(vb_memory_heap_size(heap), 64 << 20);
    CHECK_EQ(vb_memory_process_heap_wanted(), 64 << 20);
    block = vb_memory_heap_alloc(heap, 5000, 1);
    block[4999] = 7;
    if (fork() == 0) {
        if (block[4999] != 7 || vb_memory_process_heap() != heap)
            _exit(1);
        block[4999] = 8;
        _exit(0);
    }
    CHECK(wait(&status) > 0);
    CHECK_EQ(status, 0);
    CHECK_EQ(block[4999], 7);
    CHECK_EQ(vb_memory_heap_free(heap, block), 0);
}

int main(void)
{
    RUN(numbers_are_whole_and_decimal);
    RUN(sizes_may_have_a_unit);
    RUN(numbers_of_records_are_hexadecimal);
    RUN(a_variable_that_is_no_size_is_told);
    RUN(there_is_one_heap_and_a_child_has_its_own);
    return 0;
}
