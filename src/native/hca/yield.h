// SPDX-License-Identifier: Apache-2.0
/*
 * When a thread that polls in vain yields its processor. Two ends on one core would otherwise wait
 * for each other's time slice, which takes milliseconds for each message. cq_poll.c calls this; a
 * vb_yield belongs to one thread, and its times are nanoseconds of any clock that also runs while
 * the thread does not.
 *
 * A poll is too short to read a clock in each, so the thread counts its polls (vb_yield.polls), and
 * asks vb_yield_due at every VB_YIELD_PERIOD of them. A yield is due after 16 µs without a
 * completion, which a peer on another core does not need. It is due at once while the last yield
 * let another thread run that gave the processor back soon, since then the peer is likely to be on
 * this core. A thread whose polls are far apart has other work to do, and does not yield.
 *
 * A thread that got the processor and kept it for a time slice computes. A yield would give it a
 * slice for each message, so for a while the polling thread sleeps for the shortest time instead:
 * the scheduler then wakes it amid the other's slice. Beside such threads a message took 0.3 ms on
 * one core (with yields 6 ms, with neither 57 ms), and on two cores 60 µs (1.1 ms, 250 µs).
 */
#ifndef VB_HCA_YIELD_H
#define VB_HCA_YIELD_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum {
    VB_YIELD_PERIOD = 64,
    VB_YIELD_AFTER_NS = 16000,
    VB_YIELD_APART_NS = 32000,  /* for a period: the thread does other work between its polls */
    VB_YIELD_SWITCH_NS = 2000,  /* a yield that took less let no other thread run */
    VB_YIELD_SLICE_NS = 500000, /* in a yield that took more another thread used its time slice */
    VB_YIELD_NAPS_NS = 20000000,
};

enum vb_yield_how { VB_YIELD_NOT, VB_YIELD_TURN, VB_YIELD_NAP };

struct vb_yield {
    uint32_t polls;      /* polls in vain since the last completion; a completion clears it */
    bool shares;         /* the last yield let a thread run that gave the processor back soon */
    uint64_t looked;     /* the last call of vb_yield_due or vb_yielded */
    uint64_t since;      /* when the polls in vain began that are close to each other */
    uint64_t naps_until; /* until then the thread sleeps in place of a yield */
};

/* At every VB_YIELD_PERIOD polls in vain: what the thread is to do now. */
static inline enum vb_yield_how vb_yield_due(struct vb_yield *yield, uint64_t now)
{
    bool is_first = yield->polls < 2 * VB_YIELD_PERIOD;
    bool is_apart = now - yield->looked > VB_YIELD_APART_NS && !is_first;

    yield->looked = now;
    if (is_apart)
        yield->shares = false;
    if (is_first || is_apart)
        yield->since = now;
    if (!yield->shares && now - yield->since < VB_YIELD_AFTER_NS)
        return VB_YIELD_NOT;
    return now < yield->naps_until ? VB_YIELD_NAP : VB_YIELD_TURN;
}

/* Notes that the thread has yielded or slept, from `before` to `now`. */
static inline void vb_yielded(struct vb_yield *yield, enum vb_yield_how how, uint64_t before,
                              uint64_t now)
{
    uint64_t took = now - before;

    yield->looked = yield->since = now;
    yield->shares = how == VB_YIELD_TURN && took >= VB_YIELD_SWITCH_NS && took < VB_YIELD_SLICE_NS;
    if (how == VB_YIELD_TURN && took >= VB_YIELD_SLICE_NS)
        yield->naps_until = now + VB_YIELD_NAPS_NS;
}

static inline void vb_yield(enum vb_yield_how how)
{
    const struct timespec shortest = {.tv_nsec = 1}; /* and the thread's timer slack, 50 µs */

    if (how == VB_YIELD_TURN)
        sched_yield();
    else
        clock_nanosleep(CLOCK_MONOTONIC, 0, &shortest, NULL);
}

#endif
