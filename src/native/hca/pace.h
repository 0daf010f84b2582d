// SPDX-License-Identifier: Apache-2.0
/*
 * A QP's rate limit: after each packet (directly: request) it owes the time that this takes at the
 * rate, and sends again when it has paid, up to a burst. A debt is not forgiven because somebody
 * looked late, so that the rate holds however coarse the clock is that the port sleeps by; who had
 * nothing to send collects no more than the burst.
 */
#ifndef VB_HCA_PACE_H
#define VB_HCA_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_RATE_MIN = 1,                 /* kbit/s */
    VB_RATE_MAX = 100 * 1000 * 1000, /* the port's */
    VB_PACE_LATE = 20 * 1000 * 1000, /* ns that are made up for, once a sender comes late */
};

struct vb_pace {
    uint32_t rate;  /* kbit/s; 0: no limit */
    uint32_t burst; /* bytes */
    uint64_t clear; /* ns: when all that was sent is paid for */
    uint64_t rest;  /* of the last division, in bits · 10^6 / rate */
    bool waiting;   /* it was told to wait, and what it owed since is not made up for yet */
};

/* How long that many bytes take, exactly in the long run. */
static inline uint64_t vb_pace_time(struct vb_pace *pace, uint64_t bytes)
{
    uint64_t units = bytes * 8 * 1000 * 1000 + pace->rest;

    pace->rest = units % pace->rate;
    return units / pace->rate;
}

/* When the next may be sent: now or earlier, or then. */
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
