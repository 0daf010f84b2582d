// SPDX-License-Identifier: Apache-2.0
/*
 * Reads and writes the pages of a capture file (capture_file.h). capture.c calls it, once for each
 * packet. After each call the file is whole, also if the process is killed within it.
 */
#include "wrap/capture_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "memory/descriptor.h"
#include "port/gid.h"

enum { OPEN_PATIENCE = 2000, RETRY_NS = 50000 };

void vb_wrap_capture_file_begin(uint8_t page[VB_CAPTURE_PAGE], enum vb_pcapng_link link)
{
    size_t used = vb_wrap_pcapng_section(page, "Verbena");

    used += vb_wrap_pcapng_interface(page + used, link, VB_DEVICE_NAME "0");
    vb_wrap_pcapng_filler(page + used, VB_CAPTURE_PAGE - used, 0);
}

/* ---- the lock ---- */

static int set_lock(int fd, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};

    return fcntl(fd, F_OFD_SETLK, &lock) ? -errno : 0;
}

/* The lock is waited for with a bound, as a stopped process may hold it for ever. */
static int take_lock(int fd, unsigned patience)
{
    const struct timespec pause = {.tv_nsec = RETRY_NS};
    int error;

    for (uint64_t waited = 0; (error = set_lock(fd, F_WRLCK)); waited += RETRY_NS) {
        if (error != -EAGAIN && error != -EACCES)
            return error;
        if (waited >= patience * UINT64_C(1000000))
            return -ETIMEDOUT;
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* ---- pages ---- */

static int write_at(int fd, const void *bytes, size_t size, off_t at)
{
    ssize_t written = pwrite(fd, bytes, size, at);

    if (written == (ssize_t)size)
        return 0;
    return written < 0 ? -errno : -ENOSPC;
}

/* A write beyond the process's limit would end it (SIGXFSZ). */
static bool is_allowed(off_t end, size_t size)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
           (rlim_t)end + size <= limit.rlim_cur;
}

/* A block that could be written only in part is cut off again. */
static int capture_file_append(int fd, const uint8_t *pages, size_t size, off_t end)
{
    int error = !is_allowed(end, size) ? -EFBIG : write_at(fd, pages, size, end);

    if (error && ftruncate(fd, end))
        return -errno;
    return error;
}

static int read_at(int fd, void *to, size_t size, off_t at)
{
    ssize_t length = pread(fd, to, size, at);

    if (length == (ssize_t)size)
        return 0;
    return length < 0 ? -errno : -EBADMSG;
}

/*
 * Returns the length of the filler at the file's end, and reads the last page; -EBADMSG: no filler
 * is there. A filler is longer than a page behind a block that leaves a few bytes of its first
 * page.
 */
static int read_filler(int fd, off_t end, uint8_t page[VB_CAPTURE_PAGE])
{
    uint32_t length, first[2];
    int error = read_at(fd, page, VB_CAPTURE_PAGE, end - VB_CAPTURE_PAGE);

    if (error)
        return error;
    memcpy(&length, page + VB_CAPTURE_PAGE - sizeof(length), sizeof(length));
    if (length < VB_PCAPNG_FILLER_LEAST || length > VB_CAPTURE_PAIR || (off_t)length > end ||
        length % 4)
        return -EBADMSG;
    error = read_at(fd, first, sizeof(first), end - (off_t)length);
    if (!error && (first[0] != VB_PCAPNG_FILLER || first[1] != length))
        error = -EBADMSG;
    return error ? error : (int)length;
}

/* Is it the first page of two, whose writer was killed before the second? */
static bool is_half(const uint8_t page[VB_CAPTURE_PAGE])
{
    uint32_t first[2];

    memcpy(first, page, sizeof(first));
    return first[0] == VB_PCAPNG_PACKET && first[1] > VB_CAPTURE_PAGE - VB_PCAPNG_FILLER_LEAST &&
           first[1] <= VB_CAPTURE_BLOCK;
}

/* Finds the filler at the file's end; the first half of a pair without its second is cut off. */
static int find_filler(int fd, off_t *end, uint8_t page[VB_CAPTURE_PAGE])
{
    int filler;

    *end = lseek(fd, 0, SEEK_END);
    if (*end < VB_CAPTURE_PAGE || *end % VB_CAPTURE_PAGE)
        return *end < 0 ? -errno : -EBADMSG;
    filler = read_filler(fd, *end, page);
    if (filler != -EBADMSG || *end == VB_CAPTURE_PAGE || !is_half(page))
        return filler;
    *end -= VB_CAPTURE_PAGE;
    return ftruncate(fd, *end) ? -errno : read_filler(fd, *end, page);
}

static bool capture_file_begins_as(const uint8_t page[VB_CAPTURE_PAGE], enum vb_pcapng_link link)
{
    uint8_t begin[VB_CAPTURE_PAGE];
    uint32_t filler;

    vb_wrap_capture_file_begin(begin, link);
    memcpy(&filler, begin + VB_CAPTURE_PAGE - sizeof(filler), sizeof(filler));
    return memcmp(page, begin, VB_CAPTURE_PAGE - filler) == 0;
}

static bool capture_file_is_ours(const uint8_t page[VB_CAPTURE_PAGE])
{
    return capture_file_begins_as(page, VB_PCAPNG_ETHERNET) ||
           capture_file_begins_as(page, VB_PCAPNG_ERF);
}

/* ---- opening ---- */

static int capture_file_begin(int fd)
{
    uint8_t page[VB_CAPTURE_PAGE];
    off_t end = lseek(fd, 0, SEEK_END);
    int error;

    if (end < 0)
        return -errno;
    if (end == 0) {
        vb_wrap_capture_file_begin(page, VB_PCAPNG_ETHERNET);
        return capture_file_append(fd, page, sizeof(page), 0);
    }
    error = read_at(fd, page, sizeof(page), 0);
    if (error)
        return error;
    if (!capture_file_is_ours(page))
        return -EBADMSG;
    error = find_filler(fd, &end, page);
    return error < 0 ? error : 0;
}

static int prepare(int fd)
{
    struct stat status;
    int error;

    if (fstat(fd, &status))
        return -errno;
    if (!S_ISREG(status.st_mode))
        return -EINVAL;
    error = take_lock(fd, OPEN_PATIENCE);
    if (error)
        return error;
    error = capture_file_begin(fd);
    set_lock(fd, F_UNLCK);
    return error;
}

int vb_wrap_capture_file_open(const char *path)
{
    /* O_NONBLOCK, so that a FIFO without a reader does not stop the program */
    int fd = vb_memory_descriptor_raise(
        open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666));
    int error;

    if (fd < 0)
        return -errno;
    error = prepare(fd);
    if (error)
        close(fd);
    return error ? error : fd;
}

