// SPDX-License-Identifier: Apache-2.0
/* ibv_modify_cq: events for several completions, or when a time is over. */
#include <poll.h>
#include <stdbool.h>
#include <time.h>

#include "pair.h"

enum { LONG_US = 60000, SHORT_US = 5000, PATIENCE_MS = 10000 };

static struct pair pair;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;

static void post_write(unsigned count)
{
    struct ibv_sge sge = pair_sge(&pair);
    struct ibv_send_wr *bad, wr = pair_write(&pair, &sge);

    while (count--)
        CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
}

static void post_send(bool solicited)
{
    struct ibv_send_wr *bad, wr = {
                                 .opcode = IBV_WR_SEND,
                                 .send_flags = solicited ? IBV_SEND_SOLICITED : 0,
                             };

    pair_post_recv(&pair, 1, 128, 8);
    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
}

static bool event_within(int ms)
{
    struct pollfd entry = {.fd = channel->fd, .events = POLLIN};
    struct ibv_cq *told;
    void *context;

    if (poll(&entry, 1, ms) != 1)
        return false;
    CHECK_EQ(ibv_get_cq_event(channel, &told, &context), 0);
    CHECK(told == cq);
    ibv_ack_cq_events(cq, 1);
    return true;
}

static void drain(void)
{
    struct ibv_wc wc;

    while (ibv_poll_cq(cq, 1, &wc) > 0)
        ;
}

static void moderate(uint16_t count, uint16_t us)
{
    struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE,
                                      .moderate = {.cq_count = count, .cq_period = us}};

    CHECK_EQ(ibv_modify_cq(cq, &attr), 0);
}

static uint64_t ms_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void the_device_says_what_it_can(void)
{
    struct ibv_modify_cq_attr unknown = {.attr_mask = 2};
    struct ibv_device_attr_ex attr;

    CHECK_EQ(ibv_query_device_ex(pair.context, NULL, &attr), 0);
    CHECK_EQ(attr.cq_mod_caps.max_cq_count, UINT16_MAX);
    CHECK_EQ(attr.cq_mod_caps.max_cq_period, UINT16_MAX);
    CHECK_EQ(ibv_modify_cq(cq, &unknown), EOPNOTSUPP);
}

/* If the machine takes longer than the period, the event is due: then the round says nothing. */
static void an_event_for_so_many(void)
{
    int judged = 0;

    for (int round = 0; round < 50 && judged < 3; ++round) {
        uint64_t began = ms_now();
        bool early;

        moderate(4, LONG_US);
        CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
        post_write(3);
        early = event_within(0);
        if (early || (ms_now() - began) * 1000 > LONG_US) {
            CHECK((ms_now() - began) * 1000 >= LONG_US / 2);
            drain();
            continue;
        }
        post_write(1);
        CHECK(event_within(0));
        CHECK(!event_within(0));
        drain();
        ++judged;
    }
    CHECK_EQ(judged, 3);
}

static void fewer_make_it_when_the_time_is_over(void)
{
    moderate(1000, SHORT_US);
    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    post_write(2);
    CHECK(event_within(PATIENCE_MS));
    CHECK(!event_within(20)); /* one for all that had gathered */
    drain();
}

/* Whoever ends the time may be late; then the event comes when it has. */
static bool the_first_makes_it(void)
{
    bool at_once;

    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    CHECK(!event_within(50)); /* nothing has come */
    post_write(1);
    at_once = event_within(0);
    CHECK(at_once || event_within(PATIENCE_MS));
    drain();
    return at_once;
}

static void after_the_time_the_first_makes_it(void)
{
    int tries = 50;

    moderate(1000, SHORT_US);
    while (!the_first_makes_it())
        CHECK(--tries);
}

static void what_was_there_before_counts(void)
{
    moderate(3, SHORT_US);
    post_write(3);
    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    CHECK(event_within(0));
    drain();
    post_write(1);
    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    CHECK(event_within(PATIENCE_MS));
    drain();
}

static void only_what_was_asked_for_is_counted(void)
{
    moderate(2, SHORT_US);
    CHECK_EQ(ibv_req_notify_cq(cq, 1), 0);
    for (int i = 0; i < 3; ++i)
        post_send(false);
    CHECK(!event_within(50));
    post_send(true);
    CHECK(event_within(PATIENCE_MS));
    drain();
}

static void its_end_lets_go_what_has_gathered(void)
{
    moderate(100, UINT16_MAX);
    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    post_write(1);
    moderate(0, 0);
    CHECK(event_within(0));
    drain();
    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    post_write(1);
    CHECK(event_within(0));
    drain();
}

static void many_rounds_lose_no_event(void)
{
    moderate(2, 1);
    for (int i = 0; i < 2000; ++i) {
        CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
        post_write(1);
        CHECK(event_within(PATIENCE_MS));
        drain();
    }
}

static void it_may_be_destroyed_while_it_gathers(void)
{
    moderate(100, UINT16_MAX);
    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    post_write(1);
}

static void open_moderated(void)
{
    struct ibv_cq_init_attr_ex attr = {.cqe = 64};
    struct ibv_cq_ex *plain = pair.cq;

    channel = ibv_create_comp_channel(pair.context);
    CHECK(channel);
    attr.channel = channel;
    pair.cq = ibv_create_cq_ex(pair.context, &attr);
    CHECK(pair.cq);
    cq = ibv_cq_ex_to_cq(pair.cq);
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
    open_moderated();
    RUN(the_device_says_what_it_can);
    RUN(an_event_for_so_many);
    RUN(fewer_make_it_when_the_time_is_over);
    RUN(after_the_time_the_first_makes_it);
    RUN(what_was_there_before_counts);
    RUN(only_what_was_asked_for_is_counted);
    RUN(its_end_lets_go_what_has_gathered);
    RUN(many_rounds_lose_no_event);
    RUN(it_may_be_destroyed_while_it_gathers);
    CHECK_EQ(ibv_destroy_qp(pair.qp[0]), 0);
    CHECK_EQ(ibv_destroy_qp(pair.qp[1]), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
    CHECK_EQ(ibv_dereg_mr(pair.mr), 0);
    CHECK_EQ(ibv_dealloc_pd(pair.pd), 0);
    CHECK_EQ(ibv_close_device(pair.context), 0);
    return 0;
}
