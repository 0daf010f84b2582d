// SPDX-License-Identifier: Apache-2.0
/*
 * Writes a packet as the Ethernet frame that it was or would be (frame.h), with the checksums.
 * capture.c calls it, and the simulation's capture does.
 */
#include "wrap/frame.h"

#include <stdbool.h>
#include <string.h>

#include "wire/icrc.h"

enum {
    ETHERNET = 14,
    IPV4 = 20,
    IPV6 = 40,
    UDP = 8,
    PROTOCOL_UDP = 17,
    DEFAULT_HOPS = 64,
};

/* Where the frame's bytes are written, as far as there is room. */
struct sink {
    uint8_t *to;
    size_t room, used;
    bool ended; /* the room is full: nothing more is written */
};

static void sink_put(struct sink *sink, const void *bytes, size_t length)
{
    size_t fits = sink->room - sink->used;

    if (sink->ended)
        return;
    if (length > fits) {
        length = fits;
        sink->ended = true;
    }
    if (length)
        memcpy(sink->to + sink->used, bytes, length);
    sink->used += length;
}

void vb_wrap_frame_add(struct vb_frame *frame, const uint8_t *bytes, uint32_t length)
{
    if (length && frame->piece_count < VB_FRAME_PIECES)
        frame->piece[frame->piece_count++] = (struct vb_piece){bytes, length};
}

/* ---- headers ---- */

/* Multicast as RFC 1112 (6.4) and RFC 2464 (7) say; else a locally administered address. */
static void frame_write_mac(uint8_t *mac, const uint8_t gid[16])
{
    if (vb_wire_gid_is_ipv4(gid) && (gid[12] & 0xf0) == 0xe0) {
        memcpy(mac, (const uint8_t[]){0x01, 0x00, 0x5e, gid[13] & 0x7f, gid[14], gid[15]}, 6);
    } else if (gid[0] == 0xff) {
        memcpy(mac, (const uint8_t[]){0x33, 0x33}, 2);
        memcpy(mac + 2, gid + 12, 4);
    } else if (vb_wire_gid_is_ipv4(gid)) {
        memcpy(mac, (const uint8_t[]){0x02, 0x00}, 2);
        memcpy(mac + 2, gid + 12, 4);
    } else {
        mac[0] = 0x02;
        memcpy(mac + 1, gid + 11, 5);
    }
}

static uint16_t header_checksum(const uint8_t *ip)
{
    uint32_t sum = 0;

    for (int i = 0; i < IPV4; i += 2)
        sum += vb_wire_get16(ip + i);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~((sum & 0xffff) + (sum >> 16));
}

/* RFC 791; `payload` from the UDP header on. */
static size_t frame_write_ipv4(uint8_t *ip, const struct vb_frame *frame, uint32_t payload)
{
    memset(ip, 0, IPV4);
    ip[0] = 0x45;
    ip[1] = frame->traffic_class;
    vb_wire_put16(ip + 2, (uint16_t)(IPV4 + payload));
    vb_wire_put16(ip + 4, frame->ip_id);
    vb_wire_put16(ip + 6, frame->may_fragment ? 0 : 0x4000); /* DF */
    ip[8] = frame->hop_limit ? frame->hop_limit : DEFAULT_HOPS;
    ip[9] = PROTOCOL_UDP;
    memcpy(ip + 12, frame->sgid + 12, 4);
    memcpy(ip + 16, frame->dgid + 12, 4);
    vb_wire_put16(ip + 10, header_checksum(ip));
    return IPV4;
}

/* RFC 8200. */
static size_t frame_write_ipv6(uint8_t *ip, const struct vb_frame *frame, uint32_t payload)
{
    vb_wire_put32(ip,
                  6u << 28 | (uint32_t)frame->traffic_class << 20 | (frame->flow_label & 0xfffff));
    vb_wire_put16(ip + 4, (uint16_t)payload);
    ip[6] = PROTOCOL_UDP;
    ip[7] = frame->hop_limit ? frame->hop_limit : DEFAULT_HOPS;
    memcpy(ip + 8, frame->sgid, 16);
    memcpy(ip + 24, frame->dgid, 16);
    return IPV6;
}

