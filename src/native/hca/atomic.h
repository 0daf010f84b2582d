// SPDX-License-Identifier: Apache-2.0
/* The eight bytes of an atomic, and who else may be at them. */
#ifndef VB_HCA_ATOMIC_H
#define VB_HCA_ATOMIC_H

#include "hca/adapter.h"
#include "memory/guard.h"

enum vb_atomic_op { VB_ATOMIC_ADD, VB_ATOMIC_SWAP, VB_ATOMIC_WRITE };

/*
 * What stood there, in `result`; a write, of `swap_value`, does not look. 0, or -EFAULT: the word
 * is not there any more.
 */
static inline int vb_atomic_by_processor(void *word, enum vb_atomic_op op, uint64_t compare_add,
                                         uint64_t swap_value, uint64_t *result)
{
    switch (op) {
    case VB_ATOMIC_ADD:
        return vb_memory_guarded_fetch_add(word, compare_add, result);
    case VB_ATOMIC_SWAP:
        return vb_memory_guarded_compare_swap(word, compare_add, swap_value, result);
    default:
        *result = 0;
        return vb_memory_guarded_store(word, swap_value);
    }
}

/*
 * On this process's own memory, which peers reach without the processor's help: under the lock
 * that they take too. -EFAULT as above; -EBUSY: its holder is slow, or dead and not buried yet.
 */
int vb_atomic_locked(struct vb_adapter *adapter, void *word, enum vb_atomic_op op,
                     uint64_t compare_add, uint64_t swap_value, uint64_t *result);

/* On a checked region of this adapter's; as above, but that heap memory needs no lock. */
int vb_atomic_here(struct vb_adapter *adapter, const struct vb_mr_shared *mr, uint64_t iova,
                   enum vb_atomic_op op, uint64_t compare_add, uint64_t swap_value,
                   uint64_t *result);

#endif
