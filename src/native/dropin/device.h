// SPDX-License-Identifier: Apache-2.0
#ifndef VB_DROPIN_DEVICE_H
#define VB_DROPIN_DEVICE_H

#include "abi/device.h"
#include "dropin/space.h"

struct ibv_context;
struct vb_context;

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

/* 0, -ENOENT: no such handle there, or another error. */
typedef int vb_import_one(void *argument, struct vb_context *from, uint32_t handle);

/* Calls it for the contexts that were imported from the same one, until one has the handle. */
int vb_dropin_import(struct ibv_context *context, vb_import_one *one, void *argument,
                     uint32_t handle);

/* What to do where the device could not be opened, or else the error by name; `error` is negative.
 */
void vb_dropin_open_remedy(int error, struct vb_space_text *to);

#endif
