// SPDX-License-Identifier: Apache-2.0
/*
 * Atomic operations on this process's own memory. The packet engine calls them for requests that
 * arrive, the direct carrier for a peer that cannot map the memory. Memory that peers change
 * without the processor's atomics is changed under the segment's lock ATOMIC.
 */
#include "hca/atomic.h"

#include <errno.h>

#include "hca/lock.h"
#include "hca/mr.h"
#include "lock/order.h"

/* Rounds of vb_backoff, most of which yield. On a busy machine each of those may take a time slice
 * of the scheduler, and a requester waits for a second at most (direct/bounce.c). */
enum { PATIENCE = 350 };

/* Is the word mapped? Looked at only where the handler of faults is not installed, so that the
 * processor's access would end the process. */
static inline bool is_there(void *word)
{
    return vb_memory_guard_holds() || vb_memory_is_mapped(word, sizeof(uint64_t), true);
}

int vb_atomic_locked(struct vb_adapter *adapter, void *word, enum vb_atomic_op op,
                     uint64_t compare_add, uint64_t swap_value, uint64_t *result)
{
    _Atomic uint32_t *lock = &adapter->self.header->atomic_lock;
    int error;

    if (!is_there(word))
        return -EFAULT;

    vb_lock_order_check(VB_RANK_ATOMIC);
    for (unsigned round = 0; !vb_word_try(lock, VB_RANK_ATOMIC, adapter->instance);) {
        if (round > PATIENCE)
            return -EBUSY;
        vb_backoff(&round);
    }
    error = vb_atomic_by_processor(word, op, compare_add, swap_value, result);
    vb_word_unlock(lock);
    return error;
}

int vb_atomic_here(struct vb_adapter *adapter, const struct vb_mr_shared *mr, uint64_t iova,
                   enum vb_atomic_op op, uint64_t compare_add, uint64_t swap_value,
                   uint64_t *result)
{
    void *word = vb_mr_pointer(mr, iova);

    if (!mr->in_heap)
        return vb_atomic_locked(adapter, word, op, compare_add, swap_value, result);
    if (!is_there(word))
        return -EFAULT;
    return vb_atomic_by_processor(word, op, compare_add, swap_value, result);
}
