// SPDX-License-Identifier: Apache-2.0
/*
 * The turns of a program's HCA: the messages that it and the world send each other (protocol.h),
 * and the packets in them. hca.c calls this for what the program does, and the world gives turns by
 * vb_sim_hca_serve. Everything runs in the one thread of the program.
 */
#include "sim/hca.h"

#include <stdlib.h>
#include <string.h>

#include "hca/multicast.h"
#include "hca/qp.h"
#include "port/packet.h"
#include "sim/addresses.h"
#include "sim/nic.h"
#include "transport/engine.h"
#include "transport/transport.h"
#include "wrap/held.h"

enum {
    PS_IN_NS = 1000,
    ARMS = 4 /* a program may arm without sleeping patience * ARMS times at one time */
};

/* The index of the port that packets along this path leave by. */
static uint32_t port_of_path(const struct vb_path *path)
{
    return path->port - 1u;
}

static struct vb_qp *hca_sender(const struct vb_packet *packet)
{
    return ((struct vb_endpoint *)((char *)(uintptr_t)packet->path -
                                   offsetof(struct vb_endpoint, path)))
        ->qp;
}

static uint64_t now_ns(const struct vb_sim_hca *hca)
{
    return vb_sim_page_now(hca->page) / PS_IN_NS;
}

uint64_t vb_sim_hca_now(const struct vb_sim_hca *hca)
{
    return vb_sim_page_now(hca->page);
}

/* ---- messages and turns ---------------------------------------------------------------------- */

/* Gives the turn away; what the world appends waits in `in`. -EPIPE: the world has ended. */
int vb_sim_hca_give_turn(struct vb_sim_hca *hca)
{
    int error = hca->attachment->turn(hca->attachment);

    hca->is_stale = false;
    if (VB_UNLIKELY(error)) {
        hca->page->outs = hca->page->spares = 0;
        memset(hca->page->port_state, 0, sizeof(hca->page->port_state));
    }
    return error;
}

struct vb_sim_message *vb_sim_hca_post(struct vb_sim_hca *hca, enum vb_sim_message_kind kind)
{
    struct vb_sim_page *page = hca->page;
    struct vb_sim_message *message;

    if (VB_UNLIKELY(page->outs == VB_SIM_MESSAGES))
        vb_sim_hca_give_turn(hca);
    message = &page->out[page->outs++];
    message->kind = (uint8_t)kind;
    return message;
}

/* Ends a call of the program, unless the world has given the turn for an event. */
void vb_sim_hca_end_call(struct vb_sim_hca *hca)
{
    if (hca->page->at_once && !hca->serving && hca->page->outs)
        vb_sim_hca_give_turn(hca);
}

/* Asks the world, and returns its answer. */
int vb_sim_hca_ask(struct vb_sim_hca *hca, enum vb_sim_question_kind kind)
{
    int error;

    hca->page->question.kind = (uint8_t)kind;
    error = vb_sim_hca_give_turn(hca);
    return error ? error : hca->page->question.answer;
}

/* Gives the turn away, and takes what follows. Not under a QP's sq_lock. */
static void hca_turn(struct vb_sim_hca *hca)
{
    vb_sim_hca_give_turn(hca);
    vb_sim_hca_take(hca, VB_SIM_ARRIVE);
}

static void hca_expire_at(struct vb_sim_hca *hca, uint64_t at)
{
    uint64_t now = vb_sim_page_now(hca->page);

    if (at >= hca->page->expire_at)
        return;
    hca->page->expire_at = at > now ? at : now;
    vb_sim_hca_post(hca, VB_SIM_EXPIRE_AT)->at = hca->page->expire_at;
}

static bool may_send(const struct vb_sim_page *page)
{
    for (uint32_t i = 0; i < page->ports; ++i)
        if (page->port_state[i].may_send)
            return true;
    return false;
}

/* ---- programs and time ----------------------------------------------------------------------- */

static int hca_step(struct vb_sim_hca *hca, uint64_t until)
{
    hca->polls = 0;
    hca->page->question.until = until;
    return vb_sim_hca_ask(hca, VB_SIM_STEP);
}

