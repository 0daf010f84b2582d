// SPDX-License-Identifier: Apache-2.0
/*
 * Threads that wait in a call for events that cannot come, because no CQ of their channel is armed.
 * A thread is in the adapter's list while it waits; the host's timer calls vb_vigils_look, which
 * writes a line of the log after a second.
 */
#include "hca/vigil.h"

#include <inttypes.h>
#include <pthread.h>

#include "hca/adapter.h"
#include "hca/channel.h"
#include "hca/cq.h"
#include "hca/overdue.h"
#include "hca/text.h"

void vb_vigil_begin(struct vb_vigil *vigil, const struct vb_channel *channel)
{
    struct vb_adapter *adapter = channel->context->adapter;

    vigil->channel = NULL;
    if (!adapter->tell || !adapter->calls->look)
        return;
    *vigil = (struct vb_vigil){.channel = channel, .since = adapter->calls->now(adapter)};
    vb_lock_take(&adapter->mutex);
    vigil->next = adapter->vigils;
    adapter->vigils = vigil;
    vb_lock_release(&adapter->mutex);
    adapter->calls->look(adapter);
}

void vb_vigil_end(struct vb_vigil *vigil)
{
    struct vb_adapter *adapter;

    if (!vigil->channel)
        return;
    adapter = vigil->channel->context->adapter;
    vb_lock_take(&adapter->mutex);
    for (struct vb_vigil **at = &adapter->vigils; *at; at = &(*at)->next)
        if (*at == vigil) {
            *at = vigil->next;
            break;
        }
    vb_lock_release(&adapter->mutex);
}

/* Counts the channel's CQs, and those of them that are armed. Under the mutex. */
static unsigned count_cqs(const struct vb_adapter *adapter, const struct vb_channel *channel,
                          unsigned *armed)
{
    unsigned count = 0;

    *armed = 0;
    for (uint32_t i = 0; i < adapter->cq_pool.next; ++i)
        if (adapter->cqs[i] && adapter->cqs[i]->channel == channel) {
            ++count;
            *armed += atomic_load(&adapter->cqs[i]->shared->armed) != VB_ARM_NONE;
        }
    return count;
}

static void log_channel(const struct vb_adapter *adapter, unsigned cqs, uint64_t waited)
{
    char line[256];
    struct vb_text text = {line, sizeof(line), 0};

    vb_text_add(&text,
                "ibv_get_cq_event waits since %" PRIu64
                " ms, and none of the channel's %u CQs is armed: call ibv_req_notify_cq before "
                "each wait, and poll the CQ once between the two",
                waited / 1000000, cqs);
    adapter->tell(line);
}

bool vb_vigils_look(struct vb_adapter *adapter, uint64_t now)
{
    bool left = false;
    unsigned armed, cqs;

    vb_lock_take(&adapter->mutex);
    for (struct vb_vigil *vigil = adapter->vigils; vigil; vigil = vigil->next) {
        if (vigil->logged)
            continue;
        if (now >= vigil->since + VB_OVERDUE_NS) { /* `since` may be later than `now` */
            cqs = count_cqs(adapter, vigil->channel, &armed);
            vigil->logged = true;
            if (!armed)
                log_channel(adapter, cqs, now - vigil->since);
        }
        left |= !vigil->logged;
    }
    vb_lock_release(&adapter->mutex);
    return left;
}
