// SPDX-License-Identifier: Apache-2.0
/*
 * Congestion control of a program's connections, with the algorithms of congestion.h. hca.c calls
 * it for each packet that leaves or arrives, if the fabric has congestion control.
 */
#include <stdlib.h>

#include "hca/qp.h"
#include "sim/hca_state.h"
#include "wire/opcode.h"

static uint64_t now_ps(const struct vb_sim_hca *hca)
{
    return hca->attachment->calls->now(hca->attachment);
}

/* The rate of the QP's port, in bits per second. */
static double hca_line_rate(const struct vb_sim_hca *hca, const struct vb_qp *qp)
{
    return (double)hca->attachment->port[vb_sim_hca_qp_of(qp)->port].rate;
}

/* ---- out ------------------------------------------------------------------------------------- */

void vb_sim_hca_pace(struct vb_sim_hca *hca, const struct vb_packet *packet, uint32_t bytes)
{
    const struct vb_congestion *congestion = hca->attachment->congestion;
    struct vb_qp *qp = vb_sim_hca_sender(packet);
    struct vb_sim_hca_qp *state = vb_sim_hca_qp_of(qp);
    double line = hca_line_rate(hca, qp), rate;

    if (!packet->payload_length || line <= 0)
        return;
    rate = vb_sim_congestion_sent(congestion, &state->rate, packet->path->sl, line, bytes,
                                  now_ps(hca));
    if (rate >= line)
        return;
    state->waits_for_rate = true;
    vb_sim_hca_hold(qp);
    vb_engine_timer_set(&hca->paced, &state->at_rate,
                        now_ps(hca) + (uint64_t)(bytes * 8e12 / rate));
}

void vb_sim_hca_pace_expire(struct vb_sim_hca *hca)
{
    uint64_t now = now_ps(hca);
    struct vb_timer *timer;

    while ((timer = vb_engine_timers_expire(&hca->paced, now)) != NULL) {
        struct vb_sim_hca_qp *state =
            (struct vb_sim_hca_qp *)((char *)timer - offsetof(struct vb_sim_hca_qp, at_rate));

        state->waits_for_rate = false;
        vb_sim_hca_hold(state->qp);
    }
}

void vb_sim_hca_pace_leave(struct vb_sim_hca *hca, struct vb_sim_hca_qp *state)
{
    vb_engine_timer_leave(&hca->paced, &state->at_rate);
    if (hca->attachment->congestion->kind == VB_CONGESTION_HPCC)
        free(state->rate.hpcc);
}

static void emit_cnp(struct vb_sim_hca *hca, const struct vb_qp *qp, struct vb_packet *packet)
{
    struct vb_path path = qp->endpoint->path;

    _Static_assert((int)VB_CNP <= (int)VB_HEADERS_MAX, "a notification is all header");
    path.sl = hca->attachment->notice_level;
    packet->path = &path;
    packet->qp_num = qp->number;
    packet->header_length = VB_CNP;
    vb_sim_hca_emit(hca, packet, NULL);
}

static void hca_pace_send_notice(struct vb_sim_hca *hca, const struct vb_qp *qp)
{
    struct vb_packet packet = {.reason = VB_PACKET_NEW};

    vb_sim_congestion_write_notice(packet.header, vb_engine_qp_pkey(qp), qp->shared->dest_qp_num);
    emit_cnp(hca, qp, &packet);
}

/* ---- telemetry ------------------------------------------------------------------------------- */

/* NULL: a UC connection, or no memory: it sends without HPCC. */
static struct vb_hpcc *hpcc_of(const struct vb_qp *qp)
{
    struct vb_sim_hca_qp *state = vb_sim_hca_qp_of(qp);

    if (qp->type == IBV_QPT_UC)
        return NULL;
    if (!state->rate.hpcc)
        state->rate.hpcc = calloc(1, sizeof(*state->rate.hpcc));
    return state->rate.hpcc;
}

static void hca_pace_set_window(const struct vb_sim_hca *hca, struct vb_qp *qp)
{
    uint32_t mtu = qp->endpoint->path.mtu;
    const struct vb_sim_attachment *attachment = hca->attachment;
    uint32_t port = vb_sim_hca_qp_of(qp)->port;
    uint32_t frame = attachment->port[port].frame - attachment->mtu + mtu;

    qp->endpoint->window = vb_sim_hpcc_packets(vb_sim_hca_qp_of(qp)->rate.hpcc, frame,
                                               hca->engine->config.window_bytes / mtu);
}

