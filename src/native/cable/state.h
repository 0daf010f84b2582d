// SPDX-License-Identifier: Apache-2.0
/*
 * The stations of a cable and the order in which they begin. episode.c has what becomes of them,
 * and waiting.c who begins next.
 */
#pragma once

#include "cable/cable.h"

/* Stations are fewer than two to this, and delays have the other bits of 64. */
enum { VB_CABLE_NUMBER_BITS = 20 };

enum { VB_CABLE_BUCKETS = 1024 }; /* a power of two: the longest backoff is 1,023 slots */

enum { VB_CABLE_LINE = 64 }; /* bytes, of a processor's cache */

/* Each episode looks at the first line, up to `deferred`. */
struct vb_cable_station {
    _Alignas(VB_CABLE_LINE) uint64_t place; /* a delay */
    uint64_t timer;                         /* from when on it wants to begin */
    uint64_t ready;                         /* its own last transmission and the gap are over */
    uint32_t rank;                          /* its number by place */
    uint32_t next;                          /* of its bucket, plus 1 */
    uint32_t bits;                          /* of the frame, without header; 0: it has none */
    uint32_t tried;
    uint64_t source_mean_ps;
    bool deferred;
    bool makes_frames;
    uint32_t source_bits;
    struct vb_cable_counters counters;
    uint64_t born; /* when the frame was offered */
    uint64_t token;
    uint64_t source_next; /* when the frame after this one is born */
};

struct vb_cable_timer {
    uint64_t at;
    uint32_t station;
};

/* A station whose time has come. */
struct vb_cable_near {
    uint64_t attempt; /* when it begins if it hears nothing */
    uint32_t station;
};

/* A station that transmits in the episode that is worked out. */
struct vb_cable_talker {
    uint64_t start, end;
    uint64_t heard; /* when the first signal of another talker arrives; VB_CABLE_NEVER: none does */
    uint64_t place; /* of the station */
    uint32_t station;
    bool cut, crossed; /* it noticed the collision; it did not */
};

static inline uint64_t vb_cable_random(struct vb_cable *cable)
{
    uint64_t z = cable->random += 0x9e3779b97f4a7c15u; /* SplitMix64 (Steele, Lea, Flood 2014) */

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* In (0, 1). */
static inline double vb_cable_fraction(struct vb_cable *cable)
{
    return ((double)(vb_cable_random(cable) >> 11) + 0.5) * 0x1p-53;
}

/* Puts a station that has a frame to those that wait. */
void vb_cable_wait(struct vb_cable *cable, uint32_t station, uint64_t until);

/*
 * The start of the next episode; VB_CABLE_NEVER: there is none. Then all stations that begin
 * before `start + longest_ps` are in `near`.
 */
uint64_t vb_cable_earliest(struct vb_cable *cable);

/*
 * Moves the stations of the episode that starts then from `near` to `talker`, by start, with the
 * time at which each hears another.
 */
void vb_cable_gather(struct vb_cable *cable, uint64_t start);

/* After an episode: its signals are in `busy`, and those in `near` wait for its end. */
void vb_cable_settle(struct vb_cable *cable);
