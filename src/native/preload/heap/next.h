// SPDX-License-Identifier: Apache-2.0
/*
 * The allocator that the program would have without --shared-heap: the C library's, or one that it
 * links. malloc.c passes small requests on to it.
 */
#ifndef VB_PRELOAD_HEAP_NEXT_H
#define VB_PRELOAD_HEAP_NEXT_H

#include <stdbool.h>
#include <stddef.h>

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

/* Returns NULL while the first call still looks it up, since dlsym itself may allocate. */
const struct vb_next *vb_preload_next(void);

/* Memory for such calls of dlsym: zeroed and aligned. It is never freed. */
void *vb_preload_early_alloc(size_t size, size_t align);
bool vb_preload_early_contains(const void *at);
size_t vb_preload_early_usable(const void *at);

#endif
