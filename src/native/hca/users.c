// SPDX-License-Identifier: Apache-2.0
/*
 * Why an object cannot be destroyed yet: how many objects use it, and the number of the first. The
 * destroying calls of this room ask for the sentence.
 */
#include "hca/users.h"

#include <errno.h>

#include "hca/qp.h"

struct found {
    uint32_t count;
    uint32_t first; /* the number of the first of them */
};

typedef bool uses(const struct vb_qp *qp, const void *object);

static bool uses_pd(const struct vb_qp *qp, const void *pd)
{
    return qp->pd == pd;
}

static bool uses_cq(const struct vb_qp *qp, const void *cq)
{
    return qp->send_cq == cq || qp->recv_cq == cq;
}

static bool uses_srq(const struct vb_qp *qp, const void *srq)
{
    return qp->srq == srq;
}

static struct found find_qps(struct vb_adapter *adapter, uses *is_user, const void *object)
{
    struct found found = {0};

    vb_lock_take(&adapter->mutex);
    for (uint32_t i = 0; i < adapter->qp_pool.next; ++i) {
        const struct vb_qp *qp = adapter->qps[i];

        if (qp && is_user(qp, object) && ++found.count == 1)
            found.first = qp->number;
    }
    vb_lock_release(&adapter->mutex);
    return found;
}

static uint32_t count_srqs(struct vb_adapter *adapter, const struct vb_pd *pd)
{
    uint32_t count = 0;

    vb_lock_take(&adapter->mutex);
    for (uint32_t i = 0; i < adapter->srq_pool.next; ++i)
        count += adapter->srqs[i] && adapter->srqs[i]->pd == pd;
    vb_lock_release(&adapter->mutex);
    return count;
}

VB_COLD int vb_decline_busy_pd(struct vb_pd *pd)
{
    struct vb_adapter *adapter = pd->context->adapter;
    struct found qps = find_qps(adapter, uses_pd, pd);
    uint32_t srqs = count_srqs(adapter, pd), all = atomic_load(&pd->users);
    uint32_t rest = all > qps.count + srqs ? all - qps.count - srqs : 0;

    if (!qps.count)
        return vb_decline(pd->context, -EBUSY,
                          "MRs, QPs, SRQs or AHs still use the PD (QPs: 0; SRQs: {0}; MRs, AHs and "
                          "memory windows: {1}): destroy them first",
                          srqs, rest);
    return vb_decline(
        pd->context, -EBUSY,
        "MRs, QPs, SRQs or AHs still use the PD (QPs: {0}, the first is {1x}; SRQs: {2}; MRs, AHs "
        "and memory windows: {3}): destroy them first",
        qps.count, qps.first, srqs, rest);
}

VB_COLD int vb_decline_busy_cq(struct vb_cq *cq)
{
    struct found qps = find_qps(cq->context->adapter, uses_cq, cq);

    return vb_decline(cq->context, -EBUSY,
                      "QPs still complete into the CQ: {0}, the first is {1x}; destroy them first",
                      qps.count, qps.first);
}

VB_COLD int vb_decline_busy_srq(struct vb_srq *srq)
{
    struct found qps = find_qps(srq->context->adapter, uses_srq, srq);

    return vb_decline(srq->context, -EBUSY,
                      "QPs still receive from the SRQ: {0}, the first is {1x}; destroy them first",
                      qps.count, qps.first);
}

VB_COLD int vb_decline_busy_channel(struct vb_channel *channel)
{
    return vb_decline(channel->context, -EBUSY,
                      "{0} CQs still notify the completion channel: destroy them first",
                      (unsigned)channel->ibv.refcnt);
}
