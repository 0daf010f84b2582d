// SPDX-License-Identifier: Apache-2.0
/*
 * What a program in C sees of a simulated host's clock: times of completions, rate limits; and who
 * gets what it sends to its own group.
 */
#include "../star.h"
#include "dropin/verbena.h"
#include "pair.h"

enum { GRH = 40, QKEY = 0x11111111, BYTES = 1000, KBIT = 1000 };

static const uint64_t RATE = 8000000000;   /* a byte takes a nanosecond */
static const uint64_t DELAY = 500000;      /* ps */
static const uint64_t SECOND = 1000000000; /* ns */

static struct star star;
static struct pair pair;

static uint64_t device_clock(void)
{
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};

    CHECK_EQ(ibv_query_rt_values_ex(pair.context, &values), 0);
    CHECK_EQ(values.raw_clock.tv_sec, 0);
    return (uint64_t)values.raw_clock.tv_nsec;
}

static void pass(uint64_t ns)
{
    uint64_t until = verbena_world_time(pair.context) + ns * 1000;

    while (verbena_step(pair.context, until) == 1)
        ;
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory, length, pair.mr->lkey};
    struct ibv_send_wr wr = {.opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .wr.rdma = {(uintptr_t)pair.memory + 2048, pair.mr->rkey}};
    struct ibv_send_wr *bad;

    CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
}

/* Its queue pairs complete on this CQ. */
static void open_stamped(void)
{
    struct ibv_cq_init_attr_ex attr = {
        .cqe = 64,
        .wc_flags =
            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    };
    struct ibv_cq_ex *plain = pair.cq;

    pair.cq = ibv_create_cq_ex(pair.context, &attr);
    CHECK(pair.cq);
    for (int i = 0; i < 2; ++i) {
        CHECK_EQ(ibv_destroy_qp(pair.qp[i]), 0);
        pair.qp[i] = pair_qp(&pair, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
        CHECK(pair.qp[i]);
    }
    pair_connect(&pair, pair.qp[0], pair.qp[1]->qp_num);
    pair_connect(&pair, pair.qp[1], pair.qp[0]->qp_num);
    CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(plain)), 0);
}

static void the_device_has_the_worlds_clock(void)
{
    uint64_t began = device_clock();
    struct ibv_device_attr_ex attr;

    CHECK_EQ(ibv_query_device_ex(pair.context, NULL, &attr), 0);
    CHECK_EQ(attr.hca_core_clock, 1000 * 1000);
    CHECK_EQ(began, star_now(&star) / 1000);
    pass(3 * SECOND);
    CHECK_EQ(device_clock(), began + 3 * SECOND);
}

/* Out, over the switch and back, and the acknowledgement too; not when it was polled. */
static void a_completion_has_the_time_at_which_it_was_made(void)
{
    const uint64_t way = 4 * DELAY / 1000 + 2 * BYTES + 2 * 64; /* an ACK is 64 bytes here */
    struct ibv_poll_cq_attr attr = {0};
    uint64_t posted = device_clock();

    post(pair.qp[0], IBV_WR_RDMA_WRITE, BYTES);
    pass(SECOND);
    CHECK_EQ(ibv_start_poll(pair.cq, &attr), 0);
    CHECK_EQ(pair.cq->status, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_wc_read_completion_ts(pair.cq), posted + way);
    CHECK_EQ(ibv_wc_read_completion_wallclock_ns(pair.cq), posted + way); /* since 1970 */
    ibv_end_poll(pair.cq);
    CHECK_EQ(device_clock(), posted + SECOND);
}

static uint64_t ns_for(int count, uint32_t length)
{
    uint64_t began = device_clock();
    struct ibv_wc wc;

    for (int i = 0; i < count; ++i) {
        post(pair.qp[0], IBV_WR_RDMA_WRITE, length);
        pair_poll(&pair, &wc);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    }
    return device_clock() - began;
}

static int limit(uint32_t kbit, uint32_t burst)
{
    struct ibv_qp_rate_limit_attr attr = {.rate_limit = kbit, .max_burst_sz = burst};

    return ibv_modify_qp_rate_limit(pair.qp[0], &attr);
}

