// SPDX-License-Identifier: Apache-2.0
/* Packets of every opcode and stacking, written and read again, cut off and damaged. */
#include "check.h"
#include "wire/dissect.h"
#include "wire/icrc.h"
#include "wire/opcode.h"

enum { ROOM = 512, STACKS = VB_STACK_ROCE2_IPV6 + 1 };

static uint64_t seed = 11;

static uint32_t any(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

static void fill(void *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)at)[i] = (uint8_t)any();
}

static const uint8_t payload[] = "what an application sends", options[8] = {1, 1, 1, 1, 0};

static struct vb_bth any_bth(uint8_t opcode, uint8_t pad)
{
    return (struct vb_bth){
        .opcode = opcode,
        .solicited = any() & 1,
        .migrated = any() & 1,
        .pad = pad,
        .pkey = (uint16_t)any(),
        .fecn = any() & 1,
        .becn = any() & 1,
        .dest_qp = any() & VB_QPN_MASK,
        .ack_request = any() & 1,
        .psn = any() & VB_PSN_MASK,
    };
}

/* Only what the opcode has: the rest stays zero, as it is after reading. */
static void any_extended(struct vb_dissection *packet)
{
    const uint32_t flags = vb_opcodes[packet->bth.opcode].flags;

    packet->reserved.bth_4 = any() & 0x3f;
    packet->reserved.bth_8 = any() & 0x7f;
    if (flags & VB_OPCODE_RDETH)
        packet->ee_context = any() & 0xffffff, packet->reserved.rdeth = 3;
    if (flags & VB_OPCODE_DETH)
        packet->deth = (struct vb_deth){any(), any() & VB_QPN_MASK}, packet->reserved.deth = 4;
    if (flags & VB_OPCODE_XRCETH)
        packet->xrc_srq = any() & 0xffffff, packet->reserved.xrceth = 5;
    if (flags & VB_OPCODE_FETH)
        packet->flush = any();
    if (flags & VB_OPCODE_RETH)
        packet->reth = (struct vb_reth){(uint64_t)any() << 32 | any(), any(), any()};
    if (flags & VB_OPCODE_ATOMICETH)
        packet->atomic = (struct vb_atomiceth){any(), any(), any(), any()};
    if (flags & VB_OPCODE_AETH)
        packet->aeth = (struct vb_aeth){any() & 7, any() & 0x1f, any() & 0xffffff};
    if (flags & VB_OPCODE_ATOMICACKETH)
        packet->atomic_ack = (uint64_t)any() << 32 | any();
    if (flags & VB_OPCODE_IMM)
        packet->immediate = any();
    if (flags & VB_OPCODE_IETH)
        packet->invalidate_rkey = any();
}

static void any_carriers(struct vb_dissection *packet, uint32_t transport)
{
    const bool ipv4 = packet->stack == VB_STACK_ROCE2_IPV4;
    const bool ipv6 = packet->stack == VB_STACK_ROCE2_IPV6;

    if (packet->stack == VB_STACK_IB_LOCAL || packet->stack == VB_STACK_IB_GLOBAL) {
        const bool global = packet->stack == VB_STACK_IB_GLOBAL;
        uint32_t words = (8 + (global ? 40 : 0) + transport) / 4;
        packet->lrh = (struct vb_lrh){3, 0, 5, 2, global ? 3 : 2, 17, 9, (uint16_t)words, 99};
    } else {
        fill(packet->ethernet.source, 6);
        packet->ethernet.vlans = any() % 3;
        for (uint32_t i = 0; i < packet->ethernet.vlans; i++)
            packet->ethernet.vlan[i] = (struct vb_vlan){i ? 0x8100 : 0x88a8, (uint16_t)any()};
        packet->ethernet.type = ipv4 ? 0x0800 : ipv6 ? 0x86dd : 0x8915;
    }
    if (ipv4) {
        packet->ipv4 = (struct vb_ipv4){.tos = 2,
                                        .id = (uint16_t)any(),
                                        .fragment = 0x4000,
                                        .ttl = 64,
                                        .protocol = 17,
                                        .checksum = 7};
        packet->ipv4.options = (struct vb_span){options, any() % 3 * 4};
        packet->ipv4.length = (uint16_t)(28 + packet->ipv4.options.length + transport);
    } else if (packet->stack != VB_STACK_IB_LOCAL) {
        packet->grh = (struct vb_grh){6,
                                      (uint8_t)any(),
                                      any() & 0xfffff,
                                      (uint16_t)(transport + (ipv6 ? 8 : 0)),
                                      ipv6 ? 17 : 0x1b,
                                      1,
                                      .source = {1},
                                      .target = {2}};
    }
    if (ipv4 || ipv6)
        packet->udp = (struct vb_udp){(uint16_t)any(), VB_ROCE_PORT, (uint16_t)(transport + 8), 0};
}

