// SPDX-License-Identifier: Apache-2.0
#ifndef VB_MEMORY_HEAP_STATE_H
#define VB_MEMORY_HEAP_STATE_H

#include "buddy.h"
#include "heap.h"
#include "kept.h"

#include <pthread.h>
#include <sys/types.h>

#include "lock/mutex.h"

/* Private to heap.c and heap_fork.c. It lies at the start of a private mapping, before its tables:
 * under a preloaded malloc the heap itself must not need malloc. */
struct vb_heap {
    unsigned char *base;
    size_t size;
    int fd;
    ino_t inode; /* of fd, to notice a descriptor that was closed and used again */
    struct vb_buddy buddy;
    uint32_t *pages; /* of the block that begins at a page; 0: none begins there */
    struct vb_kept kept;
    size_t used;                 /* pages */
    size_t largest;              /* pages; what memory and swap could ever hold */
    volatile unsigned char *own; /* 1; the kernel zeroes it in a forked child (MADV_WIPEONFORK) */
    size_t mapped;               /* bytes of this private mapping */
    struct vb_mutex lock;        /* error-checking: a thread that holds it is refused, not hung */
    bool forking;                /* the lock is held over a fork */
    int copy_fd;                 /* the child's file meanwhile, or negative errno */
};

/* A sealed memory file, or negative errno. */
int vb_memory_heap_file(size_t size);
void vb_memory_heap_init_lock(struct vb_heap *heap);
ino_t vb_memory_heap_inode(int fd);

#endif
