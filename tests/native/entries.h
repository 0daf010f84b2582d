// SPDX-License-Identifier: Apache-2.0
/*
 * Counts the entries of a folder, such as a process's descriptors and threads in /proc. Tests that
 * nothing is left behind include this.
 */
#ifndef VB_TESTS_ENTRIES_H
#define VB_TESTS_ENTRIES_H

#include <dirent.h>
#include <stdbool.h>
#include <unistd.h>

#include "check.h"

#define DESCRIPTORS "/proc/self/fd"

static inline int entries(const char *folder)
{
    DIR *list = opendir(folder);
    int count = 0;

    CHECK(list != NULL);
    while (readdir(list))
        ++count;
    closedir(list);
    return count;
}

/* Are there so many, when a thread has got round to what it has to close? */
static inline bool has_entries_soon(const char *folder, int count)
{
    for (int i = 0; i < 500 && entries(folder) != count; ++i)
        usleep(10000);
    return entries(folder) == count;
}

#endif
