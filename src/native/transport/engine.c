// SPDX-License-Identifier: Apache-2.0
/*
 * The packet engine's entry points: connecting QPs, arrivals on their way to the responder, the
 * completer or a UD QP, the next packet to send, and timers. It takes each QP's sq_lock around the
 * calls of the requester and the completer.
 */
#include "transport/engine.h"

#include <errno.h>
#include <stdlib.h>

#include "hca/multicast.h"
#include "transport/completer.h"
#include "transport/cwnd.h"
#include "transport/datagram.h"
#include "transport/early.h"
#include "transport/gap.h"
#include "transport/recovery.h"
#include "transport/replies.h"
#include "transport/requester.h"
#include "transport/responder.h"
#include "transport/retry.h"

enum {
    WINDOW_BYTES = 1 << 20,
    ACK_BYTES = 256 << 10,
    BURST = 64,
};

int vb_engine_create(struct vb_adapter *adapter, const struct vb_engine_config *config,
                     struct vb_engine **engine)
{
    struct vb_engine *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    made->adapter = adapter;
    made->config = *config;
    if (!config->window_bytes)
        made->config.window_bytes = WINDOW_BYTES;
    if (!config->ack_bytes)
        made->config.ack_bytes = ACK_BYTES;
    if (!config->burst)
        made->config.burst = BURST;
    vb_engine_ready_init(&made->replying);
    vb_engine_ready_init(&made->requesting);
    vb_engine_ready_init(&made->finishing);
    if (config->adapts && vb_engine_gap_open_store(made)) {
        free(made);
        return -ENOMEM;
    }
    adapter->engine = made;
    *engine = made;
    return 0;
}

void vb_engine_destroy(struct vb_engine *engine)
{
    engine->adapter->engine = NULL;
    vb_engine_timers_free(&engine->timers);
    vb_engine_gap_close_store(engine);
    vb_engine_recovery_free_all(engine);
    free(engine);
}

void vb_engine_set_own(struct vb_engine *engine, vb_is_own_fn *is_own, void *context)
{
    engine->is_own = is_own;
    engine->own_context = context;
}

const struct vb_counters *vb_engine_counters(const struct vb_engine *engine)
{
    return &engine->counters;
}

static bool is_mtu(uint32_t mtu)
{
    return mtu >= 256 && mtu <= 4096 && (mtu & (mtu - 1)) == 0;
}

static uint32_t engine_window_of(const struct vb_engine *engine, uint32_t mtu)
{
    uint32_t packets = engine->config.window_bytes / mtu;

    if (engine->config.restart)
        return VB_WINDOW_MAX;
    if (packets > VB_WINDOW_MAX / 2) /* a READ may exceed the window by as much again */
        packets = VB_WINDOW_MAX / 2;
    return packets ? packets : 1;
}

static void free_endpoint(struct vb_endpoint *ep)
{
    const size_t at = offsetof(struct vb_program_endpoint, endpoint);

    free(ep->replies.record);
    if (ep->share)
        free((char *)ep - at);
}

static uint8_t engine_transport_of(enum ibv_qp_type type)
{
    switch (type) {
    case IBV_QPT_UC:
        return VB_TRANSPORT_UC;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
        return VB_TRANSPORT_XRC;
    default:
        return VB_TRANSPORT_RC;
    }
}

static int join_timers(struct vb_engine *engine, struct vb_endpoint *ep)
{
    int error = vb_engine_timer_join(&engine->timers, &ep->timer, VB_TIMER_RETRY);

    if (error || !ep->share)
        return error;
    error = vb_engine_timer_join(&engine->timers, &ep->share->resume, VB_TIMER_RESUME);
    if (error)
        vb_engine_timer_leave(&engine->timers, &ep->timer);
    return error;
}

/* The path MTU stays, because packets in flight keep their size. */
static int change_path(struct vb_endpoint *ep, const struct vb_path *path)
{
    uint16_t mtu = ep->path.mtu;

    if (vb_engine_endpoint_adapts(ep) && vb_engine_cwnd_join(ep, path->dgid))
        return -ENOMEM;
    ep->path = *path;
    ep->path.mtu = mtu;
    return 0;
}

