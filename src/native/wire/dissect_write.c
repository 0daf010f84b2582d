// SPDX-License-Identifier: Apache-2.0
/* Writes a vb_dissection's bytes (dissect.h). verbena.wire calls it. */
#include <errno.h>
#include <limits.h>

#include "wire/dissect.h"
#include "wire/dissect_fields.h"
#include "wire/opcode.h"

static uint8_t *write_span(uint8_t *at, struct vb_span span)
{
    if (span.length > 0)
        memcpy(at, span.bytes, span.length);
    return at + span.length;
}

static uint8_t *write_transport(uint8_t *at, const struct vb_dissection *packet)
{
    const uint32_t flags = vb_opcodes[packet->bth.opcode].flags;

    at = vb_wire_write_bth(at, packet);
    if (flags & VB_OPCODE_RDETH)
        at = vb_wire_write_rdeth(at, packet);
    if (flags & VB_OPCODE_DETH)
        at = vb_wire_write_deth(at, packet);
    if (flags & VB_OPCODE_XRCETH)
        at = vb_wire_write_xrceth(at, packet);
    if (flags & VB_OPCODE_FETH)
        at = vb_wire_write_feth(at, packet);
    if (flags & VB_OPCODE_RETH)
        at = vb_wire_write_reth(at, packet);
    if (flags & VB_OPCODE_ATOMICETH)
        at = vb_wire_write_atomiceth(at, packet);
    if (flags & VB_OPCODE_AETH)
        at = vb_wire_write_aeth(at, packet);
    if (flags & VB_OPCODE_ATOMICACKETH)
        at = vb_wire_write_atomicacketh(at, packet);
    if (flags & VB_OPCODE_IMM)
        at = vb_wire_write_imm(at, packet);
    if (flags & VB_OPCODE_IETH)
        at = vb_wire_write_ieth(at, packet);
    at = write_span(write_span(at, packet->payload), packet->pad);
    memcpy(at, packet->icrc, VB_ICRC);
    return at + VB_ICRC;
}

static uint8_t *write_ethernet(uint8_t *at, const struct vb_ethernet *ethernet)
{
    memcpy(at, ethernet->target, 6);
    memcpy(at + 6, ethernet->source, 6);
    at += 12;
    for (uint32_t i = 0; i < ethernet->vlans; i++, at += VB_VLAN) {
        vb_wire_put16(at, ethernet->vlan[i].type);
        vb_wire_put16(at + 2, ethernet->vlan[i].tag);
    }
    vb_wire_put16(at, ethernet->type);
    return at + 2;
}

static uint8_t *dissect_write_write_ipv4(uint8_t *at, const struct vb_ipv4 *ipv4)
{
    vb_wire_write_ipv4(at, ipv4);
    return write_span(at + VB_IPV4, ipv4->options);
}

static uint8_t *dissect_write_write_grh(uint8_t *at, const struct vb_grh *grh)
{
    vb_wire_write_grh(at, grh);
    return at + VB_GRH;
}

static uint8_t *write_carriers(uint8_t *at, const struct vb_dissection *packet)
{
    const enum vb_stack stack = packet->stack;

    if (stack == VB_STACK_IB_LOCAL || stack == VB_STACK_IB_GLOBAL) {
        vb_wire_write_lrh(at, &packet->lrh);
        at += VB_LRH;
    } else {
        at = write_ethernet(at, &packet->ethernet);
    }
    if (stack == VB_STACK_ROCE2_IPV4)
        at = dissect_write_write_ipv4(at, &packet->ipv4);
    else if (stack != VB_STACK_IB_LOCAL)
        at = dissect_write_write_grh(at, &packet->grh);
    if (stack == VB_STACK_ROCE2_IPV4 || stack == VB_STACK_ROCE2_IPV6) {
        vb_wire_write_udp(at, &packet->udp);
        at += VB_UDP;
    }
    return at;
}

static uint64_t carriers_length(const struct vb_dissection *packet)
{
    const uint64_t ethernet = VB_ETHERNET + (uint64_t)VB_VLAN * packet->ethernet.vlans;

    switch (packet->stack) {
    case VB_STACK_IB_LOCAL:
        return VB_LRH;
    case VB_STACK_IB_GLOBAL:
        return VB_LRH + VB_GRH;
    case VB_STACK_ROCE1:
        return ethernet + VB_GRH;
    case VB_STACK_ROCE2_IPV4:
        return ethernet + VB_IPV4 + packet->ipv4.options.length + VB_UDP;
    case VB_STACK_ROCE2_IPV6:
        break;
    }
    return ethernet + VB_GRH + VB_UDP;
}

static int dissect_write_check(const struct vb_dissection *packet)
{
    if ((unsigned)packet->stack > VB_STACK_ROCE2_IPV6 || !vb_opcodes[packet->bth.opcode].name ||
        packet->ethernet.vlans > VB_VLANS || packet->ipv4.options.length > VB_IPV4_OPTIONS ||
        packet->ipv4.options.length % 4 != 0 || packet->bth.pad != packet->pad.length)
        return -EINVAL;
    return 0;
}

int vb_wire_dissect_write(const struct vb_dissection *packet, uint8_t *to, uint32_t size)
{
    const bool infiniband =
        packet->stack == VB_STACK_IB_LOCAL || packet->stack == VB_STACK_IB_GLOBAL;
    int error = dissect_write_check(packet);

    if (error)
        return error;
    uint64_t length = carriers_length(packet) + vb_opcodes[packet->bth.opcode].header_length +
                      packet->payload.length + packet->pad.length + VB_ICRC +
                      (infiniband ? VB_VCRC : packet->trailer.length);
    if (length > size || length > INT_MAX)
        return -ENOSPC;
    uint8_t *at = write_transport(write_carriers(to, packet), packet);
    if (infiniband)
        memcpy(at, packet->vcrc, VB_VCRC);
    else
        write_span(at, packet->trailer);
    return (int)length;
}
