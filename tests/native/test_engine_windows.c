// SPDX-License-Identifier: Apache-2.0
/* Memory windows over packets: requests that make none among others, loss, and what is refused. */
#include "check.h"
#include "fabric.h"
#include "wire/opcode.h"

enum { AT = 4096, LENGTH = 8192, EVERY = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

static struct fabric fabric;
static struct vb_qp *qp[2]; /* 1 is the owner's */
static struct vb_mr *bindable;
static struct vb_mw *mw;

static void begin(struct fabric_options fabric_options, struct qp_options options)
{
    struct side *side = &fabric.side[1];

    fabric_open(&fabric, fabric_options);
    fabric_pair(&fabric, options, qp);
    CHECK_EQ(vb_mr_reg(side->pd, side->memory, fabric.options.memory, (uintptr_t)side->memory,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, &bindable),
             0);
    CHECK_EQ(vb_mw_alloc(side->pd, IBV_MW_TYPE_2, &mw), 0);
}

static void end(void)
{
    CHECK_EQ(vb_mw_dealloc(mw), 0);
    CHECK_EQ(vb_mr_dereg(bindable), 0);
    fabric_close(&fabric);
}

static void post_owner(struct ibv_send_wr wr)
{
    struct ibv_send_wr *bad;

    wr.send_flags |= IBV_SEND_SIGNALED;
    CHECK_EQ(vb_post_send(qp[1], &wr, &bad), 0);
}

static uint32_t post_bind(uint64_t wr_id)
{
    struct ibv_send_wr wr = {
        .wr_id = wr_id,
        .opcode = IBV_WR_BIND_MW,
        .bind_mw = {&mw->ibv,
                    (mw->ibv.rkey & ~0xffu) | ((mw->ibv.rkey + 1) & 0xff),
                    {&bindable->ibv, (uintptr_t)fabric.side[1].memory + AT, LENGTH, EVERY}}};

    post_owner(wr);
    return mw->ibv.rkey = wr.bind_mw.rkey;
}

static void post_inv(uint64_t wr_id, uint32_t rkey, unsigned flags)
{
    post_owner((struct ibv_send_wr){
        .wr_id = wr_id, .opcode = IBV_WR_LOCAL_INV, .send_flags = flags, .invalidate_rkey = rkey});
}

static void owner_completes(uint64_t wr_id, enum ibv_wc_status status)
{
    struct ibv_wc wc = fabric_wait(&fabric, fabric.side[1].send_cq);

    CHECK_EQ(wc.status, status);
    CHECK_EQ(wc.wr_id, wr_id);
}

static enum ibv_wc_status reach(enum ibv_wr_opcode opcode, uint64_t offset, uint32_t rkey,
                                uint32_t length)
{
    struct ibv_send_wr wr = fabric_request(&fabric, 0, opcode, offset);

    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
        wr.wr.atomic.rkey = rkey;
    else
        wr.wr.rdma.rkey = rkey;
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 0, length), 0);
    return fabric_wait(&fabric, fabric.side[0].send_cq).status;
}

static void fill(uint8_t value)
{
    for (uint32_t i = 0; i < LENGTH; ++i)
        fabric.side[0].memory[i] = (uint8_t)(value + i);
}

static bool arrived(uint8_t value, uint32_t length)
{
    for (uint32_t i = 0; i < length; ++i)
        if (fabric.side[1].memory[AT + i] != (uint8_t)(value + i))
            return false;
    return true;
}

static void a_window_opens_its_range(void)
{
    uint32_t key;

    begin((struct fabric_options){.seed = 1}, fabric_defaults());
    key = post_bind(5);
    owner_completes(5, IBV_WC_SUCCESS);
    fill(3);
    CHECK_EQ(reach(IBV_WR_RDMA_WRITE, AT, key, LENGTH), IBV_WC_SUCCESS);
    CHECK(arrived(3, LENGTH));
    fill(9);
    CHECK_EQ(reach(IBV_WR_RDMA_READ, AT, key, LENGTH), IBV_WC_SUCCESS);
    CHECK_EQ(fabric.side[0].memory[1], 4);
    CHECK_EQ(reach(IBV_WR_RDMA_WRITE, AT, key, LENGTH + 1), IBV_WC_REM_ACCESS_ERR);
    end();
}

