// SPDX-License-Identifier: Apache-2.0
/* FLUSH by packets: what it looks like, what it waits for, and what is refused. */
#include "check.h"
#include "fabric.h"
#include "wire/opcode.h"

enum { LENGTH = 5000, AT = 4096 };

static struct fabric fabric;
static struct vb_qp *qp[2];

static void begin(struct qp_options options)
{
    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    fabric_pair(&fabric, options, qp);
    for (int i = 0; i < LENGTH; ++i)
        fabric.side[0].memory[i] = (uint8_t)(i * 5 + (i >> 8) + 1);
}

static void post(struct ibv_send_wr wr, uint32_t length)
{
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 0, length), 0);
}

static struct ibv_send_wr flush(void)
{
    return fabric_request(&fabric, 0, IBV_WR_FLUSH, AT);
}

static struct ibv_send_wr flush_all(void)
{
    struct ibv_send_wr wr = flush();

    wr.wr.flush.level = IBV_FLUSH_MR;
    return wr;
}

static struct ibv_wc sent(void)
{
    return fabric_wait(&fabric, fabric.side[0].send_cq);
}

static void write_and_flush(struct ibv_send_wr wr, uint32_t length)
{
    struct ibv_wc wc;

    post(fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, AT), LENGTH);
    post(wr, length);
    CHECK_EQ(sent().opcode, IBV_WC_RDMA_WRITE);
    wc = sent();
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.opcode, IBV_WC_FLUSH);
    CHECK_EQ(memcmp(fabric.side[1].memory + AT, fabric.side[0].memory, LENGTH), 0);
}

/* ---- on the wire ---- */

static uint8_t seen[FABRIC_BYTES_MAX];
static uint32_t seen_length;

static enum verdict look(struct fabric *f, struct flight *flight)
{
    (void)f;
    if ((flight->bytes[0] & VB_OP_MASK) == VB_OP_FLUSH) {
        memcpy(seen, flight->bytes, flight->length);
        seen_length = flight->length;
    }
    return PASS;
}

static void its_packet(void)
{
    struct vb_reth reth;
    struct vb_feth feth;

    begin(fabric_defaults());
    fabric.rule = look;
    write_and_flush(flush(), 4999);
    CHECK_EQ(seen_length, VB_BTH + VB_FETH + VB_RETH);
    CHECK_EQ(vb_wire_get32(seen + VB_BTH), 1); /* global visibility of a range */
    feth = vb_wire_feth_read(seen + VB_BTH);
    CHECK_EQ(feth.placement, IBV_FLUSH_GLOBAL);
    CHECK_EQ(feth.selectivity, IBV_FLUSH_RANGE);
    reth = vb_wire_reth_read(seen + VB_BTH + VB_FETH);
    CHECK_EQ(reth.addr, (uintptr_t)fabric.side[1].memory + AT);
    CHECK_EQ(reth.rkey, fabric.side[1].mr->ibv.rkey);
    CHECK_EQ(reth.length, 4999);
    /* As Linux' driver has it: one PSN, and answered by a READ response that has no payload. */
    CHECK_EQ(fabric_count(&fabric, 0, VB_OP_FLUSH), 1);
    CHECK_EQ(fabric_count(&fabric, 1, VB_OP_READ_RESPONSE_ONLY), 1);
    CHECK_EQ(fabric_find(&fabric, 1, VB_OP_READ_RESPONSE_ONLY, 0)->msn, 2);
    CHECK_EQ(fabric_counters(&fabric, 1)->payload_sent, 0);
    write_and_flush(flush_all(), 7);
    CHECK_EQ(vb_wire_get32(seen + VB_BTH), 0x11);
    CHECK_EQ(vb_wire_bth_read(seen).psn,
             (fabric_defaults().psn[0] + 2 * 5 + 1) & VB_PSN_MASK); /* five packets, FLUSH, five */
    fabric_close(&fabric);
}

static enum verdict lose_one_of_the_write(struct fabric *f, struct flight *flight)
{
    unsigned *lost = f->rule_context;

    if ((flight->bytes[0] & VB_OP_MASK) != VB_OP_WRITE_MIDDLE || (*lost)++)
        return PASS;
    return LOSE;
}

static void it_waits_for_the_writes_before_it(void)
{
    unsigned lost = 0;

    begin(fabric_defaults());
    fabric.rule = lose_one_of_the_write;
    fabric.rule_context = &lost;
    write_and_flush(flush(), LENGTH);
    CHECK(lost);
    CHECK(fabric_count(&fabric, 0, VB_OP_FLUSH) >
          1); /* the first came too early, and was not done */
    CHECK_EQ(fabric_count(&fabric, 1, VB_OP_READ_RESPONSE_ONLY), 1);
    fabric_close(&fabric);
}

