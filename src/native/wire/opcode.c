// SPDX-License-Identifier: Apache-2.0
/* The table of opcode.h (IBA 9.2, table 38; annex A19 for FLUSH and ATOMIC WRITE). */
#include "wire/opcode.h"

#include "wire/headers.h"

/* Short names of the flags keep the rows readable. */
enum {
    SEND = VB_OPCODE_SEND,
    WRITE = VB_OPCODE_WRITE,
    READ = VB_OPCODE_READ,
    ATOMIC = VB_OPCODE_ATOMIC,
    RESPONSE = VB_OPCODE_RESPONSE,
    FIRST = VB_OPCODE_FIRST,
    LAST = VB_OPCODE_LAST,
    ONLY = FIRST | LAST,
    PAYLOAD = VB_OPCODE_PAYLOAD,
    RDETH = VB_OPCODE_RDETH,
    DETH = VB_OPCODE_DETH,
    XRCETH = VB_OPCODE_XRCETH,
    FETH = VB_OPCODE_FETH,
    RETH = VB_OPCODE_RETH,
    ATOMICETH = VB_OPCODE_ATOMICETH,
    AETH = VB_OPCODE_AETH,
    ATOMICACKETH = VB_OPCODE_ATOMICACKETH,
    IMM = VB_OPCODE_IMM,
    IETH = VB_OPCODE_IETH,
    ATOMIC_WRITE = VB_OPCODE_ATOMIC_WRITE,
};

#define IF(flags, header) ((flags) & VB_OPCODE_##header ? VB_##header : 0)
#define HEADER_LENGTH(flags)                                                                       \
    (VB_BTH + IF(flags, RDETH) + IF(flags, DETH) + IF(flags, XRCETH) + IF(flags, FETH) +           \
     IF(flags, RETH) + IF(flags, ATOMICETH) + IF(flags, AETH) + IF(flags, ATOMICACKETH) +          \
     IF(flags, IMM) + IF(flags, IETH))

#define ROW(transport, operation, text, flags)                                                     \
    [VB_TRANSPORT_##transport | VB_OP_##operation] = {#transport " " text, flags,                  \
                                                      HEADER_LENGTH(flags)}

/* `more`: the headers that a transport adds to each request, or to each response. */
#define SENDS_AND_WRITES(transport, more)                                                          \
    ROW(transport, SEND_FIRST, "SEND First", SEND | FIRST | PAYLOAD | (more)),                     \
        ROW(transport, SEND_MIDDLE, "SEND Middle", SEND | PAYLOAD | (more)),                       \
        ROW(transport, SEND_LAST, "SEND Last", SEND | LAST | PAYLOAD | (more)),                    \
        ROW(transport, SEND_LAST_IMM, "SEND Last with Immediate",                                  \
            SEND | LAST | PAYLOAD | IMM | (more)),                                                 \
        ROW(transport, SEND_ONLY, "SEND Only", SEND | ONLY | PAYLOAD | (more)),                    \
        ROW(transport, SEND_ONLY_IMM, "SEND Only with Immediate",                                  \
            SEND | ONLY | PAYLOAD | IMM | (more)),                                                 \
        ROW(transport, WRITE_FIRST, "WRITE First", WRITE | FIRST | PAYLOAD | RETH | (more)),       \
        ROW(transport, WRITE_MIDDLE, "WRITE Middle", WRITE | PAYLOAD | (more)),                    \
        ROW(transport, WRITE_LAST, "WRITE Last", WRITE | LAST | PAYLOAD | (more)),                 \
        ROW(transport, WRITE_LAST_IMM, "WRITE Last with Immediate",                                \
            WRITE | LAST | PAYLOAD | IMM | (more)),                                                \
        ROW(transport, WRITE_ONLY, "WRITE Only", WRITE | ONLY | PAYLOAD | RETH | (more)),          \
        ROW(transport, WRITE_ONLY_IMM, "WRITE Only with Immediate",                                \
            WRITE | ONLY | PAYLOAD | RETH | IMM | (more))

