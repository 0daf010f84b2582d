// SPDX-License-Identifier: Apache-2.0
/* ICRC and VCRC against sums one bit after the other, and the identification that is not seen. */
#include "check.h"
#include "wire/headers.h"
#include "wire/icrc.h"
#include "wire/vcrc.h"

enum { MOST = 65495 };

static uint8_t bytes[MOST + VB_ICRC];
static uint64_t seed = 5;

static uint32_t any(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

static void fill(void)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)any();
}

static uint32_t by_bits(uint32_t crc, uint32_t polynomial, const uint8_t *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
    }
    return crc;
}

static struct vb_icrc_flow any_flow(bool ipv4)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct vb_icrc_flow flow = {.source_port = (uint16_t)any(), .target_port = VB_ROCE_PORT};

    for (int i = 0; i < 16; i++) {
        flow.source[i] = (uint8_t)any();
        flow.target[i] = (uint8_t)any();
    }
    if (ipv4) {
        memcpy(flow.source, mapped, sizeof mapped);
        memcpy(flow.target, mapped, sizeof mapped);
    }
    return flow;
}

/* The fields that the ICRC covers (RoCE v2 annex), written out. */
static size_t pseudo_header(uint8_t *at, const struct vb_icrc_flow *flow,
                            struct vb_icrc_unseen unseen, uint32_t length, bool ipv4)
{
    const uint32_t udp = 8 + length + 4;
    const size_t ip = ipv4 ? 20 : 40;

    memset(at, 0xff, 8 + ip + 8);
    at += 8;
    at[0] = ipv4 ? 0x45 : 0x6f;
    if (ipv4) {
        vb_wire_put16(at + 2, (uint16_t)(20 + udp));
        vb_wire_put16(at + 4, unseen.id);
        vb_wire_put16(at + 6, unseen.dont_fragment ? 0x4000 : 0);
        at[9] = 17;
        memcpy(at + 12, flow->source + 12, 4);
        memcpy(at + 16, flow->target + 12, 4);
    } else {
        vb_wire_put16(at + 4, (uint16_t)udp);
        at[6] = 17;
        memcpy(at + 8, flow->source, 16);
        memcpy(at + 24, flow->target, 16);
    }
    at += ip;
    vb_wire_put16(at, flow->source_port);
    vb_wire_put16(at + 2, flow->target_port);
    vb_wire_put16(at + 4, (uint16_t)udp);
    return 8 + ip + 8;
}

static uint32_t expected(const struct vb_icrc_flow *flow, struct vb_icrc_unseen unseen,
                         uint32_t length, bool ipv4)
{
    uint8_t header[64], bth[VB_BTH];
    size_t n = pseudo_header(header, flow, unseen, length, ipv4);
    uint32_t crc = by_bits(0xffffffff, 0xedb88320, header, n);

    memcpy(bth, bytes, VB_BTH);
    bth[4] = 0xff;
    crc = by_bits(crc, 0xedb88320, bth, VB_BTH);
    return by_bits(crc, 0xedb88320, bytes + VB_BTH, length - VB_BTH);
}

static uint32_t start_with(const struct vb_icrc_flow *flow, struct vb_icrc_unseen unseen,
                           uint32_t length)
{
    uint32_t start = vb_wire_icrc_start_udp(flow, length);

    return vb_wire_icrc_is_ipv4(flow) ? vb_wire_icrc_with(start, unseen) : start;
}

static int check(const struct vb_icrc_flow *flow, uint32_t length, struct vb_icrc_unseen *unseen)
{
    return vb_wire_icrc_check_ipv4(vb_wire_icrc_start_udp(flow, length), bytes, length, unseen);
}

static void test_a_flow_and_what_follows(void)
{
    for (int round = 0; round < 4000; round++) {
        bool ipv4 = round % 2;
        struct vb_icrc_flow flow = any_flow(ipv4);
        struct vb_icrc_unseen unseen = {(uint16_t)any(), round % 4 < 2};
        uint32_t length = VB_BTH + any() % 300;
        bytes[4] = round % 3 ? (uint8_t)any() : 0;
        uint32_t start = start_with(&flow, unseen, length);
        CHECK_EQ(vb_wire_icrc_transport(start, bytes, length),
                 expected(&flow, unseen, length, ipv4));
    }
}

