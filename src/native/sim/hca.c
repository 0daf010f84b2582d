// SPDX-License-Identifier: Apache-2.0
/*
 * The HCA of a program on a simulated host: ordinary verbs objects above, and below them the packet
 * engine, whose packets go to the world as messages (protocol.h). libibverbs opens and closes it;
 * the world gives it turns (hca_serve). Everything runs in the one thread of the program.
 */
#include "sim/hca.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/ah.h"
#include "hca/counters.h"
#include "hca/lost.h"
#include "hca/overdue.h"
#include "hca/qp.h"
#include "hca/text.h"
#include "memory/guard.h"
#include "memory/heap.h"
#include "sim/addresses.h"
#include "transport/engine.h"
#include "transport/replies.h"
#include "transport/transport.h"

/* Address space for tables and rings; pages are allocated as objects are made. */
static const size_t SEGMENT_SIZE = (size_t)1 << (sizeof(size_t) > 4 ? 32 : 28);

enum { HOP_LIMIT = 64, PS_IN_NS = 1000, LAST_PACKETS = 16, HOSTS_APART = 255 };

/* ---- a port's calls -------------------------------------------------------------------------- */

/*
 * The low 12 bits are the index in a block of the table (transport/engine.c). The upper bits differ
 * between hosts, for readers of captures, and are neither 0, as of management QPs (IBA 3.5.3), nor
 * 0xfff, as of multicast.
 */
static int hca_number(struct vb_adapter *adapter, uint32_t index, uint32_t *qp_num)
{
    uint32_t host = vb_sim_hca_of(adapter)->page->port[0].host;
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
                            struct vb_path *path, struct vb_sim_question *peer)
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

/* -EINVAL; -ENETUNREACH; the errors of VB_SIM_ROUTE. */
static int hca_find_route(const struct vb_qp *qp, const struct ibv_ah_attr *attr,
                          struct vb_path *path)
{
    struct vb_sim_hca *hca = vb_sim_hca_of_qp(qp);
    const struct vb_adapter_port *port = vb_qp_port(qp);
    struct vb_sim_question *peer = &hca->page->question;
    int error = 0;

    *path = (struct vb_path){.port = port->number,
                             .sl = attr->sl,
                             .mtu = hca->page->mtu,
                             .path_bits = attr->src_path_bits & ((1u << port->lmc) - 1)};
    *peer = (struct vb_sim_question){.port = (uint8_t)(port->number - 1u), .address = attr->dlid};
    if (attr->is_global)
        error = fill_global_path(port, attr, path, peer);
    if (error || (attr->is_global && vb_wire_gid_is_multicast(path->dgid)))
        return error;
    error = vb_sim_hca_ask(hca, VB_SIM_ROUTE);
    if (port->infiniband)
        path->dlid = (uint16_t)peer->address;
    if (!error && !attr->is_global)
        fill_local_path(hca->page->port[peer->port].host, peer->host, path);
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
    if (path->mtu <= hca->page->mtu)
        return 0;
    return vb_decline(qp->context, -EMSGSIZE,
                      "path_mtu is {0} bytes and the simulated fabric carries {1}: set a smaller "
                      "one (query_port: active_mtu), or make the world with a larger mtu",
                      path->mtu, hca->page->mtu);
}

static int join_engine(struct vb_sim_hca *hca, struct vb_qp *qp)
{
    struct vb_path path;
    int error = make_path(hca, qp, &path);

    return error ? error : vb_engine_connect(hca->engine, qp, &path);
}

static const struct vb_sim_page_port *page_port_of(const struct vb_qp *qp)
{
    return &vb_sim_hca_of_qp(qp)->page->port[vb_qp_port(qp)->number - 1u];
}

/* Does the adapter know of requests only when the world says so? */
static bool counts(const struct vb_qp *qp)
{
    return page_port_of(qp)->counts;
}

static void hca_qp_free(struct vb_sim_hca_qp *own)
{
    if (own)
        free(own->bells);
    free(own);
}

static int join_adapter(struct vb_qp *qp)
{
    struct vb_sim_hca *hca = vb_sim_hca_of_qp(qp);
    struct vb_sim_hca_qp *made = calloc(1, sizeof(*made));
    int error;

    if (!made)
        return -ENOMEM;
    if (counts(qp)) {
        made->bells = calloc(qp->sq_mask + 1u, 1);
        if (!made->bells) {
            free(made);
            return -ENOMEM;
        }
    }
    hca->page->question = (struct vb_sim_question){.port = (uint8_t)(vb_qp_port(qp)->number - 1u),
                                                   .reliable = vb_qp_reliable_type(qp->type),
                                                   .token = (uintptr_t)qp};
    error = vb_sim_hca_ask(hca, VB_SIM_CONNECT);
    if (error) {
        hca_qp_free(made);
        return error;
    }
    made->number = hca->page->question.qp;
    made->posted = made->told = made->sent = qp->sq_posted;
    qp->verbs->port_data = made;
    return 0;
}

