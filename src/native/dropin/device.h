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

/* Imports what has the handle in `from`, and stores it in `made`. Returns 0, -ENOENT if nothing has
 * the handle, or another error. */
typedef int vb_import_one(void *to, struct vb_context *from, uint32_t handle, void *made);

/* Calls `one` for each context that has the same command descriptor, until one has the handle. */
int vb_dropin_import(struct ibv_context *context, vb_import_one *one, void *to, uint32_t handle,
                     void *made);

#endif
