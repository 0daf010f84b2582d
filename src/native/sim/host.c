// SPDX-License-Identifier: Apache-2.0
/*
 * A simulated host: it connects its packet engine to its port. The fabric calls it when a packet
 * arrives, when the port is free, and for events (vb_sim_host_calls). It takes packets from the
 * engine as fast as the port and the connection's rate allow.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/host_inside.h"
#include "sim/socket.h"
#include "sim/state.h"
#include "sim/tcp.h"
#include "wire/opcode.h"

enum {
    ETHERNET_BYTES = 8 + 14 + 20 + 8 + 4 + 4 + 12, /* preamble to IPv4 and UDP, ICRC, FCS, gap */
    ETHERNET_MIN = 64 + 8 + 12,
    INFINIBAND_BYTES = 8 + 4 + 2, /* LRH, ICRC, VCRC */
};

uint32_t vb_sim_wire_bytes(enum vb_sim_framing framing, uint32_t headers, uint32_t payload)
{
    uint32_t bytes;

    switch (framing) {
    case VB_SIM_ETHERNET:
        bytes = ETHERNET_BYTES + headers + payload;
        return bytes < ETHERNET_MIN ? ETHERNET_MIN : bytes;
    case VB_SIM_INFINIBAND:
        return INFINIBAND_BYTES + headers + payload;
    default:
        return payload ? payload : VB_SIM_BARE_BYTES;
    }
}

/* ---- out ------------------------------------------------------------------------------------- */

static bool sends_datagrams(const struct vb_sim_qp *qp)
{
    return qp->qp.type == IBV_QPT_UD;
}

static void flow_hold(struct vb_nic_qp *nic, bool held)
{
    struct vb_sim_qp *qp = vb_sim_qp_of_nic(nic);

    if (!sends_datagrams(qp))
        vb_engine_hold(&qp->qp, held);
    else if (held)
        vb_sim_datagrams_remove(qp);
    else
        vb_sim_datagrams_add(qp);
}

/* Sets HPCC's window, in packets. READ responses have no window and are only paced. */
static void flow_set_window(struct vb_nic_qp *nic, const struct vb_hpcc *hpcc)
{
    struct vb_sim_qp *qp = vb_sim_qp_of_nic(nic);
    const struct vb_sim_host *host = vb_sim_qp_host(qp);
    const struct vb_sim_config *config = &host->sim->config;
    uint32_t frame = vb_sim_wire_bytes(host->framing, VB_BTH, config->mtu) + VB_HPCC_BYTES;

    qp->qp.endpoint->window =
        vb_sim_hpcc_packets(hpcc, frame, config->engine.window_bytes / config->mtu);
}

static void host_fill(struct vb_sim_host *host, struct vb_world_packet *to,
                      const struct vb_packet *from)
{
    uint32_t headers = from->header_length + from->pad;

    memcpy(to->header, from->header, VB_WORLD_HEADER);
    to->flags = 0;
    to->hops = (uint8_t)host->sim->world->hop_limit;
    to->payload = (uint16_t)from->payload_length;
    to->bytes = (uint16_t)vb_sim_wire_bytes(host->framing, headers, from->payload_length);
    to->level_marks = (uint8_t)(from->path->sl << 4);
}

/* Sends the packet that the engine has made. False: no memory. */
static bool host_send(struct vb_sim_host *host, struct vb_sim_qp *qp, const struct vb_packet *made)
{
    struct vb_world_partition *part = host->nic.part;
    uint32_t packet = vb_world_pool_take(&part->pool), bytes;
    struct vb_world_packet *at;

    if (packet == VB_WORLD_NONE) {
        part->error = -ENOMEM;
        return false;
    }
    at = vb_world_packet_at(part, packet);
    host_fill(host, at, made);
    at->source = vb_sim_address(host, qp->path);
    at->target = qp->nic.peer;
    at->level_marks |= qp->nic.marks;
    if (VB_UNLIKELY(qp->has_buffer) && made->payload_length)
        at->flags |= VB_WORLD_RESERVED;
    at->bytes += vb_sim_grh_bytes(host, qp->nic.marks);
    qp->in_flight += vb_sim_is_unreliable(qp);
    if (made->reason != VB_PACKET_NEW)
        ++host->sim->flow[qp->flow].end[qp->nic.generation].resent;
    bytes = vb_sim_nic_send(&host->nic, &qp->nic, packet);
    host->program_next = true;
    vb_sim_nic_sent(&qp->nic, made->path->sl, made->payload_length, bytes,
                    qp->route ? host->sim->flow[qp->flow].reserve : 0);
    return true;
}

