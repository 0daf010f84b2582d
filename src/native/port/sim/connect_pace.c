// SPDX-License-Identifier: Apache-2.0
/* Congestion control of a program's connections: as that of flows (host.c, congestion.h). */
#include "hca/qp.h"
#include "port/sim/connect_state.h"
#include "wire/opcode.h"

static uint64_t now_ps(const struct vb_connect *connect)
{
    return connect->jack->calls->now(connect->jack);
}

void vb_connect_pace(struct vb_connect *connect, const struct vb_packet *packet, uint32_t bytes)
{
    const struct vb_congestion *congestion = connect->jack->congestion;
    double line = (double)connect->jack->rate, rate;
    struct vb_qp *qp = vb_connect_sender(packet);
    struct vb_connect_place *place = vb_connect_place_of(qp);

    if (!packet->payload_length || line <= 0)
        return;
    rate = vb_congestion_sent(congestion, &place->rate, line, bytes, now_ps(connect));
    if (rate >= line)
        return;
    place->waits_for_rate = true;
    vb_connect_hold(qp);
    vb_timer_set(&connect->paced, &place->at_rate,
                 now_ps(connect) + (uint64_t)(bytes * 8e12 / rate));
}

void vb_connect_pace_expire(struct vb_connect *connect)
{
    uint64_t now = now_ps(connect);
    struct vb_timer *timer;

    while ((timer = vb_timers_expire(&connect->paced, now)) != NULL) {
        struct vb_connect_place *place =
            (struct vb_connect_place *)((char *)timer - offsetof(struct vb_connect_place, at_rate));

        place->waits_for_rate = false;
        vb_connect_hold(place->qp);
    }
}

static void send_notice(struct vb_connect *connect, const struct vb_qp *qp)
{
    struct vb_path path = qp->endpoint->path;
    struct vb_packet packet = {
        .path = &path, .qp_num = qp->number, .header_length = VB_CNP, .reason = VB_PACKET_NEW};

    _Static_assert((int)VB_CNP <= (int)VB_HEADERS_MAX, "a notification is all header");
    path.sl = connect->jack->notice_level;
    vb_congestion_write_notice(packet.header, vb_engine_pkey(connect->engine),
                               qp->shared->dest_qp_num);
    vb_connect_emit(connect, &packet, NULL);
}

static bool has_payload(const struct vb_arrival *arrival)
{
    const struct vb_bth bth = vb_bth_read(arrival->bytes);
    const struct vb_opcode *opcode = &vb_opcodes[bth.opcode];

    return opcode->name && (bth.opcode & VB_TRANSPORT_MASK) != VB_TRANSPORT_CNP &&
           arrival->length > opcode->header_length + bth.pad;
}

static bool is_marked(const struct vb_arrival *arrival)
{
    return (arrival->traffic_class & 3) == 3 || (arrival->bytes[4] & 0x80);
}

void vb_connect_congested(struct vb_connect *connect, const struct vb_arrival *arrival,
                          bool is_notice)
{
    const struct vb_jack *jack = connect->jack;
    uint64_t now = now_ps(connect);
    struct vb_connect_place *place;
    struct vb_qp *qp;

    if (!is_notice && !(is_marked(arrival) && has_payload(arrival)))
        return;
    qp = vb_engine_find(connect->engine, vb_get24(arrival->bytes + 5));
    if (!qp || !qp->endpoint)
        return;
    place = vb_connect_place_of(qp);
    if (is_notice)
        vb_congestion_notice(jack->congestion, &place->rate, (double)jack->rate, now);
    else if (vb_congestion_tells(jack->congestion, &place->noticed_at, now))
        send_notice(connect, qp);
}
