// SPDX-License-Identifier: Apache-2.0
/*
 * Requests that wait, and who comes back to them: the retry thread, unless the program polls the CQ
 * itself. A thread that moves vb_cq.rounds stands for polls, so that no poll makes progress.
 */
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "check.h"
#include "direct/connection.h"
#include "direct/retry.h"
#include "end.h"
#include "loopback.h"

static struct loopback loop;

/* ---- polls ---- */

static struct {
    struct vb_cq *cq;
    pthread_t thread;
    atomic_bool ends;
} poller;

static void *move_rounds(void *unused)
{
    while (!atomic_load(&poller.ends)) {
        atomic_fetch_add(&poller.cq->rounds, 1);
        sched_yield();
    }
    return unused;
}

static void start_polls(struct vb_cq *cq)
{
    poller.cq = cq;
    atomic_store(&poller.ends, false);
    CHECK_EQ(pthread_create(&poller.thread, NULL, move_rounds, NULL), 0);
}

static void end_polls(void)
{
    atomic_store(&poller.ends, true);
    pthread_join(poller.thread, NULL);
}

/* Is there a completion, without a poll that would make progress? */
static bool completes_within(const struct vb_cq *cq, int milliseconds)
{
    for (int i = 0; i < milliseconds && !vb_cq_has_entry_at(cq, vb_cq_taken(cq)); ++i)
        usleep(1000);
    return vb_cq_has_entry_at(cq, vb_cq_taken(cq));
}

/* ---- requests ---- */

static void post_send(int from)
{
    struct ibv_sge sge = {(uintptr_t)loop.memory[from], 8, loop.mr[from]->ibv.lkey};
    struct ibv_send_wr wr = {.wr_id = 5,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;

    CHECK_EQ(vb_post_send(loop.qp[from], &wr, &bad), 0);
}

static void post_recv(int to)
{
    struct ibv_sge sge = {(uintptr_t)loop.memory[to] + 64, 8, loop.mr[to]->ibv.lkey};
    struct ibv_recv_wr wr = {.wr_id = 6, .sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(vb_post_recv(loop.qp[to], &wr, &bad), 0);
}

/* Connected QPs, whose requests wait for a receive request for ever. */
static void begin(void)
{
    loopback_open(&loop, IBV_QPT_RC);
    loopback_connect(loop.qp[0], loop.qp[1], 7);
    loopback_connect(loop.qp[1], loop.qp[0], 7);
}

static void who_sleeps_is_served(void)
{
    begin();
    post_send(0);
    CHECK(!completes_within(loop.cq[0], 50));
    post_recv(1);
    CHECK(completes_within(loop.cq[0], 5000));
    loopback_close(&loop);
}

static bool is_left_alone(void)
{
    bool left_alone;

    begin();
    start_polls(loop.cq[0]);
    post_send(0);
    usleep(20000); /* it may be amid a round that began before the polls */
    post_recv(1);
    left_alone = !completes_within(loop.cq[0], 200);
    end_polls();
    CHECK(completes_within(loop.cq[0], 5000));
    loopback_close(&loop);
    return left_alone;
}

/* The retry thread would only be in its way. On a busy machine the polls may pause for as long as
 * the thread does, so that some of several tries have to do. */
static void who_polls_is_left_alone(void)
{
    int tries = 0;

    while (!is_left_alone())
        CHECK(++tries < 10);
}

/* Polls try requests, and do not flush. */
static void who_polls_is_flushed_all_the_same(void)
{
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    struct ibv_wc wc;

    begin();
    start_polls(loop.cq[0]);
    post_recv(0);
    post_send(0);
    usleep(20000);
    CHECK_EQ(vb_qp_modify(loop.qp[0], &error, IBV_QP_STATE), 0);
    for (int i = 0; i < 2; ++i) {
        CHECK(completes_within(loop.cq[0], 5000));
        CHECK_EQ(vb_cq_poll(loop.cq[0], 1, &wc), 1);
        CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    }
    end_polls();
    loopback_close(&loop);
}

/* ---- a peer that goes ---- */

static void connects_and_waits(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    end_meet(socket);
    pause();
}

static void who_polls_hears_of_its_peers_end(void)
{
    struct end end;
    int socket;
    pid_t child;

    end_open(&end, (struct end_options){0});
    end_add_qp(&end);
    child = end_spawn("connects_and_waits", &socket);
    end_connect(&end, end.qp, socket);
    end_meet(socket);
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_RDMA_WRITE, 8), 0); /* it has its peer */
    CHECK_EQ(end_wait(end.cq, 20).status, IBV_WC_SUCCESS);
    start_polls(end.cq);
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_SEND, 8), 0);
    CHECK(!completes_within(end.cq, 50));
    end_kill(child, socket);
    CHECK(completes_within(end.cq, 5000));
    end_polls();
    CHECK_EQ(end_wait(end.cq, 20).status, IBV_WC_RETRY_EXC_ERR);
    end_close(&end);
}

