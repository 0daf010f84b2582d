// SPDX-License-Identifier: Apache-2.0
/*
 * The HCA of a program on a simulated host: ordinary verbs objects above, and below them the packet
 * engine, whose packets go to the fabric through the attachment. libibverbs opens and closes it;
 * the fabric calls its vb_sim_hca_calls. Everything runs in the one thread that uses the fabric.
 */
#include "sim/hca.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/ah.h"
#include "hca/counters.h"
#include "hca/lost.h"
#include "hca/multicast.h"
#include "hca/overdue.h"
#include "hca/qp.h"
#include "hca/text.h"
#include "memory/guard.h"
#include "memory/heap.h"
#include "port/packet.h"
#include "transport/engine.h"
#include "transport/replies.h"
#include "transport/transport.h"
#include "wrap/held.h"

/* Address space for tables and rings; pages are allocated as objects are made. */
static const size_t SEGMENT_SIZE = (size_t)1 << (sizeof(size_t) > 4 ? 32 : 28);

enum { HOP_LIMIT = 64, PS_IN_NS = 1000, LAST_PACKETS = 16, HOSTS_APART = 255 };

static struct vb_sim_hca *hca_of_qp(const struct vb_qp *qp)
{
    return vb_sim_hca_of(qp->context->adapter);
}

/* The index of the port that packets along this path leave by. */
static uint32_t port_of_path(const struct vb_path *path)
{
    return path->port - 1u;
}

/* vb_verbs_qp.port_data, while the QP has a carrier. */
static struct vb_sim_program_qp *program_qp_of(const struct vb_qp *qp)
{
    return qp->verbs->port_data;
}

static struct vb_qp *hca_sender(const struct vb_packet *packet)
{
    return ((struct vb_endpoint *)((char *)(uintptr_t)packet->path -
                                   offsetof(struct vb_endpoint, path)))
        ->qp;
}

static bool may_send(const struct vb_sim_attachment *attachment)
{
    for (uint32_t i = 0; i < attachment->ports; ++i)
        if (attachment->calls->may_send(attachment, i))
            return true;
    return false;
}

static uint64_t now_ns(const struct vb_sim_hca *hca)
{
    return hca->attachment->calls->now(hca->attachment) / PS_IN_NS;
}

uint64_t vb_sim_hca_now(const struct vb_sim_hca *hca)
{
    return hca->attachment->calls->now(hca->attachment);
}

int vb_sim_hca_step(struct vb_sim_hca *hca, uint64_t until)
{
    if (until)
        return hca->attachment->calls->step(hca->attachment, until);
    hca->attachment->calls->polled(hca->attachment);
    return 0;
}

/* ---- QPs that are attended ------------------------------------------------------------------- */

static bool waits_for_bell(const struct vb_qp *qp)
{
    return program_qp_of(qp) && program_qp_of(qp)->nic.waits_for_bell;
}

/* The caller may hold the QP's sq_lock, so the QP is attended in an event. */
static void hca_attend(struct vb_qp *qp)
{
    struct vb_sim_hca *hca = hca_of_qp(qp);
    struct vb_sim_attachment *attachment = hca->attachment;

    if (atomic_exchange(&qp->verbs->attended, true))
        return;
    qp->verbs->attend_next = hca->attended;
    hca->attended = qp;
    attachment->calls->expire_at(attachment, attachment->calls->now(attachment));
}

static void unattend(struct vb_sim_hca *hca, struct vb_qp *gone)
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

/* Switches return no copy to the sender, so members on this host get theirs here, at once. */
static uint32_t hca_send_to_group(struct vb_sim_hca *hca, uint32_t port,
                                  const struct vb_sim_wire_packet *wire)
{
    struct vb_arrival arrival = {
        .bytes = wire->bytes,
        .length = wire->length,
        .traffic_class = wire->traffic_class,
        .hop_limit = wire->hop_limit,
        .flow_label = wire->flow_label,
        .slid = wire->slid,
        .sl = wire->level,
        .has_grh = wire->global,
        .port = (uint8_t)(port + 1),
    };
    uint32_t members[VB_GROUP_QPS];

    memcpy(arrival.sgid, wire->sgid, sizeof(arrival.sgid));
    memcpy(arrival.dgid, wire->dgid, sizeof(arrival.dgid));
    if (!wire->damaged && vb_multicast_members(&hca->adapter.self, arrival.dgid, members))
        vb_engine_receive(hca->engine, &arrival, now_ns(hca));
    return hca->attachment->calls->send_to_group(hca->attachment, port, wire->dgid);
}

