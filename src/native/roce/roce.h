// SPDX-License-Identifier: Apache-2.0
/*
 * The carrier by RoCE v2: the packet engine between an adapter's queue pairs and UDP port 4791. A
 * host (host/host.c, host/carriers.c) opens one for its adapter.
 *
 * One lock protects the engine and the sockets. Work is done under it by the thread that posts
 * (vb_roce_doorbell), by the thread that polls (vb_roce_progress), and by the carrier's own thread,
 * which sleeps until a datagram comes or a timer is due. polling.h says which of them receives.
 *
 * Lock order: adapter->lifetime, the carrier's lock, a QP's sq_lock. A thread that holds an sq_lock
 * calls nothing here but vb_roce_datagram.
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
    struct vb_adapter *adapter; /* the thread keeps the GID tables of its ports up to date */
    struct vb_engine_config engine;
    uint16_t port;     /* 0: 4791 */
    unsigned without;  /* enum vb_udp_without */
    bool loop;         /* what is sent to a multicast group comes to this host's members too */
    const char *fault; /* records of rules that were checked (wrap/fault_rules.h); or NULL */
    const struct vb_capture_config *capture; /* or NULL */
    /* A port's addresses or state changed: called from the carrier's thread, without the lock, for
     * IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE and IBV_EVENT_PORT_ERR. May be NULL. */
    void (*event)(void *argument, uint8_t port_num, enum ibv_event_type type);
    /* A line about packets that were refused, at most one a second, under the lock. May be NULL. */
    void (*log)(void *argument, const char *line);
    void *argument;
};

/*
 * Opens the sockets and starts the thread. -EADDRINUSE: another user's process has UDP port 4791
 * here; -EMFILE, -ENOMEM, or what the system said.
 */
int vb_roce_open(const struct vb_roce_config *config, struct vb_roce **roce);
/*
 * Returns when the packets that fault rules hold have left, each when it is due, and after a second
 * at the latest; what is due later leaves then. It does not wait for the carrier's lock, which
 * another thread may have for ever.
 */
void vb_roce_flush(struct vb_roce *roce);
/*
 * Called where a process ends without vb_roce_close. When it returns, vb_roce_flush has been done,
 * what was posted has left (50 ms at most), and this process's socket gets no more packets; those
 * that wait in it for other processes are passed on.
 */
void vb_roce_end(struct vb_roce *roce);
/* No QP is left when this is called. */
void vb_roce_close(struct vb_roce *roce);
/* In a forked child, which has no such thread: closes its copies of the descriptors. */
void vb_roce_abandon(struct vb_roce *roce);

/* Queue pair numbers of this slot are this process's (direct/slot.h). */
int vb_roce_add_slot(struct vb_roce *roce, uint32_t slot);

/* ---- calls of a vb_carrier and of vb_host_calls, for the QPs of this carrier ---- */

/*
 * INIT to RTR: the path follows from the QP's attributes. A UD QP has none. -EINVAL: the GID index
 * is empty;
 * -ENETUNREACH: no address stands behind it; what vb_port_route says of the way there; -EMSGSIZE
 * also where the path MTU does not fit the route's; -ENOMEM.
 */
int vb_roce_connect(struct vb_roce *roce, struct vb_qp *qp);
void vb_roce_disconnect(struct vb_roce *roce, struct vb_qp *qp);
/* The QP has new requests, or is in another state. From any thread that holds no sq_lock. */
void vb_roce_doorbell(struct vb_roce *roce, struct vb_qp *qp);
/*
 * A QP in RTS is about to be reset or destroyed: sends what was posted to it first. Requests may
 * have been left to the lock's holder, or wait for others to leave with. A reliable QP sends what
 * its window allows; a UC QP is waited for, 50 ms at most, while the system takes no more. From any
 * thread that holds no sq_lock.
 */
void vb_roce_send_posted(struct vb_roce *roce, struct vb_qp *qp);
/* A program polls: receives what is there and sends what is ready, unless another thread has the
 * lock. */
void vb_roce_progress(struct vb_roce *roce);
/* Takes all that has arrived, and sends the answers. */
void vb_roce_take_arrived(struct vb_roce *roce);
/* A program armed a CQ: from now on the thread answers datagrams at once. */
void vb_roce_armed(struct vb_roce *roce);
/* Returns when the engine has ended with every packet that it had begun before the call. */
void vb_roce_settle(struct vb_roce *roce);
bool vb_roce_quiet(struct vb_roce *roce);
/*
 * A UD QP's request, under its sq_lock: it is sent, or ended as `outcome` says. A datagram to which
 * no route leads is dropped and counted, as a network would.
 */
int vb_roce_datagram(struct vb_roce *roce, struct vb_qp *qp, const struct ibv_send_wr *wr,
                     struct vb_outcome *outcome);

/* ---- multicast (groups.c); calls exclude each other by adapter->groups ---- */

/*
 * The QP joined the group: the group's datagrams are received on every interface that has an
 * address of its IP version. -ENOMEM: a socket's limit (net.ipv4.igmp_max_memberships);
 * -EAFNOSUPPORT: an IPv6 group, where there is no IPv6; or what the system said.
 */
int vb_roce_join(struct vb_roce *roce, struct vb_qp *qp, const uint8_t group[16]);
void vb_roce_leave_group(struct vb_roce *roce, const uint8_t group[16]);

/* ---- questions ---- */

/* Faults and captures; after new rules, vb_roce_wrapped. */
struct vb_wrap *vb_roce_wrap(struct vb_roce *roce);
void vb_roce_wrapped(struct vb_roce *roce);
struct vb_engine *vb_roce_engine(struct vb_roce *roce);
struct vb_udp *vb_roce_udp(struct vb_roce *roce);

/* The member "counters" of a JSON object, with those that are not 0. Length as snprintf. */
int vb_roce_describe(struct vb_roce *roce, char *json, size_t size);
/*
 * All counters, as the members "engine", "udp" and "reuseport" of a JSON object, read without the
 * lock and so approximately. "engine" contains what was dropped of the adapter's datagrams that go
 * without packets, too; `roce` may be NULL.
 */
void vb_roce_counters(const struct vb_roce *roce, const struct vb_adapter *adapter,
                      struct vb_text *text);
/* Calls `tell` for each of these counters that is not 0. */
typedef void vb_tell_counter(const char *part, const char *name, uint64_t value);
void vb_roce_tell_counters(const struct vb_roce *roce, const struct vb_adapter *adapter,
                           vb_tell_counter *tell);

/* How often the thread has woken up so far. For tests of idleness. */
uint64_t vb_roce_wakeups(const struct vb_roce *roce);

/*
 * A flow's UDP source port, 0xc000 to 0xffff: from the flow label or, where that is 0, from both QP
 * numbers, so that both directions have the same (RoCE v2, A17.9.2.1; Linux' rdma_flow_label).
 */
uint16_t vb_roce_source_port(uint32_t flow_label, uint32_t qp_num, uint32_t dest_qp_num);

uint64_t vb_roce_now(void); /* ns, monotonic */

#endif
