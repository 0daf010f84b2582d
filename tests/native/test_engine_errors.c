// SPDX-License-Identifier: Apache-2.0
/* How requests end in error: statuses, NAKs, states, events and evidence on both sides. */
#include <sys/mman.h>

#include "check.h"
#include "fabric.h"
#include "wire/opcode.h"

static struct fabric fabric;
static struct vb_qp *qp[2];

static void begin(struct qp_options options)
{
    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    fabric_pair(&fabric, options, qp);
}

/* The sender's completion; both QPs are in ERR afterwards, and the responder raised `event`. */
static struct ibv_wc fails_both(enum ibv_wc_status status, enum ibv_event_type event)
{
    struct ibv_wc wc = fabric_wait(&fabric, fabric.side[0].send_cq);

    CHECK_EQ(wc.status, status);
    CHECK_EQ(wc.wr_id, 1);
    CHECK_EQ(vb_qp_state(qp[0]), IBV_QPS_ERR);
    CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_ERR);
    fabric_expect_event(&fabric, 1, event);
    CHECK(!fabric_has_event(&fabric, 0));
    return wc;
}

/* The last thing that the responder said. */
static void nak_is(uint8_t syndrome)
{
    uint32_t count = fabric_count(&fabric, 1, VB_OP_ACKNOWLEDGE);

    CHECK(count);
    CHECK_EQ(fabric_find(&fabric, 1, VB_OP_ACKNOWLEDGE, count - 1)->syndrome, syndrome);
}

static struct ibv_wc receive_is(enum ibv_wc_status status, uint64_t id)
{
    struct ibv_wc wc = fabric_wait(&fabric, fabric.side[1].recv_cq);

    CHECK_EQ(wc.status, status);
    CHECK_EQ(wc.wr_id, id);
    return wc;
}

/* What the responder has kept of the packet that it refused. */
static void kept_is(enum ibv_wr_opcode opcode)
{
    struct vb_evidence kept;
    uint32_t id = atomic_load(&qp[1]->shared->failed);

    CHECK(vb_evidence_get(&fabric.side[1].adapter.self, id, &kept));
    CHECK_EQ(kept.wr_opcode, opcode);
    CHECK(kept.has_psns);
    CHECK_EQ(kept.psn, fabric.log[0].bth.psn);
}

static void what_the_qp_does_not_allow_is_an_invalid_request(void)
{
    static const enum ibv_wr_opcode opcodes[] = {
        IBV_WR_RDMA_WRITE,   IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_ATOMIC_WRITE, IBV_WR_FLUSH,     IBV_WR_ATOMIC_CMP_AND_SWP};
    static const unsigned bits[] = {IBV_ACCESS_REMOTE_WRITE,  IBV_ACCESS_REMOTE_READ,
                                    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_WRITE,
                                    IBV_ACCESS_FLUSH_GLOBAL,  IBV_ACCESS_REMOTE_ATOMIC};

    for (int i = 0; i < 6; ++i) {
        struct qp_options options = fabric_defaults();
        struct ibv_wc wc;

        options.access &= ~bits[i];
        begin(options);
        fabric_post_recv(&fabric, qp[1], 50, 0, 64);
        CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, opcodes[i], 0), 0, 8), 0);
        wc = fails_both(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
        fabric_expect_text(&fabric, 0, wc.vendor_err, "invalid request");
        nak_is(0x61);
        kept_is(opcodes[i]);
        receive_is(IBV_WC_WR_FLUSH_ERR, 50);
        CHECK_EQ(fabric_counters(&fabric, 1)->refused_qp_access, 1);
        fabric_close(&fabric);
    }
}

enum key_fault { BAD_KEY, BAD_PD, OUTSIDE, NO_ACCESS };

