// SPDX-License-Identifier: Apache-2.0
/*
 * TCP: connections, their round robin, and their timers. flows.c starts those of flows, socket.c
 * those of sockets, and host.c calls this for packets and events. The room tcp has the protocol.
 */
#include "sim/tcp.h"
#include "sim/socket.h"

#include <errno.h>
#include <stdlib.h>

enum {
    ETHERNET_BYTES = 8 + 14 + 20 + 20 + 4 + 12, /* preamble to IPv4 and TCP, FCS, gap */
    ETHERNET_MIN = 64 + 8 + 12,
    IP_HEADERS = 14 + 20,
    TCP_HEADERS = IP_HEADERS + 20,
    SACK_BYTES = 4, /* the option's head, with its padding */
    BLOCK_BYTES = 8,
};

_Static_assert(VB_WORLD_TCP_BLOCKS + VB_TCP_SACKS * BLOCK_BYTES <= (int)VB_WORLD_HEADER,
               "an acknowledgement's blocks are in the header");

/* ---- connections ----------------------------------------------------------------------------- */

/* NULL: the connection has ended. */
static struct vb_sim_connection *tcp_find(const struct vb_sim *sim, uint32_t number)
{
    struct vb_sim_socket *socket;

    if (VB_LIKELY(!(number & VB_SIM_SOCKET)))
        return sim->ends[number].connection;
    socket = vb_sim_socket_find(sim, number & ~VB_SIM_SOCKET);
    return socket ? &socket->connection : NULL;
}

/* What is counted of a connection. */
static struct vb_sim_flow *tcp_flow_of(const struct vb_sim *sim,
                                       const struct vb_sim_connection *connection)
{
    return connection->socket ? &connection->socket->counts : &sim->flow[connection->flow];
}

int vb_sim_tcp_open_host(struct vb_sim_host *host)
{
    if (!host->tcp)
        host->tcp = calloc(1, sizeof(*host->tcp));
    return host->tcp ? 0 : -ENOMEM;
}

/* ---- turns ----------------------------------------------------------------------------------- */

static void add_turn(struct vb_sim_host *host, struct vb_sim_connection *connection)
{
    vb_sim_nic_queue_add(&host->tcp->last[connection->level], &connection->nic);
    host->tcp->ready |= 1u << connection->level;
}

static void remove_turn(struct vb_sim_host *host, struct vb_sim_connection *connection)
{
    struct vb_nic_qp **last = &host->tcp->last[connection->level];

    vb_sim_nic_queue_remove(last, &connection->nic);
    if (!*last)
        host->tcp->ready &= ~(1u << connection->level);
}

/* What it had to send is lost with it, and acknowledgements that wait for their jitter. */
void vb_sim_tcp_close(struct vb_sim *sim, struct vb_sim_connection *connection)
{
    struct vb_world_partition *part = vb_sim_whole(sim);

    remove_turn(sim->host[connection->source], connection);
    while (connection->late_first != VB_WORLD_NONE) {
        uint32_t packet = connection->late_first;

        connection->late_first = vb_world_packet_at(part, packet)->next;
        --part->kept;
        vb_world_pool_give(&part->pool, packet);
    }
    vb_tcp_sender_close(&connection->sender);
    vb_tcp_receiver_close(&connection->receiver);
    if (!connection->socket)
        free(connection);
}

/* The connection that sends next; NULL: none may send. No segment is made for a lane in which a
 * packet waits. */
static struct vb_sim_connection *tcp_take_turn(struct vb_sim_host *host)
{
    struct vb_sim_tcp_host *turns = host->tcp;

    for (uint32_t i = 1; turns->ready && i <= VB_SIM_LEVELS; ++i) {
        uint32_t level = (turns->turn + i) % VB_SIM_LEVELS;

        if ((turns->ready & 1u << level) &&
            !vb_sim_nic_is_blocked(&host->nic, (uint8_t)(level << 4))) {
            struct vb_sim_connection *first = (struct vb_sim_connection *)turns->last[level]->next;

            turns->turn = level;
            remove_turn(host, first);
            return first;
        }
    }
    return NULL;
}

/* ---- out ------------------------------------------------------------------------------------- */

uint32_t vb_sim_tcp_wire_bytes(enum vb_sim_framing framing, uint32_t options, uint32_t payload)
{
    uint32_t bytes = ETHERNET_BYTES + options + payload;

    if (framing == VB_SIM_BARE)
        return payload ? payload : VB_SIM_BARE_BYTES;
    return bytes < ETHERNET_MIN ? ETHERNET_MIN : bytes;
}

