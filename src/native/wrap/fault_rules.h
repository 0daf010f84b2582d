// SPDX-License-Identifier: Apache-2.0
/*
 * Fault rules ("drop 1%; seed 7", docs/faults.md) as records. src/verbena/_fault_rules.py makes
 * them from the words of the rules; dropin and wrap.c read the records here, and no C code reads
 * the words.
 */
#ifndef VB_WRAP_FAULT_RULES_H
#define VB_WRAP_FAULT_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VB_FAULT_VERSION = 1, /* of the records, with the order of their fields */
    VB_FAULT_RULES = 32,
    VB_FAULT_TEXT = 2048, /* of all rules, with the final zero */
    VB_FAULT_HOLD = 1024, /* packets held at once, unless "hold" says another number */
    VB_FAULT_HOLD_MOST = 1 << 16,
};

enum vb_fault_action {
    VB_FAULT_DROP,
    VB_FAULT_DUPLICATE,
    VB_FAULT_REORDER,
    VB_FAULT_DELAY,
    VB_FAULT_CORRUPT,
    VB_FAULT_TRUNCATE,
    VB_FAULT_ACTIONS
};

enum vb_wrap_direction { VB_WRAP_OUT, VB_WRAP_IN, VB_WRAP_DIRECTIONS };

/* Kinds of an Acknowledge packet, by its AETH. */
enum vb_fault_answer { VB_FAULT_ACK = 1 << 0, VB_FAULT_RNR = 1 << 1, VB_FAULT_NAK = 1 << 2 };

struct vb_fault_opcodes {
    uint64_t set[4];  /* one bit for each BTH opcode */
    uint8_t answers;  /* enum vb_fault_answer: which Acknowledge packets of those in the set */
    bool constrained; /* false: packets with any opcode */
};

/* One rule. A selector that was not given matches every packet. */
struct vb_fault_rule {
    enum vb_fault_action action;
    uint8_t directions; /* bits 1 << enum vb_wrap_direction */
    bool has_qp, has_psn;
    uint32_t qp; /* this side's QP: the sender on the way out, the receiver on the way in */
    uint32_t psn_first, psn_last;
    struct vb_fault_opcodes opcodes;
    uint64_t chance;                  /* of 2^32; 2^32: always */
    uint64_t nth, every, limit;       /* 0: not given */
    uint64_t delay_least, delay_most; /* ns */
    uint32_t by;     /* REORDER: held until so many later packets of its QP have passed */
    uint64_t within; /* REORDER: held for so many ns at most */
    uint32_t copies; /* DUPLICATE: how many besides the packet */
    bool has_offset, has_length;
    uint32_t offset;            /* CORRUPT: the byte's offset from the BTH */
    uint32_t length;            /* TRUNCATE: what is left, from the BTH and without the ICRC */
    bool good_icrc;             /* CORRUPT, TRUNCATE: the ICRC is made to match */
    uint16_t text, text_length; /* its words, in vb_wrap_fault_rules.text */
};

struct vb_fault_rules {
    uint64_t seed;
    uint32_t hold;
    uint32_t count;
    struct vb_fault_rule rule[VB_FAULT_RULES];
    char text[VB_FAULT_TEXT];
};

/*
 * Reads records: hexadecimal numbers in lower case with a space behind each, then "|" and the text
 * from which they were made. The numbers are version, seed, hold, count, and the fields of each
 * rule in the order of read_rule. 0, or -EINVAL and `error` says what is wrong. NULL or "": no
 * rules.
 */
int vb_wrap_fault_read(const char *records, struct vb_fault_rules *rules, char *error, size_t size);

/* Is the packet's opcode one of these? `header` begins with the BTH. */
bool vb_wrap_fault_has_opcode(const struct vb_fault_opcodes *opcodes, const uint8_t *header,
                              uint32_t length);

#endif
