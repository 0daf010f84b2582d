// SPDX-License-Identifier: Apache-2.0
/*
 * A port carries requests to the other side; the adapter does not know how (DESIGN: port).
 * Each call may be made from any thread.
 */
#ifndef VB_HCA_PORT_H
#define VB_HCA_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/verbs.h"

struct vb_adapter;
struct vb_context;
struct vb_cq;
struct vb_qp;

/* How a request ended. */
struct vb_outcome {
    enum ibv_wc_status status;
    uint32_t byte_len;
    uint32_t evidence; /* id of the record behind an error, 0 if none */
};

struct vb_port {
    /* The table index of a new QP has no number yet: gives it one. -ENOMEM: none is left. */
    int (*number)(struct vb_adapter *adapter, uint32_t index, uint32_t *qp_num);
    /*
     * INIT to RTR. A connected QP: find the peer. An absent one is not an error (it may come). Of a
     * QP that is carried by packets also in SQD, with a new address.
     */
    int (*connect)(struct vb_qp *qp);
    /* To RESET, or destroyed: forget the peer. */
    void (*disconnect)(struct vb_qp *qp);
    /*
     * Carries one request out, under the QP's sq_lock. 0: it ended as `outcome` says.
     * -EAGAIN: it waits (receiver not ready, peer not there); progress tries again.
     */
    int (*execute)(struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_outcome *outcome);
    /* After vb_barrier_everywhere: returns when no request that had begun, by this QP or towards
     * it, is still under way. */
    void (*settle)(struct vb_qp *qp);
    /* The same asked without waiting; true: none is. */
    bool (*quiet)(struct vb_qp *qp);
    /*
     * From within a request of a QP that is not carried by packets, under its sq_lock: waits for
     * what its peer had begun when this was called. False: that takes long, try again later (the
     * peer may wait for this QP in the same way).
     */
    bool (*settle_peer)(struct vb_qp *qp);
    /* The QP has requests that wait, or is in ERR with receives to flush: come back to it. */
    void (*attend)(struct vb_qp *qp);
    /* Requests of QPs on this CQ wait: try them now. */
    void (*progress)(struct vb_cq *cq);
    /*
     * Only where the port carries QPs by packets (vb_qp.by_packets): such a QP has new requests, or
     * another state. Without its sq_lock; the port takes the engine's lock, calls vb_engine_attend
     * and sends what is ready.
     */
    void (*kick)(struct vb_qp *qp);
    /*
     * May be NULL. Such a QP in RTS is about to be reset or destroyed: what was posted to it, and
     * waits for the port alone, is sent before this returns. Without its sq_lock.
     */
    void (*send_posted)(struct vb_qp *qp);
    /*
     * May be NULL. The QP is in the multicast group from now on: what is sent to the group is to
     * reach it. Under adapter->groups. 0, or -errno: it is not in the group then.
     */
    int (*join)(struct vb_qp *qp, const uint8_t group[16]);
    /* May be NULL. The adapter's last QP has left the group. Under adapter->groups. */
    void (*leave)(struct vb_adapter *adapter, const uint8_t group[16]);
    /* May be NULL. This descriptor, a channel's or async_fd, has just become readable. */
    void (*told)(struct vb_context *context, int fd);
    /* May be NULL. A CQ was armed whose polling makes progress: the program is about to sleep. */
    void (*armed)(struct vb_cq *cq);
    /* The device's clock in ns, the same for every process of the host, or of the simulated
     * fabric. NULL: completions have no times. */
    uint64_t (*now)(const struct vb_adapter *adapter);
    /* Calls vb_cq_release_held once, after that time. NULL: events are not moderated. */
    int (*release_later)(struct vb_cq *cq, uint32_t microseconds);
    /* May be NULL. Calls vb_vigils_look (vigil.h) in a second, and again while that asks for it.
     */
    void (*look)(struct vb_adapter *adapter);
};

#endif
