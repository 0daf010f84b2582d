// SPDX-License-Identifier: Apache-2.0
/*
 * Probes of a connection that adapts (transport/retry.h): one that was needless makes the next ones
 * later, one that repaired a loss does not, however much its answer acknowledges. After an outage
 * they come as soon as before, and on a way that has become slow they come later.
 */
#include "check.h"
#include "fabric.h"
#include "transport/cwnd.h"
#include "wire/opcode.h"

enum { MTU = 1024, MESSAGE = 4 * MTU };

static const uint64_t MS = 1000000;

static struct fabric fabric;
static struct vb_qp *qp[2];
static uint32_t lost;       /* packets of side 0 that are lost next */
static uint64_t outage;     /* nothing passes until then */
static bool deaf;           /* nothing from side 1 arrives… */
static uint64_t deaf_until; /* …before side 0 has sent that many probes */

static enum verdict rule(struct fabric *of, struct flight *flight)
{
    if (of->now < outage)
        return LOSE;
    if (flight->from == 0 && lost) {
        --lost;
        return LOSE;
    }
    return flight->from == 1 && deaf && fabric_counters(of, 0)->probes < deaf_until ? LOSE : PASS;
}

static const struct vb_cwnd *cwnd(void)
{
    return qp[0]->endpoint->share->cwnd;
}

static void post_one(enum ibv_wr_opcode opcode, uint32_t length)
{
    struct ibv_send_wr wr = fabric_request(&fabric, 0, opcode, 0);

    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 0, length), 0);
}

static void write_one(void)
{
    post_one(IBV_WR_RDMA_WRITE, MESSAGE);
}

static void expect_one(void)
{
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
}

static void open_with(uint8_t timeout)
{
    struct qp_options options = fabric_defaults();

    options.timeout = timeout;
    fabric_open(&fabric, (struct fabric_options){
                             .seed = 3, .latency = 20000, .gbps = 25, .engine = {.adapts = true}});
    fabric.rule = rule;
    fabric_pair(&fabric, options, qp);
    lost = 0;
    outage = 0;
    deaf = false;
}

/* The round trip is known, and nothing was lost. */
static void begin(uint8_t timeout)
{
    open_with(timeout);
    for (int i = 0; i < 20; ++i) {
        write_one();
        expect_one();
    }
    CHECK_EQ(fabric_counters(&fabric, 0)->probes, 0);
}

/* The answer to all that was sent comes right behind the probe: it was on its way before that. */
static void acknowledge_all(void)
{
    uint8_t bytes[VB_BTH + VB_AETH];
    struct vb_bth bth = {.opcode = VB_OP_ACKNOWLEDGE,
                         .pkey = 0xffff,
                         .dest_qp = qp[0]->number,
                         .psn = (qp[0]->endpoint->requester.sent_psn - 1) & 0xffffff};
    struct vb_aeth aeth = {.kind = VB_AETH_ACK, .value = 31, .msn = 21};

    vb_wire_bth_write(bytes, &bth);
    vb_wire_aeth_write(bytes + VB_BTH, &aeth);
    fabric_inject(&fabric, 0, bytes, sizeof(bytes));
}

static void a_needless_one_makes_the_next_later(void)
{
    uint64_t before;

    begin(14);
    before = vb_engine_cwnd_timeout(cwnd());
    deaf = true;
    deaf_until = 2;
    write_one();
    while (fabric_counters(&fabric, 0)->probes == 0)
        CHECK(fabric_step(&fabric));
    acknowledge_all();
    expect_one();
    CHECK_EQ(fabric_counters(&fabric, 0)->probes, 1);
    CHECK(vb_engine_cwnd_timeout(cwnd()) >= before + before / 2);
    deaf = false;
    for (int i = 0; i < 10000; ++i) { /* that is forgotten */
        write_one();
        expect_one();
    }
    CHECK(vb_engine_cwnd_timeout(cwnd()) < before + before / 8);
    fabric_close(&fabric);
}

/* The first packet is lost, and so is the NAK; the peer has kept the rest, and acknowledges it all
 * when the probe fills the hole. */
static void a_needed_one_does_not(void)
{
    uint64_t before;

    begin(14);
    before = cwnd()->least_timeout;
    lost = 1;
    deaf = true;
    deaf_until = 1;
    write_one();
    expect_one();
    CHECK_EQ(fabric_counters(&fabric, 0)->probes, 1);
    CHECK_EQ(fabric_counters(&fabric, 1)->packets_held, 3);
    CHECK_EQ(cwnd()->least_timeout, before);
    fabric_run(&fabric, 10 * MS);
    fabric_close(&fabric);
}

enum { OUTAGES = 8, OUTAGE_MS = 200, TIMEOUT = 18 /* 1.07 s */ };

/* Each request meets one of its own, and none lasts until the local ACK timeout. */
static void meet_outages(enum ibv_wr_opcode opcode, uint32_t length)
{
    uint64_t longest = 0;

    for (int i = 0; i < OUTAGES; ++i) {
        uint64_t start = fabric.now;

        outage = start + OUTAGE_MS * MS;
        post_one(opcode, length);
        expect_one();
        if (fabric.now - start > longest)
            longest = fabric.now - start;
    }
    printf("  %llu ms for outages of %d\n", (unsigned long long)(longest / MS), OUTAGE_MS);
    CHECK(longest <= 5 * OUTAGE_MS / 2 * MS); /* each probe waits twice as long as the last */
    CHECK_EQ(fabric_counters(&fabric, 0)->timeouts, 0);
    fabric_close(&fabric);
}

