// SPDX-License-Identifier: Apache-2.0
/*
 * Parts of the simulator by themselves: the bytes of TCP's packets in captures, against RFC 791,
 * 2018 and 9293; the addresses of simulated hosts; and the memory of queue pairs.
 */
#include "check.h"
#include "hca/layout.h"
#include "sim/addresses.h"
#include "sim/attachment.h"
#include "sim/slab.h"
#include "sim/tcp_frame.h"
#include "wire/bytes.h"

/* ---- TCP ------------------------------------------------------------------------------------- */

enum { IP = 14, TCP = IP + 20, OPTIONS = TCP + 20 };
enum { IS_ACK = 1, IS_LAST = 2, IS_REDUCED = 4, HAS_ECHO = 8, BLOCKS_SHIFT = 4 };

static uint8_t frame[VB_SIM_TCP_FRONT];
static struct vb_sim_tcp_stream stream;
static struct vb_world_packet packet;

/* Host 2 sends to host 0x010203; segments have 1000 bytes and the stream 4500. */
static void begin(uint32_t flags, uint64_t number)
{
    stream = (struct vb_sim_tcp_stream){.bytes = 4500, .window = 16 << 20, .mss = 1000};
    packet = (struct vb_world_packet){.source = 3, .target = 0x010204, .flags = VB_WORLD_TCP};
    packet.header[VB_WORLD_TCP_FLAGS] = (uint8_t)flags;
    vb_wire_put24(packet.header + VB_WORLD_TCP_FLOW, 0x00c005); /* 3, and 5 of 14 bits */
    vb_wire_put16(packet.header + VB_WORLD_TCP_NUMBER, (uint16_t)(number >> 32));
    vb_wire_put32(packet.header + VB_WORLD_TCP_NUMBER + 2, (uint32_t)number);
}

/* A block of segments, counted from the acknowledged one. */
static void set_block(uint32_t n, uint32_t first, uint32_t end)
{
    vb_wire_put32(packet.header + VB_WORLD_TCP_BLOCKS + 8 * n, first);
    vb_wire_put32(packet.header + VB_WORLD_TCP_BLOCKS + 8 * n + 4, end);
}

static uint32_t folded(uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

static uint32_t sum_of(uint32_t from, uint32_t count)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < count; i += 2)
        sum += vb_wire_get16(frame + from + i);
    return sum;
}

/* What all packets have; `length` is that of the headers. */
static void expect_frame(uint32_t length)
{
    memset(frame, 0xa5, sizeof(frame));
    CHECK_EQ(vb_sim_tcp_write_front(frame, &stream, &packet), length);
    CHECK(memcmp(frame, (uint8_t[]){2, 0, 10, 1, 2, 4, 2, 0, 10, 0, 0, 3, 8, 0}, 14) == 0);
    CHECK_EQ(frame[IP], 0x45);
    CHECK_EQ(vb_wire_get16(frame + IP + 2), length - IP + packet.payload);
    CHECK_EQ(vb_wire_get32(frame + IP + 4), 0x4000);
    CHECK_EQ(frame[IP + 9], 6);
    CHECK(memcmp(frame + IP + 12, (uint8_t[]){10, 0, 0, 3, 10, 1, 2, 4}, 8) == 0);
    CHECK_EQ(folded(sum_of(IP, 20)), 0xffff);
    CHECK_EQ(frame[TCP + 12], (length - TCP) / 4 << 4);
    CHECK_EQ(
        folded(sum_of(TCP, length - TCP) + sum_of(IP + 12, 8) + 6 + length - TCP + packet.payload),
        0xffff);
    CHECK_EQ(vb_wire_get16(frame + TCP + 18), 0); /* nothing is urgent */
}

static void a_segment_says_its_place(void)
{
    static const struct {
        uint64_t number;
        uint32_t sequence;
    } cases[] = {{0, 1}, {1, 1001}, {4, 4001}, {5, 4501}, {9, 4501}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        begin(0, cases[i].number);
        packet.payload = 1000;
        expect_frame(OPTIONS);
        CHECK_EQ(vb_wire_get16(frame + TCP), 0xc005);
        CHECK_EQ(vb_wire_get16(frame + TCP + 2), 0xbf83);
        CHECK_EQ(vb_wire_get32(frame + TCP + 4), cases[i].sequence);
        CHECK_EQ(vb_wire_get32(frame + TCP + 8), 1);
        CHECK_EQ(frame[TCP + 13], 0x10);
    }
    begin(0, (1ull << 32) + 7); /* the number has 48 bits, and the sequence 32 */
    stream.bytes = UINT64_MAX;
    stream.mss = 1;
    expect_frame(OPTIONS);
    CHECK_EQ(vb_wire_get32(frame + TCP + 4), 8);
}

