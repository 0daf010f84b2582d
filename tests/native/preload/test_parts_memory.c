// SPDX-License-Identifier: Apache-2.0
/*
 * Copies from and to memory of the program: whole ones, and EFAULT where a page that they touch
 * cannot be read, or written.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "preload/paths/manager/program_memory.h"

enum { LONGEST = 512 };

static size_t page;
static uint8_t *pages; /* readable and writable, then only readable, then neither */

static void begin(void)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    pages = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    for (size_t i = 0; i < 3 * page; i++)
        pages[i] = (uint8_t)(i * 7);
    CHECK_EQ(mprotect(pages + page, page, PROT_READ), 0);
    CHECK_EQ(mprotect(pages + 2 * page, page, PROT_NONE), 0);
}

static void test_what_is_readable_is_copied(void)
{
    uint8_t copy[LONGEST + 1];
    for (size_t size = 0; size <= LONGEST; size++)
        for (int at_end = 0; at_end < 2; at_end++) {
            const uint8_t *from = at_end ? pages + 2 * page - size : pages + page - size / 2;
            memset(copy, 0xEE, sizeof copy);
            CHECK_EQ(vb_preload_program_read(copy, from, size), 0);
            CHECK(memcmp(copy, from, size) == 0);
            CHECK_EQ(copy[size], 0xEE);
        }
}

static void test_a_page_that_cannot_be_read(void)
{
    uint8_t copy[LONGEST];
    for (size_t size = 1; size <= LONGEST; size++) {
        CHECK_EQ(vb_preload_program_read(copy, pages + 2 * page - size + 1, size), EFAULT);
        CHECK_EQ(vb_preload_program_read(copy, pages + 2 * page, size), EFAULT);
    }
    CHECK_EQ(vb_preload_program_read(copy, NULL, 8), EFAULT);
    CHECK_EQ(vb_preload_program_read(copy, (void *)UINTPTR_MAX, 8), EFAULT);
}

static void test_what_is_writable_is_written(void)
{
    uint8_t data[LONGEST];
    memset(data, 0x5A, sizeof data);
    for (size_t size = 0; size <= LONGEST; size++) {
        uint8_t *to = pages + page - size;
        const uint8_t before = to[-1];
        data[0] = (uint8_t)size;
        CHECK_EQ(vb_preload_program_write(to, data, size), 0);
        CHECK(memcmp(to, data, size) == 0);
        CHECK_EQ(to[-1], before);
    }
}

static void test_a_page_that_cannot_be_written(void)
{
    const uint8_t data[LONGEST] = {0};
    const uint8_t kept = pages[page];
    for (size_t size = 1; size <= LONGEST; size++) {
        CHECK_EQ(vb_preload_program_write(pages + page - size + 1, data, size), EFAULT);
        CHECK_EQ(vb_preload_program_write(pages + page, data, size), EFAULT);
    }
    CHECK_EQ(pages[page], kept);
    CHECK_EQ(vb_preload_program_write(NULL, data, 4), EFAULT);
    CHECK_EQ(vb_preload_program_write((void *)UINTPTR_MAX, data, 4), EFAULT);
}

int main(void)
{
    begin();
    RUN(test_what_is_readable_is_copied);
    RUN(test_a_page_that_cannot_be_read);
    RUN(test_what_is_writable_is_written);
    RUN(test_a_page_that_cannot_be_written);
    return 0;
}
