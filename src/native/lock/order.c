// SPDX-License-Identifier: Apache-2.0
/*
 * The locks that each thread holds, and the check of their order. The functions that take and
 * release locks call it. This file is empty without VERBENA_LOCK_ORDER. A thread's list belongs to
 * that thread alone, so nothing here needs a lock.
 */
#include "lock/order.h"

#ifdef VERBENA_LOCK_ORDER

#include <stdio.h>
#include <stdlib.h>

enum { MOST_HELD = 32 };

static _Thread_local struct {
    const void *lock;
    enum vb_rank rank;
} held[MOST_HELD];
static _Thread_local unsigned held_count;

static const char *const rank_names[] = {VB_RANK_NAMES};

static _Noreturn void order_fail(const char *does, enum vb_rank rank, const char *while_it,
                                 enum vb_rank other)
{
    fprintf(stderr, "verbena: a thread %s the lock %s %s the lock %s (docs/locks.md)\n", does,
            rank_names[rank], while_it, rank_names[other]);
    abort();
}

static _Noreturn void order_end(const char *does)
{
    fprintf(stderr, "verbena: a thread %s (docs/locks.md)\n", does);
    abort();
}

/* Its place in the thread's list; held_count: the thread does not hold it. */
static unsigned order_find(const void *lock)
{
    unsigned at = 0;

    while (at < held_count && held[at].lock != lock)
        ++at;
    return at;
}

void vb_lock_order_check(enum vb_rank rank)
{
    if (rank == VB_RANK_NONE)
        order_end("takes a lock that was never initialised");
    for (unsigned i = 0; i < held_count; ++i)
        if (held[i].rank >= rank)
            order_fail("takes", rank, "while it holds", held[i].rank);
}

void vb_lock_order_took(const void *lock, enum vb_rank rank)
{
    if (held_count == MOST_HELD)
        order_end("holds more locks than the check has room for");
    held[held_count].lock = lock;
    held[held_count++].rank = rank;
}

void vb_lock_order_forget(const void *lock)
{
    unsigned at = order_find(lock);

    if (at < held_count)
        held[at] = held[--held_count];
}

void vb_lock_order_released(const void *lock)
{
    if (order_find(lock) == held_count)
        order_end("releases a lock that it does not hold");
    vb_lock_order_forget(lock);
}

void vb_lock_order_waits(const void *lock)
{
    unsigned at = order_find(lock);

    if (at == held_count)
        order_end("waits for a condition of a lock that it does not hold");
    for (unsigned i = 0; i < held_count; ++i)
        if (held[i].rank > held[at].rank)
            order_fail("waits for a condition of", held[at].rank, "while it holds", held[i].rank);
}

#endif
