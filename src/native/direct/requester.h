// SPDX-License-Identifier: Apache-2.0
/*
 * Send requests, carried out in the poster's thread: vb_carrier.execute, and what its parts share.
 * All functions need the QP's send lock.
 */
#ifndef VB_DIRECT_REQUESTER_H
#define VB_DIRECT_REQUESTER_H

#include "direct/direct.h"
#include "direct/place.h"
#include "hca/qp.h"
#include "hca/refusal.h"

int vb_direct_execute(struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_outcome *outcome);
int vb_direct_datagram_execute(struct vb_qp *qp, const struct ibv_send_wr *wr,
                               struct vb_outcome *outcome);

bool vb_direct_local_list(struct vb_qp *qp, const struct ibv_send_wr *wr, uint32_t need,
                          struct vb_spans *spans, struct vb_outcome *outcome);

/*
 * The request's own memory: each element checked for `need` (0 to read, LOCAL_WRITE to write).
 * False: `outcome` says why.
 */
static inline bool vb_direct_local_spans(struct vb_qp *qp, const struct ibv_send_wr *wr,
                                         uint32_t need, struct vb_spans *spans,
                                         struct vb_outcome *outcome)
{
    const struct ibv_sge *sge = wr->sg_list;
    const struct vb_mr_shared *mr = NULL;

    spans->count = 0;
    spans->total = 0;
    if (VB_UNLIKELY(wr->num_sge != 1 || (wr->send_flags & IBV_SEND_INLINE) || !sge->length ||
                    vb_mr_check(&qp->context->adapter->self, qp->pd->number, sge->lkey, sge->addr,
                                sge->length, need, &mr)))
        return vb_direct_local_list(qp, wr, need, spans, outcome);
    vb_direct_spans_add(spans, vb_mr_pointer(mr, sge->addr), 0, sge->length);
    return true;
}

/* A failed copy as a completion, or a wait: memory gone on one side, or the peer does not help. */
int vb_direct_copy_failed(struct vb_connection *to, const struct ibv_send_wr *wr, int error,
                          const struct vb_spans *local, const struct vb_spans *remote,
                          struct vb_outcome *outcome);

/* The first of the request's own buffers that is not there any more, or NULL. */
const struct vb_span *vb_direct_local_gone(const struct ibv_send_wr *wr,
                                           const struct vb_spans *local);
/* LOC_PROT_ERR for it; returns 0. */
int vb_direct_refuse_local_gone(struct vb_qp *qp, const struct ibv_send_wr *wr,
                                const struct vb_span *gone, struct vb_outcome *outcome);

/* Reasons to wait; each returns -EAGAIN, or 0 with the error once the retries are used up. */
int vb_direct_wait_for_receive(struct vb_connection *to, const struct ibv_send_wr *wr,
                               struct vb_outcome *outcome);
int vb_direct_wait_for_peer(struct vb_connection *to, const struct ibv_send_wr *wr,
                            struct vb_outcome *outcome);

#endif
