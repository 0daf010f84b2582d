// SPDX-License-Identifier: Apache-2.0
/*
 * A whole packet, from its first byte on the link, as numbers; and back to the same bytes.
 *
 * For captures, tools and tests; the engine reads its own headers (headers.h). Every bound is
 * checked, so any bytes may come in. What is well delimited but against the protocol (a payload on
 * an ACK, a reserved bit) is not an error: it is there to be seen, and to be written back.
 */
#ifndef VB_WIRE_DISSECT_H
#define VB_WIRE_DISSECT_H

#include <stdint.h>

#include "wire/headers.h"

enum vb_layer {
    VB_LAYER_ETHERNET, /* from the destination address, without the frame check sequence */
    VB_LAYER_LRH,      /* InfiniBand, up to the VCRC */
};

enum vb_stack {
    VB_STACK_IB_LOCAL,
    VB_STACK_IB_GLOBAL,
    VB_STACK_ROCE1,
    VB_STACK_ROCE2_IPV4,
    VB_STACK_ROCE2_IPV6,
};

/* Why bytes are not a packet: X(name, what is wrong). */
#define VB_DISSECT_ERRORS(X)                                                                       \
    X(OK, "no error")                                                                              \
    X(ETHERNET_SHORT, "the Ethernet header is cut off")                                            \
    X(ETHERNET_VLANS, "more than two VLAN tags")                                                   \
    X(ETHERNET_TYPE, "the Ethernet type is neither IPv4, IPv6 nor RoCE v1")                        \
    X(IPV4_SHORT, "the IPv4 header is cut off")                                                    \
    X(IPV4_VERSION, "the IP version is not 4")                                                     \
    X(IPV4_HEADER_LENGTH, "the IPv4 header length is below 20 bytes")                              \
    X(IPV4_LENGTH, "the IPv4 total length does not fit the header or the frame")                   \
    X(IPV4_FRAGMENT, "a fragment of an IPv4 packet")                                               \
    X(IPV4_PROTOCOL, "the IPv4 protocol is not UDP")                                               \
    X(IPV6_SHORT, "the IPv6 header is cut off")                                                    \
    X(IPV6_VERSION, "the IP version is not 6")                                                     \
    X(IPV6_LENGTH, "the IPv6 payload length is beyond the frame")                                  \
    X(IPV6_NEXT_HEADER, "the IPv6 next header is not UDP")                                         \
    X(UDP_SHORT, "the UDP header is cut off")                                                      \
    X(UDP_PORT, "the UDP destination port is not 4791")                                            \
    X(UDP_LENGTH, "the UDP length is not that of the IP payload")                                  \
    X(LRH_SHORT, "the local route header is cut off")                                              \
    X(LRH_NEXT, "no InfiniBand transport follows the local route header (raw packet)")             \
    X(LRH_LENGTH, "the packet length of the local route header is not that of the packet")         \
    X(GRH_SHORT, "the global route header is cut off")                                             \
    X(GRH_VERSION, "the IP version of the global route header is not 6")                           \
    X(GRH_LENGTH, "the payload length of the global route header is beyond the frame")             \
    X(GRH_NEXT_HEADER, "the next header of the global route header is not InfiniBand")             \
    X(BTH_SHORT, "the base transport header is cut off")                                           \
    X(BTH_OPCODE, "no such opcode")                                                                \
    X(EXTENDED_SHORT, "an extended transport header is cut off")                                   \
    X(ICRC_SHORT, "the ICRC is cut off")                                                           \
    X(PAD, "more pad bytes than follow the headers")

#define VB_DISSECT_NAME(name, text) VB_DISSECT_##name,
enum vb_dissect_error { VB_DISSECT_ERRORS(VB_DISSECT_NAME) VB_DISSECT_ERROR_COUNT };
#undef VB_DISSECT_NAME

const char *vb_wire_dissect_error_name(enum vb_dissect_error error); /* "IPV4_SHORT" */
const char *vb_wire_dissect_error_text(enum vb_dissect_error error);

struct vb_span {
    const uint8_t *bytes;
    uint32_t length;
};

enum { VB_VLANS = 2, VB_IPV4_OPTIONS = 40 };

struct vb_vlan {
    uint16_t type; /* 0x8100 or 0x88a8 */
    uint16_t tag;  /* priority, drop eligible, VLAN number */
};

struct vb_ethernet {
    uint8_t target[6], source[6];
    uint32_t vlans;
    struct vb_vlan vlan[VB_VLANS];
    uint16_t type;
};

struct vb_lrh {
    uint8_t vl, version, sl, reserved, next; /* 4, 4, 4, 2 and 2 bits */
    uint16_t dlid;
    uint8_t reserved5;
    uint16_t length; /* 11 bits: words from the LRH to the ICRC */
    uint16_t slid;
};

/* A GRH or an IPv6 header. */
struct vb_grh {
    uint8_t version, traffic_class;
    uint32_t flow_label;
    uint16_t length;
    uint8_t next_header, hop_limit;
    uint8_t source[16], target[16];
};

struct vb_ipv4 {
    uint8_t tos;
    uint16_t length, id;
    uint16_t fragment; /* three flags and the offset */
    uint8_t ttl, protocol;
    uint16_t checksum;
    uint8_t source[4], target[4];
    struct vb_span options; /* a multiple of four bytes */
};

struct vb_udp {
    uint16_t source_port, target_port, length, checksum;
};

/* Reserved bits, in their places within the byte. */
struct vb_reserved {
    uint8_t bth_4, bth_8, rdeth, deth, xrceth;
};

/* The opcode says which of the extended headers are present (wire/opcode.h). */
struct vb_dissection {
    enum vb_stack stack;
    struct vb_ethernet ethernet; /* RoCE */
    struct vb_lrh lrh;           /* InfiniBand */
    struct vb_grh grh;           /* RoCE v1, InfiniBand global, and IPv6 */
    struct vb_ipv4 ipv4;
    struct vb_udp udp; /* RoCE v2 */

    struct vb_bth bth;
    struct vb_reserved reserved;
    uint32_t ee_context; /* RDETH */
    uint32_t xrc_srq;
    uint32_t flush;
    struct vb_deth deth;
    struct vb_reth reth;
    struct vb_atomiceth atomic;
    struct vb_aeth aeth;
    uint64_t atomic_ack;
    uint32_t immediate, invalidate_rkey;

    struct vb_span payload, pad;
    uint8_t icrc[4], vcrc[2]; /* as on the wire */
    struct vb_span trailer;   /* of an Ethernet frame, behind the packet */

    uint32_t bth_offset,
        icrc_offset;       /* of vb_wire_dissect; vb_wire_dissect_write does not look at them */
    uint32_t error_offset; /* the byte at which a check failed */
};

/* Reads a packet. The spans point into `bytes`. On an error only `error_offset` is valid. */
enum vb_dissect_error vb_wire_dissect(struct vb_dissection *packet, enum vb_layer layer,
                                      const uint8_t *bytes, uint32_t length);

/* The ICRC, as on the wire, that a packet should have which vb_wire_dissect accepted. */
void vb_wire_dissect_icrc(const struct vb_dissection *packet, const uint8_t *bytes,
                          uint8_t icrc[4]);

/*
 * Writes the packet's bytes: its fields as they are, with lengths and sums. Returns how many;
 * -ENOSPC: they are more than `size`; -EINVAL: there is no such stack or opcode, there are more
 * VLANs or options than allowed, or the pad is not as long as the BTH says.
 */
int vb_wire_dissect_write(const struct vb_dissection *packet, uint8_t *to, uint32_t size);

#endif
