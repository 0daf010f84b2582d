// SPDX-License-Identifier: Apache-2.0
/*
 * The RoCE v2 port: the packet engine between an adapter's queue pairs and UDP port 4791.
 *
 * One lock keeps engine and sockets. Who needs the port does its work under it: who posts (kick),
 * who polls (progress), and the port's own thread. The thread sleeps until a datagram comes or a
 * timer is due, and keeps out of the way of a program that polls: when it was woken by a datagram
 * and finds that somebody has polled since it last looked, it does not watch the socket any more,
 * and looks again every millisecond until nobody polls. A program that armed a CQ is about to
 * sleep: then the socket is watched at once.
 *
 * Lock order: adapter->lifetime, the port's lock, a QP's sq_lock. Who holds an sq_lock calls
 * nothing here but vb_roce_datagram.
 */
#ifndef VB_ROCE_ROCE_H
#define VB_ROCE_ROCE_H

#include "hca/qp.h"
#include "port/address.h"
#include "roce/reuseport.h"
#include "roce/udp.h"
#include "transport/engine.h"

struct vb_capture_config;
struct vb_roce;
struct vb_text;
struct vb_wrap;

struct vb_roce_config {
    struct vb_adapter *adapter; /* the port's thread keeps the GID tables of its ports up to date */
    struct vb_engine_config engine;
    uint16_t port;     /* 0: 4791 */
    unsigned without;  /* enum vb_udp_without */
    bool loop;         /* what is sent to a multicast group comes to this host's members too */
    const char *fault; /* rules that are right; or NULL */
    const struct vb_capture_config *capture; /* or NULL */
    /* Addresses or the port's state changed: called from the port's thread, without the lock, for
     * IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE and IBV_EVENT_PORT_ERR. May be NULL. */
    void (*event)(void *argument, uint8_t port_num, enum ibv_event_type type);
    /* A line about packets that were refused, at most one a second, under the lock. May be NULL. */
    void (*log)(void *argument, const char *line);
    void *argument;
};

/*
 * -EADDRINUSE: another user's process has port 4791 here; -EMFILE, -ENOMEM, or what the system
 * said.
 */
int vb_roce_open(const struct vb_roce_config *config, struct vb_roce **roce);
/*
 * Returns when the packets that fault rules hold have left, each when it is due, and after a second
 * at the latest; what is due later leaves then. Another thread may have the port's lock for ever.
 */
void vb_roce_flush(struct vb_roce *roce);
/*
 * Where a process ends without vb_roce_close: that, and what was posted has left (50 ms at most),
 * and this process's socket gets no more packets; those that wait in it for others are passed on.
 */
void vb_roce_end(struct vb_roce *roce);
/* After the last QP is gone. */
void vb_roce_close(struct vb_roce *roce);
/* In a forked child, which has no such thread: closes its copies of the descriptors. */
void vb_roce_abandon(struct vb_roce *roce);

/* Queue pair numbers of this slot are this process's (direct/slot.h). */
int vb_roce_add_slot(struct vb_roce *roce, uint32_t slot);

/* ---- a vb_host_calls' calls, for QPs that this port carries (vb_qp.by_packets) ---- */

/*
 * INIT to RTR, from the QP's attributes; a UD QP has no path yet. -EINVAL: the GID index is empty;
 * -ENETUNREACH: no address stands behind it; what vb_port_route says of the way there; -EMSGSIZE
 * also where the path MTU does not fit the route's; -ENOMEM.
 */
int vb_roce_connect(struct vb_roce *roce, struct vb_qp *qp);
void vb_roce_disconnect(struct vb_roce *roce, struct vb_qp *qp);
/* New requests, or another state. From any thread that holds no sq_lock. */
void vb_roce_doorbell(struct vb_roce *roce, struct vb_qp *qp);
/*
 * A QP in RTS is about to be reset or destroyed: what was posted to it leaves first. It may wait
 * for the port's lock, or for more requests to leave with. A reliable QP has one turn, a UC QP what
 * it takes, 50 ms at most, as a network may take no more for now. From any thread that holds no
 * sq_lock.
 */
void vb_roce_send_posted(struct vb_roce *roce, struct vb_qp *qp);
/* Somebody polls: receives what is there and sends what is ready, unless another is at it. */
void vb_roce_progress(struct vb_roce *roce);
/* A program armed a CQ: the thread answers datagrams at once from now on. */
void vb_roce_armed(struct vb_roce *roce);
/* Returns when the engine is at no packet that it had begun before the call. */
void vb_roce_settle(struct vb_roce *roce);
bool vb_roce_quiet(struct vb_roce *roce);
/*
 * A UD QP's request, under its sq_lock: sent, or ended as `outcome` says. What has no way there is
 * dropped and counted, as a network would.
 */
int vb_roce_datagram(struct vb_roce *roce, struct vb_qp *qp, const struct ibv_send_wr *wr,
                     struct vb_outcome *outcome);

/* ---- multicast (groups.c); calls exclude each other by adapter->groups ---- */

/*
 * The QP is in the group: its datagrams are received on every interface that has an address of the
 * group's IP version. -ENOMEM: a socket's limit (net.ipv4.igmp_max_memberships); -EAFNOSUPPORT: an
 * IPv6 group, where there is no IPv6; or what the system said.
 */
int vb_roce_join(struct vb_roce *roce, struct vb_qp *qp, const uint8_t group[16]);
void vb_roce_leave_group(struct vb_roce *roce, const uint8_t group[16]);

/* ---- questions ---- */

/* Faults and captures; after new rules, vb_roce_wrapped. */
struct vb_wrap *vb_roce_wrap(struct vb_roce *roce);
void vb_roce_wrapped(struct vb_roce *roce);
struct vb_engine *vb_roce_engine(struct vb_roce *roce);
struct vb_udp *vb_roce_udp(struct vb_roce *roce);
struct vb_reuseport *vb_roce_reuseport(struct vb_roce *roce);

/* As a member of a JSON object: "counters", with those that are not 0. Length as snprintf. */
int vb_roce_describe(struct vb_roce *roce, char *json, size_t size);
/* All of them, as members of a JSON object: "engine", "udp" and "reuseport"; approximately, without
 * the lock. "engine" has what was dropped of the adapter's datagrams without packets, too; `roce`
 * may be NULL. */
void vb_roce_counters(const struct vb_roce *roce, const struct vb_adapter *adapter,
                      struct vb_text *text);
/* Those that are not 0, one by one, likewise. */
typedef void vb_tell_counter(const char *part, const char *name, uint64_t value);
void vb_roce_tell_counters(const struct vb_roce *roce, const struct vb_adapter *adapter,
                           vb_tell_counter *tell);

/* The thread's turns so far: how often it woke up. For tests of idleness. */
uint64_t vb_roce_wakeups(const struct vb_roce *roce);

/*
 * A flow's UDP source port, 0xc000 to 0xffff: from the flow label or, where that is 0, from both QP
 * numbers, so that both directions have the same (RoCE v2, A17.9.2.1; Linux' rdma_flow_label).
 */
uint16_t vb_roce_source_port(uint32_t flow_label, uint32_t qp_num, uint32_t dest_qp_num);

uint64_t vb_roce_now(void); /* ns, monotonic */

#endif
