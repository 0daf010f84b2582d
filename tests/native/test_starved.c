// SPDX-License-Identifier: Apache-2.0
/*
 * Verbs objects for which there is not enough memory: each allocation of a call fails once. The
 * call says -ENOMEM, nothing of it is left, and the next one works.
 */
#include <unistd.h>

#include "check.h"
#include "hca/ah.h"
#include "hca/channel.h"
#include "hca/dm.h"
#include "hca/mw.h"
#include "hca/srq.h"
#include "hca/xrc.h"
#include "loopback.h"
#include "starved.h"

static struct loopback loop;

static int a_domain(void)
{
    struct vb_pd *pd;
    int error = vb_pd_alloc(loop.context, &pd);

    return error ? error : vb_pd_dealloc(pd);
}

static int a_thread_domain(void)
{
    struct vb_td *td;
    int error = vb_td_alloc(loop.context, &td);

    return error ? error : vb_td_dealloc(td);
}

static int a_parent_domain(void)
{
    const struct ibv_parent_domain_init_attr attr = {.pd = &loop.pd->ibv};
    struct vb_pd *pd;
    int error = vb_parent_domain_alloc(loop.context, &attr, &pd);

    return error ? error : vb_pd_dealloc(pd);
}

static int an_address(void)
{
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
    struct vb_ah *ah;
    int error;

    loopback_gid(loop.direct, attr.grh.dgid.raw);
    error = vb_ah_create(loop.pd, &attr, &ah);
    return error ? error : vb_ah_destroy(ah);
}

static int a_channel(void)
{
    struct vb_channel *channel;
    int error = vb_channel_create(loop.context, &channel);

    return error ? error : vb_channel_destroy(channel);
}

static int a_completion_queue(void)
{
    struct vb_cq *cq;
    int error = vb_cq_create(loop.context, 100, NULL, NULL, &cq);

    return error ? error : vb_cq_destroy(cq);
}

static int a_queue_pair_of(enum ibv_qp_type type)
{
    struct ibv_qp_init_attr_ex attr = {
        .qp_type = type,
        .pd = &loop.pd->ibv,
        .xrcd = &loop.xrcd->ibv,
        .cap = {10, 10, 4, 4, 64},
        .send_cq = &loop.cq[0]->ibv,
        .recv_cq = &loop.cq[0]->ibv,
    };
    struct vb_qp *qp;
    int error = vb_qp_create(loop.context, &attr, &qp);

    return error ? error : vb_qp_destroy(qp);
}

static int a_connected_queue_pair(void)
{
    return a_queue_pair_of(IBV_QPT_RC);
}

static int a_datagram_queue_pair(void)
{
    return a_queue_pair_of(IBV_QPT_UD);
}

static int an_xrc_sender(void)
{
    return a_queue_pair_of(IBV_QPT_XRC_SEND);
}

static int an_xrc_target(void)
{
    return a_queue_pair_of(IBV_QPT_XRC_RECV);
}

static int a_shared_receive_queue(void)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 10, .max_sge = 2}};
    struct vb_srq *srq;
    int error = vb_srq_create(loop.context, loop.pd, &attr, &srq);

    return error ? error : vb_srq_destroy(srq);
}

static int an_xrc_srq(void)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 10, .max_sge = 2}};
    struct vb_srq *srq;
    int error = vb_srq_create_xrc(loop.context, loop.pd, loop.xrcd, loop.cq[0], &attr, &srq);

    return error ? error : vb_srq_destroy(srq);
}

static int an_xrc_domain(void)
{
    struct vb_xrcd *xrcd;
    int error = vb_xrcd_open(loop.context, 2, -1, &xrcd);

    return error ? error : vb_xrcd_close(xrcd);
}

static int a_region(void)
{
    struct vb_mr *mr;
    int error = vb_mr_reg(loop.pd, loop.memory[0], 4096, 0, IBV_ACCESS_LOCAL_WRITE, &mr);

    return error ? error : vb_mr_dereg(mr);
}

static int a_window_of(enum ibv_mw_type type)
{
    struct vb_mw *mw;
    int error = vb_mw_alloc(loop.pd, type, &mw);

    return error ? error : vb_mw_dealloc(mw);
}

static int a_window_of_type_1(void)
{
    return a_window_of(IBV_MW_TYPE_1);
}

static int a_window_of_type_2(void)
{
    return a_window_of(IBV_MW_TYPE_2);
}

static int device_memory(void)
{
    const struct ibv_alloc_dm_attr attr = {.length = 5000};
    struct vb_dm *dm;
    int error = vb_dm_alloc(loop.context, NULL, &attr, &dm);

    return error ? error : vb_dm_free(dm);
}

