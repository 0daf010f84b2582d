// SPDX-License-Identifier: Apache-2.0
/*
 * Dependencies between flows. Each flow has a list of successors. flows.c builds the lists when
 * flows are added, after a check for cycles, and releases a flow's successors when it was received.
 */
#include <errno.h>
#include <stdlib.h>

#include "sim/state.h"

enum { FIRST_SUCCESSORS = 64 };

/* The graph: each flow's successors as a list, and its number of predecessors. */
struct order {
    uint32_t *waits, *first, *next, *free;
};

static void free_order(struct order *order)
{
    free(order->waits);
    free(order->first);
    free(order->next);
    free(order->free);
}

static int make_order(struct order *order, const struct vb_sim_dependency *after, uint64_t afters,
                      uint64_t count)
{
    *order = (struct order){
        .waits = calloc(count, sizeof(*order->waits)),
        .first = malloc(count * sizeof(*order->first)),
        .next = malloc(afters * sizeof(*order->next)),
        .free = malloc(count * sizeof(*order->free)),
    };
    if (!order->waits || !order->first || !order->next || !order->free)
        return -ENOMEM;
    for (uint64_t i = 0; i < count; ++i)
        order->first[i] = VB_WORLD_NONE;
    for (uint64_t i = 0; i < afters; ++i) {
        ++order->waits[after[i].then];
        order->next[i] = order->first[after[i].first];
        order->first[after[i].first] = (uint32_t)i;
    }
    return 0;
}

/* Sorts topologically (Kahn, 1962). Returns a flow that is left, or `count`: there is no cycle. */
static uint64_t left_over(struct order *order, const struct vb_sim_dependency *after,
                          uint64_t count)
{
    uint64_t found = 0;

    for (uint64_t i = 0; i < count; ++i)
        if (!order->waits[i])
            order->free[found++] = (uint32_t)i;
    for (uint64_t done = 0; done < found; ++done)
        for (uint32_t at = order->first[order->free[done]]; at != VB_WORLD_NONE;
             at = order->next[at])
            if (!--order->waits[after[at].then])
                order->free[found++] = after[at].then;
    for (uint64_t i = 0; found < count && i < count; ++i)
        if (order->waits[i])
            return i;
    return count;
}

int vb_sim_dependencies_check(const struct vb_sim_dependency *after, uint64_t afters,
                              uint64_t count, uint64_t *bad)
{
    struct order order;
    int error = make_order(&order, after, afters, count);

    if (!error) {
        *bad = left_over(&order, after, count);
        error = *bad < count ? -EDEADLK : 0;
    }
    free_order(&order);
    return error;
}

int vb_sim_dependencies_reserve(struct vb_sim *sim, uint64_t afters)
{
    uint64_t room = sim->successor_room ? sim->successor_room : FIRST_SUCCESSORS;
    struct vb_sim_successor *grown;

    if (sim->successors + afters >= VB_WORLD_NONE)
        return -ENOMEM;
    while (room < sim->successors + afters)
        room *= 2;
    if (room == sim->successor_room)
        return 0;
    grown = realloc(sim->successor, room * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    sim->successor = grown;
    sim->successor_room = room;
    return 0;
}

/* From the last to the first, so that successors start in the order given. */
void vb_sim_dependencies_add(struct vb_sim *sim, const struct vb_sim_dependency *after,
                             uint64_t afters, uint32_t base)
{
    for (uint64_t i = afters; i-- > 0;) {
        struct vb_sim_flow *first = &sim->flow[base + after[i].first];

        ++sim->flow[base + after[i].then].waits;
        sim->successor[sim->successors] =
            (struct vb_sim_successor){base + after[i].then, first->successor};
        first->successor = (uint32_t)sim->successors++;
    }
}

void vb_sim_dependencies_release(struct vb_sim *sim, struct vb_sim_flow *flow)
{
    uint32_t at = flow->successor;

    flow->successor = VB_WORLD_NONE;
    for (; at != VB_WORLD_NONE; at = sim->successor[at].next) {
        uint32_t number = sim->successor[at].flow;
        struct vb_sim_flow *then = &sim->flow[number];

        if (--then->waits)
            continue;
        then->start += sim->world->now;
        vb_world_call(sim->world, then->start, VB_SIM_CALL_START, number);
    }
}
