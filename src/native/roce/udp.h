// SPDX-License-Identifier: Apache-2.0
/*
 * RoCE v2 packets as UDP datagrams (IBA annex A17): the sockets, the batches, the ICRC. roce.c
 * calls it under the carrier's lock; calls from any thread are marked so.
 *
 * One wildcard socket on port 4791 receives, for both IP versions. Others send: an unprivileged
 * socket cannot choose a source port for each datagram, and networks spread flows over their paths
 * by the source port. So there are a few sending sockets, each bound to its own port in
 * 0xc000..0xffff, and a flow's packets always leave through the same one, its source.
 *
 * A batch is one message that the kernel or the adapter cuts into datagrams of equal size (generic
 * segmentation offload, UDP_SEGMENT).
 *
 * A source is never connected. Of a connected socket Linux numbers the datagrams (IP
 * identification); the ICRC covers that number, and no program can see it. Of an unconnected socket
 * with DF set the identification is 0, and i in the i-th segment of a batch. The packet itself
 * contains i for the receiver (ids.h).
 */
#ifndef VB_ROCE_UDP_H
#define VB_ROCE_UDP_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/packet.h"
#include "wire/icrc.h"

enum { VB_UDP_SOURCES = 16 };

/* What is not used: for tests, and to find a driver's fault. */
enum vb_udp_without {
    VB_UDP_WITHOUT_GSO = 1 << 0,  /* UDP_SEGMENT */
    VB_UDP_WITHOUT_GRO = 1 << 1,  /* UDP_GRO */
    VB_UDP_WITHOUT_MMSG = 1 << 2, /* recvmmsg, sendmmsg */
    VB_UDP_WITHOUT_IPV6 = 1 << 3,
};

enum vb_udp_count {
    VB_UDP_SENT, /* packets */
    VB_UDP_SENT_CALLS,
    VB_UDP_RECEIVED,
    VB_UDP_RECEIVED_CALLS, /* that found something */
    /* packets that were not sent */
    VB_UDP_DROP_NO_ROUTE,  /* no route, the interface is down, or the source address is gone */
    VB_UDP_DROP_FORBIDDEN, /* EPERM: a packet filter */
    VB_UDP_DROP_TOO_LONG,  /* EMSGSIZE: the interface's MTU is below the path MTU */
    VB_UDP_DROP_FAULT,     /* EFAULT: the payload's memory is gone; reported to `fault` */
    VB_UDP_DROP_ADDRESS,   /* IPv4 to IPv6, or IPv6 where there is none */
    VB_UDP_DROP_OTHER,
    /* datagrams that are no packets */
    VB_UDP_BAD_LENGTH,
    VB_UDP_BAD_ICRC,
    /* not errors */
    VB_UDP_POSTPONED, /* the system took no more for now: kept */
    VB_UDP_SPLIT,     /* a batch that had to be sent packet by packet */
    VB_UDP_COUNTS
};

/* What is known of a datagram and is not in vb_packet or vb_arrival. */
struct vb_udp_seen {
    uint16_t source_port;
    uint16_t ip_id; /* IPv4: as the wire has it; IPv6: 0 */
};

struct vb_udp_config {
    uint16_t port;    /* 0: 4791 */
    unsigned without; /* enum vb_udp_without */
    bool loop;        /* what is sent to a group comes to this host's members too */
    /* Called with the receiving socket before it is bound: 0, or -errno to open without. */
    int (*prepare)(int fd);
    /* A packet's payload could not be read. May be NULL. */
    void (*fault)(void *argument, uint32_t qp_num, uint32_t psn);
    /* The time in ns, by which a sender's silence is measured (ids.h). NULL: time stands still. */
    uint64_t (*clock)(void);
    /* A datagram whose ICRC is wrong; `doubted`: it would be right with an identification that is
     * not believed, so a connection may ask for it again. May be NULL. */
    void (*refused)(void *argument, const struct vb_arrival *arrival, struct vb_udp_seen seen);
    /* The interface of an own GID, for destinations that need one (link-local, multicast); 0: the
     * system's choice. From any thread. May be NULL. */
    uint32_t (*interface)(void *argument, const struct vb_path *path);
    void *argument;
};