static bool host_has_more(const struct vb_sim_host *host)
{
    return vb_engine_ready_first(&host->engine->replying) ||
           vb_engine_ready_first(&host->engine->requesting) || host->datagrams ||
           vb_sim_tcp_has_more(host);
}

static void host_arm(struct vb_sim_host *host)
{
    uint64_t due = vb_engine_deadline(host->engine);

    if (due >= host->timer_at / 1000)
        return;
    host->timer_at = due * 1000;
    if (host->timer_at < host->nic.part->now) /* the deadline is in whole ns */
        host->timer_at = host->nic.part->now;
    vb_world_call(host->nic.part, host->timer_at, VB_SIM_CALL_TIMER, host->nic.number);
}

static struct vb_sim_qp *next_of_engine(struct vb_sim_host *host)
{
    struct vb_packet *packet = &host->share->packet;

    if (!vb_engine_next(host->engine, packet, vb_sim_ns(host)))
        return NULL;
    return vb_sim_qp_of(((struct vb_endpoint *)((char *)(uintptr_t)packet->path -
                                                offsetof(struct vb_endpoint, path)))
                            ->qp);
}

/* Makes the next packet in vb_sim_share.packet: the engine and datagrams take turns. */
static struct vb_sim_qp *host_next_packet(struct vb_sim_host *host)
{
    struct vb_sim_qp *qp;

    if (VB_LIKELY(!host->datagrams))
        return next_of_engine(host);
    host->datagram_turn = !host->datagram_turn;
    qp = host->datagram_turn ? NULL : next_of_engine(host);
    return qp ? qp : vb_sim_datagrams_next(host);
}

/* May flows send? Their packets and those of a program take turns. */
static bool host_may_send(const struct vb_sim_host *host)
{
    return vb_sim_nic_may_send(&host->nic) &&
           VB_LIKELY(!host->program_waits || !host->program_next);
}

/* TCP segments and the engine's packets take turns, while there are segments. */
static void send_in_turns(struct vb_sim_host *host)
{
    struct vb_sim_qp *qp;

    while (host_may_send(host)) {
        host->tcp->was_last = !host->tcp->was_last;
        if (!host->tcp->was_last && (qp = host_next_packet(host)) != NULL) {
            if (!host_send(host, qp, &host->share->packet))
                return;
            continue;
        }
        if (!vb_sim_tcp_send(host))
            return;
        host->program_next = true;
        host->tcp->was_last = true;
    }
}

void vb_sim_host_pump(struct vb_sim_host *host)
{
    struct vb_sim_qp *qp;

    if (host->flows.held)
        vb_sim_nic_release(&host->flows);
    if (VB_UNLIKELY(host->tcp != NULL))
        send_in_turns(host);
    while (host_may_send(host) && (qp = host_next_packet(host)) != NULL)
        if (!host_send(host, qp, &host->share->packet))
            return;
    if (host_has_more(host) || host->flows.held)
        vb_sim_nic_want_ready(&host->nic);
    host_arm(host);
}

static void flow_pump(struct vb_nic_qp *qp)
{
    vb_sim_host_pump(vb_sim_qp_host(vb_sim_qp_of_nic(qp)));
}

/* Lets the engine look at new requests, and sends. */
static void host_attend(struct vb_sim_qp *qp)
{
    struct vb_sim_host *host = vb_sim_qp_host(qp);

    if (!sends_datagrams(qp))
        vb_engine_attend(host->engine, &qp->qp, vb_sim_ns(host));
    else if (!qp->nic.waits_for_bell)
        vb_sim_datagrams_add(qp);
    vb_sim_host_pump(host);
}

