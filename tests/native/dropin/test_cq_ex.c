// SPDX-License-Identifier: Apache-2.0
/* ibv_start_poll, ibv_next_poll, ibv_end_poll and the readers. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "pair.h"

static struct pair pair;

static void post_write(uint64_t wr_id, uint32_t rkey)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory, 8, pair.mr->lkey};
    struct ibv_send_wr *bad, wr = {
                                 .wr_id = wr_id,
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.rdma = {(uintptr_t)pair.memory + 64, rkey},
                             };

    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
}

static int start(void)
{
    struct ibv_poll_cq_attr attr = {0};

    return ibv_start_poll(pair.cq, &attr);
}

static void empty_is_enoent(void)
{
    CHECK_EQ(start(), ENOENT);
    CHECK_EQ(start(), ENOENT); /* the first has not kept the CQ locked */
}

static void unknown_attributes_are_refused(void)
{
    struct ibv_poll_cq_attr attr = {.comp_mask = 1};

    CHECK_EQ(ibv_start_poll(pair.cq, &attr), EINVAL);
}

static void completions_come_one_after_the_other(void)
{
    post_write(1, pair.mr->rkey);
    post_write(2, pair.mr->rkey);
    CHECK_EQ(start(), 0);
    CHECK_EQ(pair.cq->wr_id, 1);
    CHECK_EQ(pair.cq->status, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_wc_read_opcode(pair.cq), IBV_WC_RDMA_WRITE);
    CHECK_EQ(ibv_wc_read_qp_num(pair.cq), pair.qp[0]->qp_num);
    CHECK_EQ(ibv_next_poll(pair.cq), 0);
    CHECK_EQ(pair.cq->wr_id, 2);
    CHECK_EQ(ibv_next_poll(pair.cq), ENOENT);
    ibv_end_poll(pair.cq);
    CHECK_EQ(start(), ENOENT);
}

static void a_receive_is_read_in_full(void)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory, 8, pair.mr->lkey};
    struct ibv_send_wr *bad, wr = {
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_SEND_WITH_IMM,
                                 .imm_data = htobe32(5),
                             };

    pair_post_recv(&pair, 9, 128, 8);
    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
    CHECK_EQ(start(), 0);
    CHECK_EQ(pair.cq->wr_id, 9);
    CHECK_EQ(ibv_wc_read_opcode(pair.cq), IBV_WC_RECV);
    CHECK_EQ(ibv_wc_read_byte_len(pair.cq), 8);
    CHECK_EQ(be32toh(ibv_wc_read_imm_data(pair.cq)), 5);
    CHECK_EQ(ibv_wc_read_wc_flags(pair.cq), IBV_WC_WITH_IMM);
    ibv_end_poll(pair.cq);
}

static void an_error_carries_its_evidence(void)
{
    post_write(3, pair.mr->rkey ^ 0x100);
    CHECK_EQ(start(), 0);
    CHECK_EQ(pair.cq->status, IBV_WC_REM_ACCESS_ERR);
    CHECK(ibv_wc_read_vendor_err(pair.cq) != 0);
    ibv_end_poll(pair.cq);
}

static _Atomic int begun; /* the other thread's polls */

static void *poll_twice(void *argument)
{
    (void)argument;
    CHECK_EQ(start(), ENOENT);
    begun = 1;
    while (begun == 1) /* until the main thread has the CQ */
        usleep(100);
    CHECK_EQ(start(), 0);
    begun = 3;
    CHECK_EQ(pair.cq->wr_id, 6);
    ibv_end_poll(pair.cq);
    return NULL;
}

/* From start_poll, if it finds a completion, to end_poll. */
static void the_cq_belongs_to_one_thread_at_a_time(void)
{
    pthread_t thread;

    CHECK_EQ(start(), ENOENT); /* after which any other thread may poll */
    CHECK_EQ(pthread_create(&thread, NULL, poll_twice, NULL), 0);
    while (!begun)
        usleep(100);
    for (uint64_t wr_id = 4; wr_id <= 6; ++wr_id)
        post_write(wr_id, pair.mr->rkey);
    CHECK_EQ(start(), 0);
    begun = 2;
    usleep(50000);
    CHECK(begun == 2 && pair.cq->wr_id == 4);
    CHECK_EQ(ibv_next_poll(pair.cq), 0);
    usleep(10000);
    CHECK(begun == 2 && pair.cq->wr_id == 5);
    ibv_end_poll(pair.cq);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(begun, 3);
    CHECK_EQ(start(), ENOENT);
}

static void what_is_not_offered_is_refused_at_creation(void)
{
    struct ibv_cq_init_attr_ex attr = {.cqe = 1, .wc_flags = IBV_WC_EX_WITH_FLOW_TAG};

    CHECK(!ibv_create_cq_ex(pair.context, &attr));
    CHECK_EQ(errno, EOPNOTSUPP);
    attr.wc_flags = 0;
    attr.comp_vector = (uint32_t)pair.context->num_comp_vectors;
    CHECK(!ibv_create_cq_ex(pair.context, &attr));
    CHECK_EQ(errno, EINVAL);
}

int main(void)
{
    alarm(60);
    pair_open(&pair);
    RUN(empty_is_enoent);
    RUN(unknown_attributes_are_refused);
    RUN(completions_come_one_after_the_other);
    RUN(a_receive_is_read_in_full);
    RUN(an_error_carries_its_evidence);
    RUN(the_cq_belongs_to_one_thread_at_a_time);
    RUN(what_is_not_offered_is_refused_at_creation);
    pair_close(&pair);
    return 0;
}
