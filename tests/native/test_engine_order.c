// SPDX-License-Identifier: Apache-2.0
/* What may be under way at the same time: window, READ resources, fence, credits, coalescing. */
#include "check.h"
#include "fabric.h"
#include "transport/credits.h"
#include "transport/transport.h"
#include "wire/opcode.h"

static struct fabric fabric;
static struct vb_qp *qp[2];

static void begin_with(struct fabric_options faults, struct qp_options options)
{
    fabric_open(&fabric, faults);
    fabric_pair(&fabric, options, qp);
}

static void begin(struct qp_options options)
{
    begin_with((struct fabric_options){.seed = 1}, options);
}

static void post(enum ibv_wr_opcode opcode, uint64_t offset, uint32_t length, unsigned flags)
{
    struct ibv_send_wr wr = fabric_request(&fabric, 0, opcode, offset);

    wr.send_flags |= flags;
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, offset, length), 0);
}

static void wait_sends(int count)
{
    while (count--)
        CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
}

static void never_more_reads_than_agreed(void)
{
    static const enum ibv_wr_opcode kinds[] = {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ,
                                               IBV_WR_ATOMIC_WRITE, IBV_WR_FLUSH};

    for (unsigned limit = 1; limit <= VB_MAX_RD_ATOMIC; limit = limit == 64 ? 128 : limit * 4) {
        struct qp_options options = fabric_defaults();
        uint32_t open = 0, most = 0;

        options.rd_atomic = options.dest_rd_atomic = (uint8_t)limit;
        begin(options);
        for (int i = 0; i < 200; ++i)
            post(kinds[i % 4], 0, kinds[i % 4] == IBV_WR_RDMA_READ ? 3000 : 8, 0);
        wait_sends(200);
        for (uint32_t i = 0; i < fabric.logged; ++i) {
            const struct logged *entry = &fabric.log[i];
            uint32_t flags = vb_opcodes[entry->bth.opcode].flags;

            if (entry->from == 0)
                ++open;
            else if (flags & VB_OPCODE_LAST)
                --open;
            most = open > most ? open : most;
        }
        CHECK_EQ(most, limit);
        CHECK_EQ(open, 0);
        fabric_close(&fabric);
    }
}

static void a_fenced_request_waits_for_reads(void)
{
    for (int fenced = 0; fenced < 2; ++fenced) {
        bool overtaken = false;

        begin(fabric_defaults());
        post(IBV_WR_RDMA_READ, 0, 5000, 0);
        post(IBV_WR_RDMA_WRITE, 8192, 8, fenced ? IBV_SEND_FENCE : 0);
        wait_sends(2);
        for (uint32_t i = 0, done = 0; i < fabric.logged; ++i) {
            uint8_t operation = fabric.log[i].bth.opcode;

            done |= operation == VB_OP_READ_RESPONSE_LAST;
            overtaken |= operation == VB_OP_WRITE_ONLY && !done;
        }
        CHECK_EQ(overtaken, !fenced);
        fabric_close(&fabric);
    }
}

/* A send without wait between two reads' data: no response is lost, no acknowledgement overtakes.
 */
static void replies_leave_in_the_order_of_requests(void)
{
    uint32_t last = fabric_defaults().psn[0] - 1;

    begin(fabric_defaults());
    for (int i = 0; i < 24; ++i)
        post(i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 0, 2500, 0);
    wait_sends(24);
    for (uint32_t i = 0; i < fabric.logged; ++i) {
        const struct logged *entry = &fabric.log[i];

        if (entry->from == 0)
            continue;
        CHECK(vb_wire_psn_diff(entry->bth.psn, last) > 0);
        last = entry->bth.psn;
    }
    CHECK_EQ(fabric_counters(&fabric, 0)->lost_responses, 0);
    fabric_close(&fabric);
}

