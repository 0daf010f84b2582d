// SPDX-License-Identifier: Apache-2.0
/* One adapter, and two queue pairs of it that are connected to each other. */
#ifndef VB_TESTS_LOOPBACK_H
#define VB_TESTS_LOOPBACK_H

#include "hca/hca.h"
#include "host/host.h"

struct loopback {
    struct ibv_context ibv;
    struct vb_host *host;
    struct vb_direct *direct; /* the host's */
    struct vb_context *context;
    struct vb_pd *pd;
    struct vb_xrcd *xrcd;
    struct vb_cq *cq[2];
    struct vb_qp *qp[2];
    struct vb_mr *mr[2];
    uint8_t *memory[2];
};

enum { LOOPBACK_BYTES = 1 << 16, LOOPBACK_DEPTH = 16 };

/* An own GID: index 1, made from the GUID. */
void loopback_gid(struct vb_direct *direct, uint8_t raw[16]);
void loopback_open(struct loopback *loop, enum ibv_qp_type type);
void loopback_close(struct loopback *loop);
/* To RTS, with this rnr_retry (7: for ever); timeout and retry_cnt make up 2 ms. */
void loopback_connect(struct vb_qp *qp, struct vb_qp *peer, uint8_t rnr_retry);

/* Posts and returns the status; 0 and `wc` when it is polled within a second. */
int loopback_poll(struct vb_cq *cq, struct ibv_wc *wc);

#endif