/* For an endpoint that is disconnected, or could not be connected. */
static void leave_cwnd(struct vb_endpoint *ep)
{
    if (!vb_engine_endpoint_adapts(ep))
        return;
    vb_engine_recovery_put(ep);
    vb_engine_cwnd_leave(ep);
}

/* After an error the memory of `ep` is still its caller's. */
static int open_endpoint(struct vb_engine *engine, struct vb_qp *qp, const struct vb_path *path,
                         struct vb_endpoint *ep)
{
    int error;

    ep->engine = engine;
    ep->qp = qp;
    ep->path = *path;
    ep->base = engine_transport_of(qp->type);
    error = vb_engine_replies_fit(ep);
    if (!error && vb_engine_endpoint_adapts(ep))
        error = vb_engine_cwnd_join(ep, path->dgid);
    if (!error)
        error = join_timers(engine, ep);
    if (error) {
        leave_cwnd(ep);
        free(ep->replies.record);
        return error;
    }
    ep->window = engine_window_of(engine, path->mtu);
    ep->responder.epsn = qp->terms.rq_psn;
    ep->responder.empty_psn = vb_engine_psn_add(qp->terms.rq_psn, VB_PSN_MASK);
    qp->endpoint = ep;
    return 0;
}

int vb_engine_connect(struct vb_engine *engine, struct vb_qp *qp, const struct vb_path *path)
{
    struct vb_program_endpoint *made;
    int error;

    if (!vb_qp_connected_type(qp->type))
        return 0;
    if (!is_mtu(path->mtu))
        return -EINVAL;
    if (qp->endpoint)
        return change_path(qp->endpoint, path);
    made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    made->endpoint.share = &made->share;
    error = open_endpoint(engine, qp, path, &made->endpoint);
    if (error)
        free(made);
    return error;
}

int vb_engine_connect_in(struct vb_engine *engine, struct vb_qp *qp, const struct vb_path *path,
                         struct vb_endpoint *ep)
{
    if (!vb_qp_connected_type(qp->type) || !is_mtu(path->mtu) || engine->config.adapts)
        return -EINVAL;
    return open_endpoint(engine, qp, path, ep);
}

void vb_engine_disconnect(struct vb_engine *engine, struct vb_qp *qp)
{
    struct vb_endpoint *ep = qp->endpoint;

    if (!ep)
        return;
    vb_engine_ready_remove(&ep->owing);
    vb_engine_ready_remove(&ep->requesting);
    vb_engine_timer_leave(&engine->timers, &ep->timer);
    if (ep->share)
        vb_engine_timer_leave(&engine->timers, &ep->share->resume);
    leave_cwnd(ep);
    if (ep->responder.has_taken && (qp->srq || qp->target))
        vb_rq_put_back(qp);
    atomic_store(&qp->credits_out, false);
    qp->endpoint = NULL;
    free_endpoint(ep);
}

static bool requests(enum ibv_qp_state state)
{
    return state == IBV_QPS_RTS || state == IBV_QPS_SQD;
}

/*
 * Called without sq_lock after any step that may have failed the QP: its receive queue is flushed,
 * which nobody takes from under the engine's lock.
 */
static void engine_settle(struct vb_endpoint *ep)
{
    if (VB_LIKELY(!ep->requester.flush_owed))
        return;
    ep->requester.flush_owed = false;
    if (vb_qp_state(ep->qp) != IBV_QPS_ERR)
        return;
    vb_engine_responder_stop(ep);
    vb_rq_flush(ep->qp);
}

/* Takes the QP's sq_lock. The requester then knows what vb_engine_attend told of. */
static inline void engine_lock(struct vb_endpoint *ep, uint64_t now)
{
    vb_sq_lock(ep->qp);
    if (!ep->unseen)
        return;
    ep->unseen = false;
    vb_engine_requester_sync(ep, now);
}

