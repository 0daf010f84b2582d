// SPDX-License-Identifier: Apache-2.0
#ifndef VB_PRELOAD_HEAP_SHARED_H
#define VB_PRELOAD_HEAP_SHARED_H

#include <stdbool.h>
#include <stddef.h>

/* Of libibverbs.so.1; one that lacks the weak ones takes longer. */
void *verbena_heap_alloc(size_t size, size_t align);
void verbena_heap_free(void *block);
size_t verbena_heap_size(const void *block);
__attribute__((weak)) void *verbena_heap_alloc_unzeroed(size_t size, size_t align);
__attribute__((weak)) int verbena_heap_resize(void *block, size_t size);

enum { VB_SHARED_PAGE = 4096 };

/* Whether a request is for the shared heap: large, or, as RDMA programs allocate their buffers, a
 * page or more, aligned to a page. */
bool vb_preload_shared_wants(size_t size);
bool vb_preload_shared_wants_aligned(size_t align, size_t size);
/* NULL if the heap cannot: then the program's own allocator has to. */
void *vb_preload_shared_alloc(size_t size, size_t align);
void *vb_preload_shared_alloc_zeroed(size_t size);
/* False if the block would have to move. */
bool vb_preload_shared_resize(void *block, size_t size);
/* By address alone: between the lowest and the highest byte that the heap ever gave out. */
bool vb_preload_shared_contains(const void *at);

#endif
