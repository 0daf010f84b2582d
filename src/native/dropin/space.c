// SPDX-License-Identifier: Apache-2.0
#include "dropin/space.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "host/host.h"
#include "memory/descriptor.h"
#include "memory/process_heap.h"

/* What an open device has besides: its threads' stacks, and what it allocates (24 MiB were
 * measured). */
enum { VB_SPACE_THREADS = 3, VB_SPACE_REST = 32 << 20 };

struct vb_space_use {
    uint64_t space, data; /* bytes, as RLIMIT_AS and RLIMIT_DATA count them */
};

/* What the process has now. */
static struct vb_space_use vb_dropin_space_now(void)
{
    int file = vb_memory_descriptor_raise(open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), size = 0, data = 0;
    char text[128];
    ssize_t length;

    if (file < 0)
        return (struct vb_space_use){0};
    length = read(file, text, sizeof(text) - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    if (sscanf(text, "%" SCNu64 " %*u %*u %*u %*u %" SCNu64, &size, &data) != 2)
        size = data = 0;
    return (struct vb_space_use){size * page, data * page};
}

/* What the device needs besides its heap, in a process that has as much now. */
static struct vb_space_use vb_dropin_space_without_heap(void)
{
    const struct vb_heap *heap = vb_memory_process_heap_if_any();
    uint64_t mapped = heap ? vb_memory_heap_size(heap) : 0;
    uint64_t noted = heap ? vb_memory_heap_private_bytes(mapped) : 0;
    struct vb_space_use use = vb_dropin_space_now();
    uint64_t stacks;
    pthread_attr_t attributes;
    size_t stack = 0;

    pthread_attr_init(&attributes);
    pthread_attr_getstacksize(&attributes, &stack);
    pthread_attr_destroy(&attributes);
    stacks = (uint64_t)stack * VB_SPACE_THREADS + VB_SPACE_REST;
    use.space = (use.space > mapped + noted ? use.space - mapped - noted : 0) + stacks;
    use.data = (use.data > noted ? use.data - noted : 0) +
               vb_memory_heap_private_bytes(VB_SEGMENT_SIZE) + stacks;
    return use;
}

/* `needed` and `least` in bytes: with the heap as it is, and with the smallest one. */
static void vb_dropin_space_say(const char *of, char option, uint64_t needed, uint64_t least,
                                struct vb_space_text *to)
{
    int used = snprintf(to->text, sizeof(to->text),
                        "no %s for its tables and threads: this program needs `ulimit -%c %" PRIu64
                        "` (KiB) or more",
                        of, option, needed >> 10);

    if (least < needed)
        snprintf(to->text + used, sizeof(to->text) - (size_t)used,
                 "; with VERBENA_HEAP_SIZE=16M `ulimit -%c %" PRIu64 "` is enough", option,
                 least >> 10);
}

static uint64_t vb_dropin_space_limit(int resource)
{
    struct rlimit limit;

    return getrlimit((__rlimit_resource_t)resource, &limit) ? RLIM_INFINITY : limit.rlim_cur;
}

bool vb_dropin_space_remedy(struct vb_space_text *to)
{
    struct vb_space_use use = vb_dropin_space_without_heap();
    uint64_t heap = vb_memory_process_heap_wanted();
    /* The heap takes half of a limited address space at most, and the tables a sixth. */
    uint64_t space = use.space * 3, least = (uint64_t)VB_SEGMENT_LEAST * VB_SEGMENT_PARTS;
    uint64_t data = use.data + vb_memory_heap_private_bytes(heap);

    if (space < least)
        space = least;
    if (vb_dropin_space_limit(RLIMIT_AS) < space)
        vb_dropin_space_say("address space", 'v', space, space, to);
    else if (vb_dropin_space_limit(RLIMIT_DATA) < data)
        vb_dropin_space_say("private memory", 'd', data,
                            use.data + vb_memory_heap_private_bytes(VB_HEAP_SMALLEST), to);
    else
        return false;
    return true;
}