/* The adapter works on no request of this queue pair, so it has to see the doorbell. */
static bool host_is_idle(const struct vb_sim_qp *qp)
{
    return sends_datagrams(qp) || qp->qp.endpoint->requester.begun == qp->qp.sq_next;
}

void vb_sim_doorbell(struct vb_sim_qp *qp)
{
    if (VB_UNLIKELY(qp->nic.inside != NULL))
        vb_sim_inside_posted(qp);
    else if (VB_UNLIKELY(vb_sim_qp_host(qp)->nic.config->doorbell) && host_is_idle(qp))
        vb_sim_nic_ring(&qp->nic);
    host_attend(qp);
}

/* The requests of a doorbell are in the adapter, unless the flow has failed meanwhile. */
static void host_tell(const struct vb_sim *sim, uint32_t flow, uint32_t requests)
{
    struct vb_sim_qp *qp = sim->ends[flow].qp[0];

    if (!qp)
        return;
    vb_sim_inside_told(qp, requests);
    host_attend(qp);
}

void vb_sim_kick(struct vb_qp *qp)
{
    vb_sim_doorbell(vb_sim_qp_of(qp));
}

/* ---- in -------------------------------------------------------------------------------------- */

/* The service level of the connection's data. A UD queue pair has no path, so the flow's is used.
 */
static uint8_t host_level_of(const struct vb_sim *sim, const struct vb_sim_qp *qp)
{
    return qp->qp.endpoint ? qp->qp.endpoint->path.sl : sim->flow[qp->flow].level;
}

static uint8_t notice_level(const struct vb_sim_host *host, const struct vb_sim_qp *qp)
{
    if (host->nic.config->notice_level != VB_NIC_OWN_LEVEL)
        return host->nic.config->notice_level;
    return qp->qp.endpoint ? qp->qp.endpoint->path.sl : host->sim->flow[qp->flow].back_level;
}

static void flow_send_cnp(struct vb_nic_qp *nic, uint32_t psn)
{
    struct vb_sim_qp *qp = vb_sim_qp_of_nic(nic);
    struct vb_sim_host *host = vb_sim_qp_host(qp);
    struct vb_world_partition *part = host->nic.part;
    uint32_t packet = vb_world_pool_take(&part->pool);
    struct vb_world_packet *at;

    if (packet == VB_WORLD_NONE) {
        part->error = -ENOMEM;
        return;
    }
    at = vb_world_packet_at(part, packet);
    at->payload = 0;
    at->bytes = (uint16_t)vb_sim_wire_bytes(host->framing, VB_CNP, 0);
    at->source = vb_sim_address(host, qp->path);
    at->target = nic->peer;
    at->level_marks = (uint8_t)(notice_level(host, qp) << 4);
    at->flags = 0;
    at->hops = (uint8_t)part->world->hop_limit;
    vb_sim_congestion_write_cnp(at->header, vb_engine_qp_pkey(&qp->qp), qp->shared.dest_qp_num,
                                psn);
    vb_sim_nic_send(&host->nic, nic, packet);
}

const struct vb_nic_calls vb_sim_flow_calls = {flow_hold, flow_set_window, flow_send_cnp,
                                               flow_pump};

/* Keeps the last events, as CongestionLog does (IBA A10). */
static void host_log_event(struct vb_sim_host *host, uint32_t flow)
{
    if (!host->log)
        host->log = calloc(1, sizeof(*host->log));
    if (!host->log) {
        host->nic.part->error = -ENOMEM;
        return;
    }
    host->log->event[host->log->events++ % VB_CCT_LOG] =
        (struct vb_sim_cct_event){host->nic.part->now, flow};
}

static bool is_notice(const struct vb_arrival *arrival)
{
    return (arrival->bytes[0] & VB_TRANSPORT_MASK) == VB_TRANSPORT_CNP;
}

