// SPDX-License-Identifier: Apache-2.0
/* A QP's rate limit, by packets and in virtual time. */
#include "check.h"
#include "fabric.h"
#include "hca/pace.h"
#include "transport/transport.h"

enum { LENGTH = 100 * 1024, MTU = 1024, MBIT = 1000, US = 1000 };

static struct fabric fabric;
static struct vb_qp *qp[2];

static void begin(enum ibv_qp_type type)
{
    struct qp_options options = fabric_defaults();

    options.type = type;
    options.mtu = MTU;
    options.timeout = 14; /* longer than a packet takes at the lowest rate here */
    fabric_open(&fabric, (struct fabric_options){.seed = 5});
    fabric_pair(&fabric, options, qp);
}

static void limit(uint32_t rate, uint32_t burst)
{
    struct ibv_qp_rate_limit_attr attr = {.rate_limit = rate, .max_burst_sz = burst};

    CHECK_EQ(vb_qp_limit_rate(qp[0], &attr), 0);
    vb_engine_attend(fabric.side[0].engine, qp[0], fabric.now);
}

static void post(enum ibv_wr_opcode opcode, uint32_t length)
{
    CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, opcode, 0), 0, length), 0);
}

static void done(void)
{
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
}

/* The sender's packets, and when the first and the last of them left. */
struct leaving {
    uint32_t count;
    uint64_t first, last;
};

static struct leaving left(uint32_t from)
{
    struct leaving found = {0};

    for (uint32_t i = from; i < fabric.logged; ++i) {
        if (fabric.log[i].from)
            continue;
        if (!found.count++)
            found.first = fabric.log[i].at;
        found.last = fabric.log[i].at;
    }
    return found;
}

/* Of a WRITE's middle packet: BTH, payload, ICRC. */
static uint64_t packet_time(uint32_t rate)
{
    return (uint64_t)(VB_BTH + MTU + VB_ICRC) * 8 * 1000 * 1000 / rate;
}

static void packets_leave_one_by_one(void)
{
    static const uint32_t rates[] = {MBIT, 37 * MBIT, 1000 * MBIT, 7777777};

    for (int i = 0; i < 4; ++i) {
        uint64_t each = packet_time(rates[i]), whole;
        struct leaving packets;

        begin(IBV_QPT_RC);
        limit(rates[i], 0);
        post(IBV_WR_RDMA_WRITE, LENGTH);
        done();
        packets = left(0);
        CHECK_EQ(packets.count, LENGTH / MTU);
        whole = (packets.count - 1) * each + (uint64_t)VB_RETH * 8 * 1000 * 1000 / rates[i];
        CHECK(packets.last - packets.first >= whole);
        CHECK(packets.last - packets.first <= whole + packets.count); /* 1 ns each of rounding */
        CHECK_EQ(fabric_counters(&fabric, 0)->packets_resent, 0);
        fabric_close(&fabric);
    }
}

static void a_burst_leaves_at_once(void)
{
    struct leaving packets;
    uint32_t together = 0;

    begin(IBV_QPT_RC);
    limit(100 * MBIT, 10 * (VB_BTH + MTU + VB_ICRC));
    post(IBV_WR_RDMA_WRITE, LENGTH);
    done();
    packets = left(0);
    for (uint32_t i = 0; i < fabric.logged; ++i)
        together += !fabric.log[i].from && fabric.log[i].at == packets.first;
    CHECK_EQ(together, 10); /* and the first one's RETH is not paid for yet */
    CHECK(packets.last - packets.first >= (packets.count - 12) * packet_time(100 * MBIT));
    fabric_close(&fabric);
}

/* Who was silent has saved up nothing. */
static void silence_earns_nothing(void)
{
    uint32_t from;

    begin(IBV_QPT_RC);
    limit(100 * MBIT, 0);
    post(IBV_WR_RDMA_WRITE, LENGTH);
    done();
    fabric_run(&fabric, 1000 * 1000 * US);
    fabric.now += 1000 * 1000 * US;
    from = fabric.logged;
    post(IBV_WR_RDMA_WRITE, LENGTH);
    done();
    CHECK(left(from).last - left(from).first >= 99 * packet_time(100 * MBIT));
    fabric_close(&fabric);
}

/* A port that sleeps by a coarse clock catches up, and the rate is what was asked for. */
static void who_comes_late_catches_up(void)
{
    struct vb_pace pace = {.rate = 100 * MBIT};
    uint64_t bytes = 0, now = 0;

    while (now < 1000 * 1000 * US) {
        now += 3000 * US; /* 37500 bytes are due */
        while (!vb_pace_waits(&pace, now)) {
            vb_pace_sent(&pace, 1000, now);
            bytes += 1000;
        }
    }
    CHECK(bytes >= 12400000 - 40000 && bytes <= 12500000 + 40000);
    now += 1000 * 1000 * US;
    for (bytes = 0; !vb_pace_waits(&pace, now); bytes += 1000)
        vb_pace_sent(&pace, 1000, now);
    CHECK(bytes <= 100ull * MBIT * VB_PACE_LATE / 8 / 1000 / 1000 + 1000);
}

/* The n-th packet of the sender that asks for an acknowledgement, by its place among its packets.
 */
static uint32_t asking_packet(uint32_t n)
{
    uint32_t place = 0;

    for (uint32_t i = 0; i < fabric.logged; ++i)
        if (!fabric.log[i].from) {
            if (fabric.log[i].bth.ack_request && !n--)
                return place;
            ++place;
        }
    return UINT32_MAX;
}