static uint32_t tcp_options(uint32_t blocks)
{
    return blocks ? SACK_BYTES + blocks * BLOCK_BYTES : 0;
}

uint32_t vb_sim_tcp_headers(const struct vb_world_packet *packet)
{
    uint8_t flags = packet->header[VB_WORLD_TCP_FLAGS];

    if (flags & VB_SIM_TCP_IS_PARCEL)
        return IP_HEADERS;
    return TCP_HEADERS +
           (flags & VB_SIM_TCP_IS_ACK ? tcp_options(flags >> VB_SIM_TCP_BLOCKS_SHIFT & 3) : 0);
}

static struct vb_world_packet *tcp_make(struct vb_sim *sim,
                                        const struct vb_sim_connection *connection, uint64_t number,
                                        uint32_t flags, uint32_t *packet)
{
    struct vb_world_packet *made;

    *packet = vb_world_pool_take(&vb_sim_whole(sim)->pool);
    if (*packet == VB_WORLD_NONE) {
        vb_sim_whole(sim)->error = -ENOMEM;
        return NULL;
    }
    made = vb_world_packet_at(vb_sim_whole(sim), *packet);
    memset(made->header, 0, sizeof(made->header));
    made->header[VB_WORLD_TCP_FLOW_TOP] = (uint8_t)(connection->flow >> 24);
    made->header[VB_WORLD_TCP_FLAGS] = (uint8_t)flags;
    vb_wire_put24(made->header + VB_WORLD_TCP_FLOW, connection->flow & 0xffffff);
    vb_wire_put16(made->header + VB_WORLD_TCP_NUMBER, (uint16_t)(number >> 32));
    vb_wire_put32(made->header + VB_WORLD_TCP_NUMBER + 2, (uint32_t)number);
    made->flags = VB_WORLD_TCP;
    made->hops = (uint8_t)sim->world->hop_limit;
    made->level_marks =
        (uint8_t)((flags & VB_SIM_TCP_IS_ACK ? connection->back_level : connection->level) << 4);
    return made;
}

static uint64_t tcp_number_of(const struct vb_world_packet *packet)
{
    const uint8_t *at = packet->header + VB_WORLD_TCP_NUMBER;

    return (uint64_t)vb_wire_get16(at) << 32 | vb_wire_get32(at + 2);
}

static void send_segment(struct vb_sim *sim, const struct vb_sim_connection *connection,
                         const struct vb_tcp_segment *segment)
{
    uint32_t flags = (segment->last ? VB_SIM_TCP_IS_LAST : 0) |
                     (segment->reduced ? VB_SIM_TCP_IS_REDUCED : 0),
             packet;
    struct vb_world_packet *made = tcp_make(sim, connection, segment->number, flags, &packet);

    if (!made)
        return;
    made->source = vb_sim_address(sim->host[connection->source], 0);
    made->target = vb_sim_address(sim->host[connection->target], 0);
    made->payload = (uint16_t)segment->length;
    made->bytes =
        (uint16_t)vb_sim_tcp_wire_bytes(sim->host[connection->source]->framing, 0, segment->length);
    tcp_flow_of(sim, connection)->end[0].resent += segment->again;
    if (connection->socket)
        vb_sim_socket_add_ack(connection->socket, made);
    vb_sim_nic_send(&sim->host[connection->source]->nic, NULL, packet);
}

void vb_sim_tcp_send_ack(struct vb_sim *sim, struct vb_sim_connection *connection,
                         const struct vb_tcp_ack *ack)
{
    uint32_t flags = VB_SIM_TCP_IS_ACK | (ack->echo ? VB_SIM_TCP_HAS_ECHO : 0) |
                     (uint32_t)ack->blocks << VB_SIM_TCP_BLOCKS_SHIFT;
    uint32_t options = tcp_options(ack->blocks), packet;
    struct vb_world_packet *made = tcp_make(sim, connection, ack->next, flags, &packet);

    if (!made)
        return;
    for (uint32_t i = 0; i < ack->blocks; ++i) {
        uint8_t *at = made->header + VB_WORLD_TCP_BLOCKS + (size_t)i * BLOCK_BYTES;

        vb_wire_put32(at, (uint32_t)(ack->block[i].begin - ack->next));
        vb_wire_put32(at + 4, (uint32_t)(ack->block[i].end - ack->next));
    }
    made->source = vb_sim_address(sim->host[connection->target], 0);
    made->target = vb_sim_address(sim->host[connection->source], 0);
    made->payload = 0;
    if (connection->socket)
        vb_sim_socket_add_window(connection->socket->peer, made);
    made->bytes =
        (uint16_t)vb_sim_tcp_wire_bytes(sim->host[connection->target]->framing, options, 0);
    vb_sim_nic_send(&sim->host[connection->target]->nic, NULL, packet);
}

