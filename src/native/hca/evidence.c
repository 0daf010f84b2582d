// SPDX-License-Identifier: Apache-2.0
/*
 * The ring of records in the segment that say why requests failed. Any thread adds one; a reader
 * may be another process. A record is valid while its id is unchanged, so readers copy it and look
 * again.
 */
#include "hca/evidence.h"

#include <string.h>

uint32_t vb_evidence_put(const struct vb_view *view, const struct vb_evidence *evidence)
{
    uint32_t id = atomic_fetch_add(&view->header->evidence_next, 1) + 1;
    struct vb_evidence *slot;

    if (id == 0) /* 0 means none: the counter wrapped */
        id = atomic_fetch_add(&view->header->evidence_next, 1) + 1;
    slot = &view->evidence[id % VB_EVIDENCE_RECORDS];
    atomic_store(&slot->id, 0);
    memcpy((char *)slot + sizeof(slot->id), (const char *)evidence + sizeof(slot->id),
           sizeof(*slot) - sizeof(slot->id));
    atomic_store_explicit(&slot->id, id, memory_order_release);
    return id;
}

bool vb_evidence_get(const struct vb_view *view, uint32_t id, struct vb_evidence *evidence)
{
    const struct vb_evidence *slot = &view->evidence[id % VB_EVIDENCE_RECORDS];

    if (id == 0 || atomic_load_explicit(&slot->id, memory_order_acquire) != id)
        return false;
    memcpy(evidence, slot, sizeof(*evidence));
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&slot->id, memory_order_relaxed) == id;
}

bool vb_evidence_of_refusal(const struct vb_view *responder, const struct vb_evidence *refused,
                            struct vb_evidence *evidence)
{
    uint32_t newest = atomic_load(&responder->header->evidence_next);

    for (uint32_t i = 0; i < VB_EVIDENCE_RECORDS; ++i)
        if (vb_evidence_get(responder, newest - i, evidence) &&
            evidence->side == VB_SIDE_RESPONDER && evidence->qp_num == refused->qp_num &&
            evidence->peer_qp_num == refused->peer_qp_num && evidence->psn == refused->psn)
            return true;
    return false;
}
