// SPDX-License-Identifier: Apache-2.0
/* Every kind of request, in every size class at every MTU, over a perfect channel. */
#include "check.h"
#include "fabric.h"
#include "transport/responder.h"

static struct fabric fabric;
static struct vb_qp *qp[2];

static void begin(struct qp_options options)
{
    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    fabric_pair(&fabric, options, qp);
    for (size_t i = 0; i < fabric.options.memory; ++i)
        fabric.side[0].memory[i] = (uint8_t)(i * 7 + (i >> 8));
}

static void complete_send(enum ibv_wc_opcode opcode)
{
    struct ibv_wc wc = fabric_wait(&fabric, fabric.side[0].send_cq);

    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.opcode, opcode);
}

static void a_send(uint32_t length, bool imm)
{
    struct ibv_send_wr wr = fabric_request(&fabric, 0, imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, 0);
    struct ibv_wc wc;

    wr.imm_data = 0x04030201;
    memset(fabric.side[1].memory, 0xee, length + 64);
    fabric_post_recv(&fabric, qp[1], 99, 11, length + 5);
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 3, length), 0);
    complete_send(IBV_WC_SEND);
    wc = fabric_wait(&fabric, fabric.side[1].recv_cq);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.opcode, IBV_WC_RECV);
    CHECK_EQ(wc.wr_id, 99);
    CHECK_EQ(wc.byte_len, length);
    CHECK_EQ(wc.wc_flags, imm ? IBV_WC_WITH_IMM : 0);
    if (imm)
        CHECK_EQ(wc.imm_data, 0x04030201);
    CHECK_EQ(memcmp(fabric.side[0].memory + 3, fabric.side[1].memory + 11, length), 0);
    CHECK_EQ(fabric.side[1].memory[11 + length], 0xee);
}

static void a_write(uint32_t length, bool imm)
{
    struct ibv_send_wr wr =
        fabric_request(&fabric, 0, imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, 21);
    struct ibv_wc wc;

    memset(fabric.side[1].memory, 0xee, length + 64);
    if (imm)
        fabric_post_recv(&fabric, qp[1], 98, 0, 1);
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 5, length), 0);
    complete_send(IBV_WC_RDMA_WRITE);
    fabric_run(&fabric, 100000); /* UC completes before it arrives */
    CHECK_EQ(memcmp(fabric.side[0].memory + 5, fabric.side[1].memory + 21, length), 0);
    CHECK_EQ(fabric.side[1].memory[20], 0xee);
    CHECK_EQ(fabric.side[1].memory[21 + length], 0xee);
    if (!imm)
        return;
    wc = fabric_wait(&fabric, fabric.side[1].recv_cq);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    CHECK_EQ(wc.byte_len, length);
}

static void a_read(uint32_t length)
{
    struct ibv_send_wr wr = fabric_request(&fabric, 1, IBV_WR_RDMA_READ, 17);
    struct ibv_wc wc;

    memset(fabric.side[1].memory, 0xee, length + 64);
    CHECK_EQ(fabric_post(&fabric, qp[1], wr, 9, length), 0);
    wc = fabric_wait(&fabric, fabric.side[1].send_cq);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.opcode, IBV_WC_RDMA_READ);
    CHECK_EQ(wc.byte_len, length);
    CHECK_EQ(memcmp(fabric.side[0].memory + 17, fabric.side[1].memory + 9, length), 0);
    CHECK_EQ(fabric.side[1].memory[9 + length], 0xee);
}

static const int mtus[] = {256, 512, 1024, 2048, 4096};

static void all_sizes(enum ibv_qp_type type, int mtu)
{
    uint32_t m = (uint32_t)mtu;
    uint32_t lengths[] = {0, 1, 3, 4, m - 1, m, m + 1, 2 * m, 5 * m + 2, 100001};
    struct qp_options options = fabric_defaults();

    options.mtu = mtu;
    options.type = type;
    begin(options);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); ++i) {
        a_send(lengths[i], false);
        a_send(lengths[i], true);
        a_write(lengths[i], false);
        a_write(lengths[i], true);
        if (type == IBV_QPT_RC)
            a_read(lengths[i]);
    }
    CHECK_EQ(fabric_counters(&fabric, 0)->packets_resent, 0);
    CHECK_EQ(fabric_counters(&fabric, 1)->nak_sequence_sent, 0);
    fabric_close(&fabric);
}

static void reliable_requests_of_all_sizes_at_all_mtus(void)
{
    for (size_t i = 0; i < sizeof(mtus) / sizeof(*mtus); ++i)
        all_sizes(IBV_QPT_RC, mtus[i]);
}

static void unreliable_requests_of_all_sizes_at_all_mtus(void)
{
    for (size_t i = 0; i < sizeof(mtus) / sizeof(*mtus); ++i)
        all_sizes(IBV_QPT_UC, mtus[i]);
}

