// SPDX-License-Identifier: Apache-2.0
/* Regions of every kind: zero-based, on demand, implicit, null, registered again; and advice. */
#include <stdbool.h>
#include <sys/mman.h>

#include "own_address.h"
#include "pair.h"

enum {
    EVERY = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
    BYTES = 1 << 16
};

static struct pair pair;

static enum ibv_wc_status write_to(struct ibv_sge sge, uint64_t addr, uint32_t rkey)
{
    struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {addr, rkey}};
    struct ibv_wc wc;

    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
    pair_poll(&pair, &wc);
    return wc.status;
}

static struct ibv_sge sge_of(const struct ibv_mr *mr, uint64_t addr, uint32_t length)
{
    return (struct ibv_sge){addr, length, mr->lkey};
}

static struct ibv_sge own(size_t offset, uint32_t length)
{
    return sge_of(pair.mr, (uintptr_t)pair.memory + offset, length);
}

static void reconnect(void)
{
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

    for (int i = 0; i < 2; ++i)
        CHECK_EQ(ibv_modify_qp(pair.qp[i], &reset, IBV_QP_STATE), 0);
    pair_connect(&pair, pair.qp[0], pair.qp[1]->qp_num);
    pair_connect(&pair, pair.qp[1], pair.qp[0]->qp_num);
}

static uint8_t *map(void)
{
    return own_address_map(BYTES);
}

static void addresses_begin_where_the_program_says(void)
{
    uint8_t *memory = map();
    struct ibv_mr *zero, *moved;

    zero = ibv_reg_mr(pair.pd, memory, BYTES, EVERY | IBV_ACCESS_ZERO_BASED);
    moved = ibv_reg_mr_iova(pair.pd, memory, BYTES, 0x7000, EVERY);
    CHECK(zero && moved);
    memcpy(pair.memory, "based", 6);
    CHECK_EQ(write_to(own(0, 6), 32, zero->rkey), IBV_WC_SUCCESS);
    CHECK_EQ(strcmp((char *)memory + 32, "based"), 0);
    CHECK_EQ(write_to(sge_of(zero, 32, 6), 0x7040, moved->rkey), IBV_WC_SUCCESS);
    CHECK_EQ(strcmp((char *)memory + 64, "based"), 0);
    CHECK_EQ(write_to(own(0, 6), (uintptr_t)memory, zero->rkey), IBV_WC_REM_ACCESS_ERR);
    reconnect();
    CHECK_EQ(write_to(own(0, 6), 0x7000 - 1, moved->rkey), IBV_WC_REM_ACCESS_ERR);
    reconnect();
    CHECK_EQ(ibv_dereg_mr(zero), 0);
    CHECK_EQ(ibv_dereg_mr(moved), 0);
    munmap(memory, BYTES);
}

static void optional_access_is_ignored(void)
{
    uint8_t *memory = map();
    struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, BYTES, EVERY | IBV_ACCESS_RELAXED_ORDERING);

    CHECK(mr);
    CHECK_EQ(write_to(own(0, 6), (uintptr_t)memory, mr->rkey), IBV_WC_SUCCESS);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK(!ibv_reg_mr(pair.pd, memory, BYTES, 1 << 19));
    CHECK_EQ(errno, EINVAL);
    munmap(memory, BYTES);
}

