// SPDX-License-Identifier: Apache-2.0
/*
 * Direct requests as the packets that they would have been (capture_direct.h). The functions stand
 * in for the direct carrier's and call it.
 */
#include "host/capture_direct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "direct/connection.h"
#include "direct/direct.h"
#include "direct/flow.h"
#include "direct/requester.h"
#include "hca/ah.h"
#include "hca/mw.h"
#include "hca/refusal.h"
#include "memory/guard.h"
#include "roce/roce.h"
#include "wrap/capture_message.h"

enum { HOP_LIMIT = 64, LARGEST_MTU = 4096 };

/* Of one QP, under its sq_lock. */
struct sequence {
    uint32_t psn, msn;
    bool begun;
    bool waited; /* the request at the queue's head was answered by an RNR NAK */
};

struct vb_capture_direct {
    struct vb_capture *capture;
    struct sequence sequence[VB_MAX_QP]; /* sparse: pages that no QP uses take no memory */
};

int vb_host_capture_direct_open(const struct vb_capture_config *config,
                                struct vb_capture_direct **capture)
{
    struct vb_capture_direct *made = calloc(1, sizeof(*made));
    int error;

    if (!made)
        return -ENOMEM;
    error = vb_wrap_capture_open(config, &made->capture);
    if (error)
        free(made);
    else
        *capture = made;
    return error;
}

void vb_host_capture_direct_close(struct vb_capture_direct *capture)
{
    if (!capture)
        return;
    vb_wrap_capture_close(capture->capture);
    free(capture);
}

void vb_host_capture_direct_tell(struct vb_capture_direct *capture, void (*failed)(int error))
{
    vb_wrap_capture_tell(capture->capture, failed);
}

void vb_host_capture_direct_connect(struct vb_capture_direct *capture, const struct vb_qp *qp)
{
    capture->sequence[qp->index] = (struct sequence){0};
}

/* ---- the payload, copied while it is there ---- */

struct payload {
    uint8_t *bytes; /* NULL: it cannot be had, and only its length is shown */
    uint64_t length;
};

static const uint8_t *element(const struct vb_qp *qp, const struct ibv_send_wr *wr,
                              const struct ibv_sge *sge)
{
    const struct vb_mr_shared *mr;
    uint8_t *at;

    if (wr->send_flags & IBV_SEND_INLINE)
        return (const uint8_t *)(uintptr_t)sge->addr;
    if (vb_lkey_find(&qp->context->adapter->self, qp->pd->number, sge->lkey, sge->addr, sge->length,
                     0, &mr, &at))
        return NULL;
    return at;
}

static bool copy_elements(const struct vb_qp *qp, const struct ibv_send_wr *wr, uint8_t *to)
{
    for (int i = 0; i < wr->num_sge; ++i) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        const uint8_t *from = sge->length ? element(qp, wr, sge) : to;

        if (!from || vb_memory_guarded_read(to, from, sge->length))
            return false;
        to += sge->length;
    }
    return true;
}

static struct payload copy_payload(const struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    struct payload payload = {0};

    for (int i = 0; i < wr->num_sge; ++i)
        payload.length += wr->sg_list[i].length;
    if (payload.length == 0 || payload.length > VB_MESSAGE_MAX)
        return payload;
    payload.bytes = malloc(payload.length);
    if (payload.bytes && !copy_elements(qp, wr, payload.bytes)) {
        free(payload.bytes);
        payload.bytes = NULL;
    }
    return payload;
}

/* ---- the path ---- */