static struct vb_dissection any_packet(enum vb_stack stack, uint8_t opcode, uint32_t content)
{
    static const uint8_t zeros[3];
    struct vb_dissection packet = {.stack = stack};
    const uint8_t pad = -content & 3;

    packet.bth = any_bth(opcode, pad);
    any_extended(&packet);
    packet.payload = (struct vb_span){payload, content};
    packet.pad = (struct vb_span){zeros, pad};
    any_carriers(&packet, vb_opcodes[opcode].header_length + content + pad + VB_ICRC);
    fill(packet.icrc, 4);
    if (stack == VB_STACK_IB_LOCAL || stack == VB_STACK_IB_GLOBAL)
        fill(packet.vcrc, 2);
    else
        packet.trailer = (struct vb_span){payload, any() % 10};
    return packet;
}

static enum vb_layer layer_of(enum vb_stack stack)
{
    return stack <= VB_STACK_IB_GLOBAL ? VB_LAYER_LRH : VB_LAYER_ETHERNET;
}

static void check_same_span(struct vb_span a, struct vb_span b)
{
    CHECK_EQ(a.length, b.length);
    CHECK(a.length == 0 || memcmp(a.bytes, b.bytes, a.length) == 0);
}

static void check_same(const struct vb_dissection *a, const struct vb_dissection *b)
{
    struct vb_dissection x = *a, y = *b;

    check_same_span(x.payload, y.payload);
    check_same_span(x.pad, y.pad);
    check_same_span(x.trailer, y.trailer);
    check_same_span(x.ipv4.options, y.ipv4.options);
    x.payload = x.pad = x.trailer = x.ipv4.options = (struct vb_span){0};
    y.payload = y.pad = y.trailer = y.ipv4.options = (struct vb_span){0};
    x.bth_offset = y.bth_offset, x.icrc_offset = y.icrc_offset;
    CHECK(memcmp(&x.bth, &y.bth, sizeof x.bth) == 0);
    CHECK(memcmp(&x.reserved, &y.reserved, sizeof x.reserved) == 0);
    CHECK(memcmp(&x.ethernet, &y.ethernet, sizeof x.ethernet) == 0);
    CHECK(memcmp(&x.lrh, &y.lrh, sizeof x.lrh) == 0);
    CHECK(memcmp(&x.grh, &y.grh, sizeof x.grh) == 0);
    CHECK(memcmp(&x.udp, &y.udp, sizeof x.udp) == 0);
    CHECK(x.ipv4.id == y.ipv4.id && x.ipv4.length == y.ipv4.length);
    CHECK(x.ipv4.fragment == y.ipv4.fragment && x.ipv4.checksum == y.ipv4.checksum);
    CHECK(x.ee_context == y.ee_context && x.xrc_srq == y.xrc_srq && x.flush == y.flush);
    CHECK(x.deth.qkey == y.deth.qkey && x.deth.source_qp == y.deth.source_qp);
    CHECK(x.reth.addr == y.reth.addr && x.reth.rkey == y.reth.rkey);
    CHECK(x.reth.length == y.reth.length && x.atomic.addr == y.atomic.addr);
    CHECK(x.atomic.rkey == y.atomic.rkey && x.atomic.swap_add == y.atomic.swap_add);
    CHECK(x.atomic.compare == y.atomic.compare && x.atomic_ack == y.atomic_ack);
    CHECK(x.aeth.kind == y.aeth.kind && x.aeth.value == y.aeth.value && x.aeth.msn == y.aeth.msn);
    CHECK(x.immediate == y.immediate && x.invalidate_rkey == y.invalidate_rkey);
    CHECK(memcmp(x.icrc, y.icrc, 4) == 0 && memcmp(x.vcrc, y.vcrc, 2) == 0);
}