static enum verdict lose_answers(struct fabric *f, struct flight *flight)
{
    unsigned *left = f->rule_context;

    if (flight->from == 0 || (flight->bytes[0] & VB_OP_MASK) != VB_OP_READ_RESPONSE_ONLY || !*left)
        return PASS;
    --*left;
    return LOSE;
}

static void a_lost_answer_is_repeated(void)
{
    unsigned left = 3;

    begin(fabric_defaults());
    fabric.rule = lose_answers;
    fabric.rule_context = &left;
    write_and_flush(flush(), LENGTH);
    CHECK_EQ(left, 0);
    CHECK_EQ(fabric_counters(&fabric, 1)->duplicate_responses, 3);
    CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_RTS);
    fabric_close(&fabric);
}

/* ---- what is looked at ---- */

static void the_whole_region_has_no_range(void)
{
    struct ibv_send_wr wr;

    begin(fabric_defaults());
    wr = flush_all();
    wr.wr.flush.remote_addr = UINT64_MAX;
    write_and_flush(wr, 0x7fffffff);
    wr.wr.flush.remote_addr = 0;
    write_and_flush(wr, 0);
    fabric_close(&fabric);
}

static struct ibv_wc refused(enum ibv_wc_status status, uint8_t syndrome)
{
    struct ibv_wc wc = sent();
    uint32_t count = fabric_count(&fabric, 1, VB_OP_ACKNOWLEDGE);

    CHECK_EQ(wc.status, status);
    CHECK_EQ(vb_qp_state(qp[0]), IBV_QPS_ERR);
    CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_ERR);
    CHECK(count);
    CHECK_EQ(fabric_find(&fabric, 1, VB_OP_ACKNOWLEDGE, count - 1)->syndrome, syndrome);
    return wc;
}

/* Unlike a READ or WRITE of no bytes. */
static void a_flush_of_nothing_needs_its_key(void)
{
    struct ibv_send_wr wr;

    for (int whole = 0; whole < 2; ++whole) {
        begin(fabric_defaults());
        wr = whole ? flush_all() : flush();
        post(wr, 0);
        CHECK_EQ(sent().status, IBV_WC_SUCCESS);
        wr.wr.flush.rkey ^= 1;
        post(wr, 0);
        refused(IBV_WC_REM_ACCESS_ERR, 0x62);
        CHECK_EQ(fabric_counters(&fabric, 1)->refused_key, 1);
        fabric_close(&fabric);
    }
}

/* No region has FLUSH_PERSISTENT; the QP may. */
static void persistence_is_refused(void)
{
    static const uint8_t types[] = {IBV_FLUSH_PERSISTENT, IBV_FLUSH_PERSISTENT | IBV_FLUSH_GLOBAL};

    for (int qp_allows = 0; qp_allows < 2; ++qp_allows)
        for (int i = 0; i < 2; ++i) {
            struct qp_options options = fabric_defaults();
            struct ibv_send_wr wr;

            if (qp_allows)
                options.access |= IBV_ACCESS_FLUSH_PERSISTENT;
            begin(options);
            wr = i ? flush_all() : flush();
            wr.wr.flush.type = types[i];
            post(wr, 8);
            if (qp_allows)
                refused(IBV_WC_REM_ACCESS_ERR, 0x62);
            else
                refused(IBV_WC_REM_INV_REQ_ERR, 0x61);
            CHECK_EQ(fabric_counters(&fabric, 1)->refused_access, qp_allows);
            fabric_close(&fabric);
        }
}

static void a_range_longer_than_a_message_does_not_leave(void)
{
    struct ibv_wc wc;

    begin(fabric_defaults());
    post(flush(), 0x80000000);
    wc = sent();
    CHECK_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
    fabric_expect_text(&fabric, 0, wc.vendor_err, "2147483647");
    CHECK_EQ(fabric_count(&fabric, 0, -1), 0);
    fabric_close(&fabric);
}

static void without_read_resources_it_does_not_leave(void)
{
    struct qp_options options = fabric_defaults();

    options.rd_atomic = 0;
    begin(options);
    post(flush(), 8);
    CHECK_EQ(sent().status, IBV_WC_LOC_QP_OP_ERR);
    CHECK_EQ(fabric_count(&fabric, 0, -1), 0);
    fabric_close(&fabric);
}

