// SPDX-License-Identifier: Apache-2.0
/*
 * Marks of congestion and notifications of it: counted by name, and no connection minds them.
 * End-to-end credits: who was told of none is told of the next.
 */
#include "check.h"
#include "fabric.h"
#include "transport/credits.h"
#include "transport/transport.h"
#include "wire/opcode.h"

enum { ECT_1 = 1, ECT_0 = 2, CE = 3, FECN = 0x80, BECN = 0x40, BTH_MARKS = 4 };

static struct fabric fabric;
static struct vb_qp *qp[2];

static struct {
    uint8_t bth, traffic_class;
} marks;

static enum verdict mark(struct fabric *f, struct flight *flight)
{
    (void)f;
    flight->bytes[BTH_MARKS] |= marks.bth;
    flight->traffic_class |= marks.traffic_class;
    return PASS;
}

static void begin(enum ibv_qp_type type)
{
    struct qp_options options = fabric_defaults();

    options.type = type;
    fabric_open(&fabric, (struct fabric_options){.seed = 3});
    fabric_pair(&fabric, options, qp);
}

static void exchange(void)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD};
    uint8_t *here = fabric.side[0].memory, *there = fabric.side[1].memory;

    for (int i = 0; i < 16384; ++i) {
        here[i] = (uint8_t)(i * 7 >> 2);
        there[i] = (uint8_t)(i * 3 >> 1);
    }
    fabric_post_recv(&fabric, qp[1], 1, 8192, 5000);
    for (int i = 0; i < 4; ++i) {
        struct ibv_send_wr wr = fabric_request(&fabric, 0, opcodes[i], 0);
        uint64_t offset = opcodes[i] == IBV_WR_RDMA_READ ? 8192 : 0;

        CHECK_EQ(fabric_post(&fabric, qp[0], wr, offset, i == 3 ? 8 : 5000), 0);
    }
    for (int i = 0; i < 4; ++i)
        CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[1].recv_cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(memcmp(here + 8192, there + 8192, 5000), 0);
    CHECK_EQ(memcmp(here + 8, there + 8, 4992), 0);
}

static void marked_packets_count_and_are_taken_as_others(void)
{
    static const struct {
        uint8_t bth, traffic_class;
    } cases[] = {{0, 0},     {FECN, 0},      {BECN, 0},        {0, ECT_0 | 0x60},
                 {0, ECT_1}, {0, CE | 0x60}, {FECN | BECN, CE}};
    uint64_t packets[2] = {0};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
        begin(IBV_QPT_RC);
        marks.bth = cases[i].bth;
        marks.traffic_class = cases[i].traffic_class;
        fabric.rule = mark;
        exchange();
        for (int side = 0; side < 2; ++side) {
            const struct vb_counters *counters = fabric_counters(&fabric, side);
            uint64_t came = counters->packets_received;

            if (i == 0)
                packets[side] = came;
            CHECK(came > 3);
            CHECK_EQ(came, packets[side]); /* none came again */
            CHECK_EQ(counters->fecn_received, cases[i].bth & FECN ? came : 0);
            CHECK_EQ(counters->becn_received, cases[i].bth & BECN ? came : 0);
            CHECK_EQ(counters->ecn_received, (cases[i].traffic_class & 3) == CE ? came : 0);
            CHECK_EQ(counters->cnp_received, 0);
        }
        fabric_close(&fabric);
    }
}

struct cnp {
    uint8_t opcode;
    uint8_t to; /* 1: the QP; 0: none */
    uint8_t stranger;
    uint32_t reserved; /* bytes after the BTH */
    uint32_t psn;
};

static void notify(struct cnp cnp)
{
    uint8_t bytes[VB_BTH + VB_CNP_RESERVED] = {0};
    struct vb_bth bth = {.opcode = cnp.opcode,
                         .pkey = 0xffff,
                         .becn = true,
                         .dest_qp = cnp.to ? qp[0]->number : 0xabcdef,
                         .psn = cnp.psn};
    struct vb_arrival arrival = {.bytes = bytes, .length = VB_BTH + cnp.reserved};

    vb_wire_bth_write(bytes, &bth);
    memcpy(arrival.sgid, fabric.side[1].gid, 16);
    memcpy(arrival.dgid, fabric.side[0].gid, 16);
    arrival.sgid[15] = (uint8_t)(arrival.sgid[15] + cnp.stranger);
    vb_engine_receive(fabric.side[0].engine, &arrival, fabric.now);
}