static void flags_are_those_of_tcp(void)
{
    static const struct {
        uint32_t flags;
        uint8_t byte;
    } cases[] = {
        {0, 0x10},      {IS_LAST, 0x18},           {IS_REDUCED, 0x90},
        {IS_ACK, 0x10}, {IS_ACK | HAS_ECHO, 0x50}, {IS_LAST | IS_REDUCED, 0x98},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        begin(cases[i].flags, 1);
        expect_frame(OPTIONS);
        CHECK_EQ(frame[TCP + 13], cases[i].byte);
    }
}

/* The receiver's ports are the other way round, and its sequence number does not move. */
static void an_acknowledgement_has_its_blocks(void)
{
    for (uint32_t blocks = 0; blocks <= VB_TCP_SACKS; ++blocks) {
        uint32_t length = blocks ? 4 + 8 * blocks : 0;

        begin(IS_ACK | blocks << BLOCKS_SHIFT, 1);
        stream.bytes = 100000;
        for (uint32_t i = 0; i < blocks; ++i)
            set_block(i, 1 + i, 2 + i);
        expect_frame(OPTIONS + length);
        CHECK_EQ(vb_wire_get16(frame + TCP), 0xbf83);
        CHECK_EQ(vb_wire_get16(frame + TCP + 2), 0xc005);
        CHECK_EQ(vb_wire_get32(frame + TCP + 4), 1);
        CHECK_EQ(vb_wire_get32(frame + TCP + 8), 1001);
        if (blocks)
            CHECK_EQ(vb_wire_get32(frame + OPTIONS), 0x01010500 + 2 + 8 * blocks);
        for (uint32_t i = 0; i < blocks; ++i) {
            CHECK_EQ(vb_wire_get32(frame + OPTIONS + 4 + 8 * i), 2001 + 1000 * i);
            CHECK_EQ(vb_wire_get32(frame + OPTIONS + 8 + 8 * i), 3001 + 1000 * i);
        }
    }
}

/* The largest shift of RFC 7323 is 14; what does not fit is said as the most. */
static void a_window_is_scaled(void)
{
    static const struct {
        uint64_t window;
        uint16_t said;
    } cases[] = {
        {0, 0},          {65534, 65534},    {65535, 65535},      {65536, 32768},
        {131071, 65535}, {16 << 20, 32768}, {1ull << 29, 32768}, {1ull << 30, 65535},
        {~0ull, 65535},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        begin(0, 0);
        stream.window = cases[i].window;
        expect_frame(OPTIONS);
        CHECK_EQ(vb_wire_get16(frame + TCP + 14), cases[i].said);
    }
}