/* `sender` as of vb_sim_nic_send. Returns the length on the wire; -EFAULT: the payload could not be
 * read, and the packet is lost; -ENOMEM. */
static int send_packet(struct vb_sim_hca *hca, const struct vb_wrap_out *out,
                       struct vb_nic_qp *sender)
{
    const struct vb_packet *packet = out->packet;
    struct vb_sim_attachment *attachment = hca->attachment;
    uint32_t length = packet->header_length + packet->payload_length + packet->pad;
    uint32_t port = port_of_path(packet->path);
    struct vb_sim_wire_packet *wire = attachment->calls->begin(attachment, length);

    if (!wire)
        return -ENOMEM;
    hca_address(wire, packet->path);
    wire->payload = packet->payload_length;
    wire->slid = (uint16_t)(hca->adapter.ports[port].lid | packet->path->path_bits);
    wire->damaged = out->icrc_flip;
    wire->leave_at = hca->leave_at;
    if (vb_port_packet_write(packet, wire->bytes) < 0) {
        attachment->calls->discard(attachment);
        return -EFAULT;
    }
    if (VB_UNLIKELY(vb_wire_gid_is_multicast(packet->path->dgid)))
        return (int)hca_send_to_group(hca, port, wire);
    return (int)attachment->calls->send(attachment, port,
                                        attachment->port[port].infiniband
                                            ? packet->path->dlid
                                            : vb_sim_gid_host(packet->path->dgid) + 1,
                                        sender);
}

static int send_wrapped(struct vb_sim_hca *hca, const struct vb_wrap_out *out,
                        struct vb_nic_qp *sender)
{
    int sent = send_packet(hca, out, sender);

    vb_wrap_sent(&hca->wrap, out, 0, 0, now_ns(hca));
    return sent;
}

/* Sends a packet, unless a fault rule holds it. Returns as send_packet; 0: it has not left. */
static int hca_emit(struct vb_sim_hca *hca, const struct vb_packet *packet,
                    struct vb_nic_qp *sender)
{
    struct vb_wrap_out out = {.packet = packet};

    if (VB_LIKELY(!vb_wrap_is_active(&hca->wrap)))
        return send_packet(hca, &out, sender);
    return vb_wrap_outgoing(&hca->wrap, packet, now_ns(hca), &out) ? send_wrapped(hca, &out, sender)
                                                                   : 0;
}

static void hca_arm(struct vb_sim_hca *hca)
{
    uint64_t due = vb_engine_deadline(hca->engine);

    if (due < UINT64_MAX / PS_IN_NS)
        hca->attachment->calls->expire_at(hca->attachment, due * PS_IN_NS);
    due = vb_wrap_deadline(&hca->wrap);
    /* A packet that is due waits for the port, and not for a time. */
    if (VB_UNLIKELY(due != UINT64_MAX) && due > now_ns(hca))
        hca->attachment->calls->expire_at(hca->attachment, due * PS_IN_NS);
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
    send_wrapped(hca, &out, NULL);
    return true;
}

static bool hca_send_next(struct vb_sim_hca *hca)
{
    struct vb_packet packet;
    struct vb_nic_qp *sender;
    int bytes;

    if (!vb_engine_next(hca->engine, &packet, now_ns(hca)))
        return false;
    sender = &program_qp_of(hca_sender(&packet))->nic;
    bytes = hca_emit(hca, &packet, sender);
    hca->attachment->calls->sent(sender, packet.path->sl, packet.payload_length,
                                 bytes < 0 ? 0 : (uint32_t)bytes, 0);
    return true;
}