static int empty(int fd, enum vb_pcapng_link link)
{
    uint8_t page[VB_CAPTURE_PAGE];

    vb_wrap_capture_file_begin(page, link);
    return ftruncate(fd, 0) ? -errno : capture_file_append(fd, page, sizeof(page), 0);
}

int vb_wrap_capture_file_renew(const char *path, enum vb_pcapng_link link)
{
    int fd = vb_wrap_capture_file_open(path);
    int error = fd < 0 ? fd : take_lock(fd, OPEN_PATIENCE);

    if (!error)
        error = empty(fd, link);
    if (fd >= 0)
        close(fd);
    return error;
}

/* ---- adding ---- */

/* Adds a block in pages of its own; `number` is the packet's in the file. */
static int add_alone(int fd, const void *block, size_t size, off_t end, uint32_t number)
{
    uint8_t pages[VB_CAPTURE_PAIR];
    size_t room =
        size > VB_CAPTURE_PAGE - VB_PCAPNG_FILLER_LEAST ? VB_CAPTURE_PAIR : VB_CAPTURE_PAGE;
    int error;

    if (room == VB_CAPTURE_PAIR && end % VB_CAPTURE_PAIR) {
        vb_wrap_pcapng_filler(pages, VB_CAPTURE_PAGE, number - 1);
        error = capture_file_append(fd, pages, VB_CAPTURE_PAGE, end);
        if (error)
            return error;
        end += VB_CAPTURE_PAGE;
    }
    memcpy(pages, block, size);
    vb_wrap_pcapng_filler(pages + size, room - size, number);
    return capture_file_append(fd, pages, room, end);
}

static int capture_file_add(int fd, const void *block, size_t size, uint32_t *number)
{
    uint8_t page[VB_CAPTURE_PAGE];
    off_t end;
    int found = find_filler(fd, &end, page);
    size_t filler = found > 0 && found <= VB_CAPTURE_PAGE ? (size_t)found : 0;

    if (found < 0)
        return found;
    *number = vb_wrap_pcapng_filled(page + sizeof(page)) + 1;
    if (size + VB_PCAPNG_FILLER_LEAST > filler)
        return add_alone(fd, block, size, end, *number);
    memcpy(page, block, size);
    vb_wrap_pcapng_filler(page + size, filler - size, *number);
    return write_at(fd, page, filler, end - (off_t)filler);
}

int vb_wrap_capture_file_add(int fd, const void *block, size_t size, unsigned patience,
                             uint32_t *number)
{
    int error = size > VB_CAPTURE_BLOCK ? -EMSGSIZE : take_lock(fd, patience);

    if (error)
        return error;
    error = capture_file_add(fd, block, size, number);
    set_lock(fd, F_UNLCK);
    return error;
}
