// SPDX-License-Identifier: Apache-2.0
/*
 * Several processes on one UDP port: each packet to the process that owns its queue pair.
 *
 * A QP number begins with its process's slot (direct/slot.h), and all processes of a user and
 * network namespace bind port 4791 with SO_REUSEPORT. A program in the kernel (bpf.h) sends
 * each datagram to a socket by its index in the group. Indices are the kernel's: a new socket gets
 * the next one, and when a socket is closed, the last one moves into its place. Nobody is told. So
 * the program is made again, by a member:
 *
 *  - It asks "who has index i?" for i = 0, 1, 2, … with a packet to QP VB_PROBE_QPN + i, which the
 *    program in place sends to just that index, and stops where a member answers that it has
 *    seen: beyond the last index the kernel chooses any member.
 *  - The answers, slots and index, make the new program, which replaces the old one for all. An
 *    answer that comes later, of a process that was busy or stopped, makes it be made again.
 *  - What is of no slot in the program goes to the process that has made it, which is at work, and
 *    not to whomever the kernel would choose, who may be stopped.
 *
 * A member does that when it joins or gets another slot; when a packet reaches it that is
 * another's; and when a member that leaves in order asks for it. One does it at a time: who holds
 * an abstract socket's name, which the kernel frees at its death. Who waits for the name in vain
 * (its holder is stopped) goes on without: two at a time do harm to nothing but speed.
 *
 * Until then nothing is misdelivered, because each member looks at each packet's slot, and nothing
 * is lost, because it forwards what is another's (forward.h says how much it keeps). That is also
 * what happens to all packets where programs cannot be attached, to slots beyond a program's
 * length, and to those of a process that is stopped and does not answer.
 *
 * No member believes what comes from outside the host: questions and answers travel over loopback,
 * and an answer repeats the question's random number, which only members saw (the kernel lets no
 * other user's socket into the group).
 *
 * A datagram to a multicast group is not steered: Linux gives every socket that joined a copy.
 *
 * Calls exclude each other by the caller's lock.
 */
#ifndef VB_ROCE_REUSEPORT_H
#define VB_ROCE_REUSEPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "roce/forward.h"

enum vb_reuseport_count {
    VB_REUSEPORT_STRAYS,        /* packets for another process's slot */
    VB_REUSEPORT_FORWARDED,     /* of these, or kept until the owner takes more */
    VB_REUSEPORT_DROP_ABSENT,   /* no process has the slot */
    VB_REUSEPORT_DROP_BUSY,     /* the owner took no more, and too much is kept */
    VB_REUSEPORT_DROP_FOREIGN,  /* forwarded to this process by mistake */
    VB_REUSEPORT_DROP_QUESTION, /* to the steering itself: from another host, or no question */
    VB_REUSEPORT_QUESTIONS,
    VB_REUSEPORT_REBUILDS,
    VB_REUSEPORT_COUNTS
};

struct vb_reuseport_config {
    int group; /* the UDP socket on the port, or vb_roce_reuseport_set_group; stays the caller's */
    uint16_t port;     /* 0: 4791 */
    uint64_t instance; /* random: who this process is */
    bool no_program;   /* a test: everything is forwarded */
    vb_forwarded_fn *deliver;
    void *argument; /* of deliver */
};

struct vb_reuseport;

/* For vb_roce_udp_open: the first socket of a group has a program that knows probes, from its
 * birth. */
int vb_roce_reuseport_prepare(int socket);

int vb_roce_reuseport_open(const struct vb_reuseport_config *config,
                           struct vb_reuseport **reuseport);
/* Before the first slot: what can fail has been opened when the socket on the port is bound. */
void vb_roce_reuseport_set_group(struct vb_reuseport *reuseport, int group);
/* After the group's socket was closed: asks those who stay to make the program again. */
void vb_roce_reuseport_close(struct vb_reuseport *reuseport);
void vb_roce_reuseport_abandon(struct vb_reuseport *reuseport);

/* This process owns the slot from now on. -EADDRINUSE: another process has its socket's name. */
int vb_roce_reuseport_add_slot(struct vb_reuseport *reuseport, uint32_t slot, uint64_t now);

/* Is the packet for this process's engine? If not, it is dealt with. */
bool vb_roce_reuseport_takes(struct vb_reuseport *reuseport, const struct vb_arrival *arrival,
                             uint64_t now);

/* Readable when vb_roce_reuseport_serve has work; it also has at the deadline (UINT64_MAX: none).
 */
int vb_roce_reuseport_fd(const struct vb_reuseport *reuseport);
uint64_t vb_roce_reuseport_deadline(const struct vb_reuseport *reuseport);
void vb_roce_reuseport_serve(struct vb_reuseport *reuseport, uint64_t now);
/* Before the end: what is kept for busy owners leaves, as far as they take it. False: all has. */
bool vb_roce_reuseport_push(struct vb_reuseport *reuseport, uint64_t now);

uint64_t vb_roce_reuseport_counter(const struct vb_reuseport *reuseport,
                                   enum vb_reuseport_count which);
const char *vb_roce_reuseport_counter_name(enum vb_reuseport_count which);
/* The members that the last rebuild found; for tests. */
unsigned vb_roce_reuseport_members(const struct vb_reuseport *reuseport);

#endif
