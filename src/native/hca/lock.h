// SPDX-License-Identifier: Apache-2.0
/*
 * Word locks: spin locks of 32 bits that may lie in shared memory. The word names its holder, an
 * adapter's instance, so that the segment's owner can free it after the holder's death (layout.h).
 * A waiter spins briefly and then gives the processor away; `gone` tells it that the segment's
 * owner is dead, and it gives up.
 */
#ifndef VB_HCA_LOCK_H
#define VB_HCA_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock/order.h"

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

/* ---- without a rank: for hca/biased_lock.c, and to free what a dead process held ---- */

static inline bool vb_word_claim(_Atomic uint32_t *lock, uint32_t holder)
{
    uint32_t expected = 0;
    return atomic_load_explicit(lock, memory_order_relaxed) == 0 &&
           atomic_compare_exchange_strong(lock, &expected, holder);
}

/* False when `gone` (may be NULL) became true first. */
static inline bool vb_word_await(_Atomic uint32_t *lock, uint32_t holder, const atomic_bool *gone)
{
    for (unsigned round = 0; !vb_word_claim(lock, holder);) {
        if (gone && atomic_load_explicit(gone, memory_order_relaxed))
            return false;
        vb_backoff(&round);
    }
    return true;
}

static inline void vb_word_clear(_Atomic uint32_t *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
}

/* ---- by the order of docs/locks.md ---- */

static inline bool vb_word_try(_Atomic uint32_t *lock, enum vb_rank rank, uint32_t holder)
{
    if (!vb_word_claim(lock, holder))
        return false;
    vb_lock_order_took((const void *)lock, rank);
    return true;
}

/* False when `gone` became true first: the lock's memory belongs to a process that died. */
static inline bool vb_word_lock_unless(_Atomic uint32_t *lock, enum vb_rank rank, uint32_t holder,
                                       const atomic_bool *gone)
{
    vb_lock_order_check(rank);
    if (!vb_word_await(lock, holder, gone))
        return false;
    vb_lock_order_took((const void *)lock, rank);
    return true;
}

static inline void vb_word_lock(_Atomic uint32_t *lock, enum vb_rank rank, uint32_t holder)
{
    vb_word_lock_unless(lock, rank, holder, NULL);
}

static inline void vb_word_unlock(_Atomic uint32_t *lock)
{
    vb_lock_order_released((const void *)lock);
    vb_word_clear(lock);
}

#endif