/* The adapter does not see the QP's requests yet. */
static void hca_ring(struct vb_qp *qp)
{
    struct vb_sim_hca_qp *own = vb_sim_hca_qp_of(qp);

    if (own->waits_for_bell)
        return;
    own->waits_for_bell = true;
    vb_sim_hca_post(vb_sim_hca_of_qp(qp), VB_SIM_RING)->qp = own->number;
    if (qp->endpoint)
        vb_engine_hold(qp, true);
}

/* Bytes of a request, by the rule of vb_sim_inside_request_bytes. */
static uint32_t request_bytes(const struct vb_qp *qp, const struct vb_sq_wqe *wqe)
{
    bool sends = wqe->wr.opcode == IBV_WR_SEND || wqe->wr.opcode == IBV_WR_SEND_WITH_IMM;
    uint32_t bytes = qp->type == IBV_QPT_UD ? 64 : sends ? 16 : 32, length = 0;

    for (int i = 0; i < wqe->wr.num_sge; ++i)
        length += wqe->sge[i].length;
    if (wqe->wr.opcode != IBV_WR_RDMA_READ && length <= page_port_of(qp)->inline_most)
        bytes += 4 + length;
    else
        bytes += 16 * (uint32_t)wqe->wr.num_sge;
    return (bytes + 63) / 64 * 64;
}

/* Tells the world of the requests since the last call; it charges the host for them, and says when
 * they are in the adapter. */
static void tell_posted(struct vb_qp *qp)
{
    struct vb_sim_hca_qp *own = vb_sim_hca_qp_of(qp);
    uint32_t requests = qp->sq_posted - own->posted;
    uint64_t bytes = 0;
    struct vb_sim_message *message;

    if (!requests)
        return;
    for (; own->posted != qp->sq_posted; ++own->posted)
        bytes += request_bytes(qp, &qp->sq[own->posted & qp->sq_mask]);
    own->bells[(own->posted - 1) & qp->sq_mask] = true;
    if (qp->endpoint)
        qp->endpoint->requester.untold += (uint16_t)requests;
    message = vb_sim_hca_post(vb_sim_hca_of_qp(qp), VB_SIM_POSTED);
    message->qp = own->number;
    message->requests = requests;
    message->at = bytes;
}

void vb_sim_hca_told(struct vb_qp *qp)
{
    struct vb_sim_hca *hca = vb_sim_hca_of_qp(qp);
    struct vb_sim_hca_qp *own = vb_sim_hca_qp_of(qp);
    uint32_t before = own->told;
    bool is_last;

    do {
        uint8_t *bell = &own->bells[own->told++ & qp->sq_mask];

        is_last = *bell;
        *bell = false;
    } while (!is_last);
    if (!qp->endpoint)
        return;
    qp->endpoint->requester.untold -= (uint16_t)(own->told - before);
    vb_engine_attend(hca->engine, qp, vb_sim_hca_now(hca) / PS_IN_NS);
}

void vb_sim_hca_left(struct vb_sim_hca *hca, struct vb_qp *qp)
{
    struct vb_sim_hca_qp *own = vb_sim_hca_qp_of(qp);
    struct vb_endpoint *ep = qp->endpoint;

    if (!ep) {
        own->flying -= own->flying > 0;
        return;
    }
    ep->requester.unleft -= ep->requester.unleft > 0;
    if (qp->sq_next != ep->requester.position)
        vb_engine_ready_add(&hca->engine->finishing, &ep->owing);
}

/* Is the request of a datagram, at this position, in the adapter? */
static bool is_told(struct vb_qp *qp, uint32_t position)
{
    struct vb_sim_hca_qp *own = vb_sim_hca_qp_of(qp);

    tell_posted(qp);
    own->waits_for_bell = (int32_t)(own->told - position) <= 0; /* some may have been flushed */
    return !own->waits_for_bell;
}

/* Has a datagram to wait for the doorbell: the first one, after the QP had none to send? */
static bool has_to_ring(struct vb_qp *qp)
{
    struct vb_sim_hca_qp *own = vb_sim_hca_qp_of(qp);

    if (!own->saw_bell && page_port_of(qp)->rings) {
        hca_ring(qp);
        return true;
    }
    own->saw_bell &= qp->sq_posted - qp->sq_next > 1;
    return false;
}

