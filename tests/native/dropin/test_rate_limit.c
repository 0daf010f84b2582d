// SPDX-License-Identifier: Apache-2.0
/*
 * A QP's rate limit as programs set it, between two QPs of one process, directly and by packets:
 * requests take their time.
 */
#include <time.h>

#include "pair.h"

enum { BYTES = 1000 };

static struct pair pair;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int limit(struct ibv_qp *qp, uint32_t rate, uint32_t burst)
{
    struct ibv_qp_rate_limit_attr attr = {.rate_limit = rate, .max_burst_sz = burst};

    return ibv_modify_qp_rate_limit(qp, &attr);
}

static void post(enum ibv_wr_opcode opcode)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory, BYTES, pair.mr->lkey};
    struct ibv_send_wr wr = {.opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .wr.rdma = {(uintptr_t)pair.memory + 2048, pair.mr->rkey}};
    struct ibv_send_wr *bad;

    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
}

static double seconds_for(int count, enum ibv_wr_opcode opcode)
{
    double began = now();

    for (int posted = 0, done = 0; done < count; ++done) {
        struct ibv_wc wc;

        while (posted < count && posted - done < PAIR_DEPTH) {
            post(opcode);
            ++posted;
        }
        pair_poll(&pair, &wc);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    }
    return now() - began;
}

static void the_device_says_so(void)
{
    struct ibv_device_attr_ex device;

    CHECK_EQ(ibv_query_device_ex(pair.context, NULL, &device), 0);
    CHECK(ibv_is_qpt_supported(device.packet_pacing_caps.supported_qpts, IBV_QPT_RC));
    CHECK(ibv_is_qpt_supported(device.packet_pacing_caps.supported_qpts, IBV_QPT_UC));
    CHECK(ibv_is_qpt_supported(device.packet_pacing_caps.supported_qpts, IBV_QPT_XRC_SEND));
    CHECK(!ibv_is_qpt_supported(device.packet_pacing_caps.supported_qpts, IBV_QPT_UD));
    CHECK_EQ(device.packet_pacing_caps.qp_rate_limit_min, 1);
    CHECK_EQ(limit(pair.qp[0], device.packet_pacing_caps.qp_rate_limit_max, 0), 0);
    CHECK_EQ(limit(pair.qp[0], device.packet_pacing_caps.qp_rate_limit_max + 1, 0), EINVAL);
}

/* A millisecond each. */
static void requests_take_their_time(void)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;

    CHECK_EQ(limit(pair.qp[0], 8000, 0), 0);
    CHECK_EQ(ibv_query_qp(pair.qp[0], &attr, IBV_QP_RATE_LIMIT, &init), 0);
    CHECK_EQ(attr.rate_limit, 8000);
    CHECK(seconds_for(101, IBV_WR_RDMA_WRITE) >= 0.1);
    CHECK_EQ(limit(pair.qp[0], 8000, 50 * BYTES), 0);
    CHECK(seconds_for(101, IBV_WR_RDMA_WRITE) >= 0.049);
    CHECK_EQ(limit(pair.qp[0], 0, 0), 0);
    CHECK_EQ(ibv_query_qp(pair.qp[0], &attr, IBV_QP_RATE_LIMIT, &init), 0);
    CHECK_EQ(attr.rate_limit, 0);
}

/* At 1 kbit/s the second request would take 8 seconds: what a READ brings is not counted. */
static void reads_are_not_sent(void)
{
    CHECK_EQ(limit(pair.qp[0], 1, 0), 0);
    CHECK(seconds_for(2, IBV_WR_RDMA_READ) < 7);
    post(IBV_WR_RDMA_WRITE);
    post(IBV_WR_RDMA_WRITE);
    CHECK_EQ(limit(pair.qp[0], 0, 0), 0); /* and a limit that goes lets go */
    for (int i = 0; i < 2; ++i) {
        struct ibv_wc wc;

        pair_poll(&pair, &wc);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    }
}

/* Stopped by SQD, it has nothing under way; flushed by ERR, it loses nothing. */
static void other_states(void)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};
    struct ibv_qp_init_attr init;
    struct ibv_wc wc;

    CHECK_EQ(limit(pair.qp[0], 1, 0), 0);
    for (int i = 0; i < 3; ++i)
        post(IBV_WR_RDMA_WRITE);
    pair_poll(&pair, &wc); /* the first is sent at once, and owes for the others */
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_modify_qp(pair.qp[0], &attr, IBV_QP_STATE), 0);
    do
        CHECK_EQ(ibv_query_qp(pair.qp[0], &attr, IBV_QP_STATE, &init), 0);
    while (attr.sq_draining && pair_is_by_packets());
    CHECK(!attr.sq_draining);
    CHECK_EQ(limit(pair.qp[0], 0, 0), EINVAL);
    attr.qp_state = IBV_QPS_ERR;
    CHECK_EQ(ibv_modify_qp(pair.qp[0], &attr, IBV_QP_STATE), 0);
    for (int i = 0; i < 2; ++i) {
        pair_poll(&pair, &wc);
        CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    }
}

static void attributes_of_a_transition(void)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET, .rate_limit = 5000};
    struct ibv_qp_init_attr init;

    for (int i = 0; i < 2; ++i)
        CHECK_EQ(ibv_modify_qp(pair.qp[i], &attr, IBV_QP_STATE), 0);
    pair_connect(&pair, pair.qp[0], pair.qp[1]->qp_num);
    pair_connect(&pair, pair.qp[1], pair.qp[0]->qp_num);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(pair.qp[0], &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT), 0);
    attr.rate_limit = 0;
    CHECK_EQ(ibv_query_qp(pair.qp[0], &attr, IBV_QP_RATE_LIMIT, &init), 0);
    CHECK_EQ(attr.rate_limit, 5000);
    attr.qp_state = IBV_QPS_RESET;
    CHECK_EQ(ibv_modify_qp(pair.qp[0], &attr, IBV_QP_STATE), 0);
    CHECK_EQ(ibv_query_qp(pair.qp[0], &attr, IBV_QP_RATE_LIMIT, &init), 0);
    CHECK_EQ(attr.rate_limit, 0);
}

int main(void)
{
    pair_open(&pair);
    RUN(the_device_says_so);
    RUN(requests_take_their_time);
    RUN(reads_are_not_sent);
    RUN(other_states);
    RUN(attributes_of_a_transition);
    pair_close(&pair);
    return 0;
}
