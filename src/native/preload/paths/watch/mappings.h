// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that take memory away. Each is reported before and after `next` carries it out. mappings.c
 * passes the C library's functions as `next`; bare.c passes the kernel's calls, since libraries
 * that replace the C library's functions (UCX) use syscall() in their place, and would be called
 * again and again.
 */
#ifndef VB_PRELOAD_MAPPINGS_H
#define VB_PRELOAD_MAPPINGS_H

#include <stddef.h>
#include <sys/types.h>

typedef int munmap_call(void *at, size_t length);
typedef int shmdt_call(const void *at);
typedef void *mmap_call(void *at, size_t length, int protection, int flags, int fd, off_t offset);
typedef void *mremap_call(void *at, size_t length, size_t wanted, int flags, void *target);

int vb_preload_watched_munmap(munmap_call *next, void *at, size_t length);
int vb_preload_watched_shmdt(shmdt_call *next, const void *at);
void *vb_preload_watched_mmap(mmap_call *next, void *at, size_t length, int protection, int flags,
                              int fd, off_t offset);
void *vb_preload_watched_mremap(mremap_call *next, void *at, size_t length, size_t wanted,
                                int flags, void *target);
/* The caller changes the protection after this. */
void vb_preload_watched_mprotect(const void *at, size_t length, int protection);

#endif