static void break_key(enum key_fault fault, struct ibv_send_wr *wr, bool atomic, bool eight)
{
    uint32_t *rkey = atomic ? &wr->wr.atomic.rkey : &wr->wr.rdma.rkey;
    uint64_t *addr = atomic ? &wr->wr.atomic.remote_addr : &wr->wr.rdma.remote_addr;
    struct side *side = &fabric.side[1];
    struct vb_pd *pd;
    struct vb_mr *mr;

    if (fault == BAD_KEY) {
        *rkey ^= 1;
    } else if (fault == OUTSIDE) {
        *addr += fabric.options.memory - (eight ? 0 : 2000);
    } else if (fault == BAD_PD) {
        CHECK_EQ(vb_pd_alloc(side->context, &pd), 0);
        CHECK_EQ(vb_mr_reg(pd, side->memory, 65536, (uintptr_t)side->memory,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                               IBV_ACCESS_FLUSH_GLOBAL,
                           &mr),
                 0);
        *rkey = mr->ibv.rkey;
    } else {
        CHECK_EQ(vb_mr_reg(side->pd, side->memory, 65536, (uintptr_t)side->memory,
                           IBV_ACCESS_LOCAL_WRITE, &mr),
                 0);
        *rkey = mr->ibv.rkey;
    }
}

static void a_wrong_key(enum key_fault fault, enum ibv_wr_opcode opcode)
{
    bool atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    bool eight = atomic || opcode == IBV_WR_ATOMIC_WRITE;
    const struct vb_counters *counters;
    struct ibv_send_wr wr;
    struct ibv_wc wc;

    begin(fabric_defaults());
    fabric_post_recv(&fabric, qp[1], 50, 0, 64);
    wr = fabric_request(&fabric, 0, opcode, 0);
    break_key(fault, &wr, atomic, eight);
    memset(fabric.side[0].memory, 0x11, 4096);
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 0, eight ? 8 : 3000), 0);
    wc = fails_both(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    fabric_expect_text(&fabric, 0, wc.vendor_err, "remote access error");
    nak_is(0x62);
    receive_is(IBV_WC_WR_FLUSH_ERR, 50);
    CHECK_EQ(fabric.side[1].memory[0], 0);
    CHECK_EQ(fabric.side[1].memory[fabric.options.memory - 2000], 0);
    counters = fabric_counters(&fabric, 1);
    CHECK_EQ(counters->refused_key, fault == BAD_KEY);
    CHECK_EQ(counters->refused_pd, fault == BAD_PD);
    CHECK_EQ(counters->refused_range, fault == OUTSIDE);
    CHECK_EQ(counters->refused_access, fault == NO_ACCESS);
    fabric_close(&fabric);
}

static void a_key_that_does_not_fit_is_an_access_error(void)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE,   IBV_WR_RDMA_WRITE_WITH_IMM,
                                                 IBV_WR_RDMA_READ,    IBV_WR_ATOMIC_FETCH_AND_ADD,
                                                 IBV_WR_ATOMIC_WRITE, IBV_WR_FLUSH};

    for (enum key_fault fault = BAD_KEY; fault <= NO_ACCESS; ++fault)
        for (int i = 0; i < 6; ++i)
            a_wrong_key(fault, opcodes[i]);
}

static void a_misaligned_atomic_is_an_invalid_request(void)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE};

    for (int i = 0; i < 2; ++i) {
        begin(fabric_defaults());
        memset(fabric.side[0].memory, 0x11, 8);
        CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, opcodes[i], 4), 0, 8), 0);
        fails_both(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
        nak_is(0x61);
        CHECK_EQ(fabric.side[1].memory[4], 0);
        fabric_close(&fabric);
    }
}

static void an_atomic_write_of_another_length_does_not_leave(void)
{
    for (uint32_t length = 4; length <= 16; length += 12) {
        struct ibv_wc wc;

        begin(fabric_defaults());
        CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_ATOMIC_WRITE, 0), 0,
                             length),
                 0);
        wc = fabric_wait(&fabric, fabric.side[0].send_cq);
        CHECK_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
        fabric_expect_text(&fabric, 0, wc.vendor_err, "writes 8 bytes");
        CHECK_EQ(fabric_count(&fabric, 0, -1), 0);
        fabric_close(&fabric);
    }
}

