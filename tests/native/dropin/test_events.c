// SPDX-License-Identifier: Apache-2.0
/* Completion channels and asynchronous events, and who waits for whom. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "pair.h"

static struct pair pair;

static void post_write(struct ibv_qp *qp, uint32_t rkey)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory, 8, pair.mr->lkey};
    struct ibv_send_wr *bad, wr = {
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.rdma = {(uintptr_t)pair.memory + 64, rkey},
                             };

    CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
}

static bool readable(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};

    return poll(&entry, 1, 0) == 1;
}

static atomic_bool destroyed;

static void *destroy_cq(void *cq)
{
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    destroyed = true;
    return NULL;
}

static void *destroy_qp(void *qp)
{
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    destroyed = true;
    return NULL;
}

static void a_channel_tells_of_one_completion_per_arming(void)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(pair.context);
    struct ibv_cq *cq = ibv_create_cq(pair.context, 8, &pair, channel, 0), *from;
    struct ibv_qp *qp = pair_qp_on(&pair, cq), *peer = pair_qp_on(&pair, cq);
    pthread_t thread;
    void *context;

    pair_connect(&pair, qp, peer->qp_num);
    pair_connect(&pair, peer, qp->qp_num);
    CHECK_EQ(ibv_destroy_comp_channel(channel), EBUSY);
    post_write(qp, pair.mr->rkey);
    CHECK(!readable(channel->fd)); /* not armed */
    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    post_write(qp, pair.mr->rkey);
    post_write(qp, pair.mr->rkey);
    CHECK(readable(channel->fd));
    CHECK_EQ(ibv_get_cq_event(channel, &from, &context), 0);
    CHECK(from == cq && context == &pair);
    CHECK(!readable(channel->fd));
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_qp(peer), 0);

    destroyed = false;
    pthread_create(&thread, NULL, destroy_cq, cq);
    usleep(20000);
    CHECK(!destroyed); /* the event is not acknowledged */
    ibv_ack_cq_events(cq, 1);
    pthread_join(thread, NULL);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

/* Once: not again for an entry that had its event and is not polled yet. */
static void a_completion_before_the_arming_makes_an_event(void)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(pair.context);
    struct ibv_cq *cq = ibv_create_cq(pair.context, 8, &pair, channel, 0), *from;
    struct ibv_qp *qp = pair_qp_on(&pair, cq), *peer = pair_qp_on(&pair, cq);
    void *context;

    pair_connect(&pair, qp, peer->qp_num);
    pair_connect(&pair, peer, qp->qp_num);
    post_write(qp, pair.mr->rkey);
    CHECK(!readable(channel->fd));
    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    CHECK_EQ(ibv_get_cq_event(channel, &from, &context), 0);
    ibv_ack_cq_events(cq, 1);
    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0); /* perftest arms before it polls */
    CHECK(!readable(channel->fd));
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_qp(peer), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

static void complete_one(struct ibv_qp *qp, struct ibv_cq *cq)
{
    struct ibv_wc wc;

    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    post_write(qp, pair.mr->rkey);
    while (ibv_poll_cq(cq, 1, &wc) == 0)
        ;
}

