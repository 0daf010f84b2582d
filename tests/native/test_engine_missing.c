// SPDX-License-Identifier: Apache-2.0
/*
 * Responses that are lost: what a connection that adapts asks for again, how soon, and of which
 * responders. Some answer a READ again only to its old end (qib), some begin and end such an answer
 * with other opcodes and go no further back (Linux' soft-RoCE).
 */
#include <sys/mman.h>

#include "check.h"
#include "fabric.h"
#include "memory/guard.h"
#include "transport/cwnd.h"
#include "wire/opcode.h"

enum { MTU = 1024, PACKETS = 64, PSNS = 1024, MESSAGE = PACKETS * MTU };

static const uint64_t MS = 1000000;

static struct fabric fabric;
static struct vb_qp *qp[2];

/* What the rules remember. */
static uint32_t lost, times, refused, narrowed;
static uint32_t answered_to; /* one after the last READ that was asked for, from PSN 0 on */
static uint32_t asked_from;  /* the last repetition */
static bool to_end, as_linux, ends[PSNS + 1];

static void open_for(uint8_t reads, uint8_t retries)
{
    struct qp_options options = fabric_defaults();

    options.rd_atomic = options.dest_rd_atomic = reads;
    options.retry_cnt = retries;
    options.timeout = 14;
    options.psn[0] = 0;
    fabric_open(&fabric, (struct fabric_options){
                             .seed = 3, .latency = 5000, .gbps = 25, .engine = {.adapts = true}});
    fabric_pair(&fabric, options, qp);
    lost = times = refused = narrowed = answered_to = asked_from = 0;
    to_end = as_linux = false;
    memset(ends, 0, sizeof(ends));
}

static void post(enum ibv_wr_opcode opcode, uint32_t offset, uint32_t length)
{
    CHECK_EQ(
        fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, opcode, offset), offset, length), 0);
}

static void expect(uint32_t count)
{
    while (count--) {
        struct ibv_wc wc = fabric_wait(&fabric, fabric.side[0].send_cq);

        if (wc.status)
            fabric_expect_text(&fabric, 0, wc.vendor_err, "(no error)");
    }
}

static uint8_t byte_of(uint32_t i)
{
    return (uint8_t)(i * 7 + (i >> 10) * 13);
}

/* So many READs of 64 packets, or less than that, all of them at once; every byte arrives. */
static void read_all(uint32_t reads, uint32_t length)
{
    uint32_t bytes = reads * length;

    CHECK(bytes <= 1 << 20);
    for (uint32_t i = 0; i < bytes; ++i)
        fabric.side[1].memory[i] = byte_of(i);
    for (uint32_t i = 0; i < reads; ++i)
        post(IBV_WR_RDMA_READ, i * length, length);
    expect(reads);
    for (uint32_t i = 0; i < bytes; ++i)
        CHECK_EQ(fabric.side[0].memory[i], byte_of(i));
}

static bool is_response(const struct flight *flight)
{
    uint8_t operation = flight->bytes[0] & VB_OP_MASK;

    return flight->from == 1 && operation >= VB_OP_READ_RESPONSE_FIRST &&
           operation <= VB_OP_READ_RESPONSE_ONLY;
}

static enum verdict lose_response(struct fabric *f, struct flight *flight)
{
    (void)f;
    if (!is_response(flight) || vb_wire_bth_read(flight->bytes).psn != lost || !times)
        return PASS;
    --times;
    return LOSE;
}

static void one_lost_response_is_asked_for_alone(void)
{
    open_for(4, 7);
    fabric.rule = lose_response;
    lost = 21;
    times = 1;
    read_all(2, MESSAGE);
    CHECK_EQ(fabric_counters(&fabric, 0)->lost_responses, 1);
    CHECK_EQ(fabric_counters(&fabric, 0)->packets_resent, 1);
    CHECK_EQ(fabric_counters(&fabric, 1)->duplicate_responses, 1);
    CHECK_EQ(fabric_counters(&fabric, 0)->window_cuts, 1);
    CHECK_EQ(fabric_counters(&fabric, 0)->probes, 0);
    fabric_close(&fabric);
}