/* Schedules one event for both ends. It may be too early, but not too late. */
static void tcp_plan(struct vb_sim *sim, struct vb_sim_connection *connection)
{
    uint64_t due = connection->sender.deadline;

    if (connection->receiver.deadline < due)
        due = connection->receiver.deadline;
    if (due >= connection->timer_at)
        return;
    connection->timer_at = due;
    vb_world_call(vb_sim_whole(sim), due, VB_SIM_CALL_TCP, connection->flow);
}

uint32_t vb_sim_tcp_send(struct vb_sim_host *host)
{
    struct vb_sim *sim = host->sim;
    struct vb_sim_connection *connection;
    struct vb_tcp_segment segment;

    while ((connection = tcp_take_turn(host)) != NULL) {
        struct vb_tcp_sender *sender = &connection->sender;

        if (!vb_tcp_sender_has_more(sender, connection->config))
            continue;
        if (vb_tcp_sender_next(sender, connection->config, vb_sim_whole(sim)->now, &segment)) {
            vb_sim_whole(sim)->error = -ENOMEM;
            return 0;
        }
        send_segment(sim, connection, &segment);
        if (vb_tcp_sender_has_more(sender, connection->config))
            add_turn(host, connection);
        tcp_plan(sim, connection);
        return segment.length;
    }
    return 0;
}

/* ---- jitter ---------------------------------------------------------------------------------- */

/*
 * Each acknowledgement is delayed by a random time of up to a packet's at the bottleneck: ns-2's
 * overhead_, recommended by Floyd and Jacobson (1992). That is not enough for windows of a hundred
 * segments: of two flows, the one whose round trip is longer by a fraction of a packet's time
 * always finds a shorter queue, and gets several times the other's rate. So a flow that reacts to
 * losses alone has a second delay, which drifts from one random value to the next: of up to PACKETS
 * such times, and at most 1/PART of the round trip. It changes by 1/SLOWLY of the time between
 * acknowledgements, so that it causes no bursts.
 */
enum { PACKETS = 8, PART = 8, SLOWLY = 64 };

/* The time of a full segment on the slowest link of the route, unless configured; 0: no jitter. */
static uint64_t tcp_jitter_most(const struct vb_sim *sim, const struct vb_sim_connection *made)
{
    const struct vb_sim_host *source = sim->host[made->source];
    uint64_t bits = 8ull * vb_sim_tcp_wire_bytes(source->framing, 0, made->config->mss), rate;

    if (sim->config.tcp_jitter != VB_SIM_JITTER_AUTO)
        return sim->config.tcp_jitter;
    rate =
        vb_world_slowest(sim->world, source->nic.node, vb_sim_address(sim->host[made->target], 0));
    return rate ? bits * VB_WORLD_SECOND / rate : 0;
}

/* Each flow has a random sequence of its own, so that adding a flow does not change others. */
static void tcp_jitter_set(const struct vb_sim *sim, struct vb_sim_connection *made, uint8_t kind)
{
    uint64_t state = sim->config.seed ^ (uint64_t)made->flow << 32;

    made->jitter.most = tcp_jitter_most(sim, made);
    made->jitter.drifts =
        sim->config.tcp_jitter == VB_SIM_JITTER_AUTO && !made->config->ecn && kind != VB_TCP_DCTCP;
    made->jitter.random = vb_world_splitmix(&state);
}

/* The upper half of random * range: a number below `range`. Without 128-bit integers. */
static uint64_t tcp_jitter_scale(uint64_t random, uint64_t range)
{
    uint64_t low = UINT32_MAX, first = (random >> 32) * (range & low);
    uint64_t second = (random & low) * (range >> 32);
    uint64_t carried = ((random & low) * (range & low) >> 32) + (first & low) + (second & low);

    return (random >> 32) * (range >> 32) + (first >> 32) + (second >> 32) + (carried >> 32);
}

