// SPDX-License-Identifier: Apache-2.0
/*
 * Requests that end in error: their status, and the evidence that explains it. The send queue and
 * all carriers call these, under the QP's sq_lock, so that a failure is explained in the same words
 * whichever way the request went. All of it is off the fast path.
 */
#ifndef VB_HCA_REFUSAL_H
#define VB_HCA_REFUSAL_H

#include "hca/evidence.h"
#include "hca/qp.h"

enum { VB_MESSAGE_MAX = 0x7fffffff }; /* bytes; IBA 9.4.1 allows one more */

/* Ends the request with a status and its evidence. Returns 0, as vb_carrier.execute shall. */
int vb_refuse(struct vb_qp *qp, const struct ibv_send_wr *wr, enum ibv_wc_status status,
              struct vb_evidence *evidence, struct vb_outcome *outcome);

/* Ends it with LOC_LEN_ERR, since the message is longer than `limit`. Returns 0. */
int vb_refuse_length(struct vb_qp *qp, const struct ibv_send_wr *wr, uint64_t length,
                     uint64_t limit, struct vb_outcome *outcome);

/* Ends it with LOC_PROT_ERR, since an element did not pass the check. Returns false. */
bool vb_refuse_element(struct vb_qp *qp, const struct ibv_send_wr *wr, const struct ibv_sge *sge,
                       enum vb_check check, uint32_t need, const struct vb_mr_shared *mr,
                       struct vb_outcome *outcome);

/* Fills the evidence of a key that failed the check; `mr` may be NULL. Returns `check`. */
enum vb_check vb_note_key(struct vb_evidence *evidence, enum vb_check check, uint32_t pd,
                          uint32_t key, uint64_t addr, uint64_t length, uint32_t need,
                          const struct vb_mr_shared *mr);

/* Fills in the QP's timers and retry counts. */
void vb_note_terms(const struct vb_qp *qp, struct vb_evidence *evidence);

/*
 * Keeps the evidence of what puts the QP in ERR, in the segment `view` of the QP's owner. Requests
 * that are flushed later refer to the first such record. Returns its id.
 */
uint32_t vb_blame(const struct vb_view *view, struct vb_qp_shared *qp,
                  struct vb_evidence *evidence);
/* The same for a peer's request that failed a check at this QP. */
uint32_t vb_blame_responder(const struct vb_view *view, struct vb_qp_shared *qp,
                            const struct vb_evidence *seen);

/* Keeps the evidence of a datagram whose receive request ends in error, which does not put the QP
 * in ERR. Returns its id. */
uint32_t vb_evidence_of_datagram(const struct vb_view *view, const struct vb_qp_shared *qp,
                                 uint32_t from_qp, struct vb_evidence *evidence);

/* The id of the record that says why the QP flushes, one for all its requests. */
uint32_t vb_flush_evidence(struct vb_qp *qp);
/* Forgets why the QP failed, as it is reset. */
void vb_forget_failure(struct vb_qp *qp);

#endif
