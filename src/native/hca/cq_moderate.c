// SPDX-License-Identifier: Apache-2.0
/*
 * Fewer events for many completions (ibv_modify_cq). From its arming on a CQ gathers completions;
 * the event comes with the last of `gather_count`, or when `gather_us` are over: at once if one has
 * come by then, else with the next. So the time counts from the program's arming and not from the
 * first completion, and no producer, who may be another process, has to start a timer.
 */
#include <errno.h>

#include "hca/cq.h"

/* Counts an entry that would make an event. True: more entries are to come before the event. */
bool vb_cq_holds_event(struct vb_cq_shared *cq)
{
    uint32_t held = atomic_load(&cq->held);

    while (held > 1)
        if (atomic_compare_exchange_weak(&cq->held, &held, held - 1))
            return true;
    return false;
}

void vb_cq_hold(struct vb_cq *cq)
{
    const struct vb_host_calls *port = cq->context->adapter->calls;
    uint32_t count = atomic_load(&cq->gather_count);

    if (!cq->channel)
        return;
    atomic_store(&cq->shared->held, count);
    /* Without a timer there is no moderation: an event too many is better than none. */
    if (count && port->release_later(cq, atomic_load(&cq->gather_us)))
        atomic_store(&cq->shared->held, 0);
}

static void announce_all(struct vb_cq *cq)
{
    uint32_t position;

    vb_biased_acquire(&cq->poll_lock, VB_RANK_CQ_POLL, cq->context->adapter->instance, false);
    for (position = vb_cq_taken(cq); vb_cq_has_entry_at(cq, position);)
        ++position;
    atomic_store(&cq->shared->announced, position);
    vb_biased_release(&cq->poll_lock);
}

void vb_cq_release_held(struct vb_cq *cq)
{
    uint32_t held = atomic_exchange(&cq->shared->held, 0);
    uint32_t armed = atomic_load(&cq->shared->armed);

    if (!held || held == atomic_load(&cq->gather_count))
        return; /* no completion has come, so the next one makes the event */
    do
        if (armed != VB_ARM_ANY && armed != VB_ARM_SOLICITED)
            return;
    while (!atomic_compare_exchange_weak(&cq->shared->armed, &armed, VB_ARM_NONE));
    announce_all(cq);
    vb_cq_write_event(cq);
}

int vb_cq_moderate(struct vb_cq *cq, uint16_t count, uint16_t microseconds)
{
    bool wanted = count > 1 && microseconds;

    if (wanted && !cq->context->adapter->calls->release_later)
        return -EOPNOTSUPP;
    if (cq->channel)
        vb_cq_release_held(cq);
    atomic_store(&cq->gather_us, microseconds);
    atomic_store(&cq->gather_count, wanted ? count : 0);
    return 0;
}