/* A program that arms and polls, and seldom reads the channel. */
static void an_event_outlives_a_full_channel(void)
{
    enum { MORE_THAN_A_PIPE_HOLDS = 20000 };
    struct ibv_comp_channel *channel = ibv_create_comp_channel(pair.context);
    struct ibv_cq *busy = ibv_create_cq(pair.context, 8, &pair, channel, 0), *from;
    struct ibv_cq *quiet = ibv_create_cq(pair.context, 8, &pair, channel, 0);
    struct ibv_qp *qp[] = {pair_qp_on(&pair, busy), pair_qp_on(&pair, quiet)};
    unsigned busy_events = 0, quiet_events = 0;
    void *context;

    pair_connect(&pair, qp[0], qp[1]->qp_num);
    pair_connect(&pair, qp[1], qp[0]->qp_num);
    for (int i = 0; i < MORE_THAN_A_PIPE_HOLDS; ++i)
        complete_one(qp[0], busy);
    complete_one(qp[1], quiet);
    fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    while (readable(channel->fd)) {
        CHECK_EQ(ibv_get_cq_event(channel, &from, &context), 0);
        ++*(from == busy ? &busy_events : &quiet_events);
    }
    CHECK(busy_events > 0 && busy_events < MORE_THAN_A_PIPE_HOLDS);
    CHECK(quiet_events > 0);
    ibv_ack_cq_events(busy, busy_events);
    ibv_ack_cq_events(quiet, quiet_events);
    for (int i = 0; i < 2; ++i)
        CHECK_EQ(ibv_destroy_qp(qp[i]), 0);
    CHECK_EQ(ibv_destroy_cq(busy), 0);
    CHECK_EQ(ibv_destroy_cq(quiet), 0);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

static void a_channel_without_an_event_does_not_block_if_asked(void)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(pair.context);
    struct ibv_cq *cq;
    void *context;

    fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    CHECK_EQ(ibv_get_cq_event(channel, &cq, &context), -1);
    CHECK_EQ(errno, EAGAIN);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

static void take_event(enum ibv_event_type type, struct ibv_async_event *event)
{
    do
        CHECK_EQ(ibv_get_async_event(pair.context, event), 0);
    while (event->event_type == IBV_EVENT_COMM_EST && (ibv_ack_async_event(event), true));
    CHECK_EQ(event->event_type, type);
}

static void a_failed_check_raises_an_event_that_destroy_waits_for(void)
{
    struct ibv_cq *cq = ibv_cq_ex_to_cq(pair.cq);
    struct ibv_qp *qp = pair_qp_on(&pair, cq), *peer = pair_qp_on(&pair, cq);
    struct ibv_async_event event;
    pthread_t thread;
    struct ibv_wc wc;

    pair_connect(&pair, qp, peer->qp_num);
    pair_connect(&pair, peer, qp->qp_num);
    post_write(qp, pair.mr->rkey ^ 0x100);
    pair_poll(&pair, &wc);
    CHECK_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
    take_event(IBV_EVENT_QP_ACCESS_ERR, &event);
    CHECK(event.element.qp == peer);

    destroyed = false;
    pthread_create(&thread, NULL, destroy_qp, peer);
    usleep(20000);
    CHECK(!destroyed);
    ibv_ack_async_event(&event);
    pthread_join(thread, NULL);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
}

static void unread_events_of_a_destroyed_object_are_gone(void)
{
    struct ibv_cq *cq = ibv_cq_ex_to_cq(pair.cq);
    struct ibv_qp *qp = pair_qp_on(&pair, cq), *peer = pair_qp_on(&pair, cq);
    struct ibv_async_event event;
    struct ibv_wc wc;

    pair_connect(&pair, qp, peer->qp_num);
    pair_connect(&pair, peer, qp->qp_num);
    post_write(qp, pair.mr->rkey ^ 0x100);
    pair_poll(&pair, &wc);
    CHECK(readable(pair.context->async_fd));
    CHECK_EQ(ibv_destroy_qp(peer), 0);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK(!readable(pair.context->async_fd)); /* who polls it would block in the next call */
    fcntl(pair.context->async_fd, F_SETFL, O_NONBLOCK);
    CHECK_EQ(ibv_get_async_event(pair.context, &event), -1);
    CHECK_EQ(errno, EAGAIN);
}

int main(void)
{
    pair_open(&pair);
    RUN(a_channel_tells_of_one_completion_per_arming);
    RUN(a_completion_before_the_arming_makes_an_event);
    RUN(an_event_outlives_a_full_channel);
    RUN(a_channel_without_an_event_does_not_block_if_asked);
    RUN(a_failed_check_raises_an_event_that_destroy_waits_for);
    RUN(unread_events_of_a_destroyed_object_are_gone);
    pair_close(&pair);
    return 0;
}
