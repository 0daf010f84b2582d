// SPDX-License-Identifier: Apache-2.0
#ifndef VB_MEMORY_PROCESS_HEAP_H
#define VB_MEMORY_PROCESS_HEAP_H

#include "heap.h"

/*
 * The heap that verbena_heap_alloc(), ibv_alloc_buf() and the adapter share. There is one per
 * process, because those calls name none. It is made at the first call, with VERBENA_HEAP_SIZE
 * bytes if that is set, and a forked child has a copy. NULL and errno: it cannot be made.
 */
struct vb_heap *vb_memory_process_heap(void);
/* The same, but NULL if it was not needed yet. */
struct vb_heap *vb_memory_process_heap_if_any(void);
/* The size that it has where no limit makes it smaller. */
size_t vb_memory_process_heap_wanted(void);

#endif
