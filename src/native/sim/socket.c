// SPDX-License-Identifier: Apache-2.0
/*
 * The sockets of programs (socket.h). tcp.c moves their segments, and calls this for what a socket
 * has beside a flow: its window, acknowledgements in segments, and news for Python.
 */
#include "sim/socket.h"
#include "sim/host_inside.h"

#include <errno.h>
#include <stdlib.h>

enum {
    SCALE_MOST = 14,
    WINDOW_MOST = 65535,
    IP_BYTES = 8 + 14 + 20 + 4 + 12, /* preamble to IPv4, FCS, gap */
    ETHERNET_LEAST = 64 + 8 + 12,
};

/* ---- news ------------------------------------------------------------------------------------ */

static void socket_add_news(struct vb_sim *sim, uint64_t number, uint8_t what)
{
    if (sim->news_first == sim->news_count)
        sim->news_first = sim->news_count = 0;
    if (sim->news_count == sim->news_room) {
        uint32_t room = sim->news_room ? 2 * sim->news_room : 64;
        struct vb_sim_socket_news *grown = realloc(sim->news, room * sizeof(*grown));

        if (!grown) {
            sim->world->error = -ENOMEM;
            return;
        }
        sim->news = grown;
        sim->news_room = room;
    }
    sim->news[sim->news_count++] = (struct vb_sim_socket_news){number, what};
    vb_sim_note_readable(sim, VB_SIM_SOCKETS_READABLE);
}

static void socket_tell(struct vb_sim *sim, struct vb_sim_socket *socket, enum vb_sim_news what)
{
    if (!socket->news)
        socket_add_news(sim, socket->number, 0);
    socket->news |= (uint8_t)what;
}