/* At least one packet, and at most half of what PSNs tell apart: a READ may need as much again. */
static void the_window_is_what_its_bytes_hold(void)
{
    static const struct {
        uint32_t bytes, packets;
    } cases[] = {{1, 1},
                 {1023, 1},
                 {1024, 1},
                 {2048, 2},
                 {1 << 20, 1 << 10},
                 {(1u << 31) - 1, (1 << 21) - 1},
                 {1u << 31, 1 << 21},
                 {UINT32_MAX, 1 << 21}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
        struct fabric_options faults = {.seed = 1, .engine = {.window_bytes = cases[i].bytes}};

        begin_with(faults, fabric_defaults());
        CHECK_EQ(qp[0]->endpoint->window, cases[i].packets);
        fabric_close(&fabric);
    }
}

static void the_window_bounds_what_is_in_flight(void)
{
    struct fabric_options faults = {.seed = 1, .engine = {.window_bytes = 16384}};
    struct qp_options options = fabric_defaults();
    uint32_t sent = 0, acked = 0;

    begin_with(faults, options);
    post(IBV_WR_RDMA_WRITE, 0, 200000, 0);
    wait_sends(1);
    for (uint32_t i = 0; i < fabric.logged; ++i) {
        const struct logged *entry = &fabric.log[i];

        if (entry->from == 0)
            ++sent;
        else
            acked = ((entry->bth.psn - options.psn[0]) & 0xffffff) + 1;
        CHECK(sent - acked <= 16);
    }
    CHECK_EQ(sent, 196);
    fabric_close(&fabric);

    /* A READ beyond the window is asked for in parts; their responses make up the whole. */
    begin_with(faults, options);
    for (int i = 0; i < 200000; ++i)
        fabric.side[1].memory[i] = (uint8_t)(i * 31 >> 4);
    post(IBV_WR_RDMA_READ, 0, 200000, 0);
    wait_sends(1);
    CHECK_EQ(memcmp(fabric.side[0].memory, fabric.side[1].memory, 200000), 0);
    CHECK_EQ(fabric_count(&fabric, 0, VB_OP_READ_REQUEST), 25); /* of 8 packets each */
    fabric_close(&fabric);
}

static void acknowledgements_are_coalesced(void)
{
    begin(fabric_defaults());
    post(IBV_WR_RDMA_WRITE, 0, 512 * 1024, 0);
    wait_sends(1);
    CHECK_EQ(fabric_count(&fabric, 0, -1), 512);
    CHECK(fabric_count(&fabric, 1, -1) <= 2); /* asked for every 256 KiB, fewer for a batch */
    for (uint32_t i = 0, asked = 0; i < 512; ++i) {
        asked += fabric_find(&fabric, 0, -1, i)->bth.ack_request;
        CHECK_EQ(asked, (i + 1) / 256);
    }
    fabric_close(&fabric);
}

static void a_message_number_counts_messages(void)
{
    const struct logged *last;

    begin(fabric_defaults());
    post(IBV_WR_RDMA_WRITE, 0, 3000, 0);
    post(IBV_WR_RDMA_READ, 0, 3000, 0);
    post(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, 0);
    wait_sends(3);
    last = fabric_find(&fabric, 1, VB_OP_ATOMIC_ACKNOWLEDGE, 0);
    CHECK_EQ(last->msn, 3);
    CHECK_EQ(fabric_find(&fabric, 1, VB_OP_READ_RESPONSE_FIRST, 0)->msn, 2);
    CHECK_EQ(fabric_find(&fabric, 1, VB_OP_READ_RESPONSE_LAST, 0)->msn, 2);
    fabric_close(&fabric);
}

static void credit_codes(void)
{
    static const uint32_t table[] = {0,    1,    2,    3,     4,     6,     8,    12,
                                     16,   24,   32,   48,    64,    96,    128,  192,
                                     256,  384,  512,  768,   1024,  1536,  2048, 3072,
                                     4096, 6144, 8192, 12288, 16384, 24576, 32768};

    for (uint8_t code = 0; code < 31; ++code) {
        CHECK_EQ(vb_engine_credits_decode(code), table[code]);
        CHECK_EQ(vb_engine_credits_encode(table[code]), code);
        if (code)
            CHECK_EQ(vb_engine_credits_encode(table[code] - 1), code - 1);
    }
    CHECK_EQ(vb_engine_credits_encode(UINT32_MAX), 30);
}