static void what_a_window_does_not_grant(void)
{
    uint32_t key;

    begin((struct fabric_options){.seed = 1}, fabric_defaults());
    key = post_bind(5);
    owner_completes(5, IBV_WC_SUCCESS);
    CHECK_EQ(reach(IBV_WR_ATOMIC_FETCH_AND_ADD, AT, key, 8), IBV_WC_REM_ACCESS_ERR);
    end();
    begin((struct fabric_options){.seed = 1}, fabric_defaults());
    key = post_bind(5);
    post_inv(6, key, 0);
    owner_completes(5, IBV_WC_SUCCESS);
    owner_completes(6, IBV_WC_SUCCESS);
    CHECK_EQ(reach(IBV_WR_RDMA_READ, AT, key, 8), IBV_WC_REM_ACCESS_ERR);
    end();
}

static void another_queue_pair_is_not_let_in(void)
{
    struct vb_qp *other[2], *own[2] = {qp[0], qp[1]};
    uint32_t key;

    begin((struct fabric_options){.seed = 1}, fabric_defaults());
    own[0] = qp[0];
    fabric_pair(&fabric, fabric_defaults(), other);
    key = post_bind(5);
    owner_completes(5, IBV_WC_SUCCESS);
    qp[0] = other[0];
    CHECK_EQ(reach(IBV_WR_RDMA_WRITE, AT, key, 8), IBV_WC_REM_ACCESS_ERR);
    qp[0] = own[0];
    CHECK_EQ(reach(IBV_WR_RDMA_WRITE, AT, key, 8), IBV_WC_SUCCESS);
    end();
}

/* Requests with and without packets, in turn: completions keep the order of posting. */
static void requests_without_packets_keep_their_place(void)
{
    struct ibv_send_wr write;
    uint32_t key;

    begin((struct fabric_options){.seed = 1}, fabric_defaults());
    write = fabric_request(&fabric, 1, IBV_WR_RDMA_WRITE, 0);
    for (int round = 0; round < 3; ++round) {
        write.wr_id = 1;
        CHECK_EQ(fabric_post(&fabric, qp[1], write, 0, 3000), 0);
        key = post_bind(2);
        write.wr_id = 3;
        CHECK_EQ(fabric_post(&fabric, qp[1], write, 0, 1), 0);
        post_inv(4, key, 0);
        post_bind(5);
        post_inv(6, mw->ibv.rkey, 0);
        for (uint64_t id = 1; id <= 6; ++id)
            owner_completes(id, IBV_WC_SUCCESS);
    }
    end();
}

/* The READ that the fence waits for is held back; the key is good for as long. */
static enum verdict lose_responses(struct fabric *f, struct flight *flight)
{
    bool *lose = f->rule_context;

    return *lose && (flight->bytes[0] & VB_OP_MASK) == VB_OP_READ_RESPONSE_ONLY ? LOSE : PASS;
}

static void a_fence_holds_an_invalidation_back(void)
{
    struct ibv_send_wr read;
    bool lose = true;
    uint32_t key;

    begin((struct fabric_options){.seed = 1}, fabric_defaults());
    key = post_bind(1);
    owner_completes(1, IBV_WC_SUCCESS);
    read = fabric_request(&fabric, 1, IBV_WR_RDMA_READ, 0);
    read.wr_id = 2;
    fabric.rule = lose_responses;
    fabric.rule_context = &lose;
    CHECK_EQ(fabric_post(&fabric, qp[1], read, 64, 64), 0);
    post_inv(3, key, IBV_SEND_FENCE);
    fabric_run(&fabric, 200000);
    CHECK(!fabric_poll(fabric.side[1].send_cq, &(struct ibv_wc){0}));
    CHECK_EQ(reach(IBV_WR_RDMA_WRITE, AT, key, 8), IBV_WC_SUCCESS);
    lose = false;
    owner_completes(2, IBV_WC_SUCCESS);
    owner_completes(3, IBV_WC_SUCCESS);
    CHECK_EQ(reach(IBV_WR_RDMA_WRITE, AT, key, 8), IBV_WC_REM_ACCESS_ERR);
    end();
}