/* Counts are for one time and one patience: the first call at another resets them. */
static void hca_look(struct vb_sim_hca *hca)
{
    uint64_t now = vb_sim_page_now(hca->page);

    if (hca->looked_at != now || hca->patience != hca->page->patience)
        hca->polls = hca->arms = 0;
    hca->looked_at = now;
    hca->patience = hca->page->patience;
}

static void hca_polled(struct vb_sim_hca *hca)
{
    hca_look(hca);
    if (++hca->polls < hca->patience)
        return;
    hca_step(hca, UINT64_MAX);
    hca->polls = hca->patience; /* from now on each empty poll handles an event */
    hca->looked_at = vb_sim_page_now(hca->page);
}

int vb_sim_hca_step(struct vb_sim_hca *hca, uint64_t until)
{
    if (until)
        return hca_step(hca, until);
    hca_polled(hca);
    return 0;
}

/* Time passes at least until the next entry of the CQ is in memory. */
void vb_sim_hca_progress(struct vb_cq *cq)
{
    struct vb_sim_hca *hca = vb_sim_hca_of(cq->context->adapter);
    uint64_t due = vb_cq_due(cq);

    if (due) {
        hca_expire_at(hca, due * PS_IN_NS);
        vb_sim_hca_end_call(hca);
    }
    hca_polled(hca);
}

/* A program that arms repeatedly without sleeping is polling. */
void vb_sim_hca_armed(struct vb_cq *cq)
{
    struct vb_sim_hca *hca = vb_sim_hca_of(cq->context->adapter);

    hca_look(hca);
    if (hca->arms / ARMS >= hca->patience)
        return;
    ++hca->arms;
    hca->polls = 0;
}

/* A descriptor may be in the list twice. */
void vb_sim_hca_readable(struct vb_context *context, int fd)
{
    struct vb_sim_hca *hca = vb_sim_hca_of(context->adapter);
    struct vb_sim_page *page = hca->page;

    if (page->readables == VB_SIM_READABLES && page->at_once)
        vb_sim_hca_give_turn(hca);
    if (page->readables < VB_SIM_READABLES)
        page->readable[page->readables++] = fd;
    else
        page->readables = VB_SIM_READABLES + 1;
    if (page->at_once && !hca->serving)
        vb_sim_hca_give_turn(hca);
}

/* ---- QPs that are attended ------------------------------------------------------------------- */

static bool waits_for_bell(const struct vb_qp *qp)
{
    return vb_sim_hca_qp_of(qp) && vb_sim_hca_qp_of(qp)->waits_for_bell;
}

/* The caller may hold the QP's sq_lock, so the QP is attended in an event. */
void vb_sim_hca_attend(struct vb_qp *qp)
{
    struct vb_sim_hca *hca = vb_sim_hca_of_qp(qp);

    if (atomic_exchange(&qp->verbs->attended, true))
        return;
    qp->verbs->attend_next = hca->attended;
    hca->attended = qp;
    hca_expire_at(hca, vb_sim_page_now(hca->page));
    vb_sim_hca_end_call(hca);
}

void vb_sim_hca_unattend(struct vb_sim_hca *hca, struct vb_qp *gone)
{
    for (struct vb_qp **at = &hca->attended; *at; at = &(*at)->verbs->attend_next)
        if (*at == gone) {
            *at = gone->verbs->attend_next;
            atomic_store(&gone->verbs->attended, false);
            return;
        }
}

/* A datagram that waits for the doorbell is served by an event of its own. */
static bool may_serve_attended(const struct vb_sim_hca *hca)
{
    for (const struct vb_qp *qp = hca->attended; qp; qp = qp->verbs->attend_next)
        if (!waits_for_bell(qp))
            return true;
    return false;
}

/* A QP whose datagrams wait for the port stays in the list. */
static void serve_attended(struct vb_sim_hca *hca)
{
    struct vb_qp *qp = hca->attended, *next;

    hca->attended = NULL;
    for (; qp; qp = next) {
        next = qp->verbs->attend_next;
        if (vb_qp_try_flush(qp) && !qp->counted_waiting) {
            atomic_store(&qp->verbs->attended, false);
            continue;
        }
        qp->verbs->attend_next = hca->attended;
        hca->attended = qp;
    }
}

/* ---- out ------------------------------------------------------------------------------------- */

