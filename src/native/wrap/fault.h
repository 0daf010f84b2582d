// SPDX-License-Identifier: Apache-2.0
/*
 * Applies rules to packets. wrap.c calls it for each packet, under its mutex. The rules apply in
 * their order; a packet that one drops does not reach the next. Each rule has random numbers of its
 * own, made from the seed and its place, so the n-th packet that it matches is treated the same in
 * each run.
 */
#ifndef VB_WRAP_FAULT_H
#define VB_WRAP_FAULT_H

#include "wrap/fault_rules.h"

struct vb_fault;

/* -ENOMEM. */
int vb_wrap_fault_create(const struct vb_fault_rules *rules, struct vb_fault **fault);
void vb_wrap_fault_destroy(struct vb_fault *fault);

/* What the rules look at of a packet; `bytes` begin with the BTH and contain all headers. */
struct vb_fault_view {
    enum vb_wrap_direction direction;
    uint32_t qp_num; /* ours */
    const uint8_t *bytes;
    uint32_t length;
};

struct vb_fault_effect {
    bool drop;
    uint32_t copies; /* besides the packet itself */
    uint64_t delay;  /* ns */
    uint32_t by;     /* held until so many later packets have passed; 0: not held */
    uint64_t within; /* and for so many ns at most */
    bool corrupt, truncate;
    bool corrupt_icrc_good, truncate_icrc_good;
    bool has_offset, has_length;
    uint32_t offset, length;
    uint64_t random;                   /* decides what the rules leave open */
    const struct vb_fault_rule *acted; /* the last rule that acted; NULL: none did */
};

/*
 * Applies the rules: `effect` says what becomes of the packet. False: nothing does, and `effect` is
 * not filled in.
 */
bool vb_wrap_fault_apply(struct vb_fault *fault, const struct vb_fault_view *view,
                         struct vb_fault_effect *effect);

/* Counts a packet that passed unchanged because no more could be held. */
void vb_wrap_fault_no_room(struct vb_fault *fault);

const struct vb_fault_rules *vb_wrap_fault_rules(const struct vb_fault *fault);

struct vb_fault_count {
    uint64_t matched, acted;
};

struct vb_fault_count vb_wrap_fault_count(const struct vb_fault *fault, uint32_t rule);

/* Writes a line for each rule: its words, how often it matched and acted. Length as snprintf. */
int vb_wrap_rules_text(const struct vb_fault *fault, char *text, size_t size);
/* Writes, for example, "dropped by the fault rule: drop opcode=ack nth=3". Length as snprintf. */
int vb_wrap_fault_note(const struct vb_fault *fault, const struct vb_fault_rule *rule, char *text,
                       size_t size);

#endif
