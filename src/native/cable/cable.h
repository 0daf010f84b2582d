// SPDX-License-Identifier: Apache-2.0
/*
 * A half-duplex Ethernet: stations on one coaxial cable or one hub, with CSMA/CD as in IEEE 802.3
 * clause 4. verbena.lan makes it by the binding _cable and decides everything else; one thread
 * uses a cable. Times are picoseconds, lengths are delays.
 *
 * Time goes in episodes. An episode begins when the first station begins to transmit, and has all
 * stations that begin before they hear another one of the episode. What follows an episode at a
 * station begins when all its signals have passed there and the interframe gap is over. This is
 * exact where every collision is noticed, since then no signal reaches a station in a gap. On a
 * cable that is too long a station whose frame ended before the collision reached it
 * waits for that signal, too.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VB_CABLE_NEVER UINT64_MAX

enum { VB_CABLE_CELLS = 256 };

struct vb_cable_config {
    uint64_t bit_ps;
    uint64_t seed;
    uint32_t slot_bits;     /* a collision after that time is late, and backoff counts in slots */
    uint32_t gap_bits;      /* between frames */
    uint32_t header_bits;   /* preamble and start delimiter; a collision does not cut them */
    uint32_t jam_bits;      /* sent after a collision was noticed */
    uint32_t fragment_bits; /* the least that a station transmits in a collision */
    uint32_t tries;         /* of a frame; it is given up after so many collisions */
    uint32_t doublings;     /* of the backoff's range */
    bool star;              /* places are lengths of legs to a hub, and not points of a cable */
    /*
     * In place of backoff each station that has a frame begins in each slot after an episode with
     * probability 1 / stations, as in the analysis of Metcalfe and Boggs (1976).
     */
    bool ideal;
    bool log_collisions;
};

enum vb_cable_outcome {
    VB_CABLE_SENT,
    VB_CABLE_CROSSED,   /* sent, but its signal met another one and the sender did not notice */
    VB_CABLE_LATE,      /* lost by a late collision */
    VB_CABLE_EXCESSIVE, /* given up after config.tries collisions */
    VB_CABLE_COLLIDED   /* will be tried again; only with log_collisions */
};

struct vb_cable_entry {
    uint64_t start, end; /* of the sender's signal */
    uint64_t token;      /* of the frame */
    uint32_t station;
    uint16_t outcome;
    uint16_t collisions; /* of this frame so far */
};

struct vb_cable_counters {
    uint64_t sent, sent_bits; /* without header; those that crossed another one are not in them */
    uint64_t collisions, deferred, excessive, late, crossed;
    uint64_t waited_ps; /* of frames that were sent: from when they were offered to their start */
};

struct vb_cable_station;
struct vb_cable_timer;
struct vb_cable_talker;
struct vb_cable_near;

/* The last episode, as needed to say when it has passed at any place. */
struct vb_cable_busy {
    int64_t rising, falling; /* a cable: the most of end + place and of end - place */
    int64_t longest, second; /* a hub: the two largest of end + place */
    uint32_t longest_is;     /* whose the largest is */
    uint64_t until;          /* no station is free later */
};

struct vb_cable {
    struct vb_cable_config config;
    uint64_t random;
    uint64_t gap_ps, slot_ps, header_ps, jam_ps, fragment_ps;
    uint64_t longest_ps; /* between two stations */
    uint32_t stations;
    struct vb_cable_station *station;
    uint32_t *bucket;            /* the first station that waits for a time in each; waiting.c */
    uint64_t *filled;            /* a bit for each bucket that has one */
    uint32_t in_buckets;         /* stations */
    uint32_t bucket_bits;        /* the length of a bucket is two to this, in ps */
    uint64_t from;               /* the first bucket that may have one: a time in such lengths */
    uint64_t from_timer;         /* the earliest of that bucket; VB_CABLE_NEVER: it has none */
    struct vb_cable_timer *heap; /* frames that wait for a later time, the earliest first */
    uint32_t in_heap;
    struct vb_cable_near *near; /* stations that may begin next */
    uint32_t in_near;
    struct vb_cable_near *candidate; /* those of them that begin, or hear another one before */
    struct vb_cable_talker *talker;  /* of the episode that is worked out */
    uint32_t talkers;
    uint64_t *key;                 /* of talkers that are sorted */
    uint64_t *spare;               /* keys whose cell was taken */
    uint64_t cell[VB_CABLE_CELLS]; /* one key for each part of `longest_ps` */
    uint32_t cell_shift;           /* a part's length is two to this, in ps */
    uint64_t *among;               /* a bit for each rank: that station is a talker */
    uint32_t *talker_at;           /* by rank: its number in `talker` */
    double ideal_log;              /* of the probability that a station does not begin in a slot */
    struct vb_cable_busy busy;
    uint64_t collisions; /* episodes with more than one station */
    uint64_t runs;       /* a run is a sequence of frames of one station */
    uint32_t last_sender;
    uint64_t last_end; /* of a frame that was sent */
};

/* `place` has a delay for each station. -EINVAL: nothing can be transmitted, or it is too far. */
int vb_cable_open(struct vb_cable *cable, const struct vb_cable_config *config, uint32_t stations,
                  const uint64_t *place);
void vb_cable_close(struct vb_cable *cable);

/* Gives a station its next frame, of `bits` without header. -EBUSY: it has one. */
int vb_cable_offer(struct vb_cable *cable, uint32_t station, uint64_t now, uint64_t born,
                   uint32_t bits, uint64_t token);

/*
 * From `now` on the station makes frames by itself: one after the other with `mean_ps` = 0, else
 * at random (Poisson), which queue without limit.
 */
int vb_cable_source(struct vb_cable *cable, uint32_t station, uint64_t now, uint32_t bits,
                    uint64_t mean_ps);

/*
 * The time from which on the next episode can be worked out: what stations are offered up to then
 * may still take part. VB_CABLE_NEVER: no station has a frame.
 */
uint64_t vb_cable_next(struct vb_cable *cable);

/*
 * Works out the episodes up to `until` and writes what became of frames to `log`, which may be
 * NULL. Comes back earlier when `capacity` may not be enough for the next one, or after
 * `frames` frames were sent. The number of entries; they are in the order of episodes.
 */
uint32_t vb_cable_run(struct vb_cable *cable, uint64_t until, uint64_t frames,
                      struct vb_cable_entry *log, uint32_t capacity);

const struct vb_cable_counters *vb_cable_counters(const struct vb_cable *cable, uint32_t station);
