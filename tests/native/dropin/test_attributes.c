// SPDX-License-Identifier: Apache-2.0
/*
 * Which attributes the calls take that make queues, and what they say of those that they do not;
 * and what the device says of itself and its port in numbers.
 */
#include <fcntl.h>
#include <net/if.h>
#include <unistd.h>

#include "pair.h"

int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed);

static struct pair pair;

/* ---- shared receive queues --------------------------------------------------------------------
 */

enum {
    TYPE = IBV_SRQ_INIT_ATTR_TYPE,
    PD = IBV_SRQ_INIT_ATTR_PD,
    XRCD = IBV_SRQ_INIT_ATTR_XRCD,
    CQ = IBV_SRQ_INIT_ATTR_CQ,
};

static struct ibv_xrcd *open_xrcd(struct ibv_context *context)
{
    struct ibv_xrcd_init_attr attr = {.comp_mask =
                                          IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                      .fd = -1,
                                      .oflags = O_CREAT};
    struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &attr);

    CHECK(xrcd);
    return xrcd;
}

/* 0: it was made, and is gone again. The header's call does not pass on the usual ones. */
static int refusal_of_srq(struct ibv_srq_init_attr_ex attr)
{
    struct ibv_srq *srq;

    attr.attr.max_wr = 8;
    attr.attr.max_sge = 1;
    errno = 0;
    srq = verbs_get_ctx(pair.context)->create_srq_ex(pair.context, &attr);
    if (srq)
        CHECK_EQ(ibv_destroy_srq(srq), 0);
    CHECK_EQ(srq == NULL, errno != 0);
    return errno;
}

static void shared_receive_queues(void)
{
    static const struct {
        uint32_t mask;
        unsigned type;
        bool pd, xrcd, cq;
        int error;
    } cases[] = {
        {PD, 0, true, false, false, 0},
        {PD | TYPE, IBV_SRQT_BASIC, true, false, false, 0},
        {PD, IBV_SRQT_TM, true, false, false, 0}, /* the type does not count */
        {PD | TYPE, IBV_SRQT_TM, true, false, false, EOPNOTSUPP},
        {PD | IBV_SRQ_INIT_ATTR_TM, 0, true, false, false, EOPNOTSUPP},
        {PD | TYPE | IBV_SRQ_INIT_ATTR_TM, IBV_SRQT_XRC, true, true, true, EOPNOTSUPP},
        {TYPE, IBV_SRQT_BASIC, true, false, false, EINVAL},
        {0, 0, true, false, false, EINVAL},
        {PD, 0, false, false, false, EINVAL},
        {PD | TYPE | XRCD | CQ, IBV_SRQT_XRC, true, true, true, 0},
        {PD | TYPE | XRCD, IBV_SRQT_XRC, true, true, true, EINVAL},
        {PD | TYPE | CQ, IBV_SRQT_XRC, true, true, true, EINVAL},
        {PD | TYPE | XRCD | CQ, IBV_SRQT_XRC, true, false, true, EINVAL},
        {PD | TYPE | XRCD | CQ, IBV_SRQT_XRC, true, true, false, EINVAL},
        {TYPE | XRCD | CQ, IBV_SRQT_XRC, true, true, true, EINVAL},
    };
    struct ibv_xrcd *xrcd = open_xrcd(pair.context);

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
        struct ibv_srq_init_attr_ex attr = {.comp_mask = cases[i].mask,
                                            .srq_type = (enum ibv_srq_type)cases[i].type,
                                            .pd = cases[i].pd ? pair.pd : NULL,
                                            .xrcd = cases[i].xrcd ? xrcd : NULL,
                                            .cq = cases[i].cq ? ibv_cq_ex_to_cq(pair.cq) : NULL};

        CHECK_EQ(refusal_of_srq(attr), cases[i].error);
    }
    CHECK_EQ(ibv_close_xrcd(xrcd), 0);
}

