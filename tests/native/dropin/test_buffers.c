// SPDX-License-Identifier: Apache-2.0
/* Memory that Verbena allocates, by either of its names; re-registration. */
#include <fcntl.h>

#include "dropin/verbena.h"
#include "pair.h"

/* From rdma-core 64 on. */
struct ibv_buf;
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length,
                              int access);

static struct ibv_context *context;
static struct ibv_pd *pd;

static void the_heap_gives_zeroed_aligned_memory(void)
{
    uint8_t *memory = verbena_heap_alloc(10000, 8192);

    CHECK(memory);
    CHECK_EQ((uintptr_t)memory % 8192, 0);
    CHECK(verbena_heap_size(memory) >= 10000);
    for (size_t i = 0; i < 10000; ++i)
        CHECK_EQ(memory[i], 0);
    CHECK_EQ(verbena_heap_size(memory + 1), 0);
    CHECK_EQ(verbena_heap_size(&memory), 0);
    CHECK_EQ(verbena_heap_size(NULL), 0);
    memset(memory, 0xee, 10000);
    verbena_heap_free(memory);
    memory = verbena_heap_alloc(10000, 8192); /* what was freed last */
    CHECK(memory);
    for (size_t i = 0; i < 10000; ++i)
        CHECK_EQ(memory[i], 0);
    verbena_heap_free(memory);
    verbena_heap_free(NULL);
    CHECK(!verbena_heap_alloc((size_t)1 << 60, 0));
    CHECK_EQ(errno, ENOMEM);
}

static void a_block_changes_its_size_where_it_is(void)
{
    uint8_t *memory = verbena_heap_alloc_unzeroed(64 << 10, 0);

    CHECK(memory);
    memset(memory, 0xee, 64 << 10);
    CHECK_EQ(verbena_heap_resize(memory, 16 << 10), 0);
    CHECK_EQ(verbena_heap_size(memory), 16 << 10);
    CHECK_EQ(verbena_heap_resize(memory, 64 << 10), 0);
    CHECK_EQ(memory[(16 << 10) - 1], 0xee);
    CHECK_EQ(memory[16 << 10], 0);
    CHECK_EQ(verbena_heap_resize(memory, (size_t)1 << 60), -ENOMEM);
    CHECK_EQ(verbena_heap_resize(memory + 1, 4096), -EINVAL);
    CHECK_EQ(verbena_heap_resize(NULL, 4096), -EINVAL);
    verbena_heap_free(memory);
}

static void a_buffer_registers_within_its_bounds(void)
{
    struct ibv_buf *buffer;
    uint8_t *memory = ibv_alloc_buf(pd, 8192, &buffer);
    static const struct {
        ptrdiff_t at;
        size_t length;
        bool inside;
    } cases[] = {{0, 8192, true},     {0, 8193, false},    {1, 8191, true},  {1, 8192, false},
                 {4096, 4097, false}, {8191, 1, true},     {8191, 2, false}, {8192, 0, false},
                 {8192, 1, false},    {8193, 0, false},    {-1, 1, false},   {-1, 2, false},
                 {-1, 0, false},      {0, SIZE_MAX, false}};
    struct ibv_pd *other = ibv_alloc_pd(context);
    struct ibv_mr *mr;

    CHECK(memory && other);
    mr = ibv_reg_buf_mr(pd, buffer, memory + 4096, 4096, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr && mr->addr == memory + 4096 && mr->length == 4096);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
        errno = 0;
        mr = ibv_reg_buf_mr(pd, buffer, memory + cases[i].at, cases[i].length, 0);
        CHECK_EQ(mr != NULL, cases[i].inside);
        CHECK_EQ(errno, cases[i].inside ? 0 : EINVAL);
        if (mr)
            CHECK_EQ(ibv_dereg_mr(mr), 0);
    }
    CHECK(!ibv_reg_buf_mr(other, buffer, memory, 1, 0) && errno == EINVAL);
    CHECK_EQ(ibv_dealloc_pd(other), 0);
    ibv_free_buf(buffer);
}

static void a_refused_reregistration_leaves_the_region(void)
{
    char byte[2];
    struct ibv_mr *mr = ibv_reg_mr(pd, byte, 1, IBV_ACCESS_LOCAL_WRITE);
    uint32_t key = mr->lkey;

    CHECK_EQ(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
    CHECK_EQ(ibv_rereg_mr(mr, 8, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 0, 0),
             IBV_REREG_MR_ERR_INPUT);
    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE),
             IBV_REREG_MR_ERR_INPUT);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(mr->lkey, key);
    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, byte, 2, 0), 0);
    CHECK_EQ(mr->length, 2);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void impossible_registrations_are_refused(void)
{
    char byte;

    CHECK(!ibv_reg_mr(pd, &byte, 0, 0) && errno == EINVAL);
    CHECK(!ibv_reg_mr(pd, &byte, 1, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
    CHECK(!ibv_reg_mr(pd, &byte, SIZE_MAX, 0) && errno == EINVAL);
    CHECK(!ibv_reg_mr(pd, (void *)4096, 4096, 0) && errno == EFAULT);
}

static void what_is_left_open_goes_with_the_device(void)
{
    struct ibv_context *other = pair_open_device();
    struct ibv_pd *domain = ibv_alloc_pd(other);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(other);
    struct ibv_cq *cq = ibv_create_cq(other, 4, NULL, channel, 0);
    char byte;
    struct ibv_mr *mr = ibv_reg_mr(domain, &byte, 1, 0);

    CHECK(domain && channel && cq && mr);
    CHECK_EQ(ibv_close_device(other), 0);
    CHECK_EQ(fcntl(channel->fd, F_GETFD), -1);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0); /* their memory: test_close.c */
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_dealloc_pd(domain), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

int main(void)
{
    context = pair_open_device();
    pd = ibv_alloc_pd(context);
    CHECK(pd);
    RUN(the_heap_gives_zeroed_aligned_memory);
    RUN(a_block_changes_its_size_where_it_is);
    RUN(a_buffer_registers_within_its_bounds);
    RUN(a_refused_reregistration_leaves_the_region);
    RUN(impossible_registrations_are_refused);
    RUN(what_is_left_open_goes_with_the_device);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(ibv_close_device(context), 0);
    return 0;
}
