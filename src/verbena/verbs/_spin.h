// SPDX-License-Identifier: Apache-2.0
// Waiting without the GIL and without a system call.
#ifndef VERBENA_VERBS_SPIN_H
#define VERBENA_VERBS_SPIN_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "abi/verbs.h"
#include "hca/yield.h"

// A pause costs 40 ns on recent CPUs, so the first turns, where latency counts, do without.
enum { VB_GLANCES = 512, VB_EAGER_TURNS = 4096, VB_TURNS_PER_CLOCK = 256 };

static inline uint64_t vb_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void vb_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline bool vb_spin_over(uint32_t turn, uint64_t deadline)
{
    if (turn > VB_EAGER_TURNS)
        vb_pause();
    return turn % VB_TURNS_PER_CLOCK == 0 && vb_now_ns() >= deadline;
}

// The time of the last timer interrupt, up to 10 ms ago: costs less than a poll, on any machine.
static inline uint64_t vb_coarse_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// Lets another thread run where this one has been spinning in vain for long (hca/yield.h).
static inline void vb_spin_yield(uint32_t turn)
{
    static _Thread_local struct vb_yield yield;
    uint64_t before = vb_now_ns();
    enum vb_yield_how how;

    yield.polls = turn / VB_TURNS_PER_CLOCK * VB_YIELD_PERIOD;
    how = vb_yield_due(&yield, before);
    if (how == VB_YIELD_NOT)
        return;
    vb_yield(how);
    vb_yielded(&yield, how, before, vb_now_ns());
}

static inline uint64_t vb_load_u64(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void vb_store_u64(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

// A few hundred nanoseconds' worth of looking; for callers who hold the GIL meanwhile, because
// giving it up and taking it back costs as much as a fast peer's answer takes.
static inline bool vb_glance_u64(const uint64_t *word, uint64_t value)
{
    for (int turn = 0; turn < VB_GLANCES; turn++)
        if (vb_load_u64(word) == value)
            return true;
    return false;
}

// True when the word became `value` before `deadline` (nanoseconds of CLOCK_MONOTONIC).
static inline bool vb_spin_u64(const uint64_t *word, uint64_t value, uint64_t deadline)
{
    for (uint32_t turn = 1; vb_load_u64(word) != value; turn++) {
        if (vb_spin_over(turn, deadline))
            return vb_load_u64(word) == value;
        if (turn % VB_TURNS_PER_CLOCK == 0)
            vb_spin_yield(turn);
    }
    return true;
}

// Polls until something completed or the deadline passed; returns what ibv_poll_cq does. It is
// Verbena's ibv_poll_cq that yields. A poll that tries a request of a stopped peer may take 80 ms,
// so each one is followed by a look at the coarse clock: 256 of them would be 20 s too late.
static inline int vb_spin_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc, uint64_t deadline)
{
    for (uint32_t turn = 1;; turn++) {
        int found = cq->context->ops.poll_cq(cq, room, wc);
        if (found != 0 || vb_spin_over(turn, deadline) || vb_coarse_now_ns() >= deadline)
            return found;
    }
}

#endif
