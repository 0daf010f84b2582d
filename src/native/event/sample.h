// SPDX-License-Identifier: Apache-2.0
/*
 * Queues looked at again and again: how much waits, the credits, who is paused. A sampler's records
 * stay where they are while the world lives, so that they can be read where they were written;
 * their memory is taken page by page as they come. Looking changes nothing, and a world without
 * samplers has no events of theirs.
 */
#ifndef VB_EVENT_SAMPLE_H
#define VB_EVENT_SAMPLE_H

#include "event/world.h"

static const uint32_t VB_WORLD_UNLIMITED = UINT32_MAX;

struct vb_world_sample {
    uint32_t bytes;   /* that wait; without lanes also what is left of the packet that is sent */
    uint32_t credits; /* bytes that may be sent, in whole blocks; VB_WORLD_UNLIMITED */
    uint32_t held;    /* bytes that came in by this port and lane and are still in the node */
    uint8_t paused;   /* the other end said so */
    uint8_t stopped;  /* the other end was told to pause */
    uint16_t reserved;
};

struct vb_world_sampled_queue {
    uint32_t port; /* vb_world.port */
    uint32_t lane; /* without lanes: 0 */
};

struct vb_world_sampler {
    struct vb_world_sampled_queue *queue;
    uint32_t queues;
    uint64_t interval; /* ps */
    uint64_t limit;    /* rows that there is room for */
    uint64_t rows;
    bool planned;
    bool stopped;
    uint64_t *at;                   /* [row] */
    struct vb_world_sample *sample; /* [row][queue] */
};

/*
 * From `start` on, each `interval`, up to `limit` times. `*number`: its place among the world's
 * samplers. The ports and lanes are there, and the start is not in the past. -ENOMEM: no address
 * space for so much.
 */
int vb_world_add_sampler(struct vb_world *world, const struct vb_world_sampled_queue *queues,
                         uint32_t count, uint64_t interval, uint64_t start, uint64_t limit,
                         uint32_t *number);
/* No more rows. */
void vb_world_sampler_stop(struct vb_world_sampler *sampler);
/* The event VB_WORLD_SAMPLE. */
void vb_world_sampler_look(struct vb_world *world, uint32_t number);
void vb_world_samplers_free(struct vb_world *world);

#endif