static bool hca_port_takes(struct vb_sim_hca *hca, uint32_t port, uint8_t level)
{
    const struct vb_sim_port_state *state = &hca->page->port_state[port];

    if (hca->is_stale || hca->page->at_once)
        vb_sim_hca_give_turn(hca);
    return state->may_send && !(state->blocked >> (level & 15) & 1);
}

/*
 * Makes and sends one datagram. Returns 1; 0: a fault rule has taken it; -1: it has no route and is
 * lost, or `outcome` has the error.
 */
static int hca_send_datagram(struct vb_qp *qp, const struct ibv_send_wr *wr, uint8_t flags,
                             struct vb_outcome *outcome)
{
    struct vb_sim_hca *hca = vb_sim_hca_of_qp(qp);
    struct vb_sim_qp_number number = flags ? vb_sim_hca_qp_of(qp)->number : VB_SIM_NO_QP;
    struct vb_packet packet;
    struct vb_path path;
    int sent = -1;

    if (hca_find_route(qp, &((const struct vb_ah *)wr->wr.ud.ah)->attr, &path))
        return sent;
    vb_engine_datagram(qp, wr, &path, &packet, outcome);
    if (packet.header_length)
        sent = vb_sim_hca_emit(hca, &packet, number, flags);
    if (sent == -EFAULT)
        outcome->status = IBV_WC_LOC_PROT_ERR;
    if (VB_UNLIKELY(vb_wrap_is_active(&hca->wrap)))
        vb_sim_hca_wrapped(hca);
    return sent < 0 ? -1 : sent;
}

/* The port takes no further packet, or one that was sent has not left. */
static int datagram_waits(struct vb_qp *qp)
{
    vb_sim_hca_end_call(vb_sim_hca_of_qp(qp));
    qp->wait.reason = VB_WAIT_PEER;
    return -EAGAIN;
}

static bool port_takes_datagram(struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    const struct vb_ah *ah = (const struct vb_ah *)wr->wr.ud.ah;

    return hca_port_takes(vb_sim_hca_of_qp(qp), vb_qp_port(qp)->number - 1u, ah->attr.sl);
}

/* May requests behind the first one be sent, while that is not complete? */
static bool sends_ahead(const struct vb_qp *qp)
{
    return !qp->paced && vb_qp_state(qp) == IBV_QPS_RTS;
}

/* The request behind those that were sent is sent, if it may be. Returns as hca_send_datagram, or
 * -EAGAIN. The first one that is not complete is sent whatever becomes of it. */
static int send_ahead(struct vb_qp *qp, struct vb_outcome *outcome)
{
    struct vb_sim_hca_qp *own = vb_sim_hca_qp_of(qp);
    const struct ibv_send_wr *wr = &qp->sq[own->sent & qp->sq_mask].wr;
    bool is_first = own->sent == qp->sq_next;

    if (!is_told(qp, own->sent) || own->sent == qp->sq_posted)
        return -EAGAIN;
    own->waits_for_bell = !is_first && !sends_ahead(qp); /* LEFT comes before it is its turn */
    if (own->waits_for_bell || !port_takes_datagram(qp, wr))
        return -EAGAIN;
    return hca_send_datagram(qp, wr, VB_SIM_TELLS, outcome);
}

/*
 * The adapter of a host with an inside has several datagrams at a time, and the first request is
 * complete when its packet has left. One without a packet is complete when it is the first. Those
 * that a fault rule has taken are not waited for, so one before them may be complete too early.
 */
static int execute_counted(struct vb_qp *qp, struct vb_outcome *outcome)
{
    struct vb_sim_hca_qp *own = vb_sim_hca_qp_of(qp);

    if ((int32_t)(own->sent - qp->sq_next) < 0) /* some were flushed */
        own->sent = qp->sq_next;
    while (own->sent - qp->sq_next <= own->flying) {
        struct vb_outcome made = {.status = IBV_WC_SUCCESS};
        bool is_first = own->sent == qp->sq_next;
        int sent = send_ahead(qp, &made);

        if (sent == -EAGAIN)
            return datagram_waits(qp);
        if (sent < 0 && !is_first) {
            own->waits_for_bell = true; /* for LEFT of those before it */
            return datagram_waits(qp);
        }
        ++own->sent;
        own->flying += sent > 0;
        if (sent < 0) {
            *outcome = made;
            break;
        }
    }
    vb_sim_hca_end_call(vb_sim_hca_of_qp(qp));
    return 0;
}