static int a_context(void)
{
    struct ibv_context ibv = {.async_fd = -1};
    struct vb_context *context;
    int error = vb_context_open(&loop.host->adapter, &ibv, &context);

    if (error)
        return error;
    vb_context_close(context);
    return 0;
}

/* ---- objects that are there, and change ---- */

static struct vb_cq *changed_cq;
static struct vb_qp *changed_qp;

static void open_changed(void)
{
    struct ibv_qp_init_attr_ex qp = {.qp_type = IBV_QPT_XRC_RECV, .xrcd = &loop.xrcd->ibv};

    CHECK_EQ(vb_cq_create(loop.context, 10, NULL, NULL, &changed_cq), 0);
    CHECK_EQ(vb_qp_create(loop.context, &qp, &changed_qp), 0);
}

static void close_changed(void)
{
    CHECK_EQ(vb_qp_destroy(changed_qp), 0);
    CHECK_EQ(vb_cq_destroy(changed_cq), 0);
}

static int another_size_of_a_completion_queue(void)
{
    return vb_cq_resize(changed_cq, changed_cq->mask + 1 < 500 ? 1000 : 10);
}

static int a_larger_srq(void)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 10, .max_sge = 2}};
    struct ibv_srq_attr more = {.max_wr = 300};
    struct vb_srq *srq;
    int error = vb_srq_create(loop.context, loop.pd, &attr, &srq);

    if (error)
        return error;
    error = vb_srq_modify(srq, &more, IBV_SRQ_MAX_WR);
    CHECK_EQ(vb_srq_destroy(srq), 0);
    return error;
}

static int a_handle_of_an_xrc_target(void)
{
    const struct ibv_qp_open_attr attr = {.qp_num = changed_qp->number, .xrcd = &loop.xrcd->ibv};
    struct vb_qp *handle;
    int error = vb_xrc_open_qp(loop.context, &attr, &handle);

    return error ? error : vb_xrc_close_qp(handle);
}

static int a_queue_with_stamps(void)
{
    struct vb_cq *cq;
    int error = vb_cq_create(loop.context, 100, NULL, NULL, &cq);

    if (error)
        return error;
    error = vb_cq_keep_stamps(cq);
    CHECK_EQ(vb_cq_destroy(cq), 0);
    return error;
}

/* A whole device. Its threads allocate too, and those do not fail. */
static int a_host(void)
{
    const struct vb_host_config config = {.direct_only = true};
    struct vb_host *host;
    int error = vb_host_open(&config, &host);

    if (!error)
        vb_host_close(host);
    return error;
}

static const struct {
    const char *name;
    int (*make)(void);
} calls[] = {
    {"domain", a_domain},
    {"thread domain", a_thread_domain},
    {"parent domain", a_parent_domain},
    {"address", an_address},
    {"channel", a_channel},
    {"completion queue", a_completion_queue},
    {"connected queue pair", a_connected_queue_pair},
    {"datagram queue pair", a_datagram_queue_pair},
    {"XRC sender", an_xrc_sender},
    {"XRC target", an_xrc_target},
    {"shared receive queue", a_shared_receive_queue},
    {"XRC SRQ", an_xrc_srq},
    {"XRC domain", an_xrc_domain},
    {"region", a_region},
    {"window of type 1", a_window_of_type_1},
    {"window of type 2", a_window_of_type_2},
    {"device memory", device_memory},
    {"context", a_context},
    {"resized completion queue", another_size_of_a_completion_queue},
    {"larger SRQ", a_larger_srq},
    {"handle", a_handle_of_an_xrc_target},
    {"stamps", a_queue_with_stamps},
    {"host", a_host},
};

static int open_descriptors(void)
{
    int next = dup(0);

    close(next);
    return next;
}

/* Returns how many allocations there are. */
static int make_in_spite(const char *name, int (*make)(void))
{
    int descriptors = open_descriptors();
    bool failed = true;
    int allocation = -1;

    CHECK_EQ(make(), 0); /* what is made once for all of them */
    while (failed) {
        long before = starved_blocks();
        int error;

        starved_after(++allocation);
        error = make();
        failed = starved_end();
        if (error != (failed ? -ENOMEM : 0) || starved_blocks() != before)
            fprintf(stderr, "%s, allocation %d: %d; %ld blocks are left\n", name, allocation, error,
                    starved_blocks() - before);
        CHECK_EQ(error, failed ? -ENOMEM : 0);
        CHECK_EQ(starved_blocks(), before);
        CHECK_EQ(open_descriptors(), descriptors);
    }
    return allocation;
}

static void each_allocation_may_fail(void)
{
    loopback_open(&loop, IBV_QPT_RC);
    open_changed();
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); ++i)
        CHECK(make_in_spite(calls[i].name, calls[i].make) >= 1);
    close_changed();
    loopback_close(&loop);
}

int main(void)
{
    alarm(60);
    RUN(each_allocation_may_fail);
    return 0;
}
