// SPDX-License-Identifier: Apache-2.0
/* Memory windows of both types, and SEND with Invalidate. */
#include "pair.h"

enum { AT = 1024, LENGTH = 512, RECEIVE_AT = 3072 };

static struct pair pair;
static struct ibv_mr *bindable; /* all of the memory, for windows */
static struct ibv_mw *mw;

/* ---- requests ---- */

static void open_all(enum ibv_mw_type type)
{
    pair_open(&pair);
    bindable =
        ibv_reg_mr(pair.pd, pair.memory, PAIR_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    CHECK(bindable);
    mw = ibv_alloc_mw(pair.pd, type);
    CHECK(mw);
    CHECK(mw->pd == pair.pd && mw->context == pair.context);
    CHECK_EQ(mw->type, type);
}

static void close_all(void)
{
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
    CHECK_EQ(ibv_dereg_mr(bindable), 0);
    pair_close(&pair);
}

static void expect(uint64_t wr_id, enum ibv_wc_status status, enum ibv_wc_opcode opcode)
{
    struct ibv_wc wc;

    pair_poll(&pair, &wc);
    CHECK_EQ(wc.status, status);
    CHECK_EQ(wc.wr_id, wr_id);
    if (status == IBV_WC_SUCCESS)
        CHECK_EQ(wc.opcode, opcode);
}

static void post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;

    wr->wr_id = 7;
    wr->send_flags |= IBV_SEND_SIGNALED;
    CHECK_EQ(ibv_post_send(qp, wr, &bad), 0);
}

static struct ibv_mw_bind_info info(size_t at, size_t length, unsigned access)
{
    return (struct ibv_mw_bind_info){.mr = bindable,
                                     .addr = (uintptr_t)pair.memory + at,
                                     .length = length,
                                     .mw_access_flags = access};
}

/* Type 2, through the side that owns the memory; the key that it has then. */
static uint32_t bind_2(struct ibv_mw_bind_info bind, enum ibv_wc_status status)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW,
                             .bind_mw = {mw, ibv_inc_rkey(mw->rkey), bind}};

    post(pair.qp[1], &wr);
    expect(7, status, IBV_WC_BIND_MW);
    if (status == IBV_WC_SUCCESS)
        mw->rkey = wr.bind_mw.rkey;
    return wr.bind_mw.rkey;
}

static void local_inv(uint32_t rkey, enum ibv_wc_status status)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = rkey};

    post(pair.qp[1], &wr);
    expect(7, status, IBV_WC_LOCAL_INV);
}