/* The level is a class selector; data of a connection with ECN is ECT(0), and a mark is CE. */
static void the_traffic_class_has_level_and_ecn(void)
{
    static const struct {
        uint32_t flags, level;
        bool has_ecn, marked;
        uint8_t class;
    } cases[] = {
        {0, 0, false, false, 0},      {0, 0, true, false, 2},      {0, 0, true, true, 3},
        {0, 0, false, true, 3},       {IS_ACK, 0, true, false, 0}, {IS_ACK, 0, true, true, 3},
        {0, 5, false, false, 5 << 5}, {0, 7, true, false, 0xe2},   {0, 8, false, false, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        begin(cases[i].flags, 0);
        stream.has_ecn = cases[i].has_ecn;
        packet.level_marks = (uint8_t)(cases[i].level << 4 | (cases[i].marked ? VB_WORLD_CE : 0));
        expect_frame(OPTIONS);
        CHECK_EQ(frame[IP + 1], cases[i].class);
    }
}

static void a_packet_has_the_hops_that_are_left(void)
{
    begin(0, 0);
    expect_frame(OPTIONS);
    CHECK_EQ(frame[IP + 8], 64);
    packet.hops = 3;
    expect_frame(OPTIONS);
    CHECK_EQ(frame[IP + 8], 3);
}

/* Damage is in the checksum alone. */
static void a_damaged_packet_has_a_wrong_checksum(void)
{
    uint8_t right[VB_SIM_TCP_FRONT];

    begin(0, 0);
    packet.payload = 1001;
    expect_frame(OPTIONS);
    memcpy(right, frame, sizeof(right));
    stream.damage = 0x8001;
    CHECK_EQ(vb_sim_tcp_write_front(frame, &stream, &packet), OPTIONS);
    CHECK_EQ(vb_wire_get16(frame + TCP + 16), vb_wire_get16(right + TCP + 16) ^ 0x8001);
    memcpy(frame + TCP + 16, right + TCP + 16, 2);
    CHECK(memcmp(frame, right, OPTIONS) == 0);
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* Each host has an address of 10.0.0.0/8, and no other address is a host's. */
static void an_address_is_its_host_s(void)
{
    static const uint32_t hosts[] = {0, 1, 254, 255, 65534, 65535, VB_WORLD_HOSTS - 1};

    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); ++i) {
        uint8_t gid[16];

        vb_sim_gid_ipv4(hosts[i], gid);
        CHECK_EQ(vb_wire_get32(gid + 12), 10u << 24 | (hosts[i] + 1));
        CHECK_EQ(vb_sim_gid_host(gid), hosts[i]);
        for (int byte = 0; byte < 13; ++byte) {
            gid[byte] ^= 1;
            CHECK_EQ(vb_sim_gid_host(gid), UINT32_MAX);
            gid[byte] ^= 1;
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Pieces of all sizes are zeroed, begin at a line, and do not overlap; one given back is next. */
static void pieces_are_lines_of_their_own(void)
{
    enum { SIZES = VB_SIM_SLAB_LINES + 2, ROUNDS = 60 };
    static uint8_t *piece[ROUNDS][SIZES];
    struct vb_sim_slab slab = {0};

    for (int round = 0; round < ROUNDS; ++round)
        for (size_t lines = 1; lines < SIZES; ++lines) {
            size_t bytes = lines * VB_LINE - (size_t)round % VB_LINE;
            uint8_t *made = piece[round][lines] = vb_sim_slab_take(&slab, bytes);

            CHECK(made && (uintptr_t)made % VB_LINE == 0);
            for (size_t i = 0; i < bytes; ++i)
                CHECK_EQ(made[i], 0);
            memset(made, round + 1, bytes);
        }
    for (int round = 0; round < ROUNDS; ++round)
        for (size_t lines = 1; lines < SIZES; ++lines) {
            size_t bytes = lines * VB_LINE - (size_t)round % VB_LINE;

            for (size_t i = 0; i < bytes; ++i)
                CHECK_EQ(piece[round][lines][i], round + 1);
        }
#ifndef __SANITIZE_ADDRESS__ /* where each piece is an allocation */
    for (size_t lines = 1; lines <= VB_SIM_SLAB_LINES; ++lines) {
        vb_sim_slab_give(&slab, piece[0][lines], lines * VB_LINE);
        CHECK_EQ((uintptr_t)vb_sim_slab_take(&slab, lines * VB_LINE), (uintptr_t)piece[0][lines]);
        CHECK_EQ(piece[0][lines][lines * VB_LINE - 1], 0);
    }
#endif
    for (int round = 0; round < ROUNDS; ++round)
        for (size_t lines = 1; lines < SIZES; ++lines)
            vb_sim_slab_give(&slab, piece[round][lines], lines * VB_LINE - (size_t)round % VB_LINE);
    vb_sim_slab_close(&slab);
}

int main(void)
{
    RUN(a_segment_says_its_place);
    RUN(flags_are_those_of_tcp);
    RUN(an_acknowledgement_has_its_blocks);
    RUN(a_window_is_scaled);
    RUN(the_traffic_class_has_level_and_ecn);
    RUN(a_packet_has_the_hops_that_are_left);
    RUN(a_damaged_packet_has_a_wrong_checksum);
    RUN(an_address_is_its_host_s);
    RUN(pieces_are_lines_of_their_own);
    return 0;
}