static void test_headers_as_they_came(void)
{
    for (int round = 0; round < 100; round++) {
        bool ipv4 = round % 2;
        struct vb_icrc_flow flow = any_flow(ipv4);
        struct vb_icrc_unseen unseen = {(uint16_t)any(), round % 4 < 2};
        uint8_t header[64], *ip = header + 8;
        pseudo_header(header, &flow, unseen, 100, ipv4);
        uint8_t *udp = ip + (ipv4 ? 20 : 40);
        memset(udp + 6, (int)any(), 2);
        ip[1] = (uint8_t)any();
        ip[ipv4 ? 8 : 7] = (uint8_t)any();
        if (ipv4)
            memset(ip + 10, (int)any(), 2);
        else
            ip[0] = 0x60 | (any() & 0xf);
        uint32_t start =
            ipv4 ? vb_wire_icrc_start_ipv4(ip, 20, udp) : vb_wire_icrc_start_ipv6(ip, udp);
        CHECK_EQ(start, start_with(&flow, unseen, 100));
    }
}

/* With as many options as IPv4 may have. */
static void test_options_of_ipv4(void)
{
    for (uint32_t length = 20; length <= 60; length += 4) {
        uint8_t ip[60], udp[8], all[8 + 60 + 8];

        for (uint32_t i = 0; i < length; i++)
            ip[i] = (uint8_t)any();
        for (int i = 0; i < 8; i++)
            udp[i] = (uint8_t)any();
        memset(all, 0xff, 8);
        memcpy(all + 8, ip, length);
        all[8 + 1] = all[8 + 8] = all[8 + 10] = all[8 + 11] = 0xff;
        memcpy(all + 8 + length, udp, 6);
        memset(all + 8 + length + 6, 0xff, 2);
        CHECK_EQ(vb_wire_icrc_start_ipv4(ip, length, udp),
                 by_bits(0xffffffff, 0xedb88320, all, length + 16) ^ vb_wire_icrc_mask(0, 0xff));
    }
}

/* InfiniBand within a subnet and beyond it, and RoCE v1, over a BTH whose byte 4 counts as ones. */
static void test_headers_of_infiniband(void)
{
    for (int round = 0; round < 100; round++) {
        uint8_t lrh[8], grh[40], all[8 + 40 + VB_BTH], bth[VB_BTH];
        uint32_t length = 8;

        for (int i = 0; i < 40; i++)
            grh[i] = (uint8_t)any(), lrh[i % 8] = (uint8_t)any();
        for (uint32_t i = 0; i < VB_BTH; i++)
            bth[i] = (uint8_t)any();
        memcpy(all, lrh, 8);
        all[0] |= 0xf0; /* the virtual lane */
        memcpy(all + length, bth, VB_BTH);
        all[length + 4] = 0xff;
        CHECK_EQ(vb_wire_icrc_transport(vb_wire_icrc_start_lrh(lrh, NULL), bth, VB_BTH),
                 by_bits(0xffffffff, 0xedb88320, all, length + VB_BTH));
        memset(all, 0xff, 8); /* routers replace the LRH */
        memcpy(all + 8, grh, 40);
        all[8] |= 0x0f; /* traffic class, flow label, hop limit */
        memset(all + 9, 0xff, 3);
        all[8 + 7] = 0xff;
        length = 8 + 40;
        memcpy(all + length, bth, VB_BTH);
        all[length + 4] = 0xff;
        CHECK_EQ(vb_wire_icrc_transport(vb_wire_icrc_start_grh(grh), bth, VB_BTH),
                 by_bits(0xffffffff, 0xedb88320, all, length + VB_BTH));
        CHECK_EQ(vb_wire_icrc_start_lrh(lrh, grh), vb_wire_icrc_start_grh(grh));
    }
}

static void test_which_flows_are_of_ipv4(void)
{
    struct vb_icrc_flow flow = any_flow(true);

    CHECK(vb_wire_icrc_is_ipv4(&flow));
    for (int i = 0; i < 16; i++) {
        flow.target[i] ^= 1;
        CHECK_EQ(vb_wire_icrc_is_ipv4(&flow), i >= 12);
        flow.target[i] ^= 1;
    }
}

static void test_the_mask_of_every_byte(void)
{
    const uint32_t masked = by_bits(77, 0xedb88320, (const uint8_t *)"\1\2\3\4\xff\6", 6);
    uint8_t bth[6] = {1, 2, 3, 4, 0, 6};
    uint32_t start = 77 ^ vb_wire_icrc_mask(0, 0xff); /* what a start register has in it */

    for (unsigned value = 0; value < 256; value++) {
        bth[4] = (uint8_t)value;
        CHECK_EQ(vb_wire_crc32(vb_wire_icrc_mask(start, bth[4]), bth, 6), masked);
    }
}