static void hca_address(struct vb_sim_wire_packet *wire, const struct vb_path *path)
{
    memcpy(wire->sgid, path->sgid, sizeof(wire->sgid));
    memcpy(wire->dgid, path->dgid, sizeof(wire->dgid));
    wire->flow_label = path->flow_label;
    wire->traffic_class = path->traffic_class;
    wire->hop_limit = path->hop_limit;
    wire->level = path->sl;
    wire->global = path->hop_limit != 0;
}

/* A packet as the engine takes it; `wire` has to last as long. */
static struct vb_arrival hca_arrival_of(const struct vb_sim_wire_packet *wire, uint32_t port)
{
    struct vb_arrival arrival = {
        .bytes = wire->bytes,
        .length = wire->length,
        .traffic_class = wire->traffic_class,
        .hop_limit = wire->hop_limit,
        .flow_label = wire->flow_label,
        .slid = wire->slid,
        .sl = wire->level,
        .path_bits = wire->path_bits,
        .has_grh = wire->global,
        .port = (uint8_t)(port + 1),
    };

    memcpy(arrival.sgid, wire->sgid, sizeof(arrival.sgid));
    memcpy(arrival.dgid, wire->dgid, sizeof(arrival.dgid));
    return arrival;
}

/* Switches return no copy to the sender, so members on this host get theirs here, at once. */
static void hca_receive_own(struct vb_sim_hca *hca, uint32_t port,
                            const struct vb_sim_wire_packet *wire)
{
    const struct vb_arrival arrival = hca_arrival_of(wire, port);
    uint32_t members[VB_GROUP_QPS];

    if (!wire->damaged && vb_multicast_members(&hca->adapter.self, arrival.dgid, members))
        vb_engine_receive(hca->engine, &arrival, now_ns(hca));
}

static void hca_post_send(struct vb_sim_hca *hca, const struct vb_path *path,
                          struct vb_sim_qp_number qp, uint8_t flags)
{
    struct vb_sim_page *page = hca->page;
    uint32_t port = port_of_path(path);
    struct vb_sim_message *message = vb_sim_hca_post(hca, VB_SIM_SEND);

    message->port = (uint8_t)port;
    message->qp = qp;
    message->flags = flags;
    message->spare = (uint8_t)page->spares++;
    if (VB_UNLIKELY(vb_wire_gid_is_multicast(path->dgid)))
        message->flags |= VB_SIM_TO_GROUP;
    else
        message->address =
            page->port[port].infiniband ? path->dlid : vb_sim_gid_host(path->dgid) + 1;
    if (page->port_state[port].is_plain)
        page->port_state[port].may_send = false;
    else
        hca->is_stale = true;
}

/* `qp` and `flags` as of VB_SIM_SEND. Returns 1; -EFAULT: the payload could not be read, and the
 * packet is lost; -ENOMEM. */
static int send_packet(struct vb_sim_hca *hca, const struct vb_wrap_out *out,
                       struct vb_sim_qp_number qp, uint8_t flags)
{
    const struct vb_packet *packet = out->packet;
    struct vb_sim_page *page = hca->page;
    uint32_t port = port_of_path(packet->path);
    struct vb_sim_wire_packet *wire;

    if (page->outs == VB_SIM_MESSAGES || page->spares == VB_SIM_SPARES)
        vb_sim_hca_give_turn(hca);
    wire = vb_sim_page_at(page, page->spare[page->spares]);
    hca_address(wire, packet->path);
    wire->length = packet->header_length + packet->payload_length + packet->pad;
    wire->payload = packet->payload_length;
    wire->slid = (uint16_t)(hca->adapter.ports[port].lid | packet->path->path_bits);
    wire->path_bits = 0;
    wire->damaged = out->icrc_flip;
    wire->leave_at = hca->leave_at;
    if (vb_port_packet_write(packet, wire->bytes) < 0)
        return -EFAULT;
    if (VB_UNLIKELY(vb_wire_gid_is_multicast(packet->path->dgid)))
        hca_receive_own(hca, port, wire);
    hca_post_send(hca, packet->path, qp, flags);
    return 1;
}