/* Writes the headers before the BTH; UDP's checksum is still 0. */
static size_t write_front(uint8_t *at, const struct vb_frame *frame, uint32_t packet)
{
    bool ipv4 = vb_wire_gid_is_ipv4(frame->dgid);
    uint32_t payload = UDP + packet + VB_ICRC;
    uint8_t *ip = at + ETHERNET, *udp;

    frame_write_mac(at, frame->dgid);
    frame_write_mac(at + 6, frame->sgid);
    vb_wire_put16(at + 12, ipv4 ? 0x0800 : 0x86dd);
    udp = ip + (ipv4 ? frame_write_ipv4(ip, frame, payload) : frame_write_ipv6(ip, frame, payload));
    vb_wire_put16(udp, frame->source_port);
    vb_wire_put16(udp + 2, VB_ROCE_PORT);
    vb_wire_put16(udp + 4, (uint16_t)payload);
    vb_wire_put16(udp + 6, 0);
    return (size_t)(udp + UDP - at);
}

/* ---- ICRC ---- */

static uint32_t icrc_of(const struct vb_frame *frame, const uint8_t *front, size_t length,
                        bool ipv4)
{
    const uint8_t *ip = front + ETHERNET, *udp = front + length - UDP;
    const struct vb_piece *header = &frame->piece[0];
    uint32_t crc = ipv4 ? vb_wire_icrc_start_ipv4(ip, IPV4, udp) : vb_wire_icrc_start_ipv6(ip, udp);

    if (frame->piece_count && header->length > 4)
        crc = vb_wire_icrc_mask(crc, header->bytes[4]);
    for (uint32_t i = 0; i < frame->piece_count; ++i)
        crc = vb_wire_crc32(crc, frame->piece[i].bytes, frame->piece[i].length);
    return crc;
}

/* ---- UDP checksum ---- */

/* RFC 1071; `at`: how many bytes came before. */
static uint64_t sum_add(uint64_t sum, const uint8_t *bytes, size_t length, uint32_t at)
{
    for (size_t i = 0; i < length; ++i)
        sum += (at + i) % 2 ? bytes[i] : (uint32_t)bytes[i] << 8;
    return sum;
}

static uint16_t sum_end(uint64_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum == 0xffff ? 0xffff : (uint16_t)~sum;
}

/* IPv6 demands one (RFC 8200, 8.1); in IPv4 it stays 0: none. */
static uint16_t udp_checksum(const struct vb_frame *frame, const uint8_t *udp,
                             const uint8_t icrc[VB_ICRC])
{
    uint64_t sum = sum_add(0, udp, UDP, 0) + PROTOCOL_UDP + vb_wire_get16(udp + 4);
    uint32_t at = 0;

    sum = sum_add(sum, frame->sgid, sizeof(frame->sgid), 0);
    sum = sum_add(sum, frame->dgid, sizeof(frame->dgid), 0);
    for (uint32_t i = 0; i < frame->piece_count; ++i) {
        sum = sum_add(sum, frame->piece[i].bytes, frame->piece[i].length, at);
        at += frame->piece[i].length;
    }
    return sum_end(sum_add(sum, icrc, VB_ICRC, at));
}

/* ---- the whole ---- */

static bool is_virtual(const struct vb_frame *frame)
{
    for (uint32_t i = 0; i < frame->piece_count; ++i)
        if (!frame->piece[i].bytes)
            return true;
    return false;
}

static void write_checks(const struct vb_frame *frame, uint8_t *front, size_t length,
                         uint8_t icrc[VB_ICRC])
{
    bool ipv4 = vb_wire_gid_is_ipv4(frame->dgid);

    if (frame->icrc)
        memcpy(icrc, frame->icrc, VB_ICRC);
    else
        vb_wire_icrc_write(icrc, icrc_of(frame, front, length, ipv4) ^ frame->icrc_flip);
    if (!ipv4)
        vb_wire_put16(front + length - 2, udp_checksum(frame, front + length - UDP, icrc));
}

size_t vb_wrap_frame_write(const struct vb_frame *frame, uint8_t *to, size_t room, uint32_t *length)
{
    struct sink sink = {.to = to, .room = room};
    uint8_t front[VB_FRAME_FRONT], icrc[VB_ICRC];
    uint32_t packet = 0;
    size_t front_length;

    for (uint32_t i = 0; i < frame->piece_count; ++i)
        packet += frame->piece[i].length;
    front_length = write_front(front, frame, packet);
    *length = (uint32_t)front_length + packet + VB_ICRC;
    if (!is_virtual(frame))
        write_checks(frame, front, front_length, icrc);
    sink_put(&sink, front, front_length);
    for (uint32_t i = 0; i < frame->piece_count; ++i) {
        if (!frame->piece[i].bytes)
            return sink.used;
        sink_put(&sink, frame->piece[i].bytes, frame->piece[i].length);
    }
    sink_put(&sink, icrc, VB_ICRC);
    return sink.used;
}
