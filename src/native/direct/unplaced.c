// SPDX-License-Identifier: Apache-2.0
/*
 * Waiting until the payloads inside completions are in their buffers (unplaced.h), before a
 * request that would read or overwrite them.
 */
#include "direct/unplaced.h"

#include <errno.h>

#include "direct/direct.h"
#include "direct/message.h"
#include "direct/responder.h"

void vb_direct_unplaced_note(struct vb_connection *to, const struct vb_spans *buffers)
{
    for (uint32_t i = 0; i < buffers->count; ++i)
        vb_direct_unplaced_add(to, buffers->span[i].addr, buffers->span[i].length);
}

static bool is_past(uint32_t at, uint32_t position)
{
    return (int32_t)(at - position) > 0;
}

static bool is_placed(const struct vb_cq_shared *cq, uint32_t position)
{
    return is_past(atomic_load_explicit(&cq->head, memory_order_acquire), position) ||
           is_past(atomic_load_explicit(&cq->placed, memory_order_acquire), position);
}

static bool touches(const struct vb_connection *to, const struct vb_spans *target)
{
    for (uint32_t i = 0; i < target->count; ++i)
        if (target->span[i].addr < to->unplaced_high &&
            target->span[i].addr + target->span[i].length > to->unplaced_low)
            return true;
    return false;
}

static void ask_to_place(struct vb_connection *to)
{
    struct vb_message message = {.type = VB_MSG_PLACE, .object = to->remote->recv_cq % VB_MAX_CQ};
    struct vb_cq *own = to->qp->context->adapter->cqs[message.object];

    if (to->peer->self && own)
        vb_cq_place(own);
    else if (!to->peer->self)
        vb_direct_message_send(to->peer->socket, &message, NULL, 0, false);
}

static int wait_until_placed(const struct vb_connection *to, const struct vb_cq_shared *cq)
{
    uint64_t until = vb_direct_now() + VB_DIRECT_PATIENCE;

    for (unsigned round = 0; !is_placed(cq, to->unplaced_cq_position); vb_backoff(&round)) {
        if (atomic_load(&to->peer->gone))
            return -EPIPE;
        if (vb_direct_now() > until)
            return -EAGAIN;
    }
    return 0;
}

int vb_direct_unplaced_settle_slowly(struct vb_connection *to, const struct vb_spans *target)
{
    const struct vb_cq_shared *cq = vb_view_cq(&to->peer->view, to->remote->recv_cq);
    int error = 0;

    if (!is_placed(cq, to->unplaced_cq_position)) {
        if (!touches(to, target))
            return 0;
        ask_to_place(to);
        error = wait_until_placed(to, cq);
    }
    if (!error)
        to->unplaced_high = 0;
    return error;
}
