// SPDX-License-Identifier: Apache-2.0
/*
 * Several processes share one UDP port, and each packet has to reach the process that owns its
 * queue pair. roce.c and thread.c call this under the carrier's lock.
 *
 * A QP number begins with its process's slot (direct/slot.h), and all processes of a user and
 * network namespace bind port 4791 with SO_REUSEPORT: they are the members of a group. A BPF
 * program in the kernel (bpf.h) chooses the socket for each datagram by its index in the group. The
 * kernel assigns the indices: a new socket gets the next one, and when a socket is closed, the last
 * one moves into its place, of which no process is told. So a member rebuilds the program:
 *
 *  - It asks "who has index i?" for i = 0, 1, 2, … with a packet to QP VB_PROBE_QPN + i, which the
 *    present program sends to just that index. It stops where a member answers that has answered
 *    before, as beyond the last index the kernel chooses any member.
 *  - From the answers, which contain slots and index, it makes the new program, which replaces the
 * old one for all. An answer that comes later, from a process that was busy or stopped, causes
 * another rebuild.
 *  - Datagrams for slots that are not in the program go to the process that made it, as that one
 * runs. The kernel might choose one that is stopped.
 *
 * A member rebuilds when it joins or gets another slot, when a packet for another member reaches
 * it, and when a member that leaves in order requests it. One member does it at a time: the one
 * that holds the name of an abstract socket, which the kernel frees when its holder ends. A member
 * that waits for the name too long (its holder is stopped) goes on without it: two at a time cost
 * time and nothing else.
 *
 * Until then nothing is misdelivered, because each member looks at each packet's slot, and nothing
 * is lost, because it forwards packets of other members (forward.h says how many it keeps). The
 * same happens to all packets where programs cannot be attached, to packets for slots beyond a
 * program's length, and to those of a process that is stopped and does not answer.
 *
 * No member believes what comes from outside the host: questions and answers travel over loopback,
 * and an answer repeats the question's random number, which only members saw (the kernel lets no
 * other user's socket into the group).
 *
 * The program does not choose for datagrams to a multicast group: Linux gives a copy to every
 * socket that joined.
 */
#ifndef VB_ROCE_REUSEPORT_H
#define VB_ROCE_REUSEPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "roce/forward.h"

enum vb_reuseport_count {
    VB_REUSEPORT_STRAYS,    /* packets for another process's slot that came to this one */
    VB_REUSEPORT_FORWARDED, /* strays that were forwarded, or are kept until the owner takes more */
    VB_REUSEPORT_DROP_ABSENT,   /* no process has the slot */
    VB_REUSEPORT_DROP_BUSY,     /* the owner took no more, and too much is kept */
    VB_REUSEPORT_DROP_FOREIGN,  /* forwarded to this process by mistake */
    VB_REUSEPORT_DROP_QUESTION, /* to a probe number, from another host or without a question */
    VB_REUSEPORT_QUESTIONS,
    VB_REUSEPORT_REBUILDS,
    VB_REUSEPORT_COUNTS
};

/* Called each time that another member is heard of. */
typedef void vb_met_fn(void *argument);

struct vb_reuseport_config {
    int group; /* the UDP socket on the port, or later by vb_roce_reuseport_set_group; the caller
                  closes it */
    uint16_t port;     /* 0: 4791 */
    uint64_t instance; /* a random number that tells this process from others */
    bool no_program;   /* no program is attached, so that everything is forwarded: for tests */
    vb_forwarded_fn *deliver;
    vb_met_fn *met; /* or NULL */
    void *argument; /* of deliver and met */
};

struct vb_reuseport;

/*
 * For vb_udp_config.prepare: attaches a program that knows probes, which the first socket of a
 * group must have before it is bound.
 */
int vb_roce_reuseport_prepare(int socket);

int vb_roce_reuseport_open(const struct vb_reuseport_config *config,
                           struct vb_reuseport **reuseport);
/*
 * Sets the socket, before the first slot is added: it is bound when all else that can fail is open.
 */
void vb_roce_reuseport_set_group(struct vb_reuseport *reuseport, int group);
/* Called after the socket on the port was closed: requests a rebuild from the members that stay. */
void vb_roce_reuseport_close(struct vb_reuseport *reuseport);
void vb_roce_reuseport_abandon(struct vb_reuseport *reuseport);

/*
 * This process owns the slot from now on. -EADDRINUSE: another process holds the name of the slot's
 * socket.
 */
int vb_roce_reuseport_add_slot(struct vb_reuseport *reuseport, uint32_t slot, uint64_t now);

/*
 * Is the packet for this process's engine? If not, it was a question and is answered, or it was
 * forwarded or dropped.
 */
bool vb_roce_reuseport_takes(struct vb_reuseport *reuseport, const struct vb_arrival *arrival,
                             uint64_t now);

/*
 * Readable when vb_roce_reuseport_serve has work. It has some at the deadline, too (UINT64_MAX:
 * none).
 */
int vb_roce_reuseport_fd(const struct vb_reuseport *reuseport);
uint64_t vb_roce_reuseport_deadline(const struct vb_reuseport *reuseport);
void vb_roce_reuseport_serve(struct vb_reuseport *reuseport, uint64_t now);
/*
 * Before the process ends: sends what is kept for busy owners, as far as they take it. False: all
 * has left.
 */
bool vb_roce_reuseport_push(struct vb_reuseport *reuseport, uint64_t now);

uint64_t vb_roce_reuseport_counter(const struct vb_reuseport *reuseport,
                                   enum vb_reuseport_count which);
const char *vb_roce_reuseport_counter_name(enum vb_reuseport_count which);
/* How many members the last rebuild found; for tests. */
unsigned vb_roce_reuseport_members(const struct vb_reuseport *reuseport);

#endif
