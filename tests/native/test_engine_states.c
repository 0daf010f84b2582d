// SPDX-License-Identifier: Apache-2.0
/* A connection's states while packets are under way: draining, flushing, reset, destruction. */
#include "check.h"
#include "fabric.h"
#include "transport/transport.h"

static struct fabric fabric;
static struct vb_qp *qp[2];

static void begin(struct qp_options options)
{
    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    fabric_pair(&fabric, options, qp);
}

static void post(int side, uint64_t id, enum ibv_wr_opcode opcode, uint32_t length)
{
    struct ibv_send_wr wr = fabric_request(&fabric, side, opcode, 0);

    wr.wr_id = id;
    CHECK_EQ(fabric_post(&fabric, qp[side], wr, 0, length), 0);
}

static void next_is(struct vb_cq *cq, uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc = fabric_wait(&fabric, cq);

    CHECK_EQ(wc.wr_id, id);
    CHECK_EQ(wc.status, status);
}

static void the_first_request_establishes(void)
{
    struct qp_options options = fabric_defaults();

    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    qp[0] = fabric_qp(&fabric, 0, &options);
    qp[1] = fabric_qp(&fabric, 1, &options);
    fabric_ready(&fabric, qp[0], qp[1]->number, &options);
    fabric_to_rtr(qp[1], qp[0]->number, &options);
    for (int i = 0; i < 2; ++i) {
        fabric_post_recv(&fabric, qp[1], 5, 0, 64);
        post(0, 1, IBV_WR_SEND, 8);
        next_is(fabric.side[0].send_cq, 1, IBV_WC_SUCCESS);
    }
    fabric_expect_event(&fabric, 1, IBV_EVENT_COMM_EST);
    CHECK(!fabric_has_event(&fabric, 1));
    fabric_to_rts(qp[1], &options);
    post(1, 2, IBV_WR_RDMA_READ, 3000);
    next_is(fabric.side[1].send_cq, 2, IBV_WC_SUCCESS);
    fabric_close(&fabric);
}