/*
 * A quarter of the local ACK timeout is what a sender may take at its rate for the payload that it
 * sends without asking, so that its timer does not expire. Many rates, since the packet at which it
 * asks differs for nearly equal ones at a few of them alone.
 */
static void asks_at_rate(uint32_t rate)
{
    const uint64_t quarter = (4096ull << 14) / 4, packet = MTU * 8000000ull; /* ns, and bits */
    uint32_t packets = (uint32_t)((rate * quarter + packet - 1) / packet);

    begin(IBV_QPT_RC);
    limit(rate, 0);
    post(IBV_WR_RDMA_WRITE, LENGTH);
    done();
    for (uint32_t n = 0; (n + 1) * packets < LENGTH / MTU; ++n)
        CHECK_EQ(asking_packet(n), (n + 1) * packets - 1);
    fabric_close(&fabric);
}

static void who_sends_slowly_asks_in_time(void)
{
    for (uint32_t rate = 7 * MBIT; rate < 40 * MBIT; rate += rate / 97)
        asks_at_rate(rate);
    asks_at_rate(15625); /* 32 packets take the quarter to the nanosecond */
}

static void a_limit_changes_and_goes(void)
{
    uint64_t began;

    begin(IBV_QPT_RC);
    limit(MBIT, 0);
    post(IBV_WR_RDMA_WRITE, LENGTH);
    fabric_run(&fabric, 5 * packet_time(MBIT));
    CHECK(left(0).count >= 5 && left(0).count <= 6);
    limit(10 * MBIT, 0);
    fabric_run(&fabric, 5 * packet_time(10 * MBIT));
    CHECK(left(0).count >= 10 && left(0).count <= 13);
    began = fabric.now;
    limit(0, 0);
    done();
    CHECK(fabric.now - began < packet_time(10 * MBIT));
    fabric_close(&fabric);
}

/* Only its own requests wait: not its answers, and not another QP's requests. */
static void nothing_else_is_held(void)
{
    struct qp_options options = fabric_defaults();
    struct vb_qp *other[2];
    uint64_t began;

    begin(IBV_QPT_RC);
    fabric_pair(&fabric, options, other);
    limit(MBIT, 0);
    post(IBV_WR_RDMA_WRITE, LENGTH);
    fabric_run(&fabric, packet_time(MBIT));
    began = fabric.now;
    CHECK_EQ(
        fabric_post(&fabric, other[0], fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, 0), 0, LENGTH),
        0);
    done();
    CHECK_EQ(
        fabric_post(&fabric, qp[1], fabric_request(&fabric, 1, IBV_WR_RDMA_READ, 0), 0, LENGTH), 0);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[1].send_cq).status, IBV_WC_SUCCESS);
    CHECK(fabric.now - began < packet_time(MBIT));
    fabric_close(&fabric);
}

static void every_type_and_operation(void)
{
    static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC};

    for (int i = 0; i < 2; ++i) {
        begin(types[i]);
        limit(100 * MBIT, 0);
        fabric_post_recv(&fabric, qp[1], 1, 0, LENGTH);
        post(IBV_WR_SEND, LENGTH);
        done();
        CHECK(left(0).last - left(0).first >= 98 * packet_time(100 * MBIT));
        CHECK_EQ(fabric_wait(&fabric, fabric.side[1].recv_cq).byte_len, LENGTH);
        fabric_close(&fabric);
    }
}

/* In ERR and after RESET nothing of it is left. */
static void the_end_of_a_held_qp(void)
{
    begin(IBV_QPT_RC);
    limit(MBIT, 0);
    post(IBV_WR_RDMA_WRITE, LENGTH);
    fabric_run(&fabric, packet_time(MBIT) / 2);
    fabric_set_state(qp[0], IBV_QPS_ERR);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_WR_FLUSH_ERR);
    fabric_run(&fabric, 10 * packet_time(MBIT));
    CHECK_EQ(left(0).count, 1);
    fabric_set_state(qp[0], IBV_QPS_RESET);
    CHECK(!qp[0]->paced);
    fabric_close(&fabric);
}

static void what_is_refused(void)
{
    struct ibv_qp_rate_limit_attr attr = {.rate_limit = VB_RATE_MAX + 1};

    begin(IBV_QPT_RC);
    CHECK_EQ(vb_qp_limit_rate(qp[0], &attr), -EINVAL);
    attr = (struct ibv_qp_rate_limit_attr){.rate_limit = MBIT, .comp_mask = 1};
    CHECK_EQ(vb_qp_limit_rate(qp[0], &attr), -EINVAL);
    CHECK(!qp[0]->paced);
    attr.comp_mask = 0;
    fabric_set_state(qp[0], IBV_QPS_SQD);
    CHECK_EQ(vb_qp_limit_rate(qp[0], &attr), -EINVAL);
    fabric_close(&fabric);
}

int main(void)
{
    RUN(packets_leave_one_by_one);
    RUN(a_burst_leaves_at_once);
    RUN(silence_earns_nothing);
    RUN(who_comes_late_catches_up);
    RUN(who_sends_slowly_asks_in_time);
    RUN(a_limit_changes_and_goes);
    RUN(nothing_else_is_held);
    RUN(every_type_and_operation);
    RUN(the_end_of_a_held_qp);
    RUN(what_is_refused);
    return 0;
}
