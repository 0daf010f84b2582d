// SPDX-License-Identifier: Apache-2.0
/* What is lost comes again: when, how often, from where, and how it ends. */
#include "check.h"
#include "fabric.h"
#include "hca/delays.h"
#include "wire/opcode.h"

static struct fabric fabric;
static struct vb_qp *qp[2];

/* Loses the first `count` packets of this side and operation that the first `pass` did not use. */
static struct {
    int from, operation;
    uint32_t pass, count;
} losing;

static enum verdict lose_some(struct fabric *f, struct flight *flight)
{
    int operation = vb_wire_bth_read(flight->bytes).opcode & 0x1f;

    (void)f;
    if (flight->from != losing.from || (losing.operation >= 0 && operation != losing.operation))
        return PASS;
    if (losing.pass) {
        --losing.pass;
        return PASS;
    }
    if (!losing.count)
        return PASS;
    --losing.count;
    return LOSE;
}

static void lose(int from, int operation, uint32_t pass, uint32_t count)
{
    losing.from = from;
    losing.operation = operation;
    losing.pass = pass;
    losing.count = count;
    fabric.rule = lose_some;
}

static void begin(struct qp_options options)
{
    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    fabric_pair(&fabric, options, qp);
}

static void post(enum ibv_wr_opcode opcode, uint32_t length)
{
    CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, opcode, 0), 0, length), 0);
}

static struct ibv_wc wait_send(enum ibv_wc_status status)
{
    struct ibv_wc wc = fabric_wait(&fabric, fabric.side[0].send_cq);

    CHECK_EQ(wc.status, status);
    return wc;
}

static uint32_t psn(uint32_t n)
{
    return (fabric_defaults().psn[0] + n) & 0xffffff;
}

static void a_missing_packet_is_asked_for_once_and_all_after_it_come_again(void)
{
    const struct logged *nak, *again;

    begin(fabric_defaults());
    lose(0, VB_OP_WRITE_MIDDLE, 1, 1); /* the third of ten */
    post(IBV_WR_RDMA_WRITE, 10 * 1024);
    wait_send(IBV_WC_SUCCESS);
    CHECK_EQ(fabric_counters(&fabric, 1)->nak_sequence_sent, 1);
    nak = fabric_find(&fabric, 1, VB_OP_ACKNOWLEDGE, 0);
    CHECK_EQ(nak->syndrome, 0x60);
    CHECK_EQ(nak->bth.psn, psn(2));
    again = fabric_find(&fabric, 0, -1, 10);
    CHECK_EQ(again->bth.psn, psn(2));
    CHECK_EQ(again->reason, VB_PACKET_AFTER_SEQUENCE_NAK);
    CHECK(again->bth.ack_request);
    CHECK_EQ(fabric_count(&fabric, 0, -1), 18);
    CHECK_EQ(fabric_counters(&fabric, 0)->packets_resent, 8);
    CHECK_EQ(fabric_counters(&fabric, 0)->timeouts, 0);
    fabric_close(&fabric);
}

static void a_strict_connection_ends_at_the_first_sequence_error(void)
{
    struct qp_options options = fabric_defaults();
    struct ibv_wc wc;

    options.retry_cnt = 0;
    begin(options);
    lose(0, VB_OP_WRITE_MIDDLE, 1, 1);
    post(IBV_WR_RDMA_WRITE, 10 * 1024);
    wc = wait_send(IBV_WC_RETRY_EXC_ERR);
    fabric_expect_text(&fabric, 0, wc.vendor_err, "1 sequence errors");
    CHECK_EQ(vb_qp_state(qp[0]), IBV_QPS_ERR);
    fabric_close(&fabric);
}

static void nobody_answers(uint8_t timeout, uint8_t retry_cnt)
{
    struct qp_options options = fabric_defaults();
    uint64_t t = vb_ack_timeout(timeout), start, last;
    struct ibv_wc wc;

    options.timeout = timeout;
    options.retry_cnt = retry_cnt;
    begin(options);
    lose(0, -1, 0, UINT32_MAX);
    start = last = fabric.now;
    post(IBV_WR_SEND, 8);
    wc = wait_send(IBV_WC_RETRY_EXC_ERR);
    fabric_expect_text(&fabric, 0, wc.vendor_err, "did not answer");
    CHECK_EQ(fabric_count(&fabric, 0, -1), 1 + retry_cnt);
    for (uint32_t i = 1; i <= retry_cnt; ++i) {
        const struct logged *attempt = fabric_find(&fabric, 0, -1, i);

        CHECK(attempt->at - last >= t && attempt->at - last <= 4 * t);
        CHECK_EQ(attempt->reason, VB_PACKET_AFTER_TIMEOUT);
        last = attempt->at;
    }
    CHECK(fabric.now - start >= t * (1 + retry_cnt));
    CHECK(fabric.now - start <= 4 * t * (1 + retry_cnt));
    CHECK_EQ(vb_qp_state(qp[0]), IBV_QPS_ERR);
    fabric_close(&fabric);
}

