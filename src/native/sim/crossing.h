// SPDX-License-Identifier: Apache-2.0
/*
 * Turns between two processes: the world is in one, and the HCAs of a host's program are in the
 * other. Their pages (protocol.h) lie in one segment that both map. The side without the turn waits
 * on a futex in it. Each side has one end of a socket, which tells that the other process has
 * ended.
 *
 * The world gives the turn to the HCAs for an event, and to the program to run. The program gives
 * it back with a question, when the event is handled, or when it has nothing to do. The Python
 * bindings of both sides call this; a segment has one thread on each side.
 */
#ifndef VB_SIM_CROSSING_H
#define VB_SIM_CROSSING_H

#include <stdatomic.h>

#include "sim/protocol.h"

struct vb_sim;

enum {
    VB_SIM_PAGES = 16,        /* adapters of a host */
    VB_SIM_LETTERS = 1 << 16, /* bytes of messages beside the fabric, in each direction */
};

/* What the side wants that gives the turn away. */
enum vb_sim_want {
    /* the program: */
    VB_SIM_WANT_ANSWER, /* the turn again, with the answer to its question */
    VB_SIM_WANT_EVENT,  /* nothing: it has handled the event */
    VB_SIM_WANT_TIME,   /* time to pass until `until`, or until a descriptor is readable */
    VB_SIM_WANT_STEP,   /* the same, or until an event was handled */
    VB_SIM_WANT_END,    /* nothing any more: the process ends */
    /* the world: */
    VB_SIM_WANT_CALL,  /* the program to go on with its call */
    VB_SIM_WANT_SERVE, /* its HCAs to take the messages of `in` */
    VB_SIM_WANT_RUN,   /* the program to run, since `why` */
};

struct vb_sim_segment {
    uint32_t version;
    uint32_t pages;
    uint64_t page[VB_SIM_PAGES]; /* their distance from the segment's start */
    _Atomic uint32_t turn;       /* a futex; 0: the world's, 1: the program's */
    uint32_t want;               /* enum vb_sim_want of the side that gave the turn away */
    int32_t why; /* 1: it has something to do; 0: the time is `until`; -EDEADLK: nothing is left to
                    happen; -ESHUTDOWN: all programs have returned */
    uint64_t now, until;                /* ps */
    uint32_t written[2];                /* bytes in `letters`: to the world, to the program */
    uint8_t letters[2][VB_SIM_LETTERS]; /* verbena.sim.letters has their form */
};

/* One side of a segment. */
struct vb_sim_crossing {
    struct vb_sim_segment *segment;
    uint32_t side;      /* the value of `turn`: 0 or 1 */
    int lifeline;       /* this end of the socket */
    int error;          /* -EPIPE: the other process has ended; -EINTR */
    bool steps;         /* the world's side: the program waits for VB_SIM_WANT_STEP */
    struct vb_sim *sim; /* the world's side */
    struct vb_sim_attachment *attachment[VB_SIM_PAGES]; /* by page */
    int (*interrupted)(void); /* called while it waits, but not for an answer; not 0: it waits no
                                 longer */
};

/*
 * Gives the turn to the other side and returns when this side may go on: the world when the program
 * waits for time, or has ended; the program when it may run, or has its answer. 0; -EPIPE: the
 * other process has ended; -EINTR. After an error it fails at once.
 */
int vb_sim_crossing_give(struct vb_sim_crossing *crossing, enum vb_sim_want want);
/* Waits for the first turn, in the program. */
int vb_sim_crossing_await(struct vb_sim_crossing *crossing);
/* Gives the turn to the world for ever. */
void vb_sim_crossing_end(struct vb_sim_crossing *crossing);

/* vb_sim_attachment.turn of the program, and .serve of the world; vb_sim_attachment.crossing. */
int vb_sim_crossing_turn(struct vb_sim_attachment *attachment);
void vb_sim_crossing_serve(void *crossing);

#endif