static void check_round_trip(const struct vb_dissection *packet)
{
    uint8_t bytes[ROOM], again[ROOM];
    struct vb_dissection read;
    int n = vb_wire_dissect_write(packet, bytes, sizeof bytes);

    CHECK(n > 0);
    CHECK_EQ(vb_wire_dissect(&read, layer_of(packet->stack), bytes, (uint32_t)n), VB_DISSECT_OK);
    CHECK_EQ(read.stack, packet->stack);
    check_same(packet, &read);
    CHECK_EQ(vb_wire_dissect_write(&read, again, (uint32_t)n), n);
    CHECK(memcmp(bytes, again, (size_t)n) == 0);
    CHECK_EQ(vb_wire_dissect_write(&read, again, (uint32_t)n - 1), -ENOSPC);
}

static void test_every_opcode_in_every_stack(void)
{
    for (int opcode = 0; opcode < 256; opcode++)
        for (int stack = 0; stack < STACKS && vb_opcodes[opcode].name; stack++)
            for (uint32_t content = 0; content < 9; content++) {
                struct vb_dissection packet = any_packet(stack, (uint8_t)opcode, content);
                check_round_trip(&packet);
            }
}

/* In memory of its exact size, so that a sanitizer sees any byte read beyond it. */
static enum vb_dissect_error dissect_exactly(enum vb_layer layer, const uint8_t *bytes, uint32_t n)
{
    uint8_t *copy = malloc(n ? n : 1), again[ROOM], icrc[4];
    struct vb_dissection packet;

    memcpy(copy, bytes, n);
    enum vb_dissect_error error = vb_wire_dissect(&packet, layer, copy, n);
    if (error == VB_DISSECT_OK) {
        CHECK_EQ(vb_wire_dissect_write(&packet, again, sizeof again), n);
        CHECK(memcmp(copy, again, n) == 0);
        vb_wire_dissect_icrc(&packet, copy, icrc);
    } else {
        CHECK(packet.error_offset <= n);
        CHECK(error < VB_DISSECT_ERROR_COUNT);
    }
    free(copy);
    return error;
}

static void test_any_cut_is_an_error(void)
{
    for (int opcode = 0; opcode < 256; opcode++)
        for (int stack = 0; stack < STACKS && vb_opcodes[opcode].name; stack++) {
            uint8_t bytes[ROOM];
            struct vb_dissection packet = any_packet(stack, (uint8_t)opcode, 5);
            packet.trailer.length = 0;
            int n = vb_wire_dissect_write(&packet, bytes, sizeof bytes);
            for (int cut = 0; cut < n; cut++)
                CHECK(dissect_exactly(layer_of(stack), bytes, (uint32_t)cut) != VB_DISSECT_OK);
        }
}

static void test_damage_is_an_error_or_another_packet(void)
{
    for (int round = 0; round < 200000; round++) {
        uint8_t bytes[ROOM], opcode;
        enum vb_stack stack = any() % STACKS;
        do
            opcode = (uint8_t)any();
        while (!vb_opcodes[opcode].name);
        struct vb_dissection packet = any_packet(stack, opcode, any() % 26);
        int n = vb_wire_dissect_write(&packet, bytes, sizeof bytes);
        for (uint32_t flips = 1 + any() % 4; flips > 0; flips--)
            bytes[any() % (uint32_t)n] ^= (uint8_t)(1 << any() % 8);
        dissect_exactly(layer_of(stack), bytes, (uint32_t)n);
    }
}