static struct vb_path path_of(const struct vb_qp *qp, const struct ibv_ah_attr *ah,
                              uint32_t dest_qp_num)
{
    struct vb_addresses *addresses = vb_qp_port(qp)->addresses;
    struct vb_path path = {
        .flow_label = ah->grh.flow_label & 0xfffff,
        .source_port = vb_roce_source_port(ah->grh.flow_label, qp->number, dest_qp_num),
        .mtu = LARGEST_MTU,
        .traffic_class = ah->grh.traffic_class,
        .hop_limit = ah->grh.hop_limit > 1 ? ah->grh.hop_limit : HOP_LIMIT,
    };
    struct vb_gid source;

    memcpy(path.dgid, ah->grh.dgid.raw, sizeof(path.dgid));
    if (!ah->is_global && vb_port_addresses_get(addresses, 0, &source)) /* by a LID */
        memcpy(path.dgid, source.raw, sizeof(path.dgid));
    memcpy(path.sgid, path.dgid, sizeof(path.sgid));
    /* Both are this host's. One header holds no addresses of two families. */
    if (vb_port_addresses_get(addresses, ah->grh.sgid_index, &source) &&
        vb_wire_gid_is_ipv4(source.raw) == vb_wire_gid_is_ipv4(path.dgid))
        memcpy(path.sgid, source.raw, sizeof(path.sgid));
    if (qp->type != IBV_QPT_UD)
        path.mtu = (uint16_t)(128 << qp->verbs->attr.path_mtu);
    return path;
}

/* ---- the message ---- */