static void without_an_answer_each_attempt_has_its_time(void)
{
    nobody_answers(8, 0);
    nobody_answers(1, 3);
    nobody_answers(14, 7);
}

/* A peer that is away for three timeouts: each costs one READ, or a few packets, and not all. */
static void after_a_timeout_little_is_sent(enum ibv_wr_opcode opcode, uint32_t length,
                                           uint32_t under_way, uint32_t each_time)
{
    struct qp_options options = fabric_defaults();
    uint32_t sent = 0, again = 0;
    uint64_t last = 0;

    options.rd_atomic = options.dest_rd_atomic = 8;
    options.timeout = 10;
    begin(options);
    lose(0, -1, 0, under_way + 2 * each_time);
    for (int i = 0; i < 8; ++i)
        post(opcode, length);
    for (int i = 0; i < 8; ++i)
        wait_send(IBV_WC_SUCCESS);
    for (uint32_t i = 0; i < fabric.logged; ++i) {
        const struct logged *packet = &fabric.log[i];

        if (packet->from != 0)
            continue;
        sent += packet->reason == VB_PACKET_NEW;
        if (packet->reason != VB_PACKET_AFTER_TIMEOUT || !packet->lost)
            continue;
        ++again;
        if (packet->at - last > vb_ack_timeout(10) / 2) /* the first of a timeout's */
            CHECK_EQ(packet->bth.psn, psn(0));
        last = packet->at;
    }
    CHECK_EQ(again, 2 * each_time);
    CHECK(sent >= under_way);
    CHECK_EQ(fabric_counters(&fabric, 0)->timeouts, 3);
    fabric_close(&fabric);
}

static void after_a_timeout_little_is_asked_for(void)
{
    after_a_timeout_little_is_sent(IBV_WR_RDMA_READ, 5000, 8, 1);
    after_a_timeout_little_is_sent(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 8, 1);
    after_a_timeout_little_is_sent(IBV_WR_ATOMIC_WRITE, 8, 8, 1);
    after_a_timeout_little_is_sent(IBV_WR_FLUSH, 8, 8, 1);
    after_a_timeout_little_is_sent(IBV_WR_RDMA_WRITE, 5000, 40, 16);
}

static void timeout_zero_waits_for_ever(void)
{
    struct qp_options options = fabric_defaults();

    options.timeout = 0;
    begin(options);
    lose(0, -1, 0, UINT32_MAX);
    post(IBV_WR_SEND, 8);
    fabric_run(&fabric, 1000000000000ull);
    CHECK_EQ(fabric_count(&fabric, 0, -1), 1);
    CHECK_EQ(vb_engine_deadline(fabric.side[0].engine), UINT64_MAX);
    fabric_close(&fabric);
}

static void an_answer_gives_back_all_retries(void)
{
    struct qp_options options = fabric_defaults();

    options.retry_cnt = 2;
    begin(options);
    for (int i = 0; i < 5; ++i) {
        lose(0, -1, 0, 2);
        post(IBV_WR_RDMA_WRITE, 8);
        wait_send(IBV_WC_SUCCESS);
    }
    CHECK_EQ(fabric_counters(&fabric, 0)->timeouts, 10);
    fabric_close(&fabric);
}

static void a_lost_acknowledgement_does_not_deliver_twice(void)
{
    struct ibv_wc wc;

    begin(fabric_defaults());
    fabric_post_recv(&fabric, qp[1], 1, 0, 64);
    fabric_post_recv(&fabric, qp[1], 2, 0, 64);
    lose(1, VB_OP_ACKNOWLEDGE, 0, 2);
    post(IBV_WR_SEND, 8);
    wait_send(IBV_WC_SUCCESS);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[1].recv_cq).wr_id, 1);
    CHECK(!fabric_poll(fabric.side[1].recv_cq, &wc));
    CHECK_EQ(fabric_counters(&fabric, 1)->duplicate_requests, 2);
    fabric_close(&fabric);
}

