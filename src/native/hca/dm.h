// SPDX-License-Identifier: Apache-2.0
/*
 * Device memory. An adapter of software has none of its own: it is a piece of the shared heap,
 * which peers map, or of the process's memory where there is no heap.
 */
#ifndef VB_HCA_DM_H
#define VB_HCA_DM_H

#include "hca/adapter.h"

enum {
    VB_DM_BYTES = 1 << 20, /* of all device memories of an adapter */
    VB_DM_UNIT = 4,        /* offsets and lengths of copies are multiples of this */
    VB_DM_LOG_ALIGN = 12,
};

/* The memory itself. Each context that has allocated or imported it has a vb_dm for it. */
struct vb_dm_store {
    struct vb_adapter *adapter; /* NULL in a forked child, which has no adapter */
    struct vb_heap *heap;       /* the heap that has `memory`; NULL: malloc */
    uint8_t *memory;
    size_t length;
    _Atomic uint32_t refs;
};

struct vb_dm {
    struct ibv_dm ibv;
    struct vb_object object;
    struct vb_context *context; /* NULL in a forked child */
    struct vb_dm_store *store;
    uint8_t *memory;
    size_t length;
    bool imported;
    _Atomic uint32_t users; /* regions in it */
};

/*
 * Allocates device memory. -EINVAL: a length of 0 or above VB_DM_BYTES, an alignment that cannot be
 * had, or a field that is unknown; -ENOMEM. With a `context` of NULL (a forked child) the memory
 * can be copied to and from, and not registered.
 */
int vb_dm_alloc(struct vb_context *context, struct vb_heap *heap,
                const struct ibv_alloc_dm_attr *attr, struct vb_dm **dm);
int vb_dm_free(struct vb_dm *dm); /* -EBUSY: regions of it are left */

/* Imports the memory that has this handle in another context. -ENOENT: none has. */
int vb_dm_import(struct vb_context *context, struct vb_context *from, uint32_t handle,
                 struct vb_dm **dm);
/* Has no effect on memory that was not imported. */
void vb_dm_unimport(struct vb_dm *dm);

void vb_dm_use(struct vb_dm *dm);
void vb_dm_drop(struct vb_dm *dm);

#endif
