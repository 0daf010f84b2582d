// SPDX-License-Identifier: Apache-2.0
/*
 * Completion queues of an adapter whose completions are in memory some time after it has made them
 * (vb_host_calls.written): of a simulated host whose bus is part of the simulation. Such an entry
 * is in the ring at once, since the adapter knows of it: it wakes the channel, and goes with its
 * QP. A poll (cq_poll.c) sees it from the time in `stamps` on. Such adapters run in the one thread
 * of the program.
 *
 * An event reaches the program no earlier than its entry. A program that looks at its channel for
 * another reason may still read an event before that, find nothing, and sleep; so what made the
 * event makes another one.
 */
#include "hca/cq.h"

bool vb_cq_is_on_its_way(const struct vb_cq *cq, uint32_t position)
{
    const struct vb_adapter *adapter = cq->context->adapter;

    return vb_cq_has_entry_at(cq, position) &&
           vb_cq_stamp(cq, position) > adapter->calls->now(adapter);
}

/* Entries are written to memory in their order. */
static uint32_t first_on_its_way(const struct vb_cq *cq)
{
    uint32_t position = vb_cq_taken(cq);

    while (vb_cq_has_entry_at(cq, position) && !vb_cq_is_on_its_way(cq, position))
        ++position;
    return position;
}

bool vb_cq_has_on_its_way(const struct vb_cq *cq)
{
    return vb_cq_has_entry_at(cq, first_on_its_way(cq));
}

uint64_t vb_cq_due(const struct vb_cq *cq)
{
    uint32_t position = vb_cq_taken(cq);

    return cq->late && vb_cq_is_on_its_way(cq, position) ? vb_cq_stamp(cq, position) : 0;
}

void vb_cq_repeat_event(struct vb_cq *cq)
{
    uint32_t first = first_on_its_way(cq);

    if (!vb_cq_has_entry_at(cq, first) ||
        (int32_t)(atomic_load(&cq->shared->announced) - first) <= 0)
        return;
    atomic_store(&cq->shared->announced, first);
    vb_cq_wake_at_once(cq);
}
