// SPDX-License-Identifier: Apache-2.0
/*
 * What an adapter asks of the port behind it, which is the host's (host) or a simulated one
 * (sim): numbers, carriers for its QPs (carrier.h), groups, time. Each call may be made from
 * any thread.
 */
#ifndef VB_HCA_HOST_CALLS_H
#define VB_HCA_HOST_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/verbs.h"

struct vb_adapter;
struct vb_context;
struct vb_cq;
struct vb_qp;

struct vb_host_calls {
    /* The table index of a new QP has no number yet: gives it one. -ENOMEM: none is left. */
    int (*number)(struct vb_adapter *adapter, uint32_t index, uint32_t *qp_num);
    /*
     * INIT to RTR: chooses the QP's carrier, which finds the peer. An absent peer is not an error
     * (it may come). With an error the QP has no carrier.
     */
    int (*connect)(struct vb_qp *qp);
    /* To RESET, or destroyed: the QP's peer is forgotten, and it has no carrier any more. */
    void (*disconnect)(struct vb_qp *qp);
    /* The QP has requests that wait, or is in ERR with receives to flush: come back to it. */
    void (*attend)(struct vb_qp *qp);
    /* Requests of QPs on this CQ wait: try them now. */
    void (*progress)(struct vb_cq *cq);
    /*
     * May be NULL. The QP is in the multicast group from now on: what is sent to the group is to
     * reach it. Under adapter->groups. 0, or -errno: it is not in the group then.
     */
    int (*join)(struct vb_qp *qp, const uint8_t group[16]);
    /* May be NULL. The adapter's last QP has left the group. Under adapter->groups. */
    void (*leave)(struct vb_adapter *adapter, const uint8_t group[16]);
    /* May be NULL. This descriptor, a channel's or async_fd, has just become readable. */
    void (*readable)(struct vb_context *context, int fd);
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