/* What an XRC SRQ stands on is of one context. */
static void parts_of_another_context(void)
{
    struct ibv_context *context = pair_open_device();
    struct ibv_srq_init_attr_ex own = {.comp_mask = PD | TYPE | XRCD | CQ,
                                       .srq_type = IBV_SRQT_XRC,
                                       .pd = pair.pd,
                                       .xrcd = open_xrcd(pair.context),
                                       .cq = ibv_cq_ex_to_cq(pair.cq)};
    struct ibv_srq_init_attr_ex pd = own, xrcd = own, cq = own;

    pd.pd = ibv_alloc_pd(context);
    xrcd.xrcd = open_xrcd(context);
    cq.cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    CHECK(pd.pd && cq.cq);
    CHECK_EQ(refusal_of_srq(own), 0);
    CHECK_EQ(refusal_of_srq(pd), EINVAL);
    CHECK_EQ(refusal_of_srq(xrcd), EINVAL);
    CHECK_EQ(refusal_of_srq(cq), EINVAL);
    CHECK_EQ(ibv_close_xrcd(own.xrcd), 0);
    CHECK_EQ(ibv_close_xrcd(xrcd.xrcd), 0);
    CHECK_EQ(ibv_destroy_cq(cq.cq), 0);
    CHECK_EQ(ibv_dealloc_pd(pd.pd), 0);
    CHECK_EQ(ibv_close_device(context), 0);
}

/* ---- queue pairs ------------------------------------------------------------------------------
 */

static void queue_pairs(void)
{
    static const struct {
        enum ibv_qp_type type;
        uint32_t mask, create_flags;
        uint64_t send_ops;
        int error;
    } cases[] = {
        {IBV_QPT_RC, IBV_QP_INIT_ATTR_PD, 0, 0, 0},
        {IBV_QPT_RC, 0, 0, 0, EINVAL},
        {IBV_QPT_RC, IBV_QP_INIT_ATTR_XRCD, 0, 0, EINVAL},
        {IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD, 0, 0, 0},
        {IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_PD, 0, 0, EINVAL},
        {IBV_QPT_RC, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER, 0, 0, EOPNOTSUPP},
        {IBV_QPT_UD, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
         IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, 0, 0},
        {IBV_QPT_UD, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
         IBV_QP_CREATE_CVLAN_STRIPPING, 0, EOPNOTSUPP},
        {IBV_QPT_UD, IBV_QP_INIT_ATTR_PD, IBV_QP_CREATE_CVLAN_STRIPPING, 0, 0},
        {IBV_QPT_RC, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, 0,
         IBV_QP_EX_WITH_RDMA_READ, 0},
        {IBV_QPT_UD, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, 0,
         IBV_QP_EX_WITH_RDMA_READ, EOPNOTSUPP},
        {IBV_QPT_UD, IBV_QP_INIT_ATTR_PD, 0, IBV_QP_EX_WITH_RDMA_READ, 0},
    };
    struct ibv_xrcd *xrcd = open_xrcd(pair.context);

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
        struct ibv_qp_init_attr_ex attr = {.qp_type = cases[i].type,
                                           .comp_mask = cases[i].mask,
                                           .create_flags = cases[i].create_flags,
                                           .send_ops_flags = cases[i].send_ops,
                                           .pd = pair.pd,
                                           .xrcd = xrcd,
                                           .send_cq = ibv_cq_ex_to_cq(pair.cq),
                                           .recv_cq = ibv_cq_ex_to_cq(pair.cq),
                                           .cap = {4, 4, 1, 1, 0}};
        struct ibv_qp *qp;

        errno = 0;
        qp = ibv_create_qp_ex(pair.context, &attr);
        CHECK_EQ(errno, cases[i].error);
        CHECK_EQ(qp == NULL, cases[i].error != 0);
        if (qp)
            CHECK_EQ(ibv_destroy_qp(qp), 0);
    }
    CHECK_EQ(ibv_close_xrcd(xrcd), 0);
}

/* ---- completion queues ------------------------------------------------------------------------
 */