static void a_failed_binding_ends_the_queue_behind_it(void)
{
    struct ibv_send_wr write;

    begin((struct fabric_options){.seed = 1}, fabric_defaults());
    write = fabric_request(&fabric, 1, IBV_WR_RDMA_WRITE, 0);
    write.wr_id = 1;
    CHECK_EQ(fabric_post(&fabric, qp[1], write, 0, 3000), 0);
    post_inv(2, mw->ibv.rkey, 0);
    write.wr_id = 3;
    CHECK_EQ(fabric_post(&fabric, qp[1], write, 0, 3000), 0);
    owner_completes(1, IBV_WC_SUCCESS);
    owner_completes(2, IBV_WC_LOC_QP_OP_ERR);
    owner_completes(3, IBV_WC_WR_FLUSH_ERR);
    end();
}

static void post_send_with_inv(uint32_t rkey, uint32_t length)
{
    struct ibv_send_wr wr = fabric_request(&fabric, 0, IBV_WR_SEND_WITH_INV, 0);

    wr.invalidate_rkey = rkey;
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 0, length), 0);
}

static void a_send_with_invalidate(void)
{
    static const uint32_t lengths[] = {0, 8, 1024, 5000};
    struct ibv_wc wc;

    for (int i = 0; i < 4; ++i) {
        uint32_t key;

        begin((struct fabric_options){.seed = 1}, fabric_defaults());
        key = post_bind(1);
        owner_completes(1, IBV_WC_SUCCESS);
        fill(7);
        fabric_post_recv(&fabric, qp[1], 50, AT, LENGTH);
        post_send_with_inv(key, lengths[i]);
        CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
        wc = fabric_wait(&fabric, fabric.side[1].recv_cq);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.wc_flags, IBV_WC_WITH_INV);
        CHECK_EQ(wc.invalidated_rkey, key);
        CHECK_EQ(wc.byte_len, lengths[i]);
        CHECK(arrived(7, lengths[i]));
        CHECK_EQ(reach(IBV_WR_RDMA_READ, AT, key, 8), IBV_WC_REM_ACCESS_ERR);
        end();
    }
}

static void a_key_that_may_not_be_invalidated(void)
{
    for (int which = 0; which < 3; ++which) {
        struct ibv_wc wc;

        begin((struct fabric_options){.seed = 1}, fabric_defaults());
        fabric_post_recv(&fabric, qp[1], 50, 0, 64);
        post_send_with_inv(which == 0   ? bindable->ibv.rkey
                           : which == 1 ? mw->ibv.rkey
                                        : 0x12345678,
                           8);
        CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_REM_ACCESS_ERR);
        wc = fabric_wait(&fabric, fabric.side[1].recv_cq);
        CHECK_EQ(wc.status, IBV_WC_LOC_QP_OP_ERR);
        fabric_expect_text(&fabric, 1, wc.vendor_err, "asked to invalidate");
        end();
    }
}

/* ---- among requests that are sent again ---- */

static uint32_t lost; /* packets of the owner that are lost next */

static enum verdict lose_the_owners(struct fabric *f, struct flight *flight)
{
    (void)f;
    return flight->from == 1 && lost && lost-- ? LOSE : PASS;
}

