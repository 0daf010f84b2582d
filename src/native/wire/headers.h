// SPDX-License-Identifier: Apache-2.0
/*
 * The transport headers as numbers, read from bytes and written to them (IBA 9.2 to 9.3; lengths in
 * bytes). The packet engine, captures and dissection call these; the caller has checked the bounds.
 */
#ifndef VB_WIRE_HEADERS_H
#define VB_WIRE_HEADERS_H

#include <stdbool.h>

#include "wire/bytes.h"

enum {
    VB_BTH = 12,
    VB_RDETH = 4,
    VB_DETH = 8,
    VB_XRCETH = 4,
    VB_FETH = 4,
    VB_RETH = 16,
    VB_ATOMICETH = 28,
    VB_AETH = 4,
    VB_ATOMICACKETH = 8,
    VB_IMM = 4,
    VB_IETH = 4,
    VB_ICRC = 4,
    VB_GRH = 40,
    VB_LRH = 8,
    VB_HEADERS_MAX = 64, /* room for any BTH with its extended headers */
    VB_CNP_RESERVED = 16,
};

enum { VB_PSN_MASK = 0xffffff, VB_QPN_MASK = 0xffffff, VB_MULTICAST_QPN = 0xffffff };

/*
 * The six bits of BTH byte 4 behind FECN and BECN are reserved, ignored on receipt, and not covered
 * by the ICRC. The carrier by RoCE writes the number of the packet's segment in its batch there
 * (roce/ids.h).
 */
enum { VB_BTH_SEGMENT_AT = 4, VB_BTH_SEGMENT = 0x3f };

struct vb_bth {
    uint8_t opcode;
    bool solicited;
    bool migrated; /* M: 1 is the normal value of a data QP */
    uint8_t pad;   /* 0..3 bytes after the payload */
    uint8_t version;
    uint16_t pkey;
    bool fecn, becn;
    uint32_t dest_qp;
    bool ack_request;
    uint32_t psn;
};

static inline void vb_wire_bth_write(uint8_t *at, const struct vb_bth *bth)
{
    at[0] = bth->opcode;
    at[1] = (uint8_t)(bth->solicited << 7 | bth->migrated << 6 | bth->pad << 4 | bth->version);
    vb_wire_put16(at + 2, bth->pkey);
    at[4] = (uint8_t)(bth->fecn << 7 | bth->becn << 6);
    vb_wire_put24(at + 5, bth->dest_qp);
    at[8] = (uint8_t)(bth->ack_request << 7);
    vb_wire_put24(at + 9, bth->psn);
}

static inline struct vb_bth vb_wire_bth_read(const uint8_t *at)
{
    return (struct vb_bth){
        .opcode = at[0],
        .solicited = at[1] >> 7,
        .migrated = at[1] >> 6 & 1,
        .pad = at[1] >> 4 & 3,
        .version = at[1] & 0xf,
        .pkey = vb_wire_get16(at + 2),
        .fecn = at[4] >> 7,
        .becn = at[4] >> 6 & 1,
        .dest_qp = vb_wire_get24(at + 5),
        .ack_request = at[8] >> 7,
        .psn = vb_wire_get24(at + 9),
    };
}

struct vb_reth {
    uint64_t addr;
    uint32_t rkey;
    uint32_t length;
};

static inline void vb_wire_reth_write(uint8_t *at, const struct vb_reth *reth)
{
    vb_wire_put64(at, reth->addr);
    vb_wire_put32(at + 8, reth->rkey);
    vb_wire_put32(at + 12, reth->length);
}

static inline struct vb_reth vb_wire_reth_read(const uint8_t *at)
{
    return (struct vb_reth){vb_wire_get64(at), vb_wire_get32(at + 8), vb_wire_get32(at + 12)};
}

/* FETH: what a FLUSH promises, and of what (IBA 1.5, annex A19). libibverbs has the same numbers.
 */
struct vb_feth {
    uint8_t placement;   /* four bits: 1 global visibility, 2 persistence */
    uint8_t selectivity; /* two bits: 0 the range, 1 the whole region */
};

static inline void vb_wire_feth_write(uint8_t *at, const struct vb_feth *feth)
{
    vb_wire_put32(at, (uint32_t)(feth->selectivity << 4 | feth->placement));
}

