// SPDX-License-Identifier: Apache-2.0
#include "hca/biased_lock.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hca/lock.h"

enum { NONE = 0, REVOKED = 1 };

_Thread_local char vb_thread_mark;

static int membarrier(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

bool vb_barrier_register(void)
{
    return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
           membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

void vb_barrier_everywhere(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED); /* fails only where nobody is privileged */
    atomic_thread_fence(memory_order_seq_cst);
}

/* Holding `lock`: the privileged thread can no longer enter, and has left when this returns. */
static void end_privilege(struct vb_biased_lock *lock)
{
    uintptr_t thread = atomic_load(&lock->thread);

    if (thread == REVOKED)
        return;
    atomic_store(&lock->thread, REVOKED);
    if (thread == NONE || thread == vb_this_thread())
        return;
    membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    for (unsigned round = 0; atomic_load_explicit(&lock->held, memory_order_acquire);)
        vb_backoff(&round);
}

void vb_biased_acquire_slowly(struct vb_biased_lock *lock, uint32_t holder, bool claim)
{
    uintptr_t thread;

    vb_lock(&lock->lock, holder);
    thread = atomic_load(&lock->thread);
    if (thread == NONE && claim)
        atomic_store(&lock->thread, vb_this_thread());
    else if (thread != NONE)
        end_privilege(lock);
}

void vb_biased_release_slowly(struct vb_biased_lock *lock)
{
    if (lock->lender) {
        atomic_store(&lock->thread, lock->lender);
        lock->lender = 0;
    }
    vb_unlock(&lock->lock);
}

bool vb_biased_try(struct vb_biased_lock *lock, uint32_t holder)
{
    uintptr_t thread = atomic_load(&lock->thread);

    if (atomic_load(&lock->held))
        return false;
    if (thread == vb_this_thread()) {
        vb_biased_acquire(lock, holder, false);
        return true;
    }
    if (!vb_trylock(&lock->lock, holder))
        return false;
    if (thread != NONE && thread != REVOKED) {
        end_privilege(lock);
        lock->lender = thread;
    }
    return true;
}

void vb_biased_forbid(struct vb_biased_lock *lock, uint32_t holder)
{
    vb_lock(&lock->lock, holder);
    end_privilege(lock);
    vb_unlock(&lock->lock);
}

void vb_biased_renounce(struct vb_biased_lock *lock)
{
    atomic_store(&lock->thread, REVOKED);
    atomic_thread_fence(memory_order_seq_cst);
}
