// SPDX-License-Identifier: Apache-2.0
/*
 * A simulated host: it connects its packet engine to its port. The fabric calls it when a packet
 * arrives, when the port is free, and for events (vb_sim_host_calls). It takes packets from the
 * engine as fast as the port and the connection's rate allow.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

static void host_port(const struct vb_sim_host *host, struct vb_world_port **port)
{
    const struct vb_world *world = host->sim->world;
    uint32_t number = world->node[host->node].port[0];

    *port = number == VB_WORLD_NONE ? NULL : &world->port[number];
}

/* ---- out ------------------------------------------------------------------------------------- */

static bool sends_datagrams(const struct vb_sim_qp *qp)
{
    return qp->qp.type == IBV_QPT_UD;
}

static void host_hold(struct vb_sim_qp *qp)
{
    if (sends_datagrams(qp))
        vb_sim_datagrams_remove(qp);
    else
        vb_engine_hold(&qp->qp, true);
}

static void host_release(struct vb_sim_qp *qp)
{
    if (qp->waits_for_lane || qp->waits_for_rate || qp->waits_for_bell)
        return;
    if (sends_datagrams(qp))
        vb_sim_datagrams_add(qp);
    else
        vb_engine_hold(&qp->qp, false);
}

/* Sets HPCC's window, in packets. READ responses have no window and are only paced. */
static void host_set_window(struct vb_sim_qp *qp)
{
    const struct vb_sim_host *host = vb_sim_qp_host(qp);
    const struct vb_sim_config *config = &host->sim->config;
    uint32_t frame = vb_sim_wire_bytes(host->framing, VB_BTH, config->mtu) + VB_HPCC_BYTES;

    qp->qp.endpoint->window = vb_sim_hpcc_packets(qp->reaction->rate.hpcc, frame,
                                                  config->engine.window_bytes / config->mtu);
}

/* Switches add telemetry to a data packet, and an acknowledgement carries it back. */
static void begin_telemetry(struct vb_sim_host *host, struct vb_sim_qp *qp, uint32_t packet)
{
    struct vb_world *world = host->sim->world;
    struct vb_world_packet *at = vb_world_packet_at(world, packet);
    struct vb_world_telemetry *telemetry = vb_world_telemetry_of(world, packet);
    struct vb_hpcc *state = qp->reaction->rate.hpcc;
    struct vb_world_port *port;

    if (!telemetry || vb_sim_is_unreliable(qp))
        return;
    at->bytes += VB_HPCC_BYTES;
    if (!at->payload) {
        *telemetry = state->received;
        return;
    }
    telemetry->hops = 0;
    telemetry->sent_at = world->now;
    host_port(host, &port);
    if (state->window > 0 || !port)
        return;
    vb_sim_hpcc_start(state, &host->sim->config.congestion.hpcc, (double)port->rate);
    host_set_window(qp);
}

/* The service level of the connection's data. */
static uint32_t host_level_of(const struct vb_sim *sim, const struct vb_sim_qp *qp)
{
    return qp->qp.endpoint ? qp->qp.endpoint->path.sl : sim->flow[qp->flow].level;
}

/* Holds the connection until this packet would have been sent at the connection's rate. */
static void pace(struct vb_sim_qp *qp, uint32_t bytes)
{
    struct vb_sim *sim = vb_sim_qp_host(qp)->sim;
    const struct vb_congestion *congestion = &sim->config.congestion;
    struct vb_world_port *port;
    double line, rate, reserved = (double)sim->flow[qp->flow].reserve;

    host_port(vb_sim_qp_host(qp), &port);
    if (!port)
        return;
    line = (double)port->rate;
    rate = congestion->kind
               ? vb_sim_congestion_sent(congestion, &qp->reaction->rate, host_level_of(sim, qp),
                                        line, bytes, sim->world->now)
               : line;
    if (reserved > 0 && reserved < rate)
        rate = reserved;
    if (rate >= line)
        return;
    qp->waits_for_rate = true;
    host_hold(qp);
    vb_world_call(sim->world, sim->world->now + (uint64_t)(bytes * 8e12 / rate),
                  VB_SIM_CALL_RATE | qp->generation << VB_SIM_CALL_BITS, qp->slot);
}