/* UC: the requests whose packets have left are completed. */
static void engine_finish(struct vb_engine *engine)
{
    struct vb_link *link;

    while (VB_UNLIKELY((link = vb_engine_ready_first(&engine->finishing)) != NULL)) {
        struct vb_endpoint *ep = vb_endpoint_of(link, owing);

        vb_engine_ready_remove(link);
        vb_sq_lock(ep->qp);
        vb_engine_requester_finish(ep);
        vb_sq_unlock(ep->qp);
        engine_settle(ep);
    }
}

/* ---- rate limits: under sq_lock ---- */

static VB_COLD void wait_for_rate(struct vb_endpoint *ep)
{
    ep->held |= VB_HELD_BY_RATE;
    vb_engine_timer_set(&ep->engine->timers, &ep->share->resume, vb_pace_due(ep->qp->verbs->pace));
}

/* The time has come at which the rate limit lets it send, or the limit was changed. */
static VB_COLD void engine_resume(struct vb_endpoint *ep, uint64_t now)
{
    if (!(ep->held & VB_HELD_BY_RATE))
        return;
    if (ep->qp->paced && vb_pace_waits(ep->qp->verbs->pace, now)) {
        wait_for_rate(ep);
        return;
    }
    ep->held &= (uint8_t)~VB_HELD_BY_RATE;
    vb_engine_timer_set(&ep->engine->timers, &ep->share->resume, VB_NEVER);
    vb_engine_ready_add(&ep->engine->requesting, &ep->requesting);
}

/* A packet counts for the rate limit with its transport headers, payload and ICRC. */
static VB_COLD void engine_pay(struct vb_endpoint *ep, const struct vb_packet *packet, uint64_t now)
{
    uint32_t bytes;

    if (!packet) { /* the QP has nothing to send */
        ep->qp->verbs->pace->waiting = false;
        return;
    }
    bytes = packet->header_length + packet->payload_length + packet->pad + VB_ICRC;
    vb_pace_sent(ep->qp->verbs->pace, bytes, now);
    if (vb_pace_waits(ep->qp->verbs->pace, now))
        wait_for_rate(ep);
}

/* The QP is in a state that sends nothing, or is held: its requester is brought up to date now. */
static VB_COLD void attend_unusual(struct vb_engine *engine, struct vb_endpoint *ep, uint64_t now)
{
    enum ibv_qp_state state;

    ep->unseen = true;
    engine_lock(ep, now);
    if (ep->held)
        engine_resume(ep, now);
    state = vb_qp_state(ep->qp);
    vb_sq_unlock(ep->qp);
    if (requests(state))
        vb_engine_ready_add(&engine->requesting, &ep->requesting);
    else if (state == IBV_QPS_ERR)
        vb_engine_responder_stop(ep);
}

/*
 * This does not take sq_lock in the ordinary case, because vb_engine_next takes it for the packet
 * anyway. A thread that changes the QP's state meanwhile calls this again.
 */
void vb_engine_attend(struct vb_engine *engine, struct vb_qp *qp, uint64_t now)
{
    struct vb_endpoint *ep = qp->endpoint;

    engine_finish(engine);
    if (!ep)
        return;
    vb_engine_replies_fit(
        ep); /* it may have been raised in SQD; without memory the old limit stays */
    vb_engine_replies_tell_credits(ep);
    if (VB_UNLIKELY(!requests(vb_qp_state(qp)) || ep->held)) {
        attend_unusual(engine, ep, now);
        return;
    }
    ep->unseen = true;
    vb_engine_ready_add(&engine->requesting, &ep->requesting);
}

void vb_engine_hold(struct vb_qp *qp, bool held)
{
    struct vb_endpoint *ep = qp->endpoint;

    if (!ep)
        return;
    if (held)
        ep->held |= VB_HELD_BY_PORT;
    else
        ep->held &= (uint8_t)~VB_HELD_BY_PORT;
    if (held)
        return;
    vb_engine_ready_add(&ep->engine->requesting, &ep->requesting);
    if (vb_engine_replies_owed(&ep->replies))
        vb_engine_ready_add(&ep->engine->replying, &ep->owing);
}

