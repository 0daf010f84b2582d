// SPDX-License-Identifier: Apache-2.0
#ifndef VB_MEMORY_HEAP_H
#define VB_MEMORY_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Blocks of pages in one sparse shared memory file, which peer processes map. A block uses memory
 * when its pages are touched, and only then. What is allocated where is known to this process
 * alone, so that a peer can spoil bytes but not the heap. All calls are thread-safe.
 *
 * vb_memory_heap_alloc promises address space, as malloc does under Linux's overcommit. A page that
 * the system has no memory for when it is first touched ends the process, as for any memory: by the
 * OOM killer, or where vm.overcommit_memory is 2 by SIGBUS.
 */
struct vb_heap;

enum { VB_HEAP_PAGE = 4096, VB_HEAP_ALIGN_MAX = 2 << 20 };

/*
 * Does the program run below valgrind? What is mapped costs memory there: helgrind and memcheck
 * keep their own notes of all of it, and the leak check reads what is readable at the end, which
 * would allocate every page of a sparse file. So heaps are smaller below it, and mapped for writing
 * alone, which every processor that Linux knows lets read too.
 */
bool vb_memory_heap_is_checked(void);
/* How such a file is mapped, here and in peers: PROT_READ and PROT_WRITE, or as above. */
int vb_memory_heap_protection(void);
enum { VB_HEAP_CHECKED = 256 << 20 }; /* bytes of one below valgrind, if nobody asks for more */

/* `size` is rounded up to a power of two; 0 is twice the machine's memory, or VB_HEAP_CHECKED. What
 * a limit of the process or the system refuses is tried smaller, down to 16 MiB. Negative errno.
 * Where address space is limited, a size that is given is at most half of it, and 0 a sixteenth. */
int vb_memory_heap_create(size_t size, struct vb_heap **out);
/* What a heap of this size takes of the process's private memory, counted as it is mapped. */
size_t vb_memory_heap_private_bytes(size_t size);
/* The size that a heap gets for which `size` was asked, but for limits. */
size_t vb_memory_heap_wanted(size_t size);
enum { VB_HEAP_SMALLEST = 16 << 20 };
/* `size`, or half of it, a quarter, …: at most that part of a limited address space, and no less
 * than the smallest heap. */
size_t vb_memory_heap_within_space(size_t size, unsigned parts);
/* Only when no block of it is in use any more. */
void vb_memory_heap_destroy(struct vb_heap *heap);

/* A zeroed block, aligned to a page and to `align`; NULL and errno: EINVAL, ENOMEM. */
void *vb_memory_heap_alloc(struct vb_heap *heap, size_t size, size_t align);
/* The same with any contents, for malloc. */
void *vb_memory_heap_alloc_unzeroed(struct vb_heap *heap, size_t size, size_t align);
/* -EINVAL if no block begins there. The memory returns to the system, except for the blocks freed
 * last: up to 64 MiB, or a 16th of a smaller heap, wait for the next allocation of their size. */
int vb_memory_heap_free(struct vb_heap *heap, void *block);
/* Returns that memory too. */
void vb_memory_heap_trim(struct vb_heap *heap);
/* Smaller or larger where it is, zeroed where it grows; -ENOMEM if the block would have to move. */
int vb_memory_heap_resize(struct vb_heap *heap, void *block, size_t size);
/* Bytes of the block that begins there, a multiple of the page; 0 if none does. */
size_t vb_memory_heap_usable(const struct vb_heap *heap, const void *block);

/* Whether a peer that maps the file sees these bytes. */
bool vb_memory_heap_contains(const struct vb_heap *heap, const void *at, size_t n);
uint64_t vb_memory_heap_offset(const struct vb_heap *heap, const void *at);
/* -EBADF if the program has closed it behind our back. */
int vb_memory_heap_fd(const struct vb_heap *heap);
size_t vb_memory_heap_size(const struct vb_heap *heap);
size_t vb_memory_heap_used(const struct vb_heap *heap);

/*
 * Around fork(), for pthread_atfork. The child gets a heap of its own, with a copy of what is in
 * the parent's, at the same addresses: the copy is made before the fork. Where there is no memory
 * for it (vb_memory_heap_fork_prepare has the errno), and in a child that was made without these
 * calls, the child's heap is not its own: it still shares the parent's pages, allocates nothing,
 * and a free in it does nothing.
 */
int vb_memory_heap_fork_prepare(struct vb_heap *heap);
void vb_memory_heap_fork_parent(struct vb_heap *heap);
void vb_memory_heap_fork_child(struct vb_heap *heap);
bool vb_memory_heap_is_own(const struct vb_heap *heap);

#endif