static void draining_finishes_what_was_begun(void)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
    struct ibv_qp_init_attr init;
    struct ibv_wc wc;

    begin(fabric_defaults());
    post(0, 1, IBV_WR_RDMA_WRITE, 100000);
    post(0, 2, IBV_WR_RDMA_READ, 100000);
    fabric_step(&fabric); /* 64 packets of the first have left, the second was not begun */
    CHECK_EQ(vb_qp_modify(qp[0], &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    CHECK_EQ(vb_qp_query(qp[0], &attr, 0, &init), 0);
    CHECK_EQ(attr.sq_draining, 1);
    CHECK(!fabric_has_event(&fabric, 0));
    post(0, 3, IBV_WR_RDMA_WRITE, 64);
    fabric_run(&fabric, 50000000);
    next_is(fabric.side[0].send_cq, 1, IBV_WC_SUCCESS);
    CHECK(!fabric_poll(fabric.side[0].send_cq, &wc));
    fabric_expect_event(&fabric, 0, IBV_EVENT_SQ_DRAINED);
    CHECK(!fabric_has_event(&fabric, 0));
    CHECK_EQ(vb_qp_query(qp[0], &attr, 0, &init), 0);
    CHECK_EQ(attr.sq_draining, 0);
    fabric_set_state(qp[0], IBV_QPS_RTS);
    next_is(fabric.side[0].send_cq, 2, IBV_WC_SUCCESS);
    next_is(fabric.side[0].send_cq, 3, IBV_WC_SUCCESS);
    fabric_close(&fabric);
}

static void an_idle_queue_is_drained_at_once(void)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};

    begin(fabric_defaults());
    CHECK_EQ(vb_qp_modify(qp[0], &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    fabric_expect_event(&fabric, 0, IBV_EVENT_SQ_DRAINED);
    fabric_close(&fabric);
}

static void error_flushes_both_queues_in_order(void)
{
    struct ibv_wc wc;

    begin(fabric_defaults());
    fabric_post_recv(&fabric, qp[0], 10, 0, 64);
    fabric_post_recv(&fabric, qp[0], 11, 0, 64);
    for (uint64_t i = 1; i <= 3; ++i)
        post(0, i, IBV_WR_RDMA_WRITE, 100000);
    fabric_step(&fabric);
    fabric_set_state(qp[0], IBV_QPS_ERR);
    for (uint64_t i = 1; i <= 3; ++i)
        next_is(fabric.side[0].send_cq, i, IBV_WC_WR_FLUSH_ERR);
    next_is(fabric.side[0].recv_cq, 10, IBV_WC_WR_FLUSH_ERR);
    next_is(fabric.side[0].recv_cq, 11, IBV_WC_WR_FLUSH_ERR);
    post(0, 4, IBV_WR_RDMA_WRITE, 8);
    next_is(fabric.side[0].send_cq, 4, IBV_WC_WR_FLUSH_ERR);
    fabric_run(&fabric, 1000000000);
    CHECK(!fabric_poll(fabric.side[0].send_cq, &wc));
    CHECK_EQ(vb_engine_deadline(fabric.side[0].engine), UINT64_MAX);
    /* The peer learns of it when nobody answers. */
    post(1, 9, IBV_WR_RDMA_WRITE, 8);
    next_is(fabric.side[1].send_cq, 9, IBV_WC_RETRY_EXC_ERR);
    fabric_close(&fabric);
}

/* In the middle of a multi-packet SEND the receiver goes to ERR: its request in hand is flushed. */
static void a_receive_in_hand_is_flushed_with_the_others(void)
{
    for (int srq = 0; srq < 2; ++srq) {
        struct qp_options options = fabric_defaults();
        struct ibv_wc wc;

        options.srq[1] = srq;
        options.timeout = 1;
        begin(options);
        fabric_post_recv(&fabric, qp[1], 20, 0, 200000);
        fabric_post_recv(&fabric, qp[1], 21, 0, 200000);
        post(0, 1, IBV_WR_SEND, 200000);
        while (!qp[1]->endpoint->responder.received)
            CHECK(fabric_step(&fabric));
        fabric_set_state(qp[1], IBV_QPS_ERR);
        next_is(fabric.side[1].recv_cq, 20, IBV_WC_WR_FLUSH_ERR);
        if (srq)
            fabric_expect_event(&fabric, 1, IBV_EVENT_QP_LAST_WQE_REACHED);
        else
            next_is(fabric.side[1].recv_cq, 21, IBV_WC_WR_FLUSH_ERR);
        CHECK(!fabric_poll(fabric.side[1].recv_cq, &wc));
        next_is(fabric.side[0].send_cq, 1, IBV_WC_RETRY_EXC_ERR);
        fabric_close(&fabric);
    }
}

static enum verdict lose_ends(struct fabric *f, struct flight *flight)
{
    (void)f;
    return vb_wire_bth_read(flight->bytes).opcode == VB_OP_SEND_LAST ? LOSE : PASS;
}

/* After a reset on one side, or both, the same queue pairs can be connected again. */
static void reset_in_the_middle(int sides)
{
    struct qp_options options = fabric_defaults();
    struct ibv_wc wc;

    options.timeout = 1;
    options.srq[1] = true;
    begin(options);
    for (int round = 0; round < 3; ++round) {
        struct vb_srq_shared *srq = fabric.side[1].srq->shared;

        fabric_post_recv(&fabric, qp[1], 30, 0, 200000);
        post(0, 1, IBV_WR_SEND, 200000);
        post(0, 2, IBV_WR_RDMA_READ, 100000);
        post(1, 3, IBV_WR_RDMA_READ, 100000);
        fabric.rule = lose_ends;
        while (!qp[1]->endpoint->responder.received)
            CHECK(fabric_step(&fabric));
        fabric.rule = NULL;
        for (int i = 0; i < 2; ++i)
            if (sides >> i & 1)
                fabric_set_state(qp[i], IBV_QPS_RESET);
        fabric_run(&fabric, 20000000);
        for (int i = 0; i < 2; ++i)
            if (vb_qp_state(qp[i]) != IBV_QPS_RESET)
                fabric_set_state(qp[i], IBV_QPS_RESET);
        CHECK(!qp[0]->endpoint && !qp[1]->endpoint);
        CHECK(!fabric_poll(fabric.side[0].send_cq, &wc));
        CHECK(!fabric_poll(fabric.side[1].recv_cq, &wc));
        /* The SRQ's request that was in hand waits again, or was flushed by its QP's error. */
        CHECK_EQ(atomic_load(&srq->posted) - atomic_load(&srq->taken), sides != 1);
        if (sides == 1)
            fabric_post_recv(&fabric, qp[1], 30, 0, 200000);
        fabric_ready(&fabric, qp[0], qp[1]->number, &options);
        fabric_ready(&fabric, qp[1], qp[0]->number, &options);
        post(0, 4, IBV_WR_SEND, 150000);
        next_is(fabric.side[0].send_cq, 4, IBV_WC_SUCCESS);
        next_is(fabric.side[1].recv_cq, 30, IBV_WC_SUCCESS);
        while (fabric_has_event(&fabric, 1)) {
            struct ibv_async_event event;

            CHECK_EQ(vb_event_get(fabric.side[1].context, &event), 0);
            vb_event_ack(fabric.side[1].context, &event);
        }
    }
    fabric_close(&fabric);
}

static void a_connection_can_be_reset_at_any_time(void)
{
    reset_in_the_middle(1);
    reset_in_the_middle(2);
    reset_in_the_middle(3);
}

static void a_queue_pair_can_be_destroyed_at_any_time(void)
{
    struct qp_options options = fabric_defaults();

    options.timeout = 1;
    begin(options);
    for (int round = 0; round < 30; ++round) {
        struct vb_qp *pair[2];

        fabric_pair(&fabric, options, pair);
        fabric_post_recv(&fabric, pair[1], 0, 0, 100000);
        CHECK_EQ(
            fabric_post(&fabric, pair[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 100000),
            0);
        CHECK_EQ(fabric_post(&fabric, pair[1], fabric_request(&fabric, 1, IBV_WR_RDMA_READ, 0), 0,
                             100000),
                 0);
        for (int i = 0; i < round; ++i)
            fabric_step(&fabric);
        CHECK_EQ(vb_qp_destroy(pair[round % 2]), 0);
        fabric_run(&fabric, round * 1000u);
        CHECK_EQ(vb_qp_destroy(pair[!(round % 2)]), 0);
    }
    fabric_run(&fabric, 1000000000);
    CHECK_EQ(vb_engine_deadline(fabric.side[0].engine), UINT64_MAX);
    post(0, 1, IBV_WR_RDMA_WRITE, 100000);
    while (fabric_wait(&fabric, fabric.side[0].send_cq).status != IBV_WC_SUCCESS)
        ;
    fabric_close(&fabric);
}

static void an_idle_connection_is_small(void)
{
    const size_t fixed = sizeof(struct vb_program_endpoint) + sizeof(struct vb_verbs_qp) +
                         sizeof(struct vb_qp_shared) + sizeof(struct vb_timer *);

    printf("  %zu bytes of the engine, %zu of the queue pair, %zu shared\n",
           sizeof(struct vb_program_endpoint), sizeof(struct vb_verbs_qp),
           sizeof(struct vb_qp_shared));
    /* without the rings that the program asked for */
    CHECK(fixed + 16 * sizeof(struct vb_record) <= 2048);
    CHECK(fixed + VB_MAX_RD_ATOMIC * sizeof(struct vb_record) <= 5632);
}

/* Each connection keeps as many as its own limit says, and more when that is raised. */
static void room_for_reads_is_what_the_connection_asked_for(void)
{
    static const uint8_t limits[][2] = {{0, 0}, {1, 1}, {5, 8}, {16, 16}, {128, 128}};
    struct qp_options options = fabric_defaults();
    struct ibv_qp_attr raised = {.max_dest_rd_atomic = 33};
    struct vb_qp *pair[2];

    begin(options);
    for (int i = 0; i < 5; ++i) {
        options.dest_rd_atomic = limits[i][0];
        fabric_pair(&fabric, options, pair);
        CHECK_EQ(pair[0]->endpoint->replies.room, limits[i][1]);
    }
    for (int i = 0; i < 6; ++i)
        post(0, 1, IBV_WR_RDMA_READ, 64);
    for (int i = 0; i < 6; ++i)
        CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    fabric_set_state(qp[1], IBV_QPS_SQD);
    CHECK_EQ(vb_qp_modify(qp[1], &raised, IBV_QP_MAX_DEST_RD_ATOMIC), 0);
    CHECK_EQ(qp[1]->endpoint->replies.room, 64);
    CHECK_EQ(qp[1]->endpoint->replies.kept, 4);
    fabric_close(&fabric);
}

int main(void)
{
    RUN(the_first_request_establishes);
    RUN(draining_finishes_what_was_begun);
    RUN(an_idle_queue_is_drained_at_once);
    RUN(error_flushes_both_queues_in_order);
    RUN(a_receive_in_hand_is_flushed_with_the_others);
    RUN(a_connection_can_be_reset_at_any_time);
    RUN(a_queue_pair_can_be_destroyed_at_any_time);
    RUN(an_idle_connection_is_small);
    RUN(room_for_reads_is_what_the_connection_asked_for);
    return 0;
}
