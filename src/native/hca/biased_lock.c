// SPDX-License-Identifier: Apache-2.0
/*
 * The slow half of biased locks: the first use by a thread, and use by any other than the
 * privileged thread. The inline functions of biased_lock.h call it. `thread` of a lock changes only
 * while its word `lock` is held.
 */
#include "hca/biased_lock.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hca/lock.h"

enum { NONE = 0, REVOKED = 1 };

_Thread_local uint32_t vb_thread_number;

void vb_thread_forget_number(void)
{
    vb_thread_number = 0;
}

static uint64_t biased_name_thread(uint32_t instance)
{
    if (!vb_thread_number)
        vb_thread_number = (uint32_t)syscall(SYS_gettid);
    return vb_this_thread(instance);
}

static int membarrier(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

bool vb_barrier_register(void)
{
    return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
           membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

/*
 * Used where the kernel refuses membarrier (an old kernel, or a seccomp filter that was installed
 * later). A processor's stores are visible within microseconds, so after a millisecond `held` shows
 * every thread that held its lock when the wait began.
 */
static void let_stores_arrive(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    nanosleep(&pause, NULL);
}

void vb_barrier_everywhere(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED))
        let_stores_arrive();
    atomic_thread_fence(memory_order_seq_cst);
}

static bool has_gone(const atomic_bool *gone)
{
    return gone && atomic_load_explicit(gone, memory_order_relaxed);
}

/* Called with `lock` held. When it returns the privileged thread has released the lock and cannot
 * take it as such any more. */
static bool end_privilege(struct vb_biased_lock *lock, uint32_t holder, const atomic_bool *gone)
{
    uint64_t thread = atomic_load(&lock->thread);

    if (thread == REVOKED)
        return true;
    atomic_store(&lock->thread, REVOKED);
    if (thread == NONE || thread == vb_this_thread(holder))
        return true;
    vb_barrier_everywhere();
    for (unsigned round = 0; atomic_load_explicit(&lock->held, memory_order_acquire);) {
        if (has_gone(gone))
            return false;
        vb_backoff(&round);
    }
    return true;
}

static void enter_by_word(struct vb_biased_lock *lock)
{
    atomic_store_explicit(&lock->by_word, 1, memory_order_relaxed);
}

bool vb_biased_acquire_slowly(struct vb_biased_lock *lock, uint32_t holder, bool claim,
                              const atomic_bool *gone)
{
    uint64_t thread;

    if (!vb_word_await(&lock->lock, holder, gone))
        return false;
    thread = atomic_load(&lock->thread);
    if (thread == NONE && claim)
        atomic_store(&lock->thread, lock->owner = biased_name_thread(holder));
    else if (thread != NONE && thread != vb_this_thread(holder) &&
             !end_privilege(lock, holder, gone))
        return false;
    enter_by_word(lock);
    return true;
}

void vb_biased_release_slowly(struct vb_biased_lock *lock)
{
    uint64_t restore = lock->restore;

    lock->restore = 0;
    atomic_store_explicit(&lock->by_word, 0, memory_order_relaxed);
    if (restore) /* from here on that thread may hold the lock again */
        atomic_store(&lock->thread, restore);
    vb_word_clear(&lock->lock);
}

bool vb_biased_try_slowly(struct vb_biased_lock *lock, uint32_t holder)
{
    uint64_t thread;

    if (atomic_load(&lock->held))
        return false;
    if (atomic_load(&lock->thread) == vb_this_thread(holder))
        return vb_biased_enter(lock, holder, false, NULL);
    if (!vb_word_claim(&lock->lock, holder))
        return false;
    thread = atomic_load(&lock->thread); /* it changes only under `lock` */
    if (thread != NONE && thread != REVOKED) {
        end_privilege(lock, holder, NULL);
        lock->restore = thread;
    }
    enter_by_word(lock);
    return true;
}

void vb_biased_forbid(struct vb_biased_lock *lock, uint32_t holder)
{
    vb_word_await(&lock->lock, holder, NULL);
    end_privilege(lock, holder, NULL);
    vb_word_clear(&lock->lock);
}

bool vb_biased_is_held_by(const struct vb_biased_lock *lock, uint32_t instance)
{
    return atomic_load(&lock->lock) == instance ||
           (atomic_load(&lock->held) && lock->owner >> 32 == instance);
}

void vb_biased_free_dead(struct vb_biased_lock *lock, uint32_t instance)
{
    uint64_t thread = atomic_load(&lock->thread);

    if (atomic_load(&lock->held) && lock->owner >> 32 == instance)
        atomic_store(&lock->held, 0);
    if (thread >> 32 == instance)
        atomic_compare_exchange_strong(&lock->thread, &thread, NONE);
    if (atomic_load(&lock->lock) == instance) {
        atomic_store(&lock->by_word, 0);
        vb_word_clear(&lock->lock);
    }
}
