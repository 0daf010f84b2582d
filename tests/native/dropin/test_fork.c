// SPDX-License-Identifier: Apache-2.0
/* What the parent opened is dead in a forked child, which may open the device anew. */
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
    CHECK_EQ(ibv_fork_init(), 0);
    CHECK_EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
    in_child(verbs_fail);
    in_child(extended_calls_fail);
    in_child(the_device_is_known);
    in_child(destroys_do_nothing);
    in_child(destroys_after_a_close_do_nothing_either);
    in_child(the_device_opens_anew);
    RUN(the_parent_goes_on);
    pair_close(&pair);
    return 0;
}
