// SPDX-License-Identifier: Apache-2.0
/*
 * UD: carries out a datagram to a UD QP of this host or to a multicast group. A datagram that
 * cannot be delivered is dropped, and counted by its cause (hca/lost.h).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "direct/connection.h"
#include "direct/datagram.h"
#include "direct/flow.h"
#include "direct/other_build.h"
#include "direct/requester.h"
#include "direct/responder.h"
#include "hca/ah.h"
#include "hca/lost.h"
#include "hca/multicast.h"
#include "hca/overdue.h"
#include "hca/refusal.h"

enum {
    DATAGRAM_LEAST = 256,
    DATAGRAM_MAX = 4096,
    GRH_SIZE = 40
}; /* every port carries the least */
enum { NEXT_IS_UDP = 17, NEXT_IS_IBA = 0x1b };

/* Where a datagram goes: the QP, as if the sender were connected to it. */
struct destination {
    uint32_t qp_num;
    struct vb_connection to;
};

enum { DESTINATIONS = 64 };

/* The destinations that a UD QP has sent to lately. */
struct vb_destinations {
    struct destination entry[DESTINATIONS];
};

static void datagram_forget(struct vb_direct *direct, struct destination *entry)
{
    if (entry->to.peer)
        vb_direct_peer_put(direct, entry->to.peer);
    *entry = (struct destination){0};
}

void vb_direct_destinations_free(struct vb_qp *qp)
{
    struct vb_destinations *known =
        qp->verbs->connection ? qp->verbs->connection->destinations : NULL;

    if (!known)
        return;
    for (int i = 0; i < DESTINATIONS; ++i)
        datagram_forget(vb_direct_of(qp->context->adapter), &known->entry[i]);
    free(known);
    qp->verbs->connection->destinations = NULL;
}

/* NULL: there is none, for this cause. */
static struct destination *datagram_find(struct vb_qp *qp, uint32_t qp_num,
                                         enum vb_lost_cause *cause)
{
    int error;

    struct vb_direct *direct = vb_direct_of(qp->context->adapter);
    struct vb_destinations *known = qp->verbs->connection->destinations;
    struct destination *entry;

    if (!known)
        qp->verbs->connection->destinations = known = calloc(1, sizeof(*known));
    if (!known)
        return NULL;
    entry = &known->entry[(qp_num ^ qp_num >> VB_SLOT_BITS) % DESTINATIONS];
    if (entry->to.remote && entry->qp_num == qp_num && !atomic_load(&entry->to.peer->gone))
        return entry;
    datagram_forget(direct, entry);
    error = vb_direct_peer_reach(direct, qp_num, &entry->to.peer);
    if (error)
        entry->to.peer = NULL;
    *cause = error == -ECONNREFUSED ? VB_LOST_NO_PROCESS
             : error                ? VB_LOST_UNREACHED
                                    : VB_LOST_NO_QP;
    entry->to.remote = entry->to.peer ? vb_direct_peer_qp(entry->to.peer, qp_num) : NULL;
    entry->to.qp = qp;
    entry->to.target = &entry->to;
    entry->qp_num = qp_num;
    return entry->to.remote ? entry : NULL;
}

/* Why the destination does not take a datagram. */
static VB_COLD void datagram_refused(struct vb_qp *qp, const struct destination *to, uint32_t qkey)
{
    const struct vb_qp_shared *remote = to->to.remote;
    uint32_t state = atomic_load(&remote->state);
    struct vb_lost lost = {.from = qp->number, .to = to->qp_num};

    if (remote->qp_num != to->qp_num || state == IBV_QPS_RESET) {
        lost.cause = VB_LOST_NO_QP;
    } else if (remote->type != IBV_QPT_UD) {
        lost.cause = VB_LOST_TYPE;
        lost.value = remote->type;
    } else if (state < IBV_QPS_RTR || state > IBV_QPS_SQE) {
        lost.cause = VB_LOST_STATE;
        lost.value = state;
    } else if (!vb_pkeys_match(vb_qp_pkey(qp->shared), vb_qp_pkey(remote))) {
        lost.cause = VB_LOST_PKEY;
        lost.value = vb_qp_pkey(qp->shared);
        lost.wanted = vb_qp_pkey(remote);
        vb_count_violation(&vb_shared_port(&to->to.peer->view, remote)->pkey_violations);
    } else {
        lost.cause = VB_LOST_QKEY;
        lost.value = qkey;
        lost.wanted = remote->qkey;
        vb_count_violation(&vb_shared_port(&to->to.peer->view, remote)->qkey_violations);
    }
    vb_lost_direct(qp, &lost);
}