/* Tells the adapter of a packet that has a mark or telemetry, or is a notification. */
static void host_react(struct vb_sim_host *host, const struct vb_arrival *arrival, uint32_t packet)
{
    struct vb_sim *sim = host->sim;
    struct vb_qp *found = vb_engine_find(host->engine, vb_wire_get24(arrival->bytes + 5));
    bool traces = sim->world->traces && found && found->type == IBV_QPT_RC;
    struct vb_sim_flow_end *end;
    struct vb_sim_qp *qp;

    if (!found)
        return;
    qp = vb_sim_qp_of(found);
    end = &sim->flow[qp->flow].end[qp->nic.generation];
    end->marked += vb_sim_nic_is_marked(arrival);
    end->notices += is_notice(arrival) && !sim->world->traces;
    if (vb_sim_nic_received(&qp->nic, arrival, host_level_of(sim, qp),
                            traces ? vb_world_telemetry_of(host->nic.part, packet) : NULL,
                            is_notice(arrival)))
        host_log_event(host, qp->flow);
}

/* Discards a flooded packet for another host. */
static void host_discard(struct vb_sim *sim, uint32_t packet)
{
    const struct vb_world_packet *at = vb_world_packet_at(vb_sim_whole(sim), packet);

    if (at->header[0] & VB_TRANSPORT_MASK)
        vb_sim_unreliable_dropped(sim, at);
    vb_world_pool_give(&vb_sim_whole(sim)->pool, packet);
}

static void host_receive(struct vb_sim *sim, uint32_t number, uint32_t packet)
{
    struct vb_sim_host *host = sim->host[number];
    struct vb_world_partition *part = host->nic.part;
    const struct vb_world_packet *at = vb_world_packet_at(part, packet);
    struct vb_arrival arrival = {.bytes = at->header,
                                 .length = VB_WORLD_HEADER, /* the engine reads no payload */
                                 .virtual_payload = at->payload,
                                 .traffic_class = at->level_marks & VB_WORLD_CE ? 3 : 2,
                                 .hop_limit = 64};
    uint64_t accepted;

    if (__builtin_expect(at->flags & (VB_WORLD_HAS_BYTES | VB_WORLD_FLOODED | VB_WORLD_TCP), 0)) {
        if (at->flags & VB_WORLD_HAS_BYTES) {
            if (!vb_sim_door_arrive(host, packet))
                vb_sim_attachment_arrive(host, packet);
            return;
        }
        if (!vb_world_has_address(&part->node[host->nic.node], at->target)) {
            host_discard(sim, packet);
            return;
        }
        if (at->flags & VB_WORLD_TCP) {
            vb_sim_tcp_arrive(host, packet);
            return;
        }
    }
    vb_sim_write_gid(arrival.sgid, vb_world_host_of(sim->world, at->source));
    if (__builtin_expect(at->level_marks & VB_WORLD_TO_GROUP, 0))
        vb_sim_write_group(arrival.dgid, at->target);
    else
        vb_sim_write_gid(arrival.dgid, vb_world_host_of(sim->world, at->target));
    accepted = vb_engine_counters(host->engine)->payload_received;
    vb_engine_receive(host->engine, &arrival, vb_sim_ns(host));
    if (__builtin_expect(at->header[0] & VB_TRANSPORT_MASK, 0))
        vb_sim_unreliable_arrived(host, at,
                                  vb_engine_counters(host->engine)->payload_received - accepted);
    if (VB_UNLIKELY(sim->world->traces || vb_sim_nic_is_marked(&arrival) || is_notice(&arrival))) {
        host_react(host, &arrival, packet);
    }
    vb_world_pool_give(&part->pool, packet);
    vb_sim_flows_complete(host);
    vb_sim_host_pump(host);
}