#define READS_AND_ATOMICS(transport, more)                                                         \
    ROW(transport, READ_REQUEST, "READ Request", READ | ONLY | RETH | (more)),                     \
        ROW(transport, COMPARE_SWAP, "CmpSwap", ATOMIC | ONLY | ATOMICETH | (more)),               \
        ROW(transport, FETCH_ADD, "FetchAdd", ATOMIC | ONLY | ATOMICETH | (more))

#define RESPONSES(transport, more)                                                                 \
    ROW(transport, READ_RESPONSE_FIRST, "READ Response First",                                     \
        RESPONSE | FIRST | PAYLOAD | AETH | (more)),                                               \
        ROW(transport, READ_RESPONSE_MIDDLE, "READ Response Middle", RESPONSE | PAYLOAD | (more)), \
        ROW(transport, READ_RESPONSE_LAST, "READ Response Last",                                   \
            RESPONSE | LAST | PAYLOAD | AETH | (more)),                                            \
        ROW(transport, READ_RESPONSE_ONLY, "READ Response Only",                                   \
            RESPONSE | ONLY | PAYLOAD | AETH | (more)),                                            \
        ROW(transport, ACKNOWLEDGE, "Acknowledge", RESPONSE | ONLY | AETH | (more)),               \
        ROW(transport, ATOMIC_ACKNOWLEDGE, "Atomic Acknowledge",                                   \
            RESPONSE | ONLY | AETH | ATOMICACKETH | (more))

#define SENDS_WITH_INVALIDATE(transport, more)                                                     \
    ROW(transport, SEND_LAST_INVALIDATE, "SEND Last with Invalidate",                              \
        SEND | LAST | PAYLOAD | IETH | (more)),                                                    \
        ROW(transport, SEND_ONLY_INVALIDATE, "SEND Only with Invalidate",                          \
            SEND | ONLY | PAYLOAD | IETH | (more))

/*
 * The optional operations (IBA 1.5, annex A19) are a kind of their own, neither WRITE nor ATOMIC.
 */
#define MEMORY_PLACEMENT(transport, more)                                                          \
    ROW(transport, FLUSH, "FLUSH", ONLY | FETH | RETH | (more)),                                   \
        ROW(transport, ATOMIC_WRITE, "ATOMIC WRITE",                                               \
            ATOMIC_WRITE | ONLY | PAYLOAD | RETH | (more))

const struct vb_opcode vb_opcodes[256] = {
    SENDS_AND_WRITES(RC, 0),
    READS_AND_ATOMICS(RC, 0),
    RESPONSES(RC, 0),
    SENDS_WITH_INVALIDATE(RC, 0),
    MEMORY_PLACEMENT(RC, 0),

    SENDS_AND_WRITES(UC, 0),

    SENDS_AND_WRITES(RD, RDETH | DETH),
    READS_AND_ATOMICS(RD, RDETH | DETH),
    RESPONSES(RD, RDETH),
    ROW(RD, RESYNC, "RESYNC", ONLY | RDETH | DETH),

    ROW(UD, SEND_ONLY, "SEND Only", SEND | ONLY | PAYLOAD | DETH),
    ROW(UD, SEND_ONLY_IMM, "SEND Only with Immediate", SEND | ONLY | PAYLOAD | DETH | IMM),

    [VB_TRANSPORT_CNP] = {"CNP InfiniBand", ONLY, VB_BTH},
    [VB_TRANSPORT_CNP | 1] = {"CNP RoCE", ONLY | PAYLOAD, VB_BTH}, /* VB_CNP_RESERVED bytes */

    SENDS_AND_WRITES(XRC, XRCETH),
    READS_AND_ATOMICS(XRC, XRCETH),
    RESPONSES(XRC, 0),
    SENDS_WITH_INVALIDATE(XRC, XRCETH),
    MEMORY_PLACEMENT(XRC, XRCETH),
};
