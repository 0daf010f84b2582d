// SPDX-License-Identifier: Apache-2.0
/* An SRQ's size, changed while it is in use. */
#include "pair.h"

static struct pair pair;
static struct ibv_srq *srq;

static void open_all(uint32_t max_wr)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = max_wr, .max_sge = 1}};

    pair_open(&pair);
    srq = ibv_create_srq(pair.pd, &attr);
    CHECK(srq);
    for (int i = 0; i < 2; ++i) {
        struct ibv_qp_init_attr init = {.send_cq = ibv_cq_ex_to_cq(pair.cq),
                                        .recv_cq = ibv_cq_ex_to_cq(pair.cq),
                                        .srq = i ? srq : NULL,
                                        .cap = {PAIR_DEPTH, PAIR_DEPTH, 1, 1, 0},
                                        .qp_type = IBV_QPT_RC};

        CHECK_EQ(ibv_destroy_qp(pair.qp[i]), 0);
        pair.qp[i] = ibv_create_qp(pair.pd, &init);
        CHECK(pair.qp[i]);
    }
    pair_connect(&pair, pair.qp[0], pair.qp[1]->qp_num);
    pair_connect(&pair, pair.qp[1], pair.qp[0]->qp_num);
}

static void close_all(void)
{
    struct ibv_srq *used = srq;
    struct ibv_qp *with = pair.qp[1];

    CHECK_EQ(ibv_destroy_qp(with), 0);
    CHECK_EQ(ibv_destroy_srq(used), 0);
    pair.qp[1] = pair_qp(&pair, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
    pair_close(&pair);
}

static int resize(uint32_t max_wr)
{
    struct ibv_srq_attr attr = {.max_wr = max_wr};

    return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

static uint32_t size(void)
{
    struct ibv_srq_attr attr;

    CHECK_EQ(ibv_query_srq(srq, &attr), 0);
    return attr.max_wr;
}

static int post(uint64_t wr_id)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory + 1024, 64, pair.mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

    return ibv_post_srq_recv(srq, &wr, &bad);
}

/* A message, which has to be received by this request. */
static void receives(uint64_t wr_id)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory, 64, pair.mr->lkey};
    struct ibv_send_wr wr = {.wr_id = ~0ull,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED,
                             .sg_list = &sge,
                             .num_sge = 1};
    struct ibv_send_wr *bad;

    memset(pair.memory, (int)wr_id, 64);
    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
    for (int i = 0; i < 2; ++i) {
        struct ibv_wc wc;

        pair_poll(&pair, &wc);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        if (wc.opcode == IBV_WC_RECV)
            CHECK_EQ(wc.wr_id, wr_id);
    }
    CHECK_EQ(memcmp(pair.memory, pair.memory + 1024, 64), 0);
}

static void the_device_says_so(void)
{
    struct ibv_device_attr device;

    pair_open(&pair);
    CHECK_EQ(ibv_query_device(pair.context, &device), 0);
    CHECK(device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
    pair_close(&pair);
}

/* Wherever the ring of the order stands: what waits is received in the order posted. */
static void what_waits_keeps_its_order(void)
{
    for (uint64_t used = 0; used < 4; ++used) {
        uint64_t posted = 0, received = 0;

        open_all(4);
        while (posted < used) {
            CHECK_EQ(post(posted++), 0);
            receives(received++);
        }
        for (uint32_t max_wr = 4; max_wr <= 256; max_wr *= 4) {
            CHECK_EQ(resize(max_wr), 0);
            CHECK_EQ(size(), max_wr);
            while (posted < received + max_wr)
                CHECK_EQ(post(posted++), 0);
            CHECK_EQ(post(posted), ENOMEM);
            receives(received++);
        }
        while (received < posted)
            receives(received++);
        close_all();
    }
}

static void a_smaller_one_holds_what_is_in_use(void)
{
    uint64_t posted = 0, received = 0;

    open_all(64);
    while (posted < 9)
        CHECK_EQ(post(posted++), 0);
    CHECK_EQ(resize(8), EINVAL);
    CHECK_EQ(size(), 64);
    receives(received++);
    CHECK_EQ(resize(8), 0);
    CHECK_EQ(size(), 8);
    CHECK_EQ(post(posted), ENOMEM);
    receives(received++);
    CHECK_EQ(post(posted++), 0);
    CHECK_EQ(post(posted), ENOMEM);
    CHECK_EQ(resize(64), 0);
    while (posted < received + 64)
        CHECK_EQ(post(posted++), 0);
    CHECK_EQ(post(posted), ENOMEM);
    while (received < posted)
        receives(received++);
    close_all();
}

static void sizes_round_up_and_have_limits(void)
{
    open_all(4);
    CHECK_EQ(resize(0), EINVAL);
    CHECK_EQ(resize(32769), EINVAL);
    CHECK_EQ(resize(5), 0);
    CHECK_EQ(size(), 8);
    CHECK_EQ(resize(32768), 0);
    CHECK_EQ(size(), 32768);
    close_all();
}

static void the_limit_fits_the_size(void)
{
    struct ibv_srq_attr attr = {.max_wr = 16, .srq_limit = 16};

    open_all(8);
    for (uint64_t i = 0; i < 8; ++i)
        CHECK_EQ(post(i), 0);
    CHECK_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
    attr.srq_limit = 5;
    CHECK_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR), 0);
    for (uint64_t i = 0; i < 4; ++i)
        receives(i);
    CHECK_EQ(ibv_query_srq(srq, &attr), 0);
    CHECK_EQ(attr.srq_limit, 0); /* reached */
    attr.srq_limit = 4;
    CHECK_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
    CHECK_EQ(resize(2), EINVAL); /* the limit would be beyond it */
    CHECK_EQ(size(), 16);
    close_all();
}

int main(void)
{
    RUN(the_device_says_so);
    RUN(what_waits_keeps_its_order);
    RUN(a_smaller_one_holds_what_is_in_use);
    RUN(sizes_round_up_and_have_limits);
    RUN(the_limit_fits_the_size);
    return 0;
}
