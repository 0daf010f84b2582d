// SPDX-License-Identifier: Apache-2.0
#include "memory/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int vb_descriptor_raise(int fd)
{
    int raised, error;

    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    raised = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    error = errno;
    close(fd);
    errno = error;
    return raised;
}
