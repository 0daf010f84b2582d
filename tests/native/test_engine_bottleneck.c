// SPDX-License-Identifier: Apache-2.0
/*
 * Connections that adapt, through a bottleneck with a short queue: they fill it, send little twice,
 * share it, and none is lost. What RNR, READ, overtaking and marks cost them.
 */
#include "check.h"
#include "fabric.h"
#include "transport/cwnd.h"
#include "wire/opcode.h"

enum { QPS_MOST = 64, MESSAGE = 1 << 16, UNDER_WAY = 4, TIMEOUT = 14 /* 67 ms, as perftest */ };

static const uint64_t MS = 1000000;

static struct fabric fabric;
static struct vb_qp *qp[QPS_MOST][2];
static uint32_t completed[QPS_MOST];

static struct fabric_options through(uint32_t mbps, uint32_t queue)
{
    return (struct fabric_options){
        .seed = 1,
        .bottleneck_mbps = mbps,
        .queue = queue,
        .latency = 20000,
        .engine = {.virtual_payload = true, .adapts = true},
    };
}

static struct qp_options patient(void)
{
    struct qp_options options = fabric_defaults();

    options.timeout = TIMEOUT;
    return options;
}

static void open_with(struct fabric_options options, uint32_t qps)
{
    fabric_open(&fabric, options);
    for (uint32_t i = 0; i < qps; ++i)
        fabric_pair(&fabric, patient(), qp[i]);
    memset(completed, 0, sizeof(completed));
}

static void post(uint32_t i, enum ibv_wr_opcode opcode, uint32_t length)
{
    struct ibv_send_wr wr = fabric_request(&fabric, 0, opcode, 0);

    wr.wr_id = i;
    CHECK_EQ(fabric_post(&fabric, qp[i][0], wr, 0, length), 0);
}

/* All are busy for that long; none may fail. */
static void stay_busy(uint32_t qps, enum ibv_wr_opcode opcode, uint64_t time)
{
    uint64_t end = fabric.now + time;
    struct ibv_wc wc;

    for (uint32_t i = 0; i < qps * UNDER_WAY; ++i)
        post(i % qps, opcode, MESSAGE);
    while (fabric.now < end) {
        CHECK(fabric_step(&fabric));
        while (fabric_poll(fabric.side[0].send_cq, &wc)) {
            if (wc.status)
                fabric_expect_text(&fabric, 0, wc.vendor_err, "(no error)");
            ++completed[wc.wr_id];
            post((uint32_t)wc.wr_id, opcode, MESSAGE);
        }
    }
}

static double jain(uint32_t qps)
{
    double sum = 0, squares = 0;

    for (uint32_t i = 0; i < qps; ++i) {
        sum += completed[i];
        squares += (double)completed[i] * completed[i];
    }
    return sum * sum / (qps * squares);
}

/* Of what the bottleneck can carry. */
static double goodput(uint64_t bytes, uint64_t time)
{
    double most = fabric.options.bottleneck_mbps / 8000.0 * 1024 / (1024 + 12 + FABRIC_OVERHEAD);

    return (double)bytes / (double)time / most;
}

static void share(struct fabric_options options, uint32_t qps, enum ibv_wr_opcode opcode)
{
    int receiver = opcode != IBV_WR_RDMA_READ, sender = !receiver;
    uint64_t time = 4 * 1000 * MS, useful, sent;

    open_with(options, qps);
    stay_busy(qps, opcode, time);
    useful = fabric_counters(&fabric, receiver)->payload_received;
    sent = fabric_counters(&fabric, sender)->payload_sent;
    printf("  %u Mb/s, %u kB, %u QPs%s%s: goodput %.3f, sent %.3f, Jain %.3f\n",
           options.bottleneck_mbps, options.queue / 1000, qps, sender ? ", READ" : "",
           options.plain_peer ? ", plain peer" : "", goodput(useful, time),
           (double)sent / (double)useful, jain(qps));
    CHECK(goodput(useful, time) >= 0.9);
    CHECK((double)sent <= 1.2 * (double)useful);
    CHECK(jain(qps) >= 0.9);
    fabric_close(&fabric);
}

static const uint32_t counts[] = {1, 8, 16, 32, 64};

static void a_slow_bottleneck_is_filled_and_shared(void)
{
    for (int i = 0; i < 5; ++i)
        share(through(100, 200000), counts[i], IBV_WR_RDMA_WRITE);
}

static void a_faster_one_too(void)
{
    for (int i = 0; i < 5; i += 2) {
        share(through(1000, 200000), counts[i], IBV_WR_RDMA_WRITE);
        share(through(1000, 500000), counts[i], IBV_WR_RDMA_WRITE);
    }
}

