// SPDX-License-Identifier: Apache-2.0
/*
 * The devices whose descriptors are sockets to a process of Verbena's: rdma_cm, umadN and issmN.
 */
#ifndef VB_PRELOAD_PATHS_DEVICES_H
#define VB_PRELOAD_PATHS_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/paths/tree.h"

/* From now on read, write and ioctl look whether their descriptor is one of such a device. */
void vb_preload_device_was_opened(void);

/* The kind of the device that a descriptor is of, or VB_NODE_PASSAGE, and the inode by which the
 * other process knows the descriptor. */
enum vb_node_kind vb_preload_device_kind(int fd, uint64_t *inode);

#endif
