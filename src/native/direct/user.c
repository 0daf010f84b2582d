// SPDX-License-Identifier: Apache-2.0
/* Whose process is at the other end of a socket (user.h), by SO_PEERCRED. */
#include "direct/user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/descriptor.h"

static bool read_number(const char *path, const char *format, unsigned *number)
{
    int fd = vb_memory_descriptor_raise(open(path, O_RDONLY | O_CLOEXEC));
    char text[64];
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        close(fd);
    text[length < 0 ? 0 : length] = '\0';
    return sscanf(text, format, number) == 1;
}

static bool same_namespace(pid_t pid)
{
    struct stat mine, theirs;
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    return pid > 0 && stat("/proc/self/ns/user", &mine) == 0 && stat(path, &theirs) == 0 &&
           mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino;
}

/*
 * Every user without a number in this process's user namespace appears under one number here
 * (overflowuid), and a user of this namespace may have that number too (user_namespaces(7)).
 */
static bool may_stand_for_others(uid_t uid, pid_t pid)
{
    unsigned overflow = 65534, users = 0;

    read_number("/proc/sys/kernel/overflowuid", "%u", &overflow);
    if (uid != overflow)
        return false;
    read_number("/proc/self/uid_map", " 0 0 %u", &users);
    return users != UINT32_MAX && !same_namespace(pid);
}

bool vb_direct_same_user(int socket, pid_t *pid)
{
    struct ucred credentials;
    socklen_t size = sizeof(credentials);

    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size))
        return false;
    *pid = credentials.pid;
    return credentials.uid == geteuid() && !may_stand_for_others(credentials.uid, credentials.pid);
}

int vb_direct_check_user(int socket)
{
    pid_t pid;

    return vb_direct_same_user(socket, &pid) ? 0 : -EACCES;
}