static void more_reads_than_the_responder_has_room_for(void)
{
    for (uint8_t room = 0; room < 2; ++room) {
        struct qp_options options = fabric_defaults();
        struct ibv_send_wr wr;

        options.dest_rd_atomic = room;
        begin(options);
        wr = fabric_request(&fabric, 0, IBV_WR_RDMA_READ, 0);
        wr.send_flags = 0;
        wr.wr_id = 0;
        if (room)
            CHECK_EQ(fabric_post(&fabric, qp[0], wr, 0, 5000), 0);
        wr.wr_id = 1;
        CHECK_EQ(fabric_post(&fabric, qp[0], wr, 8192, 5000), 0);
        fails_both(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
        fabric_close(&fabric);
    }
}

/* The first packet does not fit already: of the message's length no more is known. */
static void a_send_whose_length_is_not_known(void)
{
    struct ibv_wc wc;

    begin(fabric_defaults());
    fabric_post_recv(&fabric, qp[1], 50, 0, 100);
    CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 5000), 0);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_REM_INV_REQ_ERR);
    wc = receive_is(IBV_WC_LOC_LEN_ERR, 50);
    fabric_expect_text(&fabric, 1, wc.vendor_err, "the message has at least 1024 bytes");
    fabric_expect_event(&fabric, 1, IBV_EVENT_QP_REQ_ERR);
    fabric_close(&fabric);
}

static void a_send_longer_than_its_receive(void)
{
    static const uint32_t lengths[] = {200, 1025, 5000};

    for (int i = 0; i < 6; ++i) {
        struct qp_options options = fabric_defaults();
        uint32_t length = lengths[i % 3];
        char said[64];
        struct ibv_wc wc;

        options.srq[1] = i >= 3;
        begin(options);
        fabric_post_recv(&fabric, qp[1], 50, 0, length - 1);
        fabric_post_recv(&fabric, qp[1], 51, 0, length);
        CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, length),
                 0);
        CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_REM_INV_REQ_ERR);
        nak_is(0x61);
        wc = receive_is(IBV_WC_LOC_LEN_ERR, 50);
        snprintf(said, sizeof(said), "the message has %u bytes", length);
        fabric_expect_text(&fabric, 1, wc.vendor_err, said);
        fabric_expect_event(&fabric, 1, IBV_EVENT_QP_REQ_ERR);
        if (options.srq[1]) /* IBA o11-5.2.5: of a QP that is in the error state already */
            fabric_expect_event(&fabric, 1, IBV_EVENT_QP_LAST_WQE_REACHED);
        else
            receive_is(IBV_WC_WR_FLUSH_ERR, 51);
        fabric_close(&fabric);
    }
}

static void a_receive_with_a_wrong_key_of_its_own(void)
{
    struct ibv_sge sge;
    struct ibv_recv_wr recv = {.wr_id = 50, .sg_list = &sge, .num_sge = 1}, *bad;
    struct ibv_wc wc;

    begin(fabric_defaults());
    sge = (struct ibv_sge){(uintptr_t)fabric.side[1].memory, 64, 12345};
    CHECK_EQ(vb_post_recv(qp[1], &recv, &bad), 0);
    CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 8), 0);
    fails_both(IBV_WC_REM_OP_ERR, IBV_EVENT_QP_REQ_ERR);
    nak_is(0x63);
    wc = receive_is(IBV_WC_LOC_PROT_ERR, 50);
    fabric_expect_text(&fabric, 1, wc.vendor_err, "receive request's lkey 0x3039");
    kept_is(IBV_WR_SEND);
    fabric_close(&fabric);
}

/* A packet from side 0's QP to side 1's, as the test wants it. */
static void inject(uint8_t operation, uint32_t psn, const struct vb_reth *reth, uint32_t payload)
{
    uint8_t bytes[FABRIC_BYTES_MAX] = {0};
    struct vb_bth bth = {.opcode = operation,
                         .pad = -payload & 3,
                         .pkey = 0xffff,
                         .dest_qp = qp[1]->number,
                         .ack_request = true,
                         .psn = psn};

    vb_wire_bth_write(bytes, &bth);
    if (reth)
        vb_wire_reth_write(bytes + VB_BTH, reth);
    fabric_inject(&fabric, 1, bytes, vb_opcodes[operation].header_length + payload + bth.pad);
    fabric_run(&fabric, 100000);
}

