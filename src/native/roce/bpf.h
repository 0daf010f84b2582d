// SPDX-License-Identifier: Apache-2.0
/*
 * The classic BPF program that the kernel runs for each datagram to port 4791, to choose which
 * process's socket gets it (SO_ATTACH_REUSEPORT_CBPF). reuseport.c makes and attaches it. eBPF and
 * its maps need privileges that programs here do not have.
 */
#ifndef VB_ROCE_BPF_H
#define VB_ROCE_BPF_H

#include <linux/filter.h>
#include <stdint.h>

/* Datagrams for these slots go to the group's socket with this index. */
struct vb_reuseport_entry {
    uint16_t slot;
    uint16_t index;
};

/*
 * Of the queue pairs of slot 0 only the first ones, for management, exist. A datagram to the QP
 * number VB_PROBE_QPN + i reaches the socket with index i, whoever owns it.
 */
enum { VB_PROBE_QPN = 0x800, VB_PROBE_INDICES = 0x800 };

enum { VB_BPF_MAX = BPF_MAXINSNS };

/* In place of an index: the kernel chooses a socket of the group by the flow. */
enum { VB_ANY_MEMBER = -1 };

/*
 * Writes the program for the entries, which are in the order of their slots, each slot once.
 * Returns its length; 0: so many entries do not fit. Datagrams for slots that are not among them go
 * to the socket with the index `others`.
 */
unsigned vb_roce_bpf_make(const struct vb_reuseport_entry *entries, unsigned count, int others,
                          struct sock_filter program[VB_BPF_MAX]);

/* 0, or what the kernel said: -ENOMEM, -EINVAL for too long a program. */
int vb_roce_bpf_attach(int socket, const struct sock_filter *program, unsigned length);

#endif
