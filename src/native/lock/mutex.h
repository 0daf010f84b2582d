// SPDX-License-Identifier: Apache-2.0
/*
 * A mutex that knows its place in the order of docs/locks.md. Every room takes its mutexes by these
 * functions. In a build with VERBENA_LOCK_ORDER a thread that takes one against the order aborts
 * (lock/order.h); in any other build they are the calls of pthread alone.
 */
#ifndef VB_LOCK_MUTEX_H
#define VB_LOCK_MUTEX_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "lock/order.h"

struct vb_mutex {
    pthread_mutex_t mutex;
#ifdef VERBENA_LOCK_ORDER
    enum vb_rank rank;
#endif
};

#ifdef VERBENA_LOCK_ORDER
#define VB_MUTEX_INITIALIZER(of) {.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (of)}
#define VB_MUTEX_RANK(lock)      ((lock)->rank)
#else
#define VB_MUTEX_INITIALIZER(of) {.mutex = PTHREAD_MUTEX_INITIALIZER}
#define VB_MUTEX_RANK(lock)      VB_RANK_NONE
#endif

static inline void vb_lock_set_rank(struct vb_mutex *lock, enum vb_rank rank)
{
    vb_lock_order_forget(lock);
#ifdef VERBENA_LOCK_ORDER
    lock->rank = rank;
#else
    (void)rank;
#endif
}

/* Also in a forked child, for a lock that a thread of the parent may have held. */
static inline void vb_lock_init(struct vb_mutex *lock, enum vb_rank rank)
{
    vb_lock_set_rank(lock, rank);
    pthread_mutex_init(&lock->mutex, NULL);
}

static inline void vb_lock_destroy(struct vb_mutex *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

static inline void vb_lock_take(struct vb_mutex *lock)
{
    vb_lock_order_check(VB_MUTEX_RANK(lock));
    pthread_mutex_lock(&lock->mutex);
    vb_lock_order_took(lock, VB_MUTEX_RANK(lock));
}

static inline void vb_lock_release(struct vb_mutex *lock)
{
    vb_lock_order_released(lock);
    pthread_mutex_unlock(&lock->mutex);
}

/* False: another thread has it. It waits for nobody, so it may go against the order. */
static inline bool vb_lock_try(struct vb_mutex *lock)
{
    if (pthread_mutex_trylock(&lock->mutex))
        return false;
    vb_lock_order_took(lock, VB_MUTEX_RANK(lock));
    return true;
}

/* False: another thread still has it at `until` (CLOCK_REALTIME). */
static inline bool vb_lock_take_until(struct vb_mutex *lock, const struct timespec *until)
{
    vb_lock_order_check(VB_MUTEX_RANK(lock));
    if (pthread_mutex_timedlock(&lock->mutex, until))
        return false;
    vb_lock_order_took(lock, VB_MUTEX_RANK(lock));
    return true;
}

/* Releases the lock while it waits, and takes it again: no lock behind it may be held. */
static inline void vb_lock_wait(pthread_cond_t *cond, struct vb_mutex *lock)
{
    vb_lock_order_waits(lock);
    pthread_cond_wait(cond, &lock->mutex);
}

/* As vb_lock_wait; returns 0, or ETIMEDOUT at `until` of the condition's clock. */
static inline int vb_lock_wait_until(pthread_cond_t *cond, struct vb_mutex *lock,
                                     const struct timespec *until)
{
    vb_lock_order_waits(lock);
    return pthread_cond_timedwait(cond, &lock->mutex, until);
}

/* ---- a mutex that refuses the thread that holds it, in place of waiting for ever ---- */

static inline void vb_lock_init_refusing(struct vb_mutex *lock, enum vb_rank rank)
{
    pthread_mutexattr_t attributes;

    vb_lock_set_rank(lock, rank);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&lock->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

/* 0, or EDEADLK: the thread holds it. Its order is looked at once it is taken. */
static inline int vb_lock_take_refusing(struct vb_mutex *lock)
{
    int error = pthread_mutex_lock(&lock->mutex);

    if (!error) {
        vb_lock_order_check(VB_MUTEX_RANK(lock));
        vb_lock_order_took(lock, VB_MUTEX_RANK(lock));
    }
    return error;
}

/* ---- the mutexes in structures of libibverbs' ABI, which have no room for a rank ---- */

static inline void vb_lock_abi_take(pthread_mutex_t *lock, enum vb_rank rank)
{
    vb_lock_order_check(rank);
    pthread_mutex_lock(lock);
    vb_lock_order_took(lock, rank);
}

static inline void vb_lock_abi_release(pthread_mutex_t *lock)
{
    vb_lock_order_released(lock);
    pthread_mutex_unlock(lock);
}

#endif
