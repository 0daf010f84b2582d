// SPDX-License-Identifier: Apache-2.0
#include "hca/refusal.h"

#include <string.h>

int vb_refuse(struct vb_qp *qp, const struct ibv_send_wr *wr, enum ibv_wc_status status,
              struct vb_evidence *evidence, struct vb_outcome *outcome)
{
    evidence->wr_opcode = (uint16_t)wr->opcode;
    evidence->qp_num = qp->ibv.qp_num;
    evidence->peer_qp_num = qp->shared->dest_qp_num;
    outcome->status = status;
    outcome->evidence = vb_evidence_put(&qp->context->adapter->self, evidence);
    return 0;
}

VB_COLD int vb_refuse_length(struct vb_qp *qp, const struct ibv_send_wr *wr, uint64_t length,
                             uint64_t limit, struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {
        .check = VB_CHECK_TOO_LONG, .length = length, .mr_length = limit};

    return vb_refuse(qp, wr, IBV_WC_LOC_LEN_ERR, &evidence, outcome);
}

VB_COLD bool vb_refuse_element(struct vb_qp *qp, const struct ibv_send_wr *wr,
                               const struct ibv_sge *sge, enum vb_check check, uint32_t need,
                               const struct vb_mr_shared *mr, struct vb_outcome *outcome)
{
    struct vb_evidence evidence;

    vb_note_key(&evidence, check, qp->pd->number, sge->lkey, sge->addr, sge->length, need, mr);
    evidence.check |= VB_CHECK_LOCAL;
    vb_refuse(qp, wr, IBV_WC_LOC_PROT_ERR, &evidence, outcome);
    return false;
}

static void note_region(struct vb_evidence *evidence, const struct vb_mr_shared *mr)
{
    evidence->access = mr->access;
    evidence->mr_pd = mr->pd;
    evidence->mr_addr = mr->iova;
    evidence->mr_length = mr->length;
}

VB_COLD enum vb_check vb_note_key(struct vb_evidence *evidence, enum vb_check check, uint32_t pd,
                                  uint32_t key, uint64_t addr, uint64_t length, uint32_t need,
                                  const struct vb_mr_shared *mr)
{
    unsigned alone = check & ~(unsigned)(VB_CHECK_LOCAL | VB_CHECK_RECV);

    memset(evidence, 0, sizeof(*evidence));
    evidence->check = (uint16_t)check;
    evidence->pd = pd;
    evidence->key = key;
    evidence->addr = addr;
    evidence->length = length;
    evidence->wanted = need;
    if (mr && alone != VB_CHECK_KEY)
        note_region(evidence, mr);
    return check;
}
