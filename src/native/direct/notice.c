// SPDX-License-Identifier: Apache-2.0
/*
 * Notices to the owner of an object (notice.h): the sender's half, and the owner's, which the
 * service thread runs.
 */
#include "direct/notice.h"

#include <errno.h>

#include "direct/retry.h"
#include "hca/cq.h"
#include "hca/qp.h"

static void look_here(struct vb_direct *direct, enum vb_message_type type, uint32_t object)
{
    if (type == VB_MSG_QP_NOTICE)
        vb_direct_notice_qp(direct, object);
    else if (type == VB_MSG_CQ_NOTICE)
        vb_direct_notice_cq(direct, object);
    else
        vb_direct_notice_srq(direct, object);
}

void vb_direct_notice_send(struct vb_direct *direct, struct vb_peer *peer,
                           enum vb_message_type type, uint32_t object)
{
    struct vb_message message = {.type = type, .object = object};

    if (peer->self) {
        look_here(direct, type, object);
        return;
    }
    if (vb_direct_message_send(peer->socket, &message, NULL, 0, false) != -EAGAIN)
        return;
    /* The owner looks at `missed` after each message that it reads; if by now it has read all of
     * them, there is room for another. */
    atomic_store(&peer->view.header->notices_missed, 1);
    vb_direct_message_send(peer->socket, &message, NULL, 0, false);
}

static void raise_qp(struct vb_direct *direct, struct vb_qp *qp)
{
    uint32_t bits = vb_qp_raise_notices(qp);

    if (bits & ~(1u << IBV_EVENT_COMM_EST))
        vb_direct_retry_attend(direct, qp);
}

void vb_direct_notice_qp(struct vb_direct *direct, uint32_t index)
{
    struct vb_adapter *adapter = direct->adapter;

    vb_lock_take(&adapter->mutex);
    if (index < VB_MAX_QP && adapter->qps[index])
        raise_qp(direct, adapter->qps[index]);
    vb_lock_release(&adapter->mutex);
}

void vb_direct_notice_cq(struct vb_direct *direct, uint32_t index)
{
    struct vb_adapter *adapter = direct->adapter;

    vb_lock_take(&adapter->mutex);
    if (index < VB_MAX_CQ && adapter->cqs[index])
        vb_cq_notice(adapter->cqs[index]);
    vb_lock_release(&adapter->mutex);
}

void vb_direct_notice_srq(struct vb_direct *direct, uint32_t index)
{
    struct vb_adapter *adapter = direct->adapter;

    vb_lock_take(&adapter->mutex);
    if (index < VB_MAX_SRQ && adapter->srqs[index])
        vb_srq_notice(adapter->srqs[index]);
    vb_lock_release(&adapter->mutex);
}

void vb_direct_notice_all(struct vb_direct *direct)
{
    struct vb_adapter *adapter = direct->adapter;

    for (uint32_t i = 0; i < adapter->srq_pool.next; ++i)
        if (adapter->srqs[i])
            vb_srq_notice(adapter->srqs[i]);
    for (uint32_t i = 0; i < adapter->cq_pool.next; ++i)
        if (adapter->cqs[i])
            vb_cq_notice(adapter->cqs[i]);
    for (uint32_t i = 0; i < adapter->qp_pool.next; ++i)
        if (adapter->qps[i])
            raise_qp(direct, adapter->qps[i]);
}

void vb_direct_notice_missed(struct vb_direct *direct)
{
    struct vb_adapter *adapter = direct->adapter;

    if (!atomic_exchange(&adapter->self.header->notices_missed, 0))
        return;
    vb_lock_take(&adapter->mutex);
    vb_direct_notice_all(direct);
    vb_lock_release(&adapter->mutex);
}
