// SPDX-License-Identifier: Apache-2.0
/*
 * Making recovery states, giving them back and keeping them for the next connection that needs one.
 * Their timer serves the wait for a missing packet (gap.h) and the decision that recovery is over.
 */
#include "transport/recovery.h"

#include <stdlib.h>

#include "transport/early.h"
#include "transport/gap.h"

enum { KEPT_FOR = 1000 * 1000 * 1000 }; /* ns */

static struct vb_recovery *recovery_take(struct vb_engine *engine)
{
    struct vb_recovery *recovery = engine->recoveries;

    if (!recovery)
        return malloc(sizeof(*recovery));
    engine->recoveries = recovery->next;
    return recovery;
}

static void recovery_leave(struct vb_engine *engine, struct vb_recovery *recovery)
{
    recovery->next = engine->recoveries;
    engine->recoveries = recovery;
}

VB_COLD struct vb_recovery *vb_engine_recovery_get(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_engine *engine = ep->engine;
    struct vb_recovery *recovery = ep->share->recovery;

    if (recovery)
        return recovery;
    recovery = recovery_take(engine);
    if (!recovery)
        return NULL;
    *recovery = (struct vb_recovery){.ep = ep, .cut_psn = ep->requester.una};
    if (vb_engine_timer_join(&engine->timers, &recovery->timer, VB_TIMER_RECOVERY)) {
        recovery_leave(engine, recovery);
        return NULL;
    }
    vb_engine_timer_set(&engine->timers, &recovery->timer, now + KEPT_FOR);
    return ep->share->recovery = recovery;
}

void vb_engine_recovery_put(struct vb_endpoint *ep)
{
    struct vb_recovery *recovery = ep->share->recovery;

    if (!recovery)
        return;
    vb_engine_gap_forget(ep->engine, &recovery->early);
    vb_engine_gap_forget(ep->engine, &recovery->early_answer);
    vb_engine_timer_leave(&ep->engine->timers, &recovery->timer);
    ep->share->recovery = NULL;
    ep->replies.repeats = false;
    recovery_leave(ep->engine, recovery);
}

static bool is_needed(const struct vb_recovery *recovery)
{
    return recovery->ep->replies.repeats || recovery->asks || recovery->asked ||
           recovery->mending || recovery->mended_at || recovery->opening || recovery->is_ahead ||
           recovery->early.open || recovery->early_answer.open;
}

void vb_engine_recovery_expired(struct vb_recovery *recovery, uint64_t now)
{
    struct vb_endpoint *ep = recovery->ep;

    vb_engine_early_overdue(ep, now);
    if (!is_needed(recovery))
        vb_engine_recovery_put(ep);
    else if (recovery->timer.due == VB_NEVER)
        vb_engine_timer_set(&ep->engine->timers, &recovery->timer, now + KEPT_FOR);
}

void vb_engine_recovery_free_all(struct vb_engine *engine)
{
    struct vb_recovery *recovery;

    while ((recovery = engine->recoveries) != NULL) {
        engine->recoveries = recovery->next;
        free(recovery);
    }
}
