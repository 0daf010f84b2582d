// SPDX-License-Identifier: Apache-2.0
/*
 * Samplers record the state of queues at regular times: bytes, credits, pauses. The Python binding
 * makes them. A sampler's rows do not move in memory, so NumPy arrays view them directly; pages are
 * allocated as rows are written. Sampling does not change the run.
 */
#ifndef VB_EVENT_SAMPLE_H
#define VB_EVENT_SAMPLE_H

#include "event/world.h"

static const uint32_t VB_WORLD_UNLIMITED = UINT32_MAX;

struct vb_world_sample {
    uint32_t bytes; /* in the queue; without lanes also the rest of the packet that is being sent */
    uint32_t credits; /* bytes that credits allow, in whole blocks; or VB_WORLD_UNLIMITED */
    uint32_t held;    /* bytes in the node that came in by this port and lane */
    uint8_t paused;   /* this port may not send: the other end has paused it */
    uint8_t stopped;  /* this port has paused the other end */
    uint16_t reserved;
};

struct vb_world_sampled_queue {
    uint32_t port; /* vb_world.port */
    uint32_t lane; /* 0 for a port without lanes */
};

struct vb_world_sampler {
    struct vb_world_sampled_queue *queue;
    uint32_t queues;
    uint64_t interval; /* ps */
    uint64_t limit;    /* the most rows */
    uint64_t rows;
    bool planned;
    bool stopped;
    uint64_t *at;                   /* [row] */
    struct vb_world_sample *sample; /* [row][queue] */
};

/*
 * Samples these queues from `start` on, after each `interval`, up to `limit` times. `*number` is
 * the sampler's index in the world. The caller has checked that ports and lanes exist and that
 * `start` is not in the past. -ENOMEM.
 */
int vb_world_add_sampler(struct vb_world *world, const struct vb_world_sampled_queue *queues,
                         uint32_t count, uint64_t interval, uint64_t start, uint64_t limit,
                         uint32_t *number);
/* The sampler writes no further rows. */
void vb_world_sampler_stop(struct vb_world_sampler *sampler);
/* Handles the event VB_WORLD_SAMPLE: writes a row. */
void vb_world_sampler_look(struct vb_world *world, uint32_t number);
void vb_world_samplers_free(struct vb_world *world);

#endif