/* For datagrams only. */
static int hca_execute(struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_outcome *outcome)
{
    if (counts(qp))
        return execute_counted(qp, outcome);
    if (!port_takes_datagram(qp, wr) || has_to_ring(qp))
        return datagram_waits(qp);
    hca_send_datagram(qp, wr, 0, outcome);
    vb_sim_hca_end_call(vb_sim_hca_of_qp(qp));
    return 0;
}

static void hca_kick(struct vb_qp *qp)
{
    struct vb_sim_hca *hca = vb_sim_hca_of_qp(qp);
    const struct vb_endpoint *ep = qp->endpoint;

    if (ep && counts(qp))
        tell_posted(qp);
    else if (ep && page_port_of(qp)->rings && ep->requester.begun == qp->sq_next &&
             qp->sq_posted != qp->sq_next)
        hca_ring(qp);
    vb_engine_attend(hca->engine, qp, vb_sim_hca_now(hca) / PS_IN_NS);
    vb_sim_hca_pump(hca);
}

/* Connects the engine along the path of the QP's current attributes. */
static int hca_move(struct vb_qp *qp)
{
    return join_engine(vb_sim_hca_of_qp(qp), qp);
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
            vb_sim_hca_emit(hca, &packet, VB_SIM_NO_QP, 0);
}

static void hca_disconnect(struct vb_qp *qp)
{
    struct vb_sim_hca *hca = vb_sim_hca_of_qp(qp);

    vb_sim_hca_take(hca, VB_SIM_ARRIVE); /* messages about this QP */
    send_owed(hca, qp);
    vb_sim_hca_unattend(hca, qp);
    vb_engine_disconnect(hca->engine, qp);
    vb_qp_set_carrier(qp, &vb_uncarried);
    vb_qp_count_poller(qp, false);
    if (vb_sim_hca_qp_of(qp))
        vb_sim_hca_post(hca, VB_SIM_DISCONNECT)->qp = vb_sim_hca_qp_of(qp)->number;
    hca_qp_free(vb_sim_hca_qp_of(qp));
    qp->verbs->port_data = NULL;
    vb_sim_hca_end_call(hca);
}

static uint64_t hca_now(const struct vb_adapter *adapter)
{
    return vb_sim_hca_now(vb_sim_hca_of(adapter)) / PS_IN_NS;
}

static int hca_join(struct vb_qp *qp, const uint8_t group[16])
{
    struct vb_sim_hca *hca = vb_sim_hca_of_qp(qp);
    int error;

    hca->page->question = (struct vb_sim_question){.port = (uint8_t)(vb_qp_port(qp)->number - 1u)};
    memcpy(hca->page->question.gid, group, sizeof(hca->page->question.gid));
    error = vb_sim_hca_ask(hca, VB_SIM_JOIN);
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
    struct vb_sim_hca *hca = vb_sim_hca_of(adapter);

    memcpy(hca->page->question.gid, group, sizeof(hca->page->question.gid));
    vb_sim_hca_ask(hca, VB_SIM_LEAVE);
}

static bool hca_is_own(void *argument, uint8_t port_num, const uint8_t gid[16])
{
    const struct vb_sim_hca *hca = argument;

    return vb_port_addresses_port_has(&hca->adapter, port_num, gid);
}

uint64_t vb_sim_hca_written(const struct vb_sim_hca *hca)
{
    const struct vb_sim_page *page = hca->page;
    uint64_t now = vb_sim_page_now(page), longest = 0;

    for (uint32_t i = 0; i < page->ports; ++i)
        if (longest < page->port[i].written)
            longest = page->port[i].written;
    return longest ? (now + longest + PS_IN_NS - 1) / PS_IN_NS * PS_IN_NS : now;
}

static uint64_t hca_written(const struct vb_adapter *adapter)
{
    ++vb_sim_hca_of(adapter)->page->completions;
    return vb_sim_hca_written(vb_sim_hca_of(adapter)) / PS_IN_NS;
}

static void hca_note_polled(struct vb_adapter *adapter, const struct ibv_wc *wc, int count)
{
    struct vb_sim_hca *hca = vb_sim_hca_of(adapter);

    for (int i = 0; i < count; ++i)
        hca->page->polled_receives += wc[i].status == IBV_WC_SUCCESS && wc[i].opcode & IBV_WC_RECV;
    hca->page->polled += (uint32_t)count;
    if (hca->page->at_once && !hca->serving)
        vb_sim_hca_give_turn(hca);
}

