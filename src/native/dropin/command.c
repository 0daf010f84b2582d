// SPDX-License-Identifier: Apache-2.0
/*
 * The memory file behind a context's cmd_fd (command.h). device.c opens one for each context.
 */
#include "dropin/command.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "memory/descriptor.h"

#define MAGIC 0x56455242454e4143ull

/* The content of the file. */
struct command {
    uint64_t magic;
    uint64_t identity;
};

int vb_dropin_command_open(void)
{
    struct command command = {.magic = MAGIC};
    int fd = vb_memory_descriptor_raise(memfd_create("verbena-uverbs", MFD_CLOEXEC)), error;

    if (fd < 0)
        return -errno;
    errno = EIO;
    if (getrandom(&command.identity, sizeof(command.identity), 0) == sizeof(command.identity) &&
        pwrite(fd, &command, sizeof(command), 0) == sizeof(command))
        return fd;
    error = -errno;
    close(fd);
    return error;
}

uint64_t vb_dropin_command_identity(int fd)
{
    struct command command = {0};

    if (pread(fd, &command, sizeof(command), 0) != sizeof(command) || command.magic != MAGIC)
        return 0;
    return command.identity;
}
