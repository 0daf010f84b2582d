// SPDX-License-Identifier: Apache-2.0
/* What the parent opened is dead in a forked child, which may open the device anew. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

static struct pair pair;

/* Runs the test in a child and takes over its failure. */
static void in_child(void (*test)(void))
{
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        test();
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

static void verbs_fail(void)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory, 8, pair.mr->lkey};
    struct ibv_send_wr *bad = NULL, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_port_attr port;
    union ibv_gid gid;
    struct ibv_wc wc;

    CHECK_EQ(ibv_query_port(pair.context, 1, &port), ENODEV);
    CHECK_EQ(ibv_query_gid(pair.context, 1, 0, &gid), -1);
    CHECK_EQ(errno, ENODEV);
    CHECK(!ibv_alloc_pd(pair.context));
    CHECK_EQ(errno, ENODEV);
    CHECK(!ibv_reg_mr(pair.pd, pair.memory, 8, 0));
    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), ENODEV);
    CHECK(bad == &wr);
    CHECK(ibv_poll_cq(ibv_cq_ex_to_cq(pair.cq), 1, &wc) < 0);
    CHECK_EQ(ibv_start_poll(pair.cq, &(struct ibv_poll_cq_attr){0}), ENODEV);
}

#define FAILS(call) CHECK_EQ(call, ENODEV)
#define FAILS_WITH(value, call)                                                                    \
    do {                                                                                           \
        errno = 0;                                                                                 \
        CHECK((call) == (value));                                                                  \
        CHECK_EQ(errno, ENODEV);                                                                   \
    } while (0)

/* What else the parent made. */
static struct {
    struct ibv_srq *srq;
    struct ibv_xrcd *xrcd;
    struct ibv_comp_channel *channel;
    struct ibv_mw *mw;
    struct ibv_td *td;
} made;

static void make_more(void)
{
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_xrcd_init_attr xrcd = {.comp_mask =
                                          IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                      .fd = -1,
                                      .oflags = O_CREAT};

    CHECK(made.srq = ibv_create_srq(pair.pd, &srq));
    CHECK(made.xrcd = ibv_open_xrcd(pair.context, &xrcd));
    CHECK(made.channel = ibv_create_comp_channel(pair.context));
    CHECK(made.mw = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_1));
    CHECK(made.td = ibv_alloc_td(pair.context, &(struct ibv_td_init_attr){0}));
}

static void end_more(void)
{
    CHECK_EQ(ibv_destroy_srq(made.srq), 0);
    CHECK_EQ(ibv_close_xrcd(made.xrcd), 0);
    CHECK_EQ(ibv_destroy_comp_channel(made.channel), 0);
    CHECK_EQ(ibv_dealloc_mw(made.mw), 0);
    CHECK_EQ(ibv_dealloc_td(made.td), 0);
}

static void questions_fail(void)
{
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    struct ibv_srq_attr srq_attr;
    struct ibv_qp_init_attr init;
    struct ibv_async_event event;
    struct ibv_gid_entry entry;
    struct ibv_qp_attr attr;
    uint32_t number;
    __be16 pkey;

    FAILS(ibv_query_rt_values_ex(pair.context, &values));
    FAILS(ibv_query_gid_ex(pair.context, 1, 0, &entry, 0));
    CHECK_EQ(ibv_query_gid_table(pair.context, &entry, 1, 0), -ENODEV);
    FAILS_WITH(-1, ibv_query_pkey(pair.context, 1, 0, &pkey));
    FAILS(ibv_query_qp(pair.qp[0], &attr, IBV_QP_STATE, &init));
    FAILS(ibv_query_srq(made.srq, &srq_attr));
    FAILS(ibv_get_srq_num(made.srq, &number));
    FAILS_WITH(-1, ibv_get_async_event(pair.context, &event));
}