static uint64_t tcp_jitter_draw(struct vb_sim_jitter *jitter, uint64_t most)
{
    return tcp_jitter_scale(vb_world_splitmix(&jitter->random), most + 1);
}

static void tcp_jitter_drift(struct vb_sim_jitter *jitter, uint64_t round_trip, uint64_t now)
{
    uint64_t step = (now - jitter->came_at) / SLOWLY, most = PACKETS * jitter->most;

    jitter->came_at = now;
    if (jitter->aim > jitter->drift + step)
        jitter->drift += step;
    else if (jitter->drift > jitter->aim + step)
        jitter->drift -= step;
    else
        jitter->aim = tcp_jitter_draw(jitter, round_trip / PART < most ? round_trip / PART : most);
}

/* The time at which an acknowledgement that arrives now is processed; the order stays. */
static uint64_t tcp_jitter_until(struct vb_sim_connection *connection, uint64_t now)
{
    struct vb_sim_jitter *jitter = &connection->jitter;
    uint64_t at = now + tcp_jitter_draw(jitter, jitter->most);

    if (jitter->drifts) {
        tcp_jitter_drift(jitter, connection->sender.round_trip.smoothed, now);
        at += jitter->drift;
    }
    if (at > jitter->until)
        jitter->until = at;
    return jitter->until;
}

/* ---- flows ----------------------------------------------------------------------------------- */

/* Begins by a timer, whose expiry sends the first segments. */
static void tcp_begin_later(struct vb_sim *sim, struct vb_sim_connection *made)
{
    struct vb_world_partition *part = vb_sim_whole(sim);

    made->timer_at = part->now + tcp_jitter_draw(&made->jitter, made->jitter.most);
    vb_world_call(part, made->timer_at, VB_SIM_CALL_TCP, made->flow);
}

void vb_sim_tcp_open(struct vb_sim *sim, struct vb_sim_connection *connection, uint8_t kind,
                     uint64_t bytes)
{
    connection->nic.nic = &sim->host[connection->source]->nic;
    connection->late_first = VB_WORLD_NONE;
    connection->timer_at = VB_WORLD_NEVER;
    vb_tcp_sender_open(&connection->sender, connection->config, kind, bytes);
    vb_tcp_receiver_open(&connection->receiver, kind);
    tcp_jitter_set(sim, connection, kind);
}

void vb_sim_tcp_start(struct vb_sim *sim, uint32_t number)
{
    struct vb_sim_flow *flow = &sim->flow[number];
    struct vb_sim_connection *made = calloc(1, sizeof(*made));

    if (!made || vb_sim_tcp_open_host(sim->host[flow->source])) {
        free(made);
        vb_sim_whole(sim)->error = -ENOMEM;
        return;
    }
    sim->ends[number].connection = made;
    made->config = &sim->config.tcp;
    made->flow = number;
    made->source = flow->source;
    made->target = flow->target;
    made->level = flow->level;
    made->back_level = flow->back_level;
    vb_sim_tcp_open(sim, made, flow->opcode, flow->bytes);
    flow->state = VB_FLOW_RUNNING;
    if (made->jitter.most) {
        tcp_begin_later(sim, made);
        return;
    }
    add_turn(sim->host[flow->source], made);
    vb_sim_host_pump(sim->host[flow->source]);
}

static void tcp_end(struct vb_sim *sim, struct vb_sim_connection *connection,
                    enum vb_flow_state state)
{
    struct vb_sim_flow *flow = tcp_flow_of(sim, connection);

    if (connection->socket) {
        remove_turn(sim->host[connection->source], connection);
        vb_sim_socket_failed(sim, connection->socket);
        return;
    }
    flow->state = (uint8_t)state;
    flow->finish = vb_sim_whole(sim)->now;
    vb_sim_whole(sim)->moved_at = vb_sim_whole(sim)->now;
    ++sim->host[flow->source]->share->flows_ended;
    sim->ends[connection->flow].connection = NULL;
    vb_sim_tcp_close(sim, connection);
}

void vb_sim_tcp_free(struct vb_sim *sim)
{
    vb_sim_sockets_free(sim);
    for (uint64_t i = 0; i < sim->flows; ++i)
        if (sim->flow[i].type == VB_SIM_FLOW_TCP && sim->ends[i].connection)
            vb_sim_tcp_close(sim, sim->ends[i].connection);
    for (uint32_t i = 0; i < sim->hosts; ++i)
        free(sim->host[i]->tcp);
}