static void test_noise(void)
{
    for (int round = 0; round < 100000; round++) {
        uint8_t bytes[128];
        fill(bytes, sizeof bytes);
        dissect_exactly(round % 2, bytes, any() % sizeof bytes);
    }
}

/* ---- what is wrong, and where --------------------------------------------------------------- */

enum { AT_IP = 14, AT_UDP = AT_IP + 20, PAYLOAD = 5 };

/* Without VLANs and options, so that each header has one place. */
static struct vb_dissection plain_packet(enum vb_stack stack, uint8_t opcode, uint32_t content)
{
    struct vb_dissection packet = any_packet(stack, opcode, content);

    packet.ethernet.vlans = 0;
    packet.ipv4.length -= (uint16_t)packet.ipv4.options.length;
    packet.ipv4.options.length = packet.trailer.length = 0;
    return packet;
}

static void expect_at(enum vb_stack stack, const uint8_t *bytes, uint32_t n,
                      enum vb_dissect_error error, uint32_t offset)
{
    struct vb_dissection packet;
    enum vb_dissect_error found = vb_wire_dissect(&packet, layer_of(stack), bytes, n);

    if (found != error || packet.error_offset != offset)
        fprintf(stderr, "%u bytes of stack %d: %s at %u, not %s at %u\n", n, stack,
                vb_wire_dissect_error_name(found), packet.error_offset,
                vb_wire_dissect_error_name(error), offset);
    CHECK_EQ(found, error);
    CHECK_EQ(packet.error_offset, offset);
}