/* Holds the connection while the packet waits in its lane. */
static void wait_for_lane(struct vb_sim_qp *qp, const struct vb_world_port *port, uint32_t lane)
{
    if (!port->lanes->lane[lane].packets || qp->waits_for_lane)
        return;
    host_hold(qp);
    qp->waits_for_lane = true;
    qp->lane = (uint8_t)lane;
    qp->next = vb_sim_qp_host(qp)->held;
    vb_sim_qp_host(qp)->held = qp;
}

static void host_release_held(struct vb_sim_host *host)
{
    struct vb_world_port *port;
    struct vb_sim_qp **at = &host->held;

    host_port(host, &port);
    while (*at) {
        struct vb_sim_qp *qp = *at;

        if (port && port->lanes->lane[qp->lane].packets) {
            at = &qp->next;
            continue;
        }
        *at = qp->next;
        qp->waits_for_lane = false;
        host_release(qp);
    }
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

static void use_bus(struct vb_sim_host *host, uint32_t bytes)
{
    uint64_t rate = host->sim->config.bus_rate, now = host->sim->world->now;

    if (VB_LIKELY(!rate))
        return;
    host->bus_free_at = now + bytes * 8 * VB_WORLD_SECOND / rate;
}

/* Sends the packet that the engine has made. False: no memory. */
static bool host_send(struct vb_sim_host *host, struct vb_sim_qp *qp, const struct vb_packet *made)
{
    struct vb_world *world = host->sim->world;
    uint32_t packet = vb_world_pool_take(&world->pool), bytes, lane;
    struct vb_world_packet *at;
    struct vb_world_port *port;

    if (packet == VB_WORLD_NONE) {
        world->error = -ENOMEM;
        return false;
    }
    at = vb_world_packet_at(world, packet);
    host_fill(host, at, made);
    at->source = vb_sim_address(host, qp->path);
    at->target = qp->peer;
    at->level_marks |= qp->marks;
    if (VB_UNLIKELY(world->traces))
        begin_telemetry(host, qp, packet);
    if (VB_UNLIKELY(qp->has_buffer) && made->payload_length)
        at->flags |= VB_WORLD_RESERVED;
    at->bytes += vb_sim_grh_bytes(host, qp->marks);
    bytes = at->bytes;
    qp->in_flight += vb_sim_is_unreliable(qp);
    if (made->reason != VB_PACKET_NEW)
        ++host->sim->flow[qp->flow].resent;
    vb_world_send(world, host->node, packet);
    use_bus(host, made->payload_length);
    host_port(host, &port);
    if (port && port->lanes) {
        lane = vb_world_lanes_of(port->lanes, (uint8_t)(made->path->sl << 4 | qp->marks));
        wait_for_lane(qp, port, lane);
    }
    if ((host->sim->config.congestion.kind || qp->route) && made->payload_length)
        pace(qp, bytes);
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
    if (host->timer_at < host->sim->world->now) /* the deadline is in whole ns */
        host->timer_at = host->sim->world->now;
    vb_world_call(host->sim->world, host->timer_at, VB_SIM_CALL_TIMER, host->number);
}

/* Has the host called again when the port is free, if it has more to send. */
static void host_plan_ready(struct vb_sim_host *host)
{
    struct vb_world *world = host->sim->world;
    struct vb_world_port *port;

    host_port(host, &port);
    if (!port || (!host_has_more(host) && !host->held))
        return;
    if (VB_UNLIKELY(host->bus_free_at > world->now)) {
        if (!host->bus_planned)
            vb_world_call(world, host->bus_free_at, VB_SIM_CALL_BUS, host->number);
        host->bus_planned = true;
        return;
    }
    if (port->lanes) {
        vb_world_lanes_want_ready(world, world->node[host->node].port[0]);
        return;
    }
    if (host->ready_planned)
        return;
    host->ready_planned = true;
    vb_world_add(world, port->free_at, VB_WORLD_READY, 0, world->node[host->node].port[0]);
}

static struct vb_sim_qp *next_of_engine(struct vb_sim_host *host)
{
    struct vb_packet *packet = &host->sim->packet;

    if (!vb_engine_next(host->engine, packet, vb_sim_ns(host->sim)))
        return NULL;
    return vb_sim_qp_of(((struct vb_endpoint *)((char *)(uintptr_t)packet->path -
                                                offsetof(struct vb_endpoint, path)))
                            ->qp);
}

/* Makes the next packet in vb_sim.packet: the engine and datagrams take turns. */
static struct vb_sim_qp *host_next_packet(struct vb_sim_host *host)
{
    struct vb_sim_qp *qp;

    if (VB_LIKELY(!host->datagrams))
        return next_of_engine(host);
    host->datagram_turn = !host->datagram_turn;
    qp = host->datagram_turn ? NULL : next_of_engine(host);
    return qp ? qp : vb_sim_datagrams_next(host);
}

static bool host_may_send(const struct vb_sim_host *host)
{
    const struct vb_world *world = host->sim->world;

    return vb_world_may_send(world, host->node) && host->bus_free_at <= world->now;
}

/* TCP segments and the engine's packets take turns, while there are segments. */
static void send_in_turns(struct vb_sim_host *host)
{
    struct vb_sim_qp *qp;
    uint32_t sent;

    while (host_may_send(host)) {
        host->tcp->was_last = !host->tcp->was_last;
        if (!host->tcp->was_last && (qp = host_next_packet(host)) != NULL) {
            if (!host_send(host, qp, &host->sim->packet))
                return;
            continue;
        }
        sent = vb_sim_tcp_send(host);
        if (!sent)
            return;
        use_bus(host, sent);
        host->tcp->was_last = true;
    }
}

void vb_sim_host_pump(struct vb_sim_host *host)
{
    struct vb_sim *sim = host->sim;
    struct vb_sim_qp *qp;

    if (host->held)
        host_release_held(host);
    if (VB_UNLIKELY(host->tcp != NULL))
        send_in_turns(host);
    while (host_may_send(host) && (qp = host_next_packet(host)) != NULL)
        if (!host_send(host, qp, &sim->packet))
            return;
    host_plan_ready(host);
    host_arm(host);
}

/* Lets the engine look at new requests, and sends. */
static void host_attend(struct vb_sim_qp *qp)
{
    struct vb_sim_host *host = vb_sim_qp_host(qp);

    if (!sends_datagrams(qp))
        vb_engine_attend(host->engine, &qp->qp, vb_sim_ns(host->sim));
    else if (!qp->waits_for_bell)
        vb_sim_datagrams_add(qp);
    vb_sim_host_pump(host);
}

/* The adapter works on no request of this queue pair, so it has to see the doorbell. */
static bool host_is_idle(const struct vb_sim_qp *qp)
{
    return sends_datagrams(qp) || qp->qp.endpoint->requester.begun == qp->qp.sq_next;
}

static void wait_for_bell(struct vb_sim_qp *qp)
{
    struct vb_sim *sim = vb_sim_qp_host(qp)->sim;

    if (qp->waits_for_bell || !host_is_idle(qp))
        return;
    host_hold(qp);
    qp->waits_for_bell = true;
    vb_world_call(sim->world, sim->world->now + sim->config.doorbell,
                  VB_SIM_CALL_DOORBELL | qp->generation << VB_SIM_CALL_BITS, qp->slot);
}

void vb_sim_doorbell(struct vb_sim_qp *qp)
{
    if (VB_UNLIKELY(vb_sim_qp_host(qp)->sim->config.doorbell))
        wait_for_bell(qp);
    host_attend(qp);
}

void vb_sim_kick(struct vb_qp *qp)
{
    vb_sim_doorbell(vb_sim_qp_of(qp));
}

/* ---- in -------------------------------------------------------------------------------------- */

/* The service level of notifications. A UD queue pair has no path, so the flow's is used. */
static uint32_t notice_level(const struct vb_sim *sim, const struct vb_sim_qp *qp)
{
    if (sim->config.notice_level != VB_SIM_OWN_LEVEL)
        return sim->config.notice_level;
    return qp->qp.endpoint ? qp->qp.endpoint->path.sl : sim->flow[qp->flow].back_level;
}

/* Makes a CNP of this connection without its header. NULL: no memory. */
static struct vb_world_packet *host_make_cnp(struct vb_sim_qp *qp, uint32_t *packet)
{
    struct vb_sim *sim = vb_sim_qp_host(qp)->sim;
    struct vb_world_packet *at;

    *packet = vb_world_pool_take(&sim->world->pool);
    if (*packet == VB_WORLD_NONE) {
        sim->world->error = -ENOMEM;
        return NULL;
    }
    at = vb_world_packet_at(sim->world, *packet);
    at->payload = 0;
    at->bytes = (uint16_t)vb_sim_wire_bytes(vb_sim_qp_host(qp)->framing, VB_CNP, 0);
    at->source = vb_sim_address(vb_sim_qp_host(qp), qp->path);
    at->target = qp->peer;
    at->level_marks = (uint8_t)(notice_level(sim, qp) << 4);
    at->flags = 0;
    at->hops = (uint8_t)sim->world->hop_limit;
    return at;
}

static void host_send_notice(struct vb_sim_qp *qp)
{
    uint32_t packet;
    struct vb_world_packet *at = host_make_cnp(qp, &packet);

    if (!at)
        return;
    vb_sim_congestion_write_notice(at->header, vb_engine_qp_pkey(&qp->qp), qp->shared.dest_qp_num);
    vb_world_send(vb_sim_qp_host(qp)->sim->world, vb_sim_qp_host(qp)->node, packet);
}

static void host_send_telemetry(struct vb_sim_qp *qp, uint32_t psn)
{
    uint32_t packet;
    struct vb_world_packet *at = host_make_cnp(qp, &packet);
    struct vb_world_telemetry *telemetry =
        at ? vb_world_telemetry_of(vb_sim_qp_host(qp)->sim->world, packet) : NULL;

    if (!telemetry)
        return;
    *telemetry = qp->reaction->rate.hpcc->received;
    at->bytes += VB_HPCC_BYTES;
    vb_sim_congestion_write_telemetry(at->header, vb_engine_qp_pkey(&qp->qp),
                                      qp->shared.dest_qp_num, psn);
    vb_world_send(vb_sim_qp_host(qp)->sim->world, vb_sim_qp_host(qp)->node, packet);
}

static bool host_is_marked(const struct vb_world_packet *packet)
{
    return (packet->level_marks & VB_WORLD_CE) || (packet->header[4] & 0x80);
}

/* A marked packet arrived: sends a notification, at most one for each notice_interval. */
static void notice_mark(struct vb_sim_host *host, const struct vb_world_packet *packet)
{
    struct vb_qp *found = vb_engine_find(host->engine, vb_wire_get24(packet->header + 5));
    struct vb_sim_qp *qp;

    if (!found)
        return;
    qp = vb_sim_qp_of(found);
    ++host->sim->flow[qp->flow].marked;
    if (packet->payload && qp->reaction &&
        vb_sim_congestion_is_notice_due(&host->sim->config.congestion, &qp->reaction->noticed_at,
                                        host->sim->world->now))
        host_send_notice(qp);
}

static bool is_notice(const struct vb_world_packet *packet)
{
    return (packet->header[0] & VB_TRANSPORT_MASK) == VB_TRANSPORT_CNP;
}

/* Keeps the last events, as CongestionLog does (IBA A10). */
static void host_log_event(struct vb_sim_host *host, uint32_t flow)
{
    if (!host->log)
        host->log = calloc(1, sizeof(*host->log));
    if (!host->log) {
        host->sim->world->error = -ENOMEM;
        return;
    }
    host->log->event[host->log->events++ % VB_CCT_LOG] =
        (struct vb_sim_cct_event){host->sim->world->now, flow};
}

static void take_notice(struct vb_sim_host *host, const struct vb_world_packet *packet)
{
    struct vb_qp *found = vb_engine_find(host->engine, vb_wire_get24(packet->header + 5));
    const struct vb_congestion *congestion = &host->sim->config.congestion;
    struct vb_world_port *port;
    struct vb_sim_qp *qp;

    host_port(host, &port);
    if (!found || !port || congestion->kind == VB_CONGESTION_HPCC)
        return;
    qp = vb_sim_qp_of(found);
    ++host->sim->flow[qp->flow].notices;
    if (vb_sim_congestion_notice(congestion, &qp->reaction->rate, host_level_of(host->sim, qp),
                                 (double)port->rate, host->sim->world->now))
        host_log_event(host, qp->flow);
}

static void follow_telemetry(struct vb_sim_qp *qp, const struct vb_world_telemetry *telemetry)
{
    struct vb_sim *sim = vb_sim_qp_host(qp)->sim;
    struct vb_world_port *port;

    host_port(vb_sim_qp_host(qp), &port);
    if (!port || qp->reaction->rate.hpcc->window <= 0)
        return;
    vb_sim_hpcc_acknowledged(qp->reaction->rate.hpcc, &sim->config.congestion.hpcc,
                             (double)port->rate, telemetry, sim->world->now);
    host_set_window(qp);
}

static void host_take_telemetry(struct vb_sim_host *host, uint32_t packet)
{
    struct vb_sim *sim = host->sim;
    const struct vb_world_packet *at = vb_world_packet_at(sim->world, packet);
    struct vb_qp *found = vb_engine_find(host->engine, vb_wire_get24(at->header + 5));
    const struct vb_world_telemetry *telemetry = vb_world_telemetry_of(sim->world, packet);
    struct vb_sim_qp *qp;

    if (!found || !telemetry || found->type != IBV_QPT_RC)
        return;
    qp = vb_sim_qp_of(found);
    if (!at->payload) {
        if (vb_sim_congestion_brings_telemetry(at->header[0]))
            follow_telemetry(qp, telemetry);
        return;
    }
    qp->reaction->rate.hpcc->received = *telemetry;
    if (vb_sim_congestion_is_read_data(at->header[0]))
        host_send_telemetry(qp, vb_wire_get24(at->header + 9));
}

/* Discards a flooded packet for another host. */
static void host_discard(struct vb_sim *sim, uint32_t packet)
{
    const struct vb_world_packet *at = vb_world_packet_at(sim->world, packet);

    if (at->header[0] & VB_TRANSPORT_MASK)
        vb_sim_unreliable_dropped(sim, at);
    vb_world_pool_give(&sim->world->pool, packet);
}

static void host_receive(struct vb_sim *sim, uint32_t number, uint32_t packet)
{
    struct vb_sim_host *host = sim->host[number];
    const struct vb_world_packet *at = vb_world_packet_at(sim->world, packet);
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
        if (!vb_world_has_address(&sim->world->node[host->node], at->target)) {
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
    vb_engine_receive(host->engine, &arrival, vb_sim_ns(sim));
    if (VB_UNLIKELY(sim->world->traces)) {
        host_take_telemetry(host, packet);
        at = vb_world_packet_at(sim->world, packet); /* an answer may have moved the pool */
    }
    if (__builtin_expect(at->header[0] & VB_TRANSPORT_MASK, 0))
        vb_sim_unreliable_arrived(host, at,
                                  vb_engine_counters(host->engine)->payload_received - accepted);
    if (__builtin_expect(host_is_marked(at), 0))
        notice_mark(host, at);
    at = vb_world_packet_at(sim->world, packet); /* a notice may have moved the pool */
    if (__builtin_expect(is_notice(at), 0))
        take_notice(host, at);
    vb_world_pool_give(&sim->world->pool, packet);
    vb_sim_flows_complete(host);
    vb_sim_host_pump(host);
}

/* During the receive latency the packet counts as kept by the host. */
static void host_arrive(void *context, uint32_t number, uint32_t packet)
{
    struct vb_sim *sim = context;

    if (VB_LIKELY(!sim->config.receive_latency)) {
        host_receive(sim, number, packet);
        return;
    }
    ++sim->world->kept;
    vb_world_call(sim->world, sim->world->now + sim->config.receive_latency,
                  VB_SIM_CALL_RECEIVED | number << VB_SIM_CALL_BITS, packet);
}

static void host_ready(void *context, uint32_t number)
{
    struct vb_sim *sim = context;

    sim->host[number]->ready_planned = false;
    vb_sim_host_pump(sim->host[number]);
    if (__builtin_expect(sim->host[number]->attachment != NULL, 0))
        vb_sim_attachment_ready(sim->host[number]);
}

static void host_expire(struct vb_sim *sim, struct vb_sim_host *host)
{
    if (host->timer_at != sim->world->now)
        return; /* an earlier event replaced it */
    host->timer_at = VB_WORLD_NEVER;
    vb_engine_expire(host->engine, vb_sim_ns(sim));
    vb_sim_flows_complete(host);
    vb_sim_host_pump(host);
}

/* An event of a queue pair, which may have been destroyed since it was scheduled. */
static void host_qp_event(struct vb_sim *sim, enum vb_sim_call call, uint32_t slot,
                          uint32_t generation)
{
    struct vb_sim_qp *qp = sim->qp[slot];

    if (!qp || qp->generation != generation)
        return;
    if (call == VB_SIM_CALL_END) {
        vb_sim_unreliable_end(qp);
        return;
    }
    if (call == VB_SIM_CALL_RATE)
        qp->waits_for_rate = false;
    else
        qp->waits_for_bell = false;
    host_release(qp);
    vb_sim_host_pump(vb_sim_qp_host(qp));
}

static void use_free_bus(struct vb_sim_host *host)
{
    host->bus_planned = false;
    vb_sim_host_pump(host);
}

static void dropped(void *context, uint32_t packet)
{
    struct vb_sim *sim = context;
    const struct vb_world_packet *at = vb_world_packet_at(sim->world, packet);

    if ((at->header[0] & VB_TRANSPORT_MASK) && !(at->flags & VB_WORLD_HAS_BYTES))
        vb_sim_unreliable_dropped(sim, at);
}

static void copied(void *context, uint32_t packet, uint32_t copy, bool another)
{
    struct vb_sim *sim = context;
    const struct vb_world_packet *at = vb_world_packet_at(sim->world, copy);

    if (at->flags & VB_WORLD_HAS_BYTES)
        vb_sim_wire_packet_copied(sim, packet, copy);
    else if (another)
        vb_sim_unreliable_copied(sim, at);
}

static void call(void *context, uint32_t what, uint32_t index)
{
    struct vb_sim *sim = context;
    enum vb_sim_call kind = what & ((1u << VB_SIM_CALL_BITS) - 1);

    switch (kind) {
    case VB_SIM_CALL_TIMER:
        host_expire(sim, sim->host[index]);
        break;
    case VB_SIM_CALL_RATE:
    case VB_SIM_CALL_DOORBELL:
    case VB_SIM_CALL_END:
        host_qp_event(sim, kind, index, what >> VB_SIM_CALL_BITS);
        break;
    case VB_SIM_CALL_START:
        vb_sim_flow_start(sim, index);
        break;
    case VB_SIM_CALL_BUS:
        use_free_bus(sim->host[index]);
        break;
    case VB_SIM_CALL_RECEIVED:
        --sim->world->kept;
        host_receive(sim, what >> VB_SIM_CALL_BITS, index);
        break;
    case VB_SIM_CALL_HCA:
        vb_sim_attachment_expire(sim->host[index]);
        break;
    case VB_SIM_CALL_DEPART:
        vb_sim_wire_packet_leave(sim->host[what >> VB_SIM_CALL_BITS], index);
        break;
    case VB_SIM_CALL_TCP:
        vb_sim_tcp_expire(sim, index, what >> VB_SIM_CALL_BITS);
        break;
    case VB_SIM_CALL_TCP_ACK:
        --sim->world->kept;
        vb_sim_tcp_take(sim->host[what >> VB_SIM_CALL_BITS], index);
        break;
    default:
        vb_sim_flows_start(sim);
    }
}

const struct vb_world_host_calls vb_sim_host_calls = {host_arrive, host_ready, call,
                                                      dropped,     copied,     vb_sim_door_take};
