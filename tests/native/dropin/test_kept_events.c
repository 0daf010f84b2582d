// SPDX-License-Identifier: Apache-2.0
/* Events of a simulated host's channels that do not pass through their descriptors. */
#include <poll.h>

#include "../star.h"
#include "dropin/verbena.h"
#include "pair.h"

enum { CQS = 2 };

static const uint64_t RATE = 8000000000;
static const uint64_t DELAY = 500000; /* ps */
static const uint64_t SECOND = 1000000000000;

static struct star star;
static struct pair pair;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq[CQS]; /* of the channel, each with a queue pair */
static struct ibv_qp *qp[CQS];

static void open_channel(void)
{
    channel = ibv_create_comp_channel(pair.context);
    CHECK(channel);
    for (int i = 0; i < CQS; ++i) {
        cq[i] = ibv_create_cq(pair.context, 8, NULL, channel, 0);
        qp[i] = pair_qp_on(&pair, cq[i]);
    }
    pair_connect(&pair, qp[0], qp[1]->qp_num);
    pair_connect(&pair, qp[1], qp[0]->qp_num);
}

static void close_channel(void)
{
    for (int i = 0; i < CQS; ++i) {
        CHECK_EQ(ibv_destroy_qp(qp[i]), 0);
        CHECK_EQ(ibv_destroy_cq(cq[i]), 0);
    }
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

/* Arms the CQ, and a WRITE completes into it. */
static void make_event(int on)
{
    struct ibv_sge sge = pair_sge(&pair);
    struct ibv_send_wr *bad, wr = pair_write(&pair, &sge);
    uint64_t until = verbena_world_time(pair.context) + SECOND;
    struct ibv_wc wc;

    CHECK_EQ(ibv_req_notify_cq(cq[on], 0), 0);
    CHECK_EQ(ibv_post_send(qp[on], &wr, &bad), 0);
    while (ibv_poll_cq(cq[on], 1, &wc) == 0)
        CHECK_EQ(verbena_step(pair.context, until), 1);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
}

static bool is_readable(void)
{
    struct pollfd entry = {.fd = channel->fd, .events = POLLIN};

    return poll(&entry, 1, 0) == 1;
}

/* Whose event is next; -1: there is none. */
static int next_event(void)
{
    struct ibv_cq *from;
    void *context;

    if (ibv_get_cq_event(channel, &from, &context)) {
        CHECK_EQ(errno, EAGAIN);
        return -1;
    }
    ibv_ack_cq_events(from, 1);
    return from == cq[0] ? 0 : 1;
}

static void keep(bool on)
{
    CHECK_EQ(verbena_keep_events(channel, on), 0);
}

static void kept_events_come_in_order_and_nothing_waits(void)
{
    enum { FIRST = 50, MORE = 300 };

    open_channel();
    keep(true);
    CHECK_EQ(next_event(), -1); /* though the descriptor is one that blocks */
    for (int i = 0; i < FIRST; ++i)
        make_event(i % 3 == 0);
    CHECK_EQ(verbena_kept_events(channel), FIRST);
    CHECK(!is_readable());
    for (int i = 0; i < FIRST - 1; ++i)
        CHECK_EQ(next_event(), i % 3 == 0);
    for (int i = FIRST; i < MORE; ++i)
        make_event(i % 3 == 0);
    for (int i = FIRST - 1; i < MORE; ++i)
        CHECK_EQ(next_event(), i % 3 == 0);
    CHECK_EQ(next_event(), -1);
    CHECK_EQ(verbena_kept_events(channel), 0);
    close_channel();
}

static void events_move_between_the_descriptor_and_the_process(void)
{
    enum { EVENTS = 200 };

    open_channel();
    make_event(1);
    for (int i = 1; i < EVENTS; ++i)
        make_event(0);
    CHECK_EQ(verbena_kept_events(channel), 0);
    keep(true);
    CHECK(!is_readable());
    CHECK_EQ(verbena_kept_events(channel), EVENTS);
    CHECK_EQ(next_event(), 1);
    make_event(1);
    keep(false);
    CHECK_EQ(verbena_kept_events(channel), 0);
    for (int i = 1; i < EVENTS; ++i)
        CHECK_EQ(next_event(), 0);
    CHECK(is_readable());
    CHECK_EQ(next_event(), 1);
    CHECK(!is_readable());
    make_event(0);
    CHECK(is_readable());
    keep(true); /* one is left to go with the channel */
    close_channel();
}

/* Of a program that arms and polls, and seldom reads. */
static void an_event_outlives_a_full_channel(void)
{
    enum { MORE_THAN_A_PIPE_HOLDS = 10000 };
    int events[CQS] = {0};

    open_channel();
    keep(true);
    for (int i = 0; i < MORE_THAN_A_PIPE_HOLDS; ++i)
        make_event(0);
    make_event(1);
    for (int from = next_event(); from >= 0; from = next_event())
        ++events[from];
    CHECK(events[0] > 1000 && events[0] < MORE_THAN_A_PIPE_HOLDS);
    CHECK_EQ(events[1], 1);
    close_channel();
}

static void only_simulated_hosts_keep_events(void)
{
    struct ibv_context *own = pair_open_device();
    struct ibv_comp_channel *of_own = ibv_create_comp_channel(own);

    CHECK_EQ(verbena_keep_events(of_own, 1), -EOPNOTSUPP);
    CHECK_EQ(ibv_destroy_comp_channel(of_own), 0);
    CHECK_EQ(ibv_close_device(own), 0);
}

int main(void)
{
    struct ibv_device *device;

    star_open(&star, 2, RATE, DELAY);
    CHECK_EQ(verbena_attach(star_attachment(&star, 0), "h0", &device), 0);
    pair_open_on(&pair, ibv_open_device(device));
    RUN(kept_events_come_in_order_and_nothing_waits);
    RUN(events_move_between_the_descriptor_and_the_process);
    RUN(an_event_outlives_a_full_channel);
    RUN(only_simulated_hosts_keep_events);
    pair_close(&pair);
    verbena_detach(device);
    star_close(&star);
    return 0;
}