uint8_t vb_sim_socket_take_news(struct vb_sim *sim, uint64_t *number)
{
    while (sim->news_first < sim->news_count) {
        const struct vb_sim_socket_news *first = &sim->news[sim->news_first++];
        struct vb_sim_socket *socket;
        uint8_t what = first->what;

        *number = first->number;
        if (what)
            return what;
        socket = vb_sim_socket_find(sim, (uint32_t)first->number);
        if (!socket)
            continue;
        what = socket->news;
        socket->news = 0;
        return what;
    }
    return 0;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static int socket_make_room(struct vb_sim *sim)
{
    uint32_t room = sim->socket_room ? 2 * sim->socket_room : 16;
    struct vb_sim_socket **grown;

    if (sim->sockets + 2 <= sim->socket_room)
        return 0;
    grown = room > INT32_MAX ? NULL : realloc(sim->socket, room * sizeof(struct vb_sim_socket *));
    if (!grown)
        return -ENOMEM;
    sim->socket = grown;
    sim->socket_room = room;
    return 0;
}

static void socket_set(struct vb_sim *sim, struct vb_sim_socket *socket,
                       const struct vb_sim_socket_ends *ends, uint32_t end)
{
    struct vb_sim_connection *connection = &socket->connection;

    socket->config = sim->config.tcp;
    socket->config.ack_delay = ends->ack_delay;
    socket->number = sim->sockets + end;
    socket->port = ends->port[end];
    socket->reading = true;
    socket->low = UINT64_MAX;
    socket->stream.edge = socket->told = socket->config.window;
    connection->socket = socket;
    connection->config = &socket->config;
    connection->flow = VB_SIM_SOCKET | socket->number;
    connection->source = ends->host[end];
    connection->target = ends->host[1 - end];
    connection->level = connection->back_level = ends->level;
    vb_sim_tcp_open(sim, connection, ends->kind, 0);
    connection->sender.stream = &socket->stream;
}

int vb_sim_sockets_open(struct vb_sim *sim, const struct vb_sim_socket_ends *ends, uint32_t *number)
{
    struct vb_sim_socket *one = calloc(1, sizeof(*one)), *other = calloc(1, sizeof(*other));

    if (!one || !other || socket_make_room(sim) || vb_sim_tcp_open_host(sim->host[ends->host[0]]) ||
        vb_sim_tcp_open_host(sim->host[ends->host[1]])) {
        free(one);
        free(other);
        return -ENOMEM;
    }
    socket_set(sim, one, ends, 0);
    socket_set(sim, other, ends, 1);
    one->peer = other;
    other->peer = one;
    *number = sim->sockets;
    sim->socket[sim->sockets++] = one;
    sim->socket[sim->sockets++] = other;
    return 0;
}

static void socket_free(struct vb_sim *sim, uint32_t number)
{
    struct vb_sim_socket *socket = vb_sim_socket_find(sim, number);

    if (!socket)
        return;
    sim->socket[number] = NULL;
    vb_sim_tcp_close(sim, &socket->connection);
    free(socket);
}

void vb_sim_sockets_close(struct vb_sim *sim, uint32_t number)
{
    socket_free(sim, number & ~1u);
    socket_free(sim, number | 1u);
}

void vb_sim_sockets_free(struct vb_sim *sim)
{
    for (uint32_t i = 0; i < sim->sockets; ++i)
        socket_free(sim, i);
    free(sim->socket);
    free(sim->news);
}

/* ---- the program's side ---------------------------------------------------------------------- */

void vb_sim_socket_write(struct vb_sim *sim, struct vb_sim_socket *socket)
{
    vb_sim_tcp_attend(sim, &socket->connection);
}

uint64_t vb_sim_socket_arrived(const struct vb_sim_socket *socket, bool *end)
{
    uint64_t next = socket->peer->connection.receiver.next;

    *end = vb_tcp_stream_is_done(&socket->peer->stream, next);
    return vb_tcp_stream_offset(&socket->peer->stream, next);
}

/*
 * The window that the peer is told. It grows by a segment or half of the buffer at least (RFC 9293,
 * 3.8.6.2.2), and never shrinks.
 */
static uint64_t socket_window(struct vb_sim_socket *socket)
{
    uint64_t half = socket->config.window / 2, step = socket->config.mss, edge, arrived;
    bool end;

    arrived = vb_sim_socket_arrived(socket, &end);
    edge = (socket->reading ? arrived : socket->taken) + socket->config.window;
    if (edge >= socket->told + (step < half ? step : half))
        socket->told = edge;
    return socket->told - arrived;
}

void vb_sim_socket_read(struct vb_sim *sim, struct vb_sim_socket *socket, uint64_t taken,
                        bool reading)
{
    uint64_t told = socket->told, most = socket->config.window;
    bool end, was_low = told - vb_sim_socket_arrived(socket, &end) < most / 2;
    struct vb_tcp_ack ack;

    socket->taken = taken;
    socket->reading = reading;
    socket_window(socket);
    if (!was_low || socket->told == told)
        return;
    vb_tcp_receiver_expire(&socket->peer->connection.receiver, &ack);
    vb_sim_tcp_send_ack(sim, &socket->peer->connection, &ack);
}

void vb_sim_socket_control(struct vb_sim_socket *socket, uint8_t kind)
{
    vb_tcp_control_open(&socket->connection.sender.control, kind);
    socket->connection.receiver.is_dctcp = kind == VB_TCP_DCTCP;
}

/* ---- packets --------------------------------------------------------------------------------- */

/* The window scale that both ends use (RFC 7323, 2.3). */
static uint32_t socket_scale(const struct vb_tcp_config *config)
{
    uint32_t scale = 0;

    while (scale < SCALE_MOST && config->window >> scale > WINDOW_MOST)
        ++scale;
    return scale;
}

void vb_sim_socket_add_window(struct vb_sim_socket *socket, struct vb_world_packet *packet)
{
    uint64_t window = socket_window(socket) >> socket_scale(&socket->config);

    vb_wire_put16(packet->header + VB_SIM_SOCKET_WINDOW,
                  (uint16_t)(window < WINDOW_MOST ? window : WINDOW_MOST));
}

/* A segment acknowledges what has come, so that a delayed acknowledgement is not needed. */
void vb_sim_socket_add_ack(struct vb_sim_socket *socket, struct vb_world_packet *packet)
{
    uint8_t *at = packet->header + VB_SIM_SOCKET_ACK;
    struct vb_tcp_ack ack;

    vb_tcp_receiver_expire(&socket->peer->connection.receiver, &ack);
    vb_sim_socket_add_window(socket, packet);
    vb_wire_put16(at, (uint16_t)(ack.next >> 32));
    vb_wire_put32(at + 2, (uint32_t)ack.next);
    if (ack.echo)
        packet->header[VB_WORLD_TCP_FLAGS] |= VB_SIM_TCP_HAS_ECHO;
}

struct vb_tcp_ack vb_sim_socket_ack(const struct vb_sim_socket *socket,
                                    const struct vb_world_packet *packet)
{
    const uint8_t *at = packet->header + VB_SIM_SOCKET_ACK;
    struct vb_tcp_ack ack = vb_sim_tcp_ack(packet);

    if (!vb_sim_tcp_is_ack(packet)) {
        ack.next = (uint64_t)vb_wire_get16(at) << 32 | vb_wire_get32(at + 2);
        ack.blocks = 0;
    }
    ack.window = (uint64_t)vb_wire_get16(packet->header + VB_SIM_SOCKET_WINDOW)
                 << socket_scale(&socket->config);
    return ack;
}

void vb_sim_socket_received(struct vb_sim *sim, struct vb_sim_socket *socket)
{
    socket_tell(sim, socket, VB_SIM_NEWS_DATA);
}

void vb_sim_socket_acked(struct vb_sim *sim, struct vb_sim_socket *socket)
{
    const struct vb_tcp_stream *stream = &socket->stream;

    if (vb_tcp_stream_is_done(stream, socket->connection.sender.board.first) ||
        (socket->low != UINT64_MAX && stream->written - stream->acked <= socket->low))
        socket_tell(sim, socket, VB_SIM_NEWS_ROOM);
}

void vb_sim_socket_failed(struct vb_sim *sim, struct vb_sim_socket *socket)
{
    socket->connection.sender.deadline = VB_TCP_NEVER;
    socket_tell(sim, socket, VB_SIM_NEWS_FAILED);
}

bool vb_sim_socket_refuses(struct vb_sim *sim, struct vb_sim_socket *socket,
                           const struct vb_tcp_segment *segment)
{
    if (!socket->closed || !segment->length)
        return false;
    socket_tell(sim, socket, VB_SIM_NEWS_STRAY);
    return true;
}

/* ---- parcels --------------------------------------------------------------------------------- */

static uint64_t parcel_number(const struct vb_world_packet *packet)
{
    const uint8_t *at = packet->header + VB_WORLD_TCP_NUMBER;

    return (uint64_t)vb_wire_get16(at) << 32 | vb_wire_get32(at + 2);
}

static uint16_t parcel_wire_bytes(enum vb_sim_framing framing, uint32_t payload)
{
    uint32_t bytes = framing == VB_SIM_BARE ? payload : IP_BYTES + payload;

    return (uint16_t)(framing != VB_SIM_BARE && bytes < ETHERNET_LEAST ? ETHERNET_LEAST : bytes);
}

int vb_sim_parcel_send(struct vb_sim *sim, const struct vb_sim_parcel *parcel)
{
    struct vb_sim_host *source = sim->host[parcel->source];
    struct vb_world_partition *part = vb_sim_whole(sim);
    uint32_t packet = vb_world_pool_take(&part->pool);
    struct vb_world_packet *made;

    if (packet == VB_WORLD_NONE)
        return -ENOMEM;
    made = vb_world_packet_at(part, packet);
    memset(made->header, 0, sizeof(made->header));
    made->header[VB_WORLD_TCP_FLAGS] = VB_SIM_TCP_IS_PARCEL;
    vb_wire_put24(made->header + VB_WORLD_TCP_FLOW, parcel->hash);
    vb_wire_put16(made->header + VB_WORLD_TCP_NUMBER, (uint16_t)(parcel->number >> 32));
    vb_wire_put32(made->header + VB_WORLD_TCP_NUMBER + 2, (uint32_t)parcel->number);
    memcpy(made->header + VB_WORLD_TCP_BLOCKS, parcel->head, VB_SIM_PARCEL_HEAD);
    made->flags = VB_WORLD_TCP;
    made->hops = (uint8_t)sim->world->hop_limit;
    made->level_marks = (uint8_t)(parcel->level << 4);
    made->source = vb_sim_address(source, 0);
    made->target = vb_sim_address(sim->host[parcel->target], 0);
    made->payload = parcel->payload;
    made->bytes = parcel_wire_bytes(source->framing, parcel->payload);
    if (sim->world->traces)
        vb_world_telemetry_of(part, packet)->hops = 0;
    if (source->nic.inside)
        vb_sim_inside_send(&source->nic, NULL, packet);
    else
        vb_world_send(part, source->nic.node, packet);
    return part->error;
}

/* The news of a parcel whose copies are flooded is that it arrives, if it does. */
void vb_sim_parcel_dropped(struct vb_sim *sim, const struct vb_world_packet *packet)
{
    bool is_parcel = packet->header[VB_WORLD_TCP_FLAGS] & VB_SIM_TCP_IS_PARCEL;

    if (is_parcel && !(packet->flags & VB_WORLD_FLOODED))
        socket_add_news(sim, parcel_number(packet), VB_SIM_NEWS_LOST);
}

void vb_sim_parcel_arrive(struct vb_sim_host *host, uint32_t packet)
{
    uint64_t number = parcel_number(vb_world_packet_at(host->nic.part, packet));

    vb_world_pool_give(&host->nic.part->pool, packet);
    socket_add_news(host->sim, number, VB_SIM_NEWS_PARCEL);
}

uint64_t vb_sim_host_backlog(const struct vb_sim *sim, uint32_t host)
{
    const struct vb_world_partition *part = vb_sim_whole(sim);
    uint32_t number = part->node[sim->host[host]->nic.node].port[0];
    const struct vb_world_port *port = number == VB_WORLD_NONE ? NULL : &part->port[number];

    return port && !port->lanes && port->free_at > part->now ? port->free_at - part->now : 0;
}
