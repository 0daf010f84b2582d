// SPDX-License-Identifier: Apache-2.0
/* Two connected queue pairs of one process, made as any program makes them. */
#ifndef VB_TESTS_DROPIN_PAIR_H
#define VB_TESTS_DROPIN_PAIR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "check.h"

enum { PAIR_BYTES = 4096, PAIR_DEPTH = 8, PAIR_SGES = 4, PAIR_INLINE = 64 };

struct pair {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq_ex *cq;
    struct ibv_qp *qp[2];
    struct ibv_mr *mr;
    uint8_t memory[PAIR_BYTES];
};

static inline struct ibv_context *pair_open_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context;

    CHECK(list && list[0]);
    context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    return context;
}

static inline struct ibv_qp *pair_qp(struct pair *pair, enum ibv_qp_type type, uint64_t send_ops)
{
    struct ibv_qp_init_attr_ex attr = {
        .send_cq = ibv_cq_ex_to_cq(pair->cq),
        .recv_cq = ibv_cq_ex_to_cq(pair->cq),
        .cap = {PAIR_DEPTH, PAIR_DEPTH, PAIR_SGES, PAIR_SGES, PAIR_INLINE},
        .qp_type = type,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pair->pd,
        .send_ops_flags = send_ops,
    };

    return ibv_create_qp_ex(pair->context, &attr);
}

/* A small one whose completions go to another CQ than the pair's. */
static inline struct ibv_qp *pair_qp_on(struct pair *pair, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(pair->pd, &attr);

    CHECK(qp);
    return qp;
}

static inline struct ibv_sge pair_sge(struct pair *pair)
{
    return (struct ibv_sge){(uintptr_t)pair->memory, 8, pair->mr->lkey};
}

/* A signalled WRITE of that element to 64 bytes further. */
static inline struct ibv_send_wr pair_write(struct pair *pair, struct ibv_sge *sge)
{
    return (struct ibv_send_wr){
        .sg_list = sge,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {(uintptr_t)pair->memory + 64, pair->mr->rkey},
    };
}

static inline bool pair_is_by_packets(void)
{
    const char *port = getenv("VERBENA_CARRIER");

    return port && strcmp(port, "roce") == 0;
}

/* Index 1 is of this host alone; those that follow are an interface's. */
static inline uint8_t pair_gid_index(struct pair *pair)
{
    static const union ibv_gid none;
    union ibv_gid gid;

    if (!pair_is_by_packets())
        return 1;
    CHECK_EQ(ibv_query_gid(pair->context, 1, 2, &gid), 0);
    if (memcmp(&gid, &none, sizeof(gid)) == 0) {
        printf("no interface has an address; `ip link set lo up` gives it one\n");
        exit(77);
    }
    return 2;
}

static inline struct ibv_ah_attr pair_address(struct pair *pair)
{
    uint8_t index = pair_gid_index(pair);
    struct ibv_ah_attr address = {.is_global = 1, .port_num = 1, .grh.sgid_index = index};

    CHECK_EQ(ibv_query_gid(pair->context, 1, index, &address.grh.dgid), 0);
    return address;
}

/* Where a request goes in the peer's memory, by its opcode; an atomic adds 1. */
static inline void pair_aim(struct ibv_send_wr *wr, uint64_t addr, uint32_t rkey)
{
    if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr->wr.atomic.remote_addr = addr;
        wr->wr.atomic.rkey = rkey;
        wr->wr.atomic.compare_add = 1;
    } else {
        wr->wr.rdma.remote_addr = addr;
        wr->wr.rdma.rkey = rkey;
    }
}

/* `timeout` is the attribute of that name. */
static inline void pair_connect_within(struct pair *pair, struct ibv_qp *qp, uint32_t to,
                                       uint8_t timeout)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = to,
        .max_dest_rd_atomic = 1,
        .max_rd_atomic = 1,
        .min_rnr_timer = 12,
        .timeout = timeout,
        .retry_cnt = 3,
        .rnr_retry = 7,
        .ah_attr = pair_address(pair),
    };

    CHECK_EQ(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
             0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK_EQ(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
             0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
             0);
}

static inline void pair_connect(struct pair *pair, struct ibv_qp *qp, uint32_t to)
{
    pair_connect_within(pair, qp, to, 8);
}

static inline void pair_open_on(struct pair *pair, struct ibv_context *context)
{
    const uint64_t ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                         IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                         IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                         IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE;
    struct ibv_cq_init_attr_ex cq_attr = {.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS};

    memset(pair, 0, sizeof(*pair));
    pair->context = context;
    pair->pd = ibv_alloc_pd(pair->context);
    CHECK(pair->pd);
    pair->cq = ibv_create_cq_ex(pair->context, &cq_attr);
    CHECK(pair->cq);
    pair->mr = ibv_reg_mr(pair->pd, pair->memory, PAIR_BYTES,
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    CHECK(pair->mr);
    for (int i = 0; i < 2; ++i) {
        pair->qp[i] = pair_qp(pair, IBV_QPT_RC, ops);
        CHECK(pair->qp[i]);
    }
    pair_connect(pair, pair->qp[0], pair->qp[1]->qp_num);
    pair_connect(pair, pair->qp[1], pair->qp[0]->qp_num);
}

static inline void pair_open(struct pair *pair)
{
    pair_open_on(pair, pair_open_device());
}

static inline void pair_close(struct pair *pair)
{
    CHECK_EQ(ibv_destroy_qp(pair->qp[0]), 0);
    CHECK_EQ(ibv_destroy_qp(pair->qp[1]), 0);
    CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(pair->cq)), 0);
    CHECK_EQ(ibv_dereg_mr(pair->mr), 0);
    CHECK_EQ(ibv_dealloc_pd(pair->pd), 0);
    CHECK_EQ(ibv_close_device(pair->context), 0);
}

static inline void pair_post_recv(struct pair *pair, uint64_t wr_id, size_t offset, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)pair->memory + offset, length, pair->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(ibv_post_recv(pair->qp[1], &wr, &bad), 0);
}

/* The next completion, waited for. */
static inline void pair_poll(struct pair *pair, struct ibv_wc *wc)
{
    while (ibv_poll_cq(ibv_cq_ex_to_cq(pair->cq), 1, wc) == 0)
        ;
}

#endif
