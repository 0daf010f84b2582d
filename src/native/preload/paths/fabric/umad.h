// SPDX-License-Identifier: Apache-2.0
/*
 * /dev/infiniband/umadN and issmN of a host of a fabric (Linux' ib_user_mad.h). open.c opens them
 * here, and devices.c passes what programs do with their descriptors.
 */
#ifndef VB_PRELOAD_PATHS_FABRIC_UMAD_H
#define VB_PRELOAD_PATHS_FABRIC_UMAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A descriptor of the node, with the flags of open(2); -1 and errno. */
int vb_preload_umad_open(int node, int flags);

/* As read(2), write(2) and ioctl(2) of a descriptor of umadN, whose socket's inode is `inode`. */
ssize_t vb_preload_umad_read(int fd, void *buffer, size_t size);

/* The same for the descriptor that was written to last, which is not looked at before. False: it is
 * another one, or the call has to be made as for any descriptor. */
bool vb_preload_umad_usual_read(int fd, void *buffer, size_t size, ssize_t *length);
bool vb_preload_umad_usual_write(int fd, const void *buffer, size_t size, ssize_t *written);

ssize_t vb_preload_umad_write(int fd, uint64_t inode, const void *buffer, size_t size);
int vb_preload_umad_ioctl(uint64_t inode, uint32_t request, void *argument);

#endif
