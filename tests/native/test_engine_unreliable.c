// SPDX-License-Identifier: Apache-2.0
/* UC and UD: what is delivered, and that everything else is dropped and counted. */
#include "check.h"
#include "fabric.h"

enum { QKEY = 17, GRH = 40 };

static struct fabric fabric;
static struct vb_qp *qp[2];

static void begin(enum ibv_qp_type type, bool srq)
{
    struct qp_options options = fabric_defaults();

    options.type = type;
    options.srq[1] = srq;
    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    fabric_pair(&fabric, options, qp);
}

static uint32_t lose_number;

static enum verdict lose_nth(struct fabric *f, struct flight *flight)
{
    (void)flight;
    return f->logged == lose_number ? LOSE : PASS;
}

/* Five messages of five packets; which ones arrive when packet n is lost? */
static void lose_of_25(uint32_t n, bool srq)
{
    uint32_t got = 0;
    struct ibv_wc wc;

    begin(IBV_QPT_UC, srq);
    lose_number = n;
    fabric.rule = lose_nth;
    for (uint64_t i = 0; i < 5; ++i) {
        struct ibv_send_wr wr = fabric_request(&fabric, 0, IBV_WR_SEND, 0);

        fabric_post_recv(&fabric, qp[1], i, i * 8192, 5000);
        memset(fabric.side[0].memory + i * 8192, (int)i + 1, 5000);
        wr.wr_id = i;
        CHECK_EQ(fabric_post(&fabric, qp[0], wr, i * 8192, 5000), 0);
    }
    for (int i = 0; i < 5; ++i)
        CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    fabric_run(&fabric, 1000000);
    for (; fabric_poll(fabric.side[1].recv_cq, &wc); ++got) {
        uint32_t message = got >= n / 5 ? got + 1 : got;

        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.wr_id, got); /* the broken message's request served the next one */
        CHECK_EQ(wc.byte_len, 5000);
        CHECK_EQ(fabric.side[1].memory[got * 8192], message + 1);
        CHECK_EQ(fabric.side[1].memory[got * 8192 + 4999], message + 1);
    }
    CHECK_EQ(got, 4);
    CHECK_EQ(fabric_count(&fabric, 1, -1), 0);
    CHECK(!fabric_has_event(&fabric, 1));
    fabric_close(&fabric);
}

static void a_gap_costs_its_message_and_no_other(void)
{
    for (uint32_t n = 0; n < 25; ++n) {
        lose_of_25(n, false);
        lose_of_25(n, true);
    }
}

static void what_uc_refuses_is_dropped(void)
{
    struct ibv_send_wr wr;
    struct ibv_wc wc;

    begin(IBV_QPT_UC, false);
    /* no receive request, wrong key, too long: silence; then it works */
    CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 3000), 0);
    fabric_run(&fabric, 100000);
    wr = fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, 0);
    wr.wr.rdma.rkey ^= 1;
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 0, 3000), 0);
    fabric_post_recv(&fabric, qp[1], 1, 0, 2999);
    CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 3000), 0);
    fabric_run(&fabric, 100000);
    CHECK(!fabric_poll(fabric.side[1].recv_cq, &wc));
    CHECK_EQ(fabric_counters(&fabric, 1)->refused_key, 1);
    CHECK_EQ(fabric_counters(&fabric, 1)->drop_no_receive, 1);
    CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 2999), 0);
    wc = fabric_wait(&fabric, fabric.side[1].recv_cq);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.wr_id, 1);
    CHECK_EQ(wc.byte_len, 2999);
    CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_RTS);
    fabric_close(&fabric);
}

/* What has no room in the receive CQ: told by an event and counted, whatever carried it. */
static void a_full_receive_queue_is_no_secret(enum ibv_qp_type type, bool srq)
{
    struct vb_cq *cq;
    struct ibv_wc wc;
    int got = 0;

    begin(type, srq);
    cq = fabric.side[1].recv_cq;
    CHECK_EQ(vb_cq_resize(cq, 2), 0);
    for (uint64_t i = 0; i < 4; ++i) {
        fabric_post_recv(&fabric, qp[1], i, 0, 64);
        CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 64), 0);
        CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    }
    fabric_run(&fabric, 1000000);
    fabric_expect_event(&fabric, 1, IBV_EVENT_CQ_ERR);
    CHECK(!fabric_has_event(&fabric, 1)); /* once */
    CHECK_EQ(fabric_counters(&fabric, 1)->completions_lost, 2);
    CHECK_EQ(fabric_counters(&fabric, 1)->refused_other, 0);
    while (vb_cq_poll(cq, 1, &wc) == 1)
        ++got;
    CHECK_EQ(got, 2);
    fabric_close(&fabric);
}

