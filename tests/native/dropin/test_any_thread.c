// SPDX-License-Identifier: Apache-2.0
/*
 * Any verb from any thread: posters, pollers, readers of both kinds of events, queries, resizing,
 * registration, and a thread that fails, destroys and makes queue pairs, all on the same objects at
 * once. Every send completes once, and no receive request of the shared queue is lost.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "pair.h"

enum { COUPLES = 4, RECEIVES = 64, SECONDS = 1, PATIENCE = 20, POLLERS = 2, SMALL = 512 };

/* A queue pair that sends and one that receives. Who destroys them excludes all others. */
struct couple {
    pthread_rwlock_t lock;
    struct ibv_qp *qp[2];
    _Atomic uint32_t outstanding; /* sends */
    atomic_bool last_reached;     /* of qp[1]: the shared queue gives it nothing any more */
};

static struct pair pair;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct couple couples[COUPLES];
static atomic_bool stopping, whole; /* `whole`: nothing is broken any more */
static _Atomic uint64_t empty_polls[POLLERS], sent, received, broken;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static bool readable(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};

    return poll(&entry, 1, 5) == 1;
}

static void give_receive(void)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory + 1024, 64, pair.mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = COUPLES, .sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
}

/* ---- making and breaking ---- */

static struct ibv_qp *make_qp(struct couple *couple, struct ibv_srq *of)
{
    struct ibv_qp_init_attr attr = {.qp_context = couple,
                                    .send_cq = cq,
                                    .recv_cq = cq,
                                    .srq = of,
                                    .cap = {16, 16, 1, 1, 0},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(pair.pd, &attr);

    CHECK(qp);
    return qp;
}

static void make(struct couple *couple)
{
    couple->qp[0] = make_qp(couple, NULL);
    couple->qp[1] = make_qp(couple, srq);
    couple->last_reached = false;
    pair_connect(&pair, couple->qp[0], couple->qp[1]->qp_num);
    pair_connect(&pair, couple->qp[1], couple->qp[0]->qp_num);
}

static void fail(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

static bool pollers_have_passed(const uint64_t *before)
{
    for (int i = 0; i < POLLERS; ++i)
        if (empty_polls[i] < before[i] + 2)
            return false;
    return true;
}

/* What had completed when this was called has been polled. */
static void let_pollers_pass(void)
{
    double end = now() + PATIENCE;
    uint64_t before[POLLERS];

    for (int i = 0; i < POLLERS; ++i)
        before[i] = empty_polls[i];
    while (!pollers_have_passed(before)) {
        CHECK(now() < end);
        usleep(100);
    }
}

static void destroy(struct couple *couple)
{
    double end = now() + PATIENCE;

    fail(couple->qp[0]);
    fail(couple->qp[1]);
    while (couple->outstanding || !couple->last_reached) {
        CHECK(now() < end);
        usleep(100);
    }
    let_pollers_pass();
    CHECK_EQ(ibv_destroy_qp(couple->qp[0]), 0);
    CHECK_EQ(ibv_destroy_qp(couple->qp[1]), 0);
    ++broken;
}

static void *break_and_make(void *unused)
{
    (void)unused;
    for (unsigned i = 0; !whole; ++i) {
        struct couple *couple = &couples[i % COUPLES];

        if (i % 3)
            fail(couple->qp[i % 2]); /* under those who post to it */
        pthread_rwlock_wrlock(&couple->lock);
        destroy(couple);
        make(couple);
        pthread_rwlock_unlock(&couple->lock);
        usleep(1000);
    }
    return NULL;
}

/* ---- using ---- */

static void post(uint64_t number, bool write)
{
    struct couple *couple = &couples[number];
    struct ibv_sge sge = {(uintptr_t)pair.memory, 48, pair.mr->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = number,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_SEND,
                                   .send_flags = IBV_SEND_SIGNALED};
    int error;

    wr.wr.rdma.remote_addr = (uintptr_t)pair.memory + 2048;
    wr.wr.rdma.rkey = pair.mr->rkey;
    ++couple->outstanding;
    error = ibv_post_send(couple->qp[0], &wr, &bad);
    CHECK(error == 0 || error == ENOMEM);
    if (error)
        --couple->outstanding;
    else
        ++sent;
}

static void *post_for_a_while(void *argument)
{
    unsigned turn = (unsigned)(uintptr_t)argument;

    for (; !stopping; ++turn) {
        struct couple *couple = &couples[turn % COUPLES];

        if (pthread_rwlock_tryrdlock(&couple->lock)) {
            usleep(50);
            continue;
        }
        post(turn % COUPLES, turn % 3 == 0);
        pthread_rwlock_unlock(&couple->lock);
    }
    return NULL;
}

static void take(const struct ibv_wc *wc)
{
    if (wc->wr_id == COUPLES) {
        ++received;
        give_receive();
        return;
    }
    CHECK(wc->wr_id < COUPLES);
    CHECK(wc->status == IBV_WC_SUCCESS || wc->status == IBV_WC_WR_FLUSH_ERR ||
          wc->status == IBV_WC_RETRY_EXC_ERR);
    CHECK(couples[wc->wr_id].outstanding-- > 0);
}

static int take_some(int poller)
{
    struct ibv_wc wc[8];
    int n = ibv_poll_cq(cq, 8, wc);

    CHECK(n >= 0);
    for (int i = 0; i < n; ++i)
        take(&wc[i]);
    if (n == 0)
        ++empty_polls[poller];
    return n;
}

static void *poll_for_a_while(void *unused)
{
    (void)unused;
    while (!stopping)
        if (!take_some(0))
            usleep(20);
    return NULL;
}

static void *sleep_and_poll(void *unused)
{
    (void)unused;
    while (!stopping) {
        struct ibv_cq *from;
        void *context;

        CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
        while (take_some(1))
            ;
        if (!readable(channel->fd))
            continue;
        CHECK_EQ(ibv_get_cq_event(channel, &from, &context), 0);
        CHECK(from == cq);
        ibv_ack_cq_events(cq, 1);
    }
    return NULL;
}

static void *read_events(void *unused)
{
    (void)unused;
    while (!stopping) {
        struct ibv_async_event event;

        if (!readable(pair.context->async_fd))
            continue;
        CHECK_EQ(ibv_get_async_event(pair.context, &event), 0);
        if (event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
            ((struct couple *)event.element.qp->qp_context)->last_reached = true;
        ibv_ack_async_event(&event);
    }
    return NULL;
}

static void ask(struct ibv_qp *qp)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;

    CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init), 0);
    CHECK(attr.qp_state == IBV_QPS_RTS || attr.qp_state == IBV_QPS_ERR);
}

