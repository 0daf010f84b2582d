// SPDX-License-Identifier: Apache-2.0
#include "loopback.h"

#include <time.h>

#include "check.h"

static void modify(struct vb_qp *qp, struct ibv_qp_attr attr, int mask)
{
    CHECK_EQ(vb_qp_modify(qp, &attr, mask), 0);
}

/* Of what RC needs, XRC_RECV needs the responder's half and XRC_SEND the requester's. */
static int responds(const struct vb_qp *qp)
{
    bool needs = qp->type == IBV_QPT_RC || qp->type == IBV_QPT_XRC_RECV;

    return needs ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
}

static int requests(const struct vb_qp *qp)
{
    if (qp->type == IBV_QPT_XRC_RECV)
        return IBV_QP_TIMEOUT;
    if (qp->type != IBV_QPT_RC && qp->type != IBV_QPT_XRC_SEND)
        return 0;
    return IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

void loopback_gid(struct vb_direct *direct, uint8_t raw[16])
{
    struct vb_gid gid;

    CHECK(vb_port_addresses_get(direct->adapter->ports[0].addresses, 1, &gid));
    memcpy(raw, gid.raw, 16);
}

static void to_rtr(struct vb_qp *qp, struct vb_qp *peer)
{
    struct vb_direct *direct = vb_direct_of(qp->context->adapter);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer->number,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1},
    };

    loopback_gid(direct, attr.ah_attr.grh.dgid.raw);
    modify(qp, attr,
           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               responds(qp));
}

static void to_rts(struct vb_qp *qp, uint8_t rnr_retry)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = 8,
                               .retry_cnt = 1,
                               .rnr_retry = rnr_retry,
                               .max_rd_atomic = 1};

    modify(qp, attr, IBV_QP_STATE | IBV_QP_SQ_PSN | requests(qp));
}

void loopback_connect(struct vb_qp *qp, struct vb_qp *peer, uint8_t rnr_retry)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                                  IBV_ACCESS_REMOTE_ATOMIC |
                                                  IBV_ACCESS_FLUSH_GLOBAL |
                                                  IBV_ACCESS_FLUSH_PERSISTENT};

    modify(qp, init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    to_rtr(qp, peer);
    to_rts(qp, rnr_retry);
}

static void open_end(struct loopback *loop, enum ibv_qp_type type, int end)
{
    struct ibv_qp_init_attr_ex attr = {
        .qp_type = type,
        .pd = &loop->pd->ibv,
        .xrcd = &loop->xrcd->ibv,
        .cap = {LOOPBACK_DEPTH, LOOPBACK_DEPTH, 4, 4, 64},
    };

    CHECK_EQ(vb_cq_create(loop->context, 4 * LOOPBACK_DEPTH, NULL, NULL, &loop->cq[end]), 0);
    attr.send_cq = attr.recv_cq = &loop->cq[end]->ibv;
    CHECK_EQ(vb_qp_create(loop->context, &attr, &loop->qp[end]), 0);
    loop->memory[end] = calloc(1, LOOPBACK_BYTES);
    CHECK_EQ(vb_mr_reg(loop->pd, loop->memory[end], LOOPBACK_BYTES, (uintptr_t)loop->memory[end],
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL,
                       &loop->mr[end]),
             0);
}

void loopback_open(struct loopback *loop, enum ibv_qp_type type)
{
    const struct vb_host_config config = {.direct_only = true};

    memset(loop, 0, sizeof(*loop));
    CHECK_EQ(vb_host_open(&config, &loop->host), 0);
    loop->direct = loop->host->direct;
    CHECK_EQ(vb_context_open(&loop->host->adapter, &loop->ibv, &loop->context), 0);
    CHECK_EQ(vb_pd_alloc(loop->context, &loop->pd), 0);
    CHECK_EQ(vb_xrcd_open(loop->context, 1, -1, &loop->xrcd), 0);
    open_end(loop, type, 0);
    open_end(loop, type, 1);
}

void loopback_close(struct loopback *loop)
{
    vb_context_close(loop->context);
    vb_host_close(loop->host);
    free(loop->memory[0]);
    free(loop->memory[1]);
}

int loopback_poll(struct vb_cq *cq, struct ibv_wc *wc)
{
    uint64_t end = vb_direct_now() + 1000000000;

    while (vb_direct_now() < end)
        if (vb_cq_poll(cq, 1, wc) == 1)
            return 0;
    return -ETIMEDOUT;
}
