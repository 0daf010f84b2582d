// SPDX-License-Identifier: Apache-2.0
/*
 * What an adapter asks of its host, a process's (host) or a simulated one (sim): numbers, a carrier
 * for each QP (carrier.h), multicast groups, time. The objects of this room call it; each call may
 * be made from any thread.
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
    /* Gives the QP at a table index its number. -ENOMEM: none is left. Under `lifetime`. */
    int (*number)(struct vb_adapter *adapter, uint32_t index, uint32_t *qp_num);
    /*
     * Chooses the QP's carrier at INIT to RTR; the carrier looks for the peer. An absent peer is no
     * error, since it may come later. After an error the QP has no carrier.
     */
    int (*connect)(struct vb_qp *qp);
    /* The QP goes to RESET or is destroyed: it is parted from its peer and its carrier. */
    void (*disconnect)(struct vb_qp *qp);
    /* Puts the QP on the list of the retry thread: it has requests that wait, or receives to
     * flush in ERR. */
    void (*attend)(struct vb_qp *qp);
    /* Tries the waiting requests of QPs that complete on this CQ. */
    void (*progress)(struct vb_cq *cq);
    /* Takes what has arrived and sends what is due, before a program moves a QP to ERR: an adapter
     * would have done both on arrival. May be NULL. */
    void (*take_arrived)(struct vb_adapter *adapter);
    /*
     * Lets datagrams to the multicast group reach the QP. Under adapter->groups. 0, or -errno: the
     * QP is not in the group then. May be NULL.
     */
    int (*join)(struct vb_qp *qp, const uint8_t group[16]);
    /* The adapter's last QP has left the group. Under adapter->groups. May be NULL. */
    void (*leave)(struct vb_adapter *adapter, const uint8_t group[16]);
    /* A descriptor, a channel's or async_fd, has just become readable. May be NULL. */
    void (*readable)(struct vb_context *context, int fd);
    /* A CQ was armed whose polling makes progress, so the program is about to sleep. May be NULL.
     */
    void (*armed)(struct vb_cq *cq);
    /* The device's clock in ns, the same for every process of the host, or of the simulated
     * fabric. NULL: completions have no times. */
    uint64_t (*now)(const struct vb_adapter *adapter);
    /* The time of `now` at which a completion that is made now is in memory. NULL: at once. */
    uint64_t (*written)(const struct vb_adapter *adapter);
    /* A program has polled so many completions of an adapter that has `written`. */
    void (*polled)(struct vb_adapter *adapter, const struct ibv_wc *wc, int count);
    /* Calls vb_cq_release_held once, after that time. NULL: events are not moderated. */
    int (*release_later)(struct vb_cq *cq, uint32_t microseconds);
    /* Calls vb_vigils_look (vigil.h) in a second, and again while that asks for it. May be NULL. */
    void (*look)(struct vb_adapter *adapter);
};

#endif
