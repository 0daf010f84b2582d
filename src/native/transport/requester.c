// SPDX-License-Identifier: Apache-2.0
/*
 * The requester: what a request has to wait for, beginning a request, making its packets, and its
 * end. The window and the retries are elsewhere (cwnd.h, retry.h).
 */
#include "transport/requester.h"

#include "hca/delays.h"
#include "hca/mw.h"
#include "hca/refusal.h"
#include "transport/cwnd.h"
#include "transport/gap.h"
#include "transport/mend.h"
#include "transport/pieces.h"
#include "transport/recovery.h"
#include "transport/retry.h"

enum { CHARGE_MIN = 1024 }; /* many small packets ask as often as few large ones */

static bool requester_takes_receive(const struct ibv_send_wr *wr)
{
    return wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM ||
           wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || wr->opcode == IBV_WR_SEND_WITH_INV;
}

static bool engine_requester_has_imm(const struct ibv_send_wr *wr)
{
    return wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_write(const struct ibv_send_wr *wr)
{
    return wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_atomic_write(const struct ibv_send_wr *wr)
{
    return wr->opcode == IBV_WR_ATOMIC_WRITE;
}

static bool is_beyond_credits(const struct vb_requester *r, uint32_t ssn)
{
    return !r->unlimited && vb_wire_psn_diff(ssn, r->lsn) > 0;
}

/*
 * A limited request (IBA 9.7.7.2.5) goes if no answer is awaited that could bring credits. The
 * responder answers it with RNR if it has no receive request.
 */
static bool lacks_credit(struct vb_endpoint *ep)
{
    struct vb_requester *r = &ep->requester;
    bool lacks = is_beyond_credits(r, r->ssn + 1) && vb_engine_requester_outstanding(r);

    if (lacks && !r->stalled)
        ++ep->engine->counters.credit_stalls;
    return r->stalled = lacks;
}

/* Must the request wait for a fence, READ resources or credits? UC has none of them. */
static bool must_wait(struct vb_endpoint *ep, const struct ibv_send_wr *wr)
{
    const struct vb_requester *r = &ep->requester;
    uint8_t limit = ep->qp->terms.max_rd_atomic;

    if (vb_engine_endpoint_is_uc(ep))
        return false;
    if ((wr->send_flags & IBV_SEND_FENCE) && r->rd_outstanding)
        return true;
    if (vb_engine_is_read_or_atomic(wr))
        return limit && r->rd_outstanding >= limit;
    return requester_takes_receive(wr) && lacks_credit(ep);
}

static bool refuse_atomic_length(struct vb_qp *qp, const struct ibv_send_wr *wr, uint64_t length,
                                 struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {
        .check = VB_CHECK_ATOMIC_LENGTH, .addr = wr->wr.atomic.remote_addr, .length = length};

    vb_refuse(qp, wr, IBV_WC_LOC_LEN_ERR, &evidence, outcome);
    return false;
}

/* The request at `begun`, or the one whose packets are sent, fails. Returns false. */
static VB_COLD bool requester_fails(struct vb_endpoint *ep, const struct vb_outcome *outcome)
{
    ep->requester.failure = (uint8_t)outcome->status & 31;
    ep->requester.failure_evidence = outcome->evidence;
    return false;
}

static struct vb_outcome requester_failure(const struct vb_requester *r)
{
    return (struct vb_outcome){.status = (enum ibv_wc_status)r->failure,
                               .evidence = r->failure_evidence};
}

/* A FLUSH has no payload: its length is that of the peer's range. */
static bool engine_requester_check_flush(struct vb_endpoint *ep, const struct ibv_send_wr *wr)
{
    struct vb_outcome outcome = {0};

    if (wr->wr.flush.level == IBV_FLUSH_MR || wr->wr.flush.length <= VB_MESSAGE_MAX)
        return true;
    vb_refuse_length(ep->qp, wr, wr->wr.flush.length, VB_MESSAGE_MAX, &outcome);
    return requester_fails(ep, &outcome);
}

/* The packet that may leave at once with all of a message, whose keys are then checked only once.
 */
static struct vb_packet *packet_of_all(const struct vb_endpoint *ep, const struct ibv_send_wr *wr,
                                       uint64_t length, struct vb_packet *packet)
{
    bool fits = length <= ep->path.mtu && !ep->engine->config.virtual_payload;

    return fits && (!vb_engine_is_read_or_atomic(wr) || is_atomic_write(wr)) ? packet : NULL;
}

static bool check_request(struct vb_endpoint *ep, struct vb_sq_wqe *wqe, struct vb_packet *packet)
{
    struct vb_outcome outcome = {0};
    const struct ibv_send_wr *wr = &wqe->wr;
    bool reads = vb_engine_is_read_or_atomic(wr);
    struct vb_evidence evidence = {.check = VB_CHECK_RD_ATOMIC};
    uint64_t length = vb_engine_elements_length(wr);

    if (reads && !ep->qp->terms.max_rd_atomic) {
        vb_refuse(ep->qp, wr, IBV_WC_LOC_QP_OP_ERR, &evidence, &outcome);
        return requester_fails(ep, &outcome);
    }
    if (!vb_engine_elements_check(ep->qp, wr,
                                  reads && !is_atomic_write(wr) ? IBV_ACCESS_LOCAL_WRITE : 0,
                                  packet_of_all(ep, wr, length, packet), &outcome))
        return requester_fails(ep, &outcome);
    if (VB_UNLIKELY(length > VB_MESSAGE_MAX)) {
        vb_refuse_length(ep->qp, wr, length, VB_MESSAGE_MAX, &outcome);
        return requester_fails(ep, &outcome);
    }
    wqe->length = (uint32_t)length;
    if (!reads || wr->opcode == IBV_WR_RDMA_READ)
        return true;
    if (wr->opcode == IBV_WR_FLUSH)
        return engine_requester_check_flush(ep, wr);
    if (length < sizeof(uint64_t) || (is_atomic_write(wr) && length != sizeof(uint64_t)))
        return refuse_atomic_length(ep->qp, wr, length, &outcome) || requester_fails(ep, &outcome);
    wqe->length = sizeof(uint64_t);
    return true;
}

enum { READ_PART_LEAST = 4, READ_PARTS = 4 };

/*
 * The number of packets that one READ request asks for: half a window, so that two can be in
 * flight. The responder sends them all at once, and all from a lost one on again. So a congestion
 * window holds several such requests, and after a loss as many as may be outstanding.
 */
static uint32_t read_part(const struct vb_endpoint *ep, uint32_t packets)
{
    uint32_t part = ep->window / 2 ? ep->window / 2 : 1, parts = ep->qp->terms.max_rd_atomic;
    uint64_t fair;

    if (!vb_engine_endpoint_adapts(ep))
        return packets <= ep->window ? packets : part;
    if (parts > READ_PARTS && !vb_engine_cwnd_was_cut(ep->share->cwnd))
        parts = READ_PARTS;
    fair = ep->share->cwnd->window / ep->path.mtu / parts;
    if (fair < READ_PART_LEAST)
        fair = READ_PART_LEAST;
    return fair < part ? (uint32_t)fair : part;
}

/* The number by which the request will raise the responder's MSN. */
static uint32_t messages_of(const struct vb_sq_wqe *wqe)
{
    if (wqe->wr.opcode != IBV_WR_RDMA_READ)
        return 1;
    return (wqe->packets + wqe->part - 1) / wqe->part;
}

/*
 * A request that makes no packet is carried out at its turn in the queue (IBA 10.8.3.2), and
 * completed when all before it are. False: it failed, and ends at its turn.
 */
static VB_COLD bool engine_requester_carry_out(struct vb_endpoint *ep, struct vb_sq_wqe *wqe)
{
    struct vb_requester *r = &ep->requester;
    struct vb_outcome outcome = {.status = IBV_WC_SUCCESS};

    vb_mw_execute(ep->qp, &wqe->wr, &outcome); /* under the engine's lock no peer is at work */
    if (outcome.status != IBV_WC_SUCCESS) {
        r->failed = true;
        return requester_fails(ep, &outcome);
    }
    wqe->first_psn = r->fresh_psn;
    wqe->packets = wqe->length = 0;
    wqe->ssn = r->ssn;
    if (r->position == r->begun)
        ++r->position;
    if (ep->qp->sq_next == r->begun++)
        vb_engine_requester_complete(ep, &outcome);
    return true;
}

/*
 * Notes from which request on all are READs and atomics with little payload. Only few of those can
 * be in flight, so they need not count as full packets in the congestion window.
 */
static void requester_note_short(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe)
{
    enum { SHORT_PAYLOAD = 64 };
    const struct vb_requester *r = &ep->requester;

    if (!vb_engine_is_read_or_atomic(&wqe->wr) || wqe->length > SHORT_PAYLOAD)
        ep->share->short_psn = r->fresh_psn;
    else if (vb_wire_psn_diff(ep->share->short_psn, r->una) < 0)
        ep->share->short_psn = r->una;
}

/*
 * Gives the next request its PSNs; false: there is none, or it may not go yet, or ever. `packet` is
 * the one that is being made, if the request's first packet may be it, and else NULL.
 */
static bool begin_next(struct vb_endpoint *ep, struct vb_packet *packet)
{
    struct vb_requester *r = &ep->requester;
    struct vb_qp *qp = ep->qp;
    struct vb_sq_wqe *wqe;
    uint32_t messages;

    do {
        wqe = vb_engine_sq_at(qp, r->begun);
        if (r->begun + r->untold == qp->sq_posted || r->failed || vb_qp_state(qp) != IBV_QPS_RTS ||
            must_wait(ep, &wqe->wr))
            return false;
    } while (VB_UNLIKELY(vb_mw_is_local(wqe->wr.opcode)) && engine_requester_carry_out(ep, wqe));
    if (VB_UNLIKELY(r->failed))
        return false;
    if (VB_UNLIKELY(!check_request(ep, wqe, packet))) {
        r->failed = true;
        return false;
    }
    wqe->first_psn = r->fresh_psn;
    wqe->packets = vb_engine_packets_of(wqe->length, ep->path.mtu);
    if (wqe->wr.opcode == IBV_WR_RDMA_READ)
        wqe->part = read_part(ep, wqe->packets);
    messages = messages_of(wqe);
    wqe->ssn = r->ssn = vb_engine_psn_add(r->ssn, messages);
    if (!r->unlimited &&
        !requester_takes_receive(&wqe->wr)) /* it raises the MSN and takes no credit */
        r->lsn = vb_engine_psn_add(r->lsn, messages);
    r->fresh_psn = vb_engine_psn_add(r->fresh_psn, wqe->packets);
    if (vb_engine_endpoint_adapts(ep))
        requester_note_short(ep, wqe);
    ++r->begun;
    qp->wait.reason = VB_WAIT_ANSWER;
    return true;
}

static uint32_t in_flight(const struct vb_requester *r)
{
    return vb_engine_psn_count(r->una, r->next_psn);
}

void vb_engine_requester_pass_local(struct vb_endpoint *ep)
{
    struct vb_requester *r = &ep->requester;

    while (r->position != r->begun && !vb_engine_sq_at(ep->qp, r->position)->packets)
        ++r->position;
}

/* The cursor moves over `count` packets. */
static void requester_advance(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe, uint32_t count)
{
    struct vb_requester *r = &ep->requester;

    r->index += count;
    r->next_psn = vb_engine_psn_add(r->next_psn, count);
    if (r->index == wqe->packets) {
        ++r->position;
        r->index = 0;
        vb_engine_requester_pass_local(ep);
    }
    if (vb_wire_psn_diff(r->next_psn, r->sent_psn) > 0)
        r->sent_psn = r->next_psn;
}

enum { PROBE_PACKETS = 16 };

/*
 * The number of packets that may be in flight. After a timeout the whole window would most likely
 * be lost again, or is still on its way: until there is an answer it is small, and one READ or
 * atomic.
 */
static uint32_t requester_window_of(const struct vb_endpoint *ep)
{
    if (VB_UNLIKELY(ep->requester.probing) && ep->window > PROBE_PACKETS)
        return PROBE_PACKETS;
    if (VB_UNLIKELY(vb_engine_recovery_of(ep) != NULL) && ep->share->recovery->opening)
        return ep->share->recovery->opening;
    return ep->window;
}

/* The number of READs and atomics that may be outstanding. */
static uint32_t reads_of(const struct vb_endpoint *ep)
{
    return VB_UNLIKELY(ep->requester.probing) ? 1 : ep->qp->terms.max_rd_atomic;
}

/*
 * At its rate limit the QP has sent for a good part of the local ACK timeout without asking for an
 * acknowledgement, so the timer would expire.
 */
static VB_COLD bool pace_asks(const struct vb_endpoint *ep)
{
    const struct vb_qp *qp = ep->qp;
    uint64_t bits = (uint64_t)ep->requester.unasked * 8;

    return bits * 1000 * 1000 / qp->verbs->pace->rate >= vb_ack_timeout(qp->terms.timeout) / 4;
}

/*
 * Does this packet, which the cursor has passed, ask for an acknowledgement? It does at the end of
 * a message unless another message follows at once, if nothing more may be sent (the window is
 * full, or it is the first packet of a limited request, IBA 9.7.7.2.5), and every ack_bytes.
 */
static bool asks(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe, bool first, bool last)
{
    struct vb_requester *r = &ep->requester;
    bool ask = r->ask || r->unasked >= ep->engine->config.ack_bytes ||
               in_flight(r) >= requester_window_of(ep);

    if (first && requester_takes_receive(&wqe->wr) && is_beyond_credits(r, wqe->ssn))
        ask = true;
    if (VB_UNLIKELY(ep->qp->paced) && pace_asks(ep))
        ask = true;
    if (vb_engine_cwnd_ends_turn(ep))
        ask = true;
    if (last && r->position == r->begun && !begin_next(ep, NULL))
        ask = true;
    if (ask) {
        r->ask = false;
        r->unasked = 0;
    }
    return ask;
}

/* Starts the local ACK timeout with the first packet after a pause. */
static void start_timer(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_requester *r = &ep->requester;

    if (ep->timer.due != VB_NEVER)
        return;
    r->since = now;
    vb_engine_retry_start_timer(ep, now);
}

static void requester_write_bth(struct vb_endpoint *ep, struct vb_packet *packet, uint8_t operation,
                                uint32_t psn, bool ask, bool solicited)
{
    struct vb_bth bth = vb_engine_packet_bth(ep, packet, operation, psn);

    bth.solicited = solicited;
    bth.ack_request = ask;
    vb_wire_bth_write(packet->header, &bth);
}

static VB_COLD uint32_t probed_after(const struct vb_endpoint *ep)
{
    const struct vb_recovery *recovery =
        vb_engine_recovery_of(ep); /* NULL if there is no memory for one */
    uint64_t at = recovery ? recovery->mended_at : 0, since = ep->requester.since;

    return at > since ? (uint32_t)((at - since) / 1000) : 0;
}

static void requester_open_packet(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe,
                                  struct vb_packet *packet)
{
    const struct vb_requester *r = &ep->requester;

    vb_engine_packet_open(ep, packet);
    if (VB_UNLIKELY(vb_wire_psn_diff(r->next_psn, r->sent_psn) < 0)) {
        packet->reason = r->reason;
        packet->missing_psn = r->una;
        packet->unanswered_us = r->reason == VB_PACKET_PROBE ? probed_after(ep) : 0;
        ++ep->engine->counters.packets_resent;
    }
    if (VB_UNLIKELY(ep->base == VB_TRANSPORT_XRC)) {
        vb_wire_xrceth_write(packet->header + VB_BTH, wqe->wr.qp_type.xrc.remote_srqn);
        packet->header_length += VB_XRCETH;
    }
}

/* The end of every request packet, after its headers. */
static void close_packet(struct vb_endpoint *ep, const struct vb_packet *packet, uint64_t now)
{
    ep->engine->counters.payload_sent += packet->payload_length;
    if (vb_engine_endpoint_is_uc(ep))
        ep->requester.una = ep->requester.next_psn;
    else
        start_timer(ep, now);
}

static uint8_t message_operation(const struct ibv_send_wr *wr, bool first, bool last)
{
    uint8_t operation = is_write(wr) ? VB_OP_WRITE_FIRST : VB_OP_SEND_FIRST;

    if (last && VB_UNLIKELY(wr->opcode == IBV_WR_SEND_WITH_INV))
        operation = first ? VB_OP_SEND_ONLY_INVALIDATE : VB_OP_SEND_LAST_INVALIDATE;
    else if (last)
        operation = (uint8_t)(operation + (first ? VB_OP_SEND_ONLY : VB_OP_SEND_LAST) +
                              engine_requester_has_imm(wr));
    else if (!first)
        operation += VB_OP_SEND_MIDDLE;
    return operation;
}

static void add_message_headers(struct vb_packet *packet, const struct vb_sq_wqe *wqe, bool first,
                                bool last)
{
    if (first && is_write(&wqe->wr)) {
        struct vb_reth reth = {wqe->wr.wr.rdma.remote_addr, wqe->wr.wr.rdma.rkey, wqe->length};

        vb_wire_reth_write(packet->header + packet->header_length, &reth);
        packet->header_length += VB_RETH;
    }
    if (last && engine_requester_has_imm(&wqe->wr)) { /* it is in network byte order already */
        memcpy(packet->header + packet->header_length, &wqe->wr.imm_data, VB_IMM);
        packet->header_length += VB_IMM;
    } else if (last && VB_UNLIKELY(wqe->wr.opcode == IBV_WR_SEND_WITH_INV)) {
        vb_wire_put32(packet->header + packet->header_length, wqe->wr.invalidate_rkey);
        packet->header_length += VB_IETH;
    }
}

static bool requester_add_payload(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe,
                                  uint32_t offset, uint32_t length, struct vb_packet *packet)
{
    struct vb_outcome outcome = {0};

    packet->pad = -length & 3;
    if (!ep->engine->config.virtual_payload)
        return vb_engine_elements_gather(ep->qp, &wqe->wr, offset, length, packet, &outcome) ||
               requester_fails(ep, &outcome);
    if (length)
        vb_engine_packet_add(packet, NULL, length);
    return true;
}

static bool next_of_message(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe,
                            struct vb_packet *packet, uint64_t now)
{
    struct vb_requester *r = &ep->requester;
    uint32_t psn = r->next_psn, offset = r->index * ep->path.mtu;
    uint32_t left = wqe->length - offset, length = left < ep->path.mtu ? left : ep->path.mtu;
    bool first = r->index == 0, last = r->index + 1 == wqe->packets, ask;
    bool is_new = psn == r->sent_psn;

    if (VB_UNLIKELY(!requester_add_payload(ep, wqe, offset, length, packet)))
        return false;
    add_message_headers(packet, wqe, first, last);
    r->unasked += length > CHARGE_MIN ? length : CHARGE_MIN;
    requester_advance(ep, wqe, 1);
    ask = asks(ep, wqe, first, last) && !vb_engine_endpoint_is_uc(ep);
    if (ask && is_new && vb_engine_endpoint_adapts(ep))
        vb_engine_cwnd_time(ep, psn, now);
    requester_write_bth(ep, packet, message_operation(&wqe->wr, first, last), psn, ask,
                        last && (wqe->wr.send_flags & IBV_SEND_SOLICITED) &&
                            wqe->wr.opcode != IBV_WR_RDMA_WRITE);
    close_packet(ep, packet, now);
    return true;
}

uint32_t vb_engine_requester_read_end(const struct vb_sq_wqe *wqe, uint32_t index)
{
    uint32_t end = (index / wqe->part + 1) * wqe->part;

    return end > wqe->packets ? wqe->packets : end;
}

/* The packet was all of a request, or of a part of a READ, that is answered by itself. */
static void close_answered(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe, uint32_t psns,
                           const struct vb_packet *packet, uint64_t now)
{
    struct vb_requester *r = &ep->requester;

    requester_advance(ep, wqe, psns);
    ++r->rd_outstanding;
    r->ask = false;
    r->unasked = 0;
    close_packet(ep, packet, now);
}

static void requester_next_of_read(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe,
                                   struct vb_packet *packet, uint64_t now)
{
    struct vb_requester *r = &ep->requester;
    uint32_t psn = r->next_psn, end = vb_engine_requester_read_end(wqe, r->index);
    uint64_t from = (uint64_t)r->index * ep->path.mtu, to;
    struct vb_reth reth = {
        .addr = wqe->wr.wr.rdma.remote_addr + from,
        .rkey = wqe->wr.wr.rdma.rkey,
    };

    if (VB_UNLIKELY(vb_engine_recovery_of(ep) != NULL) && ep->share->recovery->beside)
        end = vb_engine_mend_read_end(ep, wqe, end);
    to = (uint64_t)end * ep->path.mtu;
    reth.length = (uint32_t)((to < wqe->length ? to : wqe->length) - from);
    if (r->index && vb_engine_requester_read_end(wqe, r->index - 1) == end)
        r->resumed_psn = psn;
    vb_wire_reth_write(packet->header + packet->header_length, &reth);
    packet->header_length += VB_RETH;
    requester_write_bth(ep, packet, VB_OP_READ_REQUEST, psn, true, false);
    close_answered(ep, wqe, end - r->index, packet, now);
}

static void next_of_atomic(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe,
                           struct vb_packet *packet, uint64_t now)
{
    bool swap = wqe->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    struct vb_atomiceth atomic = {
        .addr = wqe->wr.wr.atomic.remote_addr,
        .rkey = wqe->wr.wr.atomic.rkey,
        .swap_add = swap ? wqe->wr.wr.atomic.swap : wqe->wr.wr.atomic.compare_add,
        .compare = swap ? wqe->wr.wr.atomic.compare_add : 0,
    };

    vb_wire_atomiceth_write(packet->header + packet->header_length, &atomic);
    packet->header_length += VB_ATOMICETH;
    requester_write_bth(ep, packet, swap ? VB_OP_COMPARE_SWAP : VB_OP_FETCH_ADD,
                        ep->requester.next_psn, true, false);
    close_answered(ep, wqe, 1, packet, now);
}

static bool next_of_atomic_write(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe,
                                 struct vb_packet *packet, uint64_t now)
{
    struct vb_reth reth = {wqe->wr.wr.rdma.remote_addr, wqe->wr.wr.rdma.rkey, wqe->length};

    if (VB_UNLIKELY(!requester_add_payload(ep, wqe, 0, wqe->length, packet)))
        return false;
    vb_wire_reth_write(packet->header + packet->header_length, &reth);
    packet->header_length += VB_RETH;
    requester_write_bth(ep, packet, VB_OP_ATOMIC_WRITE, ep->requester.next_psn, true, false);
    close_answered(ep, wqe, 1, packet, now);
    return true;
}

static void next_of_flush(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe,
                          struct vb_packet *packet, uint64_t now)
{
    const struct ibv_send_wr *wr = &wqe->wr;
    struct vb_feth feth = {wr->wr.flush.type, wr->wr.flush.level};
    struct vb_reth reth = {wr->wr.flush.remote_addr, wr->wr.flush.rkey,
                           (uint32_t)wr->wr.flush.length};

    vb_wire_feth_write(packet->header + packet->header_length, &feth);
    vb_wire_reth_write(packet->header + packet->header_length + VB_FETH, &reth);
    packet->header_length += VB_FETH + VB_RETH;
    requester_write_bth(ep, packet, VB_OP_FLUSH, ep->requester.next_psn, true, false);
    close_answered(ep, wqe, 1, packet, now);
}

static bool next_of_answered(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe,
                             struct vb_packet *packet, uint64_t now)
{
    const struct vb_requester *r = &ep->requester;

    if (vb_engine_endpoint_adapts(ep) && r->next_psn == r->sent_psn)
        vb_engine_cwnd_time(ep, r->next_psn, now);
    if (is_atomic_write(&wqe->wr))
        return next_of_atomic_write(ep, wqe, packet, now);
    if (wqe->wr.opcode == IBV_WR_RDMA_READ)
        requester_next_of_read(ep, wqe, packet, now);
    else if (wqe->wr.opcode == IBV_WR_FLUSH)
        next_of_flush(ep, wqe, packet, now);
    else
        next_of_atomic(ep, wqe, packet, now);
    return true;
}

/* Must the packets of a request that was begun wait? */
static bool is_held(const struct vb_endpoint *ep, const struct vb_sq_wqe *wqe)
{
    const struct vb_requester *r = &ep->requester;

    if (vb_engine_endpoint_is_uc(ep))
        return false;
    if (in_flight(r) >= requester_window_of(ep))
        return true;
    if (vb_engine_is_read_or_atomic(&wqe->wr))
        return r->rd_outstanding >= reads_of(ep);
    /* The first packet of a limited message goes alone until it is acknowledged. */
    return r->index == 1 && r->una == wqe->first_psn && requester_takes_receive(&wqe->wr) &&
           !is_write(&wqe->wr) && is_beyond_credits(r, wqe->ssn);
}

/* The request at `begun` cannot go: it ends if all before it have ended. */
static void fail_if_first(struct vb_endpoint *ep)
{
    struct vb_requester *r = &ep->requester;
    struct vb_outcome failure = requester_failure(r);

    if (!r->failed || ep->qp->sq_next != r->begun)
        return;
    r->failed = false;
    vb_engine_requester_complete(ep, &failure);
}

/*
 * A region of a request whose packets are being sent is gone. What became of the requests before it
 * is unknown, so they are flushed.
 */
static VB_COLD void fail_under_way(struct vb_endpoint *ep)
{
    struct vb_outcome failure = requester_failure(&ep->requester),
                      flushed = {.status = IBV_WC_WR_FLUSH_ERR};
    struct vb_qp *qp = ep->qp;
    uint32_t none = 0;

    atomic_compare_exchange_strong(&qp->shared->failed, &none, failure.evidence);
    flushed.evidence = vb_flush_evidence(qp);
    if (vb_engine_endpoint_is_uc(ep)) {
        ep->requester.unleft = 0;
        vb_engine_requester_finish(ep);
    }
    while (qp->sq_next != ep->requester.position)
        vb_sq_complete(qp, &vb_engine_sq_at(qp, qp->sq_next)->wr, &flushed);
    vb_engine_requester_complete(ep, &failure);
}

bool vb_engine_requester_make(struct vb_endpoint *ep, const struct vb_sq_wqe *wqe,
                              struct vb_packet *packet, uint64_t now)
{
    requester_open_packet(ep, wqe, packet);
    if (VB_LIKELY(vb_engine_is_read_or_atomic(&wqe->wr) ? next_of_answered(ep, wqe, packet, now)
                                                        : next_of_message(ep, wqe, packet, now)))
        return true;
    fail_under_way(ep);
    return false;
}

/* Has the congestion window no room, or do others come first? Then the connection waits. */
static bool is_crowded(struct vb_endpoint *ep)
{
    return vb_engine_endpoint_adapts(ep) && (ep->crowded = vb_engine_cwnd_is_closed(ep));
}

static bool requester_next_packet(struct vb_endpoint *ep, struct vb_packet *packet, uint64_t now)
{
    struct vb_requester *r = &ep->requester;
    enum ibv_qp_state state = vb_qp_state(ep->qp);
    const struct vb_sq_wqe *wqe;

    packet->payload_length = 0;
    packet->piece_count = 0;
    if (vb_engine_endpoint_adapts(ep))
        ep->crowded = false;
    if ((state != IBV_QPS_RTS && state != IBV_QPS_SQD) || r->rnr_wait || !r->started)
        return false;
    if (VB_UNLIKELY(vb_engine_recovery_of(ep) != NULL) && vb_engine_mend_is_due(ep))
        return vb_engine_mend_next(ep, packet, now);
    if (r->position == r->begun && !begin_next(ep, packet)) {
        fail_if_first(ep);
        return false;
    }
    wqe = vb_engine_sq_at(ep->qp, r->position);
    if (is_held(ep, wqe) || is_crowded(ep))
        return false;
    return vb_engine_requester_make(ep, wqe, packet, now);
}

bool vb_engine_requester_next(struct vb_endpoint *ep, struct vb_packet *packet, uint64_t now)
{
    bool made = requester_next_packet(ep, packet, now);

    if (made && vb_engine_endpoint_is_uc(ep) && ep->qp->sq_next != ep->requester.position)
        vb_engine_ready_add(&ep->engine->finishing, &ep->owing);
    return made;
}

void vb_engine_requester_go_back(struct vb_endpoint *ep, enum vb_packet_reason reason)
{
    struct vb_requester *r = &ep->requester;

    r->reason = (uint8_t)reason;
    r->position = ep->qp->sq_next;
    r->index = vb_engine_psn_count(vb_engine_sq_at(ep->qp, r->position)->first_psn, r->una);
    r->next_psn = r->una;
    r->rd_outstanding = 0;
    r->ask = true;
    r->unasked = 0;
    if (vb_engine_endpoint_adapts(ep))
        vb_engine_cwnd_untime(ep);
    if (vb_engine_recovery_of(ep))
        ep->share->recovery->mending = ep->share->recovery->asks = false;
    vb_engine_ready_add(&ep->engine->requesting, &ep->requesting);
}

void vb_engine_requester_catch_up(struct vb_endpoint *ep)
{
    struct vb_requester *r = &ep->requester;

    if (vb_wire_psn_diff(r->una, r->next_psn) <= 0)
        return;
    r->position = ep->qp->sq_next;
    r->index = r->position == r->begun
                   ? 0
                   : vb_engine_psn_count(vb_engine_sq_at(ep->qp, r->position)->first_psn, r->una);
    r->next_psn = r->una;
}

static void forget_recovery(struct vb_endpoint *ep)
{
    struct vb_recovery *recovery = ep->share->recovery;

    ep->probes = 0;
    ep->share->short_psn = ep->requester.una;
    vb_engine_cwnd_untime(ep);
    vb_engine_cwnd_note(ep);
    if (!recovery)
        return;
    recovery->mending = recovery->is_ahead = recovery->asks = recovery->asked = false;
    recovery->opening = recovery->holes = 0;
    recovery->mended_at = 0;
    vb_engine_gap_forget(ep->engine, &recovery->early_answer);
}

/* Nothing is outstanding any more, and the next PSN is one that was never used. */
static void forget_requests(struct vb_endpoint *ep)
{
    struct vb_requester *r = &ep->requester;

    r->position = r->begun = ep->qp->sq_next;
    r->index = 0;
    r->una = r->next_psn = r->fresh_psn = r->sent_psn;
    r->rd_outstanding = 0;
    r->failed = r->rnr_wait = r->implied = r->probing = false;
    if (vb_engine_endpoint_adapts(ep))
        forget_recovery(ep);
}

static void requester_start(struct vb_endpoint *ep)
{
    struct vb_requester *r = &ep->requester;

    r->sent_psn = ep->qp->terms.sq_psn;
    forget_requests(ep);
    r->started = true;
}

void vb_engine_requester_sync(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_requester *r = &ep->requester;
    enum ibv_qp_state state = vb_qp_state(ep->qp);

    if (state == IBV_QPS_ERR || state == IBV_QPS_SQE) {
        forget_requests(ep);
        vb_engine_timer_set(&ep->engine->timers, &ep->timer, VB_NEVER);
        return;
    }
    if (state != IBV_QPS_RTS && state != IBV_QPS_SQD)
        return;
    if (!r->started)
        requester_start(ep);
    else if ((int32_t)(ep->qp->sq_next - r->position) > 0) /* flushed in SQE */
        forget_requests(ep);
    if (!vb_engine_requester_outstanding(r)) {
        r->retry_left = ep->qp->terms.retry_cnt;
        r->rnr_left = ep->qp->terms.rnr_retry;
        r->since = now;
    }
}

/* Requests without packets that were carried out complete with the one that they followed. */
static void complete_local(struct vb_endpoint *ep)
{
    const struct vb_outcome done = {.status = IBV_WC_SUCCESS};
    struct vb_qp *qp = ep->qp;

    while (qp->sq_next != ep->requester.begun && !vb_engine_sq_at(qp, qp->sq_next)->packets)
        vb_sq_complete(qp, &vb_engine_sq_at(qp, qp->sq_next)->wr, &done);
}

void vb_engine_requester_complete(struct vb_endpoint *ep, const struct vb_outcome *outcome)
{
    struct vb_requester *r = &ep->requester;
    struct vb_qp *qp = ep->qp;

    vb_sq_complete(qp, &vb_engine_sq_at(qp, qp->sq_next)->wr, outcome);
    if (VB_LIKELY(outcome->status == IBV_WC_SUCCESS))
        complete_local(ep);
    if (VB_UNLIKELY(outcome->status != IBV_WC_SUCCESS)) {
        forget_requests(ep);
        r->flush_owed = true;
        vb_engine_timer_set(&ep->engine->timers, &ep->timer, VB_NEVER);
        return;
    }
    if (qp->sq_next != r->begun)
        return;
    qp->wait.reason = VB_WAIT_NONE;
    fail_if_first(ep);
    if (VB_UNLIKELY(vb_qp_state(qp) == IBV_QPS_SQD))
        vb_sq_run(qp); /* drained */
}

void vb_engine_requester_finish(struct vb_endpoint *ep)
{
    const struct vb_outcome done = {.status = IBV_WC_SUCCESS};

    while ((int32_t)(ep->requester.position - ep->qp->sq_next) > ep->requester.unleft)
        vb_engine_requester_complete(ep, &done);
}
