// SPDX-License-Identifier: Apache-2.0
/* Congestion control of a program's connections: as that of flows (host.c, congestion.h). */
#include <stdlib.h>

#include "hca/qp.h"
#include "sim/connect_state.h"
#include "wire/opcode.h"

static uint64_t now_ps(const struct vb_connect *connect)
{
    return connect->jack->calls->now(connect->jack);
}

/* ---- out ------------------------------------------------------------------------------------- */

void vb_sim_connect_pace(struct vb_connect *connect, const struct vb_packet *packet, uint32_t bytes)
{
    const struct vb_congestion *congestion = connect->jack->congestion;
    double line = (double)connect->jack->rate, rate;
    struct vb_qp *qp = vb_sim_connect_sender(packet);
    struct vb_connect_place *place = vb_sim_connect_place_of(qp);

    if (!packet->payload_length || line <= 0)
        return;
    rate = vb_sim_congestion_sent(congestion, &place->rate, packet->path->sl, line, bytes,
                                  now_ps(connect));
    if (rate >= line)
        return;
    place->waits_for_rate = true;
    vb_sim_connect_hold(qp);
    vb_engine_timer_set(&connect->paced, &place->at_rate,
                        now_ps(connect) + (uint64_t)(bytes * 8e12 / rate));
}

void vb_sim_connect_pace_expire(struct vb_connect *connect)
{
    uint64_t now = now_ps(connect);
    struct vb_timer *timer;

    while ((timer = vb_engine_timers_expire(&connect->paced, now)) != NULL) {
        struct vb_connect_place *place =
            (struct vb_connect_place *)((char *)timer - offsetof(struct vb_connect_place, at_rate));

        place->waits_for_rate = false;
        vb_sim_connect_hold(place->qp);
    }
}

void vb_sim_connect_pace_leave(struct vb_connect *connect, struct vb_connect_place *place)
{
    vb_engine_timer_leave(&connect->paced, &place->at_rate);
    if (connect->jack->congestion->kind == VB_CONGESTION_HPCC)
        free(place->rate.hpcc);
}

static void emit_cnp(struct vb_connect *connect, const struct vb_qp *qp, struct vb_packet *packet)
{
    struct vb_path path = qp->endpoint->path;

    _Static_assert((int)VB_CNP <= (int)VB_HEADERS_MAX, "a notification is all header");
    path.sl = connect->jack->notice_level;
    packet->path = &path;
    packet->qp_num = qp->number;
    packet->header_length = VB_CNP;
    vb_sim_connect_emit(connect, packet, NULL);
}

static void connect_pace_send_notice(struct vb_connect *connect, const struct vb_qp *qp)
{
    struct vb_packet packet = {.reason = VB_PACKET_NEW};

    vb_sim_congestion_write_notice(packet.header, vb_engine_qp_pkey(qp), qp->shared->dest_qp_num);
    emit_cnp(connect, qp, &packet);
}

/* ---- telemetry ------------------------------------------------------------------------------- */

/* NULL: it is not reliable, or there is no memory, and it sends as if there were no HPCC. */
static struct vb_hpcc *hpcc_of(const struct vb_qp *qp)
{
    struct vb_connect_place *place = vb_sim_connect_place_of(qp);

    if (qp->type == IBV_QPT_UC)
        return NULL;
    if (!place->rate.hpcc)
        place->rate.hpcc = calloc(1, sizeof(*place->rate.hpcc));
    return place->rate.hpcc;
}

static void connect_pace_set_window(const struct vb_connect *connect, struct vb_qp *qp)
{
    uint32_t mtu = qp->endpoint->path.mtu;
    uint32_t frame = connect->jack->frame - connect->jack->mtu + mtu;

    qp->endpoint->window = vb_sim_hpcc_packets(vb_sim_connect_place_of(qp)->rate.hpcc, frame,
                                               connect->engine->config.window_bytes / mtu);
}

void vb_sim_connect_trace(struct vb_connect *connect, const struct vb_packet *packet)
{
    struct vb_jack *jack = connect->jack;
    struct vb_qp *qp = vb_sim_connect_sender(packet);
    struct vb_hpcc *state = hpcc_of(qp);

    if (!state)
        return;
    connect->telemetry = packet->payload_length ? VB_LETTER_ASKS : VB_LETTER_BRINGS;
    connect->trail = &state->received;
    if (state->window > 0 || !packet->payload_length || !jack->rate)
        return;
    vb_sim_hpcc_start(state, &jack->congestion->hpcc, (double)jack->rate);
    connect_pace_set_window(connect, qp);
}

static void connect_pace_send_telemetry(struct vb_connect *connect, const struct vb_qp *qp,
                                        uint32_t psn)
{
    struct vb_packet packet = {.reason = VB_PACKET_NEW};

    vb_sim_congestion_write_telemetry(packet.header, vb_engine_qp_pkey(qp), qp->shared->dest_qp_num,
                                      psn);
    connect->telemetry = VB_LETTER_BRINGS;
    connect->trail = &vb_sim_connect_place_of(qp)->rate.hpcc->received;
    emit_cnp(connect, qp, &packet);
    connect->telemetry = VB_LETTER_SILENT;
}

/* As that of flows (host.c). */
static void connect_pace_take_trail(struct vb_connect *connect, const struct vb_arrival *arrival,
                                    bool has_data)
{
    const struct vb_jack *jack = connect->jack;
    struct vb_qp *qp = vb_engine_find(connect->engine, vb_wire_get24(arrival->bytes + 5));
    struct vb_hpcc *state = qp && qp->endpoint ? hpcc_of(qp) : NULL;

    if (!state)
        return;
    if (has_data) {
        state->received = *jack->trail;
        if (vb_sim_congestion_is_read_data(arrival->bytes[0]))
            connect_pace_send_telemetry(connect, qp, vb_wire_get24(arrival->bytes + 9));
    } else if (vb_sim_congestion_brings_telemetry(arrival->bytes[0]) && state->window > 0) {
        vb_sim_hpcc_acknowledged(state, &jack->congestion->hpcc, (double)jack->rate, jack->trail,
                                 now_ps(connect));
        connect_pace_set_window(connect, qp);
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

static bool connect_pace_is_marked(const struct vb_arrival *arrival)
{
    return (arrival->traffic_class & 3) == 3 || (arrival->bytes[4] & 0x80);
}

void vb_sim_connect_congested(struct vb_connect *connect, const struct vb_arrival *arrival,
                              bool is_notice)
{
    const struct vb_jack *jack = connect->jack;
    uint64_t now = now_ps(connect);
    struct vb_connect_place *place;
    struct vb_qp *qp;

    if (jack->congestion->kind == VB_CONGESTION_HPCC) {
        if (jack->trail)
            connect_pace_take_trail(connect, arrival, has_payload(arrival));
        return;
    }
    if (!is_notice && !(connect_pace_is_marked(arrival) && has_payload(arrival)))
        return;
    qp = vb_engine_find(connect->engine, vb_wire_get24(arrival->bytes + 5));
    if (!qp || !qp->endpoint)
        return;
    place = vb_sim_connect_place_of(qp);
    if (is_notice)
        vb_sim_congestion_notice(jack->congestion, &place->rate, qp->endpoint->path.sl,
                                 (double)jack->rate, now);
    else if (vb_sim_congestion_tells(jack->congestion, &place->noticed_at, now))
        connect_pace_send_notice(connect, qp);
}
