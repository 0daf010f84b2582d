// SPDX-License-Identifier: Apache-2.0
/*
 * The responder's half of a request, in the requester's thread (responder.h): taking the receive
 * request, its completion, and the error state of the peer's QP.
 */
#include "direct/responder.h"

#include <errno.h>
#include <string.h>

#include "direct/message.h"
#include "direct/notice.h"
#include "hca/channel.h"
#include "hca/refusal.h"

int vb_direct_take_from_srq(struct vb_connection *to, struct vb_taken *taken)
{
    uint32_t number = to->remote->srq - 1;
    struct vb_receive receive;
    bool crossed;
    int error =
        vb_srq_take(&to->peer->view, vb_view_srq(&to->peer->view, number), to->remote,
                    to->qp->context->adapter->instance, &to->peer->gone, &receive, &crossed);

    if (error)
        return error;
    taken->wqe = receive.wqe;
    taken->position = receive.position;
    if (VB_UNLIKELY(crossed))
        vb_direct_notice_send(vb_direct_connection_direct(to), to->peer, VB_MSG_SRQ_NOTICE, number);
    return 0;
}

enum { AWAIT_PAUSES = 128 }; /* about 5 us */

/*
 * A sender that is faster than its receiver finds the queue empty again and again, and each look
 * takes the line to which the receiver posts. So it pauses until many have been posted: between two
 * processors, with 512 receives, 16.7 million SENDs of 8 bytes a second in place of 13.6. A request
 * that waits already is tried again by polls, which do not pause.
 */
VB_COLD int vb_direct_await_recv(struct vb_connection *to, struct vb_taken *taken)
{
    if (to->qp->wait.reason != VB_WAIT_NONE || to->qp->type == IBV_QPT_UC || to->peer->self)
        return -EAGAIN;
    for (unsigned i = 0; i < AWAIT_PAUSES; ++i)
        vb_pause();
    return vb_direct_take_recv(to, taken);
}

/* Wakes the peer's channel itself if it may, or asks the peer to. */
static void wake_channel(struct vb_direct *direct, struct vb_peer *peer, uint32_t cq)
{
    struct vb_cq_shared *shared = vb_view_cq(&peer->view, cq);
    struct vb_message wanted = {.type = VB_MSG_CHANNEL_WANTED, .object = cq};
    bool woken = false;

    vb_lock_take(&peer->mutex);
    for (int i = 0; i < VB_PEER_CHANNELS && !woken; ++i)
        if (peer->channels[i].serial == shared->channel) {
            vb_cq_wake(&peer->view, shared, cq, peer->channels[i].write_fd);
            woken = true;
        }
    vb_lock_release(&peer->mutex);
    if (woken)
        return;
    atomic_fetch_or(&shared->notices, VB_PUSH_EVENT);
    vb_direct_notice_send(direct, peer, VB_MSG_CQ_NOTICE, cq);
    vb_direct_message_send(peer->socket, &wanted, NULL, 0, false);
}

void vb_direct_after_remote_push(struct vb_direct *direct, struct vb_peer *peer, uint32_t cq,
                                 unsigned pushed)
{
    if ((pushed & VB_PUSH_EVENT) && peer->self)
        atomic_fetch_or(&vb_view_cq(&peer->view, cq)->notices, VB_PUSH_EVENT);
    else if (pushed & VB_PUSH_EVENT)
        wake_channel(direct, peer, cq);
    if ((pushed & VB_PUSH_OVERRUN) || peer->self)
        vb_direct_notice_send(direct, peer, VB_MSG_CQ_NOTICE, cq);
}

void vb_direct_notify_qp_event(struct vb_direct *direct, struct vb_peer *peer,
                               struct vb_qp_shared *remote, enum ibv_event_type event)
{
    atomic_fetch_or(&remote->notices, 1u << event);
    vb_direct_notice_send(direct, peer, VB_MSG_QP_NOTICE, vb_direct_peer_qp_index(peer, remote));
}

/* The notice first: if this process dies in between, the owner still learns why. */
void vb_direct_fail_remote(struct vb_connection *to, enum ibv_event_type event)
{
    uint32_t state;

    to = to->target; /* not the SRQ's proxy, but whom it was for */
    state = atomic_load(&to->remote->state);
    while (state >= IBV_QPS_RTR && state <= IBV_QPS_SQE) {
        atomic_fetch_or(&to->remote->notices, 1u << event);
        if (atomic_compare_exchange_weak(&to->remote->state, &state, IBV_QPS_ERR)) {
            vb_direct_notice_send(vb_direct_connection_direct(to), to->peer, VB_MSG_QP_NOTICE,
                                  vb_direct_peer_qp_index(to->peer, to->remote));
            return;
        }
        atomic_fetch_and(&to->remote->notices, ~(1u << event));
    }
}

