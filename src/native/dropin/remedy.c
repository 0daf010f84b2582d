// SPDX-License-Identifier: Apache-2.0
/*
 * What a user can do when a device cannot be opened. device.c logs it, and verbena_why says it.
 * Both ask after the failure, when what the device had is gone but for the process's heap.
 */
#include "dropin/remedy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "host/host.h"
#include "memory/descriptor.h"
#include "memory/process_heap.h"

/* ---- limits on the process's memory: `ulimit -v`, `ulimit -d` ---- */

/* Besides its segment and heap an open device has the stacks of its threads, and what it allocates:
 * 24 MiB were measured. */
enum { THREADS = 3, REST_BYTES = 32 << 20 };

struct space {
    uint64_t space, data; /* bytes, as RLIMIT_AS and RLIMIT_DATA count them */
};

/* What the process has now. */
static struct space remedy_space_now(void)
{
    int file = vb_memory_descriptor_raise(open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), size = 0, data = 0;
    char text[128];
    ssize_t length;

    if (file < 0)
        return (struct space){0};
    length = read(file, text, sizeof(text) - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    if (sscanf(text, "%" SCNu64 " %*u %*u %*u %*u %" SCNu64, &size, &data) != 2)
        size = data = 0;
    return (struct space){size * page, data * page};
}

/* What the device needs besides its heap, in a process that has as much now. */
static struct space space_without_heap(void)
{
    const struct vb_heap *heap = vb_memory_process_heap_if_any();
    uint64_t mapped = heap ? vb_memory_heap_size(heap) : 0;
    uint64_t noted = heap ? vb_memory_heap_private_bytes(mapped) : 0;
    struct space use = remedy_space_now();
    uint64_t stacks;
    pthread_attr_t attributes;
    size_t stack = 0;

    pthread_attr_init(&attributes);
    pthread_attr_getstacksize(&attributes, &stack);
    pthread_attr_destroy(&attributes);
    stacks = (uint64_t)stack * THREADS + REST_BYTES;
    use.space = (use.space > mapped + noted ? use.space - mapped - noted : 0) + stacks;
    use.data = (use.data > noted ? use.data - noted : 0) +
               vb_memory_heap_private_bytes(VB_SEGMENT_SIZE) + stacks;
    return use;
}

/* `needed` and `least` in bytes: with the heap as it is, and with the smallest one. */
static void say_space(const char *of, char option, uint64_t needed, uint64_t least, char *text,
                      size_t size)
{
    int used = snprintf(text, size,
                        "no %s for its tables and threads: this program needs `ulimit -%c %" PRIu64
                        "` (KiB) or more",
                        of, option, needed >> 10);

    if (least < needed)
        snprintf(text + used, size - (size_t)used,
                 "; with VERBENA_HEAP_SIZE=16M `ulimit -%c %" PRIu64 "` is enough", option,
                 least >> 10);
}

static uint64_t space_limit(int resource)
{
    struct rlimit limit;

    return getrlimit((__rlimit_resource_t)resource, &limit) ? RLIM_INFINITY : limit.rlim_cur;
}

static bool remedy_for_space(char *text, size_t size)
{
    struct space use = space_without_heap();
    uint64_t heap = vb_memory_process_heap_wanted();
    /* The heap takes half of a limited address space at most, and the tables a sixth. */
    uint64_t space = use.space * 3, least = (uint64_t)VB_SEGMENT_LEAST * VB_SEGMENT_PARTS;
    uint64_t data = use.data + vb_memory_heap_private_bytes(heap);

    if (space < least)
        space = least;
    if (space_limit(RLIMIT_AS) < space)
        say_space("address space", 'v', space, space, text, size);
    else if (space_limit(RLIMIT_DATA) < data)
        say_space("private memory", 'd', data,
                  use.data + vb_memory_heap_private_bytes(VB_HEAP_SMALLEST), text, size);
    else
        return false;
    return true;
}

/* ---- other causes ---- */

static bool files_are_limited(void)
{
    struct rlimit file;

    return getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur != RLIM_INFINITY;
}

static void *remedy_nothing(void *argument)
{
    return argument;
}

static bool threads_are_forbidden(void)
{
    pthread_t tried;
    int error = pthread_create(&tried, NULL, remedy_nothing, NULL);

    if (!error)
        pthread_join(tried, NULL);
    return error == EPERM;
}

static const char *usual_remedy(int error)
{
    if ((error == -ENOMEM || error == -EFBIG) && files_are_limited())
        return "its tables need a file of 64 MiB: raise `ulimit -f`, or lift it";
    switch (error) {
    case -EAGAIN:
        return "its threads cannot be started: this user's processes and threads are at their "
               "limit. Raise `ulimit -u`, or that of the container (docker run --pids-limit)";
    case -EADDRINUSE:
        return VB_ROCE_PORT_IS_TAKEN
            ". Without VERBENA_CARRIER=roce the processes of this host are "
            "reached all the same, but for another user's: run both as "
            "one user, or each in a network namespace of its own";
    case -EMFILE:
        return "this process has too many open files: raise `ulimit -n`";
    case -ENFILE:
        return "the system has too many open files: raise fs.file-max";
    case -ENOMEM:
        return "no memory for its tables: free some, or set VERBENA_HEAP_SIZE=64M, with which they "
               "are smaller";
    case -EUSERS:
        return "every place on this host is taken by another process that has it open";
    case -ENOSYS:
    case -EPERM:
        if (threads_are_forbidden())
            return "a thread cannot be started: clone3 is forbidden. The container's seccomp "
                   "filter has to allow it, or to answer ENOSYS, as Docker's does since 20.10.10";
        return "the system forbids a call that it needs (memfd_create, socket, epoll, getrandom): "
               "look at the container's seccomp filter; `verbena doctor` says which";
    default:
        return strerror(-error);
    }
}

void vb_dropin_open_remedy(int error, char *text, size_t size)
{
    bool may_be_space = (error == -ENOMEM || error == -EAGAIN) && !files_are_limited();

    if (!may_be_space || !remedy_for_space(text, size))
        snprintf(text, size, "%s", usual_remedy(error));
}
