// SPDX-License-Identifier: Apache-2.0
/*
 * What tests of captured packets share: paths of both IP versions, random numbers, and a packet
 * that is a BTH alone.
 */
#ifndef VB_TESTS_BARE_PACKET_H
#define VB_TESTS_BARE_PACKET_H

#include "hca/packet.h"
#include "wire/headers.h"

enum { PATH_MTU = 256 };

static const struct vb_path ipv4 = {.sgid = {[10] = 0xff, 0xff, 10, 0, 0, 1},
                                    .dgid = {[10] = 0xff, 0xff, 10, 0, 0, 2},
                                    .source_port = 0xc0de,
                                    .traffic_class = 0x6a,
                                    .mtu = PATH_MTU,
                                    .hop_limit = 17};
static const struct vb_path ipv6 = {.sgid = {0xfe, 0x80, [14] = 1, 1},
                                    .dgid = {0x20, 0x01, 0x0d, 0xb8, [15] = 2},
                                    .flow_label = 0x54321,
                                    .traffic_class = 0x03,
                                    .mtu = PATH_MTU};

/* The next number of a fixed sequence (Knuth's MMIX). */
static inline uint32_t any(void)
{
    static uint64_t seed = 17;

    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

static inline struct vb_packet packet_of(uint32_t qp, uint8_t opcode, uint32_t psn,
                                         enum vb_packet_reason reason)
{
    struct vb_packet packet = {.path = &ipv4,
                               .qp_num = qp,
                               .header_length = VB_BTH,
                               .reason = (uint8_t)reason,
                               .missing_psn = 40};

    vb_wire_bth_write(packet.header,
                      &(struct vb_bth){.opcode = opcode, .pkey = 0xffff, .psn = psn});
    return packet;
}

#endif