/* During the receive latency the packet counts as kept by the host. */
static void host_arrive(void *context, uint32_t number, uint32_t packet)
{
    struct vb_sim *sim = context;
    struct vb_sim_host *host = sim->host[number];
    struct vb_world_partition *part = host->nic.part;
    uint64_t latency = host->nic.config->receive_latency;

    if (VB_UNLIKELY(host->nic.inside != NULL))
        latency = vb_sim_inside_arrived(host, packet);
    if (VB_LIKELY(!latency)) {
        host_receive(sim, number, packet);
        return;
    }
    ++part->kept;
    vb_world_packet_at(part, packet)->next = VB_WORLD_NONE;
    if (host->late_first == VB_WORLD_NONE)
        host->late_first = packet;
    else
        vb_world_packet_at(part, host->late_last)->next = packet;
    host->late_last = packet;
    vb_world_call(part, part->now + latency, VB_SIM_CALL_RECEIVED, number);
}

/* The receive latency of the host's first packet is over. */
static void host_take_late(struct vb_sim *sim, uint32_t number)
{
    struct vb_sim_host *host = sim->host[number];
    uint32_t packet = host->late_first;

    host->late_first = vb_world_packet_at(host->nic.part, packet)->next;
    --host->nic.part->kept;
    host_receive(sim, number, packet);
}

/* The port, or the bus, is free. */
static void host_go_on(struct vb_sim_host *host)
{
    bool program_first = host->attachment && host->program_next;

    if (VB_UNLIKELY(program_first)) {
        host->program_next = !vb_sim_nic_may_send(&host->nic); /* its turn is not over */
        vb_sim_attachment_ready(host);
    }
    vb_sim_host_pump(host);
    if (VB_UNLIKELY(host->attachment != NULL && !program_first))
        vb_sim_attachment_ready(host);
}

static void host_ready(void *context, uint32_t number)
{
    struct vb_sim *sim = context;

    sim->host[number]->nic.ready_planned = false;
    host_go_on(sim->host[number]);
}

static void host_expire(struct vb_sim_host *host)
{
    if (host->timer_at != host->nic.part->now)
        return; /* an earlier event replaced it */
    host->timer_at = VB_WORLD_NEVER;
    vb_engine_expire(host->engine, vb_sim_ns(host));
    vb_sim_flows_complete(host);
    vb_sim_host_pump(host);
}

static void dropped(void *context, struct vb_world_partition *part, uint32_t packet)
{
    struct vb_sim *sim = context;
    const struct vb_world_packet *at = vb_world_packet_at(part, packet);

    if (at->flags & VB_WORLD_TCP)
        vb_sim_parcel_dropped(sim, at);
    else if ((at->header[0] & VB_TRANSPORT_MASK) && !(at->flags & VB_WORLD_HAS_BYTES))
        vb_sim_unreliable_dropped(sim, at);
}

static void copied(void *context, struct vb_world_partition *part, uint32_t packet, uint32_t copy,
                   bool another)
{
    struct vb_sim *sim = context;
    const struct vb_world_packet *at = vb_world_packet_at(part, copy);

    if (at->flags & VB_WORLD_HAS_BYTES)
        vb_sim_wire_packet_copied(sim, packet, copy);
    else if (another)
        vb_sim_unreliable_copied(sim, at);
}

/* The connection of an event, by what vb_sim_nic_argument has put into it. NULL: it is gone. */
static struct vb_nic_qp *host_find_qp(const struct vb_sim *sim, uint32_t slot, uint32_t argument)
{
    struct vb_sim_qp *qp;

    if (argument & 1)
        return vb_sim_nic_find(&sim->table, slot, argument >> 1);
    qp = sim->ends[slot].qp[argument >> 1];
    return qp ? &qp->nic : NULL;
}

static void end_wait(const struct vb_sim *sim, enum vb_nic_event event, uint32_t slot,
                     uint32_t argument)
{
    struct vb_nic_qp *qp = host_find_qp(sim, slot, argument);

    if (qp)
        vb_sim_nic_wait_is_over(qp, event);
}

static void tell_left(const struct vb_sim *sim, uint32_t slot, uint32_t argument)
{
    struct vb_nic_qp *qp = host_find_qp(sim, slot, argument);

    if (qp)
        vb_sim_attachment_left(qp);
}

