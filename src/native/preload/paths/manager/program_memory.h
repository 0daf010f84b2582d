// SPDX-License-Identifier: Apache-2.0
/*
 * Copies from and to memory that a program names by a pointer: what a kernel answers by EFAULT must
 * not end the program here. rdma_cm.c copies commands and answers by these.
 */
#ifndef VB_PRELOAD_PATHS_MANAGER_PROGRAM_MEMORY_H
#define VB_PRELOAD_PATHS_MANAGER_PROGRAM_MEMORY_H

#include <stddef.h>

/* 0, or EFAULT if the program cannot read `from`. */
int vb_preload_program_read(void *to, const void *from, size_t size);

/* 0, or EFAULT if the program cannot write to `to`. */
int vb_preload_program_write(void *to, const void *from, size_t size);

#endif
