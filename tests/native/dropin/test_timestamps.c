// SPDX-License-Identifier: Apache-2.0
/* Completions with the time at which they were made. */
#include <stdbool.h>
#include <time.h>

#include "pair.h"

enum { ENTRIES = 4 };

static struct pair pair;
static struct ibv_cq_ex *cq; /* of qp[0] */

static uint64_t now(void)
{
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};

    CHECK_EQ(ibv_query_rt_values_ex(pair.context, &values), 0);
    CHECK_EQ(values.raw_clock.tv_sec, 0);
    return (uint64_t)values.raw_clock.tv_nsec;
}

static void post_write(void)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory, 8, pair.mr->lkey};
    struct ibv_send_wr *bad, wr = {
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.rdma = {(uintptr_t)pair.memory + 64, pair.mr->rkey},
                             };

    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
}

static uint64_t poll_one(void)
{
    struct ibv_poll_cq_attr attr = {0};
    uint64_t stamp;

    CHECK_EQ(ibv_start_poll(cq, &attr), 0);
    stamp = ibv_wc_read_completion_ts(cq);
    ibv_end_poll(cq);
    return stamp;
}

static void the_device_says_how_its_clock_runs(void)
{
    struct ibv_values_ex wrong = {.comp_mask = 2};
    struct ibv_device_attr_ex attr;

    CHECK_EQ(ibv_query_device_ex(pair.context, NULL, &attr), 0);
    CHECK_EQ(attr.completion_timestamp_mask, UINT64_MAX);
    CHECK_EQ(attr.hca_core_clock, 1000 * 1000);
    CHECK_EQ(ibv_query_rt_values_ex(pair.context, &wrong), EINVAL);
}

static void a_stamp_lies_between_post_and_poll(void)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    uint64_t before = now(), after, stamp;

    post_write();
    after = now();
    nanosleep(&pause, NULL); /* the time is the completion's, not the poll's */
    stamp = poll_one();
    CHECK(before <= stamp && stamp <= after);
}

static void each_has_its_own_around_the_ring(void)
{
    uint64_t last = now();

    for (int round = 0; round < 3 * ENTRIES; ++round) {
        uint64_t limits[4] = {now()};

        for (int i = 0; i < 3; ++i) {
            post_write();
            limits[i + 1] = now();
        }
        for (int i = 0; i < 3; ++i) {
            uint64_t stamp = poll_one();

            CHECK(limits[i] <= stamp && stamp <= limits[i + 1] && last <= stamp);
            last = stamp;
        }
    }
}

static void a_resize_keeps_the_stamps(void)
{
    uint64_t before = now(), between, after;

    post_write();
    between = now();
    post_write();
    after = now();
    CHECK_EQ(ibv_resize_cq(ibv_cq_ex_to_cq(cq), 64), 0);
    CHECK(poll_one() - before <= between - before);
    CHECK(poll_one() - between <= after - between);
    CHECK_EQ(ibv_resize_cq(ibv_cq_ex_to_cq(cq), ENTRIES), 0);
    each_has_its_own_around_the_ring();
}

static uint64_t time_of_day(void)
{
    struct timespec time;

    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static bool reads_the_time_of_day(void)
{
    const uint64_t slack = 50 * 1000 * 1000;
    struct ibv_poll_cq_attr attr = {0};
    uint64_t before = time_of_day(), after, stamp;

    post_write();
    after = time_of_day();
    CHECK_EQ(ibv_start_poll(cq, &attr), 0);
    stamp = ibv_wc_read_completion_wallclock_ns(cq);
    ibv_end_poll(cq);
    return stamp + slack >= before && stamp <= after + slack;
}

/* The two clocks are read one after the other, and one may be adjusted: not to the nanosecond, and
 * not where this process has to wait in between. */
static void the_time_of_day_is_read_too(void)
{
    int tries = 20;

    while (!reads_the_time_of_day())
        CHECK(--tries);
}

/* Its queue pairs complete on this CQ instead. */
static void open_stamped(void)
{
    struct ibv_cq_init_attr_ex attr = {
        .cqe = ENTRIES,
        .wc_flags =
            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    };
    struct ibv_cq_ex *plain = pair.cq;

    cq = ibv_create_cq_ex(pair.context, &attr);
    CHECK(cq);
    pair.cq = cq;
    for (int i = 0; i < 2; ++i) {
        CHECK_EQ(ibv_destroy_qp(pair.qp[i]), 0);
        pair.qp[i] = pair_qp(&pair, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
        CHECK(pair.qp[i]);
    }
    pair_connect(&pair, pair.qp[0], pair.qp[1]->qp_num);
    pair_connect(&pair, pair.qp[1], pair.qp[0]->qp_num);
    CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(plain)), 0);
}

int main(void)
{
    pair_open(&pair);
    open_stamped();
    RUN(the_device_says_how_its_clock_runs);
    RUN(a_stamp_lies_between_post_and_poll);
    RUN(each_has_its_own_around_the_ring);
    RUN(a_resize_keeps_the_stamps);
    RUN(the_time_of_day_is_read_too);
    pair_close(&pair);
    return 0;
}