/* A byte that becomes another, and what is found then. */
static const struct {
    enum vb_stack stack;
    uint32_t at;
    uint8_t byte;
    enum vb_dissect_error error;
    uint32_t offset;
} damages[] = {
    {VB_STACK_ROCE2_IPV4, 12, 0x12, VB_DISSECT_ETHERNET_TYPE, 12},
    {VB_STACK_ROCE2_IPV4, AT_IP, 0x55, VB_DISSECT_IPV4_VERSION, AT_IP},
    {VB_STACK_ROCE2_IPV4, AT_IP, 0x65, VB_DISSECT_IPV4_VERSION, AT_IP},
    {VB_STACK_ROCE2_IPV4, AT_IP, 0x44, VB_DISSECT_IPV4_HEADER_LENGTH, AT_IP},
    {VB_STACK_ROCE2_IPV4, AT_IP, 0x40, VB_DISSECT_IPV4_HEADER_LENGTH, AT_IP},
    {VB_STACK_ROCE2_IPV4, AT_IP, 0x4f, VB_DISSECT_IPV4_SHORT, AT_IP},
    {VB_STACK_ROCE2_IPV4, AT_IP + 3, 19, VB_DISSECT_IPV4_LENGTH, AT_IP + 2},
    {VB_STACK_ROCE2_IPV4, AT_IP + 3, 53, VB_DISSECT_IPV4_LENGTH, AT_IP + 2},
    {VB_STACK_ROCE2_IPV4, AT_IP + 2, 1, VB_DISSECT_IPV4_LENGTH, AT_IP + 2},
    {VB_STACK_ROCE2_IPV4, AT_IP + 3, 20, VB_DISSECT_UDP_SHORT, AT_UDP},
    {VB_STACK_ROCE2_IPV4, AT_IP + 3, 27, VB_DISSECT_UDP_SHORT, AT_UDP},
    {VB_STACK_ROCE2_IPV4, AT_IP + 3, 28, VB_DISSECT_UDP_LENGTH, AT_UDP + 4},
    {VB_STACK_ROCE2_IPV4, AT_IP + 6, 0x20, VB_DISSECT_IPV4_FRAGMENT, AT_IP + 6},
    {VB_STACK_ROCE2_IPV4, AT_IP + 7, 1, VB_DISSECT_IPV4_FRAGMENT, AT_IP + 6},
    {VB_STACK_ROCE2_IPV4, AT_IP + 9, 6, VB_DISSECT_IPV4_PROTOCOL, AT_IP + 9},
    {VB_STACK_ROCE2_IPV4, AT_UDP + 3, 0xb8, VB_DISSECT_UDP_PORT, AT_UDP + 2},
    {VB_STACK_ROCE2_IPV4, AT_UDP + 5, 31, VB_DISSECT_UDP_LENGTH, AT_UDP + 4},
    {VB_STACK_ROCE2_IPV4, AT_UDP + 5, 33, VB_DISSECT_UDP_LENGTH, AT_UDP + 4},
    {VB_STACK_ROCE2_IPV4, AT_UDP + 8, 0xff, VB_DISSECT_BTH_OPCODE, AT_UDP + 8},
    {VB_STACK_ROCE2_IPV6, AT_IP, 0x45, VB_DISSECT_IPV6_VERSION, AT_IP},
    {VB_STACK_ROCE2_IPV6, AT_IP + 5, 33, VB_DISSECT_IPV6_LENGTH, AT_IP + 4},
    {VB_STACK_ROCE2_IPV6, AT_IP + 5, 7, VB_DISSECT_UDP_SHORT, AT_IP + 40},
    {VB_STACK_ROCE2_IPV6, AT_IP + 5, 31, VB_DISSECT_UDP_LENGTH, AT_IP + 44},
    {VB_STACK_ROCE2_IPV6, AT_IP + 6, 0x1b, VB_DISSECT_IPV6_NEXT_HEADER, AT_IP + 6},
    {VB_STACK_ROCE2_IPV6, AT_IP + 43, 0xb8, VB_DISSECT_UDP_PORT, AT_IP + 42},
    {VB_STACK_ROCE1, AT_IP, 0x45, VB_DISSECT_GRH_VERSION, AT_IP},
    {VB_STACK_ROCE1, AT_IP + 5, 25, VB_DISSECT_GRH_LENGTH, AT_IP + 4},
    {VB_STACK_ROCE1, AT_IP + 6, 17, VB_DISSECT_GRH_NEXT_HEADER, AT_IP + 6},
    {VB_STACK_ROCE1, AT_IP + 5, 11, VB_DISSECT_BTH_SHORT, AT_IP + 40},
    {VB_STACK_ROCE1, AT_IP + 5, 15, VB_DISSECT_ICRC_SHORT, AT_IP + 52},
    {VB_STACK_ROCE1, AT_IP + 5, 18, VB_DISSECT_PAD, AT_IP + 41},
    {VB_STACK_IB_LOCAL, 1, 0x50, VB_DISSECT_LRH_NEXT, 1},
    {VB_STACK_IB_LOCAL, 1, 0x51, VB_DISSECT_LRH_NEXT, 1},
    {VB_STACK_IB_LOCAL, 5, 7, VB_DISSECT_LRH_LENGTH, 4},
    {VB_STACK_IB_LOCAL, 5, 9, VB_DISSECT_LRH_LENGTH, 4},
    {VB_STACK_IB_LOCAL, 8, 0xff, VB_DISSECT_BTH_OPCODE, 8},
    {VB_STACK_IB_GLOBAL, 8, 0x45, VB_DISSECT_GRH_VERSION, 8},
    {VB_STACK_IB_GLOBAL, 48, 0xff, VB_DISSECT_BTH_OPCODE, 48},
};

static void test_each_error_has_its_place(void)
{
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        struct vb_dissection packet = plain_packet(damages[i].stack, 0x04, PAYLOAD);
        uint8_t bytes[ROOM];
        int n = vb_wire_dissect_write(&packet, bytes, sizeof bytes);

        expect_at(damages[i].stack, bytes, (uint32_t)n, VB_DISSECT_OK, 0);
        bytes[damages[i].at] = damages[i].byte;
        expect_at(damages[i].stack, bytes, (uint32_t)n, damages[i].error, damages[i].offset);
    }
}

