// SPDX-License-Identifier: Apache-2.0
#include "port/direct/unplaced.h"

#include <errno.h>

#include "port/direct/direct.h"
#include "port/direct/message.h"
#include "port/direct/responder.h"

void vb_unplaced_note(struct vb_qp *qp, const struct vb_spans *buffers)
{
    const struct vb_cq_shared *cq = vb_view_cq(&qp->peer->view, qp->remote->recv_cq);

    if (!buffers->count)
        return;
    if (!qp->unplaced_high)
        qp->unplaced_low = UINT64_MAX;
    for (uint32_t i = 0; i < buffers->count; ++i) {
        uint64_t low = buffers->span[i].addr, high = low + buffers->span[i].length;

        qp->unplaced_low = low < qp->unplaced_low ? low : qp->unplaced_low;
        qp->unplaced_high = high > qp->unplaced_high ? high : qp->unplaced_high;
    }
    /* The entry's own position or, with other producers about, a later one: late is safe. */
    qp->unplaced_cq_position = __atomic_load_n(&cq->tail, __ATOMIC_RELAXED) - 1;
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

static bool touches(const struct vb_qp *qp, const struct vb_spans *target)
{
    for (uint32_t i = 0; i < target->count; ++i)
        if (target->span[i].addr < qp->unplaced_high &&
            target->span[i].addr + target->span[i].length > qp->unplaced_low)
            return true;
    return false;
}

static void ask_to_place(struct vb_qp *qp)
{
    struct vb_message message = {.type = VB_MSG_PLACE, .object = qp->remote->recv_cq % VB_MAX_CQ};
    struct vb_cq *own = qp->context->adapter->cqs[message.object];

    if (qp->peer->self && own)
        vb_cq_place(own);
    else if (!qp->peer->self)
        vb_message_send(qp->peer->socket, &message, NULL, 0, false);
}

static int wait_until_placed(const struct vb_qp *qp, const struct vb_cq_shared *cq)
{
    uint64_t until = vb_direct_now() + VB_DIRECT_PATIENCE;

    for (unsigned round = 0; !is_placed(cq, qp->unplaced_cq_position); vb_backoff(&round)) {
        if (atomic_load(&qp->peer->gone))
            return -EPIPE;
        if (vb_direct_now() > until)
            return -EAGAIN;
    }
    return 0;
}

int vb_unplaced_settle_slowly(struct vb_qp *qp, const struct vb_spans *target)
{
    const struct vb_cq_shared *cq = vb_view_cq(&qp->peer->view, qp->remote->recv_cq);
    int error = 0;

    if (!is_placed(cq, qp->unplaced_cq_position)) {
        if (!touches(qp, target))
            return 0;
        ask_to_place(qp);
        error = wait_until_placed(qp, cq);
    }
    if (!error)
        qp->unplaced_high = 0;
    return error;
}