/* Registered before it is there, and used when it is; what is not there is an error. */
static void on_demand_means_when_it_is_used(void)
{
    uint8_t *memory = map();
    struct ibv_mr *mr;

    munmap(memory, BYTES);
    CHECK(!ibv_reg_mr(pair.pd, memory, BYTES, EVERY));
    CHECK_EQ(errno, EFAULT);
    mr = ibv_reg_mr(pair.pd, memory, BYTES, EVERY | IBV_ACCESS_ON_DEMAND);
    CHECK(mr);
    CHECK_EQ(write_to(own(0, 8), (uintptr_t)memory, mr->rkey), IBV_WC_REM_OP_ERR);
    reconnect();
    CHECK_EQ(write_to(sge_of(mr, (uintptr_t)memory, 8), (uintptr_t)pair.memory, pair.mr->rkey),
             IBV_WC_LOC_PROT_ERR);
    reconnect();
    CHECK(mmap(memory, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
               0) == memory);
    memcpy(pair.memory, "demand", 7);
    CHECK_EQ(write_to(own(0, 7), (uintptr_t)memory + 5000, mr->rkey), IBV_WC_SUCCESS);
    CHECK_EQ(strcmp((char *)memory + 5000, "demand"), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    munmap(memory, BYTES);
}

static void an_implicit_region_is_all_of_memory(void)
{
    uint8_t *memory = map();
    struct ibv_mr *all = ibv_reg_mr(pair.pd, NULL, SIZE_MAX,
                                    EVERY | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ON_DEMAND);

    CHECK(all);
    memcpy(memory, "implicit", 9);
    CHECK_EQ(write_to(sge_of(all, (uintptr_t)memory, 9), (uintptr_t)memory + 100, all->rkey),
             IBV_WC_SUCCESS);
    CHECK_EQ(strcmp((char *)memory + 100, "implicit"), 0);
    CHECK_EQ(write_to(own(0, 8), 8, all->rkey), IBV_WC_REM_OP_ERR); /* no page is there */
    reconnect();
    CHECK_EQ(write_to(own(0, 8), UINT64_MAX - 3, all->rkey), IBV_WC_REM_ACCESS_ERR);
    reconnect();
    CHECK_EQ(ibv_dereg_mr(all), 0);
    CHECK(!ibv_reg_mr(pair.pd, NULL, SIZE_MAX, EVERY)); /* only on demand */
    CHECK_EQ(errno, EINVAL);
    munmap(memory, BYTES);
}

static void the_device_says_what_it_pages(void)
{
    enum { ODP_FLUSH = 1 << 6, ODP_ATOMIC_WRITE = 1 << 7 }; /* newer than some rdma-core's header */
    struct ibv_device_attr_ex attr;

    CHECK_EQ(ibv_query_device_ex(pair.context, NULL, &attr), 0);
    CHECK_EQ(attr.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
    CHECK_EQ(attr.odp_caps.per_transport_caps.rc_odp_caps,
             IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
                 IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV |
                 ODP_FLUSH | ODP_ATOMIC_WRITE);
    CHECK(!(attr.odp_caps.per_transport_caps.ud_odp_caps & IBV_ODP_SUPPORT_WRITE));
}

static int advise(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                  struct ibv_sge sge)
{
    return ibv_advise_mr(pd, advice, flags, &sge, 1);
}

static void advice(void)
{
    const uint32_t flush = IBV_ADVISE_MR_FLAG_FLUSH;
    struct ibv_pd *other = ibv_alloc_pd(pair.context);
    uint8_t *memory = map();
    struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, BYTES, EVERY | IBV_ACCESS_ON_DEMAND);
    struct ibv_mr *fixed = ibv_reg_mr(pair.pd, memory, BYTES, IBV_ACCESS_ON_DEMAND);
    struct ibv_sge range = sge_of(mr, (uintptr_t)memory, BYTES);
    uint8_t there[BYTES / 4096];

    for (int a = IBV_ADVISE_MR_ADVICE_PREFETCH; a <= IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT; ++a)
        for (uint32_t flags = 0; flags <= flush; ++flags)
            CHECK_EQ(advise(pair.pd, (enum ibv_advise_mr_advice)a, flags, range), 0);
    CHECK_EQ(mincore(memory, BYTES, there), 0);
    for (size_t i = 0; i < sizeof(there); ++i)
        CHECK(there[i] & 1);
    CHECK_EQ(advise(pair.pd, 7, flush, range), EOPNOTSUPP);
    CHECK_EQ(advise(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, range), EINVAL);
    CHECK_EQ(ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, NULL, 0), EINVAL);
    CHECK_EQ(advise(other, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, range), EPERM);
    CHECK_EQ(advise(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, own(0, 8)), EINVAL);
    CHECK_EQ(advise(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, flush,
                    sge_of(fixed, (uintptr_t)memory, 8)),
             EPERM);
    range.length = BYTES + 1;
    CHECK_EQ(advise(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, range), EINVAL);
    range.length = BYTES;
    munmap(memory + 8192, 4096);
    CHECK_EQ(advise(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, range), EFAULT);
    CHECK_EQ(advise(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, range), 0); /* a hint */
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(advise(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, range), ENOENT);
    CHECK_EQ(ibv_dereg_mr(fixed), 0);
    CHECK_EQ(ibv_dealloc_pd(other), 0);
    munmap(memory, BYTES);
}

static void a_null_region(void)
{
    struct ibv_mr *null = ibv_alloc_null_mr(pair.pd);
    struct ibv_sge two[2];
    struct ibv_recv_wr recv = {.sg_list = two, .num_sge = 2}, *bad_recv;
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .num_sge = 1}, *bad;
    struct ibv_sge from = own(0, 300), stale;
    struct ibv_wc wc;

    CHECK(null);
    memset(pair.memory, 0x33, 600);
    CHECK_EQ(write_to(sge_of(null, 0, 100), (uintptr_t)pair.memory, pair.mr->rkey), IBV_WC_SUCCESS);
    for (int i = 0; i < 100; ++i)
        CHECK_EQ(pair.memory[i], 0);
    CHECK_EQ(pair.memory[100], 0x33);
    two[0] = sge_of(null, UINT64_MAX, 200); /* of a message, the first part is not wanted */
    two[1] = own(1024, 100);
    send.sg_list = &from;
    memset(pair.memory + 200, 0x44, 100);
    CHECK_EQ(ibv_post_recv(pair.qp[1], &recv, &bad_recv), 0);
    CHECK_EQ(ibv_post_send(pair.qp[0], &send, &bad), 0);
    pair_poll(&pair, &wc);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.byte_len, 300);
    CHECK_EQ(pair.memory[1024], 0x44);
    CHECK_EQ(pair.memory[1123], 0x44);
    CHECK_EQ(write_to(sge_of(null, 0, 100), (uintptr_t)pair.memory, pair.mr->rkey), IBV_WC_SUCCESS);
    CHECK_EQ(pair.memory[99], 0); /* what was written to it is nowhere */
    CHECK_EQ(write_to(own(0, 8), 0, null->lkey), IBV_WC_REM_ACCESS_ERR);
    reconnect();
    stale = sge_of(null, 0, 8);
    CHECK_EQ(ibv_dereg_mr(null), 0);
    CHECK_EQ(write_to(stale, (uintptr_t)pair.memory, pair.mr->rkey), IBV_WC_LOC_PROT_ERR);
    reconnect();
}

