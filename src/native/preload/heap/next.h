// SPDX-License-Identifier: Apache-2.0
#ifndef VB_PRELOAD_HEAP_NEXT_H
#define VB_PRELOAD_HEAP_NEXT_H

#include <stdbool.h>
#include <stddef.h>

/* The allocator that the program would have without us: libc's, or one that it links. */
struct vb_next {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void (*free)(void *);
    void *(*memalign)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    size_t (*malloc_usable_size)(void *);
};

/* NULL while the first call is still looking it up: dlsym itself may allocate. */
const struct vb_next *vb_preload_next(void);

/* Memory for that while: zeroed, aligned, never given back. */
void *vb_preload_early_alloc(size_t size, size_t align);
bool vb_preload_early_contains(const void *at);
size_t vb_preload_early_usable(const void *at);

#endif
