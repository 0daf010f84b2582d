// SPDX-License-Identifier: Apache-2.0
/*
 * Unreliable datagrams by packets. Arrivals are checked (state, port, P_Key, Q_Key) and placed
 * behind a GRH of 40 bytes in the QP's next receive request. Outgoing ones are made by the posting
 * thread under the QP's sq_lock, without the engine's lock.
 */
#include "transport/datagram.h"

#include "hca/lost.h"
#include "hca/overdue.h"
#include "hca/refusal.h"
#include "transport/pieces.h"
#include "transport/receive.h"

enum { NEXT_IS_UDP = 17, IPV4_HEADER = 20, UDP_HEADER = 8 };

static void datagram_write_ipv4(uint8_t *grh, const struct vb_arrival *arrival, uint16_t length)
{
    uint8_t *at = grh + VB_GRH - IPV4_HEADER;

    at[0] = 0x45;
    at[1] = arrival->traffic_class;
    vb_wire_put16(at + 2, (uint16_t)(length + IPV4_HEADER));
    at[8] = arrival->hop_limit;
    at[9] = NEXT_IS_UDP;
    memcpy(at + 12, arrival->sgid + 12, 4);
    memcpy(at + 16, arrival->dgid + 12, 4);
}

static void datagram_write_ipv6(uint8_t *grh, const struct vb_arrival *arrival, uint16_t length)
{
    vb_wire_put32(grh, 6u << 28 | (uint32_t)arrival->traffic_class << 20 |
                           (arrival->flow_label & 0xfffff));
    vb_wire_put16(grh + 4, length);
    grh[6] = NEXT_IS_UDP;
    grh[7] = arrival->hop_limit;
    memcpy(grh + 8, arrival->sgid, 16);
    memcpy(grh + 24, arrival->dgid, 16);
}

static void make_grh(uint8_t grh[VB_GRH], const struct vb_incoming *in)
{
    const struct vb_arrival *arrival = in->arrival;
    uint32_t length = UDP_HEADER + in->opcode->header_length + in->length + in->bth.pad + VB_ICRC;

    if (arrival->grh) {
        memcpy(grh, arrival->grh, VB_GRH);
        return;
    }
    memset(grh, 0, VB_GRH);
    if (vb_wire_gid_is_ipv4(arrival->sgid) && vb_wire_gid_is_ipv4(arrival->dgid))
        datagram_write_ipv4(grh, arrival, (uint16_t)length);
    else
        datagram_write_ipv6(grh, arrival, (uint16_t)length);
}

/* The `sl` of a RoCE v2 completion as mlx5 adapters fill it: 8, plus 2 for IPv4 or 1 for IPv6. */
static uint8_t engine_datagram_header_type(const struct vb_arrival *arrival)
{
    return vb_wire_gid_is_ipv4(arrival->dgid) ? 0xa : 0x9;
}

static bool engine_datagram_place(const struct vb_incoming *in, struct vb_qp *qp,
                                  const struct vb_recv_wqe *wqe, struct vb_evidence *evidence)
{
    bool is_virtual = in->engine->config.virtual_payload;
    uint8_t grh[VB_GRH];

    make_grh(grh, in);
    return !vb_engine_receive_place(qp, wqe, 0, is_virtual ? NULL : grh, VB_GRH, evidence) &&
           !vb_engine_receive_place(qp, wqe, VB_GRH, in->payload, in->length, evidence);
}

/* What a completion says of where a datagram came from. Path bits are those of the LID that it came
 * to. */
static void name_source(struct vb_cqe *entry, const struct vb_arrival *arrival)
{
    if (VB_LIKELY(!arrival->slid)) {
        entry->flags |= IBV_WC_GRH;
        entry->datagram.header_type = engine_datagram_header_type(arrival);
        return;
    }
    entry->flags |= arrival->has_grh ? IBV_WC_GRH : 0;
    entry->datagram.header_type = arrival->sl;
    vb_cqe_name_lids(entry, arrival->slid, arrival->path_bits);
}

/* Under rq_lock: senders of this host write to the same queue (direct/datagram.c). */
static void engine_datagram_deliver(const struct vb_incoming *in, struct vb_qp *qp,
                                    uint32_t source_qp)
{
    bool imm = in->opcode->flags & VB_OPCODE_IMM;
    struct vb_evidence evidence;
    struct vb_receive taken;
    struct vb_cqe entry = {
        .flags = imm ? IBV_WC_WITH_IMM : 0,
        .byte_len = VB_GRH + in->length,
        .extra = source_qp,
    };

    name_source(&entry, in->arrival);
    if (!vb_engine_receive_take(qp, &taken)) {
        ++in->engine->counters.drop_no_receive;
        vb_overdue_datagram(in->engine->adapter, source_qp, qp->number);
        return;
    }
    if (imm)
        memcpy(&entry.imm, in->extended + VB_DETH, VB_IMM);
    if (entry.byte_len > taken.wqe->length) {
        entry.status = IBV_WC_LOC_LEN_ERR;
        evidence = (struct vb_evidence){.check = VB_CHECK_RECV_TOO_SHORT,
                                        .length = entry.byte_len,
                                        .mr_length = taken.wqe->length};
    } else if (!engine_datagram_place(in, qp, taken.wqe, &evidence)) {
        entry.status = IBV_WC_LOC_PROT_ERR;
    }
    if (entry.status) {
        entry.flags = 0;
        entry.extra =
            vb_evidence_of_datagram(&in->engine->adapter->self, qp->shared, source_qp, &evidence);
    } else {
        in->engine->counters.payload_received += in->length;
    }
    if (VB_UNLIKELY(!vb_engine_receive_complete(qp, &taken, &entry, in->bth.solicited)))
        ++in->engine->counters.completions_lost;
}

