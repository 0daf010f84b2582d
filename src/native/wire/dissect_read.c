// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a packet's bytes into a vb_dissection (dissect.h). verbena.wire calls it. No byte outside
 * the given ones is read.
 */
#include "wire/dissect_fields.h"
#include "wire/icrc.h"
#include "wire/opcode.h"

#define TRY(step)                                                                                  \
    do {                                                                                           \
        enum vb_dissect_error error_ = (step);                                                     \
        if (error_ != VB_DISSECT_OK)                                                               \
            return error_;                                                                         \
    } while (0)

/* The bytes that are still to be read. */
struct reader {
    struct vb_dissection *packet;
    const uint8_t *bytes;
    uint32_t at, end;
};

static enum vb_dissect_error dissect_fail(struct reader *reader, enum vb_dissect_error error,
                                          uint32_t offset)
{
    reader->packet->error_offset = offset;
    return error;
}

/* Takes the next n bytes; NULL: fewer are left. */
static const uint8_t *dissect_take(struct reader *reader, uint32_t n)
{
    if (reader->end - reader->at < n)
        return NULL;
    reader->at += n;
    return reader->bytes + reader->at - n;
}

static struct vb_span dissect_span(struct reader *reader, uint32_t n)
{
    return (struct vb_span){dissect_take(reader, n), n};
}

/* ---- the transport -------------------------------------------------------------------------- */

/* RDETH to ATOMICETH, which requests have; returns where the next header is. */
static const uint8_t *read_request_headers(struct vb_dissection *packet, uint32_t flags,
                                           const uint8_t *at)
{
    if (flags & VB_OPCODE_RDETH) {
        packet->reserved.rdeth = at[0];
        packet->ee_context = vb_wire_get24(at + 1);
        at += VB_RDETH;
    }
    if (flags & VB_OPCODE_DETH) {
        packet->deth = vb_wire_deth_read(at);
        packet->reserved.deth = at[4];
        at += VB_DETH;
    }
    if (flags & VB_OPCODE_XRCETH) {
        packet->reserved.xrceth = at[0];
        packet->xrc_srq = vb_wire_xrceth_read(at);
        at += VB_XRCETH;
    }
    if (flags & VB_OPCODE_FETH) {
        packet->flush = vb_wire_get32(at);
        at += VB_FETH;
    }
    if (flags & VB_OPCODE_RETH) {
        packet->reth = vb_wire_reth_read(at);
        at += VB_RETH;
    }
    if (flags & VB_OPCODE_ATOMICETH) /* no other header follows it */
        packet->atomic = vb_wire_atomiceth_read(at);
    return at;
}

static void read_extended(struct vb_dissection *packet, uint32_t flags, const uint8_t *at)
{
    at = read_request_headers(packet, flags, at);
    if (flags & VB_OPCODE_AETH) {
        packet->aeth = vb_wire_aeth_read(at);
        at += VB_AETH;
    }
    /* At most one of these is there, behind all others. */
    if (flags & VB_OPCODE_ATOMICACKETH)
        packet->atomic_ack = vb_wire_get64(at);
    if (flags & VB_OPCODE_IMM)
        packet->immediate = vb_wire_get32(at);
    if (flags & VB_OPCODE_IETH)
        packet->invalidate_rkey = vb_wire_get32(at);
}

/* From the BTH to the ICRC, which ends at reader->end. */
static enum vb_dissect_error read_transport(struct reader *reader)
{
    struct vb_dissection *packet = reader->packet;
    const uint8_t *bth = dissect_take(reader, VB_BTH);

    if (!bth)
        return dissect_fail(reader, VB_DISSECT_BTH_SHORT, reader->at);
    packet->bth_offset = reader->at - VB_BTH;
    vb_wire_read_bth(packet, bth);
    const struct vb_opcode *opcode = &vb_opcodes[packet->bth.opcode];
    if (!opcode->name)
        return dissect_fail(reader, VB_DISSECT_BTH_OPCODE, packet->bth_offset);
    const uint8_t *extended = dissect_take(reader, opcode->header_length - VB_BTH);
    if (!extended)
        return dissect_fail(reader, VB_DISSECT_EXTENDED_SHORT, reader->at);
    read_extended(packet, opcode->flags, extended);
    if (reader->end - reader->at < VB_ICRC)
        return dissect_fail(reader, VB_DISSECT_ICRC_SHORT, reader->at);
    const uint32_t rest = reader->end - reader->at - VB_ICRC;
    if (rest < packet->bth.pad)
        return dissect_fail(reader, VB_DISSECT_PAD, packet->bth_offset + 1);
    packet->payload = dissect_span(reader, rest - packet->bth.pad);
    packet->pad = dissect_span(reader, packet->bth.pad);
    packet->icrc_offset = reader->at;
    memcpy(packet->icrc, dissect_take(reader, VB_ICRC), VB_ICRC);
    return VB_DISSECT_OK;
}

/* ---- what carries it ------------------------------------------------------------------------ */

static enum vb_dissect_error read_udp(struct reader *reader)
{
    const uint32_t begin = reader->at, length = reader->end - begin;
    const uint8_t *udp = dissect_take(reader, VB_UDP);

