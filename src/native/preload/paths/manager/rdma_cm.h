// SPDX-License-Identifier: Apache-2.0
/*
 * /dev/infiniband/rdma_cm, the device of librdmacm (Linux' rdma_user_cm.h). open.c opens it here,
 * and devices.c passes what is written to it.
 */
#ifndef VB_PRELOAD_PATHS_MANAGER_RDMA_CM_H
#define VB_PRELOAD_PATHS_MANAGER_RDMA_CM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A descriptor of the device, whose node is `node`, with the flags of open(2); -1 and errno. */
int vb_preload_rdma_cm_open(int node, int flags);

/* Whether a command can have so many bytes. */
bool vb_preload_rdma_cm_takes(size_t size);
/* As write(2) of a command. */
ssize_t vb_preload_rdma_cm_write(int fd, uint64_t inode, const void *command, size_t size);

#endif
