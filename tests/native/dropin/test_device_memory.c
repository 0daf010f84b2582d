// SPDX-License-Identifier: Apache-2.0
/* Device memory: copies, regions, atomics, and what is refused. */
#include "pair.h"

enum {
    EVERY = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
        IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED,
    BYTES = 4096
};

static struct pair pair;

static struct ibv_dm *alloc(size_t length)
{
    struct ibv_alloc_dm_attr attr = {.length = length, .log_align_req = 6};

    return ibv_alloc_dm(pair.context, &attr);
}

static void copies(void)
{
    struct ibv_dm *dm = alloc(BYTES);
    char text[16] = "", zeros[64] = "";

    CHECK(dm && dm->context == pair.context);
    CHECK_EQ(ibv_memcpy_from_dm(text, dm, 0, 16), 0);
    CHECK_EQ(memcmp(text, zeros, 16), 0);
    CHECK_EQ(ibv_memcpy_to_dm(dm, BYTES - 16, "device memory!!", 16), 0);
    CHECK_EQ(ibv_memcpy_from_dm(text, dm, BYTES - 16, 16), 0);
    CHECK_EQ(strcmp(text, "device memory!!"), 0);
    CHECK_EQ(ibv_memcpy_to_dm(dm, 2, text, 4), EINVAL);
    CHECK_EQ(ibv_memcpy_to_dm(dm, 4, text, 3), EINVAL);
    CHECK_EQ(ibv_memcpy_to_dm(dm, BYTES - 12, text, 16), EINVAL);
    CHECK_EQ(ibv_memcpy_from_dm(text, dm, UINT64_MAX - 3, 8), EINVAL);
    CHECK_EQ(ibv_free_dm(dm), 0);
}

static void requests(void)
{
    struct ibv_dm *dm = alloc(BYTES);
    struct ibv_mr *mr = ibv_reg_dm_mr(pair.pd, dm, 1024, 2048, EVERY);
    struct ibv_sge sge = {(uintptr_t)pair.memory, 8, pair.mr->lkey};
    struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .send_flags = IBV_SEND_SIGNALED};
    uint64_t word = 41;
    struct ibv_wc wc;

    CHECK(mr);
    CHECK_EQ(mr->length, 2048);
    memcpy(pair.memory, &word, 8);
    wr.wr.rdma.remote_addr = 16;
    wr.wr.rdma.rkey = mr->rkey;
    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
    pair_poll(&pair, &wc);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.wr.atomic.remote_addr = 16;
    wr.wr.atomic.rkey = mr->rkey;
    wr.wr.atomic.compare_add = 1;
    memset(pair.memory, 0, 8);
    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
    pair_poll(&pair, &wc);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    memcpy(&word, pair.memory, 8);
    CHECK_EQ(word, 41);
    CHECK_EQ(ibv_memcpy_from_dm(&word, dm, 1024 + 16, 8), 0);
    CHECK_EQ(word, 42);
    sge = (struct ibv_sge){16, 8, mr->lkey}; /* as a local element */
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma.remote_addr = (uintptr_t)pair.memory + 64;
    wr.wr.rdma.rkey = pair.mr->rkey;
    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
    pair_poll(&pair, &wc);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(pair.memory[64], 42);
    CHECK_EQ(ibv_free_dm(dm), EBUSY);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_free_dm(dm), 0);
}

static void refusals(void)
{
    struct ibv_alloc_dm_attr attr = {.length = 64};
    struct ibv_device_attr_ex device;
    struct ibv_dm *dm = alloc(64), *most;

    CHECK_EQ(ibv_query_device_ex(pair.context, NULL, &device), 0);
    CHECK(!ibv_reg_dm_mr(pair.pd, dm, 0, 68, EVERY));
    CHECK_EQ(errno, EINVAL);
    CHECK(!ibv_reg_dm_mr(pair.pd, dm, 65, 0, EVERY));
    CHECK(!ibv_reg_dm_mr(pair.pd, dm, 0, 64, IBV_ACCESS_LOCAL_WRITE)); /* zero-based alone */
    CHECK(!ibv_reg_dm_mr(pair.pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND));
    attr.comp_mask = 1;
    CHECK(!ibv_alloc_dm(pair.context, &attr));
    CHECK_EQ(errno, EINVAL);
    attr = (struct ibv_alloc_dm_attr){.length = 64, .log_align_req = 40};
    CHECK(!ibv_alloc_dm(pair.context, &attr));
    CHECK(!alloc(0));
    CHECK_EQ(errno, EINVAL);
    CHECK(!alloc(device.max_dm_size + 1));
    CHECK_EQ(errno, EINVAL);
    CHECK(!alloc(device.max_dm_size)); /* 64 bytes of it are in use */
    CHECK_EQ(errno, ENOMEM);
    most = alloc(device.max_dm_size - 64);
    CHECK(most);
    CHECK_EQ(ibv_free_dm(dm), 0);
    CHECK_EQ(ibv_free_dm(most), 0);
    most = alloc(device.max_dm_size);
    CHECK(most);
    CHECK_EQ(ibv_free_dm(most), 0);
}

int main(void)
{
    pair_open(&pair);
    RUN(copies);
    RUN(requests);
    RUN(refusals);
    pair_close(&pair);
    return 0;
}