    if (!udp)
        return dissect_fail(reader, VB_DISSECT_UDP_SHORT, begin);
    vb_wire_read_udp(&reader->packet->udp, udp);
    if (reader->packet->udp.target_port != VB_ROCE_PORT)
        return dissect_fail(reader, VB_DISSECT_UDP_PORT, begin + 2);
    if (reader->packet->udp.length != length)
        return dissect_fail(reader, VB_DISSECT_UDP_LENGTH, begin + 4);
    return read_transport(reader);
}

static enum vb_dissect_error check_ipv4(struct reader *reader, uint32_t begin, uint32_t header)
{
    const struct vb_ipv4 *ipv4 = &reader->packet->ipv4;

    if (ipv4->length < header || ipv4->length > reader->end - begin)
        return dissect_fail(reader, VB_DISSECT_IPV4_LENGTH, begin + 2);
    if (ipv4->fragment & VB_IPV4_FRAGMENTED)
        return dissect_fail(reader, VB_DISSECT_IPV4_FRAGMENT, begin + 6);
    if (ipv4->protocol != VB_UDP_PROTOCOL)
        return dissect_fail(reader, VB_DISSECT_IPV4_PROTOCOL, begin + 9);
    return VB_DISSECT_OK;
}

static enum vb_dissect_error read_ipv4(struct reader *reader)
{
    struct vb_ipv4 *ipv4 = &reader->packet->ipv4;
    const uint32_t begin = reader->at;
    const uint8_t *ip = dissect_take(reader, VB_IPV4);

    if (!ip)
        return dissect_fail(reader, VB_DISSECT_IPV4_SHORT, begin);
    if (ip[0] >> 4 != 4)
        return dissect_fail(reader, VB_DISSECT_IPV4_VERSION, begin);
    const uint32_t header = (ip[0] & 0xfu) * 4;
    if (header < VB_IPV4)
        return dissect_fail(reader, VB_DISSECT_IPV4_HEADER_LENGTH, begin);
    ipv4->options = dissect_span(reader, header - VB_IPV4);
    if (!ipv4->options.bytes)
        return dissect_fail(reader, VB_DISSECT_IPV4_SHORT, begin);
    vb_wire_read_ipv4(ipv4, ip);
    TRY(check_ipv4(reader, begin, header));
    reader->packet->stack = VB_STACK_ROCE2_IPV4;
    reader->end = begin + ipv4->length;
    return read_udp(reader);
}

static enum vb_dissect_error read_ipv6(struct reader *reader)
{
    struct vb_grh *ipv6 = &reader->packet->grh;
    const uint32_t begin = reader->at;
    const uint8_t *ip = dissect_take(reader, VB_GRH);

    if (!ip)
        return dissect_fail(reader, VB_DISSECT_IPV6_SHORT, begin);
    vb_wire_read_grh(ipv6, ip);
    if (ipv6->version != 6)
        return dissect_fail(reader, VB_DISSECT_IPV6_VERSION, begin);
    if (ipv6->length > reader->end - reader->at)
        return dissect_fail(reader, VB_DISSECT_IPV6_LENGTH, begin + 4);
    if (ipv6->next_header != VB_UDP_PROTOCOL)
        return dissect_fail(reader, VB_DISSECT_IPV6_NEXT_HEADER, begin + 6);
    reader->packet->stack = VB_STACK_ROCE2_IPV6;
    reader->end = reader->at + ipv6->length;
    return read_udp(reader);
}

static enum vb_dissect_error read_grh(struct reader *reader)
{
    const uint32_t begin = reader->at;
    const uint8_t *grh = dissect_take(reader, VB_GRH);

    if (!grh)
        return dissect_fail(reader, VB_DISSECT_GRH_SHORT, begin);
    vb_wire_read_grh(&reader->packet->grh, grh);
    if (reader->packet->grh.version != 6)
        return dissect_fail(reader, VB_DISSECT_GRH_VERSION, begin);
    return VB_DISSECT_OK;
}

static enum vb_dissect_error read_roce1(struct reader *reader)
{
    const struct vb_grh *grh = &reader->packet->grh;
    const uint32_t begin = reader->at;

    TRY(read_grh(reader));
    if (grh->length > reader->end - reader->at)
        return dissect_fail(reader, VB_DISSECT_GRH_LENGTH, begin + 4);
    if (grh->next_header != VB_GRH_IS_TRANSPORT)
        return dissect_fail(reader, VB_DISSECT_GRH_NEXT_HEADER, begin + 6);
    reader->packet->stack = VB_STACK_ROCE1;
    reader->end = reader->at + grh->length;
    return read_transport(reader);
}

static enum vb_dissect_error read_vlans(struct reader *reader, uint16_t *type)
{
    struct vb_ethernet *ethernet = &reader->packet->ethernet;