static void post_write(uint64_t wr_id)
{
    struct ibv_send_wr write = fabric_request(&fabric, 1, IBV_WR_RDMA_WRITE, 0);

    write.wr_id = wr_id;
    CHECK_EQ(fabric_post(&fabric, qp[1], write, 0, 8), 0);
}

/*
 * While a repeated packet waits for its answer nothing new begins, but for what its next repetition
 * asks: does another request follow? That begins the binding, which makes no packet. The cursor
 * passes it, too, or the next packets would be of a request that has none.
 */
static void a_binding_that_begins_behind_a_repeated_packet(void)
{
    begin((struct fabric_options){.seed = 1, .engine = {.adapts = true}}, fabric_defaults());
    fabric.rule = lose_the_owners;
    lost = 2;
    post_write(1);
    while (fabric_counters(&fabric, 1)->packets_resent == 0)
        CHECK(fabric_step(&fabric));
    post_inv(3, post_bind(2), 0);
    for (uint64_t id = 1; id <= 3; ++id)
        owner_completes(id, IBV_WC_SUCCESS);
    fabric_run(&fabric, 200000);
    CHECK_EQ(fabric_counters(&fabric, 1)->packets_sent, 3);
    post_bind(4);
    post_write(5);
    owner_completes(4, IBV_WC_SUCCESS);
    owner_completes(5, IBV_WC_SUCCESS);
    CHECK_EQ(fabric_counters(&fabric, 1)->packets_sent, 4);
    end();
}

/*
 * Many rounds over a channel that loses, repeats and reorders: bind, let the peer write through it
 * and invalidate it from there, or invalidate it here. Each window opens exactly as long as it is
 * bound, and every request completes once and in order.
 */
static void windows_over_a_bad_channel(void)
{
    uint32_t refused = 0;

    for (uint64_t seed = 1; seed <= 24; ++seed) {
        enum ibv_wc_status status;
        struct fabric_options channel = {.seed = seed,
                                         .loss = 0.1,
                                         .duplicate = 0.05,
                                         .reorder = 0.05,
                                         .engine = {.adapts = seed > 12}};

        begin(channel, fabric_defaults());
        for (int round = 0; round < 20; ++round) {
            uint32_t key = post_bind(1);
            struct ibv_send_wr tell = fabric_request(&fabric, 1, IBV_WR_SEND, 0);

            tell.wr_id = 2;
            fabric_post_recv(&fabric, qp[0], 60, LENGTH, 64);
            CHECK_EQ(fabric_post(&fabric, qp[1], tell, 0, 16), 0);
            CHECK_EQ(fabric_wait(&fabric, fabric.side[0].recv_cq).status, IBV_WC_SUCCESS);
            fill((uint8_t)(seed + (unsigned)round));
            CHECK_EQ(reach(IBV_WR_RDMA_WRITE, AT, key, 3000), IBV_WC_SUCCESS);
            CHECK(arrived((uint8_t)(seed + (unsigned)round), 3000));
            owner_completes(1, IBV_WC_SUCCESS);
            owner_completes(2, IBV_WC_SUCCESS);
            if (round % 2) {
                post_inv(3, key, 0);
                owner_completes(3, IBV_WC_SUCCESS);
                continue;
            }
            fabric_post_recv(&fabric, qp[1], 70, 0, 4096);
            post_send_with_inv(key, 2500);
            CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
            CHECK_EQ(fabric_wait(&fabric, fabric.side[1].recv_cq).invalidated_rkey, key);
        }
        status = reach(IBV_WR_RDMA_WRITE, AT, mw->ibv.rkey, 8);
        /* The only NAK that says why may be lost: the responder is in ERR and silent then. */
        CHECK(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_RETRY_EXC_ERR);
        refused += status == IBV_WC_REM_ACCESS_ERR;
        end();
    }
    CHECK(refused >= 16);
}

