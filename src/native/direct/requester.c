// SPDX-License-Identifier: Apache-2.0
/*
 * The requester's half of each operation, in the thread that posts: the checks of IBA 9.7.3, the
 * copy, and the errors. The QP's send lock is held throughout. Functions return 0 with `outcome`
 * filled, or -EAGAIN if the request has to wait.
 */
#include "direct/requester.h"

#include <errno.h>
#include <string.h>

#include "direct/atomic.h"
#include "direct/connection.h"
#include "direct/other_build.h"
#include "direct/responder.h"
#include "direct/unplaced.h"
#include "direct/xrc_proxy.h"
#include "hca/mw.h"
#include "hca/xrc.h"

static void inline_spans(const struct ibv_send_wr *wr, struct vb_spans *spans)
{
    for (int i = 0; i < wr->num_sge; ++i)
        vb_direct_spans_add(spans, (uint8_t *)(uintptr_t)wr->sg_list[i].addr, 0,
                            wr->sg_list[i].length);
}

bool vb_direct_local_list(struct vb_qp *qp, const struct ibv_send_wr *wr, uint32_t need,
                          struct vb_spans *spans, struct vb_outcome *outcome)
{
    const struct vb_view *self = &qp->context->adapter->self;

    if (wr->send_flags & IBV_SEND_INLINE) {
        inline_spans(wr, spans);
        return true;
    }
    for (int i = 0; i < wr->num_sge; ++i) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        const struct vb_mr_shared *mr;
        enum vb_check check;
        uint8_t *at;

        if (!sge->length)
            continue; /* its key is not looked at */
        check =
            vb_lkey_find(self, qp->pd->number, sge->lkey, sge->addr, sge->length, need, &mr, &at);
        if (VB_UNLIKELY(check))
            return vb_refuse_element(qp, wr, sge, check, need, mr, outcome);
        vb_direct_spans_add(spans, at, 0, sge->length);
    }
    return true;
}

const struct vb_span *vb_direct_local_gone(const struct ibv_send_wr *wr,
                                           const struct vb_spans *local)
{
    bool to_write = wr->opcode == IBV_WR_RDMA_READ || wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
                    wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

    for (uint32_t i = 0; i < local->count; ++i)
        if (!vb_memory_is_mapped(local->span[i].here, local->span[i].length, to_write))
            return &local->span[i];
    return NULL;
}

int vb_direct_refuse_local_gone(struct vb_qp *qp, const struct ibv_send_wr *wr,
                                const struct vb_span *gone, struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {
        .check = VB_CHECK_LOCAL_MEMORY_GONE, .addr = (uintptr_t)gone->here, .length = gone->length};

    return vb_refuse(qp, wr, IBV_WC_LOC_PROT_ERR, &evidence, outcome);
}

/* A remote check failed: RC answers with a NAK and both sides fail; UC drops in silence. */
static VB_COLD int nak(struct vb_connection *to, const struct ibv_send_wr *wr,
                       enum ibv_wc_status status, struct vb_evidence *evidence,
                       struct vb_outcome *outcome)
{
    if (to->qp->type == IBV_QPT_UC)
        return 0;
    evidence->wr_opcode = (uint16_t)wr->opcode;
    if (!atomic_load(&to->remote->failed))
        vb_blame_responder(&to->peer->view, to->remote, evidence);
    vb_direct_fail_remote(to, evidence->check == VB_CHECK_MEMORY_GONE ||
                                      evidence->check == VB_CHECK_CQ_OVERRUN
                                  ? IBV_EVENT_QP_FATAL
                              : status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR
                                                                : IBV_EVENT_QP_REQ_ERR);
    return vb_refuse(to->qp, wr, status, evidence, outcome);
}

static int memory_gone(struct vb_connection *to, const struct ibv_send_wr *wr,
                       const struct vb_spans *local, const struct vb_spans *remote,
                       struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {.check = VB_CHECK_MEMORY_GONE};
    const struct vb_span *gone = vb_direct_local_gone(wr, local);

    if (gone)
        return vb_direct_refuse_local_gone(to->qp, wr, gone, outcome);
    evidence.addr = remote->span[0].addr;
    evidence.length = remote->total;
    return nak(to, wr, IBV_WC_REM_OP_ERR, &evidence, outcome);
}

/* The peer does not help now: it may be stopped. An atomic that had begun is not done twice. */
static bool may_help_later(const struct ibv_send_wr *wr, int error)
{
    return error == -EAGAIN || (error == -ETIMEDOUT && wr->opcode != IBV_WR_ATOMIC_CMP_AND_SWP &&
                                wr->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD);
}