    while (*type == VB_TYPE_VLAN || *type == VB_TYPE_SERVICE_VLAN) {
        const uint8_t *tag = dissect_take(reader, VB_VLAN);
        if (!tag)
            return dissect_fail(reader, VB_DISSECT_ETHERNET_SHORT, reader->at);
        if (ethernet->vlans == VB_VLANS)
            return dissect_fail(reader, VB_DISSECT_ETHERNET_VLANS, reader->at - VB_VLAN);
        ethernet->vlan[ethernet->vlans++] = (struct vb_vlan){*type, vb_wire_get16(tag)};
        *type = vb_wire_get16(tag + 2);
    }
    return VB_DISSECT_OK;
}

static enum vb_dissect_error read_ethernet(struct reader *reader)
{
    struct vb_ethernet *ethernet = &reader->packet->ethernet;
    const uint8_t *header = dissect_take(reader, VB_ETHERNET);

    if (!header)
        return dissect_fail(reader, VB_DISSECT_ETHERNET_SHORT, 0);
    memcpy(ethernet->target, header, 6);
    memcpy(ethernet->source, header + 6, 6);
    ethernet->type = vb_wire_get16(header + 12);
    TRY(read_vlans(reader, &ethernet->type));
    switch (ethernet->type) {
    case VB_TYPE_IPV4:
        return read_ipv4(reader);
    case VB_TYPE_IPV6:
        return read_ipv6(reader);
    case VB_TYPE_ROCE1:
        return read_roce1(reader);
    default:
        return dissect_fail(reader, VB_DISSECT_ETHERNET_TYPE, reader->at - 2);
    }
}

static enum vb_dissect_error read_frame(struct reader *reader, uint32_t length)
{
    TRY(read_ethernet(reader));
    reader->end = length;
    reader->packet->trailer = dissect_span(reader, length - reader->at);
    return VB_DISSECT_OK;
}

static enum vb_dissect_error read_infiniband(struct reader *reader)
{
    struct vb_dissection *packet = reader->packet;
    const uint8_t *lrh = dissect_take(reader, VB_LRH);

    if (!lrh)
        return dissect_fail(reader, VB_DISSECT_LRH_SHORT, 0);
    vb_wire_read_lrh(&packet->lrh, lrh);
    if (packet->lrh.next != VB_LRH_BTH_IS_NEXT && packet->lrh.next != VB_LRH_GRH_IS_NEXT)
        return dissect_fail(reader, VB_DISSECT_LRH_NEXT, 1);
    if (packet->lrh.length * 4u + VB_VCRC != reader->end)
        return dissect_fail(reader, VB_DISSECT_LRH_LENGTH, 4);
    const bool is_global = packet->lrh.next == VB_LRH_GRH_IS_NEXT;
    packet->stack = is_global ? VB_STACK_IB_GLOBAL : VB_STACK_IB_LOCAL;
    if (is_global)
        TRY(read_grh(reader));
    reader->end -= VB_VCRC;
    TRY(read_transport(reader));
    memcpy(packet->vcrc, reader->bytes + reader->end, VB_VCRC);
    return VB_DISSECT_OK;
}

enum vb_dissect_error vb_wire_dissect(struct vb_dissection *packet, enum vb_layer layer,
                                      const uint8_t *bytes, uint32_t length)
{
    struct reader reader = {packet, bytes, 0, length};

    memset(packet, 0, sizeof(*packet));
    return layer == VB_LAYER_LRH ? read_infiniband(&reader) : read_frame(&reader, length);
}

/* ---- sums and names ------------------------------------------------------------------------- */

static uint32_t start_register(const struct vb_dissection *packet, const uint8_t *bytes)
{
    const uint8_t *bth = bytes + packet->bth_offset, *udp = bth - VB_UDP;
    const uint32_t ip_length = VB_IPV4 + packet->ipv4.options.length;

    switch (packet->stack) {
    case VB_STACK_ROCE2_IPV4:
        return vb_wire_icrc_start_ipv4(udp - ip_length, ip_length, udp);
    case VB_STACK_ROCE2_IPV6:
        return vb_wire_icrc_start_ipv6(udp - VB_GRH, udp);
    case VB_STACK_IB_LOCAL:
        return vb_wire_icrc_start_lrh(bytes, NULL);
    case VB_STACK_IB_GLOBAL:
    case VB_STACK_ROCE1:
        break;
    }
    return vb_wire_icrc_start_grh(bth - VB_GRH);
}

void vb_wire_dissect_icrc(const struct vb_dissection *packet, const uint8_t *bytes, uint8_t icrc[4])
{
    const uint32_t start = start_register(packet, bytes);
    const uint32_t length = packet->icrc_offset - packet->bth_offset;

    vb_wire_icrc_write(icrc, vb_wire_icrc_transport(start, bytes + packet->bth_offset, length));
}

#define NAME(name, text) #name,
static const char *const names[] = {VB_DISSECT_ERRORS(NAME)};
#undef NAME
#define TEXT(name, text) text,
static const char *const texts[] = {VB_DISSECT_ERRORS(TEXT)};
#undef TEXT

const char *vb_wire_dissect_error_name(enum vb_dissect_error error)
{
    return error < VB_DISSECT_ERROR_COUNT ? names[error] : "UNKNOWN";
}

const char *vb_wire_dissect_error_text(enum vb_dissect_error error)
{
    return error < VB_DISSECT_ERROR_COUNT ? texts[error] : "unknown error";
}