static bool accepts(struct vb_qp *qp, const struct destination *to, uint32_t qkey)
{
    uint32_t state = atomic_load(&to->to.remote->state);

    if (VB_LIKELY(to->to.remote->type == IBV_QPT_UD && to->to.remote->qp_num == to->qp_num &&
                  state >= IBV_QPS_RTR && state <= IBV_QPS_SQE && to->to.remote->qkey == qkey &&
                  vb_pkeys_match(vb_qp_pkey(qp->shared), vb_qp_pkey(to->to.remote))))
        return true;
    datagram_refused(qp, to, qkey);
    return false;
}

static void datagram_write_grh(uint8_t grh[GRH_SIZE], const struct vb_gid *source,
                               const struct ibv_ah_attr *ah, size_t payload)
{
    uint16_t length = htons((uint16_t)payload);

    memset(grh, 0, GRH_SIZE);
    if (vb_wire_gid_is_ipv4(source->raw) && vb_wire_gid_is_ipv4(ah->grh.dgid.raw)) {
        uint16_t total = htons((uint16_t)(payload + 20));

        grh[20] = 0x45;
        grh[21] = ah->grh.traffic_class;
        memcpy(grh + 22, &total, 2);
        grh[28] = ah->grh.hop_limit;
        grh[29] = NEXT_IS_UDP;
        memcpy(grh + 32, source->raw + 12, 4);
        memcpy(grh + 36, ah->grh.dgid.raw + 12, 4);
        return;
    }
    grh[0] = 0x60 | ah->grh.traffic_class >> 4;
    grh[1] = (uint8_t)(ah->grh.traffic_class << 4 | (ah->grh.flow_label >> 16 & 0xf));
    grh[2] = (uint8_t)(ah->grh.flow_label >> 8);
    grh[3] = (uint8_t)ah->grh.flow_label;
    memcpy(grh + 4, &length, 2);
    grh[6] = source->type == VB_GID_ROCE_V1 ? NEXT_IS_IBA : NEXT_IS_UDP;
    grh[7] = ah->grh.hop_limit;
    memcpy(grh + 8, source->raw, 16);
    memcpy(grh + 24, ah->grh.dgid.raw, 16);
}

/* The header's place stays free where there is none (IBA 11.4.1.2: its bytes are undefined). */
static void put_grh(const struct vb_gid *source, const struct vb_ah *ah,
                    const struct vb_spans *payload, uint8_t grh[GRH_SIZE], struct vb_spans *all)
{
    if (source)
        datagram_write_grh(grh, source, &ah->attr, payload->total);
    else
        memset(grh, 0, GRH_SIZE);
    all->count = 0;
    all->total = 0;
    vb_direct_spans_add(all, grh, 0, GRH_SIZE);
    for (uint32_t i = 0; i < payload->count; ++i)
        vb_direct_spans_add(all, payload->span[i].here, 0, payload->span[i].length);
}

/*
 * What mlx5 adapters leave in a RoCE completion's `sl`, and UCX reads there: 8 for RoCE v2, plus 1
 * for an IPv6 header and 2 for an IPv4 one; 0 for RoCE v1.
 */
static uint8_t direct_datagram_header_type(const struct vb_gid *source)
{
    if (source->type == VB_GID_ROCE_V1)
        return 0;
    return vb_wire_gid_is_ipv4(source->raw) ? 0xa : 0x9;
}