static bool capture_direct_is_atomic(const struct ibv_send_wr *wr)
{
    return wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* The result arrives in the request's own buffer. */
static bool is_answered_with_data(const struct ibv_send_wr *wr)
{
    return wr->opcode == IBV_WR_RDMA_READ || capture_direct_is_atomic(wr);
}

static void set_operation(const struct ibv_send_wr *wr, const struct payload *payload,
                          struct vb_capture_message *message)
{
    if (capture_direct_is_atomic(wr)) {
        message->addr = wr->wr.atomic.remote_addr;
        message->rkey = wr->wr.atomic.rkey;
        message->swap_add = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? wr->wr.atomic.swap
                                                                    : wr->wr.atomic.compare_add;
        if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
            message->compare = wr->wr.atomic.compare_add;
        if (payload->bytes && payload->length >= sizeof(message->original))
            memcpy(&message->original, payload->bytes, sizeof(message->original));
        return;
    }
    if (wr->opcode == IBV_WR_FLUSH) {
        message->addr = wr->wr.flush.remote_addr;
        message->rkey = wr->wr.flush.rkey;
        message->flush = (struct vb_feth){wr->wr.flush.type, wr->wr.flush.level};
        message->length = (uint32_t)wr->wr.flush.length;
        return;
    }
    message->length = (uint32_t)payload->length;
    if (wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
        wr->opcode == IBV_WR_RDMA_READ || wr->opcode == IBV_WR_ATOMIC_WRITE) {
        message->addr = wr->wr.rdma.remote_addr;
        message->rkey = wr->wr.rdma.rkey;
    }
}

static enum vb_transport capture_direct_transport_of(enum ibv_qp_type type)
{
    switch (type) {
    case IBV_QPT_UC:
        return VB_TRANSPORT_UC;
    case IBV_QPT_UD:
        return VB_TRANSPORT_UD;
    case IBV_QPT_XRC_SEND:
        return VB_TRANSPORT_XRC;
    default:
        return VB_TRANSPORT_RC;
    }
}

static void set_ends(const struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_path *path,
                     struct vb_capture_message *message)
{
    const struct ibv_ah_attr *ah = &qp->verbs->attr.ah_attr;

    message->transport = capture_direct_transport_of(qp->type);
    if (qp->type == IBV_QPT_XRC_SEND)
        message->srq_num = wr->qp_type.xrc.remote_srqn;
    message->qp_num = qp->number;
    message->dest_qp_num = qp->shared->dest_qp_num;
    if (qp->type == IBV_QPT_UD) {
        ah = &((const struct vb_ah *)wr->wr.ud.ah)->attr;
        message->dest_qp_num = wr->wr.ud.remote_qpn;
        message->qkey = vb_qp_datagram_qkey(qp, wr);
    }
    *path = path_of(qp, ah, message->dest_qp_num);
    message->path = path;
}

/* How the responder would have answered; false: the request would not have left. */
static bool set_answer(const struct vb_qp *qp, enum ibv_wc_status status,
                       struct vb_capture_message *message)
{
    static const uint8_t naks[] = {
        [IBV_WC_REM_INV_REQ_ERR] = VB_NAK_INVALID_REQUEST,
        [IBV_WC_REM_ACCESS_ERR] = VB_NAK_REMOTE_ACCESS,
        [IBV_WC_REM_OP_ERR] = VB_NAK_REMOTE_OPERATION,
    };

    switch (status) {
    case IBV_WC_SUCCESS:
        return true;
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
        message->answer = VB_AETH_NAK;
        message->answer_value = naks[status];
        return true;
    case IBV_WC_RNR_RETRY_EXC_ERR:
        message->answer = VB_AETH_RNR;
        message->answer_value = (uint8_t)vb_direct_other_end(qp)->min_rnr_timer;
        return true;
    case IBV_WC_RETRY_EXC_ERR:
        message->unanswered = true;
        message->note = "not answered within the retries";
        return true;
    default:
        return false;
    }
}

static void capture_direct_write_request(struct vb_capture_direct *capture, const struct vb_qp *qp,
                                         const struct ibv_send_wr *wr,
                                         const struct payload *payload, enum ibv_wc_status status)
{
    struct sequence *sequence = &capture->sequence[qp->index];
    struct vb_piece piece = {payload->bytes, (uint32_t)payload->length};
    struct vb_capture_message message = {
        .opcode = wr->opcode,
        .pkey = vb_qp_pkey(qp->shared),
        .solicited = wr->send_flags & IBV_SEND_SOLICITED,
        .imm = wr->imm_data,
        .invalidate_rkey = wr->invalidate_rkey,
        .piece = &piece,
        .piece_count = payload->length ? 1 : 0,
    };
    struct vb_path path;
    uint32_t count;

    if (sequence->waited)
        message.reason = VB_PACKET_AFTER_RNR;
    if (!set_answer(qp, status, &message))
        return;
    set_ends(qp, wr, &path, &message);
    set_operation(wr, payload, &message);
    if (!sequence->begun)
        *sequence = (struct sequence){.psn = qp->terms.sq_psn, .begun = true};
    message.psn = sequence->psn;
    message.msn = sequence->msn + (status == IBV_WC_SUCCESS);
    count = vb_wrap_capture_message(capture->capture, &message, vb_roce_now());
    if (status == IBV_WC_SUCCESS) {
        sequence->psn = (sequence->psn + count) & VB_PSN_MASK;
        sequence->msn = message.msn & VB_PSN_MASK;
    }
}

/* ---- executing ---- */

static void capture_wait(struct vb_capture_direct *capture, const struct vb_qp *qp,
                         const struct ibv_send_wr *wr, const struct payload *payload)
{
    struct sequence *sequence = &capture->sequence[qp->index];

    if (qp->wait.reason != VB_WAIT_RNR || sequence->waited)
        return;
    capture_direct_write_request(capture, qp, wr, payload, IBV_WC_RNR_RETRY_EXC_ERR);
    sequence->waited = true;
}

int vb_host_capture_direct_execute(struct vb_capture_direct *capture, struct vb_qp *qp,
                                   const struct ibv_send_wr *wr, struct vb_outcome *outcome)
{
    struct payload payload = {0};
    int error;

    if (vb_mw_is_local(wr->opcode)) /* makes no packet */
        return vb_direct_execute(qp, wr, outcome);
    /* What is sent may be written over as soon as the peer has it. */
    if (!is_answered_with_data(wr))
        payload = copy_payload(qp, wr);
    error = qp->context->adapter->fabric ? vb_direct_fabric_execute(qp, wr, outcome)
                                         : vb_direct_execute(qp, wr, outcome);
    if (error) {
        capture_wait(capture, qp, wr, &payload);
    } else {
        if (is_answered_with_data(wr))
            payload = copy_payload(qp, wr);
        capture_direct_write_request(capture, qp, wr, &payload, outcome->status);
        capture->sequence[qp->index].waited = false;
    }
    free(payload.bytes);
    return error;
}