/* One request of the other side's through the window. */
static void reach(enum ibv_wr_opcode opcode, uint64_t addr, uint32_t rkey, uint32_t length,
                  enum ibv_wc_status status)
{
    static const enum ibv_wc_opcode completes[] = {
        [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
        [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
        [IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
    };
    struct ibv_sge sge = {(uintptr_t)pair.memory, length, pair.mr->lkey};
    struct ibv_send_wr wr = {.opcode = opcode, .sg_list = &sge, .num_sge = 1};

    pair_aim(&wr, addr, rkey);
    post(pair.qp[0], &wr);
    expect(7, status, completes[opcode]);
}

static uint64_t at(size_t offset)
{
    return (uintptr_t)pair.memory + offset;
}

/* After an error both ends start anew. */
static void reconnect(void)
{
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

    for (int i = 0; i < 2; ++i)
        CHECK_EQ(ibv_modify_qp(pair.qp[i], &reset, IBV_QP_STATE), 0);
    pair_connect(&pair, pair.qp[0], pair.qp[1]->qp_num);
    pair_connect(&pair, pair.qp[1], pair.qp[0]->qp_num);
}

/* ---- type 2 ---- */

enum { EVERY = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

static void a_window_opens_what_it_is_bound_to(void)
{
    uint32_t key;

    open_all(IBV_MW_TYPE_2);
    key = bind_2(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS);
    memcpy(pair.memory, "through", 8);
    reach(IBV_WR_RDMA_WRITE, at(AT), key, 8, IBV_WC_SUCCESS);
    CHECK_EQ(strcmp((char *)pair.memory + AT, "through"), 0);
    memset(pair.memory, 0, 8);
    reach(IBV_WR_RDMA_READ, at(AT), key, 8, IBV_WC_SUCCESS);
    CHECK_EQ(strcmp((char *)pair.memory, "through"), 0);
    memset(pair.memory + AT + 8, 0, 8);
    reach(IBV_WR_ATOMIC_FETCH_AND_ADD, at(AT + 8), key, 8, IBV_WC_SUCCESS);
    CHECK_EQ(pair.memory[AT + 8], 1);
    reach(IBV_WR_RDMA_WRITE, at(AT + LENGTH - 8), key, 8, IBV_WC_SUCCESS);
    reach(IBV_WR_RDMA_WRITE, at(AT + LENGTH - 8), key, 9, IBV_WC_REM_ACCESS_ERR);
    reconnect();
    close_all();
}

static void below_its_range_and_beyond_its_access_is_an_error(void)
{
    uint32_t key;

    open_all(IBV_MW_TYPE_2);
    key = bind_2(info(AT, LENGTH, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
    reach(IBV_WR_RDMA_READ, at(AT - 1), key, 8, IBV_WC_REM_ACCESS_ERR);
    reconnect();
    key = bind_2(info(AT, LENGTH, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
    reach(IBV_WR_RDMA_WRITE, at(AT), key, 8, IBV_WC_REM_ACCESS_ERR);
    reconnect();
    close_all();
}

static void a_window_is_no_local_key(void)
{
    struct ibv_sge sge = {at(AT), 8, 0};
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1};

    open_all(IBV_MW_TYPE_2);
    sge.addr = at(AT);
    sge.lkey = bind_2(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS);
    wr.wr.rdma.remote_addr = at(0);
    wr.wr.rdma.rkey = pair.mr->rkey;
    post(pair.qp[1], &wr);
    expect(7, IBV_WC_LOC_PROT_ERR, 0);
    reconnect();
    close_all();
}

static void an_invalidated_window_opens_nothing(void)
{
    uint32_t key;

    open_all(IBV_MW_TYPE_2);
    key = bind_2(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS);
    local_inv(key, IBV_WC_SUCCESS);
    reach(IBV_WR_RDMA_WRITE, at(AT), key, 8, IBV_WC_REM_ACCESS_ERR);
    reconnect();
    key = bind_2(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS); /* free again */
    reach(IBV_WR_RDMA_WRITE, at(AT), key, 8, IBV_WC_SUCCESS);
    close_all();
}

static void only_a_bound_window_can_be_invalidated(void)
{
    uint32_t key;

    open_all(IBV_MW_TYPE_2);
    local_inv(mw->rkey, IBV_WC_LOC_QP_OP_ERR);
    reconnect();
    local_inv(bindable->rkey, IBV_WC_LOC_QP_OP_ERR);
    reconnect();
    key = bind_2(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS);
    local_inv(key, IBV_WC_SUCCESS);
    local_inv(key, IBV_WC_LOC_QP_OP_ERR);
    reconnect();
    close_all();
}

static void a_bound_window_is_not_bound_again(void)
{
    open_all(IBV_MW_TYPE_2);
    bind_2(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS);
    bind_2(info(AT, LENGTH, EVERY), IBV_WC_MW_BIND_ERR);
    reconnect();
    close_all();
}

/* It was bound through the QP's earlier life. */
static void a_reset_frees_the_window(void)
{
    uint32_t key;

    open_all(IBV_MW_TYPE_2);
    key = bind_2(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS);
    CHECK_EQ(ibv_dereg_mr(bindable), EBUSY);
    reconnect();
    reach(IBV_WR_RDMA_WRITE, at(AT), key, 8, IBV_WC_REM_ACCESS_ERR);
    reconnect();
    bind_2(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS);
    close_all();
}

static void a_destroyed_queue_pair_frees_it_too(void)
{
    struct ibv_qp *qp;

    open_all(IBV_MW_TYPE_2);
    bind_2(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS);
    qp = pair_qp(&pair, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
    CHECK_EQ(ibv_destroy_qp(pair.qp[1]), 0);
    pair.qp[1] = qp;
    CHECK_EQ(ibv_dereg_mr(bindable), 0);
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
    pair_close(&pair);
}

static void it_opens_only_to_the_queue_pair_that_bound_it(void)
{
    struct ibv_qp *other[2];
    struct ibv_sge sge;
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1};

    open_all(IBV_MW_TYPE_2);
    for (int i = 0; i < 2; ++i)
        other[i] = pair_qp(&pair, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
    pair_connect(&pair, other[0], other[1]->qp_num);
    pair_connect(&pair, other[1], other[0]->qp_num);
    wr.wr.rdma.rkey = bind_2(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS);
    wr.wr.rdma.remote_addr = at(AT);
    sge = (struct ibv_sge){at(0), 8, pair.mr->lkey};
    post(other[0], &wr);
    expect(7, IBV_WC_REM_ACCESS_ERR, 0);
    reach(IBV_WR_RDMA_WRITE, at(AT), wr.wr.rdma.rkey, 8, IBV_WC_SUCCESS);
    for (int i = 0; i < 2; ++i)
        CHECK_EQ(ibv_destroy_qp(other[i]), 0);
    close_all();
}

static void the_program_chooses_the_low_byte_alone(void)
{
    struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_BIND_MW};

    open_all(IBV_MW_TYPE_2);
    wr.bind_mw.mw = mw;
    wr.bind_mw.bind_info = info(AT, LENGTH, EVERY);
    wr.bind_mw.rkey = mw->rkey ^ 0x100;
    CHECK_EQ(ibv_post_send(pair.qp[1], &wr, &bad), EINVAL);
    CHECK(bad == &wr);
    wr.bind_mw.mw = NULL;
    CHECK_EQ(ibv_post_send(pair.qp[1], &wr, &bad), EINVAL);
    mw->rkey ^= 0x55;
    reach(IBV_WR_RDMA_WRITE, at(AT), bind_2(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS), 8,
          IBV_WC_SUCCESS);
    close_all();
}

static void a_zero_based_window_counts_from_its_start(void)
{
    uint32_t key;

    open_all(IBV_MW_TYPE_2);
    key = bind_2(info(AT, LENGTH, EVERY | IBV_ACCESS_ZERO_BASED), IBV_WC_SUCCESS);
    memcpy(pair.memory, "zero", 5);
    reach(IBV_WR_RDMA_WRITE, 16, key, 5, IBV_WC_SUCCESS);
    CHECK_EQ(strcmp((char *)pair.memory + AT + 16, "zero"), 0);
    reach(IBV_WR_RDMA_WRITE, LENGTH, key, 1, IBV_WC_REM_ACCESS_ERR);
    reconnect();
    close_all();
}

/* Each with what is wrong with it. */
static void bindings_that_are_refused(void)
{
    struct ibv_mr *plain, *zero_based, *read_only;
    struct ibv_mw_bind_info bind;

    open_all(IBV_MW_TYPE_2);
    plain = ibv_reg_mr(pair.pd, pair.memory, PAIR_BYTES, IBV_ACCESS_LOCAL_WRITE);
    zero_based =
        ibv_reg_mr(pair.pd, pair.memory, PAIR_BYTES, IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED);
    read_only = ibv_reg_mr(pair.pd, pair.memory, PAIR_BYTES, IBV_ACCESS_MW_BIND);
    CHECK(plain && zero_based && read_only);

    bind_2(info(AT, 0, EVERY), IBV_WC_MW_BIND_ERR); /* no bytes */
    reconnect();
    bind_2(info(AT, PAIR_BYTES, EVERY), IBV_WC_MW_BIND_ERR); /* beyond the region */
    reconnect();
    bind_2(info(AT, LENGTH, EVERY | IBV_ACCESS_ON_DEMAND), IBV_WC_MW_BIND_ERR);
    reconnect();
    bind = info(AT, LENGTH, IBV_ACCESS_REMOTE_READ);
    bind.mr = plain;
    bind_2(bind, IBV_WC_MW_BIND_ERR);
    reconnect();
    bind.mr = NULL;
    bind_2(bind, IBV_WC_MW_BIND_ERR);
    reconnect();
    bind.mr = zero_based;
    bind.addr = 0;
    bind_2(bind, IBV_WC_MW_BIND_ERR);
    reconnect();
    bind = info(AT, LENGTH, IBV_ACCESS_REMOTE_WRITE);
    bind.mr = read_only;
    bind_2(bind, IBV_WC_MW_BIND_ERR);
    reconnect();
    bind.mw_access_flags = IBV_ACCESS_REMOTE_READ;
    bind_2(bind, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_dereg_mr(read_only), EBUSY);
    local_inv(mw->rkey, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_dereg_mr(read_only), 0);
    CHECK_EQ(ibv_dereg_mr(zero_based), 0);
    CHECK_EQ(ibv_dereg_mr(plain), 0);
    close_all();
}

static void another_domains_window_is_refused(void)
{
    struct ibv_pd *pd;
    struct ibv_mw *own;

    open_all(IBV_MW_TYPE_2);
    pd = ibv_alloc_pd(pair.context);
    own = mw;
    mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    CHECK(mw);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    bind_2(info(AT, LENGTH, EVERY), IBV_WC_MW_BIND_ERR);
    reconnect();
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    mw = own;
    close_all();
}

/* The queue holds the requests until the drained queue may go on; each then does its part. */
static void requests_that_wait_are_carried_out_in_order(void)
{
    struct ibv_qp_attr to = {.qp_state = IBV_QPS_SQD};
    struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW};
    struct ibv_send_wr inv = {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_FENCE};
    uint32_t key;

    open_all(IBV_MW_TYPE_2);
    key = ibv_inc_rkey(mw->rkey);
    bind.bind_mw.mw = mw;
    bind.bind_mw.rkey = inv.invalidate_rkey = key;
    bind.bind_mw.bind_info = info(AT, LENGTH, EVERY);
    CHECK_EQ(ibv_modify_qp(pair.qp[1], &to, IBV_QP_STATE), 0);
    post(pair.qp[1], &bind);
    post(pair.qp[1], &inv);
    post(pair.qp[1], &bind);
    to.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(pair.qp[1], &to, IBV_QP_STATE), 0);
    expect(7, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
    expect(7, IBV_WC_SUCCESS, IBV_WC_LOCAL_INV);
    expect(7, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
    reach(IBV_WR_RDMA_WRITE, at(AT), key, 8, IBV_WC_SUCCESS);
    close_all();
}

static void a_window_goes_with_what_it_is_bound_to(void)
{
    uint32_t key;

    open_all(IBV_MW_TYPE_2);
    key = bind_2(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS);
    CHECK_EQ(ibv_dereg_mr(bindable), EBUSY);
    CHECK_EQ(ibv_rereg_mr(bindable, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
             IBV_REREG_MR_ERR_INPUT);
    CHECK_EQ(errno, EBUSY);
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
    reach(IBV_WR_RDMA_WRITE, at(AT), key, 8, IBV_WC_REM_ACCESS_ERR);
    reconnect();
    CHECK_EQ(ibv_dereg_mr(bindable), 0);
    pair_close(&pair);
}

/* ---- SEND with Invalidate ---- */

static void send_with_inv(uint32_t rkey, uint32_t length)
{
    struct ibv_sge sge = {at(0), length, pair.mr->lkey};
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_SEND_WITH_INV, .sg_list = &sge, .num_sge = 1, .invalidate_rkey = rkey};

    pair_post_recv(&pair, 9, RECEIVE_AT, LENGTH);
    post(pair.qp[0], &wr);
}

/* Both completions; which comes first is not said. */
static void poll_both(struct ibv_wc *sent, struct ibv_wc *received)
{
    struct ibv_wc wc[2];

    pair_poll(&pair, &wc[0]);
    pair_poll(&pair, &wc[1]);
    *sent = wc[wc[0].wr_id == 9];
    *received = wc[wc[0].wr_id != 9];
}

static void a_send_invalidates_the_peers_window(void)
{
    struct ibv_wc sent, received;

    for (uint32_t length = 8; length < LENGTH; length += 400) { /* within the completion, beside */
        open_all(IBV_MW_TYPE_2);
        memcpy(pair.memory, "message", 8);
        send_with_inv(bind_2(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS), length);
        poll_both(&sent, &received);
        CHECK_EQ(sent.status, IBV_WC_SUCCESS);
        CHECK_EQ(sent.opcode, IBV_WC_SEND);
        CHECK_EQ(received.status, IBV_WC_SUCCESS);
        CHECK_EQ(received.opcode, IBV_WC_RECV);
        CHECK_EQ(received.wc_flags, IBV_WC_WITH_INV);
        CHECK_EQ(received.invalidated_rkey, mw->rkey);
        CHECK_EQ(received.byte_len, length);
        CHECK_EQ(strcmp((char *)pair.memory + RECEIVE_AT, "message"), 0);
        reach(IBV_WR_RDMA_WRITE, at(AT), mw->rkey, 8, IBV_WC_REM_ACCESS_ERR);
        reconnect();
        CHECK_EQ(ibv_dereg_mr(bindable), 0);
        bindable = ibv_reg_mr(pair.pd, pair.memory, PAIR_BYTES, IBV_ACCESS_MW_BIND);
        close_all();
    }
}

static void refused_invalidation(uint32_t rkey)
{
    struct ibv_async_event event;
    struct ibv_wc sent, received;

    send_with_inv(rkey, 8);
    poll_both(&sent, &received);
    CHECK_EQ(sent.status, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(received.status, IBV_WC_LOC_QP_OP_ERR);
    do { /* after COMM_EST */
        CHECK_EQ(ibv_get_async_event(pair.context, &event), 0);
        ibv_ack_async_event(&event);
    } while (event.event_type == IBV_EVENT_COMM_EST);
    CHECK_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    CHECK(event.element.qp == pair.qp[1]);
    reconnect();
}

static void a_send_cannot_invalidate_anything_else(void)
{
    open_all(IBV_MW_TYPE_2);
    refused_invalidation(bindable->rkey);
    refused_invalidation(mw->rkey); /* not bound */
    refused_invalidation(0);
    reach(IBV_WR_RDMA_WRITE, at(AT), pair.mr->rkey, 8, IBV_WC_SUCCESS);
    close_all();
    open_all(IBV_MW_TYPE_1);
    {
        struct ibv_mw_bind bind = {.bind_info = info(AT, LENGTH, EVERY)};

        CHECK_EQ(ibv_bind_mw(pair.qp[1], mw, &bind), 0);
    }
    refused_invalidation(mw->rkey);
    close_all();
}

/* ---- type 1 ---- */

static uint32_t bind_1(struct ibv_mw_bind_info bind_info, enum ibv_wc_status status)
{
    struct ibv_mw_bind bind = {.wr_id = 7, .send_flags = IBV_SEND_SIGNALED, .bind_info = bind_info};

    CHECK_EQ(ibv_bind_mw(pair.qp[1], mw, &bind), 0);
    expect(7, status, IBV_WC_BIND_MW);
    return mw->rkey;
}

static void a_new_binding_ends_the_old_one(void)
{
    uint32_t first, second;

    open_all(IBV_MW_TYPE_1);
    first = bind_1(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS);
    reach(IBV_WR_RDMA_WRITE, at(AT), first, 8, IBV_WC_SUCCESS);
    second = bind_1(info(AT + LENGTH, LENGTH, EVERY), IBV_WC_SUCCESS);
    CHECK(first != second);
    CHECK_EQ(first >> 8, second >> 8);
    reach(IBV_WR_RDMA_WRITE, at(AT + LENGTH), second, 8, IBV_WC_SUCCESS);
    reach(IBV_WR_RDMA_WRITE, at(AT), first, 8, IBV_WC_REM_ACCESS_ERR);
    reconnect();
    reach(IBV_WR_RDMA_WRITE, at(AT + LENGTH), second, 8, IBV_WC_SUCCESS); /* of any QP */
    close_all();
}

/* Through a queue pair that takes no requests yet. */
static void a_binding_that_is_refused_leaves_the_old_one(void)
{
    struct ibv_mw_bind bind = {0};
    struct ibv_qp *fresh;
    uint32_t key;

    open_all(IBV_MW_TYPE_1);
    fresh = pair_qp(&pair, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
    CHECK(fresh);
    key = bind_1(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS);
    bind.bind_info = info(AT, LENGTH, EVERY);
    CHECK_EQ(ibv_bind_mw(fresh, mw, &bind), EINVAL);
    CHECK_EQ(mw->rkey, key);
    reach(IBV_WR_RDMA_WRITE, at(AT), key, 8, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_destroy_qp(fresh), 0);
    close_all();
}

static void a_binding_without_bytes_ends_the_old_one_too(void)
{
    uint32_t key;

    open_all(IBV_MW_TYPE_1);
    key = bind_1(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS);
    CHECK_EQ(ibv_dereg_mr(bindable), EBUSY);
    bind_1((struct ibv_mw_bind_info){0}, IBV_WC_SUCCESS);
    reach(IBV_WR_RDMA_WRITE, at(AT), key, 8, IBV_WC_REM_ACCESS_ERR);
    reconnect();
    reach(IBV_WR_RDMA_WRITE, at(AT), mw->rkey, 8, IBV_WC_REM_ACCESS_ERR);
    reconnect();
    CHECK_EQ(ibv_dereg_mr(bindable), 0);
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
    pair_close(&pair);
}

static void of_several_that_wait_the_last_counts(void)
{
    struct ibv_qp_attr to = {.qp_state = IBV_QPS_SQD};
    struct ibv_mw_bind bind;
    uint32_t first;

    open_all(IBV_MW_TYPE_1);
    bind = (struct ibv_mw_bind){.wr_id = 7, .send_flags = IBV_SEND_SIGNALED};
    bind.bind_info = info(AT, LENGTH, EVERY);
    CHECK_EQ(ibv_modify_qp(pair.qp[1], &to, IBV_QP_STATE), 0);
    CHECK_EQ(ibv_bind_mw(pair.qp[1], mw, &bind), 0);
    first = mw->rkey;
    bind.bind_info = info(AT + LENGTH, LENGTH, EVERY);
    CHECK_EQ(ibv_bind_mw(pair.qp[1], mw, &bind), 0);
    to.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(pair.qp[1], &to, IBV_QP_STATE), 0);
    expect(7, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
    expect(7, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
    reach(IBV_WR_RDMA_WRITE, at(AT + LENGTH), mw->rkey, 8, IBV_WC_SUCCESS);
    reach(IBV_WR_RDMA_WRITE, at(AT), first, 8, IBV_WC_REM_ACCESS_ERR);
    reconnect();
    close_all();
}

static void calls_that_are_refused(void)
{
    struct ibv_mw_bind bind = {0};
    struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_BIND_MW};

    open_all(IBV_MW_TYPE_1);
    bind.bind_info = info(AT, LENGTH, EVERY | IBV_ACCESS_ZERO_BASED);
    CHECK_EQ(ibv_bind_mw(pair.qp[1], mw, &bind), EINVAL);
    bind.bind_info = info(AT, LENGTH, EVERY);
    bind.bind_info.mr = NULL;
    CHECK_EQ(ibv_bind_mw(pair.qp[1], mw, &bind), EINVAL);
    wr.bind_mw.mw = mw; /* by a request only type 2 */
    wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    wr.bind_mw.bind_info = info(AT, LENGTH, EVERY);
    CHECK_EQ(ibv_post_send(pair.qp[1], &wr, &bad), EINVAL);
    CHECK(!ibv_alloc_mw(pair.pd, 3));
    CHECK_EQ(errno, EINVAL);
    close_all();
    open_all(IBV_MW_TYPE_2);
    CHECK_EQ(ibv_bind_mw(pair.qp[1], mw, &bind), EINVAL);
    close_all();
}

/* ---- the extended calls ---- */

static void the_extended_calls_do_the_same(void)
{
    const uint64_t ops =
        IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;
    struct ibv_mw_bind_info bind;
    struct ibv_qp_ex *owner, *other;
    struct ibv_wc sent, received;
    uint32_t key;

    open_all(IBV_MW_TYPE_2);
    for (int i = 0; i < 2; ++i) {
        CHECK_EQ(ibv_destroy_qp(pair.qp[i]), 0);
        pair.qp[i] = pair_qp(&pair, IBV_QPT_RC, ops);
        CHECK(pair.qp[i]);
    }
    pair_connect(&pair, pair.qp[0], pair.qp[1]->qp_num);
    pair_connect(&pair, pair.qp[1], pair.qp[0]->qp_num);
    owner = ibv_qp_to_qp_ex(pair.qp[1]);
    other = ibv_qp_to_qp_ex(pair.qp[0]);
    key = ibv_inc_rkey(mw->rkey);
    bind = info(AT, LENGTH, EVERY);
    owner->wr_id = other->wr_id = 7;
    owner->wr_flags = other->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_start(owner);
    ibv_wr_bind_mw(owner, mw, key, &bind);
    ibv_wr_local_inv(owner, key);
    ibv_wr_bind_mw(owner, mw, key, &bind);
    CHECK_EQ(ibv_wr_complete(owner), 0);
    expect(7, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
    expect(7, IBV_WC_SUCCESS, IBV_WC_LOCAL_INV);
    expect(7, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
    reach(IBV_WR_RDMA_WRITE, at(AT), key, 8, IBV_WC_SUCCESS);
    pair_post_recv(&pair, 9, RECEIVE_AT, LENGTH);
    ibv_wr_start(other);
    ibv_wr_send_inv(other, key);
    ibv_wr_set_inline_data(other, "gone", 5);
    CHECK_EQ(ibv_wr_complete(other), 0);
    poll_both(&sent, &received);
    CHECK_EQ(received.invalidated_rkey, key);
    CHECK_EQ(strcmp((char *)pair.memory + RECEIVE_AT, "gone"), 0);
    close_all();
}

static void the_device_says_so(void)
{
    struct ibv_device_attr attr;

    pair_open(&pair);
    CHECK_EQ(ibv_query_device(pair.context, &attr), 0);
    CHECK(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
    CHECK(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
    CHECK(attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS);
    CHECK(!(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A));
    CHECK(attr.max_mw > 0);
    pair_close(&pair);
}

/* What the program leaves goes with the context. */
static void a_context_takes_bound_windows_with_it(void)
{
    open_all(IBV_MW_TYPE_2);
    bind_2(info(AT, LENGTH, EVERY), IBV_WC_SUCCESS);
    CHECK_EQ(ibv_close_device(pair.context), 0);
}

int main(void)
{
    RUN(a_window_opens_what_it_is_bound_to);
    RUN(below_its_range_and_beyond_its_access_is_an_error);
    RUN(a_window_is_no_local_key);
    RUN(an_invalidated_window_opens_nothing);
    RUN(only_a_bound_window_can_be_invalidated);
    RUN(a_bound_window_is_not_bound_again);
    RUN(a_reset_frees_the_window);
    RUN(a_destroyed_queue_pair_frees_it_too);
    RUN(it_opens_only_to_the_queue_pair_that_bound_it);
    RUN(the_program_chooses_the_low_byte_alone);
    RUN(a_zero_based_window_counts_from_its_start);
    RUN(bindings_that_are_refused);
    RUN(another_domains_window_is_refused);
    RUN(requests_that_wait_are_carried_out_in_order);
    RUN(a_window_goes_with_what_it_is_bound_to);
    RUN(a_send_invalidates_the_peers_window);
    RUN(a_send_cannot_invalidate_anything_else);
    RUN(a_new_binding_ends_the_old_one);
    RUN(a_binding_that_is_refused_leaves_the_old_one);
    RUN(a_binding_without_bytes_ends_the_old_one_too);
    RUN(of_several_that_wait_the_last_counts);
    RUN(calls_that_are_refused);
    RUN(the_extended_calls_do_the_same);
    RUN(the_device_says_so);
    RUN(a_context_takes_bound_windows_with_it);
    return 0;
}
