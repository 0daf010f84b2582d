// SPDX-License-Identifier: Apache-2.0
/*
 * ibv_get_sysfs_path and ibv_read_sysfs_file. Programs and providers read sysfs through them.
 */
#include "dropin/sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/device.h"
#include "dropin/export.h"
#include "memory/descriptor.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char root[IBV_SYSFS_PATH_MAX] = "/sys";

static void find_root(void)
{
    const char *asked = secure_getenv("SYSFS_PATH"); /* not in a setuid program */
    size_t length = asked ? strlen(asked) : 0;

    while (length > 0 && asked[length - 1] == '/')
        --length;
    if (asked && length < sizeof(root)) {
        memcpy(root, asked, length);
        root[length] = '\0';
    }
}

VB_EXPORT const char *ibv_get_sysfs_path(void)
{
    pthread_once(&once, find_root);
    return root;
}

/* Reads the content without its last newline, and terminates it. Returns its length, or -1 and
 * errno. */
static int sysfs_read_text(int fd, char *text, size_t size)
{
    ssize_t length = read(fd, text, size);

    if (length <= 0)
        return (int)length;
    if (text[length - 1] == '\n')
        --length;
    if ((size_t)length == size) {
        errno = ENOSPC;
        return -1;
    }
    text[length] = '\0';
    return (int)length;
}

VB_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *text, size_t size)
{
    char path[PATH_MAX];
    int fd, length;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) >= sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = vb_memory_descriptor_raise(open(path, O_RDONLY | O_CLOEXEC));
    if (fd < 0)
        return -1;
    length = sysfs_read_text(fd, text, size);
    close(fd);
    return length;
}