static void a_full_completion_queue(void)
{
    a_full_receive_queue_is_no_secret(IBV_QPT_UC, false);
    a_full_receive_queue_is_no_secret(IBV_QPT_UC, true);
}

static struct vb_ah *make_ah(void)
{
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
    struct vb_ah *ah;

    memcpy(attr.grh.dgid.raw, fabric.side[1].gid, 16);
    CHECK_EQ(vb_ah_create(fabric.side[0].pd, &attr, &ah), 0);
    return ah;
}

static void post_datagram(struct vb_ah *ah, uint32_t qkey, uint32_t length, bool imm)
{
    struct ibv_send_wr wr = {.wr_id = 1,
                             .opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
                             .imm_data = 0x11223344,
                             .send_flags = IBV_SEND_SIGNALED};

    wr.wr.ud.ah = &ah->ibv;
    wr.wr.ud.remote_qpn = qp[1]->number;
    wr.wr.ud.remote_qkey = qkey;
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 0, length), 0);
}

static void a_datagram_arrives_behind_its_header(void)
{
    static const uint32_t lengths[] = {0, 1, 5, 1024};

    for (int i = 0; i < 8; ++i) {
        uint32_t length = lengths[i / 2];
        const uint8_t *at;
        struct ibv_wc wc;

        begin(IBV_QPT_UD, i & 1);
        at = fabric.side[1].memory;
        for (uint32_t n = 0; n < 1024; ++n)
            fabric.side[0].memory[n] = (uint8_t)(n * 3);
        fabric_post_recv(&fabric, qp[1], 9, 0, GRH + 1024);
        post_datagram(make_ah(), i & 2 ? 0x80000000 : QKEY, length, i & 1);
        CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
        wc = fabric_wait(&fabric, fabric.side[1].recv_cq);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.byte_len, GRH + length);
        CHECK_EQ(wc.src_qp, qp[0]->number);
        CHECK_EQ(wc.wc_flags, IBV_WC_GRH | (i & 1 ? IBV_WC_WITH_IMM : 0));
        CHECK_EQ(wc.sl, 0xa);
        if (i & 1)
            CHECK_EQ(wc.imm_data, 0x11223344);
        CHECK_EQ(at[20], 0x45);
        CHECK_EQ(at[29], 17);
        CHECK_EQ(memcmp(at + 32, fabric.side[0].gid + 12, 4), 0);
        CHECK_EQ(memcmp(at + 36, fabric.side[1].gid + 12, 4), 0);
        CHECK_EQ(memcmp(at + GRH, fabric.side[0].memory, length), 0);
        CHECK_EQ(at[GRH + length], 0);
        fabric_close(&fabric);
    }
}

static void datagrams_that_are_not_delivered(void)
{
    struct vb_ah *ah;
    struct ibv_wc wc;

    begin(IBV_QPT_UD, false);
    ah = make_ah();
    post_datagram(ah, QKEY, 8, false); /* no receive request */
    fabric_run(&fabric, 100000);
    CHECK_EQ(fabric_counters(&fabric, 1)->drop_no_receive, 1);
    fabric_post_recv(&fabric, qp[1], 9, 0, GRH + 7);
    post_datagram(ah, QKEY + 1, 8, false);
    fabric_run(&fabric, 100000);
    CHECK_EQ(fabric_counters(&fabric, 1)->drop_qkey, 1);
    CHECK_EQ(atomic_load(&fabric.side[1].adapter.self.header->port[0].qkey_violations), 1);
    CHECK(!fabric_poll(fabric.side[1].recv_cq, &wc));
    atomic_store(&fabric.side[1].adapter.self.header->port[0].qkey_violations, 0xffff);
    post_datagram(ah, QKEY + 1, 8, false);
    fabric_run(&fabric, 100000);
    CHECK_EQ(fabric_counters(&fabric, 1)->drop_qkey, 2);
    CHECK_EQ(atomic_load(&fabric.side[1].adapter.self.header->port[0].qkey_violations), 0xffff);
    post_datagram(ah, QKEY, 8, false);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[1].recv_cq).status, IBV_WC_LOC_LEN_ERR);
    CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_RTS);
    for (int i = 0; i < 4; ++i)
        CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    post_datagram(ah, QKEY, 1025, false);
    wc = fabric_wait(&fabric, fabric.side[0].send_cq);
    CHECK_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
    fabric_expect_text(&fabric, 0, wc.vendor_err, "1025 bytes; at most 1024");
    CHECK_EQ(vb_qp_state(qp[0]), IBV_QPS_SQE);
    fabric_close(&fabric);
}

