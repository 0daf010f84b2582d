// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks of the process's shared heap, which libibverbs.so.1 has. malloc.c asks here whether a
 * request or a block is the shared heap's.
 */
#ifndef VB_PRELOAD_HEAP_SHARED_H
#define VB_PRELOAD_HEAP_SHARED_H

#include <stdbool.h>
#include <stddef.h>

/* Exported by libibverbs.so.1. Without the weak ones, which an older one lacks, allocation is
 * slower. */
void *verbena_heap_alloc(size_t size, size_t align);
void verbena_heap_free(void *block);
size_t verbena_heap_size(const void *block);
__attribute__((weak)) void *verbena_heap_alloc_unzeroed(size_t size, size_t align);
__attribute__((weak)) int verbena_heap_resize(void *block, size_t size);

enum { VB_SHARED_PAGE = 4096 };

/* Is a request for the shared heap? It is if it is large, or if it is a page or more and aligned to
 * a page, as RDMA programs allocate their buffers. */
bool vb_preload_shared_wants(size_t size);
bool vb_preload_shared_wants_aligned(size_t align, size_t size);
/* Return NULL if the heap has no room; the program's own allocator is to be asked then. */
void *vb_preload_shared_alloc(size_t size, size_t align);
void *vb_preload_shared_alloc_zeroed(size_t size);
/* Returns false if the block would have to move. */
bool vb_preload_shared_resize(void *block, size_t size);
/* Is the address between the lowest and the highest byte that the heap ever gave out? */
bool vb_preload_shared_contains(const void *at);

#endif
