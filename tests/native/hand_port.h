// SPDX-License-Identifier: Apache-2.0
/*
 * The port of an adapter whose packets the test itself carries: fabric.c hands them to a second
 * engine, subject.c keeps them. The functions that differ between the two are `struct hand_calls`.
 */
#ifndef VB_TESTS_HAND_PORT_H
#define VB_TESTS_HAND_PORT_H

#include "hca/carrier.h"
#include "hca/hca.h"

/* Each is the entry of the same purpose in vb_port or vb_carrier. */
struct hand_calls {
    int (*number)(struct vb_adapter *adapter, uint32_t index, uint32_t *qp_num);
    int (*execute)(struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_outcome *outcome);
    void (*doorbell)(struct vb_qp *qp);
    void (*settle)(struct vb_qp *qp);
    int (*carry)(struct vb_qp *qp);   /* the QP's path becomes known to its engine */
    void (*forget)(struct vb_qp *qp); /* the engine has nothing of the QP any more */
};

/* It stays where it is for as long as an adapter has `port`. */
struct hand_port {
    struct vb_host_calls port;
    struct vb_carrier packets, datagrams;
    void (*forget)(struct vb_qp *qp);
};

void hand_port_make(struct hand_port *hand, const struct hand_calls *calls);

#endif