static void call(void *context, uint32_t what, uint32_t index)
{
    struct vb_sim *sim = context;
    uint32_t kind = what & ((1u << VB_SIM_CALL_BITS) - 1), argument = what >> VB_SIM_CALL_BITS;

    switch (kind) {
    case VB_NIC_RATE:
    case VB_NIC_DOORBELL:
        end_wait(sim, kind, index, argument);
        break;
    case VB_NIC_LEFT:
        tell_left(sim, index, argument);
        break;
    case VB_NIC_BUS:
        sim->host[index]->nic.bus_planned = false;
        host_go_on(sim->host[index]);
        break;
    case VB_SIM_CALL_TIMER:
        host_expire(sim->host[index]);
        break;
    case VB_SIM_CALL_END:
        if (sim->ends[index].qp[0])
            vb_sim_unreliable_end(sim->ends[index].qp[0]);
        break;
    case VB_SIM_CALL_START:
        vb_sim_flow_start(sim, index);
        break;
    case VB_SIM_CALL_OPEN:
        vb_sim_flow_open(sim, index);
        break;
    case VB_SIM_CALL_CLOSE:
        vb_sim_flow_close(sim, index);
        break;
    case VB_SIM_CALL_RECEIVED:
        host_take_late(sim, index);
        break;
    case VB_SIM_CALL_HCA:
        vb_sim_attachment_expire(sim->host[index]);
        break;
    case VB_SIM_CALL_DEPART:
        vb_sim_wire_packet_leave(sim->host[index]);
        break;
    case VB_SIM_CALL_TCP:
        vb_sim_tcp_expire(sim, index);
        break;
    case VB_SIM_CALL_TCP_ACK:
        vb_sim_tcp_take_late(sim, index);
        break;
    case VB_SIM_CALL_LEAVE:
        vb_sim_inside_leave(sim->host[index]);
        break;
    case VB_SIM_CALL_TAKEN:
        vb_sim_flow_taken(sim, index, argument);
        break;
    case VB_SIM_CALL_TOLD:
        host_tell(sim, index, argument);
        break;
    default:
        vb_sim_inside_wake(sim->host[index], argument);
    }
}

/* The node whose partition handles an event: vb_world_host_calls.node_of. */
static uint32_t host_node_of(const void *context, uint32_t what, uint32_t index)
{
    const struct vb_sim *sim = context;
    uint32_t kind = what & ((1u << VB_SIM_CALL_BITS) - 1), argument = what >> VB_SIM_CALL_BITS;
    const struct vb_nic_qp *qp;

    switch (kind) {
    case VB_NIC_RATE:
    case VB_NIC_DOORBELL:
    case VB_NIC_LEFT:
        qp = host_find_qp(sim, index, argument);
        return qp ? qp->nic->node : sim->host[0]->nic.node;
    case VB_SIM_CALL_END:
    case VB_SIM_CALL_START:
    case VB_SIM_CALL_TOLD:
        return sim->host[sim->flow[index].source]->nic.node;
    case VB_SIM_CALL_TCP:
    case VB_SIM_CALL_TCP_ACK: /* a world of TCP has one partition */
        return sim->host[0]->nic.node;
    case VB_SIM_CALL_TAKEN:
        return sim
            ->host[argument == VB_SIM_TAKEN_SENT ? sim->flow[index].source
                                                 : sim->flow[index].target]
            ->nic.node;
    case VB_SIM_CALL_OPEN:
    case VB_SIM_CALL_CLOSE:
        return sim->host[sim->flow[index].target]->nic.node;
    default:
        return sim->host[index]->nic.node;
    }
}

/* No flow is left. A world without flows has programs, which have more to send. */
static bool host_is_quiet(const void *context)
{
    const struct vb_sim *sim = context;

    return sim->flows && !vb_sim_flows_left(sim);
}

const struct vb_world_host_calls vb_sim_host_calls = {
    .arrive = host_arrive,
    .ready = host_ready,
    .call = call,
    .dropped = dropped,
    .copied = copied,
    .managed = vb_sim_door_take,
    .is_quiet = host_is_quiet,
    .node_of = host_node_of,
    .divided = vb_sim_divided,
};
