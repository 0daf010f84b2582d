// SPDX-License-Identifier: Apache-2.0
/* The names by which rules choose packets. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "port/wrap/fault_rules.h"
#include "wire/headers.h"
#include "wire/opcode.h"

enum { ALL_ANSWERS = VB_FAULT_ACK | VB_FAULT_RNR | VB_FAULT_NAK };

/* A class: packets with all the flags of `with` and none of `without`. */
struct class {
    const char *name;
    uint32_t with, without;
    uint8_t answers;
};

static const struct class classes[] = {
    {"send", VB_OPCODE_SEND, 0, 0},
    {"write", VB_OPCODE_WRITE, 0, 0},
    {"read", VB_OPCODE_READ, 0, 0},
    {"atomic", VB_OPCODE_ATOMIC, 0, 0},
    {"read-response", VB_OPCODE_RESPONSE | VB_OPCODE_PAYLOAD, 0, 0},
    {"atomic-response", VB_OPCODE_RESPONSE | VB_OPCODE_ATOMICACKETH, 0, 0},
    {"ack", VB_OPCODE_RESPONSE, VB_OPCODE_PAYLOAD | VB_OPCODE_ATOMICACKETH, VB_FAULT_ACK},
    {"nak", VB_OPCODE_RESPONSE, VB_OPCODE_PAYLOAD | VB_OPCODE_ATOMICACKETH, VB_FAULT_NAK},
    {"rnr", VB_OPCODE_RESPONSE, VB_OPCODE_PAYLOAD | VB_OPCODE_ATOMICACKETH, VB_FAULT_RNR},
    {"response", VB_OPCODE_RESPONSE, 0, ALL_ANSWERS},
    {"request", 0, VB_OPCODE_RESPONSE, 0},
};

static bool is_cnp(unsigned opcode)
{
    return (opcode & VB_TRANSPORT_MASK) == VB_TRANSPORT_CNP;
}

static void add(struct vb_fault_opcodes *opcodes, unsigned opcode)
{
    opcodes->set[opcode / 64] |= UINT64_C(1) << opcode % 64;
}

static void add_class(struct vb_fault_opcodes *opcodes, const struct class *class)
{
    for (unsigned i = 0; i < 256; ++i) {
        uint32_t flags = vb_opcodes[i].flags;

        if (vb_opcodes[i].name && !is_cnp(i) && (flags & class->with) == class->with &&
            !(flags & class->without))
            add(opcodes, i);
    }
    opcodes->answers |= class->answers;
}

/* "RC SEND Only" is written rc-send-only. */
static bool is_name_of(const char *written, const char *name, size_t length)
{
    if (strlen(written) != length)
        return false;
    for (size_t i = 0; i < length; ++i)
        if ((written[i] == ' ' ? '-' : tolower((unsigned char)written[i])) != name[i])
            return false;
    return true;
}

static bool add_number(struct vb_fault_opcodes *opcodes, const char *name, size_t length)
{
    char digits[8];
    char *end;
    unsigned long opcode;

    if (length >= sizeof(digits) || !isdigit((unsigned char)*name))
        return false;
    memcpy(digits, name, length);
    digits[length] = '\0';
    opcode = strtoul(digits, &end, 0);
    if (*end || opcode > 255)
        return false;
    add(opcodes, (unsigned)opcode);
    opcodes->answers |= ALL_ANSWERS;
    return true;
}

static bool add_own_name(struct vb_fault_opcodes *opcodes, const char *name, size_t length)
{
    bool found = false;

    for (unsigned i = 0; i < 256; ++i)
        if (vb_opcodes[i].name &&
            is_name_of(is_cnp(i) ? "cnp" : vb_opcodes[i].name, name, length)) {
            add(opcodes, i);
            found = true;
        }
    if (found)
        opcodes->answers |= ALL_ANSWERS;
    return found;
}

bool vb_fault_add_opcode(struct vb_fault_opcodes *opcodes, const char *name, size_t length)
{
    opcodes->constrained = true;
    for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); ++i)
        if (strlen(classes[i].name) == length && memcmp(classes[i].name, name, length) == 0) {
            add_class(opcodes, &classes[i]);
            return true;
        }
    return add_number(opcodes, name, length) || add_own_name(opcodes, name, length);
}

static uint8_t answer_of(const uint8_t *header, uint32_t length)
{
    static const uint8_t answers[] = {
        [VB_AETH_ACK] = VB_FAULT_ACK, [VB_AETH_RNR] = VB_FAULT_RNR, [VB_AETH_NAK] = VB_FAULT_NAK};
    uint32_t at = vb_opcodes[header[0]].header_length - VB_AETH;
    uint8_t kind = length < at + VB_AETH ? 0xff : vb_aeth_read(header + at).kind;

    return kind < sizeof(answers) ? answers[kind] : 0;
}

bool vb_fault_has_opcode(const struct vb_fault_opcodes *opcodes, const uint8_t *header,
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
