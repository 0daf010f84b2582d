// SPDX-License-Identifier: Apache-2.0
/*
 * The end of a request that fails: its status, and its evidence with the state of the queue pair.
 * The send queue, the direct carrier and the packet engine call it, off the fast path, under the
 * queue pair's sq_lock.
 */
#include "hca/refusal.h"

#include <string.h>

/* Notes how full the peer's receive queue is; an SRQ is left out, since other QPs use it, too. */
static void note_receive_queue(const struct vb_qp_shared *queue, struct vb_evidence *evidence)
{
    if (queue->srq)
        return;
    evidence->rq_used = (uint16_t)(atomic_load(&queue->rq_posted) - atomic_load(&queue->rq_taken));
    evidence->rq_room = (uint16_t)(queue->rq_mask + 1);
    evidence->min_rnr_timer = queue->min_rnr_timer;
}

void vb_note_terms(const struct vb_qp *qp, struct vb_evidence *evidence)
{
    evidence->timeout = qp->terms.timeout;
    evidence->retry_cnt = qp->terms.retry_cnt;
    evidence->rnr_retry = qp->terms.rnr_retry;
}

static const struct vb_qp_shared *other_end(const struct vb_qp *qp)
{
    const struct vb_carrier *carrier = vb_qp_carrier(qp);

    return carrier->other_end ? carrier->other_end(qp) : NULL;
}

static bool is_connected_to_itself(const struct vb_qp *qp)
{
    const struct vb_carrier *carrier = vb_qp_carrier(qp);

    if (qp->shared->dest_qp_num != qp->number)
        return false;
    return carrier->is_loop ? carrier->is_loop(qp) : other_end(qp) == qp->shared;
}

/* Notes the QP's state and queues at this moment. */
static void note_qp(const struct vb_qp *qp, enum ibv_wc_status status, struct vb_evidence *evidence)
{
    const struct vb_carrier *carrier = vb_qp_carrier(qp);
    const struct vb_qp_shared *remote = other_end(qp);

    evidence->qp_num = qp->number;
    evidence->peer_qp_num = qp->shared->dest_qp_num;
    evidence->status = (uint8_t)status;
    evidence->next_state = vb_qp_reliable_type(qp->type) ? IBV_QPS_ERR : IBV_QPS_SQE;
    evidence->type = (uint8_t)qp->type;
    vb_note_terms(qp, evidence);
    evidence->to_itself = is_connected_to_itself(qp);
    evidence->sq_used = (uint16_t)(qp->sq_posted - atomic_load(&qp->sq_retired));
    evidence->sq_room = (uint16_t)qp->cap.max_send_wr;
    if (remote && atomic_load(&remote->state) != IBV_QPS_RESET)
        note_receive_queue(remote, evidence);
    if (carrier->note)
        carrier->note(qp, evidence);
}

VB_COLD int vb_refuse(struct vb_qp *qp, const struct ibv_send_wr *wr, enum ibv_wc_status status,
                      struct vb_evidence *evidence, struct vb_outcome *outcome)
{
    evidence->wr_opcode = (uint16_t)wr->opcode;
    note_qp(qp, status, evidence);
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
    evidence.check =
        check == VB_CHECK_MEMORY_GONE ? VB_CHECK_LOCAL_MEMORY_GONE : check | VB_CHECK_LOCAL;
    vb_refuse(qp, wr, IBV_WC_LOC_PROT_ERR, &evidence, outcome);
    return false;
}

static void note_region(struct vb_evidence *evidence, const struct vb_mr_shared *mr)
{
    evidence->access = mr->access;
    evidence->mr_pd = mr->pd & VB_PD_NUMBER;
    evidence->mr_addr = mr->iova;
    evidence->mr_length = mr->length;
}

VB_COLD enum vb_check vb_note_key(struct vb_evidence *evidence, enum vb_check check, uint32_t pd,
                                  uint32_t key, uint64_t addr, uint64_t length, uint32_t need,
                                  const struct vb_mr_shared *mr)
{
    unsigned alone = check & ~(unsigned)(VB_CHECK_LOCAL | VB_CHECK_RECV);

    memset(evidence, 0, sizeof(*evidence));
    if (check == (VB_CHECK_MEMORY_GONE | VB_CHECK_RECV))
        check = VB_CHECK_MEMORY_GONE;                /* as where the copy fails */
    evidence->count = check == VB_CHECK_MEMORY_GONE; /* it is known that it was unmapped */
    if (alone == VB_CHECK_PD && mr && (mr->pd & VB_PD_LEAVING)) {
        check = (enum vb_check)(check - alone + VB_CHECK_KEY);
        alone = VB_CHECK_KEY;
    }
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

VB_COLD uint32_t vb_blame(const struct vb_view *view, struct vb_qp_shared *qp,
                          struct vb_evidence *evidence)
{
    uint32_t none = 0, id;

    if (evidence->type == IBV_QPT_UC) /* UC drops a wrong message and continues */
        return vb_evidence_put(view, evidence);
    evidence->next_state = IBV_QPS_ERR;
    id = vb_evidence_put(view, evidence);
    atomic_compare_exchange_strong(&qp->failed, &none, id);
    return id;
}

VB_COLD uint32_t vb_blame_responder(const struct vb_view *view, struct vb_qp_shared *qp,
                                    const struct vb_evidence *seen)
{
    struct vb_evidence evidence = *seen;

    evidence.side = VB_SIDE_RESPONDER;
    evidence.type = qp->type;
    evidence.qp_num = qp->dest_qp_num;
    evidence.peer_qp_num = qp->qp_num;
    note_receive_queue(qp, &evidence);
    return vb_blame(view, qp, &evidence);
}

VB_COLD uint32_t vb_evidence_of_datagram(const struct vb_view *view, const struct vb_qp_shared *qp,
                                         uint32_t from_qp, struct vb_evidence *evidence)
{
    evidence->side = VB_SIDE_RESPONDER;
    evidence->type = IBV_QPT_UD;
    evidence->wr_opcode = IBV_WR_SEND;
    evidence->qp_num = from_qp;
    evidence->peer_qp_num = qp->qp_num;
    note_receive_queue(qp, evidence);
    return vb_evidence_put(view, evidence);
}

VB_COLD uint32_t vb_flush_evidence(struct vb_qp *qp)
{
    uint32_t id = atomic_load(&qp->flush_evidence), failed = atomic_load(&qp->shared->failed);
    struct vb_evidence evidence = {
        .check = VB_CHECK_FLUSHED,
        .qp_num = qp->number,
        .peer_qp_num = qp->shared->dest_qp_num,
        .key = failed,
        .count = failed                  ? VB_FLUSH_FAILED
                 : qp->failed_by_program ? VB_FLUSH_PROGRAM
                                         : VB_FLUSH_UNKNOWN,
        .status = IBV_WC_WR_FLUSH_ERR,
        .next_state = vb_qp_state(qp) == IBV_QPS_SQE ? IBV_QPS_SQE : IBV_QPS_ERR,
        .to_itself = is_connected_to_itself(qp),
    };

    if (id)
        return id;
    id = vb_evidence_put(&qp->context->adapter->self, &evidence);
    atomic_store(&qp->flush_evidence, id);
    return id;
}

void vb_forget_failure(struct vb_qp *qp)
{
    atomic_store(&qp->shared->failed, 0);
    atomic_store(&qp->flush_evidence, 0);
    qp->failed_by_program = false;
    qp->peer_ended = false;
}