/* The low 12 bits of a QP number are its index in a block of the table (hca/layout.h). */
struct vb_qp *vb_engine_find(const struct vb_engine *engine, uint32_t qp_num)
{
    struct vb_qp **qps = engine->adapter->qps;

    uint32_t limit = engine->adapter->qp_pool.limit;

    for (uint32_t i = qp_num % VB_QPS_PER_SLOT; i < limit; i += VB_QPS_PER_SLOT) {
        struct vb_qp *qp = __atomic_load_n(&qps[i], __ATOMIC_ACQUIRE);

        if (qp && qp->number == qp_num)
            return qp;
    }
    return NULL;
}

void vb_engine_drop_pkey(struct vb_engine *engine, const struct vb_qp *qp)
{
    ++engine->counters.drop_pkey;
    vb_count_violation(&vb_shared_port(&engine->adapter->self, qp->shared)->pkey_violations);
}

static void count_congestion(const struct vb_incoming *in)
{
    struct vb_counters *counters = &in->engine->counters;

    counters->fecn_received += in->bth.fecn;
    counters->becn_received += in->bth.becn;
    counters->ecn_received += (in->arrival->traffic_class & 3) == 3;
}

uint64_t *vb_engine_incoming_parse(struct vb_incoming *in)
{
    const struct vb_arrival *arrival = in->arrival;
    struct vb_counters *counters = &in->engine->counters;
    uint32_t headers;

    if (arrival->length < VB_BTH)
        return &counters->drop_malformed;
    in->bth = vb_wire_bth_read(arrival->bytes);
    in->opcode = &vb_opcodes[in->bth.opcode];
    in->extended = arrival->bytes + VB_BTH;
    headers = in->opcode->header_length;
    if (in->bth.version)
        return &counters->drop_version;
    if (!in->opcode->name)
        return &counters->drop_opcode;
    if (in->engine->config.virtual_payload) {
        in->length = arrival->virtual_payload;
        in->payload = NULL;
        return arrival->length < headers ? &counters->drop_malformed : NULL;
    }
    if (arrival->length < headers + in->bth.pad)
        return &counters->drop_malformed;
    in->length = arrival->length - headers - in->bth.pad;
    in->payload = arrival->bytes + headers;
    if (in->length && !(in->opcode->flags & VB_OPCODE_PAYLOAD))
        return &counters->drop_malformed;
    return NULL;
}

/* Did the QP send the packet itself, and does it want no copy of it? */
static bool blocks(const struct vb_incoming *in, const struct vb_qp *qp)
{
    const struct vb_engine *engine = in->engine;

    return qp->blocks_self && vb_wire_deth_read(in->extended).source_qp == qp->number &&
           engine->is_own && engine->is_own(engine->own_context, 0, in->arrival->sgid);
}

/* A group's packet on one link is for the members on it. */
static bool is_on_link(const struct vb_incoming *in, const struct vb_qp *qp)
{
    return !in->arrival->port || vb_qp_port(qp)->number == in->arrival->port;
}

static void receive_multicast(struct vb_incoming *in)
{
    struct vb_adapter *adapter = in->engine->adapter;
    uint32_t members[VB_GROUP_QPS], count = 0;

    if ((in->bth.opcode & VB_TRANSPORT_MASK) == VB_TRANSPORT_UD)
        count = vb_multicast_members(&adapter->self, in->arrival->dgid, members);
    if (!count)
        ++in->engine->counters.drop_no_qp;
    for (uint32_t i = 0; i < count; ++i) {
        struct vb_qp *qp = __atomic_load_n(&adapter->qps[members[i]], __ATOMIC_ACQUIRE);

        if (qp && !blocks(in, qp) && is_on_link(in, qp))
            vb_engine_datagram_receive(in, qp);
    }
}