static void a_receiver_that_is_never_ready(void)
{
    struct qp_options options = fabric_defaults();
    const struct logged *again;
    struct ibv_wc wc;

    options.rnr_retry = 2;
    options.min_rnr_timer = 12; /* 640 us */
    options.timeout = 1;
    begin(options);
    post(IBV_WR_SEND, 8);
    wc = wait_send(IBV_WC_RNR_RETRY_EXC_ERR);
    fabric_expect_text(&fabric, 0, wc.vendor_err, "(rnr_retry 2)");
    CHECK_EQ(fabric_count(&fabric, 0, -1), 3);
    CHECK_EQ(fabric_count(&fabric, 1, VB_OP_ACKNOWLEDGE), 3);
    for (uint32_t i = 0; i < 3; ++i)
        CHECK_EQ(fabric_find(&fabric, 1, VB_OP_ACKNOWLEDGE, i)->syndrome, 0x20 | 12);
    for (uint32_t i = 1; i < 3; ++i) {
        again = fabric_find(&fabric, 0, -1, i);
        CHECK_EQ(again->reason, VB_PACKET_AFTER_RNR);
        CHECK(again->at - fabric_find(&fabric, 0, -1, i - 1)->at >= 640000);
    }
    CHECK_EQ(fabric_counters(&fabric, 0)->timeouts, 0); /* off while it waits */
    CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_RTS);
    fabric_close(&fabric);
}

static void a_receiver_that_is_ready_in_the_end(enum ibv_wr_opcode opcode)
{
    struct qp_options options = fabric_defaults();
    struct ibv_wc wc;

    options.min_rnr_timer = 12;
    begin(options);
    memset(fabric.side[0].memory, 0x5a, 5000);
    post(opcode, 5000);
    fabric_run(&fabric, 100000000);
    CHECK(!fabric_poll(fabric.side[0].send_cq, &wc));
    CHECK(fabric_counters(&fabric, 1)->nak_rnr_sent > 100);
    CHECK_EQ(fabric_counters(&fabric, 1)->nak_sequence_sent, 0);
    fabric_post_recv(&fabric, qp[1], 1, 0, 8192);
    wait_send(IBV_WC_SUCCESS);
    wc = fabric_wait(&fabric, fabric.side[1].recv_cq);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.byte_len, 5000);
    CHECK_EQ(memcmp(fabric.side[0].memory, fabric.side[1].memory, 5000), 0);
    fabric_close(&fabric);
}

static void retry_7_waits_for_a_receiver_for_ever(void)
{
    a_receiver_that_is_ready_in_the_end(IBV_WR_SEND);
    a_receiver_that_is_ready_in_the_end(IBV_WR_RDMA_WRITE_WITH_IMM);
}

/* Each RNR NAK is an answer: what is lost between them does not add up to retry_cnt. */
static void losses_while_a_receiver_is_not_ready(void)
{
    struct qp_options options = fabric_defaults();
    struct ibv_wc wc;

    options.min_rnr_timer = 12;
    fabric_open(&fabric, (struct fabric_options){.seed = 1, .loss = 0.1});
    fabric_pair(&fabric, options, qp);
    post(IBV_WR_SEND, 8);
    fabric_run(&fabric, 200000000);
    CHECK(!fabric_poll(fabric.side[0].send_cq, &wc));
    CHECK(fabric_counters(&fabric, 0)->timeouts > 2 * (uint32_t)options.retry_cnt);
    fabric_post_recv(&fabric, qp[1], 1, 0, 8192);
    wait_send(IBV_WC_SUCCESS);
    fabric_close(&fabric);
}