static void completion_queues(void)
{
    const uint32_t last = (uint32_t)pair.context->num_comp_vectors - 1;
    struct ibv_td *td = ibv_alloc_td(pair.context, &(struct ibv_td_init_attr){0});
    struct ibv_parent_domain_init_attr parent = {.pd = pair.pd, .td = td};
    struct ibv_pd *domain = ibv_alloc_parent_domain(pair.context, &parent);
    const struct {
        uint32_t cqe, vector, mask, flags;
        uint64_t wc_flags;
        struct ibv_pd *domain;
        int error;
    } cases[] = {
        {4, 0, 0, 0, IBV_WC_STANDARD_FLAGS, NULL, 0},
        {4, last, 0, 0, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, NULL, 0},
        {4, last + 1, 0, 0, 0, NULL, EINVAL},
        {4, 0x80000000u, 0, 0, 0, NULL, EINVAL},
        {0x80000000u, 0, 0, 0, 0, NULL, EINVAL},
        {0xffffffffu, 0, 0, 0, 0, NULL, EINVAL},
        {0, 0, 0, 0, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, NULL, EINVAL},
        {4, 0, 0, 0, IBV_WC_EX_WITH_CVLAN, NULL, EOPNOTSUPP},
        {4, 0, 1 << 4, 0, 0, NULL, EOPNOTSUPP},
        {4, 0, IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_SINGLE_THREADED, 0, NULL, 0},
        {4, 0, IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, 0, NULL, EOPNOTSUPP},
        {4, 0, 0, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, 0, NULL, 0},
        {4, 0, IBV_CQ_INIT_ATTR_MASK_PD, 0, 0, domain, 0},
        {4, 0, IBV_CQ_INIT_ATTR_MASK_PD, 0, 0, pair.pd, EINVAL},
        {4, 0, IBV_CQ_INIT_ATTR_MASK_PD, 0, 0, NULL, EINVAL},
        {4, 0, 0, 0, 0, pair.pd, 0},
    };

    CHECK(td && domain);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
        struct ibv_cq_init_attr_ex attr = {.cqe = cases[i].cqe,
                                           .comp_vector = cases[i].vector,
                                           .wc_flags = cases[i].wc_flags,
                                           .comp_mask = cases[i].mask,
                                           .flags = cases[i].flags,
                                           .parent_domain = cases[i].domain};
        struct ibv_cq_ex *cq;

        errno = 0;
        cq = ibv_create_cq_ex(pair.context, &attr);
        CHECK_EQ(errno, cases[i].error);
        CHECK_EQ(cq == NULL, cases[i].error != 0);
        if (cq && cases[i].domain == domain)
            CHECK_EQ(ibv_dealloc_pd(domain), EBUSY); /* the queue uses it */
        if (cq)
            CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    }
    CHECK(!ibv_create_cq(pair.context, 4, NULL, NULL, -1) && errno == EINVAL);
    CHECK_EQ(ibv_dealloc_pd(domain), 0);
    CHECK_EQ(ibv_dealloc_td(td), 0);
}

/* The usual call makes the same, and says what the queue pair can do. */
static void the_usual_queue_pair(void)
{
    struct ibv_qp_init_attr attr = {.send_cq = ibv_cq_ex_to_cq(pair.cq),
                                    .recv_cq = ibv_cq_ex_to_cq(pair.cq),
                                    .cap = {3, 5, 1, 2, 7},
                                    .qp_type = IBV_QPT_RC,
                                    .qp_context = &attr,
                                    .sq_sig_all = 1},
                            asked = attr, found;
    struct ibv_qp *qp = ibv_create_qp(pair.pd, &attr);
    struct ibv_qp_attr state;

    CHECK(qp && qp->qp_context == &attr && qp->pd == pair.pd);
    CHECK(attr.cap.max_send_wr >= 3 && attr.cap.max_recv_wr >= 5);
    CHECK(attr.cap.max_send_sge >= 1 && attr.cap.max_recv_sge >= 2);
    CHECK(attr.cap.max_inline_data >= 7);
    CHECK_EQ(ibv_query_qp(qp, &state, IBV_QP_CAP | IBV_QP_STATE, &found), 0);
    CHECK_EQ(memcmp(&found.cap, &attr.cap, sizeof(found.cap)), 0);
    CHECK_EQ(memcmp(&state.cap, &attr.cap, sizeof(state.cap)), 0);
    CHECK(found.sq_sig_all == 1 && found.qp_context == &attr && found.send_cq == asked.send_cq);
    CHECK_EQ(state.qp_state, IBV_QPS_RESET);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
}

