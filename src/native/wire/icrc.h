// SPDX-License-Identifier: Apache-2.0
/*
 * The invariant CRC (IBA 7.8.1, annexes A16 and A17): CRC-32 from the LRH, or from eight bytes of
 * ones in its place, to the last pad byte. Fields that a switch may change count as ones.
 *
 * The vb_icrc_start_… functions give the running register of crc32.h before the BTH. It depends on
 * the path and the packet's length alone, so a sender may keep it. From there on
 * vb_wire_icrc_transport, or vb_wire_crc32 over header, payload and pad piece by piece; then
 * vb_wire_icrc_write.
 */
#ifndef VB_WIRE_ICRC_H
#define VB_WIRE_ICRC_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/bytes.h"
#include "wire/crc32.h"

enum { VB_ROCE_PORT = 4791 };

/* A RoCE v2 flow: the fields that its packets have in common. */
struct vb_icrc_flow {
    uint8_t source[16], target[16]; /* as GIDs: IPv6, or IPv4 as ::ffff:a.b.c.d */
    uint16_t source_port, target_port;
};

/* Is it a flow over IPv4? Its target address says so. */
bool vb_wire_icrc_is_ipv4(const struct vb_icrc_flow *flow);

/*
 * The register before the BTH. `length` is here and below the number of bytes from the BTH to the
 * last pad byte, at most 65495. For IPv4 the identification is 0 and DF is clear; vb_wire_icrc_with
 * changes both.
 */
uint32_t vb_wire_icrc_start_udp(const struct vb_icrc_flow *flow, uint32_t length);

/* The fields of IPv4's header that a UDP socket does not show. */
struct vb_icrc_unseen {
    uint16_t id;
    bool dont_fragment;
};

/*
 * The register that vb_wire_icrc_start_udp gave for IPv4, changed for these fields by a few table
 * look-ups.
 */
uint32_t vb_wire_icrc_with(uint32_t start, struct vb_icrc_unseen unseen);

/* The register from a packet's own headers; `ip_length` includes options. */
uint32_t vb_wire_icrc_start_ipv4(const uint8_t *ip, uint32_t ip_length, const uint8_t *udp);
uint32_t vb_wire_icrc_start_ipv6(const uint8_t *ip, const uint8_t *udp);
/* The same for RoCE v1. */
uint32_t vb_wire_icrc_start_grh(const uint8_t *grh);
/* The same for InfiniBand; `grh` is NULL for a packet within the subnet. */
uint32_t vb_wire_icrc_start_lrh(const uint8_t *lrh, const uint8_t *grh);

/*
 * Byte 4 of the BTH (FECN, BECN and reserved bits) counts as ones. A start register is right for a
 * packet in which that byte is 0; this gives the register for another value.
 */
uint32_t vb_wire_icrc_mask(uint32_t start, uint8_t byte_4);

/* The register after `length` bytes from the BTH on. */
static inline uint32_t vb_wire_icrc_transport(uint32_t start, const uint8_t *bth, uint32_t length)
{
    return vb_wire_crc32(bth[4] ? vb_wire_icrc_mask(start, bth[4]) : start, bth, length);
}

/* The ICRC's lowest byte is sent first, unlike that of all other fields. */
static inline void vb_wire_icrc_write(uint8_t *at, uint32_t crc)
{
    vb_wire_put32(at, __builtin_bswap32(~crc));
}

/* The register that a packet's ICRC stands for. */
static inline uint32_t vb_wire_icrc_read(const uint8_t *at)
{
    return ~__builtin_bswap32(vb_wire_get32(at));
}

/*
 * The ICRC covers IPv4's identification and its "don't fragment", which a reader of a UDP socket
 * does not see. `computed` is the register with an `unseen` that was assumed, `received` that of
 * the packet. Finds the one value of both that explains the difference and stores it in `unseen`;
 * -EBADMSG: none does, the packet is damaged.
 *
 * That alone is no check: some value explains one random difference in 2^15. The caller must know
 * which values the sender can have used (roce/ids.h).
 */
int vb_wire_icrc_explain(uint32_t computed, uint32_t received, uint32_t length,
                         struct vb_icrc_unseen *unseen);

/*
 * A packet of a UDP socket over IPv4: `length` bytes from the BTH to the pad, four of ICRC behind
 * them, and what vb_wire_icrc_start_udp gives for its flow and length. 0, or -EBADMSG. `unseen` is
 * what is assumed, and on success what it is.
 */
int vb_wire_icrc_check_ipv4(uint32_t start, const uint8_t *bth, uint32_t length,
                            struct vb_icrc_unseen *unseen);

#endif