static void a_read_goes_on_from_the_first_missing_byte(void)
{
    const struct logged *again;

    begin(fabric_defaults());
    for (int i = 0; i < 10240; ++i)
        fabric.side[1].memory[i] = (uint8_t)(i * 13 >> 3);
    lose(1, VB_OP_READ_RESPONSE_MIDDLE, 2, 1); /* the fourth of ten */
    post(IBV_WR_RDMA_READ, 10 * 1024);
    wait_send(IBV_WC_SUCCESS);
    CHECK_EQ(memcmp(fabric.side[0].memory, fabric.side[1].memory, 10240), 0);
    CHECK_EQ(fabric_count(&fabric, 0, -1), 2);
    again = fabric_find(&fabric, 0, -1, 1);
    CHECK_EQ(again->bth.psn, psn(3));
    CHECK_EQ(again->reason, VB_PACKET_AFTER_LOST_RESPONSE);
    CHECK_EQ(fabric_count(&fabric, 1, -1), 10 + 7);
    CHECK_EQ(fabric_find(&fabric, 1, -1, 10)->reason, VB_PACKET_REPLAYED_RESPONSE);
    CHECK_EQ(fabric_find(&fabric, 1, -1, 10)->bth.opcode, VB_OP_READ_RESPONSE_FIRST);
    CHECK_EQ(fabric_counters(&fabric, 0)->timeouts, 0);
    fabric_close(&fabric);
}

static struct flight kept[16];
static uint32_t kept_count;

static enum verdict keep_responses(struct fabric *f, struct flight *flight)
{
    (void)f;
    if (flight->from == 0)
        return PASS;
    CHECK(kept_count < 16);
    kept[kept_count++] = *flight;
    return LOSE;
}

static void deliver(uint32_t n)
{
    fabric_inject(&fabric, 0, kept[n].bytes, kept[n].length);
}

/*
 * Two responses change places, and both come before the READ is asked for again: that then begins
 * behind them, and so does its answer, with a First.
 */
static void late_responses_move_the_start_of_the_repetition(void)
{
    begin(fabric_defaults());
    for (int i = 0; i < 10240; ++i)
        fabric.side[1].memory[i] = (uint8_t)(i * 13 >> 3);
    kept_count = 0;
    fabric.rule = keep_responses;
    post(IBV_WR_RDMA_READ, 10 * 1024);
    while (kept_count < 10)
        CHECK(fabric_step(&fabric));
    deliver(0);
    deliver(2);
    deliver(1);
    fabric.rule = NULL;
    wait_send(IBV_WC_SUCCESS);
    CHECK_EQ(memcmp(fabric.side[0].memory, fabric.side[1].memory, 10240), 0);
    CHECK_EQ(fabric_find(&fabric, 0, -1, 1)->bth.psn, psn(2));
    CHECK_EQ(fabric_counters(&fabric, 0)->lost_responses, 1);
    CHECK_EQ(fabric_counters(&fabric, 0)->bad_responses, 0);
    fabric_close(&fabric);
}

/* What a repetition, or the one before it, says is taken when it is next, and else ignored. */
static void late_responses_of_earlier_repetitions(void)
{
    begin(fabric_defaults());
    for (int i = 0; i < 4096; ++i)
        fabric.side[1].memory[i] = (uint8_t)(i * 13 >> 3);
    kept_count = 0;
    fabric.rule = keep_responses;
    post(IBV_WR_RDMA_READ, 4 * 1024);
    while (kept_count < 4)
        CHECK(fabric_step(&fabric));
    deliver(0);
    deliver(2); /* asks again, from 1 on */
    while (kept_count < 7)
        CHECK(fabric_step(&fabric));
    deliver(1); /* the first answer's */
    deliver(6); /* asks again, from 2 on */
    while (kept_count < 9)
        CHECK(fabric_step(&fabric));
    deliver(4); /* the second answer's First: known */
    deliver(7); /* the third answer's */
    deliver(7);
    deliver(2);
    deliver(3); /* the first answer's Last */
    wait_send(IBV_WC_SUCCESS);
    deliver(8);
    CHECK_EQ(memcmp(fabric.side[0].memory, fabric.side[1].memory, 4096), 0);
    CHECK_EQ(fabric_counters(&fabric, 0)->lost_responses, 2);
    CHECK_EQ(fabric_counters(&fabric, 0)->bad_responses, 0);
    CHECK_EQ(vb_qp_state(qp[0]), IBV_QPS_RTS);
    fabric_close(&fabric);
}

static void a_read_whose_repetition_has_a_gap_too(void)
{
    begin(fabric_defaults());
    lose(1, VB_OP_READ_RESPONSE_MIDDLE, 2, 1);
    post(IBV_WR_RDMA_READ, 10 * 1024);
    while (fabric_count(&fabric, 0, -1) < 2)
        CHECK(fabric_step(&fabric));
    lose(1, VB_OP_READ_RESPONSE_FIRST, 0, 1); /* of the repetition */
    wait_send(IBV_WC_SUCCESS);
    CHECK_EQ(fabric_counters(&fabric, 0)->lost_responses, 2);
    CHECK_EQ(fabric_counters(&fabric, 0)->timeouts, 0);
    fabric_close(&fabric);
}

