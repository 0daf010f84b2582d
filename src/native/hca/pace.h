// SPDX-License-Identifier: Apache-2.0
/*
 * A QP's rate limit (ibv_modify_qp_rate_limit), as a token bucket. Each packet, or with the direct
 * carrier each request, uses the time that it takes at the rate; the next is sent when that time is
 * over, or earlier by a burst. A sender that was woken late makes up for it, so the rate holds with
 * a coarse timer; one that had nothing to send gains a burst at most. The carriers call this under
 * their lock of the QP.
 */
#ifndef VB_HCA_PACE_H
#define VB_HCA_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_RATE_MIN = 1,                 /* kbit/s */
    VB_RATE_MAX = 100 * 1000 * 1000, /* kbit/s: the rate of a port */
    VB_PACE_LATE = 20 * 1000 * 1000, /* ns of lateness that a sender makes up for, at most */
};

struct vb_pace {
    uint32_t rate;  /* kbit/s; 0: no limit */
    uint32_t burst; /* bytes */
    uint64_t clear; /* ns: when the time of all that was sent is over */
    uint64_t rest;  /* the remainder of the last division, in bits · 10^6 / rate */
    bool waiting;   /* the sender had to wait, and has not made up for its lateness since */
};

/* The time that so many bytes take; remainders add up, so the sum is exact. */
static inline uint64_t vb_pace_time(struct vb_pace *pace, uint64_t bytes)
{
    uint64_t units = bytes * 8 * 1000 * 1000 + pace->rest;

    pace->rest = units % pace->rate;
    return units / pace->rate;
}

/* The time from which on the next may be sent. */
static inline uint64_t vb_pace_due(const struct vb_pace *pace)
{
    uint64_t burst = (uint64_t)pace->burst * 8 * 1000 * 1000 / pace->rate;

    return pace->clear > burst ? pace->clear - burst : 0;
}

static inline bool vb_pace_waits(struct vb_pace *pace, uint64_t now)
{
    bool waits = vb_pace_due(pace) > now;

    pace->waiting |= waits;
    return waits;
}

static inline void vb_pace_sent(struct vb_pace *pace, uint64_t bytes, uint64_t now)
{
    uint64_t late = pace->waiting ? VB_PACE_LATE : 0, least = now > late ? now - late : 0;

    if (pace->clear < least)
        pace->clear = least;
    pace->clear += vb_pace_time(pace, bytes);
    if (pace->clear > now)
        pace->waiting = false;
}

#endif
