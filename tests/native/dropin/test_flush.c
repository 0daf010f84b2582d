// SPDX-License-Identifier: Apache-2.0
/* ibv_wr_flush: newer than some rdma-core's header, so its names stand here. */
#include "pair.h"

enum {
    WR_FLUSH = 14,
    WC_FLUSH = 8,
    ACCESS_FLUSH_GLOBAL = 1 << 8,
    ACCESS_FLUSH_PERSISTENT = 1 << 9,
    WITH_FLUSH = 1 << 11,
    GLOBAL = 1,
    PERSISTENT = 2,
    RANGE = 0,
    WHOLE_MR = 1,
};

/* wr_atomic_write is the last call of rdma-core 44's structure; wr_flush follows it at once. */
typedef void wr_flush_call(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len,
                           uint8_t type, uint8_t level);
enum { WR_FLUSH_AT = offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof(void *) };

static struct pair pair;
static struct ibv_qp_ex *qp;
static struct ibv_mr *mr;

static void reset(struct ibv_qp *each)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

    CHECK_EQ(ibv_modify_qp(each, &attr, IBV_QP_STATE), 0);
}

static void connect(void)
{
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | ACCESS_FLUSH_GLOBAL |
                                                  ACCESS_FLUSH_PERSISTENT};

    for (int i = 0; i < 2; ++i) {
        reset(pair.qp[i]);
        pair_connect(&pair, pair.qp[i], pair.qp[!i]->qp_num);
        CHECK_EQ(ibv_modify_qp(pair.qp[i], &attr, IBV_QP_ACCESS_FLAGS), 0);
    }
}

static void start(uint64_t wr_id)
{
    qp->wr_id = wr_id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_start(qp);
}

/* ibv_wr_flush, which older headers do not have. */
static void flush_at(uint64_t address, size_t length, uint8_t type, uint8_t level)
{
    wr_flush_call *call;

    memcpy(&call, (const char *)qp + WR_FLUSH_AT, sizeof(call));
    call(qp, mr->rkey, address, length, type, level);
}

static void flush(size_t offset, size_t length, uint8_t type, uint8_t level)
{
    flush_at((uintptr_t)pair.memory + offset, length, type, level);
}

static struct ibv_wc completed(uint64_t wr_id)
{
    struct ibv_wc wc;

    pair_poll(&pair, &wc);
    CHECK_EQ(wc.wr_id, wr_id);
    return wc;
}

static void open_all(void)
{
    pair_open(&pair);
    for (int i = 0; i < 2; ++i) {
        CHECK_EQ(ibv_destroy_qp(pair.qp[i]), 0);
        pair.qp[i] = pair_qp(&pair, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE | WITH_FLUSH);
        CHECK(pair.qp[i]);
    }
    connect();
    qp = ibv_qp_to_qp_ex(pair.qp[0]);
    mr = ibv_reg_mr(pair.pd, pair.memory, PAIR_BYTES,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | ACCESS_FLUSH_GLOBAL);
    CHECK(mr);
}

static void the_device_says_that_it_can(void)
{
    enum { ODP_FLUSH = 1 << 6 };
    struct ibv_device_attr_ex device;

    CHECK_EQ(ibv_query_device_ex(pair.context, NULL, &device), 0);
    CHECK_EQ(device.device_cap_flags_ex >> 38 & 3, 3); /* global and persistent, as soft-RoCE */
    CHECK(device.odp_caps.per_transport_caps.rc_odp_caps & ODP_FLUSH);
    CHECK(!(device.odp_caps.per_transport_caps.uc_odp_caps & ODP_FLUSH));
}