/* Into the receive request's buffers. -EACCES: they are not what they were registered as. */
static int direct_datagram_place(struct vb_qp *qp, const struct destination *to,
                                 const struct vb_taken *taken, const struct vb_spans *message,
                                 struct vb_evidence *evidence)
{
    struct vb_spans buffers;

    if (vb_direct_recv_spans(to->to.peer, to->to.remote, taken->wqe, message->total, &buffers,
                             evidence))
        return -EACCES;
    return vb_direct_put(vb_direct_of(qp->context->adapter), to->to.peer, message, &buffers);
}

/* A message with its header, on its way to any number of receivers. */
struct datagram {
    struct vb_qp *qp;
    const struct ibv_send_wr *wr;
    const struct vb_spans *message;
    const struct vb_gid *source; /* NULL: addressed by a LID, so without a GRH */
    const uint8_t *group;        /* NULL: to one QP */
    struct vb_fabric_flow *flow; /* NULL: the port is in no live fabric */
    struct vb_outcome *outcome;
};

/* Whose memory is gone: the sender's, if this is true. */
static VB_COLD bool sender_fails(const struct datagram *datagram)
{
    const struct vb_span *gone = vb_direct_local_gone(datagram->wr, datagram->message);

    if (gone)
        vb_direct_refuse_local_gone(datagram->qp, datagram->wr, gone, datagram->outcome);
    return gone != NULL;
}

/* Under the destination's rq_lock, which other senders take too: what was seen of its queue the
 * last time says nothing. Returns what is left to tell (vb_direct_deliver_quietly). */
static unsigned direct_datagram_deliver(const struct datagram *datagram, struct destination *to)
{
    struct vb_qp *qp = datagram->qp;
    const struct ibv_send_wr *wr = datagram->wr;
    const struct vb_spans *message = datagram->message;
    struct vb_evidence evidence; /* filled where something is wrong */
    struct vb_taken taken;
    int error = 0;
    struct vb_cqe entry = {
        .kind = VB_CQE_RECV,
        .flags = (datagram->source ? IBV_WC_GRH : 0) |
                 (wr->opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_WITH_IMM : 0),
        .imm = wr->imm_data,
        .byte_len = (uint32_t)message->total,
        .extra = qp->number,
    };
    const struct vb_port_shared *port = vb_shared_port(&to->to.peer->view, to->to.remote);
    const struct ibv_ah_attr *ah = &((const struct vb_ah *)wr->wr.ud.ah)->attr;

    entry.datagram.header_type =
        datagram->source ? direct_datagram_header_type(datagram->source) : ah->sl;
    vb_cqe_name_lids(&entry, vb_qp_lid(qp, ah), ah->dlid & ((1u << (port->lmc & 7)) - 1));
    to->to.rq_seen = atomic_load(&to->to.remote->rq_taken);
    if (vb_direct_take_recv(&to->to, &taken)) {
        vb_lost_direct(qp, &(struct vb_lost){.cause = VB_LOST_NO_RECEIVE});
        vb_overdue_datagram(qp->context->adapter, qp->number, to->qp_num);
        return 0;
    }
    if (message->total > taken.wqe->length) {
        /* Too long for the request: hardware differs; here it ends with LOC_LEN_ERR. */
        entry.status = IBV_WC_LOC_LEN_ERR;
        evidence = (struct vb_evidence){.check = VB_CHECK_RECV_TOO_SHORT,
                                        .length = message->total,
                                        .mr_length = taken.wqe->length};
    } else {
        error = direct_datagram_place(qp, to, &taken, message, &evidence);
        if (error == -EAGAIN || error == -ETIMEDOUT || error == -EPIPE ||
            (error == -EFAULT && sender_fails(datagram)))
            return 0; /* a datagram that nobody takes is lost; its request serves the next one */
    }
    if (error && error != -EACCES)
        evidence = (struct vb_evidence){.check = VB_CHECK_RECV_MEMORY_GONE,
                                        .addr = taken.wqe->sge[0].addr,
                                        .length = message->total};
    if (error)
        entry.status = IBV_WC_LOC_PROT_ERR;
    if (entry.status) {
        entry.flags = 0;
        entry.extra =
            vb_evidence_of_datagram(&to->to.peer->view, to->to.remote, qp->number, &evidence);
    }
    return vb_direct_deliver_quietly(&to->to, &taken, &entry, wr->send_flags & IBV_SEND_SOLICITED);
}

