// SPDX-License-Identifier: Apache-2.0
/*
 * The devices of the list and their open contexts. Programs reach them by libibverbs' calls, which
 * device.c exports; import.c looks for objects of other contexts here.
 */
#ifndef VB_DROPIN_DEVICE_H
#define VB_DROPIN_DEVICE_H

#include <stdint.h>

struct ibv_context;
struct vb_context;

/* 0, -ENOENT: no such handle there, or another error. */
typedef int vb_import_one(void *argument, struct vb_context *from, uint32_t handle);

/* Calls `one` for each context that has the same command descriptor, until one has the handle. */
int vb_dropin_import(struct ibv_context *context, vb_import_one *one, void *argument,
                     uint32_t handle);

#endif
