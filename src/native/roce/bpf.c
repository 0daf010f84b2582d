// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the classic BPF program of bpf.h: a binary search for the slot. reuseport.c calls it.
 * Each jump must fit the eight bits that a conditional jump has.
 */
#include "roce/bpf.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "hca/layout.h"

enum {
    LEAF = 4,       /* entries that are compared one after the other */
    FARTHEST = 255, /* a conditional jump has 8 bits */
    QP_WORD = 4,    /* the offset of the BTH's destination QP, with the byte before it */
    QP_MASK = 0xffffff,
};

struct writer {
    struct sock_filter *at;
    unsigned length;
    int others; /* the index for slots that are not in the program */
};

static void bpf_add(struct writer *writer, uint16_t code, uint32_t k, unsigned jt, unsigned jf)
{
    if (writer->length < VB_BPF_MAX)
        writer->at[writer->length] = (struct sock_filter){code, (uint8_t)jt, (uint8_t)jf, k};
    ++writer->length;
}

static void give(struct writer *writer, int index)
{
    bpf_add(writer, BPF_RET | BPF_K, (uint32_t)index, 0, 0);
}

static unsigned leaf_length(unsigned count)
{
    return 2 * count + 1;
}

static unsigned length_of(unsigned count)
{
    unsigned left, right;

    if (count <= LEAF)
        return leaf_length(count);
    left = length_of(count / 2);
    right = length_of(count - count / 2);
    return 1 + (left > FARTHEST) + left + right;
}

static void add_leaf(struct writer *writer, const struct vb_reuseport_entry *entries,
                     unsigned count)
{
    for (unsigned i = 0; i < count; ++i) {
        bpf_add(writer, BPF_JMP | BPF_JEQ | BPF_K, entries[i].slot, 0, 1);
        give(writer, entries[i].index);
    }
    give(writer, writer->others);
}

/* A binary search: the accumulator holds the slot. */
static void add_tree(struct writer *writer, const struct vb_reuseport_entry *entries,
                     unsigned count)
{
    unsigned half = count / 2, left;

    if (count <= LEAF) {
        add_leaf(writer, entries, count);
        return;
    }
    left = length_of(half);
    if (left > FARTHEST) {
        bpf_add(writer, BPF_JMP | BPF_JGE | BPF_K, entries[half].slot, 0, 1);
        bpf_add(writer, BPF_JMP | BPF_JA, left, 0, 0);
    } else {
        bpf_add(writer, BPF_JMP | BPF_JGE | BPF_K, entries[half].slot, left, 0);
    }
    add_tree(writer, entries, half);
    add_tree(writer, entries + half, count - half);
}

unsigned vb_roce_bpf_make(const struct vb_reuseport_entry *entries, unsigned count, int others,
                          struct sock_filter program[VB_BPF_MAX])
{
    struct writer writer = {.at = program, .others = others};

    /* A load beyond a datagram's end ends the program with 0: too short for a packet. */
    bpf_add(&writer, BPF_LD | BPF_W | BPF_ABS, QP_WORD, 0, 0);
    bpf_add(&writer, BPF_ALU | BPF_AND | BPF_K, QP_MASK, 0, 0);
    bpf_add(&writer, BPF_JMP | BPF_JGE | BPF_K, VB_QPS_PER_SLOT, 4, 0);
    bpf_add(&writer, BPF_JMP | BPF_JGE | BPF_K, VB_PROBE_QPN, 0, 2);
    bpf_add(&writer, BPF_ALU | BPF_AND | BPF_K, VB_PROBE_INDICES - 1, 0, 0);
    bpf_add(&writer, BPF_RET | BPF_A, 0, 0, 0);
    give(&writer, count && entries[0].slot == 0 ? entries[0].index : VB_ANY_MEMBER);
    bpf_add(&writer, BPF_ALU | BPF_RSH | BPF_K, VB_SLOT_BITS, 0, 0);
    add_tree(&writer, entries, count);
    return writer.length <= VB_BPF_MAX ? writer.length : 0;
}

int vb_roce_bpf_attach(int socket, const struct sock_filter *program, unsigned length)
{
    struct sock_fprog attached = {.len = (unsigned short)length,
                                  .filter = (struct sock_filter *)(uintptr_t)program};

    return setsockopt(socket, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &attached, sizeof(attached))
               ? -errno
               : 0;
}