static void after_a_write_in_one_list(void)
{
    struct ibv_wc wc;

    strcpy((char *)pair.memory, "placed");
    start(1);
    ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)pair.memory + 512);
    ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)pair.memory, 7);
    qp->wr_id = 2;
    flush(512, 7, GLOBAL, RANGE);
    ibv_wr_set_sge(qp, 0, 0, 100); /* it has no payload: not looked at */
    qp->wr_id = 3;
    flush(0, 0, GLOBAL, WHOLE_MR);
    CHECK_EQ(ibv_wr_complete(qp), 0);
    CHECK_EQ(completed(1).opcode, IBV_WC_RDMA_WRITE);
    for (uint64_t id = 2; id < 4; ++id) {
        wc = completed(id);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ((int)wc.opcode, WC_FLUSH);
    }
    CHECK_EQ(strcmp((char *)pair.memory + 512, "placed"), 0);
}

static void what_there_is_not(void)
{
    struct ibv_wc wc;

    for (int i = 0; i < 3; ++i) {
        start(4);
        ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)pair.memory);
        flush(0, 8, i == 0 ? 0 : i == 1 ? 4 : GLOBAL, i == 2 ? 2 : RANGE);
        CHECK_EQ(ibv_wr_complete(qp), EINVAL);
    }
    CHECK_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(pair.cq), 1, &wc), 0);
    start(5); /* the next list is not spoiled */
    flush(0, 8, GLOBAL, RANGE);
    CHECK_EQ(ibv_wr_complete(qp), 0);
    CHECK_EQ(completed(5).status, IBV_WC_SUCCESS);
}

static void persistence_is_refused_by_the_region(void)
{
    start(6);
    flush(0, 8, PERSISTENT, RANGE);
    CHECK_EQ(ibv_wr_complete(qp), 0);
    CHECK_EQ(completed(6).status, IBV_WC_REM_ACCESS_ERR);
    connect();
    errno = 0;
    CHECK(!ibv_reg_mr(pair.pd, pair.memory, PAIR_BYTES,
                      IBV_ACCESS_LOCAL_WRITE | ACCESS_FLUSH_PERSISTENT));
    CHECK_EQ(errno, EINVAL);
}

static void only_where_it_was_asked_for(void)
{
    struct ibv_send_wr wr = {.wr_id = 7, .opcode = (enum ibv_wr_opcode)WR_FLUSH}, *bad = NULL;
    struct ibv_qp *other;

    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), EINVAL); /* it has no fields for it */
    CHECK(bad == &wr);
    CHECK(!pair_qp(&pair, IBV_QPT_UC, WITH_FLUSH));
    CHECK_EQ(errno, EOPNOTSUPP);
    CHECK(!pair_qp(&pair, IBV_QPT_UD, WITH_FLUSH));
    CHECK_EQ(errno, EOPNOTSUPP);
    other = pair_qp(&pair, IBV_QPT_XRC_SEND, WITH_FLUSH);
    CHECK(other);
    CHECK_EQ(ibv_destroy_qp(other), 0);
}

static void device_memory(void)
{
    struct ibv_alloc_dm_attr attr = {.length = 64};
    struct ibv_dm *dm = ibv_alloc_dm(pair.context, &attr);
    struct ibv_mr *plain = mr;

    CHECK(dm);
    mr = ibv_reg_dm_mr(pair.pd, dm, 0, 64,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED | ACCESS_FLUSH_GLOBAL);
    CHECK(mr);
    for (int i = 0; i < 2; ++i) {
        start(8);
        flush_at(1, 63 + (size_t)i, GLOBAL, RANGE);
        CHECK_EQ(ibv_wr_complete(qp), 0);
        CHECK_EQ(completed(8).status, i ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
    }
    connect();
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK(!ibv_reg_dm_mr(pair.pd, dm, 0, 64,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED | ACCESS_FLUSH_PERSISTENT));
    CHECK_EQ(ibv_free_dm(dm), 0);
    mr = plain;
}

int main(void)
{
    open_all();
    RUN(the_device_says_that_it_can);
    RUN(after_a_write_in_one_list);
    RUN(what_there_is_not);
    RUN(persistence_is_refused_by_the_region);
    RUN(only_where_it_was_asked_for);
    RUN(device_memory);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    pair_close(&pair);
    return 0;
}
