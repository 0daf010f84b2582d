// SPDX-License-Identifier: Apache-2.0
/* ibv_attach_mcast and ibv_detach_mcast, and what they go with, as a program calls them. */
#include "pair.h"

enum { QKEY = 17, GRH = 40, LENGTH = 32, GROUP_QPN = 0xffffff };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *left; /* in a group */
static uint8_t memory[512];
static const union ibv_gid group = {.raw = {0xff, 0x0e, [14] = 9, [15] = 1}};

static struct ibv_qp *make_qp(enum ibv_qp_type type, uint32_t flags)
{
    struct ibv_qp_init_attr_ex attr = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {4, 4, 1, 1, 0},
        .qp_type = type,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
        .pd = pd,
        .create_flags = flags,
    };

    return ibv_create_qp_ex(context, &attr);
}

static void make_ready(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    struct ibv_sge sge = {(uintptr_t)memory, 256, mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
             0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    CHECK_EQ(ibv_post_recv(qp, &wr, &bad), 0);
}

static void send_to_group(struct ibv_qp *qp)
{
    struct ibv_ah_attr attr = {
        .is_global = 1, .port_num = 1, .grh = {.dgid = group, .sgid_index = 1}};
    struct ibv_ah *ah = ibv_create_ah(pd, &attr);
    struct ibv_sge sge = {(uintptr_t)memory + 256, LENGTH, mr->lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;

    CHECK(ah);
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = GROUP_QPN;
    wr.wr.ud.remote_qkey = QKEY;
    CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
}

/* How many completions of receives there are, beside the one of the send. */
static int received(void)
{
    struct ibv_wc wc;
    int sends = 0, count = 0;

    while (ibv_poll_cq(cq, 1, &wc) == 1) {
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        sends += wc.opcode == IBV_WC_SEND;
        count += wc.opcode == IBV_WC_RECV && wc.byte_len == GRH + LENGTH;
    }
    CHECK_EQ(sends, 1);
    return count;
}

static void a_sender_gets_a_copy_unless_it_blocks_that(void)
{
    for (int blocks = 0; blocks < 2; ++blocks) {
        struct ibv_qp *qp = make_qp(IBV_QPT_UD, blocks ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB : 0);

        CHECK(qp);
        make_ready(qp);
        CHECK_EQ(ibv_attach_mcast(qp, &group, 0), 0);
        send_to_group(qp);
        CHECK_EQ(received(), !blocks);
        CHECK_EQ(ibv_destroy_qp(qp), EBUSY);
        CHECK_EQ(ibv_detach_mcast(qp, &group, 0), 0);
        CHECK_EQ(ibv_destroy_qp(qp), 0);
    }
}

static void what_is_refused(void)
{
    struct ibv_qp *ud = make_qp(IBV_QPT_UD, 0), *rc = make_qp(IBV_QPT_RC, 0);
    union ibv_gid none = {.raw = {0xfe, 0x80}};

    CHECK(ud && rc);
    CHECK_EQ(ibv_attach_mcast(rc, &group, 0), EINVAL);
    CHECK_EQ(ibv_attach_mcast(ud, &none, 0), EINVAL);
    CHECK_EQ(ibv_detach_mcast(ud, &group, 0), EINVAL);
    CHECK_EQ(errno, EINVAL);
    CHECK(!make_qp(IBV_QPT_RC, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) && errno == EINVAL);
    CHECK(!make_qp(IBV_QPT_UD, IBV_QP_CREATE_SCATTER_FCS) && errno == EOPNOTSUPP);
    CHECK_EQ(ibv_destroy_qp(rc), 0);
    CHECK_EQ(ibv_attach_mcast(ud, &group, 0), 0);
    left = ud; /* closing the device ends it */
}

static void limits_are_reported(void)
{
    struct ibv_device_attr attr;

    CHECK_EQ(ibv_query_device(context, &attr), 0);
    CHECK(attr.max_mcast_grp > 0 && attr.max_mcast_qp_attach > 0);
    CHECK_EQ(attr.max_total_mcast_qp_attach, attr.max_mcast_grp * attr.max_mcast_qp_attach);
}

int main(void)
{
    context = pair_open_device();
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    CHECK(pd && cq);
    mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    RUN(a_sender_gets_a_copy_unless_it_blocks_that);
    RUN(what_is_refused);
    RUN(limits_are_reported);
    CHECK_EQ(ibv_close_device(context), 0);
    CHECK_EQ(ibv_detach_mcast(left, &group, 0), 0);
    CHECK_EQ(ibv_destroy_qp(left), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    return 0;
}