static int send_wrapped(struct vb_sim_hca *hca, const struct vb_wrap_out *out,
                        struct vb_sim_qp_number qp, uint8_t flags)
{
    int sent = send_packet(hca, out, qp, flags);

    vb_wrap_sent(&hca->wrap, out, 0, 0, now_ns(hca));
    return sent;
}

/* Sends a packet, unless a fault rule holds it. Returns as send_packet; 0: it has not left. */
int vb_sim_hca_emit(struct vb_sim_hca *hca, const struct vb_packet *packet,
                    struct vb_sim_qp_number qp, uint8_t flags)
{
    struct vb_wrap_out out = {.packet = packet};

    if (VB_LIKELY(!vb_wrap_is_active(&hca->wrap)))
        return send_packet(hca, &out, qp, flags);
    return vb_wrap_outgoing(&hca->wrap, packet, now_ns(hca), &out)
               ? send_wrapped(hca, &out, qp, flags)
               : 0;
}

static void hca_arm(struct vb_sim_hca *hca)
{
    uint64_t due = vb_engine_deadline(hca->engine);

    if (due < UINT64_MAX / PS_IN_NS)
        hca_expire_at(hca, due * PS_IN_NS);
    due = vb_wrap_deadline(&hca->wrap);
    /* A packet that is due waits for the port, and not for a time. */
    if (VB_UNLIKELY(due != UINT64_MAX) && due > now_ns(hca))
        hca_expire_at(hca, due * PS_IN_NS);
}

static bool hca_has_more(struct vb_sim_hca *hca)
{
    return vb_engine_ready_first(&hca->engine->replying) ||
           vb_engine_ready_first(&hca->engine->requesting) || may_serve_attended(hca) ||
           (vb_wrap_is_active(&hca->wrap) && vb_wrap_deadline(&hca->wrap) <= now_ns(hca));
}

/* Sends a packet that a fault rule has held, if its time has come. */
static bool hca_send_due(struct vb_sim_hca *hca)
{
    struct vb_wrap_out out;

    if (!vb_wrap_is_active(&hca->wrap) || !vb_wrap_due_out(&hca->wrap, now_ns(hca), &out))
        return false;
    send_wrapped(hca, &out, VB_SIM_NO_QP, 0);
    return true;
}

/* The last packet of a UC request whose completion waits until it has left? The request is counted
 * before the packet is sent, since the engine may be called meanwhile. */
static uint8_t hca_tells(const struct vb_sim_hca *hca, const struct vb_packet *packet)
{
    bool last = vb_opcodes[packet->header[0]].flags & VB_OPCODE_LAST;

    if (!hca->page->port[port_of_path(packet->path)].counts || !last ||
        (packet->header[0] & VB_TRANSPORT_MASK) != VB_TRANSPORT_UC)
        return 0;
    ++hca_sender(packet)->endpoint->requester.unleft;
    return VB_SIM_TELLS;
}

static bool hca_send_next(struct vb_sim_hca *hca)
{
    struct vb_packet packet;
    uint8_t tells;
    struct vb_sim_qp_number number;
    struct vb_sim_message *message;

    if (!vb_engine_next(hca->engine, &packet, now_ns(hca)))
        return false;
    number = vb_sim_hca_qp_of(hca_sender(&packet))->number;
    tells = hca_tells(hca, &packet);
    if (vb_sim_hca_emit(hca, &packet, number, VB_SIM_PACED | tells) > 0)
        return true;
    if (tells)
        vb_sim_hca_left(hca, hca_sender(&packet));
    message = vb_sim_hca_post(hca, VB_SIM_UNSENT);
    message->qp = number;
    message->level = packet.path->sl;
    return true;
}

/* Each packet may hold its connection before the next is made. */
void vb_sim_hca_pump(struct vb_sim_hca *hca)
{
    struct vb_sim_page *page = hca->page;
    bool has_more;

    if (hca->is_stale || page->has_held || (page->at_once && !hca->serving)) {
        vb_sim_hca_post(hca, VB_SIM_RELEASE);
        hca_turn(hca);
    }
    while (may_send(page) && (hca_send_due(hca) || hca_send_next(hca)))
        if (may_send(page))
            hca_turn(hca);
    has_more = hca_has_more(hca);
    /* Without more to send, a port is asked for only if what was sent may have held a connection.
     */
    if (has_more || hca->is_stale || page->has_held || page->ports > 1)
        vb_sim_hca_post(hca, VB_SIM_PUMPED)->flags = has_more ? VB_SIM_MORE : 0;
    hca_arm(hca);
    vb_sim_hca_end_call(hca);
}

