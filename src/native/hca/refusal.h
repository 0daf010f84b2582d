// SPDX-License-Identifier: Apache-2.0
/* A request that ends in error: its status, and the evidence behind it. All of it is off the fast
 * path, and the same for requests that are carried directly and by packets. */
#ifndef VB_HCA_REFUSAL_H
#define VB_HCA_REFUSAL_H

#include "hca/evidence.h"
#include "hca/qp.h"

enum { VB_MESSAGE_MAX = 0x7fffffff }; /* bytes; IBA 9.4.1 allows one more */

/* Ends the request with a status and the evidence behind it; returns 0 for execute to return. */
int vb_refuse(struct vb_qp *qp, const struct ibv_send_wr *wr, enum ibv_wc_status status,
              struct vb_evidence *evidence, struct vb_outcome *outcome);

/* LOC_LEN_ERR: the message is longer than `limit`. Returns 0. */
int vb_refuse_length(struct vb_qp *qp, const struct ibv_send_wr *wr, uint64_t length,
                     uint64_t limit, struct vb_outcome *outcome);

/* LOC_PROT_ERR: an element of the request did not pass the check. Returns false. */
bool vb_refuse_element(struct vb_qp *qp, const struct ibv_send_wr *wr, const struct ibv_sge *sge,
                       enum vb_check check, uint32_t need, const struct vb_mr_shared *mr,
                       struct vb_outcome *outcome);

/* Fills the evidence of a key that failed the check; `mr` may be NULL. Returns `check`. */
enum vb_check vb_note_key(struct vb_evidence *evidence, enum vb_check check, uint32_t pd,
                          uint32_t key, uint64_t addr, uint64_t length, uint32_t need,
                          const struct vb_mr_shared *mr);

/* The QP's timers and retries, which a program set in RTS. */
void vb_note_terms(const struct vb_qp *qp, struct vb_evidence *evidence);

/*
 * Keeps the evidence of what puts the QP in ERR, in its owner's segment `view`; what is flushed
 * later refers to the first. Returns its id.
 */
uint32_t vb_blame(const struct vb_view *view, struct vb_qp_shared *qp,
                  struct vb_evidence *evidence);
/* The same of a check of a peer's request that failed at this QP. */
uint32_t vb_blame_responder(const struct vb_view *view, struct vb_qp_shared *qp,
                            const struct vb_evidence *seen);

/* Of a datagram whose receive request ends in error; the QP works on. Returns its id. */
uint32_t vb_evidence_of_datagram(const struct vb_view *view, const struct vb_qp_shared *qp,
                                 uint32_t from_qp, struct vb_evidence *evidence);

/* Why the QP flushes: one record for all its requests. */
uint32_t vb_flush_evidence(struct vb_qp *qp);
/* It works again. */
void vb_forget_failure(struct vb_qp *qp);

#endif
