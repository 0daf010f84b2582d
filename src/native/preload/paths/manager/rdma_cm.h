// SPDX-License-Identifier: Apache-2.0
/*
 * /dev/infiniband/rdma_cm, the device of librdmacm (Linux' rdma_user_cm.h). open.c opens it here.
 */
#ifndef VB_PRELOAD_PATHS_MANAGER_RDMA_CM_H
#define VB_PRELOAD_PATHS_MANAGER_RDMA_CM_H

/* A descriptor of the device, whose node is `node`, with the flags of open(2); -1 and errno. */
int vb_preload_rdma_cm_open(int node, int flags);

#endif
