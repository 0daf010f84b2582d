// SPDX-License-Identifier: Apache-2.0
/*
 * A lock for what one thread does nearly always: posting to a QP, polling a CQ, completing into
 * one from the other end of a connection.
 *
 * An atomic read-modify-write costs as much as the rest of a small request, and more where it has
 * to wait for stores to lines that another processor holds. So the first thread that asks becomes
 * the lock's own: it takes the lock by storing `held` and releases it by clearing it, with no
 * atomic instruction. Any other thread first revokes that privilege, for good: it makes the kernel
 * run a barrier on every processor (membarrier), after which either the owner has seen the
 * revocation or the revoker sees `held`. Peers that must wait until a QP is quiet use the same
 * barrier (vb_barrier_everywhere) and then read both words.
 *
 * A lock may lie in shared memory: a thread's name contains its adapter's instance. A process to
 * which the system offers no membarrier makes no thread of its own privileged, and revokes others'
 * privileges by waiting for a moment.
 */
#ifndef VB_HCA_BIASED_LOCK_H
#define VB_HCA_BIASED_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock/order.h"

struct vb_biased_lock {
    _Atomic uint64_t thread;  /* the privileged thread; 0: none yet, 1: privilege is revoked */
    _Atomic uint32_t held;    /* 1 while the privileged thread holds the lock */
    _Atomic uint32_t lock;    /* the word for all others: the holder's instance, or 0 */
    _Atomic uint32_t turns;   /* how often the lock was released */
    _Atomic uint32_t by_word; /* 1: the holder has taken `lock`, and releases that */
    uint64_t owner;           /* the thread that was privileged last, to which `held` belongs */
    uint64_t restore;         /* the thread that is privileged again after the release; 0: none */
};

/* Registers the process for membarrier; false: the kernel has none, so no thread of this process
 * may be privileged. */
bool vb_barrier_register(void);
/* Every thread of every process that registered has passed a barrier when this returns. */
void vb_barrier_everywhere(void);

/* From now on no thread is privileged; one that is loses its privilege. */
void vb_biased_forbid(struct vb_biased_lock *lock, uint32_t holder);

void vb_biased_release_slowly(struct vb_biased_lock *lock);
bool vb_biased_acquire_slowly(struct vb_biased_lock *lock, uint32_t holder, bool claim,
                              const atomic_bool *gone);

/*
 * The kernel's number of this thread (gettid), which no other living thread of the process has. It
 * is 0 until the thread is privileged for the first time, and no privileged thread has the number
 * 0. The address of a variable would need all 64 bits of `thread`. In static TLS, so that reading
 * it is one load.
 */
extern _Thread_local uint32_t vb_thread_number
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

static inline uint64_t vb_this_thread(uint32_t instance)
{
    return (uint64_t)instance << 32 | vb_thread_number;
}

/* For a forked child, whose only thread has a copy of the number of its parent's thread. */
void vb_thread_forget_number(void);

/*
 * Takes the lock. `holder` is the instance of the caller's adapter. With `claim` the caller becomes
 * the privileged thread if there was none yet. False when `gone` (may be NULL) became true first:
 * the lock's memory belongs to a process that died. This is the lock without its rank: other code
 * calls vb_biased_acquire.
 */
static inline bool vb_biased_enter(struct vb_biased_lock *lock, uint32_t holder, bool claim,
                                   const atomic_bool *gone)
{
    uint64_t me = vb_this_thread(holder);

    if (__builtin_expect(atomic_load_explicit(&lock->thread, memory_order_relaxed) == me, 1)) {
        atomic_store_explicit(&lock->held, 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst); /* the revoker runs the processor's barrier */
        /* Acquires what another thread wrote before it restored the privilege. */
        if (__builtin_expect(atomic_load_explicit(&lock->thread, memory_order_acquire) == me, 1))
            return true;
        atomic_store_explicit(&lock->held, 0, memory_order_release);
    }
    return vb_biased_acquire_slowly(lock, holder, claim, gone);
}

static inline bool vb_biased_acquire_unless(struct vb_biased_lock *lock, enum vb_rank rank,
                                            uint32_t holder, bool claim, const atomic_bool *gone)
{
    vb_lock_order_check(rank);
    if (!vb_biased_enter(lock, holder, claim, gone))
        return false;
    vb_lock_order_took(lock, rank);
    return true;
}

static inline void vb_biased_acquire(struct vb_biased_lock *lock, enum vb_rank rank,
                                     uint32_t holder, bool claim)
{
    vb_biased_acquire_unless(lock, rank, holder, claim, NULL);
}

/* Releases the lock without its rank. `by_word` says how it was taken; `held` does not, since a
 * thread that has just lost its privilege may set it, and clears it when it sees that. */
static inline void vb_biased_leave(struct vb_biased_lock *lock)
{
    uint32_t turns = atomic_load_explicit(&lock->turns, memory_order_relaxed);

    atomic_store_explicit(&lock->turns, turns + 1, memory_order_relaxed);
    if (__builtin_expect(!atomic_load_explicit(&lock->by_word, memory_order_relaxed), 1))
        atomic_store_explicit(&lock->held, 0, memory_order_release);
    else
        vb_biased_release_slowly(lock);
}

static inline void vb_biased_release(struct vb_biased_lock *lock)
{
    vb_lock_order_released(lock);
    vb_biased_leave(lock);
}

bool vb_biased_try_slowly(struct vb_biased_lock *lock, uint32_t holder);

/*
 * Takes the lock unless another thread holds it; it waits for nobody, so it may go against the
 * order. The privileged thread has its privilege back after the release: this is for rare visitors.
 */
static inline bool vb_biased_try(struct vb_biased_lock *lock, enum vb_rank rank, uint32_t holder)
{
    if (!vb_biased_try_slowly(lock, holder))
        return false;
    vb_lock_order_took(lock, rank);
    return true;
}

/* Does a thread of that adapter's process hold the lock? Asked after the process has died. */
bool vb_biased_is_held_by(const struct vb_biased_lock *lock, uint32_t instance);
/* Frees the lock, and the privilege to it, from a process that died. The caller is the owner of the
 * segment and has repaired what the lock protects. */
void vb_biased_free_dead(struct vb_biased_lock *lock, uint32_t instance);

/* Is the lock held? For a thread that does not hold it, after vb_barrier_everywhere. */
static inline bool vb_biased_is_held(const struct vb_biased_lock *lock)
{
    return atomic_load_explicit(&lock->held, memory_order_acquire) ||
           atomic_load_explicit(&lock->lock, memory_order_acquire);
}

#endif
