// SPDX-License-Identifier: Apache-2.0
/*
 * Writes a simulated TCP packet as bytes of Ethernet, IPv4 and TCP with correct checksums.
 * capture.c calls it. Payload is zeros.
 */
#include "sim/tcp_frame.h"

enum {
    ETHERNET = 14,
    IPV4 = 20,
    TCP = 20,
    OPTION_SACK = 5,
    OPTION_NOP = 1,
    BLOCK_BYTES = 8,
    PROTOCOL_TCP = 6,
    HOPS = 64,
    WINDOW_MOST = 65535,
    SCALE_MOST = 14, /* RFC 7323, 2.3 */
    FIRST = 1,       /* the first byte's sequence number */
    ECT_0 = 2,
    CE = 3,
};

enum { FLAG_PSH = 0x08, FLAG_ACK = 0x10, FLAG_ECE = 0x40, FLAG_CWR = 0x80 };

/* The two ports encode the connection's generation, and are no well-known ports. */
enum { SOURCE_PORT = 0xc000, SOURCE_BITS = 14, TARGET_PORT = 0xbf80 };

/* The sum of RFC 1071; `count` is even. */
static uint32_t sum_of(const uint8_t *bytes, uint32_t count)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < count; i += 2)
        sum += vb_wire_get16(bytes + i);
    return sum;
}