static bool is_from_peer(const struct vb_incoming *in)
{
    const struct vb_path *path = &in->endpoint->path;

    return memcmp(in->arrival->sgid, path->dgid, sizeof(path->dgid)) == 0 &&
           memcmp(in->arrival->dgid, path->sgid, sizeof(path->sgid)) == 0;
}

static void receive_cnp(const struct vb_incoming *in)
{
    struct vb_counters *counters = &in->engine->counters;

    ++counters->cnp_received;
    if (!vb_engine_endpoint_adapts(in->endpoint))
        return;
    ++counters->rp_cnp_handled;
    vb_engine_cwnd_cut(in->endpoint, in->now);
}

/* A packet of the peer with payload was marked by the network: the peer gets a notification. */
static VB_COLD void answer_mark(const struct vb_incoming *in)
{
    struct vb_endpoint *ep = in->endpoint;
    struct vb_cwnd *cwnd = ep->share->cwnd;

    ++in->engine->counters.np_ecn_marked_roce_packets;
    if (in->opcode->flags & VB_OPCODE_RESPONSE) /* the requester decides how much is sent */
        vb_engine_cwnd_cut(ep, in->now);
    if (cwnd->noticed_at && in->now < cwnd->noticed_at + VB_CWND_NOTICE_INTERVAL)
        return;
    cwnd->noticed_at = in->now ? in->now : 1;
    vb_engine_replies_owe_cnp(ep);
}

static bool engine_is_marked(const struct vb_incoming *in)
{
    return (in->arrival->traffic_class & 3) == 3 && in->length;
}

static void receive_response(const struct vb_incoming *in)
{
    struct vb_endpoint *ep = in->endpoint;

    engine_lock(ep, in->now);
    if (VB_LIKELY(requests(vb_qp_state(ep->qp))))
        vb_engine_completer_receive(in);
    else
        ++in->engine->counters.drop_state;
    if (vb_engine_endpoint_adapts(ep))
        vb_engine_cwnd_note(ep);
    vb_sq_unlock(ep->qp);
    engine_settle(ep);
}

/* A congestion notification packet has no place in the sequence of PSNs (IBA A17.9.3). */
static bool is_cnp(const struct vb_incoming *in)
{
    return (in->bth.opcode & VB_TRANSPORT_MASK) == VB_TRANSPORT_CNP;
}

static void receive_request(const struct vb_incoming *in)
{
    struct vb_endpoint *ep = in->endpoint;
    uint32_t expected = ep->responder.epsn;

    vb_engine_responder_receive(in);
    if (VB_UNLIKELY(vb_engine_recovery_of(ep) != NULL) && ep->share->recovery->early.open)
        vb_engine_early_serve(in, expected);
}

/* An initiator QP serves no requests. Behind the XRCETH the packet is like one of RC. */
static void receive_xrc_request(struct vb_incoming *in)
{
    if (!in->endpoint->qp->target) {
        ++in->engine->counters.drop_transport;
        return;
    }
    in->srq_num = vb_wire_xrceth_read(in->extended);
    in->extended += VB_XRCETH;
    receive_request(in);
}

static void receive_expected(struct vb_incoming *in)
{
    if (vb_engine_endpoint_adapts(in->endpoint)) {
        in->endpoint->share->cwnd->heard_at = in->now;
        if (VB_UNLIKELY(engine_is_marked(in)))
            answer_mark(in);
    }
    if (is_cnp(in))
        receive_cnp(in);
    else if (in->opcode->flags & VB_OPCODE_RESPONSE)
        receive_response(in);
    else if (VB_UNLIKELY(in->opcode->flags & VB_OPCODE_XRCETH))
        receive_xrc_request(in);
    else
        receive_request(in);
}

/*
 * The packet may be damaged, so it is handled as if it was lost, and nothing of it is kept. It is
 * asked for again if it was the expected packet, or a response that was awaited.
 */
