// SPDX-License-Identifier: Apache-2.0
/*
 * Atomic operations on eight bytes of this process's memory, which its peers may be changing at the
 * same time. The packet engine and the direct carrier call them for requests that arrive.
 */
#ifndef VB_HCA_ATOMIC_H
#define VB_HCA_ATOMIC_H

#include "hca/adapter.h"
#include "memory/guard.h"

enum vb_atomic_op { VB_ATOMIC_ADD, VB_ATOMIC_SWAP, VB_ATOMIC_WRITE };

/*
 * Carries an atomic out by the processor's own instruction. `result` is the value before; a write,
 * of `swap_value`, does not read it. 0, or -EFAULT: the word is not mapped any more.
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
 * The same under the segment's lock ATOMIC, for memory that peers change by cross-process copies
 * under that lock. -EFAULT as above; -EBUSY: the lock was held for long, perhaps by a process that
 * died and whose lock is not freed yet.
 */
int vb_atomic_locked(struct vb_adapter *adapter, void *word, enum vb_atomic_op op,
                     uint64_t compare_add, uint64_t swap_value, uint64_t *result);

/* On a region of this adapter that has passed its check. Memory of the shared heap needs no lock,
 * since every process changes it by the processor's instructions. */
int vb_atomic_here(struct vb_adapter *adapter, const struct vb_mr_shared *mr, uint64_t iova,
                   enum vb_atomic_op op, uint64_t compare_add, uint64_t swap_value,
                   uint64_t *result);

#endif