static void pump(struct vb_sim_hca *hca)
{
    struct vb_sim_attachment *attachment = hca->attachment;

    attachment->calls->release(attachment);
    while (may_send(attachment) && (hca_send_due(hca) || hca_send_next(hca)))
        ;
    for (uint32_t i = 0; i < attachment->ports; ++i)
        attachment->calls->want_ready(attachment, i, hca_has_more(hca));
    hca_arm(hca);
}

/* ---- what the fabric calls ------------------------------------------------------------------- */

/* The engine has handled the packet: the adapter may have to react to it. Datagrams are no part of
 * congestion control. */
static void hca_react(struct vb_sim_hca *hca, const struct vb_arrival *arrival, bool is_notice)
{
    const struct vb_sim_attachment *attachment = hca->attachment;
    struct vb_qp *qp;

    if (!attachment->telemetry && !is_notice && !vb_sim_nic_is_marked(arrival))
        return;
    qp = vb_engine_find(hca->engine, vb_wire_get24(arrival->bytes + 5));
    if (qp && qp->endpoint)
        attachment->calls->received(&program_qp_of(qp)->nic, arrival, qp->endpoint->path.sl,
                                    attachment->telemetry, is_notice);
}

static void hca_receive(struct vb_sim_hca *hca, const struct vb_arrival *arrival)
{
    uint64_t notices = vb_engine_counters(hca->engine)->cnp_received;

    vb_engine_receive(hca->engine, arrival, now_ns(hca));
    if (hca->attachment->reacts)
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

static void hca_arrive(void *argument, const struct vb_arrival *arrival)
{
    static const struct vb_wrap_frame frame;
    struct vb_sim_hca *hca = argument;
    struct vb_wrap_in in;

    if (VB_LIKELY(!vb_wrap_is_active(&hca->wrap)))
        hca_receive(hca, arrival);
    else if (vb_wrap_incoming(&hca->wrap, arrival, &frame, now_ns(hca), &in))
        receive_wrapped(hca, &in);
}

static void drop_damaged(void *argument)
{
    struct vb_sim_hca *hca = argument;

    ++hca->damaged;
}

static void hca_ready(void *argument)
{
    struct vb_sim_hca *hca = argument;

    receive_due(hca);
    if (hca->attended)
        serve_attended(hca);
    pump(hca);
}

static void hca_expire(void *argument)
{
    struct vb_sim_hca *hca = argument;

    vb_engine_expire(hca->engine, now_ns(hca));
    hca_ready(hca);
}

void vb_sim_hca_wrapped(struct vb_sim_hca *hca)
{
    hca->attachment->calls->expire_at(hca->attachment, vb_sim_hca_now(hca));
}

/* ---- what the adapter calls ------------------------------------------------------------------ */

static struct vb_qp *hca_qp_of_nic(struct vb_nic_qp *nic)
{
    return ((struct vb_sim_program_qp *)nic)->qp; /* its first member */
}

static void hca_hold(struct vb_nic_qp *nic, bool held)
{
    struct vb_qp *qp = hca_qp_of_nic(nic);

    if (qp->endpoint)
        vb_engine_hold(qp, held);
    else if (!held)
        hca_attend(qp);
}

static void hca_set_window(struct vb_nic_qp *nic, const struct vb_hpcc *hpcc)
{
    const struct vb_qp *qp = hca_qp_of_nic(nic);
    const struct vb_sim_hca *hca = hca_of_qp(qp);
    uint32_t mtu = qp->endpoint->path.mtu;
    uint32_t frame = hca->attachment->port[port_of_path(&qp->endpoint->path)].frame;

    qp->endpoint->window = vb_sim_hpcc_packets(hpcc, frame - hca->attachment->mtu + mtu,
                                               hca->engine->config.window_bytes / mtu);
}

static void hca_send_cnp(struct vb_nic_qp *nic, uint32_t psn)
{
    const struct vb_qp *qp = hca_qp_of_nic(nic);
    struct vb_path path = qp->endpoint->path;
    struct vb_packet packet = {
        .reason = VB_PACKET_NEW, .path = &path, .qp_num = qp->number, .header_length = VB_CNP};

    _Static_assert((int)VB_CNP <= (int)VB_HEADERS_MAX, "a notification is all header");
    if (nic->nic->config->notice_level != VB_NIC_OWN_LEVEL)
        path.sl = nic->nic->config->notice_level;
    vb_sim_congestion_write_cnp(packet.header, vb_engine_qp_pkey(qp), qp->shared->dest_qp_num, psn);
    hca_emit(hca_of_qp(qp), &packet, nic);
}

static void hca_pump(struct vb_nic_qp *nic)
{
    hca_ready(hca_of_qp(hca_qp_of_nic(nic)));
}

static const struct vb_nic_calls hca_calls = {hca_hold, hca_set_window, hca_send_cnp, hca_pump};

/* ---- a port's calls -------------------------------------------------------------------------- */

/*
 * The low 12 bits are the index in a block of the table (transport/engine.c). The upper bits differ
 * between hosts, for readers of captures, and are neither 0, as of management QPs (IBA 3.5.3), nor
 * 0xfff, as of multicast.
 */
static int hca_number(struct vb_adapter *adapter, uint32_t index, uint32_t *qp_num)
{
    uint32_t host = vb_sim_hca_of(adapter)->attachment->port[0].host;
    uint32_t block = index / VB_QPS_PER_SLOT;

    *qp_num = (1 + (host + block * HOSTS_APART) % (VB_SLOTS - 2)) << (24 - VB_SLOT_BITS) |
              index % VB_QPS_PER_SLOT;
    return 0;
}

/* The first two errors are of the address itself, the others of its route. */
static VB_COLD int hca_decline_route(struct vb_qp *qp, int error)
{
    const struct ibv_ah_attr *ah = &qp->verbs->attr.ah_attr;

    switch (error) {
    case -EINVAL:
        return vb_decline(qp->context, error,
                          "GID index {0} is empty: a simulated host has the indices 0 to {1}",
                          ah->grh.sgid_index, vb_qp_port(qp)->infiniband ? 0 : 2);
    case -ENETUNREACH:
        if (!ah->is_global)
            return vb_decline(qp->context, error,
                              "LID {0} is no simulated host's: take the one that the peer's own "
                              "port has (query_port: lid)",
                              ah->dlid);
        return vb_decline(qp->context, error,
                          "the peer's GID is no simulated host's: take the one that the peer's own "
                          "device has");
    case -EPROTONOSUPPORT:
        return vb_decline(qp->context, error,
                          "port {0} is {1n}, and the peer's port is not: no cable is between the "
                          "two link layers",
                          vb_qp_port(qp)->number,
                          vb_qp_port(qp)->infiniband ? VB_NAME("InfiniBand") : VB_NAME("Ethernet"));
    case -ELOOP:
        return vb_decline(qp->context, error,
                          "the routes of the simulated fabric lead round, to the peer's host or "
                          "back from it");
    default:
        return vb_decline(qp->context, error,
                          "no route of the simulated fabric leads to the peer's host and back");
    }
}

/* The address is a GID: RoCE's, or InfiniBand's with a GRH. -EINVAL, -ENETUNREACH. */
static int fill_global_path(const struct vb_adapter_port *port, const struct ibv_ah_attr *attr,
                            struct vb_path *path, struct vb_sim_peer *peer)
{
    struct vb_gid source;

    peer->host = vb_sim_gid_host(attr->grh.dgid.raw);
    peer->address = port->infiniband ? attr->dlid : 0; /* 0: the port's first LID */
    if (!vb_port_addresses_get(port->addresses, attr->grh.sgid_index, &source))
        return -EINVAL;
    if (peer->host == UINT32_MAX && !vb_wire_gid_is_multicast(attr->grh.dgid.raw))
        return -ENETUNREACH;
    path->flow_label = attr->grh.flow_label & 0xfffff;
    path->traffic_class = attr->grh.traffic_class;
    path->hop_limit = attr->grh.hop_limit > 1 ? attr->grh.hop_limit : HOP_LIMIT;
    memcpy(path->sgid, source.raw, sizeof(path->sgid));
    memcpy(path->dgid, attr->grh.dgid.raw, sizeof(path->dgid));
    return 0;
}

/* The engine identifies the peer of a path without a GRH, whose hop limit is 0, by the GIDs that
 * the two ports have. */
static void fill_local_path(uint32_t own, uint32_t host, struct vb_path *path)
{
    vb_sim_gid_link_local(own, path->sgid);
    vb_sim_gid_link_local(host, path->dgid);
}

/* -EINVAL; -ENETUNREACH; the errors of vb_sim_attachment_calls.route. */
static int hca_find_route(const struct vb_qp *qp, const struct ibv_ah_attr *attr,
                          struct vb_path *path)
{
    const struct vb_sim_attachment *attachment = hca_of_qp(qp)->attachment;
    const struct vb_adapter_port *port = vb_qp_port(qp);
    struct vb_sim_peer peer = {.address = attr->dlid};
    uint32_t index = port->number - 1u;
    int error = 0;

    *path = (struct vb_path){.port = port->number,
                             .sl = attr->sl,
                             .mtu = attachment->mtu,
                             .path_bits = attr->src_path_bits & ((1u << port->lmc) - 1)};
    if (attr->is_global)
        error = fill_global_path(port, attr, path, &peer);
    if (error || (attr->is_global && vb_wire_gid_is_multicast(path->dgid)))
        return error;
    error = attachment->calls->route(attachment, index, &peer);
    if (port->infiniband)
        path->dlid = (uint16_t)peer.address;
    if (!error && !attr->is_global)
        fill_local_path(attachment->port[index].host, peer.host, path);
    return error;
}

static int make_path(struct vb_sim_hca *hca, struct vb_qp *qp, struct vb_path *path)
{
    int error = hca_find_route(qp, &qp->verbs->attr.ah_attr, path);

    if (!error && vb_wire_gid_is_multicast(path->dgid))
        error = -ENETUNREACH;
    if (error)
        return hca_decline_route(qp, error);
    path->mtu = (uint16_t)(128 << qp->verbs->attr.path_mtu);
    if (path->mtu <= hca->attachment->mtu)
        return 0;
    return vb_decline(qp->context, -EMSGSIZE,
                      "path_mtu is {0} bytes and the simulated fabric carries {1}: set a smaller "
                      "one (query_port: active_mtu), or make the world with a larger mtu",
                      path->mtu, hca->attachment->mtu);
}

static int join_engine(struct vb_sim_hca *hca, struct vb_qp *qp)
{
    struct vb_path path;
    int error = make_path(hca, qp, &path);

    return error ? error : vb_engine_connect(hca->engine, qp, &path);
}

static int join_adapter(struct vb_qp *qp)
{
    struct vb_sim_attachment *attachment = hca_of_qp(qp)->attachment;

    qp->verbs->port_data =
        attachment->calls->connect(attachment, vb_qp_port(qp)->number - 1u, &hca_calls, qp);
    return qp->verbs->port_data ? 0 : -ENOMEM;
}

/* Has a datagram to wait for the doorbell: the first one, after the QP had none to send? */
static bool has_to_ring(struct vb_qp *qp)
{
    struct vb_nic_qp *nic = &program_qp_of(qp)->nic;

    if (!nic->saw_bell && hca_of_qp(qp)->attachment->calls->ring(nic))
        return true;
    nic->saw_bell &= qp->sq_posted - qp->sq_next > 1;
    return false;
}

/* For datagrams only. A datagram without a route is lost. */
static int hca_execute(struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_outcome *outcome)
{
    struct vb_sim_hca *hca = hca_of_qp(qp);
    struct vb_sim_attachment *attachment = hca->attachment;
    const struct vb_ah *ah = (const struct vb_ah *)wr->wr.ud.ah;
    uint32_t port = vb_qp_port(qp)->number - 1u;
    struct vb_packet packet;
    struct vb_path path;

    if (!attachment->calls->may_send(attachment, port) ||
        attachment->calls->is_blocked(attachment, port, ah->attr.sl) || has_to_ring(qp)) {
        qp->wait.reason = VB_WAIT_PEER;
        return -EAGAIN;
    }
    if (hca_find_route(qp, &ah->attr, &path))
        return 0;
    vb_engine_datagram(qp, wr, &path, &packet, outcome);
    if (packet.header_length && hca_emit(hca, &packet, NULL) == -EFAULT)
        outcome->status = IBV_WC_LOC_PROT_ERR;
    if (VB_UNLIKELY(vb_wrap_is_active(&hca->wrap)))
        vb_sim_hca_wrapped(hca);
    return 0;
}

static void hca_kick(struct vb_qp *qp)
{
    struct vb_sim_hca *hca = hca_of_qp(qp);
    const struct vb_endpoint *ep = qp->endpoint;

    if (ep && ep->requester.begun == qp->sq_next && qp->sq_posted != qp->sq_next)
        hca->attachment->calls->ring(&program_qp_of(qp)->nic);
    vb_engine_attend(hca->engine, qp, now_ns(hca));
    pump(hca);
}

/* Connects the engine along the path of the QP's current attributes. */
static int hca_move(struct vb_qp *qp)
{
    return join_engine(hca_of_qp(qp), qp);
}

static const struct vb_carrier packets = {
    .doorbell = hca_kick,
    .note = vb_engine_note,
    .is_loop = vb_engine_is_loop,
    .settle = vb_settled_at_once,
    .quiet = vb_always_quiet,
    .move = hca_move,
};

static const struct vb_carrier datagrams = {
    .execute = hca_execute,
    .settle = vb_settled_at_once,
    .quiet = vb_always_quiet,
};

static int hca_connect(struct vb_qp *qp)
{
    bool connected = vb_qp_connected_type(qp->type);
    int error = qp->verbs->port_data ? 0 : join_adapter(qp);

    if (!error && connected)
        error = hca_move(qp);
    if (error)
        return error;
    vb_qp_set_carrier(qp, connected ? &packets : &datagrams);
    vb_qp_count_poller(qp, true);
    return 0;
}

/* Sends owed acknowledgements before the QP ends, but at most LAST_PACKETS packets of READs. */
static void send_owed(struct vb_sim_hca *hca, const struct vb_qp *qp)
{
    struct vb_endpoint *ep = qp->endpoint;
    struct vb_packet packet;

    for (int i = 0; ep && i < LAST_PACKETS && vb_engine_replies_owed(&ep->replies); ++i)
        if (vb_engine_replies_next(ep, &packet))
            hca_emit(hca, &packet, NULL);
}

static void hca_disconnect(struct vb_qp *qp)
{
    struct vb_sim_hca *hca = hca_of_qp(qp);

    send_owed(hca, qp);
    unattend(hca, qp);
    vb_engine_disconnect(hca->engine, qp);
    vb_qp_set_carrier(qp, &vb_uncarried);
    vb_qp_count_poller(qp, false);
    if (program_qp_of(qp))
        hca->attachment->calls->disconnect(hca->attachment, program_qp_of(qp));
    qp->verbs->port_data = NULL;
}

static void hca_progress(struct vb_cq *cq)
{
    struct vb_sim_attachment *attachment = vb_sim_hca_of(cq->context->adapter)->attachment;

    attachment->calls->polled(attachment);
}

static void hca_armed(struct vb_cq *cq)
{
    struct vb_sim_attachment *attachment = vb_sim_hca_of(cq->context->adapter)->attachment;

    attachment->calls->armed(attachment);
}

static void hca_readable(struct vb_context *context, int fd)
{
    struct vb_sim_attachment *attachment = vb_sim_hca_of(context->adapter)->attachment;

    attachment->calls->readable(attachment, fd);
}

static uint64_t hca_now(const struct vb_adapter *adapter)
{
    return now_ns(vb_sim_hca_of(adapter));
}

static int hca_join(struct vb_qp *qp, const uint8_t group[16])
{
    struct vb_sim_attachment *attachment = hca_of_qp(qp)->attachment;
    int error = attachment->calls->join(attachment, vb_qp_port(qp)->number - 1u, group);

    switch (error) {
    case 0:
        return 0;
    case -EHOSTUNREACH:
        return vb_decline(qp->context, error,
                          "no way of the simulated fabric leads to another member of the group");
    default:
        return vb_decline(qp->context, error,
                          "the simulated fabric has no room for another multicast group");
    }
}

static void hca_leave(struct vb_adapter *adapter, const uint8_t group[16])
{
    struct vb_sim_attachment *attachment = vb_sim_hca_of(adapter)->attachment;

    attachment->calls->leave(attachment, group);
}

static bool hca_is_own(void *argument, uint8_t port_num, const uint8_t gid[16])
{
    const struct vb_sim_hca *hca = argument;

    return vb_port_addresses_port_has(&hca->adapter, port_num, gid);
}

static const struct vb_host_calls port = {
    .number = hca_number,
    .connect = hca_connect,
    .disconnect = hca_disconnect,
    .attend = hca_attend,
    .progress = hca_progress,
    .join = hca_join,
    .leave = hca_leave,
    .armed = hca_armed,
    .readable = hca_readable,
    .now = hca_now,
};

/* ---- open and close -------------------------------------------------------------------------- */

/* An Ethernet port's GID table: the IPv4, the link-local, and again the IPv4 address. */
static int open_ethernet(const struct vb_sim_attachment *attachment, uint32_t host,
                         struct vb_addresses **addresses)
{
    struct vb_gid gid[] = {
        {.type = VB_GID_ROCE_V2}, {.type = VB_GID_ROCE_V2}, {.type = VB_GID_ROCE_V2}};

    vb_sim_gid_ipv4(host, gid[0].raw);
    vb_sim_gid_link_local(host, gid[1].raw);
    vb_sim_gid_ipv4(host, gid[2].raw);
    return vb_port_addresses_fixed(gid, sizeof(gid) / sizeof(*gid), attachment->mtu, addresses);
}

static int open_infiniband(const struct vb_sim_attachment *attachment, uint32_t host,
                           struct vb_addresses **addresses)
{
    struct vb_gid gid = {0};

    vb_sim_gid_link_local(host, gid.raw);
    return vb_port_addresses_fixed(&gid, 1, attachment->mtu, addresses);
}

static int hca_open_port(const struct vb_sim_attachment *attachment,
                         const struct vb_sim_attachment_port *from, struct vb_adapter_port *port,
                         struct vb_port_shared *shared)
{
    memcpy(port->pkeys, from->pkeys, sizeof(port->pkeys));
    shared->infiniband = port->infiniband = from->infiniband;
    if (!port->infiniband)
        return open_ethernet(attachment, from->host, &port->addresses);
    shared->lid = port->lid = from->lid;
    shared->lmc = port->lmc = from->lmc;
    return open_infiniband(attachment, from->host, &port->addresses);
}

static int hca_open_ports(struct vb_sim_hca *hca)
{
    struct vb_adapter *adapter = &hca->adapter;
    int error = 0;

    adapter->port_count = (uint8_t)hca->attachment->ports;
    for (uint32_t i = 0; i < adapter->port_count && !error; ++i)
        error = hca_open_port(hca->attachment, &hca->attachment->port[i], &adapter->ports[i],
                              &adapter->self.header->port[i]);
    return error;
}

static int hca_open_adapter(struct vb_sim_hca *hca, struct vb_heap *heap)
{
    uint32_t instance = VB_ARM_ANY + 1 + hca->attachment->port[0].host;
    struct vb_heap *segment;
    int error = vb_memory_heap_create(SEGMENT_SIZE, &segment);

    if (error)
        return error;
    error = vb_adapter_create(segment, heap, &port, instance, hca->attachment->seed, &hca->adapter);
    if (error)
        vb_memory_heap_destroy(segment);
    return error;
}

static void hca_close_adapter(struct vb_sim_hca *hca)
{
    struct vb_heap *segment = hca->adapter.segment;

    for (uint32_t i = 0; i < hca->adapter.port_count; ++i)
        if (hca->adapter.ports[i].addresses)
            vb_port_addresses_close(hca->adapter.ports[i].addresses);
    vb_adapter_destroy(&hca->adapter);
    vb_memory_heap_destroy(segment);
}

static int hca_open_parts(struct vb_sim_hca *hca, struct vb_heap *heap)
{
    struct vb_engine_config config = {.burst = 1, .ack_bytes = hca->attachment->traces}; /* each */
    int error = hca_open_adapter(hca, heap);

    if (error)
        return error;
    error = hca_open_ports(hca);
    if (!error)
        error = vb_engine_create(&hca->adapter, &config, &hca->engine);
    if (error) {
        hca_close_adapter(hca);
        return error;
    }
    vb_engine_set_own(hca->engine, hca_is_own, hca);
    return 0;
}

int vb_sim_hca_open(struct vb_sim_attachment *attachment, struct vb_heap *heap,
                    struct vb_sim_hca **hca)
{
    struct vb_sim_hca *made;
    int error;

    if (attachment->version != VB_SIM_ATTACHMENT_VERSION)
        return -EPROTO;
    if (attachment->hca_calls)
        return -EBUSY;
    made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    made->attachment = attachment;
    made->calls = (struct vb_sim_hca_calls){made, hca_arrive, drop_damaged, hca_ready, hca_expire};
    vb_wrap_init(&made->wrap);
    error = hca_open_parts(made, heap);
    if (error) {
        vb_wrap_fini(&made->wrap);
        free(made);
        return error;
    }
    vb_memory_guard_start();
    attachment->hca_calls = &made->calls;
    *hca = made;
    return 0;
}

/* Sends the packets that fault rules hold, each when it is due. */
static void send_held(struct vb_sim_hca *hca)
{
    struct vb_wrap_out out;

    while (vb_wrap_due_out(&hca->wrap, UINT64_MAX, &out)) {
        hca->leave_at = out.held->due * PS_IN_NS;
        send_wrapped(hca, &out, NULL);
    }
}

void vb_sim_hca_close(struct vb_sim_hca *hca)
{
    send_held(hca);
    hca->attachment->hca_calls = NULL;
    vb_memory_guard_stop();
    vb_engine_destroy(hca->engine);
    hca_close_adapter(hca);
    vb_wrap_fini(&hca->wrap);
    free(hca);
}

/* ---- questions ------------------------------------------------------------------------------- */

int vb_sim_hca_counters(const struct vb_sim_hca *hca, char *json, size_t size)
{
    const uint64_t *value = (const uint64_t *)(const void *)vb_engine_counters(hca->engine);
    struct vb_text text = {json, size, 0};

    vb_text_add(&text, "{\"engine\":{");
    for (uint32_t i = 0; i < VB_COUNTER_COUNT; ++i)
        vb_text_add(&text, "%s\"%s\":%llu", i ? "," : "", vb_counter_names[i].name,
                    (unsigned long long)(value[i] + vb_lost_counted(&hca->adapter, i)));
    vb_text_add(&text, "},\"port\":{\"drop_icrc\":%llu}}", (unsigned long long)hca->damaged);
    return text.length;
}

int vb_sim_hca_describe(struct vb_sim_hca *hca, const char *device, char *json, size_t size)
{
    struct vb_text text = {json, size, 0};

    vb_text_add(&text, "{\"device\":\"%s\",\"simulated_host\":%u,\"rate\":%llu,\"mtu\":%u,", device,
                hca->attachment->port[0].host, (unsigned long long)hca->attachment->port[0].rate,
                hca->attachment->mtu);
    vb_overdue_describe(&hca->adapter, &text);
    vb_text_add(&text, "}");
    return text.length;
}