static const struct cnp roce = {VB_TRANSPORT_CNP | 1, 1, 0, VB_CNP_RESERVED, 0};

static void a_notification_counts_at_every_kind_of_queue_pair(void)
{
    static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};

    for (int i = 0; i < 3; ++i) {
        const struct vb_counters *counters;

        begin(types[i]);
        counters = fabric_counters(&fabric, 0);
        notify(roce);
        notify((struct cnp){VB_TRANSPORT_CNP, 1, 0, 0, 0}); /* InfiniBand's */
        CHECK_EQ(counters->cnp_received, 2);
        CHECK_EQ(counters->becn_received, 2);
        fabric_run(&fabric, 1000000);
        CHECK_EQ(fabric.logged, 0); /* no answer */
        CHECK(!fabric_has_event(&fabric, 0));
        fabric_close(&fabric);
    }
}

/* Also with the PSNs that the connection expects: they are no part of its sequence. */
static void notifications_amid_an_exchange_change_nothing(void)
{
    const struct vb_counters *counters;
    uint32_t steps = 0;

    begin(IBV_QPT_RC);
    counters = fabric_counters(&fabric, 0);
    fabric_post_recv(&fabric, qp[0], 1, 0, 50000);
    CHECK_EQ(fabric_post(&fabric, qp[1], fabric_request(&fabric, 1, IBV_WR_SEND, 0), 0, 50000), 0);
    CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_RDMA_READ, 65536), 65536,
                         50000),
             0);
    while (fabric_step(&fabric)) {
        struct cnp cnp = roce;

        cnp.psn = steps++ % 2 ? qp[0]->endpoint->responder.epsn : qp[0]->endpoint->requester.una;
        notify(cnp);
    }
    CHECK_EQ(counters->cnp_received, steps);
    CHECK(steps > 5);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[1].send_cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].recv_cq).byte_len, 50000);
    CHECK_EQ(counters->packets_resent + fabric_counters(&fabric, 1)->packets_resent, 0);
    CHECK_EQ(counters->nak_sequence_sent + counters->lost_responses + counters->drop_ghost, 0);
    fabric_close(&fabric);
}

static void a_notification_for_nobody_or_by_a_stranger(void)
{
    const struct vb_counters *counters;
    struct cnp cnp = roce;

    begin(IBV_QPT_RC);
    counters = fabric_counters(&fabric, 0);
    cnp.to = 0;
    notify(cnp);
    CHECK_EQ(counters->drop_no_qp, 1);
    cnp = roce;
    cnp.stranger = 7;
    notify(cnp);
    CHECK_EQ(counters->drop_source, 1);
    fabric_set_state(qp[0], IBV_QPS_ERR);
    notify(roce);
    CHECK_EQ(counters->drop_state, 1);
    CHECK_EQ(counters->cnp_received, 0);
    fabric_close(&fabric);
}

/* The first request is what establishes, not this (IBA 11.6.3.2). */
static void a_notification_does_not_establish(void)
{
    struct qp_options options = fabric_defaults();

    fabric_open(&fabric, (struct fabric_options){.seed = 3});
    qp[0] = fabric_qp(&fabric, 0, &options);
    fabric_to_rtr(qp[0], 4711, &options);
    notify(roce);
    CHECK_EQ(fabric_counters(&fabric, 0)->cnp_received, 1);
    CHECK(!fabric_has_event(&fabric, 0));
    CHECK_EQ(qp[0]->shared->established, 0);
    fabric_close(&fabric);
}

static void send_one(uint32_t n)
{
    for (uint32_t i = 0; i < n; ++i)
        CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 64), 0);
}