#define HCA_CALLS                                                                                  \
    .number = hca_number, .connect = hca_connect, .disconnect = hca_disconnect,                    \
    .attend = vb_sim_hca_attend, .progress = vb_sim_hca_progress, .join = hca_join,                \
    .leave = hca_leave, .armed = vb_sim_hca_armed, .readable = vb_sim_hca_readable, .now = hca_now

static const struct vb_host_calls port = {HCA_CALLS};
static const struct vb_host_calls port_of_inside = {HCA_CALLS, .written = hca_written,
                                                    .polled = hca_note_polled};

static bool hca_counts(const struct vb_sim_page *page)
{
    bool any = false;

    for (uint32_t i = 0; i < page->ports; ++i)
        any |= page->port[i].counts;
    return any;
}

/* ---- open and close -------------------------------------------------------------------------- */

/* An Ethernet port's GID table: the IPv4, the link-local, and again the IPv4 address. */
static int open_ethernet(const struct vb_sim_page *page, uint32_t host,
                         struct vb_addresses **addresses)
{
    struct vb_gid gid[] = {
        {.type = VB_GID_ROCE_V2}, {.type = VB_GID_ROCE_V2}, {.type = VB_GID_ROCE_V2}};

    vb_sim_gid_ipv4(host, gid[0].raw);
    vb_sim_gid_link_local(host, gid[1].raw);
    vb_sim_gid_ipv4(host, gid[2].raw);
    return vb_port_addresses_fixed(gid, sizeof(gid) / sizeof(*gid), page->mtu, addresses);
}

static int open_infiniband(const struct vb_sim_page *page, uint32_t host,
                           struct vb_addresses **addresses)
{
    struct vb_gid gid = {0};

    vb_sim_gid_link_local(host, gid.raw);
    return vb_port_addresses_fixed(&gid, 1, page->mtu, addresses);
}

static int hca_open_port(const struct vb_sim_page *page, const struct vb_sim_page_port *from,
                         struct vb_adapter_port *port, struct vb_port_shared *shared)
{
    memcpy(port->pkeys, from->pkeys, sizeof(port->pkeys));
    shared->infiniband = port->infiniband = from->infiniband;
    if (!port->infiniband)
        return open_ethernet(page, from->host, &port->addresses);
    shared->lid = port->lid = from->lid;
    shared->lmc = port->lmc = from->lmc;
    return open_infiniband(page, from->host, &port->addresses);
}

static int hca_open_ports(struct vb_sim_hca *hca)
{
    struct vb_adapter *adapter = &hca->adapter;
    int error = 0;

    adapter->port_count = (uint8_t)hca->page->ports;
    for (uint32_t i = 0; i < adapter->port_count && !error; ++i)
        error = hca_open_port(hca->page, &hca->page->port[i], &adapter->ports[i],
                              &adapter->self.header->port[i]);
    return error;
}

static int hca_open_adapter(struct vb_sim_hca *hca, struct vb_heap *heap)
{
    uint32_t instance = VB_ARM_ANY + 1 + hca->page->port[0].host;
    struct vb_heap *segment;
    int error = vb_memory_heap_create(SEGMENT_SIZE, &segment);

    if (error)
        return error;
    error = vb_adapter_create(segment, heap, hca_counts(hca->page) ? &port_of_inside : &port,
                              instance, hca->page->seed, &hca->adapter);
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
    struct vb_engine_config config = {.burst = 1, .ack_bytes = hca->page->traces}; /* each */
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

    if (attachment->page->version != VB_SIM_PROTOCOL_VERSION)
        return -EPROTO;
    if (attachment->serve)
        return -EBUSY;
    made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    made->attachment = attachment;
    made->page = attachment->page;
    made->looked_at = UINT64_MAX;
    vb_wrap_init(&made->wrap);
    error = hca_open_parts(made, heap);
    if (error) {
        vb_wrap_fini(&made->wrap);
        free(made);
        return error;
    }
    vb_memory_guard_start();
    attachment->argument = made;
    attachment->serve = vb_sim_hca_serve;
    made->page->is_open = true;
    *hca = made;
    return 0;
}

void vb_sim_hca_close(struct vb_sim_hca *hca)
{
    vb_sim_hca_send_held(hca);
    hca->page->is_open = false;
    vb_sim_hca_end_call(hca);
    hca->attachment->serve = NULL;
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
                hca->page->port[0].host, (unsigned long long)hca->page->port[0].rate,
                hca->page->mtu);
    vb_overdue_describe(&hca->adapter, &text);
    vb_text_add(&text, "}");
    return text.length;
}