static VB_COLD void engine_ask_again(const struct vb_incoming *in)
{
    struct vb_endpoint *ep = in->endpoint;

    if (in->opcode->flags & VB_OPCODE_RESPONSE) {
        engine_lock(ep, in->now);
        if (requests(vb_qp_state(ep->qp)) && vb_engine_requester_outstanding(&ep->requester))
            vb_engine_retry_sequence(ep, in->now);
        vb_sq_unlock(ep->qp);
        engine_settle(ep);
    } else if (vb_engine_endpoint_adapts(ep) && in->bth.psn == ep->responder.epsn) {
        vb_engine_early_ask(in);
    }
}

/* The peer's request gets no answer. The record lets the text of its failure name the reason: a
 * peer on this host, or in this process's simulated fabric, reads it (IBA 10.9.3). */
static VB_COLD void engine_drop_partition(const struct vb_incoming *in)
{
    const struct vb_endpoint *ep = in->endpoint;
    const struct vb_qp_shared *qp = ep->qp->shared;
    const struct vb_evidence seen = {
        .check = VB_CHECK_PARTITION,
        .side = VB_SIDE_RESPONDER,
        .count = (uint32_t)in->bth.pkey << 16 | vb_qp_pkey(qp),
        .qp_num = vb_qp_dest(qp),
        .peer_qp_num = qp->qp_num,
        .psn = in->bth.psn,
    };

    vb_engine_drop_pkey(in->engine, ep->qp);
    if (in->bth.psn == ep->responder.epsn) /* once for each attempt, however long the message */
        vb_evidence_put(&in->engine->adapter->self, &seen);
}

static void receive_connected(struct vb_incoming *in)
{
    struct vb_counters *counters = &in->engine->counters;
    enum ibv_qp_state state = vb_qp_state(in->endpoint->qp);

    if ((in->bth.opcode & VB_TRANSPORT_MASK) != in->endpoint->base && !is_cnp(in))
        ++counters->drop_transport;
    else if (!is_from_peer(in))
        ++counters->drop_source;
    else if (state < IBV_QPS_RTR || state > IBV_QPS_SQE)
        ++counters->drop_state;
    else if (VB_UNLIKELY(!vb_pkeys_match(in->bth.pkey, vb_engine_qp_pkey(in->endpoint->qp))))
        engine_drop_partition(in);
    else if (VB_UNLIKELY(in->arrival->doubted) && !is_cnp(in))
        engine_ask_again(in);
    else
        receive_expected(in);
}

static void receive_unicast(struct vb_incoming *in)
{
    struct vb_counters *counters = &in->engine->counters;
    struct vb_qp *qp = vb_engine_find(in->engine, in->bth.dest_qp);

    if (!qp) {
        ++counters->drop_no_qp;
    } else if (qp->endpoint) {
        in->endpoint = qp->endpoint;
        receive_connected(in);
    } else if (qp->type != IBV_QPT_UD) {
        ++counters->drop_state;
    } else if (is_cnp(in)) {
        ++counters->cnp_received;
    } else if ((in->bth.opcode & VB_TRANSPORT_MASK) != VB_TRANSPORT_UD) {
        ++counters->drop_transport;
    } else if (VB_UNLIKELY(vb_wire_gid_is_multicast(
                   in->arrival->dgid))) { /* a multicast packet has the multicast QPN */
        ++counters->drop_no_qp;
    } else {
        vb_engine_datagram_receive(in, qp);
    }
}

void vb_engine_receive(struct vb_engine *engine, const struct vb_arrival *arrival, uint64_t now)
{
    struct vb_incoming in = {.engine = engine, .arrival = arrival, .now = now};
    uint64_t *refused;

    engine_finish(engine);
    ++engine->counters.packets_received;
    refused = vb_engine_incoming_parse(&in);
    if (VB_UNLIKELY(refused != NULL)) {
        ++*refused;
        return;
    }
    count_congestion(&in);
    if (VB_UNLIKELY(in.bth.dest_qp == VB_MULTICAST_QPN))
        receive_multicast(&in);
    else
        receive_unicast(&in);
}

