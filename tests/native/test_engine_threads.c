// SPDX-License-Identifier: Apache-2.0
/* Programs' threads post, poll, register and fail while another thread drives the engines. */
#include <pthread.h>
#include <sched.h>

#include "check.h"
#include "fabric.h"

enum { MESSAGES = 3000, LENGTH = 1500, OPEN = 32 };

static struct fabric fabric;
static struct vb_qp *qp[2];
static atomic_bool stopping;

static void *drive(void *unused)
{
    (void)unused;
    while (!atomic_load(&stopping))
        if (!fabric_step(&fabric))
            sched_yield();
    return NULL;
}

/* Sends to the other side and takes what that sends, until both have had everything. */
static void *talk(void *argument)
{
    struct side *side = argument;
    struct vb_qp *mine = qp[side->index];
    uint32_t posted = 0, done = 0, got = 0;
    struct ibv_wc wc;

    while (done < MESSAGES || got < MESSAGES) {
        for (; posted < MESSAGES && posted - done < OPEN; ++posted) {
            struct ibv_send_wr wr = fabric_request(
                &fabric, side->index, posted % 3 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM, 65536);

            CHECK_EQ(fabric_post(&fabric, mine, wr, 0, LENGTH), 0);
        }
        for (; fabric_poll(side->send_cq, &wc); ++done)
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        for (; fabric_poll(side->recv_cq, &wc); ++got) {
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
            CHECK_EQ(wc.byte_len, LENGTH);
            fabric_post_recv(&fabric, mine, 0, 32768, LENGTH);
        }
        sched_yield();
    }
    return NULL;
}

static void *churn_regions(void *argument)
{
    struct side *side = argument;

    while (!atomic_load(&stopping)) {
        struct vb_mr *mr;

        CHECK_EQ(vb_mr_reg(side->pd, side->memory, 4096, (uintptr_t)side->memory, 0, &mr), 0);
        CHECK_EQ(vb_mr_dereg(mr), 0);
        sched_yield();
    }
    return NULL;
}

static void start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    CHECK_EQ(pthread_create(thread, NULL, run, argument), 0);
}

static void two_programs_and_a_driver(void)
{
    struct fabric_options faults = {.seed = 3, .loss = 0.002};
    struct qp_options options = fabric_defaults();
    pthread_t driver, talker[2], churner;

    options.timeout = PATIENT_TIMEOUT(
        14); /* the driver's time does not wait for a talker that gets no processor */
    fabric_open(&fabric, faults);
    fabric_pair(&fabric, options, qp);
    for (int i = 0; i < 2 * OPEN; ++i) {
        fabric_post_recv(&fabric, qp[0], 0, 32768, LENGTH);
        fabric_post_recv(&fabric, qp[1], 0, 32768, LENGTH);
    }
    start(&driver, drive, NULL);
    start(&churner, churn_regions, &fabric.side[0]);
    start(&talker[0], talk, &fabric.side[0]);
    start(&talker[1], talk, &fabric.side[1]);
    pthread_join(talker[0], NULL);
    pthread_join(talker[1], NULL);
    atomic_store(&stopping, true);
    pthread_join(driver, NULL);
    pthread_join(churner, NULL);
    fabric_close(&fabric);
}

/* Each round a connection is failed by its program while packets fly: every request ends once. */
static void errors_while_packets_fly(void)
{
    pthread_t driver;

    atomic_store(&stopping, false);
    fabric_open(&fabric, (struct fabric_options){.seed = 4});
    start(&driver, drive, NULL);
    for (int round = 0; round < 200; ++round) {
        uint32_t ended = 0, received = 0;
        struct ibv_wc wc;

        fabric_pair(&fabric, fabric_defaults(), qp);
        for (int i = 0; i < 20; ++i) {
            struct ibv_send_wr wr =
                fabric_request(&fabric, 0, i % 2 ? IBV_WR_SEND : IBV_WR_RDMA_READ, 0);

            fabric_post_recv(&fabric, qp[1], 0, 65536, 8192);
            CHECK_EQ(fabric_post(&fabric, qp[0], wr, 0, 8000), 0);
        }
        for (int i = 0; i < round; ++i)
            sched_yield();
        fabric_set_state(qp[round % 2], IBV_QPS_ERR);
        fabric_set_state(qp[!(round % 2)], IBV_QPS_ERR);
        while (fabric_poll(fabric.side[0].send_cq, &wc))
            ++ended;
        while (fabric_poll(fabric.side[1].recv_cq, &wc))
            ++received;
        CHECK_EQ(ended, 20);
        CHECK_EQ(received, 20);
        CHECK_EQ(vb_qp_destroy(qp[0]), 0);
        CHECK_EQ(vb_qp_destroy(qp[1]), 0);
    }
    atomic_store(&stopping, true);
    pthread_join(driver, NULL);
    fabric_close(&fabric);
}

/* As a packet does that names each number of the first QPs. Returns how often a QP was not whole.
 */
static void *look_for_queue_pairs(void *unwhole)
{
    const struct side *side = &fabric.side[0];

    while (!atomic_load(&stopping)) {
        pthread_mutex_lock(&fabric.lock);
        for (uint32_t i = 0; i < VB_QPS_PER_SLOT; ++i) {
            const struct vb_qp *found = __atomic_load_n(&side->adapter.qps[i], __ATOMIC_ACQUIRE);

            if (found && vb_engine_find(side->engine, found->number) == found)
                *(uint32_t *)unwhole += !found->shared || found->shared->qp_num != found->number;
        }
        pthread_mutex_unlock(&fabric.lock);
        sched_yield();
    }
    return NULL;
}

/* A packet may name the number of a QP that is being made. */
static void a_queue_pair_that_is_found_is_whole(void)
{
    struct qp_options options = fabric_defaults();
    uint32_t unwhole = 0;
    pthread_t seeker;

    atomic_store(&stopping, false);
    fabric_open(&fabric, (struct fabric_options){.seed = 5});
    start(&seeker, look_for_queue_pairs, &unwhole);
    for (int round = 0; round < 300; ++round) {
        qp[0] = fabric_qp(&fabric, 0, &options);
        sched_yield();
        CHECK_EQ(vb_qp_destroy(qp[0]), 0);
    }
    atomic_store(&stopping, true);
    pthread_join(seeker, NULL);
    CHECK_EQ(unwhole, 0);
    fabric_close(&fabric);
}

int main(void)
{
    RUN(two_programs_and_a_driver);
    RUN(errors_while_packets_fly);
    RUN(a_queue_pair_that_is_found_is_whole);
    return 0;
}