/*
 * Answers are lost, whole or in part, and the region has gone when they are asked for again. The
 * requester is told at once, as it is for a READ that was not answered yet.
 */
static void a_read_whose_region_has_gone_when_it_is_asked_for_again(void)
{
    static const struct {
        uint32_t length, pass, count;
        int operation;
    } cases[] = {
        {64, 0, 1, VB_OP_READ_RESPONSE_ONLY},      {10240, 0, 10, -1},
        {10240, 3, 1, VB_OP_READ_RESPONSE_MIDDLE}, {10240, 0, 1, VB_OP_READ_RESPONSE_LAST},
        {10240, 0, 1, VB_OP_READ_RESPONSE_FIRST},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        begin(fabric_defaults());
        lose(1, cases[i].operation, cases[i].pass, cases[i].count);
        post(IBV_WR_RDMA_READ, cases[i].length);
        while (fabric_count(&fabric, 1, -1) < (cases[i].length == 64 ? 1u : 10u))
            CHECK(fabric_step(&fabric));
        CHECK_EQ(vb_mr_dereg(fabric.side[1].mr), 0);
        wait_send(IBV_WC_REM_ACCESS_ERR);
        CHECK(fabric_counters(&fabric, 0)->timeouts <= 1);
        CHECK_EQ(fabric_counters(&fabric, 1)->nak_access_sent, 1);
        CHECK_EQ(vb_qp_state(qp[0]), IBV_QPS_ERR);
        CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_RTS);
        fabric_close(&fabric);
    }
}

/* A READ whose answer has arrived is asked for again by a stray packet: nobody fails. */
static void a_stray_repetition_of_a_read_whose_region_has_gone(void)
{
    uint8_t bytes[VB_BTH + VB_RETH];
    struct vb_bth bth = {.opcode = VB_OP_READ_REQUEST, .pkey = 0xffff};
    struct vb_reth reth;

    begin(fabric_defaults());
    post(IBV_WR_RDMA_READ, 64);
    wait_send(IBV_WC_SUCCESS);
    reth = (struct vb_reth){(uintptr_t)fabric.side[1].memory, fabric.side[1].mr->ibv.rkey, 64};
    CHECK_EQ(vb_mr_dereg(fabric.side[1].mr), 0);
    bth.dest_qp = qp[1]->number;
    bth.psn = psn(0);
    vb_wire_bth_write(bytes, &bth);
    vb_wire_reth_write(bytes + VB_BTH, &reth);
    fabric_inject(&fabric, 1, bytes, sizeof(bytes));
    fabric_run(&fabric, 100000);
    CHECK_EQ(fabric_counters(&fabric, 1)->nak_access_sent, 1);
    CHECK_EQ(vb_qp_state(qp[0]), IBV_QPS_RTS);
    CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_RTS);
    fabric_close(&fabric);
}

static void an_acknowledgement_beyond_a_read_says_that_its_response_is_lost(void)
{
    struct ibv_send_wr write;

    begin(fabric_defaults());
    memset(fabric.side[1].memory, 0x77, 64);
    lose(1, VB_OP_READ_RESPONSE_ONLY, 0, 1);
    post(IBV_WR_RDMA_READ, 64);
    write = fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, 4096);
    CHECK_EQ(fabric_post(&fabric, qp[0], write, 4096, 64), 0);
    CHECK_EQ(wait_send(IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_READ);
    CHECK_EQ(wait_send(IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
    CHECK_EQ(fabric.side[0].memory[63], 0x77);
    CHECK_EQ(fabric_counters(&fabric, 0)->lost_responses, 1);
    CHECK_EQ(fabric_counters(&fabric, 0)->timeouts, 0);
    fabric_close(&fabric);
}

static void an_atomic_whose_answer_is_lost_is_done_once(void)
{
    uint64_t *word, *old;
    struct ibv_send_wr wr;

    begin(fabric_defaults());
    word = (uint64_t *)fabric.side[1].memory;
    old = (uint64_t *)fabric.side[0].memory;
    *word = 5;
    lose(1, VB_OP_ATOMIC_ACKNOWLEDGE, 0, 3);
    wr = fabric_request(&fabric, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 0);
    wr.wr.atomic.compare_add = 10;
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 0, 8), 0);
    wait_send(IBV_WC_SUCCESS);
    CHECK_EQ(*word, 15);
    CHECK_EQ(*old, 5);
    CHECK_EQ(fabric_counters(&fabric, 1)->duplicate_responses, 3);
    fabric_close(&fabric);
}

