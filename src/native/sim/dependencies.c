// SPDX-License-Identifier: Apache-2.0
/*
 * Dependencies between flows. Each flow has a list of successors. flows.c builds the lists when
 * flows are added, and releases a flow's successors when it was received. The Python binding has
 * checked that there is no cycle (order.py).
 */
#include <errno.h>
#include <stdlib.h>

#include "sim/state.h"

enum { FIRST_SUCCESSORS = 64 };

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

/* Where a flow is received, and releases its successors. */
static uint32_t dependencies_node(const struct vb_sim *sim, const struct vb_sim_flow *flow)
{
    uint32_t host = flow->opcode == IBV_WR_RDMA_READ ? flow->source : flow->target;

    return sim->host[flow->to_group ? flow->source : host]->nic.node;
}

/* From the last to the first, so that successors start in the order given. */
void vb_sim_dependencies_add(struct vb_sim *sim, const struct vb_sim_dependency *after,
                             uint64_t afters, uint32_t base)
{
    for (uint64_t i = afters; i-- > 0;) {
        struct vb_sim_flow *first = &sim->flow[base + after[i].first];

        ++sim->flow[base + after[i].then].waits;
        vb_world_join(sim->world, dependencies_node(sim, first),
                      sim->host[sim->flow[base + after[i].then].source]->nic.node);
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
        struct vb_world_partition *part;

        if (--then->waits)
            continue;
        part = sim->host[then->source]->nic.part;
        then->start += part->now;
        vb_world_call(part, then->start, VB_SIM_CALL_START, number);
    }
}
