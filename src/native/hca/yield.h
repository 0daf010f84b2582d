// SPDX-License-Identifier: Apache-2.0
/*
 * When a thread that polls in vain gives its processor away: two ends on one core would otherwise
 * wait for each other's time slice, milliseconds for each message.
 *
 * A poll is too short for a look at the clock, so the thread counts (vb_yield.polls), and at every
 * VB_YIELD_PERIOD asks vb_yield_due. It is due after 16 µs without a completion, which peers on
 * other cores do not need; or at once, as long as the yields before brought somebody who gave the
 * processor back soon: then the peer is likely to be on this core. A thread whose polls are far
 * apart has other work to do, and keeps its processor.
 *
 * Who got the processor and kept it for a time slice computes. A yield would give it a slice for
 * each message, so for a while the thread naps instead: the system wakes it amid the other's slice.
 * Beside such neighbours a message took 0.3 ms on one core (yields: 6 ms, neither: 57 ms), and on
 * two cores 60 µs (1.1 ms, 250 µs).
 *
 * Of one thread; times are nanoseconds of any clock that goes on while the thread does not run.
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
    VB_YIELD_SWITCH_NS = 2000,  /* a yield that took less found nobody */
    VB_YIELD_SLICE_NS = 500000, /* who was there kept the processor */
    VB_YIELD_NAPS_NS = 20000000,
};

enum vb_yield_how { VB_YIELD_NOT, VB_YIELD_TURN, VB_YIELD_NAP };

struct vb_yield {
    uint32_t polls;      /* in vain since the last completion; who completes clears it */
    bool shares;         /* the last yield brought somebody who came back soon */
    uint64_t looked;     /* the last call of vb_yield_due or vb_yielded */
    uint64_t since;      /* polls in vain, and close to each other */
    uint64_t naps_until; /* yields are naps */
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

/* The thread did so, from `before` to `now`. */
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