static void *ask_and_register(void *unused)
{
    static uint8_t other[4096];
    struct ibv_srq_attr size = {0};

    (void)unused;
    for (unsigned i = 0; !stopping; ++i) {
        struct ibv_mr *mr = ibv_reg_mr(pair.pd, other, sizeof(other), IBV_ACCESS_LOCAL_WRITE);

        CHECK(mr);
        if (pthread_rwlock_tryrdlock(&couples[i % COUPLES].lock) == 0) {
            ask(couples[i % COUPLES].qp[i % 2]);
            pthread_rwlock_unlock(&couples[i % COUPLES].lock);
        }
        CHECK_EQ(ibv_resize_cq(cq, i % 2 ? SMALL : 2 * SMALL), 0);
        size.max_wr = RECEIVES << i % 6;
        CHECK_EQ(ibv_modify_srq(srq, &size, IBV_SRQ_MAX_WR), 0);
        CHECK_EQ(ibv_dereg_mr(mr), 0);
        usleep(500);
    }
    return NULL;
}

/* ---- the test ---- */

static void open_all(void)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};

    pair_open(&pair);
    channel = ibv_create_comp_channel(pair.context);
    cq = ibv_create_cq(pair.context, SMALL, NULL, channel, 0);
    srq = ibv_create_srq(pair.pd, &attr);
    CHECK(channel && cq && srq);
    for (int i = 0; i < RECEIVES; ++i)
        give_receive();
    for (int i = 0; i < COUPLES; ++i) {
        pthread_rwlock_init(&couples[i].lock, NULL);
        make(&couples[i]);
    }
}

/* Each receive request is still in the shared queue, or its completion in the CQ. */
static void all_receives_are_there(void)
{
    double end = now() + PATIENCE;
    uint64_t before = received;

    for (int i = 0; i < RECEIVES; ++i) {
        post((uint64_t)(i % COUPLES), false);
        while (couples[i % COUPLES].outstanding) {
            struct ibv_wc wc;

            CHECK(now() < end);
            while (ibv_poll_cq(cq, 1, &wc) == 1) {
                CHECK_EQ(wc.status, IBV_WC_SUCCESS);
                if (wc.wr_id == COUPLES)
                    ++received; /* not given back */
                else
                    --couples[wc.wr_id].outstanding;
            }
        }
    }
    CHECK_EQ(received - before, RECEIVES);
}

static void take_the_rest(void)
{
    double end = now() + PATIENCE;

    for (int i = 0; i < COUPLES; ++i)
        while (couples[i].outstanding) {
            CHECK(now() < end);
            take_some(0);
        }
    while (take_some(0))
        ;
}

static void close_all(void)
{
    for (int i = 0; i < COUPLES; ++i) {
        CHECK_EQ(ibv_destroy_qp(couples[i].qp[0]), 0);
        CHECK_EQ(ibv_destroy_qp(couples[i].qp[1]), 0);
        pthread_rwlock_destroy(&couples[i].lock);
    }
    CHECK_EQ(ibv_destroy_srq(srq), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
    pair_close(&pair);
}

static void every_verb_at_once(void)
{
    static void *(*const work[])(void *) = {break_and_make,   post_for_a_while, post_for_a_while,
                                            poll_for_a_while, sleep_and_poll,   read_events,
                                            ask_and_register};
    enum { THREADS = sizeof(work) / sizeof(*work) };
    pthread_t threads[THREADS];

    open_all();
    for (int i = 0; i < THREADS; ++i)
        CHECK_EQ(pthread_create(&threads[i], NULL, work[i], (void *)(uintptr_t)i), 0);
    sleep(SECONDS);
    whole = true; /* first who breaks: the others' help is needed to make all whole again */
    CHECK_EQ(pthread_join(threads[0], NULL), 0);
    stopping = true;
    for (int i = 1; i < THREADS; ++i)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    take_the_rest();
    printf("%llu sends, %llu receives, %llu couples broken\n", (unsigned long long)sent,
           (unsigned long long)received, (unsigned long long)broken);
    CHECK(sent > 100 && broken > 4);
    all_receives_are_there();
    close_all();
}

int main(void)
{
    alarm(90); /* a hang is a failure */
    RUN(every_verb_at_once);
    return 0;
}