VB_COLD enum ibv_wc_status vb_direct_delivered(struct vb_connection *to, unsigned pushed)
{
    bool refused = pushed & VB_PUSH_REFUSED; /* then the peer's queue pair fails after this */

    atomic_store(&to->qp->shared->only_wakes, !refused);
    vb_direct_after_remote_push(vb_direct_connection_direct(to), to->peer, to->remote->recv_cq,
                                pushed);
    atomic_store(&to->qp->shared->only_wakes, 0);
    if (!refused)
        return IBV_WC_SUCCESS;
    atomic_fetch_add(&to->qp->context->adapter->completions_lost, 1);
    return IBV_WC_REM_OP_ERR;
}

unsigned vb_direct_deliver_quietly(struct vb_connection *to, struct vb_taken *taken,
                                   const struct vb_cqe *entry, bool solicited)
{
    unsigned refused;
    struct vb_cqe *slot = vb_direct_deliver_begin(to, taken, &refused);

    if (!slot)
        return refused;
    slot->byte_len = entry->byte_len;
    slot->imm = entry->imm;
    slot->extra = entry->extra;
    slot->status = entry->status;
    slot->opcode = entry->opcode;
    slot->flags = entry->flags;
    slot->kind = entry->kind;
    memcpy(slot->data, entry->data, sizeof(slot->data));
    if (VB_UNLIKELY(to->remote->type == IBV_QPT_XRC_RECV))
        vb_cqe_name_xrc(slot, to->remote->srq - 1, to->target->remote->qp_num);
    return vb_direct_deliver_publish(to, taken, slot, solicited);
}

enum ibv_wc_status vb_direct_deliver(struct vb_connection *to, struct vb_taken *taken,
                                     const struct vb_cqe *entry, bool solicited)
{
    unsigned pushed = vb_direct_deliver_quietly(to, taken, entry, solicited);

    return VB_LIKELY(!pushed) ? IBV_WC_SUCCESS : vb_direct_delivered(to, pushed);
}

/*
 * May the memory go before the payload of a SEND is put there by poll? A process that is watched
 * hears of it in time. One that is not has to be written to at once, by its service thread where
 * nothing else reaches its memory: 6 to 11 times as long, so unreliable services, whose senders are
 * promised nothing, leave that to poll.
 */
static inline bool may_vanish(const struct vb_peer *peer, const struct vb_qp_shared *remote,
                              const struct vb_mr_shared *mr)
{
    if (VB_LIKELY(vb_mr_allows_waiting(&peer->view, mr)))
        return false;
    if (peer->view.header->watched)
        return true;
    return peer->self || peer->cma || vb_qp_reliable_type(remote->type);
}

/* Its elements have less room than its length says: the request is not as its owner wrote it. */
static VB_COLD enum vb_check responder_note_short(const struct vb_recv_wqe *wqe, uint64_t length,
                                                  struct vb_evidence *evidence)
{
    *evidence = (struct vb_evidence){
        .check = VB_CHECK_RECV_TOO_SHORT, .length = length, .mr_length = wqe->length};
    return VB_CHECK_RECV_TOO_SHORT;
}

enum vb_check vb_direct_recv_spans(const struct vb_peer *peer, const struct vb_qp_shared *remote,
                                   const struct vb_recv_wqe *wqe, uint64_t length,
                                   struct vb_spans *spans, struct vb_evidence *evidence)
{
    uint32_t pd = vb_recv_pd(&peer->view, remote), count = vb_recv_elements(&peer->view, wqe);

    spans->count = 0;
    spans->total = 0;
    spans->at_once = false;
    for (uint32_t i = 0; i < count && length; ++i) {
        const struct vb_recv_sge sge = vb_recv_sge(wqe, i);
        uint64_t part = sge.length < length ? sge.length : length, addr = sge.addr;
        const struct vb_mr_shared *mr;
        enum vb_check check =
            vb_mr_check(&peer->view, pd, sge.lkey, addr, part, IBV_ACCESS_LOCAL_WRITE, &mr);

        if (VB_UNLIKELY(check == VB_CHECK_PD) && vb_mr_is_null(mr, pd)) {
            vb_direct_spans_add(spans, peer->self ? (uint8_t *)(uintptr_t)mr->addr : NULL, mr->addr,
                                part);
            length -= part;
            continue;
        }
        if (VB_UNLIKELY(check && part))
            return vb_note_key(evidence, check | VB_CHECK_RECV, pd, sge.lkey, addr, part,
                               IBV_ACCESS_LOCAL_WRITE, mr);
        vb_direct_spans_add(spans, vb_direct_peer_pointer(peer, mr, addr, part),
                            mr->addr + (addr - mr->iova), part);
        spans->at_once |= may_vanish(peer, remote, mr);
        length -= part;
    }
    return VB_LIKELY(!length) ? VB_CHECK_OK
                              : responder_note_short(wqe, spans->total + length, evidence);
}

VB_COLD enum vb_check vb_direct_note_refusal(struct vb_connection *to, enum vb_check check,
                                             uint32_t rkey, uint64_t addr, uint64_t length,
                                             uint32_t need, const struct vb_mr_shared *mr,
                                             struct vb_evidence *evidence)
{
    vb_note_key(evidence, check, to->remote->pd, rkey, addr, length, need, mr);
    if (check == VB_CHECK_QP_ACCESS)
        evidence->access = to->remote->access;
    return check;
}