static const uint8_t group[16] = {[10] = 0xff, [11] = 0xff, 239, 1, 2, 3};

static void post_to_group(const uint8_t gid[16], uint32_t qpn)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    struct vb_ah *ah = make_ah();

    memcpy(ah->attr.grh.dgid.raw, gid, 16);
    wr.wr.ud.ah = &ah->ibv;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = QKEY;
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 0, 64), 0);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    fabric_run(&fabric, 100000);
}

static void a_multicast_goes_to_the_members(void)
{
    struct qp_options options = fabric_defaults();
    struct vb_qp *others[2];
    const struct vb_counters *counters;
    struct ibv_wc wc;
    int got = 0;

    begin(IBV_QPT_UD, false);
    options.type = IBV_QPT_UD;
    for (int i = 0; i < 2; ++i) {
        others[i] = fabric_qp(&fabric, 1, &options);
        fabric_ready(&fabric, others[i], 0, &options);
        fabric_post_recv(&fabric, others[i], 10 + (uint64_t)i, 1024 * (1 + (uint64_t)i), GRH + 64);
    }
    counters = fabric_counters(&fabric, 1);
    fabric_post_recv(&fabric, qp[1], 9, 0, GRH + 64);
    memset(fabric.side[0].memory, 0x5a, 64);
    post_to_group(group, VB_MULTICAST_QPN);
    CHECK_EQ(counters->drop_no_qp, 1);
    CHECK_EQ(vb_multicast_attach(qp[1], group), 0);
    CHECK_EQ(vb_multicast_attach(others[1], group), 0);
    post_to_group(group, qp[1]->number); /* a group's address and one QP's number */
    post_to_group(fabric.side[1].gid, VB_MULTICAST_QPN);
    CHECK_EQ(counters->drop_no_qp, 3);
    CHECK(!fabric_poll(fabric.side[1].recv_cq, &wc));
    post_to_group(group, VB_MULTICAST_QPN);
    for (; fabric_poll(fabric.side[1].recv_cq, &wc); ++got) {
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.byte_len, GRH + 64);
        CHECK_EQ(wc.wr_id, got == 0 ? 9 : 11);
        CHECK_EQ(fabric.side[1].memory[wc.wr_id == 9 ? GRH + 63 : 2048 + GRH + 63], 0x5a);
    }
    CHECK_EQ(got, 2);
    fabric_close(&fabric);
}

static bool is_own(void *context, uint8_t port_num, const uint8_t gid[16])
{
    return port_num == 0 && memcmp(context, gid, 16) == 0;
}

/* Another host's QP may have the same number, so that the address counts too. */
static void who_blocks_its_own_gets_no_copy(void)
{
    struct ibv_wc wc;

    begin(IBV_QPT_UD, false);
    CHECK_EQ(vb_multicast_attach(qp[1], group), 0);
    vb_engine_set_own(fabric.side[1].engine, is_own, fabric.side[0].gid); /* as if it looped */
    fabric_post_recv(&fabric, qp[1], 9, 0, GRH + 64);
    qp[1]->blocks_self = true;
    if (qp[0]->number != qp[1]->number)
        qp[1]->number = qp[0]->number;
    post_to_group(group, VB_MULTICAST_QPN);
    CHECK(!fabric_poll(fabric.side[1].recv_cq, &wc));
    vb_engine_set_own(fabric.side[1].engine, is_own, fabric.side[1].gid);
    post_to_group(group, VB_MULTICAST_QPN);
    CHECK(fabric_poll(fabric.side[1].recv_cq, &wc));
    fabric_close(&fabric);
}

int main(void)
{
    RUN(a_gap_costs_its_message_and_no_other);
    RUN(what_uc_refuses_is_dropped);
    RUN(a_full_completion_queue);
    RUN(a_datagram_arrives_behind_its_header);
    RUN(datagrams_that_are_not_delivered);
    RUN(a_multicast_goes_to_the_members);
    RUN(who_blocks_its_own_gets_no_copy);
    return 0;
}