/* The window grants it; its region need not. */
static void through_a_window(void)
{
    static const unsigned grants[] = {IBV_ACCESS_FLUSH_GLOBAL, IBV_ACCESS_REMOTE_WRITE,
                                      IBV_ACCESS_FLUSH_GLOBAL};

    for (int i = 0; i < 3; ++i) {
        struct ibv_send_wr bind = {.wr_id = 9, .opcode = IBV_WR_BIND_MW}, wr, *bad;
        struct side *side;
        struct vb_mr *mr;
        struct vb_mw *mw;

        begin(fabric_defaults());
        side = &fabric.side[1];
        CHECK_EQ(vb_mr_reg(side->pd, side->memory, 65536, (uintptr_t)side->memory,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, &mr),
                 0);
        CHECK_EQ(vb_mw_alloc(side->pd, IBV_MW_TYPE_2, &mw), 0);
        bind.bind_mw.mw = &mw->ibv;
        bind.bind_mw.rkey = mw->ibv.rkey;
        bind.bind_mw.bind_info.mr = &mr->ibv;
        bind.bind_mw.bind_info.addr = (uintptr_t)side->memory + AT;
        bind.bind_mw.bind_info.length = 64;
        bind.bind_mw.bind_info.mw_access_flags = grants[i];
        CHECK_EQ(vb_post_send(qp[1], &bind, &bad), 0);
        fabric_run(&fabric, 1000);
        wr = i == 2 ? flush() : flush_all();
        wr.wr.flush.rkey = bind.bind_mw.rkey;
        post(wr, 65);
        if (i == 0)
            CHECK_EQ(sent().status, IBV_WC_SUCCESS);
        else
            refused(IBV_WC_REM_ACCESS_ERR, 0x62);
        CHECK_EQ(fabric_counters(&fabric, 1)->refused_access, i == 1);
        CHECK_EQ(fabric_counters(&fabric, 1)->refused_range, i == 2);
        CHECK_EQ(vb_mw_dealloc(mw), 0);
        fabric_close(&fabric);
    }
}

/* ---- packets that no requester of ours makes ---- */

static void inject(uint32_t feth, uint32_t length, uint32_t payload)
{
    uint8_t bytes[FABRIC_BYTES_MAX] = {0};
    struct vb_bth bth = {.opcode = VB_OP_FLUSH,
                         .pkey = 0xffff,
                         .dest_qp = qp[1]->number,
                         .ack_request = true,
                         .psn = fabric_defaults().psn[0]};
    struct vb_reth reth = {(uintptr_t)fabric.side[1].memory, fabric.side[1].mr->ibv.rkey, length};

    vb_wire_bth_write(bytes, &bth);
    vb_wire_put32(bytes + VB_BTH, feth);
    vb_wire_reth_write(bytes + VB_BTH + VB_FETH, &reth);
    fabric_inject(&fabric, 1, bytes, VB_BTH + VB_FETH + VB_RETH + payload);
    fabric_run(&fabric, 100000);
}

static void what_is_reserved_is_an_invalid_request(void)
{
    static const struct {
        uint32_t feth, length;
    } wrong[] = {{0x00, 8}, {0x10, 8}, {0x05, 8},           {0x09, 8},
                 {0x21, 8}, {0x31, 8}, {0x01, 1u << 31 | 1}};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); ++i) {
        begin(fabric_defaults());
        inject(wrong[i].feth, wrong[i].length, 0);
        CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_ERR);
        fabric_expect_event(&fabric, 1, IBV_EVENT_QP_REQ_ERR);
        CHECK_EQ(fabric_counters(&fabric, 1)->nak_invalid_sent, 1);
        CHECK_EQ(fabric_count(&fabric, 1, VB_OP_READ_RESPONSE_ONLY), 0);
        fabric_close(&fabric);
    }
}

/* Reserved bits beyond the six that mean something are not looked at (IBA 9.1). */
static void a_payload_is_not_its_packet(void)
{
    begin(fabric_defaults());
    inject(0xffffff01, 8, 4);
    CHECK_EQ(fabric_count(&fabric, 1, VB_OP_READ_RESPONSE_ONLY), 0);
    CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_RTS);
    inject(0xffffff01, 8, 0);
    CHECK_EQ(fabric_count(&fabric, 1, VB_OP_READ_RESPONSE_ONLY), 1);
    fabric_close(&fabric);
}

int main(void)
{
    RUN(its_packet);
    RUN(it_waits_for_the_writes_before_it);
    RUN(a_lost_answer_is_repeated);
    RUN(the_whole_region_has_no_range);
    RUN(a_flush_of_nothing_needs_its_key);
    RUN(persistence_is_refused);
    RUN(a_range_longer_than_a_message_does_not_leave);
    RUN(without_read_resources_it_does_not_leave);
    RUN(through_a_window);
    RUN(what_is_reserved_is_an_invalid_request);
    RUN(a_payload_is_not_its_packet);
    return 0;
}