static void an_acknowledgement_tells_the_receives_that_are_left(void)
{
    for (int srq = 0; srq < 2; ++srq) {
        struct qp_options options = fabric_defaults();

        options.srq[1] = srq;
        begin(options);
        for (int i = 0; i < 7; ++i)
            fabric_post_recv(&fabric, qp[1], 1, 0, 64);
        post(IBV_WR_SEND, 0, 8, 0);
        wait_sends(1);
        CHECK_EQ(fabric_find(&fabric, 1, VB_OP_ACKNOWLEDGE, 0)->syndrome, srq ? 31 : 5);
        fabric_close(&fabric);
    }
}

/* More SENDs than receives at any time: credits hold them back, so that hardly any is refused. */
static void credits_hold_sends_back(void)
{
    enum { SENDS = 200, RECEIVES = 4 };
    struct qp_options options = fabric_defaults();
    uint32_t got = 0, done = 0;
    struct ibv_wc wc;

    options.min_rnr_timer = 14; /* 1.28 ms: a refusal would be seen in the time */
    begin(options);
    for (int i = 0; i < RECEIVES; ++i)
        fabric_post_recv(&fabric, qp[1], 0, 0, 4096);
    for (int i = 0; i < SENDS; ++i)
        post(i % 5 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, 0, 2000, 0);
    while (done < SENDS) {
        CHECK(fabric_step(&fabric));
        while (fabric_poll(fabric.side[1].recv_cq, &wc)) {
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
            ++got;
            fabric_post_recv(&fabric, qp[1], 0, 0, 4096);
        }
        for (; fabric_poll(fabric.side[0].send_cq, &wc); ++done)
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    }
    CHECK_EQ(got, SENDS - SENDS / 5);
    CHECK_EQ(fabric_counters(&fabric, 1)->nak_rnr_sent, 0);
    CHECK(fabric_counters(&fabric, 0)->credit_stalls > 10);
    fabric_close(&fabric);
}

/* Without a single credit the limited request still goes, and RNR decides. */
static void no_credit_is_not_a_deadlock(void)
{
    struct qp_options options = fabric_defaults();

    options.min_rnr_timer = 12;
    begin(options);
    for (int i = 0; i < 8; ++i)
        post(IBV_WR_SEND, 0, 5000, 0);
    for (int i = 0; i < 8; ++i) {
        fabric_run(&fabric, 10000000);
        fabric_post_recv(&fabric, qp[1], 0, 0, 8192);
        wait_sends(1);
    }
    /* Of a limited message only the first packet goes in vain. */
    CHECK_EQ(fabric_find(&fabric, 0, -1, 0)->bth.opcode, VB_OP_SEND_FIRST);
    CHECK_EQ(fabric_find(&fabric, 0, -1, 1)->bth.opcode, VB_OP_SEND_FIRST);
    fabric_close(&fabric);
}

static void solicited_stands_on_the_last_packet_of_what_makes_a_completion(void)
{
    begin(fabric_defaults());
    fabric_post_recv(&fabric, qp[1], 0, 0, 8192);
    fabric_post_recv(&fabric, qp[1], 0, 0, 8192);
    post(IBV_WR_SEND, 0, 2000, IBV_SEND_SOLICITED);
    post(IBV_WR_RDMA_WRITE, 0, 2000, IBV_SEND_SOLICITED);
    post(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 2000, IBV_SEND_SOLICITED);
    wait_sends(3);
    for (uint32_t i = 0; i < 6; ++i)
        CHECK_EQ(fabric_find(&fabric, 0, -1, i)->bth.solicited, i == 1 || i == 5);
    fabric_close(&fabric);
}

