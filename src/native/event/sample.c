// SPDX-License-Identifier: Apache-2.0
/*
 * Samplers: each appends a row with the state of its queues at regular times. The Python binding
 * makes them, and run.c calls vb_world_sampler_look.
 */
#include "event/sample.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "event/lanes.h"
#include "event/link.h"

/* ---- one row --------------------------------------------------------------------------------- */

static uint32_t at_most(uint64_t value)
{
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

/* The lane as if its port had applied the control records that have arrived by now. */
static struct vb_world_lane seen(const struct vb_world *world, const struct vb_world_port *port,
                                 uint32_t number)
{
    const struct vb_world_lanes *lanes = port->lanes;
    struct vb_world_lane lane = lanes->lane[number];

    for (uint32_t i = 0; i < lanes->control_count; ++i) {
        const struct vb_world_control *record = vb_world_lanes_control(lanes, i);

        if (record->at > world->now)
            break;
        if (record->lane == number)
            vb_world_lane_apply(&lane, record, port->rate);
    }
    return lane;
}

static uint32_t credits_of(const struct vb_world_lane *lane)
{
    uint64_t limit = vb_world_lane_limit(lane);

    if (lane->flow_control != VB_WORLD_CREDITS)
        return VB_WORLD_UNLIMITED;
    return at_most((limit > lane->sent ? limit - lane->sent : 0) * VB_WORLD_CREDIT_BLOCK);
}

static void look_at_lane(const struct vb_world *world, const struct vb_world_port *port,
                         uint32_t number, struct vb_world_sample *sample)
{
    struct vb_world_lane lane = seen(world, port, number);
    bool blocks = lane.input_flow_control == VB_WORLD_CREDITS;

    *sample = (struct vb_world_sample){
        .bytes = lane.bytes,
        .credits = credits_of(&lane),
        .held = blocks ? at_most((uint64_t)lane.held * VB_WORLD_CREDIT_BLOCK) : lane.held,
        .paused = lane.paused && world->now < lane.paused_until,
        .stopped = lane.stopped,
    };
}

static void look_at(const struct vb_world *world, const struct vb_world_sampled_queue *queue,
                    struct vb_world_sample *sample)
{
    const struct vb_world_port *port = &world->port[queue->port];

    if (port->lanes)
        look_at_lane(world, port, queue->lane, sample);
    else
        *sample = (struct vb_world_sample){.bytes = at_most(vb_world_backlog(world->now, port)),
                                           .credits = VB_WORLD_UNLIMITED};
}

static void sample_plan(struct vb_world *world, uint32_t number, uint64_t at)
{
    world->sampler[number]->planned = true;
    ++world->watching;
    vb_world_plan(world, at, VB_WORLD_SAMPLE, 0, number);
}

void vb_world_sampler_look(struct vb_world *world, uint32_t number)
{
    struct vb_world_sampler *sampler = world->sampler[number];
    struct vb_world_sample *row = sampler->sample + sampler->rows * sampler->queues;

    --world->watching;
    sampler->planned = false;
    if (sampler->stopped)
        return;
    for (uint32_t i = 0; i < sampler->queues; ++i)
        look_at(world, &sampler->queue[i], &row[i]);
    sampler->at[sampler->rows++] = world->now;
    if (sampler->rows < sampler->limit)
        sample_plan(world, number, world->now + sampler->interval);
    else
        sampler->stopped = true;
}

/* ---- making and freeing ---------------------------------------------------------------------- */

/* Reserves address space; the kernel allocates each page when it is first written. */
static void *sample_reserve(uint64_t count, size_t size)
{
    void *made;

    if (count > (SIZE_MAX >> 1) / size)
        return NULL;
    made = mmap(NULL, count * size, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return made == MAP_FAILED ? NULL : made;
}

static void free_sampler(struct vb_world_sampler *sampler)
{
    if (sampler->at)
        munmap(sampler->at, sampler->limit * sizeof(*sampler->at));
    if (sampler->sample)
        munmap(sampler->sample, sampler->limit * sampler->queues * sizeof(*sampler->sample));
    free(sampler->queue);
    free(sampler);
}

static struct vb_world_sampler *make_sampler(const struct vb_world_sampled_queue *queues,
                                             uint32_t count, uint64_t interval, uint64_t limit)
{
    struct vb_world_sampler *made = calloc(1, sizeof(*made));

    if (!made)
        return NULL;
    made->queues = count;
    made->interval = interval;
    made->limit = limit;
    made->queue = malloc(count * sizeof(*made->queue));
    made->at = sample_reserve(limit, sizeof(*made->at));
    made->sample = sample_reserve(limit, count * sizeof(*made->sample));
    if (made->queue && made->at && made->sample) {
        memcpy(made->queue, queues, count * sizeof(*queues));
        return made;
    }
    free_sampler(made);
    return NULL;
}

int vb_world_add_sampler(struct vb_world *world, const struct vb_world_sampled_queue *queues,
                         uint32_t count, uint64_t interval, uint64_t start, uint64_t limit,
                         uint32_t *number)
{
    struct vb_world_sampler **grown;

    grown = realloc(world->sampler, (world->samplers + 1) * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    world->sampler = grown;
    grown[world->samplers] = make_sampler(queues, count, interval, limit);
    if (!grown[world->samplers])
        return -ENOMEM;
    *number = world->samplers++;
    sample_plan(world, *number, start);
    return world->error;
}

void vb_world_sampler_stop(struct vb_world_sampler *sampler)
{
    sampler->stopped = true;
}

void vb_world_samplers_free(struct vb_world *world)
{
    for (uint32_t i = 0; i < world->samplers; ++i)
        free_sampler(world->sampler[i]);
    free(world->sampler);
}
