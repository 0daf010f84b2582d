// SPDX-License-Identifier: Apache-2.0
/*
 * The order in which a thread may take several locks, checked in builds with VERBENA_LOCK_ORDER.
 * Each lock has a rank (lock/ranks.toml, docs/locks.md), and a thread waits for a lock only while
 * every lock that it holds has a lower rank. The functions that take and release locks call these:
 * lock/mutex.h, hca/lock.h and hca/biased_lock.h. Without the option they are empty.
 */
#ifndef VB_LOCK_ORDER_H
#define VB_LOCK_ORDER_H

#include "lock/ranks.h"

#ifdef VERBENA_LOCK_ORDER

/* Before the thread waits for a lock of this rank: aborts where that is against the order. */
void vb_lock_order_check(enum vb_rank rank);
/* The thread holds it now. An attempt that does not wait (trylock) calls this alone. */
void vb_lock_order_took(const void *lock, enum vb_rank rank);
/* Aborts where the thread does not hold it. */
void vb_lock_order_released(const void *lock);
/* The thread releases it while it waits for a condition: aborts where it does not hold it, or holds
 * one behind it. */
void vb_lock_order_waits(const void *lock);
/* In a forked child, where the lock begins anew. */
void vb_lock_order_forget(const void *lock);

#else

static inline void vb_lock_order_check(enum vb_rank rank)
{
    (void)rank;
}

static inline void vb_lock_order_took(const void *lock, enum vb_rank rank)
{
    (void)lock, (void)rank;
}

static inline void vb_lock_order_released(const void *lock)
{
    (void)lock;
}

static inline void vb_lock_order_waits(const void *lock)
{
    (void)lock;
}

static inline void vb_lock_order_forget(const void *lock)
{
    (void)lock;
}

#endif
#endif