/* Each way to be wrong leaves the region as it was (man ibv_rereg_mr). */
static void what_cannot_be_registered_again(void)
{
    uint8_t *memory = map();
    struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, BYTES, EVERY);
    struct ibv_mr *null = ibv_alloc_null_mr(pair.pd);
    uint32_t key = mr->rkey;
    const struct {
        int flags;
        void *addr;
        size_t length;
        int access;
    } wrong[] = {
        {0, NULL, 0, 0},
        {8, NULL, 0, 0},
        {IBV_REREG_MR_CHANGE_TRANSLATION, NULL, BYTES, 0},
        {IBV_REREG_MR_CHANGE_TRANSLATION, memory, 0, 0},
        {IBV_REREG_MR_CHANGE_TRANSLATION, (void *)4096, BYTES, 0},
        {IBV_REREG_MR_CHANGE_TRANSLATION, memory, BYTES, EVERY},
        {IBV_REREG_MR_CHANGE_PD, NULL, 0, 0},
        {IBV_REREG_MR_CHANGE_ACCESS, NULL, 0, IBV_ACCESS_REMOTE_WRITE},
        {IBV_REREG_MR_CHANGE_ACCESS, NULL, 0, 1 << 19},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); ++i) {
        errno = 0;
        CHECK_EQ(
            ibv_rereg_mr(mr, wrong[i].flags, NULL, wrong[i].addr, wrong[i].length, wrong[i].access),
            IBV_REREG_MR_ERR_INPUT);
        CHECK(errno == EINVAL || errno == EFAULT);
        CHECK_EQ(mr->rkey, key);
        CHECK_EQ(write_to(own(0, 8), (uintptr_t)memory, key), IBV_WC_SUCCESS);
    }
    CHECK_EQ(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, EVERY),
             IBV_REREG_MR_ERR_INPUT);
    CHECK_EQ(ibv_dereg_mr(null), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    munmap(memory, BYTES);
}

/* Each set of flags, and that what it does not name stays. */
static void registered_again(void)
{
    for (int flags = 1; flags <= IBV_REREG_MR_FLAGS_SUPPORTED; ++flags) {
        bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
        struct ibv_pd *other = ibv_alloc_pd(pair.context);
        uint8_t *memory = map(), *next = map();
        struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, BYTES, EVERY);
        uint8_t *now = moves ? next : memory;
        bool open = !(flags & (IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS));

        CHECK_EQ(ibv_rereg_mr(mr, flags, other, next, BYTES / 2,
                              flags & IBV_REREG_MR_CHANGE_ACCESS ? IBV_ACCESS_LOCAL_WRITE : 0),
                 0);
        CHECK(mr->addr == now);
        CHECK_EQ(mr->length, moves ? BYTES / 2 : BYTES);
        CHECK(mr->pd == (flags & IBV_REREG_MR_CHANGE_PD ? other : pair.pd));
        CHECK_EQ(write_to(own(0, 8), (uintptr_t)now, mr->rkey),
                 open ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
        if (!open)
            reconnect();
        CHECK_EQ(ibv_dealloc_pd(other), flags & IBV_REREG_MR_CHANGE_PD ? EBUSY : 0);
        CHECK_EQ(ibv_dereg_mr(mr), 0);
        if (flags & IBV_REREG_MR_CHANGE_PD)
            CHECK_EQ(ibv_dealloc_pd(other), 0);
        munmap(memory, BYTES);
        munmap(next, BYTES);
    }
}

static void registered_again_on_demand(void)
{
    uint8_t *memory = map();
    struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, BYTES, EVERY);

    munmap(memory, BYTES);
    CHECK_EQ(
        ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, EVERY | IBV_ACCESS_ON_DEMAND),
        0);
    CHECK_EQ(write_to(own(0, 8), (uintptr_t)memory, mr->rkey), IBV_WC_REM_OP_ERR);
    reconnect();
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void dma_bufs_are_not_offered(void)
{
    CHECK(!ibv_reg_dmabuf_mr(pair.pd, 0, 4096, 0, 0, EVERY));
    CHECK_EQ(errno, EOPNOTSUPP);
}

int main(void)
{
    pair_open(&pair);
    RUN(addresses_begin_where_the_program_says);
    RUN(optional_access_is_ignored);
    RUN(on_demand_means_when_it_is_used);
    RUN(an_implicit_region_is_all_of_memory);
    RUN(the_device_says_what_it_pages);
    RUN(advice);
    RUN(a_null_region);
    RUN(what_cannot_be_registered_again);
    RUN(registered_again);
    RUN(registered_again_on_demand);
    RUN(dma_bufs_are_not_offered);
    pair_close(&pair);
    return 0;
}
