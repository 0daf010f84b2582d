// SPDX-License-Identifier: Apache-2.0
/* Moving descriptors away from the standard streams' numbers (descriptor.h). */
#include "memory/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int vb_memory_descriptor_raise(int fd)
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

int vb_memory_descriptor_pipe(int ends[2])
{
    int error;

    if (pipe2(ends, O_CLOEXEC))
        return -errno;
    ends[0] = vb_memory_descriptor_raise(ends[0]);
    error = ends[0] == -1 ? -errno : 0;
    ends[1] = vb_memory_descriptor_raise(ends[1]);
    if (ends[1] == -1 && !error)
        error = -errno;
    if (error) { /* one of them is -1 */
        close(ends[0]);
        close(ends[1]);
    }
    return error;
}
