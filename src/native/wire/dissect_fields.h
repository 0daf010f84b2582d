// SPDX-License-Identifier: Apache-2.0
/*
 * The headers of a dissection but the extended ones, from bytes and to bytes, for dissect_read.c
 * and dissect_write.c. The caller has checked the bounds.
 */
#ifndef VB_WIRE_DISSECT_FIELDS_H
#define VB_WIRE_DISSECT_FIELDS_H

#include "wire/dissect.h"

enum {
    VB_ETHERNET = 14,
    VB_VLAN = 4,
    VB_IPV4 = 20,
    VB_UDP = 8,
    VB_VCRC = 2,
};

enum {
    VB_TYPE_IPV4 = 0x0800,
    VB_TYPE_IPV6 = 0x86dd,
    VB_TYPE_ROCE1 = 0x8915,
    VB_TYPE_VLAN = 0x8100,
    VB_TYPE_SERVICE_VLAN = 0x88a8,
};

enum {
    VB_UDP_PROTOCOL = 17,
    VB_GRH_IS_TRANSPORT = 0x1b,
    VB_IPV4_FRAGMENTED = 0x3fff, /* more fragments, and the offset */
};

enum { VB_LRH_BTH_IS_NEXT = 2, VB_LRH_GRH_IS_NEXT = 3 };

/* ---- addresses and lengths ------------------------------------------------------------------ */

static inline void vb_wire_read_lrh(struct vb_lrh *lrh, const uint8_t *at)
{
    *lrh = (struct vb_lrh){
        .vl = at[0] >> 4,
        .version = at[0] & 0xf,
        .sl = at[1] >> 4,
        .reserved = at[1] >> 2 & 3,
        .next = at[1] & 3,
        .dlid = vb_wire_get16(at + 2),
        .reserved5 = at[4] >> 3,
        .length = vb_wire_get16(at + 4) & 0x7ff,
        .slid = vb_wire_get16(at + 6),
    };
}

static inline void vb_wire_write_lrh(uint8_t *at, const struct vb_lrh *lrh)
{
    at[0] = (uint8_t)(lrh->vl << 4 | lrh->version);
    at[1] = (uint8_t)(lrh->sl << 4 | lrh->reserved << 2 | lrh->next);
    vb_wire_put16(at + 2, lrh->dlid);
    vb_wire_put16(at + 4, (uint16_t)(lrh->reserved5 << 11 | lrh->length));
    vb_wire_put16(at + 6, lrh->slid);
}

static inline void vb_wire_read_grh(struct vb_grh *grh, const uint8_t *at)
{
    const uint32_t first = vb_wire_get32(at);

    *grh = (struct vb_grh){
        .version = (uint8_t)(first >> 28),
        .traffic_class = (uint8_t)(first >> 20),
        .flow_label = first & 0xfffff,
        .length = vb_wire_get16(at + 4),
        .next_header = at[6],
        .hop_limit = at[7],
    };
    memcpy(grh->source, at + 8, 16);
    memcpy(grh->target, at + 24, 16);
}

static inline void vb_wire_write_grh(uint8_t *at, const struct vb_grh *grh)
{
    vb_wire_put32(at, (uint32_t)grh->version << 28 | (uint32_t)grh->traffic_class << 20 |
                          grh->flow_label);
    vb_wire_put16(at + 4, grh->length);
    at[6] = grh->next_header;
    at[7] = grh->hop_limit;
    memcpy(at + 8, grh->source, 16);
    memcpy(at + 24, grh->target, 16);
}

/* All but the options. */
static inline void vb_wire_read_ipv4(struct vb_ipv4 *ipv4, const uint8_t *at)
{
    ipv4->tos = at[1];
    ipv4->length = vb_wire_get16(at + 2);
    ipv4->id = vb_wire_get16(at + 4);
    ipv4->fragment = vb_wire_get16(at + 6);
    ipv4->ttl = at[8];
    ipv4->protocol = at[9];
    ipv4->checksum = vb_wire_get16(at + 10);
    memcpy(ipv4->source, at + 12, 4);
    memcpy(ipv4->target, at + 16, 4);
}

static inline void vb_wire_write_ipv4(uint8_t *at, const struct vb_ipv4 *ipv4)
{
    at[0] = (uint8_t)(0x45 + ipv4->options.length / 4);
    at[1] = ipv4->tos;
    vb_wire_put16(at + 2, ipv4->length);
    vb_wire_put16(at + 4, ipv4->id);
    vb_wire_put16(at + 6, ipv4->fragment);
    at[8] = ipv4->ttl;
    at[9] = ipv4->protocol;
    vb_wire_put16(at + 10, ipv4->checksum);
    memcpy(at + 12, ipv4->source, 4);
    memcpy(at + 16, ipv4->target, 4);
}

static inline void vb_wire_read_udp(struct vb_udp *udp, const uint8_t *at)
{
    *udp = (struct vb_udp){vb_wire_get16(at), vb_wire_get16(at + 2), vb_wire_get16(at + 4),
                           vb_wire_get16(at + 6)};
}

static inline void vb_wire_write_udp(uint8_t *at, const struct vb_udp *udp)
{
    vb_wire_put16(at, udp->source_port);
    vb_wire_put16(at + 2, udp->target_port);
    vb_wire_put16(at + 4, udp->length);
    vb_wire_put16(at + 6, udp->checksum);
}

/* ---- the transport -------------------------------------------------------------------------- */

static inline const uint8_t *vb_wire_read_bth(struct vb_dissection *packet, const uint8_t *at)
{
    packet->bth = vb_wire_bth_read(at);
    packet->reserved.bth_4 = at[4] & 0x3f;
    packet->reserved.bth_8 = at[8] & 0x7f;
    return at + VB_BTH;
}

static inline uint8_t *vb_wire_write_bth(uint8_t *at, const struct vb_dissection *packet)
{
    vb_wire_bth_write(at, &packet->bth);
    at[4] |= packet->reserved.bth_4;
    at[8] |= packet->reserved.bth_8;
    return at + VB_BTH;
}

#endif
