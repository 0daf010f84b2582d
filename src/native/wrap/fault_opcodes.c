// SPDX-License-Identifier: Apache-2.0
/*
 * Decides whether a packet's opcode is one that a rule selects (fault_rules.h). fault.c calls it.
 */
#include "wire/headers.h"
#include "wire/opcode.h"
#include "wrap/fault_rules.h"

enum { ALL_ANSWERS = VB_FAULT_ACK | VB_FAULT_RNR | VB_FAULT_NAK };

static uint8_t answer_of(const uint8_t *header, uint32_t length)
{
    static const uint8_t answers[] = {
        [VB_AETH_ACK] = VB_FAULT_ACK, [VB_AETH_RNR] = VB_FAULT_RNR, [VB_AETH_NAK] = VB_FAULT_NAK};
    uint32_t at = vb_opcodes[header[0]].header_length - VB_AETH;
    uint8_t kind = length < at + VB_AETH ? 0xff : vb_wire_aeth_read(header + at).kind;

    return kind < sizeof(answers) ? answers[kind] : 0;
}

bool vb_wrap_fault_has_opcode(const struct vb_fault_opcodes *opcodes, const uint8_t *header,
                              uint32_t length)
{
    const uint32_t deciding = VB_OPCODE_RESPONSE | VB_OPCODE_PAYLOAD | VB_OPCODE_ATOMICACKETH;

    if (!opcodes->constrained)
        return true;
    if (!(opcodes->set[header[0] / 64] >> header[0] % 64 & 1))
        return false;
    if ((vb_opcodes[header[0]].flags & deciding) != VB_OPCODE_RESPONSE)
        return true;
    return opcodes->answers == ALL_ANSWERS || opcodes->answers & answer_of(header, length);
}