/* UC has no answers: what makes no packet completes with what was sent before it. */
static void over_an_unreliable_connection(void)
{
    struct qp_options options = fabric_defaults();
    struct ibv_send_wr write;
    uint32_t key;

    options.type = IBV_QPT_UC;
    begin((struct fabric_options){.seed = 1}, options);
    write = fabric_request(&fabric, 1, IBV_WR_RDMA_WRITE, 0);
    write.wr_id = 1;
    CHECK_EQ(fabric_post(&fabric, qp[1], write, 0, 3000), 0);
    key = post_bind(2);
    owner_completes(1, IBV_WC_SUCCESS);
    owner_completes(2, IBV_WC_SUCCESS);
    fill(5);
    CHECK_EQ(reach(IBV_WR_RDMA_WRITE, AT, key, 3000), IBV_WC_SUCCESS);
    fabric_run(&fabric, 100000);
    CHECK(arrived(5, 3000));
    post_inv(3, key, 0);
    owner_completes(3, IBV_WC_SUCCESS);
    fill(6);
    CHECK_EQ(reach(IBV_WR_RDMA_WRITE, AT, key, 3000), IBV_WC_SUCCESS); /* and drops in silence */
    fabric_run(&fabric, 100000);
    CHECK(arrived(5, 3000));
    end();
}

/* ---- regions of other kinds ---- */

static void a_null_region_gives_zeros_and_takes_everything(void)
{
    struct vb_mr *null[2];
    struct ibv_sge sge = {.addr = 0x1234567, .length = 5000};
    struct ibv_send_wr wr, *bad;
    struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1}, *bad_recv;

    begin((struct fabric_options){.seed = 1}, fabric_defaults());
    for (int i = 0; i < 2; ++i)
        CHECK_EQ(vb_mr_null(fabric.side[i].pd, &null[i]), 0);
    fill(1);
    memset(fabric.side[1].memory + AT, 0xee, LENGTH);
    wr = fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, AT);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    sge.lkey = null[0]->ibv.lkey;
    CHECK_EQ(vb_post_send(qp[0], &wr, &bad), 0);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    for (int i = 0; i < 5000; ++i)
        CHECK_EQ(fabric.side[1].memory[AT + i], 0);
    CHECK_EQ(fabric.side[1].memory[AT + 5000], 0xee);
    wr.opcode = IBV_WR_RDMA_READ; /* of what is not zero, into nothing */
    wr.wr.rdma.remote_addr += 5000 - 64;
    CHECK_EQ(vb_post_send(qp[0], &wr, &bad), 0);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    sge.lkey = null[1]->ibv.lkey;
    CHECK_EQ(vb_post_recv(qp[1], &recv, &bad_recv), 0);
    CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 5000), 0);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[1].recv_cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    sge.lkey = null[0]->ibv.lkey; /* what was written to it is not there */
    wr = fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, AT);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    CHECK_EQ(vb_post_send(qp[0], &wr, &bad), 0);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(fabric.side[1].memory[AT + 4990], 0);
    CHECK_EQ(reach(IBV_WR_RDMA_WRITE, 0, null[1]->ibv.lkey, 8), IBV_WC_REM_ACCESS_ERR);
    for (int i = 0; i < 2; ++i)
        CHECK_EQ(vb_mr_dereg(null[i]), 0);
    end();
}

int main(void)
{
    RUN(a_window_opens_its_range);
    RUN(what_a_window_does_not_grant);
    RUN(another_queue_pair_is_not_let_in);
    RUN(requests_without_packets_keep_their_place);
    RUN(a_fence_holds_an_invalidation_back);
    RUN(a_failed_binding_ends_the_queue_behind_it);
    RUN(a_send_with_invalidate);
    RUN(a_key_that_may_not_be_invalidated);
    RUN(a_binding_that_begins_behind_a_repeated_packet);
    RUN(windows_over_a_bad_channel);
    RUN(over_an_unreliable_connection);
    RUN(a_null_region_gives_zeros_and_takes_everything);
    return 0;
}