/* The first endpoint of the list has sent a packet: is it the next one's turn? */
static void engine_take_turn(struct vb_engine *engine, struct vb_ready *list)
{
    if (++engine->turn < engine->config.burst)
        return;
    engine->turn = 0;
    vb_engine_ready_rotate(list);
}

static bool next_reply(struct vb_engine *engine, struct vb_packet *packet)
{
    struct vb_link *link;

    while ((link = vb_engine_ready_first(&engine->replying)) != NULL) {
        struct vb_endpoint *ep = vb_endpoint_of(link, owing);
        bool made;

        if (VB_UNLIKELY(ep->held & VB_HELD_BY_PORT) && vb_engine_replies_pending(&ep->replies)) {
            vb_engine_ready_remove(link);
            continue;
        }
        made = vb_engine_replies_next(ep, packet);
        if (!vb_engine_replies_owed(&ep->replies))
            vb_engine_ready_remove(link);
        if (!made)
            continue;
        engine_take_turn(engine, &engine->replying);
        return true;
    }
    return false;
}

/* A request packet of the endpoint leaves. */
static void end_turn(struct vb_endpoint *ep)
{
    engine_take_turn(ep->engine, &ep->engine->requesting);
    if (!vb_engine_endpoint_adapts(ep))
        return;
    vb_engine_cwnd_note(ep);
    vb_engine_cwnd_take_turn(ep);
}

/* The endpoint has no request packet that can leave. */
static void leave_turn(struct vb_endpoint *ep)
{
    vb_engine_ready_remove(&ep->requesting);
    if (!vb_engine_endpoint_adapts(ep))
        return;
    vb_engine_cwnd_note(ep);
    if (ep->crowded)
        vb_engine_cwnd_wait(ep);
    else
        vb_engine_cwnd_rest(ep);
}

/*
 * Is it certain, without taking sq_lock, that the requester has nothing to send? A thread that
 * posts meanwhile calls vb_engine_attend afterwards. At a rate limit, and while packets are sent
 * again, the requester itself has to be asked.
 */
static bool is_idle(const struct vb_endpoint *ep)
{
    const struct vb_requester *r = &ep->requester;
    const struct vb_recovery *recovery = vb_engine_recovery_of(ep);

    return !ep->unseen && r->position == r->begun && !r->failed && !ep->qp->paced &&
           (VB_LIKELY(!recovery) || !(recovery->asks || recovery->mending)) &&
           __atomic_load_n(&ep->qp->sq_posted, __ATOMIC_RELAXED) == r->begun + r->untold;
}

static bool next_request(struct vb_engine *engine, struct vb_packet *packet, uint64_t now)
{
    struct vb_link *link;

    while ((link = vb_engine_ready_first(&engine->requesting)) != NULL) {
        struct vb_endpoint *ep = vb_endpoint_of(link, requesting);
        bool made;

        if (VB_UNLIKELY(ep->held)) {
            vb_engine_ready_remove(link);
            continue;
        }
        if (is_idle(ep)) {
            ep->crowded = false;
            leave_turn(ep);
            continue;
        }
        engine_lock(ep, now);
        made = vb_engine_requester_next(ep, packet, now);
        if (VB_UNLIKELY(ep->qp->paced))
            engine_pay(ep, made ? packet : NULL, now);
        if (made)
            end_turn(ep);
        else
            leave_turn(ep);
        vb_sq_unlock(ep->qp);
        if (made)
            return true;
        engine_settle(ep);
    }
    return false;
}

/* Replies go first. In a long row of them (READ responses) every other packet is a request. */
static bool engine_next_packet(struct vb_engine *engine, struct vb_packet *packet, uint64_t now)
{
    if (engine->replies_in_row >= engine->config.burst) {
        engine->replies_in_row = engine->config.burst - 1;
        if (next_request(engine, packet, now))
            return true;
    }
    if (next_reply(engine, packet)) {
        ++engine->replies_in_row;
        return true;
    }
    engine->replies_in_row = 0;
    return next_request(engine, packet, now);
}