/* 2 GiB - 1 in packets of 256 bytes: half the circle of PSNs, and only so much of it at a time. */
static void the_longest_messages(void)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_READ};
    struct fabric_options options = {.engine = {.virtual_payload = true}, .memory = 0x7fffffff};
    struct qp_options connection = fabric_defaults();

    connection.mtu = 256;
    fabric_open(&fabric, options);
    fabric_pair(&fabric, connection, qp);
    for (int i = 0; i < 2; ++i) {
        struct ibv_wc wc;
        uint64_t most = 0, before = fabric_counters(&fabric, i)->packets_sent;

        fabric_post_recv(&fabric, qp[1], 1, 0, 0x7fffffff);
        CHECK_EQ(
            fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, opcodes[i], 0), 0, 0x7fffffff),
            0);
        while (!fabric_poll(fabric.side[0].send_cq, &wc)) {
            struct vb_requester *r = &qp[0]->endpoint->requester;
            uint64_t in_flight = (r->sent_psn - r->una) & VB_PSN_MASK;

            CHECK(fabric_carry(&fabric, 0, fabric.now) + fabric_carry(&fabric, 1, fabric.now));
            most = in_flight > most ? in_flight : most;
        }
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(fabric_counters(&fabric, i)->packets_sent - before, 1u << 23);
        CHECK(most <= 8192);
    }
    CHECK_EQ(fabric_wait(&fabric, fabric.side[1].recv_cq).byte_len, 0x7fffffff);
    fabric_close(&fabric);
}

static void the_way_of_a_packet_can_be_told(void)
{
    char text[200];

    begin(fabric_defaults());
    a_send(8, false);
    CHECK(vb_engine_responder_path(fabric.side[1].engine, text, sizeof(text)) > 0);
    CHECK_EQ(strcmp(text, "CHECK_PSN CHECK_SEQUENCE CHECK_ACCESS CHECK_RESOURCES CHECK_LENGTH "
                          "CHECK_KEY EXECUTE COMPLETE ACKNOWLEDGE"),
             0);
    fabric_close(&fabric);
}

static void atomics(void)
{
    struct ibv_send_wr wr;
    uint64_t *word, *old;

    begin(fabric_defaults());
    word = (uint64_t *)(fabric.side[1].memory + 64);
    old = (uint64_t *)(fabric.side[0].memory + 128);
    *word = 40;
    wr = fabric_request(&fabric, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 64);
    wr.wr.atomic.compare_add = 2;
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 128, 8), 0);
    complete_send(IBV_WC_FETCH_ADD);
    CHECK_EQ(*old, 40);
    CHECK_EQ(*word, 42);
    wr = fabric_request(&fabric, 0, IBV_WR_ATOMIC_CMP_AND_SWP, 64);
    wr.wr.atomic.compare_add = 42;
    wr.wr.atomic.swap = 7;
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 128, 8), 0);
    complete_send(IBV_WC_COMP_SWAP);
    CHECK_EQ(*old, 42);
    CHECK_EQ(*word, 7);
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 128, 8), 0);
    complete_send(IBV_WC_COMP_SWAP);
    CHECK_EQ(*old, 7);
    CHECK_EQ(*word, 7);
    fabric_close(&fabric);
}

static void atomic_writes(void)
{
    struct ibv_send_wr wr;
    uint8_t *word;

    for (int in_heap = 0; in_heap < 2; ++in_heap) {
        fabric_open(&fabric, (struct fabric_options){.seed = 1, .in_heap = in_heap});
        fabric_pair(&fabric, fabric_defaults(), qp);
        word = fabric.side[1].memory + 64;
        memset(word - 8, 0xee, 24);
        memcpy(fabric.side[0].memory + 3, "eight by", 8);
        wr = fabric_request(&fabric, 0, IBV_WR_ATOMIC_WRITE, 64);
        CHECK_EQ(fabric_post(&fabric, qp[0], wr, 3, 8), 0);
        complete_send(IBV_WC_ATOMIC_WRITE);
        CHECK_EQ(memcmp(word, "eight by", 8), 0);
        CHECK_EQ(word[-1], 0xee);
        CHECK_EQ(word[8], 0xee);
        /* As Linux' driver has it: answered by a READ response that has no payload. */
        CHECK_EQ(fabric_count(&fabric, 0, -1), 1);
        CHECK_EQ(fabric_count(&fabric, 0, VB_OP_ATOMIC_WRITE), 1);
        CHECK_EQ(fabric_count(&fabric, 1, -1), 1);
        CHECK_EQ(fabric_find(&fabric, 1, VB_OP_READ_RESPONSE_ONLY, 0)->msn, 1);
        CHECK_EQ(fabric_counters(&fabric, 1)->payload_sent, 0);
        fabric_close(&fabric);
    }
}

int main(void)
{
    RUN(reliable_requests_of_all_sizes_at_all_mtus);
    RUN(unreliable_requests_of_all_sizes_at_all_mtus);
    RUN(atomics);
    RUN(atomic_writes);
    RUN(the_longest_messages);
    RUN(the_way_of_a_packet_can_be_told);
    return 0;
}
