// SPDX-License-Identifier: Apache-2.0
/* For the tests of libverbena_paths.so, which may leave no descriptor open that nobody closes. */
#ifndef VB_TESTS_PRELOAD_DESCRIPTORS_H
#define VB_TESTS_PRELOAD_DESCRIPTORS_H

#include <fcntl.h>

/* How many descriptors below 256 are open. */
static inline int descriptors_open(void)
{
    int count = 0;

    for (int fd = 0; fd < 256; ++fd)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

#endif