/* ---- numbers of the device and its port -------------------------------------------------------
 */

static void the_device(void)
{
    struct ibv_device_attr device;
    struct ibv_device_attr_ex extended;

    CHECK_EQ(ibv_query_device(pair.context, &device), 0);
    CHECK_EQ(ibv_query_device_ex(pair.context, NULL, &extended), 0);
    CHECK_EQ(memcmp(&device, &extended.orig_attr, sizeof(device)), 0);
    CHECK_EQ(device.phys_port_cnt, 1);
    CHECK_EQ(device.max_mr, device.max_mw); /* they share a table */
    CHECK(device.max_mr >= 1 << 16 && (device.max_mr & (device.max_mr - 1)) == 0);
    CHECK(device.max_qp > 0 && device.max_cq > 0 && device.max_pd > 0 && device.max_srq > 0);
    CHECK_EQ(device.node_guid, ibv_get_device_guid(pair.context->device));
    CHECK_EQ(device.node_guid, device.sys_image_guid);
}

static void the_port(void)
{
    struct ibv_port_attr port;
    uint64_t speed = 0;

    CHECK_EQ(ibv_query_port(pair.context, 1, &port), 0);
    CHECK_EQ(port.max_mtu, IBV_MTU_4096);
    CHECK(port.active_mtu >= IBV_MTU_256 && port.active_mtu <= IBV_MTU_4096);
    CHECK_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    CHECK_EQ(port.flags, IBV_QPF_GRH_REQUIRED);
    CHECK_EQ(port.gid_tbl_len, 256);
    CHECK_EQ(port.lid, 0);
    CHECK_EQ(ibv_query_port_speed(pair.context, 1, &speed), 0);
    CHECK_EQ(speed, 1000); /* units of 100 Mb/s: 100 Gb/s, 4 lanes of EDR */
    CHECK(port.active_width == 2 && port.active_speed == 32);
    CHECK_EQ(ibv_query_port_speed(pair.context, 2, &speed), EINVAL);
    CHECK_EQ(ibv_query_port_speed(pair.context, 0, &speed), EINVAL);
    CHECK_EQ(ibv_query_port(pair.context, 2, &port), EINVAL);
    CHECK_EQ(ibv_query_port(pair.context, 0, &port), EINVAL);
}

/* The table lists each entry that the single queries find. */
static void the_table_of_gids(void)
{
    struct ibv_gid_entry all[256], one;
    ssize_t count = ibv_query_gid_table(pair.context, all, 256, 0), found = 0;

    CHECK(count >= 2);
    for (uint32_t index = 0; index < 256; ++index) {
        union ibv_gid gid;

        if (ibv_query_gid_ex(pair.context, 1, index, &one, 0) != 0)
            continue;
        CHECK(found < count && memcmp(&all[found++], &one, sizeof(one)) == 0);
        CHECK_EQ(ibv_query_gid(pair.context, 1, (int)index, &gid), 0);
        CHECK_EQ(memcmp(gid.raw, one.gid.raw, sizeof(gid.raw)), 0);
        CHECK(one.gid_index == index && one.port_num == 1);
        CHECK_EQ(one.gid_type, IBV_GID_TYPE_ROCE_V2);
    }
    CHECK_EQ(found, count);
    CHECK_EQ(ibv_query_gid_table(pair.context, all, (size_t)count, 0), count);
    CHECK_EQ(ibv_query_gid_table(pair.context, all, (size_t)count - 1, 0), -EINVAL);
    CHECK_EQ(ibv_query_gid_table(pair.context, all, 256, 1), -EOPNOTSUPP);
    CHECK_EQ(ibv_query_gid_ex(pair.context, 1, 256, &one, 0), EINVAL);
    CHECK_EQ(ibv_query_gid_ex(pair.context, 2, 0, &one, 0), EINVAL);
}

int main(void)
{
    alarm(60);
    pair_open(&pair);
    RUN(shared_receive_queues);
    RUN(parts_of_another_context);
    RUN(queue_pairs);
    RUN(completion_queues);
    RUN(the_usual_queue_pair);
    RUN(the_device);
    RUN(the_port);
    RUN(the_table_of_gids);
    return 0;
}
