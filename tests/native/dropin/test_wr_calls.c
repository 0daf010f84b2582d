// SPDX-License-Identifier: Apache-2.0
/* ibv_wr_start … ibv_wr_complete. */
#include "pair.h"

static struct pair pair;
static struct ibv_qp_ex *qp;

static uint64_t remote(size_t offset)
{
    return (uintptr_t)pair.memory + offset;
}

static void expect(uint64_t wr_id, enum ibv_wc_status status)
{
    struct ibv_wc wc;

    pair_poll(&pair, &wc);
    CHECK_EQ(wc.wr_id, wr_id);
    CHECK_EQ(wc.status, status);
}

static void expect_nothing(void)
{
    struct ibv_wc wc;

    CHECK_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(pair.cq), 1, &wc), 0);
}

static void start(uint64_t wr_id)
{
    qp->wr_id = wr_id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_start(qp);
}

static void write_and_read(void)
{
    strcpy((char *)pair.memory, "extended");
    start(1);
    ibv_wr_rdma_write(qp, pair.mr->rkey, remote(512));
    ibv_wr_set_sge(qp, pair.mr->lkey, remote(0), 9);
    qp->wr_id = 2;
    ibv_wr_rdma_read(qp, pair.mr->rkey, remote(512));
    ibv_wr_set_sge(qp, pair.mr->lkey, remote(1024), 9);
    CHECK_EQ(ibv_wr_complete(qp), 0);
    expect(1, IBV_WC_SUCCESS);
    expect(2, IBV_WC_SUCCESS);
    CHECK_EQ(strcmp((char *)pair.memory + 1024, "extended"), 0);
}

static void atomics(void)
{
    uint64_t *word = (uint64_t *)(pair.memory + 64), *result = word + 1;

    *word = 40;
    start(3);
    ibv_wr_atomic_fetch_add(qp, pair.mr->rkey, (uintptr_t)word, 2);
    ibv_wr_set_sge(qp, pair.mr->lkey, (uintptr_t)result, 8);
    CHECK_EQ(ibv_wr_complete(qp), 0);
    expect(3, IBV_WC_SUCCESS);
    CHECK_EQ(*word, 42);
    CHECK_EQ(*result, 40);
    start(4);
    ibv_wr_atomic_cmp_swp(qp, pair.mr->rkey, (uintptr_t)word, 42, 7);
    ibv_wr_set_sge(qp, pair.mr->lkey, (uintptr_t)result, 8);
    CHECK_EQ(ibv_wr_complete(qp), 0);
    expect(4, IBV_WC_SUCCESS);
    CHECK_EQ(*word, 7);
    CHECK_EQ(*result, 42);
}

static void an_atomic_write_takes_its_value_at_the_call(void)
{
    uint64_t *word = (uint64_t *)(pair.memory + 1024), value = 42;
    struct ibv_device_attr_ex device;
    struct ibv_wc wc;

    CHECK_EQ(ibv_query_device_ex(pair.context, NULL, &device), 0);
    CHECK(device.device_cap_flags_ex >> 40 & 1); /* ATOMIC_WRITE, in newer headers */
    *word = 1;
    start(12);
    ibv_wr_atomic_write(qp, pair.mr->rkey, (uintptr_t)word, &value);
    value = 0;
    CHECK_EQ(ibv_wr_complete(qp), 0);
    pair_poll(&pair, &wc);
    CHECK_EQ(wc.wr_id, 12);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
    CHECK_EQ(*word, 42);
}

static void inline_data_is_taken_at_the_call(void)
{
    char text[] = "inline", more[] = "data";
    struct ibv_data_buf parts[] = {{text, 6}, {more, 5}};

    start(5);
    ibv_wr_rdma_write(qp, pair.mr->rkey, remote(256));
    ibv_wr_set_inline_data_list(qp, 2, parts);
    memset(text, 0, sizeof(text));
    memset(more, 0, sizeof(more));
    CHECK_EQ(ibv_wr_complete(qp), 0);
    expect(5, IBV_WC_SUCCESS);
    CHECK_EQ(strcmp((char *)pair.memory + 256, "inlinedata"), 0);
}