/* ---- what the world sends -------------------------------------------------------------------- */

/* The engine has handled the packet: the adapter may have to react to it. Datagrams are no part of
 * congestion control. */
static void hca_react(struct vb_sim_hca *hca, const struct vb_arrival *arrival, bool is_notice)
{
    struct vb_sim_message *message;
    struct vb_qp *qp;

    if (!hca->traced && !is_notice && !vb_sim_nic_is_marked(arrival))
        return;
    qp = vb_engine_find(hca->engine, vb_wire_get24(arrival->bytes + 5));
    if (!qp || !qp->endpoint)
        return;
    message = vb_sim_hca_post(hca, VB_SIM_RECEIVED);
    message->qp = vb_sim_hca_qp_of(qp)->number;
    message->level = qp->endpoint->path.sl;
    message->flags = (uint8_t)((is_notice ? VB_SIM_NOTICE : 0) | (hca->traced ? VB_SIM_TRACED : 0));
    message->length = arrival->length;
    message->traffic_class = arrival->traffic_class;
    memcpy(message->bth, arrival->bytes, sizeof(message->bth));
    hca_turn(hca);
}

static void hca_receive(struct vb_sim_hca *hca, const struct vb_arrival *arrival)
{
    uint64_t notices = vb_engine_counters(hca->engine)->cnp_received;

    vb_engine_receive(hca->engine, arrival, now_ns(hca));
    if (hca->page->reacts)
        hca_react(hca, arrival, vb_engine_counters(hca->engine)->cnp_received != notices);
}

static void receive_wrapped(struct vb_sim_hca *hca, const struct vb_wrap_in *in)
{
    hca_receive(hca, in->arrival);
    vb_wrap_received(&hca->wrap, in, NULL, now_ns(hca));
}

static void receive_due(struct vb_sim_hca *hca)
{
    struct vb_wrap_in in;

    while (vb_wrap_is_active(&hca->wrap) && vb_wrap_due_in(&hca->wrap, now_ns(hca), &in))
        receive_wrapped(hca, &in);
}

static void hca_arrive(struct vb_sim_hca *hca, const struct vb_sim_message *message)
{
    static const struct vb_wrap_frame frame;
    const struct vb_sim_wire_packet *wire = vb_sim_page_at(hca->page, (int64_t)message->at);
    struct vb_arrival arrival = hca_arrival_of(wire, message->port);
    struct vb_wrap_in in;

    if (VB_UNLIKELY(wire->damaged)) {
        ++hca->damaged;
        return;
    }
    hca->traced = wire->traced;
    if (VB_LIKELY(!vb_wrap_is_active(&hca->wrap)))
        hca_receive(hca, &arrival);
    else if (vb_wrap_incoming(&hca->wrap, &arrival, &frame, now_ns(hca), &in))
        receive_wrapped(hca, &in);
    hca->traced = false;
}

static bool hca_will_take(const struct vb_sim_hca *hca, const struct vb_sim_message *message)
{
    const struct vb_sim_wire_packet *wire = vb_sim_page_at(hca->page, (int64_t)message->at);
    struct vb_qp *qp = vb_engine_find(hca->engine, vb_wire_get24(wire->bytes + 5));
    struct vb_sim_hca_qp *own = qp ? vb_sim_hca_qp_of(qp) : NULL;

    return own && vb_engine_will_take(qp, wire->bytes, &own->coming);
}

static void hca_ready(struct vb_sim_hca *hca)
{
    receive_due(hca);
    if (hca->attended)
        serve_attended(hca);
    vb_sim_hca_pump(hca);
}

static struct vb_qp *hca_qp_by(uint64_t token)
{
    return (struct vb_qp *)(uintptr_t)token;
}

static void hca_hold(struct vb_qp *qp, bool held)
{
    if (qp->endpoint)
        vb_engine_hold(qp, held);
    else if (!held)
        vb_sim_hca_attend(qp);
}