/* READs, of which some packets are lost as `rule` says, all of them found without a probe. */
static void read_with_losses(enum verdict (*rule)(struct fabric *, struct flight *), uint32_t psn,
                             int count, uint32_t reads, uint32_t length)
{
    fabric.rule = rule;
    lost = psn;
    times = count;
    read_all(reads, length);
    CHECK_EQ(times, 0);
    CHECK_EQ(fabric_counters(&fabric, 0)->probes, 0);
}

/* The repetition is lost as well: answers to later requests tell. */
static void what_is_lost_again_is_found_without_a_probe(void)
{
    open_for(16, 2);
    read_with_losses(lose_response, 2, 2, 16, 16 * MTU);
    CHECK_EQ(fabric_counters(&fabric, 0)->timeouts, 0);
    fabric_close(&fabric);
}

static enum verdict lose_request(struct fabric *f, struct flight *flight)
{
    if (flight->from == 0 && vb_wire_bth_read(flight->bytes).psn == 6 && !refused)
        return ++refused, LOSE;
    return lose_response(f, flight);
}

/* A response is missing, and the NAK is of a request behind it. */
static void a_lost_request_behind_a_lost_response_is_sent_at_once(void)
{
    open_for(16, 7);
    read_with_losses(lose_request, 2, 1, 8, 2 * MTU);
    CHECK_EQ(refused, 1);
    CHECK_EQ(fabric_counters(&fabric, 0)->nak_sequence_received, 1);
    fabric_close(&fabric);
}

static enum verdict lose_many(struct fabric *f, struct flight *flight)
{
    (void)f;
    if (!is_response(flight) || flight->reason != VB_PACKET_NEW)
        return PASS;
    return vb_wire_bth_read(flight->bytes).psn % 5 == 3 ? LOSE : PASS;
}

/* Every fifth of a window: found one after the other, and one sign of too much. */
static void losses_of_one_window_cut_it_once(void)
{
    open_for(16, 7);
    fabric.rule = lose_many;
    read_all(1, 48 * MTU);
    CHECK(fabric_counters(&fabric, 0)->lost_responses >= 9);
    CHECK_EQ(fabric_counters(&fabric, 0)->window_cuts, 1);
    CHECK_EQ(fabric_counters(&fabric, 1)->duplicate_responses, 9);
    fabric_close(&fabric);
}

/* Of a READ that is asked for again: would the responder not answer? */
static bool refuses(const struct flight *flight)
{
    struct vb_reth reth = vb_wire_reth_read(flight->bytes + VB_BTH);
    uint32_t psn = vb_wire_bth_read(flight->bytes).psn,
             end = psn + vb_engine_packets_of(reth.length, MTU);

    CHECK(end <= PSNS);
    if (psn >= answered_to) {
        answered_to = end;
        ends[end] = true;
        return false;
    }
    narrowed += psn < asked_from;
    asked_from = psn;
    return to_end && !ends[end];
}

/* As soft-RoCE: a repetition from the middle has no First, and its Only is a Last. */
static void turn_opcode(struct flight *flight)
{
    uint8_t operation = flight->bytes[0] & VB_OP_MASK;

    if (flight->reason != VB_PACKET_REPLAYED_RESPONSE ||
        vb_wire_bth_read(flight->bytes).psn % 4 == 0)
        return;
    if (operation == VB_OP_READ_RESPONSE_ONLY) {
        flight->bytes[0] = VB_OP_READ_RESPONSE_LAST;
    } else if (operation == VB_OP_READ_RESPONSE_FIRST) {
        flight->bytes[0] = VB_OP_READ_RESPONSE_MIDDLE;
        memmove(flight->bytes + VB_BTH, flight->bytes + VB_BTH + VB_AETH,
                flight->length - VB_BTH - VB_AETH);
        flight->length -= VB_AETH;
    }
}

static enum verdict other_responder(struct fabric *f, struct flight *flight)
{
    if (flight->from == 0 && (flight->bytes[0] & VB_OP_MASK) == VB_OP_READ_REQUEST &&
        refuses(flight)) {
        ++refused;
        return LOSE;
    }
    if (is_response(flight) && as_linux)
        turn_opcode(flight);
    return fabric_random(f) % 50 == 0 && is_response(flight) ? LOSE : PASS;
}

