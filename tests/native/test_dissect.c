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

static void test_errors_have_names(void)
{
    CHECK(strcmp(vb_wire_dissect_error_name(VB_DISSECT_PAD), "PAD") == 0);
    CHECK(strcmp(vb_wire_dissect_error_name(VB_DISSECT_OK), "OK") == 0);
    CHECK(strstr(vb_wire_dissect_error_text(VB_DISSECT_UDP_PORT), "4791"));
    CHECK(strcmp(vb_wire_dissect_error_name(VB_DISSECT_ERROR_COUNT), "UNKNOWN") == 0);
}

int main(void)
{
    RUN(test_every_opcode_in_every_stack);
    RUN(test_any_cut_is_an_error);
    RUN(test_damage_is_an_error_or_another_packet);
    RUN(test_noise);
    RUN(test_what_cannot_be_written);
    RUN(test_errors_have_names);
    return 0;
}
