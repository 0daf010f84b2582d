// SPDX-License-Identifier: Apache-2.0
/*
 * Who receives: the port's thread, or a program that polls its CQs. The thread (thread.c) asks
 * before it takes datagrams; polls and armed CQs are noted by whoever makes them (roce.c). Linux'
 * NAPI decides between interrupts and polling in the same way.
 *
 *   state     who receives         is left when                      for
 *   WATCHED   the thread, woken    a datagram wakes the thread       CHECKED
 *             by epoll
 *   CHECKED   the thread decides   somebody has polled since its     POLLED
 *                                  last look
 *                                  nobody has: it receives all       WATCHED
 *   POLLED    programs; the        a program arms a CQ, so it is     WATCHED
 *             thread looks after   about to sleep
 *             50 us, 100 us ...    nobody has polled, or a datagram  CHECKED
 *             1 ms                 has waited since the last look
 *
 * In WATCHED the socket is in the thread's epoll; in the other two its event has come and was not
 * renewed (EPOLLONESHOT), so datagrams wake nobody: that saves a wake-up for each of them.
 */
#ifndef VB_ROCE_POLLING_H
#define VB_ROCE_POLLING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct vb_roce_polling {
    _Atomic uint32_t polls;    /* by any thread, counted */
    _Atomic uint32_t armed_at; /* the value of `polls` when a CQ was armed last */
    _Atomic bool unwatched;    /* the state is not WATCHED */

    /* The thread's alone: what it saw at its last look. */
    uint32_t seen_polls;
    uint64_t seen_received;
    bool polled;          /* somebody polled: the look's result, which holds until `valid_until` */
    uint64_t valid_until; /* ns */
    uint64_t pause;       /* ns, until the next look */
    uint64_t doubted_until; /* until then those who poll are taken not to receive */
};

void vb_roce_polling_init(struct vb_roce_polling *polling);

/* A program polls. Two threads may count one poll between them, which changes nothing. */
static inline void vb_roce_polling_count(struct vb_roce_polling *polling)
{
    atomic_store_explicit(&polling->polls,
                          atomic_load_explicit(&polling->polls, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* Does a datagram wake nobody? */
static inline bool vb_roce_polling_is_unwatched(const struct vb_roce_polling *polling)
{
    return atomic_load_explicit(&polling->unwatched, memory_order_relaxed);
}

/* A program armed a CQ. True: the socket is to be watched again. */
bool vb_roce_polling_arm(struct vb_roce_polling *polling);

/*
 * The thread's look: does a program receive what comes? `received` counts the packets received so
 * far, `fd` is the UDP socket. One look holds for `pause`: on one processor nobody polls between
 * two wake-ups of this thread, and a program that polls would be interrupted for what it does
 * itself.
 */
bool vb_roce_polling_look(struct vb_roce_polling *polling, int fd, uint64_t received, uint64_t now);

#endif