/* A thousand bytes and 32 of headers and ICRC: 1.032 ms each at 8 Mb/s. */
static void a_rate_limit_holds_in_virtual_time(void)
{
    const uint64_t each = (BYTES + 32) * 1000, slack = 10 * 1000;
    uint64_t took;

    CHECK_EQ(limit(8 * KBIT, 0), 0);
    took = ns_for(101, BYTES);
    CHECK(took >= 100 * each && took <= 100 * each + slack);
    pass(SECOND); /* what was not sent is not saved up */
    CHECK_EQ(limit(8 * KBIT, 50 * (BYTES + 32)), 0);
    took = ns_for(101, BYTES);
    CHECK(took >= 50 * each && took <= 51 * each + 50 * slack);
    CHECK_EQ(limit(0, 0), 0);
    CHECK(ns_for(101, BYTES) < 101 * 10 * 1000);
}

/* ---- groups ---- */

static struct ibv_qp *datagrams(uint32_t flags)
{
    struct ibv_qp_init_attr_ex init = {.send_cq = ibv_cq_ex_to_cq(pair.cq),
                                       .recv_cq = ibv_cq_ex_to_cq(pair.cq),
                                       .cap = {8, 8, 1, 1, 0},
                                       .qp_type = IBV_QPT_UD,
                                       .comp_mask =
                                           IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
                                       .pd = pair.pd,
                                       .create_flags = flags};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    struct ibv_qp *qp = ibv_create_qp_ex(pair.context, &init);

    CHECK(qp);
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
             0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    return qp;
}

static void post_recv(struct ibv_qp *qp)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory + 1024, GRH + 64, pair.mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(ibv_post_recv(qp, &wr, &bad), 0);
}

static void send_to_group(struct ibv_qp *qp, const union ibv_gid *group)
{
    struct ibv_ah_attr address = {
        .is_global = 1, .port_num = 1, .grh = {.dgid = *group, .sgid_index = 1}};
    struct ibv_ah *ah = ibv_create_ah(pair.pd, &address);
    struct ibv_sge sge = {(uintptr_t)pair.memory, 64, pair.mr->lkey};
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .wr.ud = {ah, 0xffffff, QKEY}};
    struct ibv_send_wr *bad;

    CHECK(ah);
    CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
    pass(SECOND);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
}

/* How many completions there are, each of a receive of `qp`. */
static int received(const struct ibv_qp *qp)
{
    struct ibv_wc wc;
    int count = 0;

    for (int polls = 0; polls < 100; ++polls)
        if (ibv_poll_cq(ibv_cq_ex_to_cq(pair.cq), 1, &wc) == 1 && wc.opcode == IBV_WC_RECV) {
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
            count += wc.qp_num == qp->qp_num;
        }
    return count;
}

static void one_that_blocks_its_own_gets_only_others(void)
{
    struct ibv_qp *open = datagrams(0), *deaf = datagrams(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
    const union ibv_gid group = {.raw = {0xff, 0x0e, [15] = 0x77}};

    CHECK_EQ(ibv_attach_mcast(open, &group, 0), 0);
    CHECK_EQ(ibv_attach_mcast(deaf, &group, 0), 0);
    for (int i = 0; i < 2; ++i) {
        post_recv(open);
        post_recv(deaf);
    }
    send_to_group(deaf, &group);
    CHECK_EQ(received(open), 1);
    send_to_group(open, &group);
    post_recv(open);
    send_to_group(deaf, &group);
    CHECK_EQ(received(open), 2); /* its own too */
    send_to_group(open, &group); /* it has no receive any more */
    CHECK_EQ(received(deaf), 1);
    CHECK_EQ(ibv_detach_mcast(open, &group, 0), 0);
    CHECK_EQ(ibv_detach_mcast(deaf, &group, 0), 0);
    CHECK_EQ(ibv_destroy_qp(open), 0);
    CHECK_EQ(ibv_destroy_qp(deaf), 0);
}

int main(void)
{
    struct ibv_device *device;

    star_open(&star, 2, RATE, DELAY);
    /* Not the first host, whose number is 0. */
    CHECK_EQ(verbena_attach(star_attachment(&star, 1), "h1", &device), 0);
    pair_open_on(&pair, ibv_open_device(device));
    open_stamped();
    RUN(the_device_has_the_worlds_clock);
    RUN(a_completion_has_the_time_at_which_it_was_made);
    RUN(a_rate_limit_holds_in_virtual_time);
    RUN(one_that_blocks_its_own_gets_only_others);
    pair_close(&pair);
    verbena_detach(device);
    star_close(&star);
    return 0;
}