/* ---- in -------------------------------------------------------------------------------------- */

bool vb_sim_tcp_is_ack(const struct vb_world_packet *packet)
{
    return packet->header[VB_WORLD_TCP_FLAGS] & VB_SIM_TCP_IS_ACK;
}

struct vb_tcp_segment vb_sim_tcp_segment(const struct vb_world_packet *packet)
{
    uint8_t flags = packet->header[VB_WORLD_TCP_FLAGS];

    return (struct vb_tcp_segment){.number = tcp_number_of(packet),
                                   .length = packet->payload,
                                   .last = flags & VB_SIM_TCP_IS_LAST,
                                   .reduced = flags & VB_SIM_TCP_IS_REDUCED};
}

static void take_segment(struct vb_sim *sim, struct vb_sim_connection *connection,
                         const struct vb_world_packet *packet)
{
    struct vb_sim_flow *flow = tcp_flow_of(sim, connection);
    struct vb_sim_socket *socket = connection->socket;
    const struct vb_tcp_config *config = socket ? &socket->peer->config : connection->config;
    struct vb_tcp_segment segment = vb_sim_tcp_segment(packet);
    bool marked = packet->level_marks & VB_WORLD_CE;
    struct vb_tcp_ack ack[2];
    int acks;

    if (socket && vb_sim_socket_refuses(sim, socket->peer, &segment))
        return;
    acks = vb_tcp_receiver_take(&connection->receiver, config, &segment, marked,
                                vb_sim_whole(sim)->now, ack);
    if (acks < 0)
        vb_sim_whole(sim)->error = acks;
    flow->end[1].marked += marked;
    if (socket)
        vb_sim_socket_received(sim, socket->peer);
    else if (connection->receiver.next == connection->sender.segments)
        vb_sim_dependencies_release(sim, flow);
    for (int i = 0; i < acks; ++i)
        vb_sim_tcp_send_ack(sim, connection, &ack[i]);
    tcp_plan(sim, connection);
}

struct vb_tcp_ack vb_sim_tcp_ack(const struct vb_world_packet *packet)
{
    uint8_t flags = packet->header[VB_WORLD_TCP_FLAGS];
    struct vb_tcp_ack ack = {.next = tcp_number_of(packet),
                             .blocks = flags >> VB_SIM_TCP_BLOCKS_SHIFT & 3,
                             .echo = flags & VB_SIM_TCP_HAS_ECHO};

    for (uint32_t i = 0; i < ack.blocks; ++i) {
        const uint8_t *at = packet->header + VB_WORLD_TCP_BLOCKS + (size_t)i * BLOCK_BYTES;

        ack.block[i].begin = ack.next + vb_wire_get32(at);
        ack.block[i].end = ack.next + vb_wire_get32(at + 4);
    }
    return ack;
}

static void take_ack(struct vb_sim *sim, struct vb_sim_connection *connection,
                     const struct vb_tcp_ack *ack)
{
    struct vb_tcp_sender *sender = &connection->sender;
    struct vb_sim_flow *flow = tcp_flow_of(sim, connection);

    flow->end[0].notices += ack->echo;
    vb_tcp_sender_acked(sender, connection->config, ack, vb_sim_whole(sim)->now);
    if (connection->socket) {
        vb_sim_socket_acked(sim, connection->socket);
    } else {
        flow->done = vb_tcp_sender_done(sender, connection->config);
    }
    if (!connection->socket && vb_tcp_sender_is_done(sender)) {
        tcp_end(sim, connection, VB_FLOW_DONE);
        return;
    }
    if (vb_tcp_sender_has_more(sender, connection->config))
        add_turn(sim->host[connection->source], connection);
    tcp_plan(sim, connection);
}