static void hca_set_window(struct vb_sim_hca *hca, struct vb_qp *qp, double window)
{
    const struct vb_hpcc hpcc = {.window = window};
    uint32_t mtu = qp->endpoint->path.mtu;
    uint32_t frame = hca->page->port[port_of_path(&qp->endpoint->path)].frame;

    qp->endpoint->window = vb_sim_hpcc_packets(&hpcc, frame - hca->page->mtu + mtu,
                                               hca->engine->config.window_bytes / mtu);
}

static void hca_send_cnp(struct vb_sim_hca *hca, struct vb_qp *qp, uint32_t psn)
{
    uint32_t level = hca->page->port[vb_qp_port(qp)->number - 1u].notice_level;
    struct vb_path path = qp->endpoint->path;
    struct vb_packet packet = {
        .reason = VB_PACKET_NEW, .path = &path, .qp_num = qp->number, .header_length = VB_CNP};

    _Static_assert((int)VB_CNP <= (int)VB_HEADERS_MAX, "a notification is all header");
    if (level != VB_NIC_OWN_LEVEL)
        path.sl = (uint8_t)level;
    vb_sim_congestion_write_cnp(packet.header, vb_engine_qp_pkey(qp), qp->shared->dest_qp_num, psn);
    vb_sim_hca_emit(hca, &packet, vb_sim_hca_qp_of(qp)->number, 0);
}

static void hca_take(struct vb_sim_hca *hca, const struct vb_sim_message *message)
{
    switch (message->kind) {
    case VB_SIM_HOLD:
        hca_hold(hca_qp_by(message->token), message->flags & VB_SIM_HELD);
        return;
    case VB_SIM_WINDOW:
        hca_set_window(hca, hca_qp_by(message->token), message->window);
        return;
    case VB_SIM_CNP:
        hca_send_cnp(hca, hca_qp_by(message->token), message->psn);
        return;
    case VB_SIM_ARRIVING:
        hca->page->will_take = hca_will_take(hca, message);
        return;
    case VB_SIM_ARRIVE:
        hca_arrive(hca, message);
        break;
    case VB_SIM_EXPIRE:
        vb_engine_expire(hca->engine, now_ns(hca));
        break;
    case VB_SIM_LEFT:
        vb_sim_hca_left(hca, hca_qp_by(message->token));
        break;
    case VB_SIM_PUMP:
        vb_sim_hca_qp_of(hca_qp_by(message->token))->waits_for_bell =
            message->flags & VB_SIM_RINGING;
        vb_sim_hca_qp_of(hca_qp_by(message->token))->saw_bell = true;
        if (message->flags & VB_SIM_TOLD)
            vb_sim_hca_told(hca_qp_by(message->token));
        break;
    default:
        break;
    }
    hca_ready(hca);
}

/* Takes the messages of `in` before the first event, or all of them. A turn meanwhile may append
 * more in their place, and take them. */
void vb_sim_hca_take(struct vb_sim_hca *hca, enum vb_sim_message_kind end)
{
    struct vb_sim_page *page = hca->page;

    while (page->taken < page->ins && page->in[page->taken].kind < end) {
        const struct vb_sim_message *message = &page->in[page->taken++];

        if (page->taken == page->ins)
            page->taken = page->ins = 0;
        hca_take(hca, message);
    }
}

void vb_sim_hca_serve(void *argument)
{
    struct vb_sim_hca *hca = argument;
    bool served = hca->serving;

    hca->serving = true;
    vb_sim_hca_take(hca, VB_SIM_PUMP + 1);
    hca->serving = served;
}

void vb_sim_hca_wrapped(struct vb_sim_hca *hca)
{
    hca_expire_at(hca, vb_sim_hca_now(hca));
    vb_sim_hca_end_call(hca);
}

/* Sends the packets that fault rules hold, each when it is due. */
void vb_sim_hca_send_held(struct vb_sim_hca *hca)
{
    struct vb_wrap_out out;

    while (vb_wrap_due_out(&hca->wrap, UINT64_MAX, &out)) {
        hca->leave_at = out.held->due * PS_IN_NS;
        send_wrapped(hca, &out, VB_SIM_NO_QP, 0);
    }
}