VB_COLD int vb_direct_copy_failed(struct vb_connection *to, const struct ibv_send_wr *wr, int error,
                                  const struct vb_spans *local, const struct vb_spans *remote,
                                  struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {.check = VB_CHECK_NO_ANSWER, .silence = VB_SILENCE_NO_HELP};

    if (error == -EFAULT)
        return memory_gone(to, wr, local, remote, outcome);
    if (to->qp->type == IBV_QPT_UC && error != -ENOMEM)
        return 0;
    if (may_help_later(wr, error))
        return vb_direct_wait_for_peer(to, wr, outcome);
    if (error == -EPIPE || error == -ECONNRESET) {
        evidence.check = VB_CHECK_PEER_DIED;
        to->failed_by_death = true;
    } else if (error == -ENOMEM)
        evidence.check = VB_CHECK_NO_ROOM;
    return vb_refuse(to->qp, wr, error == -ENOMEM ? IBV_WC_GENERAL_ERR : IBV_WC_RETRY_EXC_ERR,
                     &evidence, outcome);
}

static VB_COLD int nak_key(struct vb_connection *to, const struct ibv_send_wr *wr,
                           enum vb_check check, struct vb_evidence *evidence,
                           struct vb_outcome *outcome)
{
    return nak(to, wr,
               check == VB_CHECK_MEMORY_GONE ? IBV_WC_REM_OP_ERR
               : check == VB_CHECK_QP_ACCESS ? IBV_WC_REM_INV_REQ_ERR
                                             : IBV_WC_REM_ACCESS_ERR,
               evidence, outcome);
}

/* The receive request in hand ends with an error of its own, and its QP with it. */
static VB_COLD int nak_receive(struct vb_connection *to, const struct ibv_send_wr *wr,
                               struct vb_taken *taken, enum ibv_wc_status theirs,
                               enum ibv_wc_status ours, struct vb_evidence *evidence,
                               struct vb_outcome *outcome)
{
    struct vb_cqe entry = {.status = theirs, .kind = VB_CQE_RECV};

    if (to->qp->type == IBV_QPT_UC && !to->remote->srq)
        return 0; /* the request serves the next message */
    evidence->wr_opcode = (uint16_t)wr->opcode;
    entry.extra = vb_blame_responder(&to->peer->view, to->remote, evidence);
    if (to->qp->type != IBV_QPT_UC) /* whoever polls the completion finds the QP in ERR */
        vb_direct_fail_remote(to, evidence->check == VB_CHECK_MEMORY_GONE ? IBV_EVENT_QP_FATAL
                                                                          : IBV_EVENT_QP_REQ_ERR);
    vb_direct_deliver(to, taken, &entry, true);
    return nak(to, wr, ours, evidence, outcome);
}