static void the_responder_is_in_error(uint8_t syndrome, enum ibv_event_type event)
{
    CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_ERR);
    fabric_expect_event(&fabric, 1, event);
    nak_is(syndrome);
    CHECK_EQ(vb_qp_state(qp[0]), IBV_QPS_RTS); /* nothing of its own was outstanding */
}

static void packets_in_the_wrong_place(void)
{
    static const uint8_t wrong_after_nothing[] = {VB_OP_SEND_MIDDLE, VB_OP_SEND_LAST,
                                                  VB_OP_WRITE_MIDDLE, VB_OP_WRITE_LAST};
    static const uint8_t wrong_after_send_first[] = {VB_OP_SEND_FIRST, VB_OP_SEND_ONLY,
                                                     VB_OP_WRITE_MIDDLE, VB_OP_READ_REQUEST};
    struct vb_reth reth = {0};
    uint32_t psn = fabric_defaults().psn[0];

    for (size_t i = 0; i < sizeof(wrong_after_nothing); ++i) {
        begin(fabric_defaults());
        inject(wrong_after_nothing[i], psn, NULL,
               vb_opcodes[wrong_after_nothing[i]].flags & VB_OPCODE_PAYLOAD ? 1024 : 0);
        the_responder_is_in_error(0x61, IBV_EVENT_QP_REQ_ERR);
        fabric_expect_text(&fabric, 1, qp[1]->shared->failed, "That breaks the protocol");
        fabric_close(&fabric);
    }
    for (size_t i = 0; i < sizeof(wrong_after_send_first); ++i) {
        bool read = wrong_after_send_first[i] == VB_OP_READ_REQUEST;

        begin(fabric_defaults());
        fabric_post_recv(&fabric, qp[1], 50, 0, 8192);
        inject(VB_OP_SEND_FIRST, psn, NULL, 1024);
        inject(wrong_after_send_first[i], psn + 1, read ? &reth : NULL, read ? 0 : 1024);
        CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_ERR);
        receive_is(IBV_WC_LOC_QP_OP_ERR, 50);
        fabric_close(&fabric);
    }
}

static void lengths_that_do_not_agree(void)
{
    struct vb_reth reth;
    uint32_t psn = fabric_defaults().psn[0];

    for (int i = 0; i < 11; ++i) {
        begin(fabric_defaults());
        fabric_post_recv(&fabric, qp[1], 50, 0, 8192);
        reth = (struct vb_reth){(uintptr_t)fabric.side[1].memory, fabric.side[1].mr->ibv.rkey, 0};
        switch (i) {
        case 0: /* Only, less than announced */
            reth.length = 9;
            inject(VB_OP_WRITE_ONLY, psn, &reth, 8);
            break;
        case 1: /* Only, more */
            reth.length = 7;
            inject(VB_OP_WRITE_ONLY, psn, &reth, 8);
            break;
        case 2: /* First that would be the whole */
            reth.length = 1024;
            inject(VB_OP_WRITE_FIRST, psn, &reth, 1024);
            break;
        case 3: /* First shorter than the path MTU */
            reth.length = 5000;
            inject(VB_OP_WRITE_FIRST, psn, &reth, 1020);
            break;
        case 4: /* Only longer than the path MTU */
            reth.length = 1028;
            inject(VB_OP_WRITE_ONLY, psn, &reth, 1028);
            break;
        case 5: /* Last too early */
            reth.length = 5000;
            inject(VB_OP_WRITE_FIRST, psn, &reth, 1024);
            inject(VB_OP_WRITE_LAST, psn + 1, NULL, 1024);
            break;
        case 6: /* Middle that goes beyond */
            reth.length = 2000;
            inject(VB_OP_WRITE_FIRST, psn, &reth, 1024);
            inject(VB_OP_WRITE_MIDDLE, psn + 1, NULL, 1024);
            break;
        case 7: /* Last without payload */
            inject(VB_OP_SEND_FIRST, psn, NULL, 1024);
            inject(VB_OP_SEND_LAST, psn + 1, NULL, 0);
            receive_is(IBV_WC_LOC_LEN_ERR, 50);
            break;
        case 8: /* an atomic write of less than it announces */
            reth.length = 8;
            inject(VB_OP_ATOMIC_WRITE, psn, &reth, 4);
            break;
        case 9: /* of more than 8 bytes */
            reth.length = 16;
            inject(VB_OP_ATOMIC_WRITE, psn, &reth, 16);
            break;
        default: /* a READ beyond 2 GiB */
            reth.length = 0x80000001;
            inject(VB_OP_READ_REQUEST, psn, &reth, 0);
        }
        CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_ERR);
        fabric_expect_event(&fabric, 1, IBV_EVENT_QP_REQ_ERR);
        CHECK_EQ(fabric_counters(&fabric, 1)->nak_invalid_sent, 1);
        fabric_close(&fabric);
    }
}