static void makers_fail(void)
{
    struct ibv_cq_init_attr_ex cq = {.cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS};
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq_init_attr_ex srq_ex = {
        .attr = {.max_wr = 4, .max_sge = 1}, .comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = pair.pd};
    struct ibv_xrcd_init_attr xrcd = {.comp_mask =
                                          IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                      .fd = -1,
                                      .oflags = O_CREAT};
    struct ibv_parent_domain_init_attr parent = {.pd = pair.pd, .td = made.td};
    struct ibv_qp_open_attr open = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
                                                 IBV_QP_OPEN_ATTR_TYPE,
                                    .qp_num = 7,
                                    .xrcd = made.xrcd,
                                    .qp_type = IBV_QPT_XRC_RECV};
    struct ibv_qp_init_attr qp = {.send_cq = ibv_cq_ex_to_cq(pair.cq),
                                  .recv_cq = ibv_cq_ex_to_cq(pair.cq),
                                  .cap = {1, 1, 1, 1, 0},
                                  .qp_type = IBV_QPT_RC};
    struct ibv_ah_attr ah = {.port_num = 1, .is_global = 1};
    struct ibv_wc wc = {.wc_flags = IBV_WC_GRH};
    struct ibv_grh grh = {0};

    FAILS_WITH(NULL, ibv_create_cq(pair.context, 8, NULL, NULL, 0));
    FAILS_WITH(NULL, ibv_create_cq_ex(pair.context, &cq));
    FAILS_WITH(NULL, ibv_create_comp_channel(pair.context));
    FAILS_WITH(NULL, ibv_create_qp(pair.pd, &qp));
    FAILS_WITH(NULL, pair_qp(&pair, IBV_QPT_RC, 0));
    FAILS_WITH(NULL, ibv_create_srq(pair.pd, &srq));
    FAILS_WITH(NULL, ibv_create_srq_ex(pair.context, &srq_ex));
    FAILS_WITH(NULL, ibv_open_xrcd(pair.context, &xrcd));
    FAILS_WITH(NULL, ibv_open_qp(pair.context, &open));
    FAILS_WITH(NULL, ibv_alloc_td(pair.context, &(struct ibv_td_init_attr){0}));
    FAILS_WITH(NULL, ibv_alloc_parent_domain(pair.context, &parent));
    FAILS_WITH(NULL, ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2));
    FAILS_WITH(NULL, ibv_alloc_null_mr(pair.pd));
    FAILS_WITH(NULL, ibv_create_ah(pair.pd, &ah));
    FAILS_WITH(-1, ibv_init_ah_from_wc(pair.context, 1, &wc, &grh, &ah));
    FAILS_WITH(NULL, ibv_create_ah_from_wc(pair.pd, &wc, &grh, 1));
}