static bool direct_requester_has_imm(const struct ibv_send_wr *wr)
{
    return wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static VB_COLD int no_receive(struct vb_connection *to, const struct ibv_send_wr *wr, int error,
                              struct vb_outcome *outcome)
{
    if (to->qp->type == IBV_QPT_UC)
        return 0;
    if (error == -EPIPE)
        return vb_direct_wait_for_peer(to, wr, outcome);
    return vb_direct_wait_for_receive(to, wr, outcome);
}

static VB_COLD int deliver_failed(struct vb_connection *to, const struct ibv_send_wr *wr,
                                  enum ibv_wc_status status, struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {.check = VB_CHECK_CQ_OVERRUN};

    return nak(to->target, wr, status, &evidence, outcome);
}

/* Inline data is the caller's to have there, and was copied already if the request waited. */
static unsigned gather_doubt(const struct ibv_send_wr *wr)
{
    return wr->send_flags & IBV_SEND_INLINE ? 0 : VB_DOUBT_FROM;
}

static inline int gather(const struct vb_spans *from, unsigned doubt, uint8_t *to)
{
    int error = 0;

    for (uint32_t i = 0; i < from->count && !error; ++i) {
        error = vb_memory_guarded_move(to, from->span[i].here, from->span[i].length, doubt);
        to += from->span[i].length;
    }
    return error;
}

/* As vb_direct_copy_failed. Where the receiver's memory is gone, its receive request ends with
 * that. */
static VB_COLD int place_failed(struct vb_connection *to, const struct ibv_send_wr *wr,
                                struct vb_taken *taken, int error, const struct vb_spans *local,
                                const struct vb_spans *remote, struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {
        .check = VB_CHECK_MEMORY_GONE, .addr = remote->span[0].addr, .length = remote->total};

    if (error != -EFAULT || vb_direct_local_gone(wr, local))
        return vb_direct_copy_failed(to, wr, error, local, remote, outcome);
    return nak_receive(to, wr, taken, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR, &evidence, outcome);
}

/*
 * How the payload of a SEND travels. One that fits goes inside the completion. A buffer that only
 * its owner maps costs a system call, more than copying a small payload twice: it waits on the
 * QP's stage, if the slot is free, until poll puts it into the buffer. An XRC completion has the
 * number of its target QP where a payload would be.
 */
static enum vb_cqe_kind choose_kind(const struct vb_connection *to, const struct vb_taken *taken,
                                    const struct vb_spans *remote)
{
    const struct vb_qp_shared *queue = to->remote;

    if (VB_UNLIKELY(remote->at_once || queue->type == IBV_QPT_XRC_RECV))
        return VB_CQE_RECV;
    if (remote->total <= VB_CQE_INLINE)
        return VB_CQE_RECV_INLINE;
    if (remote->total > VB_STAGE_BYTES || !queue->rq_stage || vb_direct_spans_are_here(remote) ||
        taken->position - atomic_load_explicit(&queue->rq_polled, memory_order_acquire) >=
            VB_STAGE_SLOTS)
        return VB_CQE_RECV;
    return VB_CQE_RECV_STAGED;
}

static int move_payload(struct vb_connection *to, const struct ibv_send_wr *wr,
                        const struct vb_taken *taken, enum vb_cqe_kind kind,
                        const struct vb_spans *local, const struct vb_spans *remote,
                        uint8_t small[VB_CQE_INLINE])
{
    if (kind == VB_CQE_RECV)
        return vb_direct_put(vb_direct_connection_direct(to), to->peer, local, remote);
    if (kind == VB_CQE_RECV_STAGED)
        return gather(local, gather_doubt(wr),
                      vb_rq_stage(&to->peer->view, to->remote, taken->position));
    return gather(local, gather_doubt(wr), small);
}

/* SEND with Invalidate, once its data is in place. */
static VB_COLD enum vb_check requester_invalidate(struct vb_connection *to,
                                                  const struct ibv_send_wr *wr,
                                                  struct vb_evidence *evidence)
{
    enum vb_check check =
        vb_mw_invalidate(&to->peer->view, to->remote->pd,
                         vb_direct_peer_qp_index(to->peer, to->remote), wr->invalidate_rkey);

    *evidence = (struct vb_evidence){.check = (uint16_t)check, .key = wr->invalidate_rkey};
    return check;
}

static VB_COLD int nak_invalidate(struct vb_connection *to, const struct ibv_send_wr *wr,
                                  struct vb_taken *taken, struct vb_evidence *evidence,
                                  struct vb_outcome *outcome)
{
    vb_direct_fail_remote(to, IBV_EVENT_QP_ACCESS_ERR);
    return nak_receive(to, wr, taken, IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_ACCESS_ERR, evidence,
                       outcome);
}

static inline void requester_count_sent(struct vb_connection *to, uint64_t *kind, uint64_t bytes)
{
    vb_direct_count(kind, 1);
    vb_direct_count(&to->counts.payload_sent, bytes);
}

static inline uint8_t receive_flags(const struct ibv_send_wr *wr, bool invalidates)
{
    return invalidates ? IBV_WC_WITH_INV : direct_requester_has_imm(wr) ? IBV_WC_WITH_IMM : 0;
}

/* The completion of a SEND's receive request, but for what the request says of itself. */
static inline void fill_receive(struct vb_cqe *entry, const struct ibv_send_wr *wr, uint64_t length,
                                uint8_t flags, enum vb_cqe_kind kind)
{
    entry->byte_len = (uint32_t)length;
    entry->imm = wr->imm_data;
    entry->extra = 0;
    entry->status = IBV_WC_SUCCESS;
    entry->opcode = 0;
    entry->flags = flags;
    entry->kind = (uint8_t)kind;
}

/* `invalidates` is known where this is called, and costs other SENDs nothing. */
static inline __attribute__((always_inline)) int
send_into(struct vb_connection *to, const struct ibv_send_wr *wr, const struct vb_spans *local,
          struct vb_taken *taken, bool invalidates, struct vb_outcome *outcome)
{
    enum ibv_wc_status delivered;
    struct vb_evidence evidence;
    struct vb_spans remote;
    struct vb_cqe *entry;
    unsigned refused;
    enum vb_check check =
        vb_direct_recv_spans(to->peer, to->remote, taken->wqe, local->total, &remote, &evidence);
    uint8_t small[VB_CQE_INLINE];
    enum vb_cqe_kind kind;
    int error;

    if (VB_UNLIKELY(check))
        return nak_receive(to, wr, taken, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR, &evidence,
                           outcome);
    kind = choose_kind(to, taken, &remote);
    error = move_payload(to, wr, taken, kind, local, &remote, small);
    if (VB_UNLIKELY(error))
        return place_failed(to, wr, taken, error, local, &remote, outcome);
    if (invalidates && requester_invalidate(to, wr, &evidence))
        return nak_invalidate(to, wr, taken, &evidence, outcome);
    entry = vb_direct_deliver_begin(to, taken, &refused);
    if (VB_UNLIKELY(!entry))
        return deliver_failed(to, wr, vb_direct_delivered(to, refused), outcome);
    fill_receive(entry, wr, local->total, receive_flags(wr, invalidates), kind);
    if (kind == VB_CQE_RECV_INLINE)
        memcpy(entry->data, small, sizeof(small)); /* no lock is held where memory may be gone */
    if (VB_UNLIKELY(to->remote->type == IBV_QPT_XRC_RECV))
        vb_cqe_name_xrc(entry, to->remote->srq - 1, to->target->remote->qp_num);
    delivered = vb_direct_deliver_end(to, taken, entry, wr->send_flags & IBV_SEND_SOLICITED);
    if (kind != VB_CQE_RECV)
        vb_direct_unplaced_note(to, &remote);
    requester_count_sent(to, &to->counts.sends, local->total);
    return VB_LIKELY(delivered == IBV_WC_SUCCESS) ? 0 : deliver_failed(to, wr, delivered, outcome);
}

static VB_COLD int gather_failed(struct vb_connection *to, const struct ibv_send_wr *wr,
                                 struct vb_taken *taken, int error, const struct vb_spans *local,
                                 struct vb_outcome *outcome)
{
    struct vb_spans remote = {0};

    vb_direct_spans_add(&remote, NULL, taken->wqe->sge[0].addr, local->total);
    return place_failed(to, wr, taken, error, local, &remote, outcome);
}

/*
 * A payload that fits into the completion, for a receive request whose key was checked when it was
 * posted. It is gathered first: no lock is held where memory may be gone.
 */
static inline int send_inside(struct vb_connection *to, const struct ibv_send_wr *wr,
                              const struct vb_spans *local, struct vb_taken *taken,
                              struct vb_outcome *outcome)
{
    uint64_t buffer = __atomic_load_n(&taken->wqe->sge[0].addr, __ATOMIC_RELAXED);
    enum ibv_wc_status delivered;
    uint8_t small[VB_CQE_INLINE];
    struct vb_cqe *entry;
    unsigned refused;
    int error = gather(local, gather_doubt(wr), small);

    if (VB_UNLIKELY(error))
        return gather_failed(to, wr, taken, error, local, outcome);
    entry = vb_direct_deliver_begin(to, taken, &refused);
    if (VB_UNLIKELY(!entry))
        return deliver_failed(to, wr, vb_direct_delivered(to, refused), outcome);
    fill_receive(entry, wr, local->total, receive_flags(wr, false), VB_CQE_RECV_INLINE);
    memcpy(entry->data, small, sizeof(small));
    delivered = vb_direct_deliver_end(to, taken, entry, wr->send_flags & IBV_SEND_SOLICITED);
    if (local->total)
        vb_direct_unplaced_add(to, buffer, local->total);
    requester_count_sent(to, &to->counts.sends, local->total);
    return VB_LIKELY(delivered == IBV_WC_SUCCESS) ? 0 : deliver_failed(to, wr, delivered, outcome);
}

static VB_COLD int nak_too_long(struct vb_connection *to, const struct ibv_send_wr *wr,
                                struct vb_taken *taken, uint64_t length, struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {
        .check = VB_CHECK_RECV_TOO_SHORT, .length = length, .mr_length = taken->wqe->length};

    return nak_receive(to, wr, taken, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR, &evidence,
                       outcome);
}

static inline __attribute__((always_inline)) int do_send(struct vb_connection *to,
                                                         const struct ibv_send_wr *wr,
                                                         bool invalidates,
                                                         struct vb_outcome *outcome)
{
    struct vb_spans local;
    struct vb_taken taken;
    int error;

    vb_direct_deliver_expect(to);
    if (!vb_direct_local_spans(to->qp, wr, 0, &local, outcome))
        return 0;
    if (VB_UNLIKELY(local.total > VB_MESSAGE_MAX))
        return vb_refuse_length(to->qp, wr, local.total, VB_MESSAGE_MAX, outcome);
    error = vb_direct_take_recv(to, &taken);
    if (VB_UNLIKELY(error == -EAGAIN))
        error = vb_direct_await_recv(to, &taken);
    if (VB_UNLIKELY(error))
        return no_receive(to, wr, error, outcome);
    if (!invalidates && local.total <= VB_CQE_INLINE &&
        VB_LIKELY(vb_recv_is_checked(&to->peer->view, taken.wqe, local.total)))
        return send_inside(to, wr, &local, &taken, outcome);
    if (VB_UNLIKELY(local.total > taken.wqe->length))
        return nak_too_long(to, wr, &taken, local.total, outcome);
    return send_into(to, wr, &local, &taken, invalidates, outcome);
}

static VB_COLD int do_send_with_invalidate(struct vb_connection *to, const struct ibv_send_wr *wr,
                                           struct vb_outcome *outcome)
{
    return do_send(to, wr, true, outcome);
}

static int deliver_imm(struct vb_connection *to, const struct ibv_send_wr *wr,
                       struct vb_taken *taken, uint64_t length, struct vb_outcome *outcome)
{
    struct vb_cqe entry = {
        .kind = VB_CQE_RECV,
        .opcode = IBV_WC_RECV_RDMA_WITH_IMM & ~IBV_WC_RECV,
        .flags = IBV_WC_WITH_IMM,
        .imm = wr->imm_data,
        .byte_len = (uint32_t)length,
    };

    enum ibv_wc_status delivered =
        vb_direct_deliver(to, taken, &entry, wr->send_flags & IBV_SEND_SOLICITED);

    return VB_LIKELY(delivered == IBV_WC_SUCCESS) ? 0 : deliver_failed(to, wr, delivered, outcome);
}

static int do_write(struct vb_connection *to, const struct ibv_send_wr *wr,
                    struct vb_outcome *outcome)
{
    struct vb_spans local, remote;
    const struct vb_mr_shared *mr;
    struct vb_evidence evidence;
    struct vb_taken taken;
    enum vb_check check;
    int error = 0;

    if (!vb_direct_local_spans(to->qp, wr, 0, &local, outcome))
        return 0;
    if (VB_UNLIKELY(local.total > VB_MESSAGE_MAX))
        return vb_refuse_length(to->qp, wr, local.total, VB_MESSAGE_MAX, outcome);
    check = vb_direct_remote_span(to, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, local.total,
                                  IBV_ACCESS_REMOTE_WRITE, &remote, &mr, &evidence);
    if (VB_UNLIKELY(check))
        return nak_key(to, wr, check, &evidence, outcome);
    /* The receive request is looked for before the data moves: what waits has done nothing yet. */
    if (direct_requester_has_imm(wr)) {
        error = vb_direct_take_recv(to, &taken);
        if (error)
            return no_receive(to, wr, error, outcome);
    }
    error = vb_direct_unplaced_settle(to, &remote);
    if (!error)
        error = vb_direct_put(vb_direct_connection_direct(to), to->peer, &local, &remote);
    if (VB_UNLIKELY(error))
        return vb_direct_copy_failed(to, wr, error, &local, &remote, outcome);
    requester_count_sent(to, &to->counts.writes, local.total);
    return direct_requester_has_imm(wr) ? deliver_imm(to, wr, &taken, local.total, outcome) : 0;
}

/* READ and atomics need responder resources on both sides (IBA 9.7.3.1, 9.7.4.1.6). */
static inline bool has_rd_atomic(const struct vb_connection *to)
{
    return to->qp->terms.max_rd_atomic && to->remote->max_dest_rd_atomic;
}

static VB_COLD int refuse_rd_atomic(struct vb_connection *to, const struct ibv_send_wr *wr,
                                    struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {.check = VB_CHECK_RD_ATOMIC};

    if (!to->qp->terms.max_rd_atomic)
        return vb_refuse(to->qp, wr, IBV_WC_LOC_QP_OP_ERR, &evidence, outcome);
    return nak(to, wr, IBV_WC_REM_INV_REQ_ERR, &evidence, outcome);
}

static int do_read(struct vb_connection *to, const struct ibv_send_wr *wr,
                   struct vb_outcome *outcome)
{
    struct vb_spans local, remote;
    const struct vb_mr_shared *mr;
    struct vb_evidence evidence;
    enum vb_check check;
    int error;

    if (VB_UNLIKELY(!has_rd_atomic(to)))
        return refuse_rd_atomic(to, wr, outcome);
    if (!vb_direct_local_spans(to->qp, wr, IBV_ACCESS_LOCAL_WRITE, &local, outcome))
        return 0;
    if (VB_UNLIKELY(local.total > VB_MESSAGE_MAX))
        return vb_refuse_length(to->qp, wr, local.total, VB_MESSAGE_MAX, outcome);
    check = vb_direct_remote_span(to, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, local.total,
                                  IBV_ACCESS_REMOTE_READ, &remote, &mr, &evidence);
    if (VB_UNLIKELY(check))
        return nak_key(to, wr, check, &evidence, outcome);
    error = vb_direct_unplaced_settle(to, &remote);
    if (!error)
        error = vb_direct_get(vb_direct_connection_direct(to), to->peer, &local, &remote);
    if (VB_UNLIKELY(error))
        return vb_direct_copy_failed(to, wr, error, &local, &remote, outcome);
    vb_direct_count(&to->counts.reads, 1);
    vb_direct_count(&to->counts.payload_read, local.total);
    outcome->byte_len = (uint32_t)local.total;
    return 0;
}

static VB_COLD int refuse_atomic(struct vb_connection *to, const struct ibv_send_wr *wr,
                                 const struct vb_spans *local, struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {.addr = wr->wr.atomic.remote_addr, .length = local->total};

    if (local->total < 8) {
        evidence.check = VB_CHECK_ATOMIC_LENGTH;
        return vb_refuse(to->qp, wr, IBV_WC_LOC_LEN_ERR, &evidence, outcome);
    }
    evidence.check = VB_CHECK_ALIGNMENT;
    return nak(to, wr, IBV_WC_REM_INV_REQ_ERR, &evidence, outcome);
}

/* What the address stands for is none of the processor's words. */
static VB_COLD int requester_refuse_place(struct vb_connection *to, const struct ibv_send_wr *wr,
                                          const uint8_t *place, struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {.check = VB_CHECK_ALIGNMENT, .addr = (uintptr_t)place};

    return nak(to, wr, IBV_WC_REM_INV_REQ_ERR, &evidence, outcome);
}

static int scatter_result(const struct vb_spans *local, uint64_t value)
{
    const uint8_t *from = (const uint8_t *)&value;
    size_t left = sizeof(value);
    int error = 0;

    for (uint32_t i = 0; left && !error; ++i) {
        size_t part = local->span[i].length < left ? local->span[i].length : left;

        error = vb_memory_guarded_write(local->span[i].here, from, part);
        from += part;
        left -= part;
    }
    return error;
}

static int do_atomic(struct vb_connection *to, const struct ibv_send_wr *wr,
                     struct vb_outcome *outcome)
{
    bool swap = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    enum vb_atomic_op op = swap ? VB_ATOMIC_SWAP : VB_ATOMIC_ADD;
    const struct vb_mr_shared *mr = NULL;
    struct vb_spans local, remote;
    struct vb_evidence evidence;
    enum vb_check check;
    uint64_t old;
    int error;

    if (VB_UNLIKELY(!has_rd_atomic(to)))
        return refuse_rd_atomic(to, wr, outcome);
    if (!vb_direct_local_spans(to->qp, wr, IBV_ACCESS_LOCAL_WRITE, &local, outcome))
        return 0;
    if (VB_UNLIKELY(local.total < 8 || wr->wr.atomic.remote_addr % 8))
        return refuse_atomic(to, wr, &local, outcome);
    check = vb_direct_remote_span(to, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, 8,
                                  IBV_ACCESS_REMOTE_ATOMIC, &remote, &mr, &evidence);
    if (VB_UNLIKELY(check))
        return nak_key(to, wr, check, &evidence, outcome);
    if (VB_UNLIKELY(!vb_mr_has_words(mr)))
        return requester_refuse_place(to, wr, vb_mr_pointer(mr, wr->wr.atomic.remote_addr),
                                      outcome);
    error = vb_direct_unplaced_settle(to, &remote);
    if (!error)
        error = vb_direct_atomic(vb_direct_connection_direct(to), to->peer, mr,
                                 wr->wr.atomic.remote_addr, op, wr->wr.atomic.compare_add,
                                 wr->wr.atomic.swap, &old);
    if (!error)
        error = scatter_result(&local, old);
    if (VB_UNLIKELY(error))
        return vb_direct_copy_failed(to, wr, error, &local, &remote, outcome);
    vb_direct_count(&to->counts.atomics, 1);
    outcome->byte_len = 8;
    return 0;
}

static VB_COLD int refuse_atomic_write(struct vb_connection *to, const struct ibv_send_wr *wr,
                                       const struct vb_spans *local, struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {.addr = wr->wr.rdma.remote_addr, .length = local->total};

    if (local->total != 8) {
        evidence.check = VB_CHECK_ATOMIC_LENGTH;
        return vb_refuse(to->qp, wr, IBV_WC_LOC_LEN_ERR, &evidence, outcome);
    }
    evidence.check = VB_CHECK_ALIGNMENT;
    return nak(to, wr, IBV_WC_REM_INV_REQ_ERR, &evidence, outcome);
}

static int gather_value(const struct vb_spans *local, uint64_t *value)
{
    uint8_t *to = (uint8_t *)value;
    int error = 0;

    for (uint32_t i = 0; i < local->count && !error; ++i) {
        error = vb_memory_guarded_read(to, local->span[i].here, local->span[i].length);
        to += local->span[i].length;
    }
    return error;
}

/* Apart from the WRITE: it takes the responder's resources for atomics. */
static int do_atomic_write(struct vb_connection *to, const struct ibv_send_wr *wr,
                           struct vb_outcome *outcome)
{
    const struct vb_mr_shared *mr = NULL;
    struct vb_spans local, remote;
    struct vb_evidence evidence;
    enum vb_check check;
    uint64_t value, old;
    int error;

    if (VB_UNLIKELY(!has_rd_atomic(to)))
        return refuse_rd_atomic(to, wr, outcome);
    if (!vb_direct_local_spans(to->qp, wr, 0, &local, outcome))
        return 0;
    if (VB_UNLIKELY(local.total != 8 || wr->wr.rdma.remote_addr % 8))
        return refuse_atomic_write(to, wr, &local, outcome);
    check = vb_direct_remote_span(to, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, 8,
                                  IBV_ACCESS_REMOTE_WRITE, &remote, &mr, &evidence);
    if (VB_UNLIKELY(check))
        return nak_key(to, wr, check, &evidence, outcome);
    if (VB_UNLIKELY(!vb_mr_has_words(mr)))
        return requester_refuse_place(to, wr, vb_mr_pointer(mr, wr->wr.rdma.remote_addr), outcome);
    error = gather_value(&local, &value);
    if (!error)
        error = vb_direct_unplaced_settle(to, &remote);
    if (!error)
        error = vb_direct_atomic(vb_direct_connection_direct(to), to->peer, mr,
                                 wr->wr.rdma.remote_addr, VB_ATOMIC_WRITE, 0, value, &old);
    if (VB_UNLIKELY(error))
        return vb_direct_copy_failed(to, wr, error, &local, &remote, outcome);
    vb_direct_count(&to->counts.atomics, 1);
    return 0;
}

static void flushed_span(const struct vb_peer *peer, const struct ibv_send_wr *wr,
                         const struct vb_mr_shared *mr, struct vb_spans *spans)
{
    bool whole = wr->wr.flush.level == IBV_FLUSH_MR;
    uint64_t addr = whole ? mr->iova : wr->wr.flush.remote_addr;
    uint64_t length = whole ? mr->length : wr->wr.flush.length;

    spans->count = 0;
    spans->total = 0;
    vb_direct_spans_add(spans, vb_direct_peer_pointer(peer, mr, addr, length),
                        mr->addr + (addr - mr->iova), length);
}

static enum vb_check direct_requester_check_flush(struct vb_connection *to,
                                                  const struct ibv_send_wr *wr,
                                                  const struct vb_mr_shared **mr,
                                                  struct vb_evidence *evidence)
{
    const struct vb_qp_shared *remote = to->remote;
    uint32_t need = vb_flush_need(wr->wr.flush.type), rkey = wr->wr.flush.rkey;
    uint64_t addr = wr->wr.flush.remote_addr, length = wr->wr.flush.length;
    bool whole = wr->wr.flush.level == IBV_FLUSH_MR;
    enum vb_check check = VB_CHECK_QP_ACCESS;

    *mr = NULL;
    if ((remote->access & need) == need)
        check =
            vb_flush_check(&to->peer->view, remote->pd, vb_direct_peer_qp_index(to->peer, remote),
                           rkey, whole, addr, length, need, mr);
    if (check)
        vb_direct_note_refusal(to, check, rkey, addr, whole ? 0 : length, need, *mr, evidence);
    return check;
}

/*
 * The requests before it were carried out by this thread, or by one that it has waited for: their
 * bytes are where all processors see them. Only a SEND's may still be inside its completion.
 */
static VB_COLD int do_flush(struct vb_connection *to, const struct ibv_send_wr *wr,
                            struct vb_outcome *outcome)
{
    struct vb_spans none = {0}, remote;
    const struct vb_mr_shared *mr;
    struct vb_evidence evidence;
    enum vb_check check;
    int error;

    if (!has_rd_atomic(to))
        return refuse_rd_atomic(to, wr, outcome);
    if (wr->wr.flush.level != IBV_FLUSH_MR && wr->wr.flush.length > VB_MESSAGE_MAX)
        return vb_refuse_length(to->qp, wr, wr->wr.flush.length, VB_MESSAGE_MAX, outcome);
    check = direct_requester_check_flush(to, wr, &mr, &evidence);
    if (check)
        return nak_key(to, wr, check, &evidence, outcome);
    flushed_span(to->peer, wr, mr, &remote);
    error = vb_direct_unplaced_settle(to, &remote);
    if (error)
        return vb_direct_copy_failed(to, wr, error, &none, &remote, outcome);
    atomic_thread_fence(memory_order_seq_cst);
    vb_direct_count(&to->counts.flushes, 1);
    return 0;
}

static inline int direct_requester_carry_out(struct vb_connection *to, const struct ibv_send_wr *wr,
                                             struct vb_outcome *outcome)
{
    switch (wr->opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return do_write(to, wr, outcome);
    case IBV_WR_RDMA_READ:
        return do_read(to, wr, outcome);
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return do_atomic(to, wr, outcome);
    case IBV_WR_ATOMIC_WRITE:
        return do_atomic_write(to, wr, outcome);
    case IBV_WR_FLUSH:
        return do_flush(to, wr, outcome);
    case IBV_WR_LOCAL_INV:
    case IBV_WR_BIND_MW:
        return vb_mw_execute(to->qp, wr, outcome);
    case IBV_WR_SEND_WITH_INV:
        return do_send_with_invalidate(to, wr, outcome);
    default:
        return do_send(to, wr, false, outcome);
    }
}

static VB_COLD int nak_xrc(struct vb_connection *to, const struct ibv_send_wr *wr,
                           enum vb_check check, struct vb_outcome *outcome)
{
    struct vb_evidence evidence;

    vb_xrc_note(&evidence, check, wr->qp_type.xrc.remote_srqn);
    return nak(to, wr, IBV_WC_REM_INV_REQ_ERR, &evidence, outcome);
}

/* The SRQ is of another process than the target QP. */
static int execute_at_proxy(struct vb_connection *to, const struct ibv_send_wr *wr,
                            struct vb_outcome *outcome)
{
    struct vb_connection proxy;
    enum vb_check check = vb_direct_xrc_proxy_enter(to, wr->qp_type.xrc.remote_srqn, &proxy);
    int result;

    if (check)
        return nak_xrc(to, wr, check, outcome);
    result = direct_requester_carry_out(&proxy, wr, outcome);
    vb_direct_xrc_proxy_leave(&proxy);
    return result;
}

/* The target QP is first pointed at the SRQ that the request names. */
static int execute_xrc(struct vb_connection *to, const struct ibv_send_wr *wr,
                       struct vb_outcome *outcome)
{
    uint32_t srq_num = wr->qp_type.xrc.remote_srqn;
    enum vb_check check;

    if (VB_UNLIKELY(vb_mw_is_local(wr->opcode)))
        return vb_mw_execute(to->qp, wr, outcome);
    if (VB_UNLIKELY(!vb_direct_connection_ready(to)))
        return vb_direct_wait_for_peer(to, wr, outcome);
    check = vb_xrc_point(&to->peer->view, to->remote, srq_num);
    if (VB_LIKELY(!check))
        return direct_requester_carry_out(to, wr, outcome);
    if (check == VB_CHECK_XRC_SRQ && !vb_direct_peer_has(to->peer, srq_num))
        return execute_at_proxy(to, wr, outcome);
    return nak_xrc(to, wr, check, outcome);
}

/* UC does not wait: a request that reaches nobody has succeeded. */
static VB_COLD int requester_lose(struct vb_connection *to)
{
    vb_direct_count(&to->counts.lost, 1);
    if (!to->peer)
        vb_direct_other_build_log(to->qp, vb_qp_dest(to->qp->shared));
    else
        vb_direct_connection_count_refused(to);
    return 0;
}

int vb_direct_execute(struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_outcome *outcome)
{
    struct vb_connection *to = vb_verbs_qp_of(qp)->connection;

    outcome->status = IBV_WC_SUCCESS;
    outcome->byte_len = 0;
    outcome->evidence = 0;
    if (VB_UNLIKELY(qp->type > IBV_QPT_UC))
        return qp->type == IBV_QPT_UD ? vb_direct_datagram_execute(qp, wr, outcome)
                                      : execute_xrc(to, wr, outcome);
    if (VB_UNLIKELY(!vb_direct_connection_ready(to))) {
        if (vb_mw_is_local(wr->opcode))
            return vb_mw_execute(qp, wr, outcome);
        return qp->type == IBV_QPT_UC ? requester_lose(to)
                                      : vb_direct_wait_for_peer(to, wr, outcome);
    }
    return direct_requester_carry_out(to, wr, outcome);
}