static void a_key_that_may_not_be_invalidated(void)
{
    begin(fabric_defaults());
    fabric_post_recv(&fabric, qp[1], 50, 0, 64);
    inject(VB_OP_SEND_ONLY_INVALIDATE, fabric_defaults().psn[0], NULL, 8);
    the_responder_is_in_error(0x62, IBV_EVENT_QP_ACCESS_ERR);
    receive_is(IBV_WC_LOC_QP_OP_ERR, 50);
    fabric_close(&fabric);
}

static void a_full_completion_queue(void)
{
    struct vb_cq *small;
    struct ibv_wc wc;

    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    CHECK_EQ(vb_cq_create(fabric.side[1].context, 1, NULL, NULL, &small), 0);
    fabric.side[1].recv_cq = small;
    fabric_pair(&fabric, fabric_defaults(), qp);
    for (int i = 0; i < 2; ++i) {
        fabric_post_recv(&fabric, qp[1], 50, 0, 64);
        CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 8), 0);
        wc = fabric_wait(&fabric, fabric.side[0].send_cq);
    }
    CHECK_EQ(wc.status, IBV_WC_REM_OP_ERR);
    CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_ERR);
    fabric_expect_event(&fabric, 1, IBV_EVENT_CQ_ERR);
    fabric_expect_event(&fabric, 1, IBV_EVENT_QP_FATAL);
    fabric_close(&fabric);
}

/* Posts a good WRITE, then the request, then another WRITE: success, `status`, flush. */
static struct ibv_wc fails_locally(struct ibv_send_wr wr, struct ibv_sge *sge,
                                   enum ibv_wc_status status)
{
    struct ibv_send_wr good = fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, 0), *bad;
    struct ibv_wc wc, flushed;

    good.wr_id = 0;
    CHECK_EQ(fabric_post(&fabric, qp[0], good, 0, 5000), 0);
    wr.wr_id = 1;
    wr.send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
    wr.sg_list = sge;
    wr.num_sge = 1;
    CHECK_EQ(vb_post_send(qp[0], &wr, &bad), 0);
    good.wr_id = 2;
    CHECK_EQ(fabric_post(&fabric, qp[0], good, 0, 8), 0);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    wc = fabric_wait(&fabric, fabric.side[0].send_cq);
    CHECK_EQ(wc.status, status);
    CHECK_EQ(wc.wr_id, 1);
    CHECK_EQ(vb_qp_state(qp[0]), qp[0]->type == IBV_QPT_RC ? IBV_QPS_ERR : IBV_QPS_SQE);
    flushed = fabric_wait(&fabric, fabric.side[0].send_cq);
    CHECK_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(flushed.wr_id, 2);
    CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_RTS);
    return wc;
}

static void a_wrong_local_key(void)
{
    static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC};

    for (int i = 0; i < 2; ++i) {
        struct qp_options options = fabric_defaults();
        struct ibv_sge sge;
        struct ibv_wc wc;

        options.type = types[i];
        begin(options);
        fabric_post_recv(&fabric, qp[0], 60, 0, 64);
        sge = (struct ibv_sge){(uintptr_t)fabric.side[0].memory, 64, 12345};
        wc = fails_locally(fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, 0), &sge,
                           IBV_WC_LOC_PROT_ERR);
        fabric_expect_text(&fabric, 0, wc.vendor_err, "lkey 0x3039 names no memory region");
        CHECK_EQ(fabric_poll(fabric.side[0].recv_cq, &wc), types[i] == IBV_QPT_RC);
        fabric_close(&fabric);
    }
}