static void tcp_take(struct vb_sim_host *host, uint32_t packet)
{
    struct vb_sim *sim = host->sim;
    struct vb_world_packet came = *vb_world_packet_at(host->nic.part, packet);
    struct vb_sim_connection *connection = tcp_find(sim, vb_sim_tcp_flow(&came));
    struct vb_tcp_ack ack = vb_sim_tcp_ack(&came);

    vb_world_pool_give(&host->nic.part->pool, packet); /* the answer gets its cache line */
    if (connection && connection->socket)
        ack = vb_sim_socket_ack(connection->socket, &came);
    if (connection && vb_sim_tcp_is_ack(&came)) {
        take_ack(sim, connection, &ack);
    } else if (connection) {
        if (connection->socket)
            take_ack(sim, &connection->socket->peer->connection, &ack);
        take_segment(sim, connection, &came);
    }
    vb_sim_host_pump(host);
}

/* It waits in the list of its connection, until the event of the list's first one. */
static void tcp_delay_ack(struct vb_sim_host *host, struct vb_sim_connection *connection,
                          uint32_t packet)
{
    struct vb_world_partition *part = host->nic.part;

    ++part->kept;
    vb_world_packet_at(part, packet)->next = VB_WORLD_NONE;
    if (connection->late_first == VB_WORLD_NONE)
        connection->late_first = packet;
    else
        vb_world_packet_at(part, connection->late_last)->next = packet;
    connection->late_last = packet;
    vb_world_call(part, tcp_jitter_until(connection, part->now), VB_SIM_CALL_TCP_ACK,
                  connection->flow);
}

void vb_sim_tcp_arrive(struct vb_sim_host *host, uint32_t packet)
{
    const struct vb_world_packet *came = vb_world_packet_at(host->nic.part, packet);
    struct vb_sim_connection *connection;

    if (came->header[VB_WORLD_TCP_FLAGS] & VB_SIM_TCP_IS_PARCEL) {
        vb_sim_parcel_arrive(host, packet);
        return;
    }
    connection = tcp_find(host->sim, vb_sim_tcp_flow(came));
    if (connection && connection->jitter.most && vb_sim_tcp_is_ack(came))
        tcp_delay_ack(host, connection, packet);
    else
        tcp_take(host, packet);
}

void vb_sim_tcp_take_late(struct vb_sim *sim, uint32_t flow)
{
    struct vb_sim_connection *connection = tcp_find(sim, flow);
    uint32_t packet = connection ? connection->late_first : VB_WORLD_NONE;

    if (packet == VB_WORLD_NONE)
        return;
    connection->late_first = vb_world_packet_at(vb_sim_whole(sim), packet)->next;
    --vb_sim_whole(sim)->kept;
    tcp_take(sim->host[connection->source], packet);
}

void vb_sim_tcp_attend(struct vb_sim *sim, struct vb_sim_connection *connection)
{
    if (connection->socket)
        vb_tcp_sender_watch(&connection->sender, vb_sim_whole(sim)->now);
    if (vb_tcp_sender_has_more(&connection->sender, connection->config))
        add_turn(sim->host[connection->source], connection);
    tcp_plan(sim, connection);
    vb_sim_host_pump(sim->host[connection->source]);
}

/* The retransmission timer has expired, or it is time for a probe, which is an old segment without
 * bytes. False: the connection has failed. */
static bool tcp_time_out(struct vb_sim *sim, struct vb_sim_connection *connection, uint64_t now)
{
    struct vb_sim_flow *flow = tcp_flow_of(sim, connection);
    bool is_probe = vb_tcp_sender_is_shut(&connection->sender);

    if (!vb_tcp_sender_expire(&connection->sender, connection->config, now)) {
        flow->status = IBV_WC_RETRY_EXC_ERR;
        tcp_end(sim, connection, VB_FLOW_FAILED);
        return false;
    }
    if (is_probe)
        send_segment(sim, connection,
                     &(struct vb_tcp_segment){.number = connection->sender.board.first - 1});
    flow->timeouts = connection->sender.timeouts;
    return true;
}

void vb_sim_tcp_expire(struct vb_sim *sim, uint32_t flow)
{
    struct vb_sim_connection *connection = tcp_find(sim, flow);
    uint64_t now = vb_sim_whole(sim)->now;
    struct vb_tcp_ack ack;

    if (!connection || connection->timer_at != now)
        return; /* an earlier event replaced it */
    connection->timer_at = VB_WORLD_NEVER;
    if (connection->receiver.deadline <= now) {
        vb_tcp_receiver_expire(&connection->receiver, &ack);
        vb_sim_tcp_send_ack(sim, connection, &ack);
    }
    if (connection->sender.deadline <= now && !tcp_time_out(sim, connection, now))
        return;
    vb_sim_tcp_attend(sim, connection);
}