static void check_explained(uint32_t length, struct vb_icrc_unseen is, struct vb_icrc_unseen guess)
{
    struct vb_icrc_flow flow = any_flow(true);

    vb_wire_icrc_write(bytes + length, expected(&flow, is, length, true));
    CHECK_EQ(check(&flow, length, &guess), 0);
    CHECK_EQ(guess.id, is.id);
    CHECK_EQ(guess.dont_fragment, is.dont_fragment);
}

static void test_the_identification_is_found(void)
{
    for (uint32_t id = 0; id < 65536; id += 13)
        check_explained(VB_BTH + id % 64, (struct vb_icrc_unseen){(uint16_t)id, id & 1},
                        (struct vb_icrc_unseen){0, true});
    for (uint32_t length = VB_BTH; length <= 5000; length += 1 + length % 7)
        check_explained(length, (struct vb_icrc_unseen){(uint16_t)any(), true},
                        (struct vb_icrc_unseen){(uint16_t)any(), any() & 1});
    check_explained(MOST, (struct vb_icrc_unseen){0xabcd, true}, (struct vb_icrc_unseen){0, false});
}

/* A damaged packet passes once in 2^15 times: of 20000 about 0.6, and 10 is as good as never. */
static void test_damage_is_not_explained(void)
{
    struct vb_icrc_flow flow = any_flow(true);
    const struct vb_icrc_unseen none = {0, true};
    unsigned passed = 0;

    for (int round = 0; round < 20000; round++) {
        uint32_t length = VB_BTH + any() % 100, at = any() % length, crc;
        uint8_t flip = (uint8_t)(1 + any() % 255);
        struct vb_icrc_unseen unseen = none;
        crc = start_with(&flow, none, length);
        vb_wire_icrc_write(bytes + length, vb_wire_icrc_transport(crc, bytes, length));
        bytes[at] ^= flip;
        int error = check(&flow, length, &unseen);
        bytes[at] ^= flip;
        if (at == 4)
            CHECK_EQ(error, 0);
        else if (!error)
            passed++;
        else
            CHECK(error == -EBADMSG && unseen.id == 0 && unseen.dont_fragment);
    }
    CHECK(passed < 10);
}

static void test_a_length_beyond_ip_is_not_explained(void)
{
    struct vb_icrc_unseen unseen = {0, true};

    CHECK_EQ(vb_wire_icrc_explain(1, 2, 65535, &unseen), -EBADMSG);
    CHECK_EQ(vb_wire_icrc_explain(1, 2, UINT32_MAX, &unseen), -EBADMSG);
    CHECK_EQ(vb_wire_icrc_explain(2, 2, 65535, &unseen), 0);
    CHECK(unseen.id == 0 && unseen.dont_fragment);
}

/* Each bit that may differ is found in a register, and no other is, up to the longest packet. */
static void test_each_bit_is_explained(void)
{
    static const uint32_t lengths[] = {VB_BTH, 100, 231, 232, 233, 488, 65510, 65511, 65512};

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int bit = 0; bit < 32; bit++) {
            static uint8_t change[24 + 65512]; /* from the identification on */
            struct vb_icrc_unseen unseen = {0x5a5a, false};
            bool expected = (bit < 16 || bit == 22) && lengths[i] <= 65511;
            uint32_t difference;

            change[bit / 8] = (uint8_t)(1 << bit % 8);
            difference = by_bits(0, 0xedb88320, change, 24 + lengths[i]);
            change[bit / 8] = 0;
            CHECK_EQ(vb_wire_icrc_explain(77, 77 ^ difference, lengths[i], &unseen),
                     expected ? 0 : -EBADMSG);
            CHECK_EQ(unseen.id ^ 0x5a5a,
                     expected && bit < 16 ? 1 << (bit < 8 ? bit + 8 : bit - 8) : 0);
            CHECK_EQ(unseen.dont_fragment, expected && bit == 22);
        }
}

static void test_vcrc(void)
{
    CHECK_EQ(vb_wire_vcrc("123456789", 9), 0x0a3d);
    for (size_t n = 0; n < 300; n++)
        CHECK_EQ(vb_wire_vcrc(bytes + n % 8, n),
                 (~by_bits(0xffff, 0xd008, bytes + n % 8, n)) & 0xffff);
}

int main(void)
{
    fill();
    RUN(test_a_flow_and_what_follows);
    RUN(test_headers_as_they_came);
    RUN(test_options_of_ipv4);
    RUN(test_headers_of_infiniband);
    RUN(test_which_flows_are_of_ipv4);
    RUN(test_the_mask_of_every_byte);
    RUN(test_the_identification_is_found);
    RUN(test_damage_is_not_explained);
    RUN(test_a_length_beyond_ip_is_not_explained);
    RUN(test_each_bit_is_explained);
    RUN(test_vcrc);
    return 0;
}