struct vb_udp;

/* -EADDRINUSE: another user's process has the port; or what the system said. */
int vb_roce_udp_open(const struct vb_udp_config *config, struct vb_udp **udp);
void vb_roce_udp_close(struct vb_udp *udp);
/* In a forked child: only closes its copies of the descriptors. */
void vb_roce_udp_abandon(struct vb_udp *udp);

/*
 * The receiving socket leaves the port, before vb_roce_udp_close: datagrams go to other sockets of
 * the port from now on, and those that wait in this one can still be received. 0, or what the
 * system said.
 */
int vb_roce_udp_leave_port(struct vb_udp *udp);

/* Readable when datagrams wait. */
int vb_roce_udp_fd(const struct vb_udp *udp);
uint64_t vb_roce_udp_counter(const struct vb_udp *udp, enum vb_udp_count which);
const char *vb_roce_udp_counter_name(enum vb_udp_count which);

/*
 * The source port of a new flow: `wanted`, or one near it that is free, or that an open source has.
 * Where no descriptor is left for another source it is the port of an open one, at last 4791. From
 * any thread.
 */
uint16_t vb_roce_udp_source_port(struct vb_udp *udp, uint16_t wanted);

/*
 * Receives as many buffers as there are, at most as many as expected: how many; 0: no datagram
 * waits. What was received before is overwritten.
 */
int vb_roce_udp_receive(struct vb_udp *udp);
/*
 * The next packet in them whose ICRC holds. It stays until the next vb_roce_udp_receive; one that
 * was kept unconfirmed before (ids.h) stays until the next call only.
 */
bool vb_roce_udp_next(struct vb_udp *udp, struct vb_arrival *arrival);
/*
 * When the oldest unconfirmed packet has waited long enough, and is refused by vb_roce_udp_expire;
 * UINT64_MAX: there is none.
 */
uint64_t vb_roce_udp_deadline(const struct vb_udp *udp);
void vb_roce_udp_expire(struct vb_udp *udp, uint64_t now);
/* Other processes of this host take packets from the same port (ids.h). */
void vb_roce_udp_share(struct vb_udp *udp);
/* What was seen of the packet that vb_roce_udp_next gave last. */
struct vb_udp_seen vb_roce_udp_last(const struct vb_udp *udp);

/* May another packet be staged? False while the system takes no more. */
bool vb_roce_udp_has_room(const struct vb_udp *udp);
/* Copies a packet into the next batch. */
struct vb_udp_seen vb_roce_udp_stage(struct vb_udp *udp, const struct vb_packet *packet);
/* Makes the ICRC of the packet that was staged last wrong by these bits. */
void vb_roce_udp_damage_icrc(struct vb_udp *udp, uint32_t icrc_flip);
/*
 * Sends what was staged. 0: all has left; -EAGAIN: the system takes no more for now, and the rest
 * is kept.
 */
int vb_roce_udp_flush(struct vb_udp *udp);
/* Drops the packets of this QP that were staged and have not left. */
void vb_roce_udp_forget(struct vb_udp *udp, uint32_t qp_num);

/*
 * The receiving socket joins or leaves a multicast group, given as a GID. Each socket that joined
 * gets a copy of each of the group's datagrams. `interface` 0: the system's choice. 0, or what the
 * system said: -EADDRINUSE: it has joined already, -EADDRNOTAVAIL: it has not joined, -EINVAL: no
 * group.
 */
int vb_roce_udp_join(struct vb_udp *udp, const uint8_t group[16], uint32_t interface);
int vb_roce_udp_leave(struct vb_udp *udp, const uint8_t group[16], uint32_t interface);

/*
 * Sends one packet at once, from any thread: 0 (sent, or dropped and counted), -EAGAIN or -EFAULT.
 */
int vb_roce_udp_send(struct vb_udp *udp, const struct vb_packet *packet);

#endif