/* A queue pair with much to send lets others have their turn. */
static void queue_pairs_take_turns(void)
{
    struct fabric_options faults = {.seed = 1, .engine = {.burst = 4}};
    struct qp_options options = fabric_defaults();
    struct vb_qp *other[2];
    uint32_t switches = 0;

    begin_with(faults, options);
    fabric_pair(&fabric, options, other);
    post(IBV_WR_RDMA_WRITE, 0, 100 * 1024, 0);
    CHECK_EQ(fabric_post(&fabric, other[0], fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, 0), 0,
                         100 * 1024),
             0);
    wait_sends(2);
    for (uint32_t i = 1; i < 200; ++i)
        switches += fabric_find(&fabric, 0, -1, i)->bth.dest_qp !=
                    fabric_find(&fabric, 0, -1, i - 1)->bth.dest_qp;
    CHECK(switches >= 40);
    fabric_close(&fabric);
}

/* Several elements on both sides, at odd places: bytes in order. */
static void many_elements(void)
{
    struct qp_options options = fabric_defaults();
    struct ibv_sge out[20], in[20];
    struct ibv_send_wr wr, *bad_send;
    struct ibv_recv_wr recv = {.sg_list = in, .num_sge = 20}, *bad_recv;
    uint32_t total = 0;
    uint8_t *gathered = malloc(65536), *scattered = malloc(65536);

    options.max_sge = 20;
    options.mtu = 256;
    begin(options);
    for (uint32_t i = 0; i < 65536; ++i)
        fabric.side[0].memory[i] = (uint8_t)(i * 5 + (i >> 8));
    for (uint32_t i = 0; i < 20; ++i) {
        uint32_t length = i % 4 == 2 ? 0 : i * 37 + 1;

        out[i] = (struct ibv_sge){(uintptr_t)fabric.side[0].memory + i * 1000 + i, length,
                                  fabric.side[0].mr->ibv.lkey};
        memcpy(gathered + total, fabric.side[0].memory + i * 1000 + i, length);
        total += length;
    }
    for (uint32_t i = 0; i < 20; ++i)
        in[i] = (struct ibv_sge){(uintptr_t)fabric.side[1].memory + (19 - i) * 1000,
                                 i == 19 ? 900 : 350, fabric.side[1].mr->ibv.lkey};
    CHECK_EQ(vb_post_recv(qp[1], &recv, &bad_recv), 0);
    wr = fabric_request(&fabric, 0, IBV_WR_SEND, 0);
    wr.sg_list = out;
    wr.num_sge = 20;
    CHECK_EQ(vb_post_send(qp[0], &wr, &bad_send), 0);
    wait_sends(1);
    for (uint32_t i = 0, at = 0; i < 20 && at < total; ++i) {
        memcpy(scattered + at, (void *)(uintptr_t)in[i].addr, in[i].length);
        at += in[i].length;
    }
    CHECK_EQ(memcmp(gathered, scattered, total), 0);
    free(gathered);
    free(scattered);
    fabric_close(&fabric);
}

static void inline_data_is_copied_at_once(void)
{
    struct ibv_send_wr wr;

    begin(fabric_defaults());
    wr = fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, 0);
    wr.send_flags |= IBV_SEND_INLINE;
    memset(fabric.side[0].memory, 1, 64);
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 0, 64), 0);
    memset(fabric.side[0].memory, 2, 64);
    wait_sends(1);
    CHECK_EQ(fabric.side[1].memory[0], 1);
    CHECK_EQ(fabric.side[1].memory[63], 1);
    fabric_close(&fabric);
}

int main(void)
{
    RUN(never_more_reads_than_agreed);
    RUN(a_fenced_request_waits_for_reads);
    RUN(replies_leave_in_the_order_of_requests);
    RUN(the_window_is_what_its_bytes_hold);
    RUN(the_window_bounds_what_is_in_flight);
    RUN(acknowledgements_are_coalesced);
    RUN(a_message_number_counts_messages);
    RUN(credit_codes);
    RUN(an_acknowledgement_tells_the_receives_that_are_left);
    RUN(credits_hold_sends_back);
    RUN(no_credit_is_not_a_deadlock);
    RUN(solicited_stands_on_the_last_packet_of_what_makes_a_completion);
    RUN(queue_pairs_take_turns);
    RUN(many_elements);
    RUN(inline_data_is_copied_at_once);
    return 0;
}