static uint16_t checksum(uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static uint32_t tcp_frame_address(uint32_t address)
{
    return (uint32_t)VB_SIM_IPV4_NETWORK << 24 | address;
}

/* A locally administered address, from the IPv4 address. */
static void tcp_frame_write_mac(uint8_t *mac, uint32_t address)
{
    vb_wire_put16(mac, 0x0200);
    vb_wire_put32(mac + 2, tcp_frame_address(address));
}

static uint8_t traffic_class(const struct vb_world_packet *packet, bool has_ecn)
{
    uint8_t class = (uint8_t)((packet->level_marks >> 4 & 7) << 5); /* class selector (RFC 2474) */

    if (packet->level_marks & VB_WORLD_CE)
        return class | CE;
    return has_ecn && !vb_sim_tcp_is_ack(packet) ? class | ECT_0 : class;
}

static void write_ip(uint8_t *ip, const struct vb_world_packet *packet, uint8_t class,
                     uint32_t length)
{
    memset(ip, 0, IPV4);
    ip[0] = 0x45;
    ip[1] = class;
    vb_wire_put16(ip + 2, (uint16_t)length);
    vb_wire_put16(ip + 6, 0x4000); /* DF; so the identification may be 0 (RFC 6864) */
    ip[8] = packet->hops ? packet->hops : HOPS;
    ip[9] = PROTOCOL_TCP;
    vb_wire_put32(ip + 12, tcp_frame_address(packet->source));
    vb_wire_put32(ip + 16, tcp_frame_address(packet->target));
    vb_wire_put16(ip + 10, checksum(sum_of(ip, IPV4)));
}

/* The sequence number at which a segment begins, or the stream ends. */
static uint32_t tcp_frame_number_of(const struct vb_sim_tcp_stream *stream, uint64_t segment)
{
    uint64_t byte = segment * stream->mss;

    return (uint32_t)(FIRST + (byte < stream->bytes ? byte : stream->bytes));
}

static uint16_t tcp_frame_window_of(const struct vb_sim_tcp_stream *stream)
{
    uint64_t window = stream->window;

    for (int scale = 0; window > WINDOW_MOST && scale < SCALE_MOST; ++scale)
        window >>= 1;
    return (uint16_t)(window < WINDOW_MOST ? window : WINDOW_MOST);
}

static void write_ports(uint8_t *tcp, const struct vb_world_packet *packet)
{
    uint32_t number = vb_sim_tcp_flow(packet);
    uint16_t source = (uint16_t)(SOURCE_PORT | (number & ((1 << SOURCE_BITS) - 1)));
    uint16_t target = (uint16_t)(TARGET_PORT | number >> SOURCE_BITS);
    bool is_ack = vb_sim_tcp_is_ack(packet);

    vb_wire_put16(tcp, is_ack ? target : source);
    vb_wire_put16(tcp + 2, is_ack ? source : target);
}

/* Writes the SACK option (RFC 2018, 3) and returns its length. */
static uint32_t write_blocks(uint8_t *at, const struct vb_sim_tcp_stream *stream,
                             const struct vb_tcp_ack *ack)
{
    uint8_t length = (uint8_t)(2 + ack->blocks * BLOCK_BYTES);

    if (!ack->blocks)
        return 0;
    memcpy(at, (const uint8_t[]){OPTION_NOP, OPTION_NOP, OPTION_SACK, length}, 4);
    for (uint32_t i = 0; i < ack->blocks; ++i) {
        uint8_t *block = at + 4 + (size_t)i * BLOCK_BYTES;

        vb_wire_put32(block, tcp_frame_number_of(stream, ack->block[i].begin));
        vb_wire_put32(block + 4, tcp_frame_number_of(stream, ack->block[i].end));
    }
    return 2u + length;
}

/* Returns the length. The receiver sends no data, so its sequence number is always the first. */
static uint32_t write_ack(uint8_t *tcp, const struct vb_sim_tcp_stream *stream,
                          const struct vb_world_packet *packet)
{
    struct vb_tcp_ack ack = vb_sim_tcp_ack(packet);

    vb_wire_put32(tcp + 4, FIRST);
    vb_wire_put32(tcp + 8, tcp_frame_number_of(stream, ack.next));
    tcp[13] = (uint8_t)(FLAG_ACK | (ack.echo ? FLAG_ECE : 0));
    return TCP + write_blocks(tcp + TCP, stream, &ack);
}

static uint32_t write_segment(uint8_t *tcp, const struct vb_sim_tcp_stream *stream,
                              const struct vb_world_packet *packet)
{
    struct vb_tcp_segment segment = vb_sim_tcp_segment(packet);

    vb_wire_put32(tcp + 4, tcp_frame_number_of(stream, segment.number));
    vb_wire_put32(tcp + 8, FIRST);
    tcp[13] =
        (uint8_t)(FLAG_ACK | (segment.last ? FLAG_PSH : 0) | (segment.reduced ? FLAG_CWR : 0));
    return TCP;
}

static uint32_t write_tcp(uint8_t *tcp, const struct vb_sim_tcp_stream *stream,
                          const struct vb_world_packet *packet)
{
    uint32_t length;

    memset(tcp, 0, TCP);
    write_ports(tcp, packet);
    length = vb_sim_tcp_is_ack(packet) ? write_ack(tcp, stream, packet)
                                       : write_segment(tcp, stream, packet);
    tcp[12] = (uint8_t)(length / 4 << 4);
    vb_wire_put16(tcp + 14, tcp_frame_window_of(stream));
    return length;
}

uint32_t vb_sim_tcp_write_front(uint8_t at[VB_SIM_TCP_FRONT],
                                const struct vb_sim_tcp_stream *stream,
                                const struct vb_world_packet *packet)
{
    uint8_t *ip = at + ETHERNET, *tcp = ip + IPV4;
    uint32_t front = write_tcp(tcp, stream, packet), length = front + packet->payload;
    uint32_t sum = sum_of(tcp, front) + PROTOCOL_TCP + length; /* the payload's zeros add nothing */

    tcp_frame_write_mac(at, packet->target);
    tcp_frame_write_mac(at + 6, packet->source);
    vb_wire_put16(at + 12, 0x0800);
    write_ip(ip, packet, traffic_class(packet, stream->has_ecn), IPV4 + length);
    vb_wire_put16(tcp + 16, checksum(sum + sum_of(ip + 12, 8)) ^ stream->damage);
    return ETHERNET + IPV4 + front;
}