/* The headers below the transport, cut off at each byte. */
static void test_each_cut_has_its_place(void)
{
    static const struct {
        enum vb_stack stack;
        uint32_t header;
        enum vb_dissect_error error, behind; /* within this header, and behind it */
        uint32_t offset;
    } cuts[] = {
        {VB_STACK_ROCE2_IPV4, 20, VB_DISSECT_IPV4_SHORT, VB_DISSECT_IPV4_LENGTH, 2},
        {VB_STACK_ROCE2_IPV6, 40, VB_DISSECT_IPV6_SHORT, VB_DISSECT_IPV6_LENGTH, 4},
        {VB_STACK_ROCE1, 40, VB_DISSECT_GRH_SHORT, VB_DISSECT_GRH_LENGTH, 4},
    };

    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct vb_dissection packet = plain_packet(cuts[i].stack, 0x04, PAYLOAD);
        uint8_t bytes[ROOM];
        uint32_t n = (uint32_t)vb_wire_dissect_write(&packet, bytes, sizeof bytes);

        for (uint32_t cut = 0; cut < n; cut++)
            if (cut < AT_IP)
                expect_at(cuts[i].stack, bytes, cut, VB_DISSECT_ETHERNET_SHORT, 0);
            else if (cut < AT_IP + cuts[i].header)
                expect_at(cuts[i].stack, bytes, cut, cuts[i].error, AT_IP);
            else
                expect_at(cuts[i].stack, bytes, cut, cuts[i].behind, AT_IP + cuts[i].offset);
    }
}

/* Within the transport, in a datagram of fitting length: an ACK, with an AETH and two pad bytes. */
static void test_each_cut_of_the_transport(void)
{
    struct vb_dissection packet = plain_packet(VB_STACK_ROCE2_IPV4, 0x10, 2);
    const uint32_t bth = AT_UDP + 8;
    uint8_t bytes[ROOM];
    int whole = vb_wire_dissect_write(&packet, bytes, sizeof bytes);

    CHECK_EQ(whole, bth + 12 + 4 + 2 + 2 + 4);
    for (uint32_t n = 0; n <= (uint32_t)whole - AT_UDP; n++) {
        vb_wire_put16(bytes + AT_IP + 2, (uint16_t)(20 + n));
        vb_wire_put16(bytes + AT_UDP + 4, (uint16_t)n);
        if (n < 8)
            expect_at(packet.stack, bytes, (uint32_t)whole, VB_DISSECT_UDP_SHORT, AT_UDP);
        else if (n < 8 + 12)
            expect_at(packet.stack, bytes, (uint32_t)whole, VB_DISSECT_BTH_SHORT, bth);
        else if (n < 8 + 12 + 4)
            expect_at(packet.stack, bytes, (uint32_t)whole, VB_DISSECT_EXTENDED_SHORT, bth + 12);
        else if (n < 8 + 12 + 4 + 4)
            expect_at(packet.stack, bytes, (uint32_t)whole, VB_DISSECT_ICRC_SHORT, bth + 16);
        else if (n < 8 + 12 + 4 + 2 + 4)
            expect_at(packet.stack, bytes, (uint32_t)whole, VB_DISSECT_PAD, bth + 1);
        else
            expect_at(packet.stack, bytes, (uint32_t)whole, VB_DISSECT_OK, 0);
    }
}