static VB_COLD void tell_lost(struct vb_qp *qp, enum vb_lost_cause cause, uint32_t from,
                              uint32_t value, uint32_t wanted)
{
    vb_lost_log(qp, &(struct vb_lost){cause, from, qp->number, value, wanted});
}

/*
 * For an adapter with several ports: did the datagram come to the QP's port? A multicast one did,
 * because the group's members are found by a GID that is no port's.
 */
static VB_COLD bool is_for_port(const struct vb_incoming *in, const struct vb_qp *qp)
{
    const struct vb_engine *engine = in->engine;
    const uint8_t *gid = in->arrival->dgid;

    return vb_wire_gid_is_multicast(gid) || !engine->is_own ||
           engine->is_own(engine->own_context, vb_qp_port(qp)->number, gid);
}

void vb_engine_datagram_receive(const struct vb_incoming *in, struct vb_qp *qp)
{
    struct vb_adapter *adapter = in->engine->adapter;
    struct vb_deth deth = vb_wire_deth_read(in->extended);
    enum ibv_qp_state state;

    vb_word_lock(&qp->shared->rq_lock, VB_RANK_RECEIVE, adapter->instance);
    state = vb_qp_state(qp);
    if (state < IBV_QPS_RTR || state > IBV_QPS_SQE) {
        ++in->engine->counters.drop_state;
        tell_lost(qp, VB_LOST_STATE, deth.source_qp, state, 0);
    } else if (VB_UNLIKELY(adapter->port_count > 1) && !is_for_port(in, qp)) {
        ++in->engine->counters.drop_no_qp;
        tell_lost(qp, VB_LOST_PORT, deth.source_qp, 0, 0);
    } else if (!vb_pkeys_match(in->bth.pkey, vb_engine_qp_pkey(qp))) {
        vb_engine_drop_pkey(in->engine, qp);
        tell_lost(qp, VB_LOST_PKEY, deth.source_qp, in->bth.pkey, vb_engine_qp_pkey(qp));
    } else if (deth.qkey != qp->shared->qkey) {
        ++in->engine->counters.drop_qkey;
        vb_count_violation(&vb_shared_port(&adapter->self, qp->shared)->qkey_violations);
        tell_lost(qp, VB_LOST_QKEY, deth.source_qp, deth.qkey, qp->shared->qkey);
    } else {
        engine_datagram_deliver(in, qp, deth.source_qp);
    }
    vb_word_unlock(&qp->shared->rq_lock);
}

static void write_headers(const struct vb_qp *qp, const struct ibv_send_wr *wr,
                          struct vb_packet *packet)
{
    bool imm = wr->opcode == IBV_WR_SEND_WITH_IMM;
    struct vb_bth bth = {
        .opcode = (uint8_t)(VB_TRANSPORT_UD | (imm ? VB_OP_SEND_ONLY_IMM : VB_OP_SEND_ONLY)),
        .solicited = wr->send_flags & IBV_SEND_SOLICITED,
        .migrated = true,
        .pad = packet->pad,
        .pkey = vb_engine_qp_pkey(qp),
        .dest_qp = wr->wr.ud.remote_qpn & VB_QPN_MASK,
        .psn = vb_engine_psn_add(qp->terms.sq_psn, qp->sq_next),
    };
    struct vb_deth deth = {vb_qp_datagram_qkey(qp, wr), qp->number};

    vb_wire_bth_write(packet->header, &bth);
    vb_wire_deth_write(packet->header + VB_BTH, &deth);
    packet->header_length = VB_BTH + VB_DETH;
    if (!imm)
        return;
    memcpy(packet->header + packet->header_length, &wr->imm_data, VB_IMM);
    packet->header_length += VB_IMM;
}

int vb_engine_datagram(struct vb_qp *qp, const struct ibv_send_wr *wr, const struct vb_path *path,
                       struct vb_packet *packet, struct vb_outcome *outcome)
{
    bool is_virtual = qp->context->adapter->engine->config.virtual_payload;
    uint64_t length = vb_engine_elements_length(wr);

    *outcome = (struct vb_outcome){.status = IBV_WC_SUCCESS};
    packet->path = path;
    packet->qp_num = qp->number;
    packet->header_length = 0;
    packet->reason = VB_PACKET_NEW;
    packet->payload_length = 0;
    packet->piece_count = 0;
    packet->pad = -(uint32_t)length & 3;
    if (!vb_engine_elements_check(qp, wr, 0, is_virtual ? NULL : packet, outcome))
        return 0;
    if (length > path->mtu)
        return vb_refuse_length(qp, wr, length, path->mtu, outcome);
    if (is_virtual)
        vb_engine_packet_add(packet, NULL, (uint32_t)length);
    else if (!vb_engine_elements_gather(qp, wr, 0, (uint32_t)length, packet, outcome))
        return 0;
    write_headers(qp, wr, packet);
    return 0;
}