static void send_with_immediate_and_a_gather_list(void)
{
    struct ibv_sge list[] = {{remote(0), 3, pair.mr->lkey}, {remote(3), 6, pair.mr->lkey}};
    struct ibv_wc wc;

    strcpy((char *)pair.memory, "extended");
    pair_post_recv(&pair, 60, 2048, 64);
    start(6);
    ibv_wr_send_imm(qp, htobe32(77));
    ibv_wr_set_sge_list(qp, 2, list);
    CHECK_EQ(ibv_wr_complete(qp), 0);
    for (int i = 0; i < 2; ++i) {
        pair_poll(&pair, &wc);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        if (wc.opcode & IBV_WC_RECV) {
            CHECK_EQ(wc.wr_id, 60);
            CHECK_EQ(wc.byte_len, 9);
            CHECK_EQ(be32toh(wc.imm_data), 77);
        }
    }
    CHECK_EQ(strcmp((char *)pair.memory + 2048, "extended"), 0);
}

static void abort_posts_nothing(void)
{
    start(7);
    ibv_wr_rdma_write(qp, pair.mr->rkey, remote(0));
    ibv_wr_set_sge(qp, pair.mr->lkey, remote(8), 8);
    ibv_wr_abort(qp);
    expect_nothing();
    start(8);
    CHECK_EQ(ibv_wr_complete(qp), 0);
    expect_nothing();
}

static void one_wrong_request_refuses_the_whole_list(void)
{
    char large[PAIR_BYTES] = {1};
    uint8_t before = pair.memory[512];

    start(9);
    ibv_wr_rdma_write(qp, pair.mr->rkey, remote(512));
    ibv_wr_set_inline_data(qp, "x", 1);
    ibv_wr_rdma_write(qp, pair.mr->rkey, remote(512));
    ibv_wr_set_inline_data(qp, large, sizeof(large));
    CHECK_EQ(ibv_wr_complete(qp), EINVAL);
    expect_nothing();
    CHECK_EQ(pair.memory[512], before);
}

static void a_list_longer_than_the_queue_is_refused_as_a_whole(void)
{
    uint8_t before = pair.memory[512];

    start(10);
    for (int i = 0; i < PAIR_DEPTH + 1; ++i) {
        ibv_wr_rdma_write(qp, pair.mr->rkey, remote(512));
        ibv_wr_set_inline_data(qp, "y", 1);
    }
    CHECK_EQ(ibv_wr_complete(qp), ENOMEM);
    expect_nothing();
    CHECK_EQ(pair.memory[512], before);
    start(11);
    for (int i = 0; i < PAIR_DEPTH; ++i) {
        ibv_wr_rdma_write(qp, pair.mr->rkey, remote(512));
        ibv_wr_set_inline_data(qp, "y", 1);
    }
    CHECK_EQ(ibv_wr_complete(qp), 0);
    for (int i = 0; i < PAIR_DEPTH; ++i)
        expect(11, IBV_WC_SUCCESS);
    CHECK_EQ(pair.memory[512], 'y');
}

static void calls_that_the_type_has_not_are_refused_at_creation(void)
{
    CHECK(!pair_qp(&pair, IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE));
    CHECK_EQ(errno, EOPNOTSUPP);
    CHECK(!pair_qp(&pair, IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ));
    CHECK_EQ(errno, EOPNOTSUPP);
    CHECK(!pair_qp(&pair, IBV_QPT_UC, IBV_QP_EX_WITH_ATOMIC_WRITE));
    CHECK_EQ(errno, EOPNOTSUPP);
    CHECK(!pair_qp(&pair, IBV_QPT_RC, IBV_QP_EX_WITH_TSO));
    CHECK_EQ(errno, EOPNOTSUPP);
}

static void a_plain_queue_pair_has_no_extended_calls(void)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = ibv_cq_ex_to_cq(pair.cq),
        .recv_cq = ibv_cq_ex_to_cq(pair.cq),
        .cap = {1, 1, 1, 1, 0},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *plain = ibv_create_qp(pair.pd, &attr);

    CHECK(plain);
    CHECK(!ibv_qp_to_qp_ex(plain));
    CHECK_EQ(ibv_destroy_qp(plain), 0);
}

int main(void)
{
    pair_open(&pair);
    qp = ibv_qp_to_qp_ex(pair.qp[0]);
    CHECK(qp);
    RUN(write_and_read);
    RUN(atomics);
    RUN(an_atomic_write_takes_its_value_at_the_call);
    RUN(inline_data_is_taken_at_the_call);
    RUN(send_with_immediate_and_a_gather_list);
    RUN(abort_posts_nothing);
    RUN(one_wrong_request_refuses_the_whole_list);
    RUN(a_list_longer_than_the_queue_is_refused_as_a_whole);
    RUN(calls_that_the_type_has_not_are_refused_at_creation);
    RUN(a_plain_queue_pair_has_no_extended_calls);
    pair_close(&pair);
    return 0;
}
