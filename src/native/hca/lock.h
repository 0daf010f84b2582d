// SPDX-License-Identifier: Apache-2.0
/*
 * Locks. A vb_lock may lie in shared memory and names its holder, an adapter's instance, so that
 * the segment's owner can release it after the holder's death (layout.h). A waiter spins briefly,
 * then gives the processor away; `gone` tells it to give up when the segment's owner is dead.
 */
#ifndef VB_HCA_LOCK_H
#define VB_HCA_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

static inline void vb_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* One round of waiting: spins at first, later yields. */
static inline void vb_backoff(unsigned *round)
{
    if (++*round < 256)
        vb_pause();
    else
        sched_yield();
}

static inline bool vb_trylock(_Atomic uint32_t *lock, uint32_t holder)
{
    uint32_t expected = 0;
    return atomic_load_explicit(lock, memory_order_relaxed) == 0 &&
           atomic_compare_exchange_strong(lock, &expected, holder);
}

static inline void vb_lock(_Atomic uint32_t *lock, uint32_t holder)
{
    for (unsigned round = 0; !vb_trylock(lock, holder);)
        vb_backoff(&round);
}

/* False when `gone` (may be NULL) became true first: the lock's memory is of a process that died.
 */
static inline bool vb_lock_unless(_Atomic uint32_t *lock, uint32_t holder, const atomic_bool *gone)
{
    for (unsigned round = 0; !vb_trylock(lock, holder);) {
        if (gone && atomic_load_explicit(gone, memory_order_relaxed))
            return false;
        vb_backoff(&round);
    }
    return true;
}

static inline void vb_unlock(_Atomic uint32_t *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
}

#endif
