// SPDX-License-Identifier: Apache-2.0
/* Finding and setting the bytes that `verbena run` keeps for its programs (run_note.h). */
#include "port/run_note.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/descriptor.h"

struct note_file {
    int pid, fd;
    unsigned long inode;
};

static bool read_name(struct note_file *file)
{
    const char *name = getenv("VERBENA_RUN");
    return name && sscanf(name, "%d:%d:%lu", &file->pid, &file->fd, &file->inode) == 3;
}

static bool is_file(int fd, const struct note_file *file)
{
    struct stat stat;
    return fstat(fd, &stat) == 0 && stat.st_ino == file->inode && stat.st_size == VB_NOTES;
}

/* A descriptor of its own, which the caller closes; -1 for none. */
static int run_note_open_file(int pid, const struct note_file *file)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, file->fd);
    int fd = vb_memory_descriptor_raise(open(path, O_RDWR | O_CLOEXEC));
    if (is_file(fd, file))
        return fd;
    close(fd);
    return -1;
}

void vb_port_run_note_set(enum vb_run_note note)
{
    struct note_file file;
    int error = errno;
    int fd = -1;
    if (read_name(&file)) {
        fd = run_note_open_file(getpid(), &file);
        fd = fd < 0 ? run_note_open_file(file.pid, &file) : fd;
    }
    if (fd >= 0) {
        (void)!pwrite(fd, "1", 1, note);
        close(fd);
    }
    errno = error;
}

bool vb_port_run_note_is_first(void)
{
    struct note_file file;
    return read_name(&file) && file.pid == getpid() && is_file(file.fd, &file);
}

bool vb_port_run_note_is_set(enum vb_run_note note)
{
    struct note_file file;
    char byte;
    return vb_port_run_note_is_first() && read_name(&file) && pread(file.fd, &byte, 1, note) == 1 &&
           byte;
}