/* Linux and adapters throw away what comes early, and have all that follows sent again. */
static void peers_that_keep_nothing_early_do_not_change_that(void)
{
    for (int i = 0; i < 5; i += 2) {
        struct fabric_options options = through(100, 200000);

        options.plain_peer = true;
        share(options, counts[i], IBV_WR_RDMA_WRITE);
    }
}

/* Who reads sets the pace for the responses. */
static void reads_share_it_too(void)
{
    for (int i = 0; i < 5; ++i)
        share(through(100, 200000), counts[i], IBV_WR_RDMA_READ);
    for (int i = 0; i < 5; i += 2) {
        struct fabric_options options = through(100, 200000);

        options.plain_peer = true;
        share(options, counts[i], IBV_WR_RDMA_READ);
    }
}

/* Thirty packets fit the queue: less than one for each connection. */
static void a_queue_shorter_than_their_number_is_shared_in_turns(void)
{
    open_with(through(100, 33000), 64);
    stay_busy(64, IBV_WR_RDMA_WRITE, 2000 * MS);
    CHECK(goodput(fabric_counters(&fabric, 1)->payload_received, 2000 * MS) >= 0.9);
    CHECK(jain(64) >= 0.9);
    fabric_close(&fabric);
}

/* Where nothing is lost the window opens in a few round trips, and all that may be is under way. */
static void without_loss_the_window_is_no_limit(void)
{
    struct fabric_options options = through(0, 0);

    open_with(options, 1);
    for (int i = 0; i < 200; ++i)
        post(0, IBV_WR_RDMA_WRITE, MESSAGE);
    fabric_run(&fabric, 12 * 20000);
    CHECK(qp[0][0]->endpoint->share->cwnd->window >= 1 << 20);
    fabric_run(&fabric, 1000 * MS);
    CHECK_EQ(fabric_counters(&fabric, 0)->packets_resent, 0);
    CHECK_EQ(fabric_counters(&fabric, 0)->window_cuts, 0);
    fabric_close(&fabric);
}

/* The queue marks before it is full: hardly anything is lost, while the window is doubling. */
static void marks_keep_the_queue_short(void)
{
    struct fabric_options options = through(100, 200000);
    const struct vb_counters *sender, *receiver;

    options.mark_at = 60000;
    open_with(options, 8);
    sender = fabric_counters(&fabric, 0);
    receiver = fabric_counters(&fabric, 1);
    stay_busy(8, IBV_WR_RDMA_WRITE, 2000 * MS);
    CHECK(receiver->np_ecn_marked_roce_packets > 0);
    CHECK(receiver->np_cnp_sent > 0);
    CHECK(receiver->np_cnp_sent <= receiver->np_ecn_marked_roce_packets);
    CHECK(sender->rp_cnp_handled > 0);
    CHECK_EQ(sender->rp_cnp_handled, sender->cnp_received);
    CHECK(sender->packets_resent * 200 <= sender->packets_sent);
    CHECK(goodput(receiver->payload_received, 2000 * MS) >= 0.9);
    fabric_close(&fabric);
}

/* Without a reaction each RNR NAK would have a window of messages sent again. */
static void not_ready_costs_a_few_packets_each_time(void)
{
    enum { MESSAGES = 200, LENGTH = 3000, USEFUL = 3 * MESSAGES };
    const struct vb_counters *sender;
    uint32_t taken = 0, done = 0;
    struct ibv_wc wc;

    open_with((struct fabric_options){.seed = 1, .engine = {.adapts = true}}, 1);
    sender = fabric_counters(&fabric, 0);
    qp[0][0]->endpoint->requester.unlimited = true; /* as of Linux, which tells no credits */
    while (done < MESSAGES) {
        if (taken < MESSAGES && taken == done)
            fabric_post_recv(&fabric, qp[0][1], taken++, 0, LENGTH);
        while (qp[0][0]->sq_posted < MESSAGES && qp[0][0]->sq_posted - done < 64)
            post(0, IBV_WR_SEND, LENGTH);
        fabric_run(&fabric, 100000);
        while (fabric_poll(fabric.side[0].send_cq, &wc)) {
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
            ++done;
        }
    }
    printf("  %llu packets for %u, %llu RNR NAKs\n", (unsigned long long)sender->packets_sent,
           USEFUL, (unsigned long long)sender->nak_rnr_received);
    CHECK(sender->nak_rnr_received >= MESSAGES - 64);
    CHECK(sender->packets_sent <= USEFUL + 2 * sender->nak_rnr_received);
    fabric_close(&fabric);
}

/*
 * The first round trip was that of one packet. Then the queue fills, and what is asked for again
 * before its turn makes it longer.
 */
