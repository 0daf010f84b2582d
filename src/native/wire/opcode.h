// SPDX-License-Identifier: Apache-2.0
/*
 * What each BTH opcode means, as one constant table (IBA 9.2, table 38). The packet engine,
 * captures and dissection look into it.
 */
#ifndef VB_WIRE_OPCODE_H
#define VB_WIRE_OPCODE_H

#include <stdint.h>

/* Bits 7:5 of the opcode. */
enum vb_transport {
    VB_TRANSPORT_RC = 0x00,
    VB_TRANSPORT_UC = 0x20,
    VB_TRANSPORT_RD = 0x40,
    VB_TRANSPORT_UD = 0x60,
    VB_TRANSPORT_CNP = 0x80,
    VB_TRANSPORT_XRC = 0xa0,
    VB_TRANSPORT_MASK = 0xe0,
};

/* Bits 4:0. */
enum vb_operation {
    VB_OP_SEND_FIRST = 0x00,
    VB_OP_SEND_MIDDLE = 0x01,
    VB_OP_SEND_LAST = 0x02,
    VB_OP_SEND_LAST_IMM = 0x03,
    VB_OP_SEND_ONLY = 0x04,
    VB_OP_SEND_ONLY_IMM = 0x05,
    VB_OP_WRITE_FIRST = 0x06,
    VB_OP_WRITE_MIDDLE = 0x07,
    VB_OP_WRITE_LAST = 0x08,
    VB_OP_WRITE_LAST_IMM = 0x09,
    VB_OP_WRITE_ONLY = 0x0a,
    VB_OP_WRITE_ONLY_IMM = 0x0b,
    VB_OP_READ_REQUEST = 0x0c,
    VB_OP_READ_RESPONSE_FIRST = 0x0d,
    VB_OP_READ_RESPONSE_MIDDLE = 0x0e,
    VB_OP_READ_RESPONSE_LAST = 0x0f,
    VB_OP_READ_RESPONSE_ONLY = 0x10,
    VB_OP_ACKNOWLEDGE = 0x11,
    VB_OP_ATOMIC_ACKNOWLEDGE = 0x12,
    VB_OP_COMPARE_SWAP = 0x13,
    VB_OP_FETCH_ADD = 0x14,
    VB_OP_RESYNC = 0x15, /* RD only */
    VB_OP_SEND_LAST_INVALIDATE = 0x16,
    VB_OP_SEND_ONLY_INVALIDATE = 0x17,
    VB_OP_FLUSH = 0x1c,
    VB_OP_ATOMIC_WRITE = 0x1d,
    VB_OP_MASK = 0x1f,
};

/* What a packet is and which headers follow its BTH. */
enum vb_opcode_flags {
    VB_OPCODE_SEND = 1 << 0,
    VB_OPCODE_WRITE = 1 << 1,
    VB_OPCODE_READ = 1 << 2,   /* the request */
    VB_OPCODE_ATOMIC = 1 << 3, /* the request */
    VB_OPCODE_RESPONSE = 1 << 4,
    VB_OPCODE_FIRST = 1 << 5, /* a message of one packet, as an ACK, has FIRST and LAST */
    VB_OPCODE_LAST = 1 << 6,
    VB_OPCODE_PAYLOAD = 1 << 7, /* may carry a payload */
    VB_OPCODE_RDETH = 1 << 8,
    VB_OPCODE_DETH = 1 << 9,
    VB_OPCODE_XRCETH = 1 << 10,
    VB_OPCODE_FETH = 1 << 11, /* only FLUSH has one */
    VB_OPCODE_RETH = 1 << 12,
    VB_OPCODE_ATOMICETH = 1 << 13,
    VB_OPCODE_AETH = 1 << 14,
    VB_OPCODE_ATOMICACKETH = 1 << 15,
    VB_OPCODE_IMM = 1 << 16,
    VB_OPCODE_IETH = 1 << 17,
    VB_OPCODE_ATOMIC_WRITE = 1 << 18, /* the request */
};

struct vb_opcode {
    const char *name;       /* "RC SEND Only with Immediate"; NULL: no such opcode */
    uint32_t flags;         /* enum vb_opcode_flags */
    uint32_t header_length; /* BTH and all extended headers */
};

extern const struct vb_opcode vb_opcodes[256];

#endif
