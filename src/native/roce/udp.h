// SPDX-License-Identifier: Apache-2.0
/*
 * RoCE v2 packets as UDP datagrams (IBA annex A17): the sockets, the batches, the ICRC.
 *
 * Packets are received by one wildcard socket on port 4791 that carries both IP versions, and sent
 * by others, the sources. An unprivileged socket cannot choose a source port per datagram, and the
 * source port is what spreads flows over a network's paths; so a flow is given one of a few
 * sources, each bound to its own port in 0xc000..0xffff, and its packets always leave through that
 * one. A source is never connected: Linux then numbers the datagrams (IP identification), the ICRC
 * covers that number, and no program can see it. Unconnected with DF set it is 0, and i in the i-th
 * segment of a batch that the kernel or the adapter cuts (UDP_SEGMENT). So that the receiver knows
 * i, it is in the packet, too (ids.h).
 *
 * Calls exclude each other by the caller's lock but where it is said otherwise.
 */
#ifndef VB_ROCE_UDP_H
#define VB_ROCE_UDP_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/packet.h"
#include "wire/icrc.h"

enum { VB_UDP_SOURCES = 16 };

/* What can be left out: by a test, or to look for a driver's mistake. */
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

/* What of a datagram neither vb_packet nor vb_arrival says. */
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
    /* In ns: how long a sender has been silent (ids.h). NULL: time stands still. */
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
 * Before vb_roce_udp_close: datagrams come to other sockets of the port from now on, and what waits
 * in this one can still be received. 0, or what the system said.
 */
int vb_roce_udp_leave_port(struct vb_udp *udp);

/* Readable when datagrams wait. */
int vb_roce_udp_fd(const struct vb_udp *udp);
uint64_t vb_roce_udp_counter(const struct vb_udp *udp, enum vb_udp_count which);
const char *vb_roce_udp_counter_name(enum vb_udp_count which);

/*
 * The source port of a new flow: `wanted`, or one near it whose source is free or already open;
 * where there is no descriptor for a source, that of another, at last 4791. From any thread.
 */
uint16_t vb_roce_udp_source_port(struct vb_udp *udp, uint16_t wanted);

/* How many buffers were filled; 0: nothing waits. What was received before is overwritten. */
int vb_roce_udp_receive(struct vb_udp *udp);
/* The next packet in them whose ICRC holds; it stays until the next vb_roce_udp_receive, and one
 * that was unconfirmed before (ids.h) until the next call. */
bool vb_roce_udp_next(struct vb_udp *udp, struct vb_arrival *arrival);
/* When a unconfirmed packet has waited long enough; UINT64_MAX: none is unconfirmed. Then they are
 * refused.
 */
uint64_t vb_roce_udp_deadline(const struct vb_udp *udp);
void vb_roce_udp_expire(struct vb_udp *udp, uint64_t now);
/* Of the packet that vb_roce_udp_next gave last. */
struct vb_udp_seen vb_roce_udp_last(const struct vb_udp *udp);

/* May another packet be staged? False while the system takes no more. */
bool vb_roce_udp_has_room(const struct vb_udp *udp);
/* Takes a copy of a packet. */
struct vb_udp_seen vb_roce_udp_stage(struct vb_udp *udp, const struct vb_packet *packet);
/* Makes the ICRC of the packet that was staged last wrong by these bits. */
void vb_roce_udp_damage_icrc(struct vb_udp *udp, uint32_t icrc_flip);
/* 0: all are gone; -EAGAIN: the system takes no more for now, and the rest is kept. */
int vb_roce_udp_flush(struct vb_udp *udp);
/* Drops what is kept of this sender. */
void vb_roce_udp_forget(struct vb_udp *udp, uint32_t qp_num);

/*
 * A multicast group, as a GID: the socket gets a copy of each of its datagrams, as every other
 * member's socket does that joined it. `interface` 0: the system's choice. 0 or what the system
 * said: -EADDRINUSE where it is joined, -EADDRNOTAVAIL where it is not, -EINVAL: no group.
 */
int vb_roce_udp_join(struct vb_udp *udp, const uint8_t group[16], uint32_t interface);
int vb_roce_udp_leave(struct vb_udp *udp, const uint8_t group[16], uint32_t interface);

/* One packet at once, from any thread: 0 (sent, or dropped and counted) or -EAGAIN, -EFAULT. */
int vb_roce_udp_send(struct vb_udp *udp, const struct vb_packet *packet);

#endif