static void changes_fail(void)
{
    struct ibv_qp_rate_limit_attr rate = {.rate_limit = 1000};
    struct ibv_modify_cq_attr moderate = {.attr_mask = IBV_CQ_ATTR_MODERATE};
    struct ibv_srq_attr limit = {.srq_limit = 1};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_recv_wr recv = {0}, *bad = NULL;
    union ibv_gid gid = {.raw = {0xff, 0x0e}};

    FAILS(ibv_modify_qp(pair.qp[0], &attr, IBV_QP_STATE));
    FAILS(ibv_modify_qp_rate_limit(pair.qp[0], &rate));
    FAILS(ibv_modify_srq(made.srq, &limit, IBV_SRQ_LIMIT));
    FAILS(ibv_modify_cq(ibv_cq_ex_to_cq(pair.cq), &moderate));
    FAILS(ibv_resize_cq(ibv_cq_ex_to_cq(pair.cq), 128));
    FAILS(ibv_req_notify_cq(ibv_cq_ex_to_cq(pair.cq), 0));
    FAILS(ibv_post_recv(pair.qp[0], &recv, &bad));
    CHECK(bad == &recv);
    bad = NULL;
    FAILS(ibv_post_srq_recv(made.srq, &recv, &bad));
    CHECK(bad == &recv);
    FAILS(ibv_attach_mcast(pair.qp[0], &gid, 0));
    CHECK_EQ(ibv_detach_mcast(pair.qp[0], &gid, 0), 0); /* as the calls that destroy */
    FAILS_WITH(IBV_REREG_MR_ERR_INPUT,
               ibv_rereg_mr(pair.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
}

/* What the device is does not depend on who opened it, and memory can be the child's own. */
static void the_device_is_known(void)
{
    struct ibv_alloc_dm_attr attr = {.length = 64};
    struct ibv_device_attr_ex device;
    char text[8] = "memory";
    struct ibv_dm *dm;

    CHECK_EQ(ibv_query_device_ex(pair.context, NULL, &device), 0);
    CHECK(device.max_dm_size > 0);
    dm = ibv_alloc_dm(pair.context, &attr);
    CHECK(dm);
    CHECK_EQ(ibv_memcpy_to_dm(dm, 8, text, 8), 0);
    memset(text, 0, sizeof(text));
    CHECK_EQ(ibv_memcpy_from_dm(text, dm, 8, 8), 0);
    CHECK_EQ(strcmp(text, "memory"), 0);
    CHECK(!ibv_reg_dm_mr(pair.pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED));
    CHECK_EQ(errno, ENODEV);
    CHECK_EQ(ibv_free_dm(dm), 0);
}

static void extended_calls_fail(void)
{
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(pair.qp[0]);

    ibv_wr_start(qp);
    ibv_wr_rdma_write(qp, pair.mr->rkey, (uintptr_t)pair.memory);
    ibv_wr_set_inline_data(qp, "x", 1);
    CHECK_EQ(ibv_wr_complete(qp), ENODEV);
}

/* A child that cleans up after its parent's objects takes nothing from the parent. */
static void destroys_do_nothing(void)
{
    pair_close(&pair);
}

static void destroys_after_a_close_do_nothing_either(void)
{
    CHECK_EQ(ibv_close_device(pair.context), 0);
    CHECK_EQ(ibv_dealloc_pd(pair.pd), 0);
    CHECK_EQ(ibv_destroy_qp(pair.qp[0]), 0);
    CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(pair.cq)), 0);
    CHECK_EQ(ibv_dereg_mr(pair.mr), 0);
    CHECK_EQ(ibv_destroy_qp(pair.qp[1]), 0);
}

static void the_device_opens_anew(void)
{
    static struct pair own;
    struct ibv_send_wr *bad,
        wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .num_sge = 1};
    struct ibv_sge sge;
    struct ibv_wc wc;

    pair_open(&own);
    CHECK(own.qp[0]->qp_num != pair.qp[0]->qp_num);
    strcpy((char *)own.memory, "child");
    sge = (struct ibv_sge){(uintptr_t)own.memory, 6, own.mr->lkey};
    wr.sg_list = &sge;
    wr.wr.rdma.remote_addr = (uintptr_t)own.memory + 64;
    wr.wr.rdma.rkey = own.mr->rkey;
    CHECK_EQ(ibv_post_send(own.qp[0], &wr, &bad), 0);
    pair_poll(&own, &wc);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(strcmp((char *)own.memory + 64, "child"), 0);
    pair_close(&own);
}

static void the_parent_goes_on(void)
{
    struct ibv_sge sge = pair_sge(&pair);
    struct ibv_send_wr *bad, wr = pair_write(&pair, &sge);
    struct ibv_wc wc;

    strcpy((char *)pair.memory, "parent");
    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
    pair_poll(&pair, &wc);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(strcmp((char *)pair.memory + 64, "parent"), 0);
}

int main(void)
{
    pair_open(&pair);
    make_more();
    CHECK_EQ(ibv_fork_init(), 0);
    CHECK_EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
    in_child(verbs_fail);
    in_child(questions_fail);
    in_child(makers_fail);
    in_child(changes_fail);
    in_child(extended_calls_fail);
    in_child(the_device_is_known);
    in_child(destroys_do_nothing);
    in_child(destroys_after_a_close_do_nothing_either);
    in_child(the_device_opens_anew);
    RUN(the_parent_goes_on);
    end_more();
    pair_close(&pair);
    return 0;
}