/* What the program there writes in the meantime stays. */
static void an_atomic_write_whose_answer_is_lost_is_done_once(void)
{
    volatile uint64_t *word;

    begin(fabric_defaults());
    word = (uint64_t *)fabric.side[1].memory;
    *(uint64_t *)fabric.side[0].memory = 5;
    lose(1, VB_OP_READ_RESPONSE_ONLY, 0, 3);
    post(IBV_WR_ATOMIC_WRITE, 8);
    while (*word != 5)
        CHECK(fabric_step(&fabric));
    *word = 6;
    wait_send(IBV_WC_SUCCESS);
    CHECK_EQ(*word, 6);
    CHECK_EQ(fabric_counters(&fabric, 1)->duplicate_responses, 3);
    fabric_close(&fabric);
}

/* max_dest_rd_atomic, 4, are kept. */
static void an_old_read_that_is_kept_no_more_is_not_answered(void)
{
    uint8_t bytes[VB_BTH + VB_RETH];
    struct vb_bth bth = {.opcode = VB_OP_READ_REQUEST, .pkey = 0xffff};
    struct vb_reth reth;
    uint32_t before;

    begin(fabric_defaults());
    for (int i = 0; i < 20; ++i) {
        post(IBV_WR_RDMA_READ, 64);
        wait_send(IBV_WC_SUCCESS);
    }
    bth.dest_qp = qp[1]->number;
    reth = (struct vb_reth){(uintptr_t)fabric.side[1].memory, fabric.side[1].mr->ibv.rkey, 64};
    for (uint32_t n = 0; n < 20; ++n) {
        bth.psn = psn(n);
        vb_wire_bth_write(bytes, &bth);
        vb_wire_reth_write(bytes + VB_BTH, &reth);
        before = fabric_count(&fabric, 1, -1);
        fabric_inject(&fabric, 1, bytes, sizeof(bytes));
        fabric_run(&fabric, 100000);
        CHECK_EQ(fabric_count(&fabric, 1, -1) - before, n >= 16);
    }
    /* Nor one that asks for more than the original did, or with another key. */
    reth.length = 65;
    vb_wire_reth_write(bytes + VB_BTH, &reth);
    fabric_inject(&fabric, 1, bytes, sizeof(bytes));
    reth.length = 64;
    reth.rkey ^= 1;
    vb_wire_reth_write(bytes + VB_BTH, &reth);
    fabric_inject(&fabric, 1, bytes, sizeof(bytes));
    CHECK_EQ(fabric_counters(&fabric, 1)->drop_stale_duplicate, 18);
    CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_RTS);
    fabric_close(&fabric);
}

int main(void)
{
    RUN(a_missing_packet_is_asked_for_once_and_all_after_it_come_again);
    RUN(a_strict_connection_ends_at_the_first_sequence_error);
    RUN(without_an_answer_each_attempt_has_its_time);
    RUN(after_a_timeout_little_is_asked_for);
    RUN(timeout_zero_waits_for_ever);
    RUN(an_answer_gives_back_all_retries);
    RUN(a_lost_acknowledgement_does_not_deliver_twice);
    RUN(a_receiver_that_is_never_ready);
    RUN(retry_7_waits_for_a_receiver_for_ever);
    RUN(losses_while_a_receiver_is_not_ready);
    RUN(a_read_goes_on_from_the_first_missing_byte);
    RUN(a_read_whose_repetition_has_a_gap_too);
    RUN(a_read_whose_region_has_gone_when_it_is_asked_for_again);
    RUN(a_stray_repetition_of_a_read_whose_region_has_gone);
    RUN(late_responses_move_the_start_of_the_repetition);
    RUN(late_responses_of_earlier_repetitions);
    RUN(an_acknowledgement_beyond_a_read_says_that_its_response_is_lost);
    RUN(an_atomic_whose_answer_is_lost_is_done_once);
    RUN(an_atomic_write_whose_answer_is_lost_is_done_once);
    RUN(an_old_read_that_is_kept_no_more_is_not_answered);
    return 0;
}
