// SPDX-License-Identifier: Apache-2.0
/*
 * Frames that a capture has, byte by byte: each field, the checksums and the ICRC of random
 * packets, cut at each length.
 */
#include "bare_packet.h"
#include "check.h"
#include "wire/dissect.h"
#include "wire/icrc.h"
#include "wire/opcode.h"
#include "wrap/frame.h"

enum { MTU = PATH_MTU, MOST = 1024, ROOM = 5000 };

static uint8_t payload[MOST + 64];

static uint32_t sum_16(const uint8_t *at, size_t n)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (uint32_t)at[i] << (i % 2 ? 0 : 8);
    return sum;
}

static uint32_t folded(uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/* A sum over what a checksum covers, with the checksum itself, is all ones (RFC 1071). */
static void check_checksums(const struct vb_dissection *packet, const uint8_t *bytes, uint32_t n)
{
    const uint8_t *ip = bytes + 14, *udp = bytes + packet->bth_offset - 8;

    if (packet->stack == VB_STACK_ROCE2_IPV4) {
        CHECK_EQ(folded(sum_16(ip, 20)), 0xffff);
        CHECK_EQ(packet->udp.checksum, 0);
        return;
    }
    CHECK(packet->udp.checksum);
    CHECK_EQ(folded(sum_16(ip + 8, 32) + 17 + packet->udp.length +
                    sum_16(udp, n - (uint32_t)(udp - bytes))),
             0xffff);
}

/* A SEND Only in pieces of random lengths. */
static struct vb_frame any_frame(bool is_ipv4, uint8_t header[VB_BTH], uint32_t *length)
{
    const struct vb_path *path = is_ipv4 ? &ipv4 : &ipv6;
    struct vb_frame frame = {.flow_label = any(),
                             .traffic_class = (uint8_t)any(),
                             .hop_limit = any() % 3 ? (uint8_t)any() : 0,
                             .source_port = (uint16_t)any(),
                             .ip_id = (uint16_t)any(),
                             .may_fragment = any() & 1};

    memcpy(frame.sgid, path->sgid, 16);
    memcpy(frame.dgid, path->dgid, 16);
    *length = any() % 5 * 4 + any() % 3 * 60;
    vb_wire_bth_write(header, &(struct vb_bth){.opcode = VB_OP_SEND_ONLY,
                                               .pkey = 0xffff,
                                               .dest_qp = any() & VB_QPN_MASK,
                                               .psn = any() & VB_PSN_MASK});
    header[4] = any() % 2 ? (uint8_t)any() : 0; /* congestion marks */
    vb_wrap_frame_add(&frame, header, VB_BTH);
    for (uint32_t at = 0, part; at < *length; at += part) {
        part = 1 + any() % 33;
        part = part < *length - at ? part : *length - at;
        vb_wrap_frame_add(&frame, payload + at, part);
    }
    return frame;
}

static void check_frame(const struct vb_frame *frame, const uint8_t *bytes, uint32_t n,
                        uint32_t length)
{
    const uint8_t hops = frame->hop_limit ? frame->hop_limit : 64;
    const bool is_ipv4 = vb_wire_gid_is_ipv4(frame->dgid);
    struct vb_dissection packet;
    uint8_t icrc[4];

    CHECK_EQ(vb_wire_dissect(&packet, VB_LAYER_ETHERNET, bytes, n), VB_DISSECT_OK);
    CHECK_EQ(packet.stack, is_ipv4 ? VB_STACK_ROCE2_IPV4 : VB_STACK_ROCE2_IPV6);
    CHECK_EQ(packet.udp.source_port, frame->source_port);
    CHECK_EQ(packet.payload.length, length);
    CHECK(memcmp(packet.payload.bytes, payload, length) == 0);
    CHECK_EQ(packet.trailer.length, 0);
    if (is_ipv4) {
        CHECK_EQ(packet.ipv4.tos, frame->traffic_class);
        CHECK_EQ(packet.ipv4.id, frame->ip_id);
        CHECK_EQ(packet.ipv4.fragment, frame->may_fragment ? 0 : 0x4000);
        CHECK_EQ(packet.ipv4.ttl, hops);
        CHECK(memcmp(packet.ipv4.source, frame->sgid + 12, 4) == 0);
        CHECK(memcmp(packet.ipv4.target, frame->dgid + 12, 4) == 0);
    } else {
        CHECK_EQ(packet.grh.traffic_class, frame->traffic_class);
        CHECK_EQ(packet.grh.flow_label, frame->flow_label & 0xfffff);
        CHECK_EQ(packet.grh.hop_limit, hops);
        CHECK(memcmp(packet.grh.source, frame->sgid, 16) == 0);
        CHECK(memcmp(packet.grh.target, frame->dgid, 16) == 0);
    }
    check_checksums(&packet, bytes, n);
    vb_wire_dissect_icrc(&packet, bytes, icrc);
    if (frame->icrc)
        CHECK(memcmp(packet.icrc, frame->icrc, 4) == 0);
    else
        CHECK_EQ(vb_wire_get32(icrc) ^ vb_wire_get32(packet.icrc),
                 __builtin_bswap32(frame->icrc_flip));
}

static void test_frames_have_their_fields_and_checksums(void)
{
    for (int round = 0; round < 3000; round++) {
        uint8_t header[VB_BTH], bytes[ROOM], given[4] = {1, 2, 3, 4};
        uint32_t length, whole;
        struct vb_frame frame = any_frame(round % 2, header, &length);
        size_t n;

        if (round % 5 == 0)
            frame.icrc_flip = any();
        else if (round % 5 == 1)
            frame.icrc = given;
        n = vb_wrap_frame_write(&frame, bytes, sizeof bytes, &whole);
        CHECK_EQ(n, whole);
        check_frame(&frame, bytes, whole, length);
    }
}

/* Where the sum over the rest is all ones, the checksum is 0xffff: 0 says that there is none. */
static void test_no_checksum_of_udp_is_zero(void)
{
    int found = 0;

    for (uint32_t value = 0; value < 0x10000; value++) {
        uint8_t header[VB_BTH] = {VB_OP_SEND_ONLY}, icrc[4] = {0}, bytes[128];
        struct vb_frame frame = {.sgid = {0xfe, 0x80}, .dgid = {0xfe, 0x80}, .icrc = icrc};
        uint32_t whole;

        vb_wire_put16(icrc, (uint16_t)value);
        vb_wrap_frame_add(&frame, header, VB_BTH);
        vb_wrap_frame_write(&frame, bytes, sizeof bytes, &whole);
        CHECK(vb_wire_get16(bytes + 14 + 40 + 6) != 0);
        found += vb_wire_get16(bytes + 14 + 40 + 6) == 0xffff;
    }
    CHECK(found == 1 || found == 2);
}

static void test_a_frame_is_cut_at_each_length(void)
{
    for (int is_ipv4 = 0; is_ipv4 < 2; is_ipv4++) {
        uint8_t header[VB_BTH], all[ROOM], bytes[ROOM];
        uint32_t length, whole, same;
        struct vb_frame frame = any_frame(is_ipv4, header, &length);

        CHECK_EQ(vb_wrap_frame_write(&frame, all, sizeof all, &whole), whole);
        for (uint32_t room = 0; room < whole + 3; room++) {
            const uint32_t n = room < whole ? room : whole;

            memset(bytes, 0xa5, sizeof bytes);
            CHECK_EQ(vb_wrap_frame_write(&frame, bytes, room, &same), n);
            CHECK_EQ(same, whole);
            CHECK(memcmp(bytes, all, n) == 0 && bytes[n] == 0xa5);
        }
    }
}

/* Writing ends before a virtual payload, wherever it stands. */
static void test_a_virtual_piece_ends_a_frame(void)
{
    uint8_t header[VB_BTH] = {VB_OP_SEND_ONLY}, bytes[ROOM];
    struct vb_frame frame = {.sgid = {0xfe, 0x80}, .dgid = {0xfe, 0x80}};
    uint32_t whole;

    vb_wrap_frame_add(&frame, header, VB_BTH);
    vb_wrap_frame_add(&frame, payload, 10);
    vb_wrap_frame_add(&frame, NULL, 1000);
    vb_wrap_frame_add(&frame, payload, 20);
    CHECK_EQ(vb_wrap_frame_write(&frame, bytes, sizeof bytes, &whole), 62 + VB_BTH + 10);
    CHECK_EQ(whole, 62 + VB_BTH + 10 + 1000 + 20 + VB_ICRC);
    CHECK_EQ(vb_wire_get16(bytes + 14 + 4), 8 + VB_BTH + 1030 + VB_ICRC);
    CHECK_EQ(vb_wire_get16(bytes + 60), 0); /* no checksum of what is not there */
}

/* What a fault rule leaves of a packet may end before byte 4 of the BTH. */
static void test_frames_of_a_few_bytes(void)
{
    static const uint8_t few[8] = {1, 2, 3, 4, 5, 6, 7, 8};

    for (uint32_t n = 0; n <= sizeof few; n++) {
        struct vb_frame frame = {.source_port = 7};
        uint8_t bytes[128], expected[4];
        uint32_t whole, crc;

        memcpy(frame.sgid, ipv4.sgid, 16);
        memcpy(frame.dgid, ipv4.dgid, 16);
        vb_wrap_frame_add(&frame, few, n);
        CHECK_EQ(vb_wrap_frame_write(&frame, bytes, sizeof bytes, &whole), 42 + n + VB_ICRC);
        crc = vb_wire_icrc_start_ipv4(bytes + 14, 20, bytes + 34);
        crc = n > 4 ? vb_wire_icrc_mask(crc, few[4]) : crc;
        vb_wire_icrc_write(expected, vb_wire_crc32(crc, few, n));
        CHECK(memcmp(bytes + 42 + n, expected, 4) == 0);
    }
}

static void test_no_more_pieces_than_there_is_room_for(void)
{
    struct vb_frame frame = {0};

    vb_wrap_frame_add(&frame, payload, 0);
    CHECK_EQ(frame.piece_count, 0);
    for (uint32_t i = 0; i < VB_FRAME_PIECES + 2; i++) {
        vb_wrap_frame_add(&frame, payload + i, 1);
        CHECK_EQ(frame.piece_count, i < VB_FRAME_PIECES ? i + 1 : VB_FRAME_PIECES);
    }
}

int main(void)
{
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)any();
    RUN(test_frames_have_their_fields_and_checksums);
    RUN(test_no_checksum_of_udp_is_zero);
    RUN(test_a_frame_is_cut_at_each_length);
    RUN(test_a_virtual_piece_ends_a_frame);
    RUN(test_frames_of_a_few_bytes);
    RUN(test_no_more_pieces_than_there_is_room_for);
    return 0;
}