/* Looked at with the destination's lock held, for which a QP that leaves the group waits. */
static bool is_member(const struct destination *to, const uint8_t group[16])
{
    uint32_t members[VB_GROUP_QPS], index = vb_direct_peer_qp_index(to->to.peer, to->to.remote);
    uint32_t count = vb_multicast_members(&to->to.peer->view, group, members);

    for (uint32_t i = 0; i < count; ++i)
        if (members[i] == index)
            return true;
    return false;
}

static void pass_to(const struct datagram *datagram, struct destination *to)
{
    struct vb_direct *direct = vb_direct_of(datagram->qp->context->adapter);
    uint32_t qkey = vb_qp_datagram_qkey(datagram->qp, datagram->wr);
    unsigned pushed = 0;

    if (!accepts(datagram->qp, to, qkey) ||
        !vb_word_lock_unless(&to->to.remote->rq_lock, VB_RANK_RECEIVE, direct->adapter->instance,
                             &to->to.peer->gone))
        return;
    if (accepts(datagram->qp, to, qkey) && (!datagram->group || is_member(to, datagram->group)))
        pushed = direct_datagram_deliver(datagram, to);
    vb_word_unlock(&to->to.remote->rq_lock);
    /* Others send there, too, and do not wait for this process where it is stopped in a wake. */
    if (pushed)
        vb_direct_delivered(&to->to, pushed);
}

static void pass_to_members(const struct datagram *datagram, struct vb_peer *peer)
{
    uint32_t members[VB_GROUP_QPS];
    uint32_t count = vb_multicast_members(&peer->view, datagram->group, members);

    for (uint32_t i = 0; i < count; ++i) {
        struct vb_qp_shared *remote = &peer->view.qp[members[i]];
        struct destination to = {
            remote->qp_num, {.qp = datagram->qp, .peer = peer, .remote = remote, .target = &to.to}};

        if ((!datagram->qp->blocks_self || remote != datagram->qp->shared) &&
            vb_direct_connection_shares_link(datagram->qp, datagram->source, datagram->flow, peer,
                                             remote))
            pass_to(datagram, &to);
    }
}

/* Members in other processes are found among the peers (vb_direct_peer_connect_all). */
static void pass_to_group(const struct datagram *datagram)
{
    struct vb_direct *direct = vb_direct_of(datagram->qp->context->adapter);
    struct vb_peer **peers;
    uint32_t count;

    vb_direct_peer_connect_all(direct);
    count = vb_direct_peer_hold_all(direct, &peers);
    for (uint32_t i = 0; i < count; ++i) {
        if (!atomic_load(&peers[i]->gone))
            pass_to_members(datagram, peers[i]);
        vb_direct_peer_put(direct, peers[i]);
    }
    free(peers);
}

static VB_COLD void is_nowhere(struct vb_qp *qp, uint32_t qp_num, enum vb_lost_cause cause)
{
    struct vb_other_build other;

    if (vb_direct_other_build_find(vb_direct_of(qp->context->adapter), qp_num, &other))
        vb_direct_other_build_log(qp, qp_num);
    else
        vb_lost_direct(qp, &(struct vb_lost){.cause = cause, .from = qp->number, .to = qp_num});
}

static void pass_to_port(const struct datagram *datagram, struct destination *to)
{
    struct vb_qp *qp = datagram->qp;
    const struct ibv_ah_attr *ah = &((const struct vb_ah *)datagram->wr->wr.ud.ah)->attr;

    if (VB_LIKELY(
            vb_direct_connection_leads_to(qp, ah, datagram->flow, to->to.peer, to->to.remote)))
        pass_to(datagram, to);
    else
        vb_lost_direct(
            qp, &(struct vb_lost){.cause = VB_LOST_PORT, .from = qp->number, .to = to->qp_num});
}

