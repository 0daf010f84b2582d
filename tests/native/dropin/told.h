// SPDX-License-Identifier: Apache-2.0
/*
 * What the library writes to stderr, for tests that compare it: told_listen() comes before the
 * first call of a verb. What this program itself complains of is shown where stderr was, at its
 * end.
 */
#ifndef VB_TESTS_DROPIN_TOLD_H
#define VB_TESTS_DROPIN_TOLD_H

#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

static struct {
    int file;
    int stderr_copy;
    char text[1 << 16];
} told;

/* All that was written since told_heard(). */
static inline const char *told_so_far(void)
{
    ssize_t got = pread(told.file, told.text, sizeof(told.text) - 1, 0);

    CHECK(got >= 0);
    told.text[got] = '\0';
    return told.text;
}

/* All that was written since the last call. */
static inline const char *told_heard(void)
{
    const char *text = told_so_far();

    CHECK_EQ(ftruncate(told.file, 0), 0);
    CHECK_EQ(lseek(told.file, 0, SEEK_SET), 0);
    return text;
}

static inline void told_show_the_rest(void)
{
    dprintf(told.stderr_copy, "%s", told_heard());
}

static inline void told_listen(void)
{
    told.stderr_copy = dup(STDERR_FILENO);
    told.file = memfd_create("told", MFD_CLOEXEC);
    CHECK(told.file >= 0 && dup2(told.file, STDERR_FILENO) >= 0);
    CHECK_EQ(atexit(told_show_the_rest), 0);
}

#endif
