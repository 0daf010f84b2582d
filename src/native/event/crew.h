// SPDX-License-Identifier: Apache-2.0
/*
 * The threads that run a world's partitions, one each, and the boxes in which partitions leave
 * messages for each other. The thread that calls vb_world_run runs partition 0; the others sleep
 * between two runs. run.c calls this for each window.
 *
 * In a window, a thread runs its partition, and writes only to the boxes from it. After a barrier
 * it reads the boxes for it. So a partition is touched by one thread at a time. Without the threads
 * (a system that makes no more, or the child of a fork) the caller's thread runs all partitions.
 */
#ifndef VB_EVENT_CREW_H
#define VB_EVENT_CREW_H

#include <pthread.h>
#include <sys/types.h>

#include "event/lanes.h"
#include "event/partition.h"

enum vb_world_message_kind {
    VB_WORLD_MESSAGE_CALL,    /* vb_world_tell */
    VB_WORLD_MESSAGE_PACKETS, /* port `to` gets the packets that its other end has sent */
    VB_WORLD_MESSAGE_CONTROL, /* port `to` gets a control record */
};

struct vb_world_message {
    uint32_t kind;
    uint32_t to; /* a node, or a port */
    union {
        struct vb_world_agenda_entry call;
        struct vb_world_control record;
    };
};

/* What one partition has left for another. */
struct vb_world_box {
    struct vb_world_message *message;
    uint32_t count, room;
};

struct vb_world_crew {
    struct vb_world *world;
    uint32_t threads;  /* with that of the caller; 1: there are no others */
    pthread_t *thread; /* from 1 on */
    pid_t process;     /* which has the threads */
    uint32_t boxes;
    struct vb_world_box *box;      /* [from * partitions + to] */
    uint64_t limit;                /* of the window */
    uint64_t events;               /* before the last window */
    bool ends;                     /* the threads are to end */
    _Alignas(64) uint32_t arrived; /* threads, at the barrier */
    _Alignas(64) uint32_t round;   /* changes when all have arrived; sleepers wait for that */
    uint32_t sleepers;
};

/* Makes the threads and the boxes for the world's partitions. -ENOMEM. */
int vb_world_crew_make(struct vb_world *world);
void vb_world_crew_free(struct vb_world_crew *crew);
/* -ENOMEM. */
int vb_world_box_grow(struct vb_world_box *box);
/*
 * Runs a window that ends with the time `limit`, and delivers what was sent in it. If the window
 * before had fewer events than are worth a barrier, the caller's thread runs all partitions.
 */
void vb_world_crew_run(struct vb_world *world, uint64_t limit);
/* run.c: handles the events of a partition up to the time `limit`. */
void vb_world_partition_run(struct vb_world_partition *part, uint64_t limit);

#endif