static void a_unreliable_queue_goes_on_after_its_error(void)
{
    struct qp_options options = fabric_defaults();
    struct ibv_sge sge = {0, 64, 12345};
    struct ibv_wc wc;

    options.type = IBV_QPT_UC;
    begin(options);
    sge.addr = (uintptr_t)fabric.side[0].memory;
    fails_locally(fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, 0), &sge, IBV_WC_LOC_PROT_ERR);
    fabric_set_state(qp[0], IBV_QPS_RTS);
    fabric_post_recv(&fabric, qp[1], 5, 0, 4096);
    CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 4096), 0);
    wc = fabric_wait(&fabric, fabric.side[1].recv_cq);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.byte_len, 4096);
    fabric_close(&fabric);
}

static void requests_that_cannot_be(void)
{
    struct qp_options options = fabric_defaults();
    size_t huge = (size_t)3 << 30;
    struct vb_mr *mr;
    struct ibv_sge sge;
    void *memory = mmap(NULL, huge, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(memory != MAP_FAILED);
    begin(options);
    CHECK_EQ(vb_mr_reg(fabric.side[0].pd, memory, huge, (uintptr_t)memory, 0, &mr), 0);
    sge = (struct ibv_sge){(uintptr_t)memory, 0x80000000, mr->ibv.lkey};
    fails_locally(fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, 0), &sge, IBV_WC_LOC_LEN_ERR);
    fabric_close(&fabric);
    munmap(memory, huge);

    begin(options);
    sge = (struct ibv_sge){(uintptr_t)fabric.side[0].memory, 4, fabric.side[0].mr->ibv.lkey};
    fails_locally(fabric_request(&fabric, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 0), &sge,
                  IBV_WC_LOC_LEN_ERR);
    fabric_close(&fabric);

    options.rd_atomic = 0;
    begin(options);
    sge.length = 8;
    sge.lkey = fabric.side[0].mr->ibv.lkey;
    sge.addr = (uintptr_t)fabric.side[0].memory;
    fails_locally(fabric_request(&fabric, 0, IBV_WR_RDMA_READ, 0), &sge, IBV_WC_LOC_QP_OP_ERR);
    fabric_close(&fabric);
}

/* Side 1 answers the READ at side 0 with a packet of the test's making. */
static void answer(uint8_t operation, uint32_t psn, uint32_t payload)
{
    uint8_t bytes[FABRIC_BYTES_MAX] = {0};
    struct vb_bth bth = {.opcode = operation,
                         .pad = -payload & 3,
                         .pkey = 0xffff,
                         .dest_qp = qp[0]->number,
                         .psn = psn};
    struct vb_aeth aeth = {VB_AETH_ACK, 31, 1};

    vb_wire_bth_write(bytes, &bth);
    vb_wire_aeth_write(bytes + VB_BTH, &aeth);
    fabric_inject(&fabric, 0, bytes, vb_opcodes[operation].header_length + payload + bth.pad);
}

static enum verdict lose_all(struct fabric *f, struct flight *flight)
{
    (void)f;
    (void)flight;
    return LOSE;
}