static inline struct vb_feth vb_wire_feth_read(const uint8_t *at)
{
    return (struct vb_feth){at[3] & 0xf, at[3] >> 4 & 3};
}

struct vb_atomiceth {
    uint64_t addr;
    uint32_t rkey;
    uint64_t swap_add;
    uint64_t compare;
};

static inline void vb_wire_atomiceth_write(uint8_t *at, const struct vb_atomiceth *atomic)
{
    vb_wire_put64(at, atomic->addr);
    vb_wire_put32(at + 8, atomic->rkey);
    vb_wire_put64(at + 12, atomic->swap_add);
    vb_wire_put64(at + 20, atomic->compare);
}

static inline struct vb_atomiceth vb_wire_atomiceth_read(const uint8_t *at)
{
    return (struct vb_atomiceth){vb_wire_get64(at), vb_wire_get32(at + 8), vb_wire_get64(at + 12),
                                 vb_wire_get64(at + 20)};
}

/* Bits 7:5 of the syndrome; the other five are its value (IBA 9.7.5.2.1). */
enum vb_aeth_kind { VB_AETH_ACK = 0, VB_AETH_RNR = 1, VB_AETH_RESERVED = 2, VB_AETH_NAK = 3 };

enum vb_nak {
    VB_NAK_PSN_SEQUENCE = 0,
    VB_NAK_INVALID_REQUEST = 1,
    VB_NAK_REMOTE_ACCESS = 2,
    VB_NAK_REMOTE_OPERATION = 3,
    VB_NAK_INVALID_RD_REQUEST = 4,
};

enum { VB_CREDITS_UNLIMITED = 31 };

struct vb_aeth {
    uint8_t kind;  /* above 3: reserved, the packet is ignored */
    uint8_t value; /* credit code, RNR timer code or enum vb_nak */
    uint32_t msn;
};

static inline void vb_wire_aeth_write(uint8_t *at, const struct vb_aeth *aeth)
{
    at[0] = (uint8_t)(aeth->kind << 5 | aeth->value);
    vb_wire_put24(at + 1, aeth->msn);
}

static inline struct vb_aeth vb_wire_aeth_read(const uint8_t *at)
{
    return (struct vb_aeth){at[0] >> 5, at[0] & 0x1f, vb_wire_get24(at + 1)};
}

struct vb_deth {
    uint32_t qkey;
    uint32_t source_qp;
};

static inline void vb_wire_deth_write(uint8_t *at, const struct vb_deth *deth)
{
    vb_wire_put32(at, deth->qkey);
    at[4] = 0;
    vb_wire_put24(at + 5, deth->source_qp);
}

static inline struct vb_deth vb_wire_deth_read(const uint8_t *at)
{
    return (struct vb_deth){vb_wire_get32(at), vb_wire_get24(at + 5)};
}

/* XRCETH: the number of the SRQ for which an XRC request is. */
static inline void vb_wire_xrceth_write(uint8_t *at, uint32_t srq_num)
{
    at[0] = 0;
    vb_wire_put24(at + 1, srq_num);
}

static inline uint32_t vb_wire_xrceth_read(const uint8_t *at)
{
    return vb_wire_get24(at + 1);
}

/* Is it an IPv4 address, ::ffff:a.b.c.d (annex A17)? */
static inline bool vb_wire_gid_is_ipv4(const uint8_t gid[16])
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(gid, prefix, sizeof(prefix)) == 0;
}

static inline void vb_wire_gid_of_ipv4(const void *address, uint8_t gid[16])
{
    memset(gid, 0, 16);
    gid[10] = gid[11] = 0xff;
    memcpy(gid + 12, address, sizeof(uint32_t));
}

/* Is it a group's: ff00::/8, or an IPv4 multicast address (annex A17)? */
static inline bool vb_wire_gid_is_multicast(const uint8_t gid[16])
{
    return gid[0] == 0xff || (vb_wire_gid_is_ipv4(gid) && (gid[12] & 0xf0) == 0xe0);
}

/* a - b of sequence numbers, signed (IBA 9.7.2). */
static inline int32_t vb_wire_psn_diff(uint32_t a, uint32_t b)
{
    return (int32_t)((a - b) << 8) >> 8;
}

#endif
