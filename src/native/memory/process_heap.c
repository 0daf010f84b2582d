// SPDX-License-Identifier: Apache-2.0
/* The one heap of the process, made at the first call (process_heap.h). */
#include "process_heap.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "memory/number.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct vb_heap *process_heap;
static int creation_error;
static size_t wanted;

static void process_heap_before_fork(void)
{
    char line[256]; /* without dprintf, which may allocate: there is no memory */
    int length;

    if (vb_memory_heap_fork_prepare(process_heap) != -ENOMEM)
        return;
    length = snprintf(line, sizeof(line),
                      "verbena: %.15s[%d]: not enough memory to copy the shared heap for a forked "
                      "child: the child shares it with its parent (use posix_spawn or vfork, or "
                      "free memory first)\n",
                      program_invocation_short_name, (int)getpid());
    (void)!write(STDERR_FILENO, line, (size_t)length); /* where nobody listens, nothing helps */
}

static void process_heap_after_fork_in_parent(void)
{
    vb_memory_heap_fork_parent(process_heap);
}

static void process_heap_after_fork_in_child(void)
{
    vb_memory_heap_fork_child(process_heap);
}

static void create(void)
{
    size_t asked = vb_memory_number_size_of_variable("VERBENA_HEAP_SIZE"); /* 0: nothing */
    struct vb_heap *heap = NULL;

    wanted = vb_memory_heap_wanted(asked);
    creation_error = -vb_memory_heap_create(asked, &heap);
    if (creation_error)
        return;
    __atomic_store_n(&process_heap, heap, __ATOMIC_RELEASE);
    pthread_atfork(process_heap_before_fork, process_heap_after_fork_in_parent,
                   process_heap_after_fork_in_child);
}

struct vb_heap *vb_memory_process_heap(void)
{
    pthread_once(&once, create);
    if (!process_heap)
        errno = creation_error;
    return process_heap;
}

struct vb_heap *vb_memory_process_heap_if_any(void)
{
    return __atomic_load_n(&process_heap, __ATOMIC_ACQUIRE);
}

size_t vb_memory_process_heap_wanted(void)
{
    vb_memory_process_heap();
    return wanted;
}