/* One retry is enough: asking for a part in vain is none. */
static void who_answers_only_to_the_old_end_is_asked_for_that(void)
{
    open_for(1, 3);
    fabric.rule = other_responder;
    to_end = true;
    read_all(16, MESSAGE);
    printf("  %u refused, %llu asked\n", refused,
           (unsigned long long)fabric_counters(&fabric, 0)->lost_responses);
    CHECK(refused > 0);
    CHECK(qp[0]->endpoint->share->cwnd->distrust > 0);
    fabric_close(&fabric);
}

/* Its first request was answered further on: it serves nothing before that any more. */
static void who_goes_no_further_back_is_not_asked_to(void)
{
    open_for(16, 7);
    fabric.rule = other_responder;
    as_linux = true;
    read_all(16, MESSAGE);
    CHECK(fabric_counters(&fabric, 0)->lost_responses > 5);
    CHECK_EQ(fabric_counters(&fabric, 0)->bad_responses, 0);
    CHECK_EQ(narrowed, 0);
    fabric_close(&fabric);
}

/* The smallest window is of four packets, or as many more as are short. */
static void short_requests_are_not_counted_as_long_ones(void)
{
    open_for(16, 7);
    post(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8);
    expect(1);
    qp[0]->endpoint->share->cwnd->window = qp[0]->endpoint->share->cwnd->threshold = 4 * MTU;
    for (int i = 0; i < 16; ++i)
        post(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8);
    fabric_run(&fabric, 5000);
    CHECK_EQ(qp[0]->endpoint->requester.rd_outstanding, 16);
    expect(16);
    for (int i = 0; i < 16; ++i)
        post(IBV_WR_RDMA_READ, 0, MTU);
    fabric_run(&fabric, 5000);
    CHECK_EQ(qp[0]->endpoint->requester.rd_outstanding, 4);
    expect(16);
    fabric_run(&fabric, 10 * MS);
    fabric_close(&fabric);
}

/* ---- a packet that cannot be made again ---- */

static enum verdict lose_packet(struct fabric *f, struct flight *flight)
{
    (void)f;
    if (flight->from || vb_wire_bth_read(flight->bytes).psn != lost || !times)
        return PASS;
    --times;
    return LOSE;
}

static uint32_t packets_of(int side)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < fabric.logged; ++i)
        count += fabric.log[i].from == side;
    return count;
}

/* The request ends with that, and nothing is sent in the packet's place. */
static void a_lost_packet_whose_memory_is_gone_ends_its_request(void)
{
    for (uint32_t psn = 0; psn < 8; ++psn) {
        struct ibv_send_wr wr, *bad;
        struct ibv_sge sge;
        struct vb_mr *mr;
        uint8_t *pages;

        open_for(4, 7);
        vb_memory_guard_start();
        pages = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(pages != MAP_FAILED);
        CHECK_EQ(vb_mr_reg(fabric.side[0].pd, pages, 2 * 4096, (uintptr_t)pages, 0, &mr), 0);
        fabric.rule = lose_packet;
        lost = psn;
        times = 1;
        wr = fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, 0);
        sge = (struct ibv_sge){(uintptr_t)pages, 8 * MTU, mr->ibv.lkey};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        CHECK_EQ(vb_post_staged(qp[0], &wr, &bad), 0);
        fabric_run(&fabric, 4500); /* all have left, and none has arrived */
        CHECK_EQ(packets_of(0), 8);
        CHECK_EQ(times, 0);
        CHECK_EQ(mprotect(pages + psn / 4 * 4096, 4096, PROT_NONE), 0);
        CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_LOC_PROT_ERR);
        fabric_run(&fabric, 100 * MS);
        CHECK_EQ(packets_of(0), 8);
        munmap(pages, 2 * 4096);
        vb_memory_guard_stop();
        fabric_close(&fabric);
    }
}

int main(void)
{
    RUN(one_lost_response_is_asked_for_alone);
    RUN(what_is_lost_again_is_found_without_a_probe);
    RUN(a_lost_request_behind_a_lost_response_is_sent_at_once);
    RUN(losses_of_one_window_cut_it_once);
    RUN(who_answers_only_to_the_old_end_is_asked_for_that);
    RUN(who_goes_no_further_back_is_not_asked_to);
    RUN(short_requests_are_not_counted_as_long_ones);
    RUN(a_lost_packet_whose_memory_is_gone_ends_its_request);
    return 0;
}