static void test_cuts_of_infiniband(void)
{
    struct vb_dissection packet = plain_packet(VB_STACK_IB_GLOBAL, 0x04, PAYLOAD);
    uint8_t bytes[ROOM];
    int n = vb_wire_dissect_write(&packet, bytes, sizeof bytes);

    for (uint32_t cut = 0; cut < (uint32_t)n; cut++) {
        bool fits = cut > 8 && cut % 4 == 2; /* what the length in words can say */

        vb_wire_put16(bytes + 4, (uint16_t)(cut / 4));
        if (cut < 8)
            expect_at(packet.stack, bytes, cut, VB_DISSECT_LRH_SHORT, 0);
        else if (!fits)
            expect_at(packet.stack, bytes, cut, VB_DISSECT_LRH_LENGTH, 4);
        else if (cut < 8 + 40)
            expect_at(packet.stack, bytes, cut, VB_DISSECT_GRH_SHORT, 8);
        else if (cut < 8 + 40 + 12 + 2)
            expect_at(packet.stack, bytes, cut, VB_DISSECT_BTH_SHORT, 48);
        else if (cut < 8 + 40 + 12 + 4 + 2)
            expect_at(packet.stack, bytes, cut, VB_DISSECT_ICRC_SHORT, 60);
    }
}

static void test_vlans(void)
{
    struct vb_dissection packet = plain_packet(VB_STACK_ROCE2_IPV6, 0x04, PAYLOAD);
    uint8_t bytes[ROOM], tagged[ROOM];
    uint32_t n = (uint32_t)vb_wire_dissect_write(&packet, bytes, sizeof bytes);

    for (uint32_t vlans = 1; vlans < 5; vlans++) {
        memcpy(tagged, bytes, 12);
        for (uint32_t i = 0; i < vlans; i++)
            memcpy(tagged + 12 + 4 * i, i % 2 ? "\x81\x00\x12\x34" : "\x88\xa8\x56\x78", 4);
        memcpy(tagged + 12 + 4 * vlans, bytes + 12, n - 12);
        if (vlans > 2)
            expect_at(packet.stack, tagged, n + 4 * vlans, VB_DISSECT_ETHERNET_VLANS, 14 + 8);
        else
            expect_at(packet.stack, tagged, n + 4 * vlans, VB_DISSECT_OK, 0);
        for (uint32_t cut = 14; cut < 14 + 4 * vlans && vlans < 3; cut++)
            expect_at(packet.stack, tagged, cut, VB_DISSECT_ETHERNET_SHORT,
                      14 + (cut - 14) / 4 * 4);
        tagged[12 + 4 * vlans] ^= 0x10;
        if (vlans < 3)
            expect_at(packet.stack, tagged, n + 4 * vlans, VB_DISSECT_ETHERNET_TYPE,
                      12 + 4 * vlans);
    }
}

/* ---- the ICRC ------------------------------------------------------------------------------- */

static uint32_t by_bits(uint32_t crc, const uint8_t *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return crc;
}