static void pass_to_one(const struct datagram *datagram)
{
    uint32_t qp_num = datagram->wr->wr.ud.remote_qpn;
    enum vb_lost_cause cause = VB_LOST_NO_QP;
    struct destination *to = datagram_find(datagram->qp, qp_num, &cause);

    if (VB_LIKELY(to != NULL))
        pass_to_port(datagram, to);
    else
        is_nowhere(datagram->qp, qp_num, cause);
}

/* Where no packets are sent, and a GID can lead nowhere else; or the sender's is no more. */
static VB_COLD int leads_nowhere(struct vb_qp *qp, const struct ibv_send_wr *wr,
                                 const struct ibv_ah_attr *ah, bool is_local)
{
    vb_lost_direct(qp, &(struct vb_lost){.cause = is_local ? VB_LOST_SOURCE : VB_LOST_ADDRESS,
                                         .from = qp->number,
                                         .to = wr->wr.ud.remote_qpn,
                                         .value = ah->grh.sgid_index});
    return 0;
}

/* A datagram fits the path MTU of the port that it leaves by, as one that is a packet does. */
static uint32_t longest(const struct vb_qp *qp, const struct ibv_ah_attr *ah)
{
    uint32_t mtu =
        vb_port_addresses_mtu(vb_qp_port(qp)->addresses, ah->is_global ? ah->grh.sgid_index : 0);

    return mtu ? mtu : DATAGRAM_MAX;
}

int vb_direct_datagram_execute(struct vb_qp *qp, const struct ibv_send_wr *wr,
                               struct vb_outcome *outcome)
{
    const struct vb_ah *ah = (const struct vb_ah *)wr->wr.ud.ah;
    struct vb_direct *direct = vb_direct_of(qp->context->adapter);
    const uint8_t *dgid = ah->attr.grh.dgid.raw;
    bool to_group = ah->attr.is_global && vb_wire_gid_is_multicast(dgid), is_local;
    struct vb_spans payload, message;
    struct vb_connection *to;
    uint8_t grh[GRH_SIZE];
    struct vb_gid source;
    struct datagram datagram = {.qp = qp,
                                .wr = wr,
                                .message = &message,
                                .source = ah->attr.is_global ? &source : NULL,
                                .group = to_group ? dgid : NULL,
                                .outcome = outcome};

    if (!vb_direct_local_spans(qp, wr, 0, &payload, outcome))
        return 0;
    if (payload.total > DATAGRAM_LEAST && payload.total > longest(qp, &ah->attr))
        return vb_refuse_length(qp, wr, payload.total, longest(qp, &ah->attr), outcome);
    is_local = to_group || vb_direct_is_local(direct, &ah->attr);
    if (!is_local || (datagram.source && !vb_port_addresses_get(vb_qp_port(qp)->addresses,
                                                                ah->attr.grh.sgid_index, &source)))
        return leads_nowhere(qp, wr, &ah->attr, is_local);
    to = vb_direct_connection_have(qp);
    if (!to)
        return vb_refuse(qp, wr, IBV_WC_GENERAL_ERR,
                         &(struct vb_evidence){.check = VB_CHECK_NO_ROOM}, outcome);
    if (VB_UNLIKELY(direct->adapter->fabric))
        datagram.flow = vb_direct_flow_of_datagram(to, wr);
    if (VB_UNLIKELY(datagram.flow && datagram.flow->limited) &&
        vb_direct_link_turn_waits(to, datagram.flow, wr))
        return -EAGAIN;
    vb_direct_count(&to->counts.datagrams, 1);
    vb_direct_count(&to->counts.payload_sent, payload.total);
    if (VB_UNLIKELY(direct->adapter->fabric) && !vb_direct_flow_takes(to, wr, datagram.flow))
        return 0;
    put_grh(datagram.source, ah, &payload, grh, &message);
    if (!to_group)
        pass_to_one(&datagram);
    else if ((wr->wr.ud.remote_qpn & VB_QPN_MASK) == VB_MULTICAST_QPN)
        pass_to_group(&datagram);
    return 0;
}