void vb_engine_answer_first(struct vb_engine *engine)
{
    engine->replies_in_row = engine->config.burst;
}

/* Is nothing ready: no reply is owed, and at most one endpoint is in the list, without requests? */
static bool was_last(const struct vb_engine *engine)
{
    struct vb_link *link = vb_engine_ready_first(&engine->requesting);

    if (vb_engine_ready_first(&engine->replying))
        return false;
    return !link ||
           (link->next == &engine->requesting.head && is_idle(vb_endpoint_of(link, requesting)));
}

enum vb_next vb_engine_next(struct vb_engine *engine, struct vb_packet *packet, uint64_t now)
{
    if (!engine_next_packet(engine, packet, now))
        return VB_NEXT_NONE;
    ++engine->counters.packets_sent;
    return was_last(engine) ? VB_NEXT_LAST : VB_NEXT_MORE;
}

uint64_t vb_engine_deadline(const struct vb_engine *engine)
{
    return vb_engine_ready_first(&engine->finishing) ? 0 : vb_engine_timers_next(&engine->timers);
}

static VB_COLD void expire_recovery(struct vb_timer *timer, uint64_t now)
{
    struct vb_recovery *recovery =
        (struct vb_recovery *)((char *)timer - offsetof(struct vb_recovery, timer));
    struct vb_endpoint *ep = recovery->ep;

    engine_lock(ep, now);
    vb_engine_recovery_expired(recovery, now);
    vb_sq_unlock(ep->qp);
    engine_settle(ep);
}

static VB_COLD void expire_hold(struct vb_timer *timer, uint64_t now)
{
    const size_t at = offsetof(struct vb_program_endpoint, share.resume);
    struct vb_endpoint *ep = &((struct vb_program_endpoint *)((char *)timer - at))->endpoint;

    engine_lock(ep, now);
    engine_resume(ep, now);
    vb_sq_unlock(ep->qp);
}

static void expire_retry(struct vb_endpoint *ep, uint64_t now)
{
    engine_lock(ep, now);
    if (requests(vb_qp_state(ep->qp)))
        vb_engine_retry_expired(ep, now);
    if (vb_engine_endpoint_adapts(ep))
        vb_engine_cwnd_note(ep);
    vb_sq_unlock(ep->qp);
    engine_settle(ep);
}

static void expire_timer(struct vb_timer *timer, uint64_t now)
{
    if (VB_LIKELY(timer->kind == VB_TIMER_RETRY))
        expire_retry(vb_endpoint_of(timer, timer), now);
    else if (timer->kind == VB_TIMER_RESUME)
        expire_hold(timer, now);
    else
        expire_recovery(timer, now);
}

uint64_t vb_engine_expire(struct vb_engine *engine, uint64_t now)
{
    struct vb_timer *timer;

    engine_finish(engine);
    while (VB_UNLIKELY(vb_engine_timers_next(&engine->timers) <= now) &&
           (timer = vb_engine_timers_expire(&engine->timers, now)) != NULL)
        expire_timer(timer, now);
    return vb_engine_deadline(engine);
}

void vb_engine_note(const struct vb_qp *qp, struct vb_evidence *evidence)
{
    const struct vb_requester *r = qp->endpoint ? &qp->endpoint->requester : NULL;

    if (!r)
        return;
    evidence->has_psns = true;
    evidence->psn = r->una;
    evidence->sent_psn = r->sent_psn;
    evidence->retry_left = r->retry_left;
    evidence->rnr_left = r->rnr_left;
}

bool vb_engine_is_loop(const struct vb_qp *qp)
{
    const struct vb_path *path = qp->endpoint ? &qp->endpoint->path : NULL;

    return path && !memcmp(path->sgid, path->dgid, sizeof(path->sgid));
}