/* Of the bytes from `begin`, in which what a switch or a router may change counts as ones. */
static void check_icrc(const struct vb_dissection *packet, uint8_t *bytes)
{
    static const uint8_t ones[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    const bool local = packet->stack == VB_STACK_IB_LOCAL;
    uint32_t ip = packet->stack == VB_STACK_IB_GLOBAL ? 8 : 14 + 4 * packet->ethernet.vlans;
    uint8_t icrc[4];

    vb_wire_dissect_icrc(packet, bytes, icrc);
    if (local) {
        ip = 0;
        bytes[0] |= 0xf0;
    } else if (packet->stack == VB_STACK_ROCE2_IPV4) {
        bytes[ip + 1] = bytes[ip + 8] = bytes[ip + 10] = bytes[ip + 11] = 0xff;
    } else {
        bytes[ip] |= 0x0f;
        bytes[ip + 1] = bytes[ip + 2] = bytes[ip + 3] = bytes[ip + 7] = 0xff;
    }
    if (packet->stack >= VB_STACK_ROCE2_IPV4)
        bytes[packet->bth_offset - 1] = bytes[packet->bth_offset - 2] = 0xff;
    bytes[packet->bth_offset + 4] = 0xff;
    const uint32_t expected =
        ~by_bits(by_bits(0xffffffff, ones, local ? 0 : 8), bytes + ip, packet->icrc_offset - ip);
    CHECK_EQ((uint32_t)icrc[3] << 24 | icrc[2] << 16 | icrc[1] << 8 | icrc[0], expected);
}

static void test_the_icrc_of_each_stack(void)
{
    for (int round = 0; round < 2000; round++) {
        struct vb_dissection packet = any_packet(round % STACKS, 0x04, any() % 26), read;
        uint8_t bytes[ROOM];
        int n = vb_wire_dissect_write(&packet, bytes, sizeof bytes);

        CHECK_EQ(vb_wire_dissect(&read, layer_of(packet.stack), bytes, (uint32_t)n), 0);
        check_icrc(&read, bytes);
    }
}

static void test_what_cannot_be_written(void)
{
    uint8_t bytes[ROOM];
    const struct vb_dissection good = any_packet(VB_STACK_ROCE2_IPV4, 0x04, 6);
    struct vb_dissection bad[5] = {good, good, good, good, good};

    bad[0].bth.opcode = 0xff;
    bad[1].ethernet.vlans = 3;
    bad[2].ipv4.options.length = 5;
    bad[3].pad.length = 1;
    bad[4].stack = (enum vb_stack)STACKS;
    CHECK(vb_wire_dissect_write(&good, bytes, sizeof bytes) > 0);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(vb_wire_dissect_write(&bad[i], bytes, sizeof bytes), -EINVAL);
}

/* As many options as IPv4 may have, and more; and a length that no int has. */
static void test_the_most_that_can_be_written(void)
{
    static const uint8_t most[44] = {1, 1, 1};
    struct vb_dissection packet = plain_packet(VB_STACK_ROCE2_IPV4, 0x04, 6);
    uint8_t bytes[ROOM];

    for (uint32_t length = 0; length <= 44; length++) {
        packet.ipv4.options = (struct vb_span){most, length};
        CHECK_EQ(vb_wire_dissect_write(&packet, bytes, sizeof bytes),
                 length > 40 || length % 4 ? -EINVAL
                                           : (int)(14 + 20 + length + 8 + 12 + 8 + VB_ICRC));
    }
    packet.ipv4.options.length = 0;
    packet.payload.length = INT32_MAX;
    CHECK_EQ(vb_wire_dissect_write(&packet, bytes, UINT32_MAX), -ENOSPC);
    packet.payload.length = UINT32_MAX;
    CHECK_EQ(vb_wire_dissect_write(&packet, bytes, UINT32_MAX), -ENOSPC);
}

static void test_errors_have_names(void)
{
    CHECK(strcmp(vb_wire_dissect_error_name(VB_DISSECT_PAD), "PAD") == 0);
    CHECK(strcmp(vb_wire_dissect_error_name(VB_DISSECT_OK), "OK") == 0);
    CHECK(strstr(vb_wire_dissect_error_text(VB_DISSECT_UDP_PORT), "4791"));
    CHECK(strcmp(vb_wire_dissect_error_name(VB_DISSECT_ERROR_COUNT), "UNKNOWN") == 0);
    CHECK(strcmp(vb_wire_dissect_error_text(VB_DISSECT_ERROR_COUNT), "unknown error") == 0);
    CHECK(strcmp(vb_wire_dissect_error_text(VB_DISSECT_OK), "no error") == 0);
}

int main(void)
{
    RUN(test_every_opcode_in_every_stack);
    RUN(test_any_cut_is_an_error);
    RUN(test_damage_is_an_error_or_another_packet);
    RUN(test_noise);
    RUN(test_each_error_has_its_place);
    RUN(test_each_cut_has_its_place);
    RUN(test_each_cut_of_the_transport);
    RUN(test_cuts_of_infiniband);
    RUN(test_vlans);
    RUN(test_the_icrc_of_each_stack);
    RUN(test_what_cannot_be_written);
    RUN(test_the_most_that_can_be_written);
    RUN(test_errors_have_names);
    return 0;
}