void vb_sim_hca_trace(struct vb_sim_hca *hca, const struct vb_packet *packet)
{
    struct vb_sim_attachment *attachment = hca->attachment;
    struct vb_qp *qp = vb_sim_hca_sender(packet);
    struct vb_hpcc *state = hpcc_of(qp);

    if (!state)
        return;
    hca->telemetry_mode =
        packet->payload_length ? VB_SIM_TELEMETRY_COLLECT : VB_SIM_TELEMETRY_RETURN;
    hca->telemetry = &state->received;
    if (state->window > 0 || !packet->payload_length || hca_line_rate(hca, qp) <= 0)
        return;
    vb_sim_hpcc_start(state, &attachment->congestion->hpcc, hca_line_rate(hca, qp));
    hca_pace_set_window(hca, qp);
}

static void hca_pace_send_telemetry(struct vb_sim_hca *hca, const struct vb_qp *qp, uint32_t psn)
{
    struct vb_packet packet = {.reason = VB_PACKET_NEW};

    vb_sim_congestion_write_telemetry(packet.header, vb_engine_qp_pkey(qp), qp->shared->dest_qp_num,
                                      psn);
    hca->telemetry_mode = VB_SIM_TELEMETRY_RETURN;
    hca->telemetry = &vb_sim_hca_qp_of(qp)->rate.hpcc->received;
    emit_cnp(hca, qp, &packet);
    hca->telemetry_mode = VB_SIM_TELEMETRY_NONE;
}

/* As host_take_telemetry of flows (host.c). */
static void hca_pace_take_telemetry(struct vb_sim_hca *hca, const struct vb_arrival *arrival,
                                    bool has_data)
{
    const struct vb_sim_attachment *attachment = hca->attachment;
    struct vb_qp *qp = vb_engine_find(hca->engine, vb_wire_get24(arrival->bytes + 5));
    struct vb_hpcc *state = qp && qp->endpoint ? hpcc_of(qp) : NULL;

    if (!state)
        return;
    if (has_data) {
        state->received = *attachment->telemetry;
        if (vb_sim_congestion_is_read_data(arrival->bytes[0]))
            hca_pace_send_telemetry(hca, qp, vb_wire_get24(arrival->bytes + 9));
    } else if (vb_sim_congestion_brings_telemetry(arrival->bytes[0]) && state->window > 0) {
        vb_sim_hpcc_acknowledged(state, &attachment->congestion->hpcc, hca_line_rate(hca, qp),
                                 attachment->telemetry, now_ps(hca));
        hca_pace_set_window(hca, qp);
    }
}

/* ---- in -------------------------------------------------------------------------------------- */

static bool has_payload(const struct vb_arrival *arrival)
{
    const struct vb_bth bth = vb_wire_bth_read(arrival->bytes);
    const struct vb_opcode *opcode = &vb_opcodes[bth.opcode];

    return opcode->name && (bth.opcode & VB_TRANSPORT_MASK) != VB_TRANSPORT_CNP &&
           arrival->length > opcode->header_length + bth.pad;
}

static bool hca_pace_is_marked(const struct vb_arrival *arrival)
{
    return (arrival->traffic_class & 3) == 3 || (arrival->bytes[4] & 0x80);
}

void vb_sim_hca_congested(struct vb_sim_hca *hca, const struct vb_arrival *arrival, bool is_notice)
{
    const struct vb_sim_attachment *attachment = hca->attachment;
    uint64_t now = now_ps(hca);
    struct vb_sim_hca_qp *state;
    struct vb_qp *qp;

    if (attachment->congestion->kind == VB_CONGESTION_HPCC) {
        if (attachment->telemetry)
            hca_pace_take_telemetry(hca, arrival, has_payload(arrival));
        return;
    }
    if (!is_notice && !(hca_pace_is_marked(arrival) && has_payload(arrival)))
        return;
    qp = vb_engine_find(hca->engine, vb_wire_get24(arrival->bytes + 5));
    if (!qp || !qp->endpoint)
        return;
    state = vb_sim_hca_qp_of(qp);
    if (is_notice)
        vb_sim_congestion_notice(attachment->congestion, &state->rate, qp->endpoint->path.sl,
                                 hca_line_rate(hca, qp), now);
    else if (vb_sim_congestion_is_notice_due(attachment->congestion, &state->noticed_at, now))
        hca_pace_send_notice(hca, qp);
}