/* ---- the list ---- */

/* The thread has a QP in hand now and then, which is not in the list meanwhile. */
static bool is_listed(const struct vb_cq *cq, const struct vb_qp *qp, unsigned room)
{
    struct vb_qp *found[2] = {NULL, NULL};

    for (int i = 0; i < 1000; ++i) {
        unsigned count = vb_direct_retry_waiting(loop.direct, cq, found, room);

        CHECK(count <= room && count <= 1);
        CHECK(!count || found[0] == qp);
        CHECK(found[1] == NULL);
        if (count)
            return true;
        usleep(100);
    }
    return false;
}

static bool is_let_go_of(const struct vb_cq *cq)
{
    struct vb_qp *found;

    for (int i = 0; i < 2000 && vb_direct_retry_waiting(loop.direct, cq, &found, 1); ++i)
        usleep(1000);
    return !is_listed(cq, NULL, 1);
}

static void each_cq_has_its_own(void)
{
    struct ibv_wc wc;

    begin();
    for (int i = 0; i < 2; ++i)
        CHECK(!is_listed(loop.cq[i], NULL, 2));
    post_send(0);
    CHECK(is_listed(loop.cq[0], loop.qp[0], 2));
    CHECK(!is_listed(loop.cq[1], NULL, 2));
    post_send(1);
    for (int i = 0; i < 2; ++i) {
        CHECK(is_listed(loop.cq[i], loop.qp[i], 2));
        CHECK(is_listed(loop.cq[i], loop.qp[i], 1));
        CHECK(!is_listed(loop.cq[i], NULL, 0));
    }
    vb_direct_retry_leave(loop.direct, loop.qp[0]);
    CHECK(!is_listed(loop.cq[0], NULL, 2));
    CHECK(!atomic_load(&loop.qp[0]->verbs->attended));
    CHECK(is_listed(loop.cq[1], loop.qp[1], 2));
    vb_direct_retry_attend(loop.direct, loop.qp[0]);
    vb_direct_retry_attend(loop.direct, loop.qp[0]); /* once is enough */
    CHECK(is_listed(loop.cq[0], loop.qp[0], 2));
    post_recv(1);
    post_recv(0);
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) {
            CHECK_EQ(loopback_poll(loop.cq[i], &wc), 0);
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        }
    for (int i = 0; i < 2; ++i)
        CHECK(is_let_go_of(loop.cq[i]));
    loopback_close(&loop);
}

int main(int argc, char **argv)
{
    static const struct end_play plays[] = {{"connects_and_waits", connects_and_waits}};

    if (end_play(argc, argv, plays, sizeof(plays) / sizeof(plays[0])))
        return 0;
    alarm(100);
    RUN(who_sleeps_is_served);
    RUN(who_polls_is_left_alone);
    RUN(who_polls_is_flushed_all_the_same);
    RUN(who_polls_hears_of_its_peers_end);
    RUN(each_cq_has_its_own);
    return 0;
}
