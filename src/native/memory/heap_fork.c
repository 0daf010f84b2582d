// SPDX-License-Identifier: Apache-2.0
/*
 * A shared mapping stays shared over fork(), where a program expects its child to have a copy: an
 * interpreter whose child changes a large table would find the change in the parent. So the file is
 * copied before the fork, and the child maps the copy at the same place.
 */
#include "heap_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/descriptor.h"

/* Bytes that the system can still give out without swapping; SIZE_MAX if it does not say. */
static size_t available_memory(void)
{
    char text[512] = "";
    int fd = vb_memory_descriptor_raise(open("/proc/meminfo", O_RDONLY | O_CLOEXEC));

    if (fd < 0)
        return SIZE_MAX;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    const char *line = got > 0 ? strstr(text, "MemAvailable:") : NULL;
    return line ? strtoull(line + sizeof "MemAvailable:" - 1, NULL, 10) * 1024 : SIZE_MAX;
}

static bool fits_twice(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && (size_t)status.st_blocks * 512 < available_memory();
}

static int copy_extent(int to, int from, off_t start, off_t end)
{
    if (lseek(to, start, SEEK_SET) < 0)
        return -errno;
    while (start < end) {
        ssize_t sent = sendfile(to, from, &start, (size_t)(end - start));
        if (sent < 0 && errno != EINTR)
            return -errno;
        if (sent == 0)
            return -EIO;
    }
    return 0;
}

/* What has been touched; the rest is holes in both files. */
static int copy_contents(int to, int from)
{
    for (off_t start = 0, end = 0;; start = end) {
        start = lseek(from, start, SEEK_DATA);
        if (start < 0)
            return errno == ENXIO ? 0 : -errno;
        end = lseek(from, start, SEEK_HOLE);
        if (end < 0)
            return -errno;
        int error = copy_extent(to, from, start, end);
        if (error)
            return error;
    }
}

static int copy_of_file(const struct vb_heap *heap)
{
    int from = vb_memory_heap_fd(heap);

    if (from < 0)
        return from;
    if (!fits_twice(from))
        return -ENOMEM;
    int to = vb_memory_heap_file(heap->size);
    if (to < 0)
        return to;
    int error = copy_contents(to, from);
    if (error) {
        close(to);
        return error;
    }
    return to;
}

int vb_memory_heap_fork_prepare(struct vb_heap *heap)
{
    if (!vb_memory_heap_is_own(heap))
        return 0;
    vb_memory_heap_trim(heap);
    int error = vb_lock_take_refusing(&heap->lock);
    if (error)
        return -error;
    heap->forking = true;
    heap->copy_fd = copy_of_file(heap);
    return heap->copy_fd < 0 ? heap->copy_fd : 0;
}

void vb_memory_heap_fork_parent(struct vb_heap *heap)
{
    if (!heap->forking)
        return;
    heap->forking = false;
    if (heap->copy_fd >= 0)
        close(heap->copy_fd);
    vb_lock_release(&heap->lock);
}

void vb_memory_heap_fork_child(struct vb_heap *heap)
{
    if (!heap->forking)
        return;
    heap->forking = false;
    vb_memory_heap_init_lock(heap);
    const int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    if (heap->copy_fd < 0 || mmap(heap->base, heap->size, vb_memory_heap_protection(), flags,
                                  heap->copy_fd, 0) == MAP_FAILED)
        return;
    madvise(heap->base, heap->size, MADV_DONTDUMP);
    close(heap->fd);
    heap->fd = heap->copy_fd;
    heap->inode = vb_memory_heap_inode(heap->fd);
    *heap->own = 1;
}