static void who_waits_in_a_queue_does_not_ask_again(void)
{
    enum { QPS = 16, EACH = 4 };
    const struct vb_counters *reader, *responder;
    uint32_t done = 0;
    struct ibv_wc wc;

    open_with(through(100, 4000000), QPS);
    reader = fabric_counters(&fabric, 0);
    responder = fabric_counters(&fabric, 1);
    post(0, IBV_WR_RDMA_READ, 8);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    for (uint32_t i = 0; i < QPS * EACH; ++i)
        post(i % QPS, IBV_WR_RDMA_READ, MESSAGE);
    while (done < QPS * EACH) {
        CHECK(fabric_step(&fabric));
        while (fabric_poll(fabric.side[0].send_cq, &wc)) {
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
            ++done;
        }
    }
    printf("  sent %.3f times, %llu probes\n",
           (double)responder->payload_sent / (QPS * EACH * MESSAGE),
           (unsigned long long)reader->probes);
    CHECK(responder->payload_sent * 100 <= 101ull * QPS * EACH * MESSAGE);
    fabric_close(&fabric);
}

static uint32_t spared; /* packets of a kind that still pass */

static enum verdict lose_one_response(struct fabric *f, struct flight *flight)
{
    uint8_t operation = flight->bytes[0] & VB_OP_MASK;

    (void)f;
    if (flight->from == 0 || operation != VB_OP_READ_RESPONSE_MIDDLE)
        return PASS;
    return spared-- == 0 ? LOSE : PASS;
}

/* The timeout would expire several times while the rest comes, and a retry is asked for once. */
static void one_lost_response_costs_one_part(void)
{
    struct fabric_options options = through(100, 4000000);
    const struct vb_counters *reader;
    struct ibv_wc wc;

    options.plain_peer = true;
    open_with(options, 1);
    reader = fabric_counters(&fabric, 0);
    spared = 100;
    fabric.rule = lose_one_response;
    post(0, IBV_WR_RDMA_READ, 1 << 20);
    wc = fabric_wait(&fabric, fabric.side[0].send_cq);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(reader->payload_received, 1 << 20);
    CHECK_EQ(reader->lost_responses, 1);
    CHECK_EQ(reader->timeouts, 0);
    CHECK(fabric_counters(&fabric, 1)->payload_sent <= (1 << 20) + (1 << 15));
    fabric_close(&fabric);
}

/* Late by up to 4 ms of 3: nearly all overtake others. */
static void what_is_overtaken_is_waited_for(void)
{
    struct fabric_options options = {.seed = 1,
                                     .reorder = 0.5,
                                     .late = 4 * MS,
                                     .latency = 1 * MS,
                                     .engine = {.virtual_payload = true, .adapts = true}};
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};

    for (int i = 0; i < 2; ++i) {
        uint64_t useful, sent;

        open_with(options, 1);
        stay_busy(1, opcodes[i], 1000 * MS);
        useful = fabric_counters(&fabric, !i)->payload_received;
        sent = fabric_counters(&fabric, i)->payload_sent;
        printf("  %.1f MB, sent %.3f times, %llu kept\n", (double)useful / 1e6,
               (double)sent / (double)useful,
               (unsigned long long)fabric_counters(&fabric, !i)->packets_held);
        CHECK((double)sent <= 1.3 * (double)useful);
        CHECK(useful >= 2 * 1000 * 1000);
        fabric_close(&fabric);
    }
}

static enum verdict lose_all(struct fabric *f, struct flight *flight)
{
    (void)f;
    return flight->from == 0 ? LOSE : PASS;
}

/* Probes are no retries, and add none. */
static void a_peer_that_is_gone_is_found_out_as_before(void)
{
    const struct vb_counters *sender;
    struct ibv_wc wc;
    uint64_t start;

    open_with((struct fabric_options){.seed = 1, .engine = {.adapts = true}}, 1);
    sender = fabric_counters(&fabric, 0);
    fabric.rule = lose_all;
    start = fabric.now;
    post(0, IBV_WR_RDMA_WRITE, MESSAGE);
    wc = fabric_wait(&fabric, fabric.side[0].send_cq);
    CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    CHECK_EQ(sender->timeouts, 8);
    CHECK(fabric.now - start <= 9 * (4096ull << TIMEOUT));
    fabric_close(&fabric);
}

int main(void)
{
    RUN(a_slow_bottleneck_is_filled_and_shared);
    RUN(a_faster_one_too);
    RUN(peers_that_keep_nothing_early_do_not_change_that);
    RUN(reads_share_it_too);
    RUN(a_queue_shorter_than_their_number_is_shared_in_turns);
    RUN(without_loss_the_window_is_no_limit);
    RUN(marks_keep_the_queue_short);
    RUN(not_ready_costs_a_few_packets_each_time);
    RUN(who_waits_in_a_queue_does_not_ask_again);
    RUN(one_lost_response_costs_one_part);
    RUN(what_is_overtaken_is_waited_for);
    RUN(a_peer_that_is_gone_is_found_out_as_before);
    return 0;
}