static const struct logged *last_ack(void)
{
    uint32_t count = fabric_count(&fabric, 1, VB_OP_ACKNOWLEDGE);

    return count ? fabric_find(&fabric, 1, VB_OP_ACKNOWLEDGE, count - 1) : NULL;
}

/* Without it the next message alone could go, as a limited one, and all others would wait. */
static void who_was_told_of_no_credits_is_told_of_the_next(void)
{
    uint32_t acks;

    begin(IBV_QPT_RC);
    fabric_post_recv(&fabric, qp[1], 0, 0, 64);
    send_one(1);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(last_ack()->syndrome, 0); /* ACK, and no credit */
    CHECK_EQ(qp[0]->endpoint->requester.lsn, 1);
    acks = fabric_count(&fabric, 1, VB_OP_ACKNOWLEDGE);
    fabric_run(&fabric, 1000000);
    CHECK_EQ(fabric_count(&fabric, 1, VB_OP_ACKNOWLEDGE), acks);
    for (int i = 0; i < 4; ++i)
        fabric_post_recv(&fabric, qp[1], 0, 0, 64);
    fabric_run(&fabric, 1000000);
    CHECK_EQ(fabric_count(&fabric, 1, VB_OP_ACKNOWLEDGE), acks + 1); /* once */
    CHECK_EQ(last_ack()->syndrome, vb_engine_credits_encode(4));
    CHECK_EQ(last_ack()->msn, 1);
    CHECK_EQ(last_ack()->bth.psn, fabric_defaults().psn[0]);
    CHECK_EQ(qp[0]->endpoint->requester.lsn, 1 + 4);
    CHECK_EQ(fabric_counters(&fabric, 0)->timeouts, 0);
    send_one(4);
    for (int i = 0; i < 4; ++i)
        CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(fabric_counters(&fabric, 0)->nak_rnr_received, 0);
    fabric_close(&fabric);
}

/* Messages wait for credits while receives are posted one by one: each gets through. */
static void nobody_waits_for_ever_for_credits(void)
{
    begin(IBV_QPT_RC);
    fabric_post_recv(&fabric, qp[1], 0, 0, 64);
    send_one(20);
    for (int i = 0; i < 20; ++i) {
        CHECK_EQ(fabric_wait(&fabric, fabric.side[1].recv_cq).status, IBV_WC_SUCCESS);
        if (i % 3 == 0)
            fabric_run(&fabric, 1000000); /* it stands still, and the other side has been told */
        fabric_post_recv(&fabric, qp[1], 0, 0, 64);
    }
    for (int i = 0; i < 20; ++i)
        CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(fabric_counters(&fabric, 0)->timeouts, 0);
    fabric_close(&fabric);
}

/* Who has credits hears nothing of a receive that is posted. */
static void news_of_credits_are_not_told_twice(void)
{
    uint32_t acks;

    begin(IBV_QPT_RC);
    fabric_post_recv(&fabric, qp[1], 0, 0, 64);
    fabric_post_recv(&fabric, qp[1], 0, 0, 64);
    send_one(1);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    fabric_run(&fabric, 1000000);
    CHECK_EQ(last_ack()->syndrome, 1);
    acks = fabric_count(&fabric, 1, VB_OP_ACKNOWLEDGE);
    fabric_post_recv(&fabric, qp[1], 0, 0, 64);
    fabric_run(&fabric, 1000000);
    CHECK_EQ(fabric_count(&fabric, 1, VB_OP_ACKNOWLEDGE), acks);
    fabric_close(&fabric);
}

int main(void)
{
    RUN(marked_packets_count_and_are_taken_as_others);
    RUN(a_notification_counts_at_every_kind_of_queue_pair);
    RUN(notifications_amid_an_exchange_change_nothing);
    RUN(a_notification_for_nobody_or_by_a_stranger);
    RUN(a_notification_does_not_establish);
    RUN(who_was_told_of_no_credits_is_told_of_the_next);
    RUN(nobody_waits_for_ever_for_credits);
    RUN(news_of_credits_are_not_told_twice);
    return 0;
}
