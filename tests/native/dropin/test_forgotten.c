// SPDX-License-Identifier: Apache-2.0
/*
 * What a program forgets and then waits for, or does again and again: with VERBENA_LOG=errors there
 * is one line of it.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"
#include "told.h"

static unsigned lines_with(const char *words)
{
    unsigned count = 0;

    for (const char *at = told_so_far(); (at = strstr(at, words)); ++at)
        ++count;
    return count;
}

/* A CQ with a channel, and a QP of which each post completes there at once, flushed. */
struct bench {
    struct pair pair;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
};

static void open_bench(struct bench *bench)
{
    struct ibv_qp_attr first = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};

    pair_open(&bench->pair);
    bench->channel = ibv_create_comp_channel(bench->pair.context);
    CHECK(bench->channel);
    bench->cq = ibv_create_cq(bench->pair.context, 64, NULL, bench->channel, 0);
    CHECK(bench->cq);
    bench->qp = pair_qp_on(&bench->pair, bench->cq);
    CHECK_EQ(ibv_modify_qp(bench->qp, &first,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
             0);
    CHECK_EQ(ibv_modify_qp(bench->qp, &error, IBV_QP_STATE), 0);
}

static void complete_one(struct bench *bench)
{
    struct ibv_sge sge = pair_sge(&bench->pair);
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(ibv_post_recv(bench->qp, &wr, &bad), 0);
}

static void *get_event(void *argument)
{
    struct bench *bench = argument;
    struct ibv_cq *cq;
    void *context;

    CHECK_EQ(ibv_get_cq_event(bench->channel, &cq, &context), 0);
    CHECK(cq == bench->cq);
    return NULL;
}

static void a_wait_for_an_event_that_nobody_asked_for(void)
{
    struct bench bench;
    pthread_t waiter;

    open_bench(&bench);
    complete_one(&bench);
    CHECK_EQ(pthread_create(&waiter, NULL, get_event, &bench), 0);
    for (int i = 0; i < 100 && !lines_with("ibv_get_cq_event waits"); ++i)
        usleep(100000);
    CHECK_EQ(lines_with("none of the channel's 1 CQs is armed: call ibv_req_notify_cq"), 1);
    sleep(2);
    CHECK_EQ(lines_with("ibv_get_cq_event waits"), 1);
    CHECK_EQ(ibv_req_notify_cq(bench.cq, 0), 0);
    CHECK_EQ(pthread_join(waiter, NULL), 0);
}

/* One that was asked for is waited for in silence. */
static void a_wait_for_an_event_that_may_come(void)
{
    struct bench bench;
    pthread_t waiter;

    open_bench(&bench);
    CHECK_EQ(ibv_req_notify_cq(bench.cq, 0), 0);
    CHECK_EQ(pthread_create(&waiter, NULL, get_event, &bench), 0);
    sleep(3);
    complete_one(&bench);
    CHECK_EQ(pthread_join(waiter, NULL), 0);
    CHECK_EQ(lines_with("ibv_get_cq_event"), 0);
}

static void *acknowledge_late(void *argument)
{
    struct bench *bench = argument;

    for (int i = 0; i < 100 && !lines_with("destroying a CQ waits"); ++i)
        usleep(100000);
    ibv_ack_cq_events(bench->cq, 1);
    return NULL;
}

static void events_that_nobody_acknowledged(void)
{
    struct bench bench;
    pthread_t late;

    open_bench(&bench);
    CHECK_EQ(ibv_req_notify_cq(bench.cq, 0), 0);
    complete_one(&bench);
    get_event(&bench);
    CHECK_EQ(ibv_destroy_qp(bench.qp), 0);
    CHECK_EQ(pthread_create(&late, NULL, acknowledge_late, &bench), 0);
    CHECK_EQ(ibv_destroy_cq(bench.cq), 0);
    CHECK_EQ(pthread_join(late, NULL), 0);
    CHECK_EQ(lines_with("1 events of it that the program was given are not acknowledged; call "
                        "ibv_ack_cq_events"),
             1);
}

/* Tried for more than a second, with another request of the queue done now and then. */
static void a_queue_that_is_full_again_and_again(void)
{
    struct pair pair;
    struct ibv_sge sge;
    struct ibv_send_wr *bad, wr;
    struct ibv_wc wc;

    pair_open(&pair);
    sge = pair_sge(&pair);
    wr = pair_write(&pair, &sge);
    for (int i = 0; i < 1500; ++i) {
        CHECK_EQ(ibv_post_send(pair.qp[i % 2], &wr, &bad), i / 2 < PAIR_DEPTH ? 0 : ENOMEM);
        usleep(1000);
    }
    CHECK_EQ(lines_with("the send queue is full"), 1); /* for both: they differ in numbers */
    for (int i = 0; i < 2 * PAIR_DEPTH; ++i)
        pair_poll(&pair, &wc);
    pair_close(&pair);
    CHECK_EQ(lines_with("more failures were not shown"), 1);
}

static void (*const tests[])(void) = {
    a_queue_that_is_full_again_and_again,
    a_wait_for_an_event_that_nobody_asked_for,
    a_wait_for_an_event_that_may_come,
    events_that_nobody_acknowledged,
};

/* All at once, each in a process of its own: they wait for seconds. */
int main(void)
{
    enum { COUNT = sizeof(tests) / sizeof(*tests) };
    pid_t child[COUNT];
    int status;

    setenv("VERBENA_LOG", "errors", 1);
    for (int i = 0; i < COUNT; ++i) {
        child[i] = fork();
        CHECK(child[i] >= 0);
        if (child[i] == 0) {
            told_listen();
            tests[i]();
            return 0;
        }
    }
    for (int i = 0; i < COUNT; ++i) {
        CHECK_EQ(waitpid(child[i], &status, 0), child[i]);
        CHECK_EQ(status, 0);
    }
    return 0;
}
