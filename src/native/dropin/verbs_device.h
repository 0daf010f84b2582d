// SPDX-License-Identifier: Apache-2.0
/*
 * A device as libibverbs' providers see it. device.c has those of the list, simulated.c those of
 * simulated hosts.
 */
#ifndef VB_DROPIN_VERBS_DEVICE_H
#define VB_DROPIN_VERBS_DEVICE_H

#include <stdint.h>

#include "abi/device.h"

/*
 * What follows an ibv_device in memory. libmlx5, libefa and NCCL look at `ops` to see whether a
 * device is theirs, and they find that it is not.
 */
struct verbs_device {
    struct ibv_device device;
    const void *ops;
    int refcount;
    struct {
        void *next, *prev;
    } entry;
    void *sysfs;
    uint64_t core_support;
};

/* Fills a zeroed device but for its names. `ops` is an address by which its owner knows it. */
static inline void vb_dropin_device_init(struct verbs_device *device, const void *ops)
{
    device->device.node_type = IBV_NODE_CA;
    device->device.transport_type = IBV_TRANSPORT_IB;
    device->ops = ops;
    device->refcount = 1;
    device->entry.next = device->entry.prev = &device->entry;
}

#endif