static void responses_that_do_not_fit(void)
{
    static const struct {
        uint8_t operation;
        uint32_t payload;
        enum ibv_wr_opcode to;
    } wrong[] = {
        {VB_OP_READ_RESPONSE_ONLY, 3000, IBV_WR_RDMA_READ},
        {VB_OP_READ_RESPONSE_ONLY, 1024, IBV_WR_RDMA_READ},
        {VB_OP_READ_RESPONSE_FIRST, 1020, IBV_WR_RDMA_READ},
        {VB_OP_READ_RESPONSE_MIDDLE, 1024, IBV_WR_RDMA_READ},
        {VB_OP_READ_RESPONSE_LAST, 952, IBV_WR_RDMA_READ},
        {VB_OP_ATOMIC_ACKNOWLEDGE, 0, IBV_WR_RDMA_READ},
        {VB_OP_READ_RESPONSE_ONLY, 8, IBV_WR_ATOMIC_WRITE},
        {VB_OP_READ_RESPONSE_FIRST, 0, IBV_WR_ATOMIC_WRITE},
        {VB_OP_ATOMIC_ACKNOWLEDGE, 0, IBV_WR_ATOMIC_WRITE},
        {VB_OP_READ_RESPONSE_ONLY, 8, IBV_WR_FLUSH},
        {VB_OP_READ_RESPONSE_LAST, 0, IBV_WR_FLUSH},
        {VB_OP_ATOMIC_ACKNOWLEDGE, 0, IBV_WR_FLUSH},
        {VB_OP_READ_RESPONSE_ONLY, 0, IBV_WR_ATOMIC_FETCH_AND_ADD},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); ++i) {
        struct ibv_wc wc;

        begin(fabric_defaults());
        fabric.rule = lose_all;
        CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, wrong[i].to, 0), 0,
                             wrong[i].to == IBV_WR_RDMA_READ ? 3000 : 8),
                 0);
        fabric_run(&fabric, 1000);
        answer(wrong[i].operation, fabric_defaults().psn[0], wrong[i].payload);
        wc = fabric_wait(&fabric, fabric.side[0].send_cq);
        CHECK_EQ(wc.status, IBV_WC_BAD_RESP_ERR);
        fabric_expect_text(&fabric, 0, wc.vendor_err, "does not fit");
        fabric_expect_text(&fabric, 0, wc.vendor_err,
                           wrong[i].to == IBV_WR_RDMA_READ &&
                                   wrong[i].operation != VB_OP_ATOMIC_ACKNOWLEDGE
                               ? "Do both sides have one path MTU?"
                               : "That breaks the protocol");
        CHECK_EQ(vb_qp_state(qp[0]), IBV_QPS_ERR);
        fabric_close(&fabric);
    }
}

/* The region goes while its READ is under way: each side ends with its own error. */
static void a_region_that_goes_under_way(void)
{
    struct ibv_wc wc;

    begin(fabric_defaults());
    CHECK_EQ(
        fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_RDMA_READ, 0), 0, 500000), 0);
    fabric_run(&fabric, 1000);
    CHECK_EQ(vb_mr_dereg(fabric.side[1].mr), 0);
    fails_both(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    fabric_close(&fabric);

    begin(fabric_defaults());
    CHECK_EQ(
        fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_RDMA_READ, 0), 0, 500000), 0);
    fabric_run(&fabric, 1000);
    CHECK_EQ(vb_mr_dereg(fabric.side[0].mr), 0);
    wc = fabric_wait(&fabric, fabric.side[0].send_cq);
    CHECK_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
    fabric_close(&fabric);

    begin(fabric_defaults());
    CHECK_EQ(
        fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, 0), 0, 1000000),
        0);
    fabric_step(&fabric);
    CHECK_EQ(vb_mr_dereg(fabric.side[0].mr), 0);
    wc = fabric_wait(&fabric, fabric.side[0].send_cq);
    CHECK_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
    CHECK_EQ(wc.wr_id, 1);
    fabric_close(&fabric);
}

int main(void)
{
    RUN(what_the_qp_does_not_allow_is_an_invalid_request);
    RUN(a_key_that_does_not_fit_is_an_access_error);
    RUN(a_misaligned_atomic_is_an_invalid_request);
    RUN(an_atomic_write_of_another_length_does_not_leave);
    RUN(more_reads_than_the_responder_has_room_for);
    RUN(a_send_whose_length_is_not_known);
    RUN(a_send_longer_than_its_receive);
    RUN(a_receive_with_a_wrong_key_of_its_own);
    RUN(packets_in_the_wrong_place);
    RUN(lengths_that_do_not_agree);
    RUN(a_key_that_may_not_be_invalidated);
    RUN(a_full_completion_queue);
    RUN(a_wrong_local_key);
    RUN(a_unreliable_queue_goes_on_after_its_error);
    RUN(requests_that_cannot_be);
    RUN(responses_that_do_not_fit);
    RUN(a_region_that_goes_under_way);
    return 0;
}