static void every_outage_is_soon_over(void)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};

    for (int i = 0; i < 2; ++i) {
        begin(TIMEOUT);
        meet_outages(opcodes[i], MTU);
        begin(TIMEOUT);
        meet_outages(opcodes[i], 1 << 20);
    }
}

/* Nothing came through before: how long an answer takes is a guess. */
static void the_first_outages_too(void)
{
    uint64_t end;

    open_with(TIMEOUT);
    for (int i = 0; i < 2; ++i) {
        outage = fabric.now + OUTAGE_MS * MS;
        end = outage + 2 * OUTAGE_MS * MS;
        write_one();
        expect_one();
        CHECK(fabric.now <= end);
    }
    CHECK_EQ(fabric_counters(&fabric, 0)->timeouts, 0);
    fabric_close(&fabric);
}

static void a_way_that_becomes_slow_is_learnt(void)
{
    uint64_t probes;

    begin(TIMEOUT);
    fabric.options.latency *= 1000; /* 40 ms there and back */
    for (int i = 0; i < 20; ++i) {
        write_one();
        expect_one();
    }
    probes = fabric_counters(&fabric, 0)->probes;
    printf("  %llu probes in vain\n", (unsigned long long)probes);
    CHECK(probes > 0 && probes <= 100);
    for (int i = 0; i < 20; ++i) {
        write_one();
        expect_one();
    }
    CHECK_EQ(fabric_counters(&fabric, 0)->probes, probes);
    fabric_close(&fabric);
}

enum { SLOW_TIMEOUT = 8, SLOW_BYTES = 1 << 20, SLOW_MESSAGES = 4 };

/* How many round trips these messages take, of which none is lost. */
static uint64_t round_trips_of(uint64_t there_and_back)
{
    struct qp_options options = fabric_defaults();
    uint64_t before;

    options.timeout = SLOW_TIMEOUT;
    fabric_open(&fabric, (struct fabric_options){.seed = 5,
                                                 .gbps = 100,
                                                 .latency = there_and_back / 2,
                                                 .engine = {.adapts = true}});
    fabric_pair(&fabric, options, qp);
    before = fabric.now;
    for (int i = 0; i < SLOW_MESSAGES; ++i)
        post_one(IBV_WR_RDMA_WRITE, SLOW_BYTES);
    for (int i = 0; i < SLOW_MESSAGES; ++i)
        expect_one();
    return (fabric.now - before) / there_and_back;
}

/*
 * The local ACK timeout is 1 ms, and the timer may take four of it. The window doubles until it has
 * all four messages in about six round trips, however long these are; only at first, as long as
 * nothing is known, is the timeout too short.
 */
static void a_way_may_be_longer_than_the_timeout(void)
{
    static const uint32_t microseconds[] = {100, 250, 400, 500, 600, 800, 1000, 1200, 2000, 3000};

    for (size_t i = 0; i < sizeof(microseconds) / sizeof(microseconds[0]); ++i) {
        uint64_t trips = round_trips_of(microseconds[i] * 1000ull);
        const struct vb_counters *counters = fabric_counters(&fabric, 0);

        printf("  %u us: %llu round trips, %llu cuts, %llu timeouts\n", microseconds[i],
               (unsigned long long)trips, (unsigned long long)counters->window_cuts,
               (unsigned long long)counters->timeouts);
        CHECK(trips <= 12);
        CHECK(!counters->window_cuts || microseconds[i] > 1000);
        CHECK(counters->timeouts <= microseconds[i] / 1000);
        fabric_close(&fabric);
    }
}

/* A round trip is measured with one packet at a time; if its connection goes meanwhile, with the
 * next one. */
static void a_connection_that_goes_leaves_the_measuring_to_others(void)
{
    struct qp_options options = fabric_defaults();
    struct vb_qp *other[2];

    open_with(14);
    fabric_pair(&fabric, options, other);
    CHECK(other[0]->endpoint->share->cwnd == cwnd());
    write_one();
    while (!cwnd()->timed)
        CHECK(fabric_step(&fabric));
    CHECK(cwnd()->timed == qp[0]->endpoint);
    fabric_set_state(qp[0], IBV_QPS_RESET);
    qp[0] = other[0];
    qp[1] = other[1];
    CHECK(!cwnd()->timed && !cwnd()->round_trip);
    for (int i = 0; i < 4; ++i) {
        write_one();
        expect_one();
    }
    CHECK(cwnd()->round_trip >= 2 * fabric.options.latency);
    fabric_close(&fabric);
}

/* The answer to a message is its own, and not the one to the next message after a pause. */
static void pauses_are_no_round_trips(void)
{
    for (uint32_t length = 8; length <= 3 * MTU; length += MTU) {
        open_with(14);
        for (int i = 0; i < 20; ++i) {
            post_one(IBV_WR_RDMA_WRITE, length);
            expect_one();
            fabric_run(&fabric, 50 * MS);
        }
        CHECK(cwnd()->round_trip > 0);
        CHECK(cwnd()->round_trip < MS);
        CHECK(vb_engine_cwnd_timeout(cwnd()) < 2 * MS);
        CHECK_EQ(fabric_counters(&fabric, 0)->probes, 0);
        fabric_close(&fabric);
    }
}

int main(void)
{
    RUN(a_needless_one_makes_the_next_later);
    RUN(a_needed_one_does_not);
    RUN(every_outage_is_soon_over);
    RUN(the_first_outages_too);
    RUN(a_way_that_becomes_slow_is_learnt);
    RUN(a_way_may_be_longer_than_the_timeout);
    RUN(a_connection_that_goes_leaves_the_measuring_to_others);
    RUN(pauses_are_no_round_trips);
    return 0;
}
