// SPDX-License-Identifier: Apache-2.0
/*
 * Atomics on a peer's memory and on this process's own (atomic.h). The requester calls this under
 * its QP's send lock, once the region and the alignment have been checked.
 */
#include "direct/atomic.h"

#include <errno.h>
#include <sys/uio.h>

#include "direct/direct.h"
#include "direct/place.h"
#include "hca/atomic.h"
#include "hca/lock.h"

static uint64_t next_value(uint64_t old, bool swap, uint64_t compare_add, uint64_t swap_value)
{
    if (!swap)
        return old + compare_add;
    return old == compare_add ? swap_value : old;
}

static int atomic_move(struct vb_peer *peer, uint64_t addr, uint64_t *value, bool put)
{
    struct iovec mine = {value, 8}, theirs = {(void *)(uintptr_t)addr, 8};
    ssize_t n = put ? process_vm_writev(peer->pid, &mine, 1, &theirs, 1, 0)
                    : process_vm_readv(peer->pid, &mine, 1, &theirs, 1, 0);

    return n == 8 ? 0 : errno == ESRCH ? -EPIPE : -EFAULT;
}

static int atomic_cross_process(struct vb_direct *direct, struct vb_peer *peer, uint64_t addr,
                                bool swap, uint64_t compare_add, uint64_t swap_value,
                                uint64_t *result)
{
    _Atomic uint32_t *lock = &peer->view.header->atomic_lock;
    uint64_t next;
    int error;

    if (!vb_word_lock_unless(lock, VB_RANK_ATOMIC, direct->adapter->instance, &peer->gone))
        return -EPIPE;
    error = atomic_move(peer, addr, result, false);
    next = next_value(*result, swap, compare_add, swap_value);
    if (!error && next != *result)
        error = atomic_move(peer, addr, &next, true);
    vb_word_unlock(lock);
    return error;
}

int vb_direct_atomic_own(struct vb_direct *direct, void *word, enum vb_atomic_op op,
                         uint64_t compare_add, uint64_t swap_value, uint64_t *result)
{
    return vb_atomic_locked(direct->adapter, word, op, compare_add, swap_value, result);
}

static int here_patiently(struct vb_direct *direct, void *word, enum vb_atomic_op op,
                          uint64_t compare_add, uint64_t swap_value, uint64_t *result)
{
    int error;

    do
        error = vb_direct_atomic_own(direct, word, op, compare_add, swap_value, result);
    while (error == -EBUSY);
    return error;
}

int vb_direct_atomic(struct vb_direct *direct, struct vb_peer *peer, const struct vb_mr_shared *mr,
                     uint64_t iova, enum vb_atomic_op op, uint64_t compare_add, uint64_t swap_value,
                     uint64_t *result)
{
    uint8_t *here = vb_direct_peer_pointer(peer, mr, iova, sizeof(uint64_t));
    uint64_t addr = mr->addr + (iova - mr->iova);

    if (VB_UNLIKELY((uintptr_t)here %
                    sizeof(uint64_t))) /* its offset is not what its owner wrote */
        return -EFAULT;
    if (mr->in_heap && here)
        return vb_atomic_by_processor(here, op, compare_add, swap_value, result);
    if (here)
        return here_patiently(direct, here, op, compare_add, swap_value, result);
    /* Heap memory that this process could not map stays with the processor, the owner's; so does
     * what may be heap memory, and a write: the system's copy may come in parts. */
    if (peer->cma && op != VB_ATOMIC_WRITE && !mr->in_heap && !(mr->access & VB_ACCESS_MIXED))
        return atomic_cross_process(direct, peer, addr, op == VB_ATOMIC_SWAP, compare_add,
                                    swap_value, result);
    return vb_direct_bounce_atomic(direct, peer, op, addr, compare_add, swap_value, result);
}
