// SPDX-License-Identifier: Apache-2.0
/*
 * Verbs objects for which there is no memory: each allocation that a call makes fails once, and the
 * call says so, leaves nothing behind, and works the next time.
 */
#include <unistd.h>

#include "check.h"
#include "hca/mw.h"
#include "hca/srq.h"
#include "hca/xrc.h"
#include "loopback.h"
#include "memory/heap.h"
#include "starved.h"

enum { MANY = 200 };

static struct loopback loop;

/* Makes an object, and ends it again if that worked. */
typedef int maker(void);

static int make_qp_of(enum ibv_qp_type type)
{
    struct ibv_qp_init_attr_ex attr = {
        .qp_type = type,
        .pd = &loop.pd->ibv,
        .xrcd = &loop.xrcd->ibv,
        .send_cq = &loop.cq[0]->ibv,
        .recv_cq = &loop.cq[0]->ibv,
        .cap = {8, 8, 2, 2, 64},
    };
    struct vb_qp *made;
    int error = vb_qp_create(loop.context, &attr, &made);

    if (!error)
        CHECK_EQ(vb_qp_destroy(made), 0);
    return error;
}

static int make_rc(void)
{
    return make_qp_of(IBV_QPT_RC);
}

static int make_uc(void)
{
    return make_qp_of(IBV_QPT_UC);
}

static int make_ud(void)
{
    return make_qp_of(IBV_QPT_UD);
}

static int make_initiator(void)
{
    return make_qp_of(IBV_QPT_XRC_SEND);
}

static int make_target(void)
{
    return make_qp_of(IBV_QPT_XRC_RECV);
}

static int make_cq(void)
{
    struct vb_cq *made;
    int error = vb_cq_create(loop.context, 16, NULL, NULL, &made);

    if (!error)
        CHECK_EQ(vb_cq_destroy(made), 0);
    return error;
}

/* It stays as it was where there is no memory. */
static int resize_cq(void)
{
    const struct vb_cqe *ring = loop.cq[1]->ring;
    uint32_t mask = loop.cq[1]->mask;
    int error = vb_cq_resize(loop.cq[1], (int)(2 * (mask + 1)));

    CHECK_EQ(loop.cq[1]->mask, error ? mask : 2 * mask + 1);
    CHECK(!error || loop.cq[1]->ring == ring);
    return error;
}

static int make_srq_of(bool is_xrc)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 8, .max_sge = 2}};
    struct vb_srq *made;
    int error = is_xrc
                    ? vb_srq_create_xrc(loop.context, loop.pd, loop.xrcd, loop.cq[0], &attr, &made)
                    : vb_srq_create(loop.context, loop.pd, &attr, &made);

    if (!error)
        CHECK_EQ(vb_srq_destroy(made), 0);
    return error;
}

static int make_srq(void)
{
    return make_srq_of(false);
}

static int make_xrc_srq(void)
{
    return make_srq_of(true);
}

static int make_pd(void)
{
    struct vb_pd *made;
    int error = vb_pd_alloc(loop.context, &made);

    if (!error)
        CHECK_EQ(vb_pd_dealloc(made), 0);
    return error;
}

static int make_mr(void)
{
    struct vb_mr *made;
    int error = vb_mr_reg(loop.pd, loop.memory[0], 64, (uintptr_t)loop.memory[0], 0, &made);

    if (!error)
        CHECK_EQ(vb_mr_dereg(made), 0);
    return error;
}

static int make_mw(void)
{
    struct vb_mw *made;
    int error = vb_mw_alloc(loop.pd, IBV_MW_TYPE_1, &made);

    if (!error)
        CHECK_EQ(vb_mw_dealloc(made), 0);
    return error;
}

static int make_channel(void)
{
    struct vb_channel *made;
    int error = vb_channel_create(loop.context, &made);

    if (!error)
        CHECK_EQ(vb_channel_destroy(made), 0);
    return error;
}

static const struct {
    const char *name;
    maker *make;
    bool grows; /* what it has afterwards is more than before */
} makers[] = {
    {"RC", make_rc, false},           {"UC", make_uc, false},
    {"UD", make_ud, false},           {"XRC_SEND", make_initiator, false},
    {"XRC_RECV", make_target, false}, {"CQ", make_cq, false},
    {"larger CQ", resize_cq, true},   {"SRQ", make_srq, false},
    {"XRC SRQ", make_xrc_srq, false}, {"PD", make_pd, false},
    {"MR", make_mr, false},           {"MW", make_mw, false},
    {"channel", make_channel, false},
};

static void each_allocation_may_fail(void)
{
    struct vb_heap *segment;
    long before;

    loopback_open(&loop, IBV_QPT_RC); /* once, for what a process keeps */
    loopback_close(&loop);
    before = starved_blocks();
    loopback_open(&loop, IBV_QPT_RC);
    segment = loop.direct->adapter->segment;
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); ++i) {
        size_t used;
        long blocks;
        int n = 0, error;

        printf("  %s\n", makers[i].name);
        if (!makers[i].grows)
            CHECK_EQ(makers[i].make(), 0); /* what is made once for all is there */
        do {
            used = vb_memory_heap_used(segment);
            blocks = starved_blocks();
            starved_after(n++);
            error = makers[i].make();
            if (!starved_end())
                break;
            CHECK_EQ(error, -ENOMEM);
            CHECK_EQ(starved_blocks(), blocks);
            CHECK_EQ(vb_memory_heap_used(segment), used);
        } while (n < 100);
        CHECK_EQ(error, 0);
        CHECK(n > 1);
        CHECK_EQ(makers[i].make(), 0);
        CHECK(makers[i].grows || starved_blocks() == blocks);
    }
    loopback_close(&loop);
    CHECK_EQ(starved_blocks(), before);
}

/* The numbers of objects that have ended are kept in a list, which grows and goes with its adapter.
 */
static void so_many_objects_leave_nothing_behind(void)
{
    struct vb_cq *cqs[MANY];
    long before = starved_blocks();

    loopback_open(&loop, IBV_QPT_RC);
    for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < MANY; ++i)
            CHECK_EQ(vb_cq_create(loop.context, 1, NULL, NULL, &cqs[i]), 0);
        for (int i = 0; i < MANY; ++i)
            for (int j = 0; j < i; ++j)
                CHECK(cqs[i]->index != cqs[j]->index);
        for (int i = 0; i < MANY; ++i)
            CHECK_EQ(vb_cq_destroy(cqs[i]), 0);
    }
    loopback_close(&loop);
    CHECK_EQ(starved_blocks(), before);
}

int main(void)
{
    alarm(100);
    RUN(each_allocation_may_fail);
    RUN(so_many_objects_leave_nothing_behind);
    return 0;
}
