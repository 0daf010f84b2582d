// SPDX-License-Identifier: Apache-2.0
/* A program that closes the device first and destroys what it made in it afterwards. */
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include "dropin/verbena.h"
#include "pair.h"

/* One of each kind beside the pair. */
struct all {
    struct pair pair;
    struct ibv_mr *mr, *null_mr, *dm_mr, *imported_mr;
    struct ibv_mw *mw;
    struct ibv_ah *ah;
    struct ibv_dm *dm, *imported_dm;
    struct ibv_td *td;
    struct ibv_pd *parent, *imported_pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq, *xrc_srq;
    struct ibv_xrcd *xrcd;
    struct ibv_qp *ud, *target, *opened;
};

static void make_memory(struct all *all)
{
    struct pair *pair = &all->pair;
    struct ibv_alloc_dm_attr dm = {.length = 4096};

    all->mr = ibv_reg_mr(pair->pd, pair->memory, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    all->null_mr = ibv_alloc_null_mr(pair->pd);
    all->dm = ibv_alloc_dm(pair->context, &dm);
    all->dm_mr = ibv_reg_dm_mr(pair->pd, all->dm, 0, 64, IBV_ACCESS_ZERO_BASED);
    all->mw = ibv_alloc_mw(pair->pd, IBV_MW_TYPE_2);
    CHECK(all->mr && all->null_mr && all->dm && all->dm_mr && all->mw);
    all->imported_pd = ibv_import_pd(pair->context, pair->pd->handle);
    all->imported_mr = ibv_import_mr(pair->pd, all->mr->handle);
    all->imported_dm = ibv_import_dm(pair->context, all->dm->handle);
    CHECK(all->imported_pd && all->imported_mr && all->imported_dm);
}

static void make_domains(struct all *all)
{
    struct ibv_context *context = all->pair.context;
    struct ibv_td_init_attr td = {0};
    struct ibv_parent_domain_init_attr parent = {.pd = all->pair.pd};
    struct ibv_xrcd_init_attr xrcd = {.comp_mask =
                                          IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                      .fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
                                      .oflags = O_CREAT};

    all->td = ibv_alloc_td(context, &td);
    CHECK(all->td);
    parent.td = all->td;
    all->parent = ibv_alloc_parent_domain(context, &parent);
    all->xrcd = ibv_open_xrcd(context, &xrcd);
    CHECK(all->parent && all->xrcd);
    close(xrcd.fd);
}

static void make_queues(struct all *all)
{
    struct ibv_context *context = all->pair.context;
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_srq_init_attr_ex xrc = {.attr = {.max_wr = 8, .max_sge = 1},
                                       .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                    IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
                                       .srq_type = IBV_SRQT_XRC,
                                       .pd = all->pair.pd,
                                       .xrcd = all->xrcd};

    all->channel = ibv_create_comp_channel(context);
    CHECK(all->channel);
    all->cq = ibv_create_cq(context, 16, NULL, all->channel, 0);
    CHECK(all->cq);
    CHECK_EQ(ibv_req_notify_cq(all->cq, 0), 0);
    xrc.cq = all->cq;
    all->srq = ibv_create_srq(all->parent, &srq);
    all->xrc_srq = ibv_create_srq_ex(context, &xrc);
    CHECK(all->srq && all->xrc_srq);
}

static void make_ends(struct all *all)
{
    struct ibv_context *context = all->pair.context;
    struct ibv_ah_attr address = pair_address(&all->pair);
    struct ibv_qp_init_attr ud = {.send_cq = all->cq,
                                  .recv_cq = all->cq,
                                  .srq = all->srq,
                                  .cap = {8, 8, 1, 1, 0},
                                  .qp_type = IBV_QPT_UD};
    struct ibv_qp_init_attr_ex target = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = all->xrcd};
    struct ibv_qp_open_attr again = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
                                                  IBV_QP_OPEN_ATTR_TYPE,
                                     .xrcd = all->xrcd,
                                     .qp_type = IBV_QPT_XRC_RECV};

    all->ah = ibv_create_ah(all->pair.pd, &address);
    all->ud = ibv_create_qp(all->parent, &ud);
    all->target = ibv_create_qp_ex(context, &target);
    CHECK(all->ah && all->ud && all->target);
    again.qp_num = all->target->qp_num;
    all->opened = ibv_open_qp(context, &again);
    CHECK(all->opened);
}

static void make(struct all *all)
{
    pair_open(&all->pair);
    make_memory(all);
    make_domains(all);
    make_queues(all);
    make_ends(all);
}

static void calls_fail(struct all *all)
{
    struct pair *pair = &all->pair;
    struct ibv_sge sge = {(uintptr_t)pair->memory, 8, pair->mr->lkey};
    struct ibv_send_wr *bad = NULL, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(pair->qp[0]);
    struct ibv_alloc_dm_attr dm = {.length = 64};
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    char text[8] = "memory";
    struct ibv_wc wc;

    CHECK_EQ(ibv_query_qp(pair->qp[0], &attr, IBV_QP_STATE, &init), ENODEV);
    CHECK_EQ(ibv_post_send(pair->qp[0], &wr, &bad), ENODEV);
    CHECK(bad == &wr);
    CHECK(ibv_poll_cq(all->cq, 1, &wc) < 0);
    CHECK_EQ(ibv_start_poll(pair->cq, &(struct ibv_poll_cq_attr){0}), ENODEV);
    ibv_wr_start(ex);
    for (int i = 0; i <= PAIR_DEPTH; ++i)
        ibv_wr_rdma_write(ex, pair->mr->rkey, (uintptr_t)pair->memory);
    CHECK_EQ(ibv_wr_complete(ex), ENODEV);
    CHECK(!ibv_reg_mr(pair->pd, pair->memory, 8, 0));
    CHECK_EQ(errno, ENODEV);
    CHECK(!ibv_alloc_dm(pair->context, &dm));
    CHECK_EQ(errno, ENODEV);
    CHECK_EQ(ibv_memcpy_to_dm(all->dm, 0, text, 8), EINVAL);
}

/* Those that ask or change something, and Verbena's own. */
static void questions_fail(struct all *all)
{
    struct ibv_context *context = all->pair.context;
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    struct ibv_modify_cq_attr moderate = {.attr_mask = IBV_CQ_ATTR_MODERATE};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_srq_attr srq = {.max_wr = 4};
    struct ibv_gid_entry entry;
    struct ibv_port_attr port;
    uint32_t number;
    union ibv_gid gid = {0};
    char text[256];
    __be16 pkey;

    CHECK_EQ(ibv_query_srq(all->srq, &srq), ENODEV);
    CHECK_EQ(ibv_modify_srq(all->srq, &srq, IBV_SRQ_LIMIT), ENODEV);
    CHECK_EQ(ibv_get_srq_num(all->xrc_srq, &number), ENODEV);
    CHECK_EQ(ibv_resize_cq(all->cq, 8), ENODEV);
    CHECK_EQ(ibv_modify_cq(all->cq, &moderate), ENODEV);
    CHECK_EQ(ibv_req_notify_cq(all->cq, 0), ENODEV);
    CHECK_EQ(ibv_modify_qp(all->ud, &attr, IBV_QP_STATE), ENODEV);
    CHECK_EQ(ibv_attach_mcast(all->ud, &gid, 0), ENODEV);
    CHECK_EQ(ibv_detach_mcast(all->ud, &gid, 0), 0); /* nothing of a closed device is in a group */
    CHECK_EQ(ibv_query_port(context, 1, &port), ENODEV);
    CHECK_EQ(ibv_query_rt_values_ex(context, &values), ENODEV);
    CHECK(ibv_query_gid(context, 1, 0, &gid) == -1 && errno == ENODEV);
    CHECK_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 0), ENODEV);
    CHECK_EQ(ibv_query_gid_table(context, &entry, 1, 0), -ENODEV);
    CHECK(ibv_query_pkey(context, 1, 0, &pkey) == -1 && errno == ENODEV);
    CHECK_EQ(verbena_describe(context, text, sizeof(text)), -ENODEV);
    CHECK_EQ(verbena_counters(context, text, sizeof(text)), -ENODEV);
    CHECK_EQ(verbena_set_fault(context, "", text, sizeof(text)), -ENODEV);
    CHECK_EQ(verbena_fault_counters(context, text, sizeof(text)), -ENODEV);
    CHECK_EQ(verbena_keep_events(all->channel, 1), -ENODEV);
}

static void unimport(struct all *all)
{
    ibv_unimport_pd(all->pair.pd); /* which was not imported: it stays */
    ibv_unimport_mr(all->imported_mr);
    ibv_unimport_dm(all->imported_dm);
    ibv_unimport_pd(all->imported_pd);
}

/* What the others use goes first. */
static void destroy_oldest_first(struct all *all)
{
    unimport(all);
    CHECK_EQ(ibv_dealloc_pd(all->pair.pd), 0);
    CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(all->pair.cq)), 0);
    CHECK_EQ(ibv_dereg_mr(all->pair.mr), 0);
    CHECK_EQ(ibv_destroy_qp(all->pair.qp[0]), 0);
    CHECK_EQ(ibv_destroy_qp(all->pair.qp[1]), 0);
    CHECK_EQ(ibv_dereg_mr(all->mr), 0);
    CHECK_EQ(ibv_dereg_mr(all->null_mr), 0);
    CHECK_EQ(ibv_free_dm(all->dm), 0);
    CHECK_EQ(ibv_dereg_mr(all->dm_mr), 0);
    CHECK_EQ(ibv_dealloc_mw(all->mw), 0);
    CHECK_EQ(ibv_dealloc_td(all->td), 0);
    CHECK_EQ(ibv_dealloc_pd(all->parent), 0);
    CHECK_EQ(ibv_close_xrcd(all->xrcd), 0);
    CHECK_EQ(ibv_destroy_comp_channel(all->channel), 0);
    CHECK_EQ(ibv_destroy_cq(all->cq), 0);
    CHECK_EQ(ibv_destroy_srq(all->srq), 0);
    CHECK_EQ(ibv_destroy_srq(all->xrc_srq), 0);
    CHECK_EQ(ibv_destroy_ah(all->ah), 0);
    CHECK_EQ(ibv_destroy_qp(all->ud), 0);
    CHECK_EQ(ibv_destroy_qp(all->target), 0);
    CHECK_EQ(ibv_destroy_qp(all->opened), 0);
}

static void each_kind_outlives_the_context(void)
{
    struct all all = {0};

    make(&all);
    CHECK_EQ(ibv_close_device(all.pair.context), 0);
    calls_fail(&all);
    questions_fail(&all);
    destroy_oldest_first(&all);
}

/* Another context has the adapter go on. */
static void another_context_does_not_notice(void)
{
    struct all all = {0};
    struct pair other;
    struct ibv_wc wc;

    pair_open(&other);
    make(&all);
    CHECK_EQ(ibv_close_device(all.pair.context), 0);
    calls_fail(&all);
    for (uint64_t i = 0; i < 2; ++i) {
        struct ibv_sge sge = {(uintptr_t)other.memory, 8, other.mr->lkey};
        struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};

        pair_post_recv(&other, i, 64, 64);
        CHECK_EQ(ibv_post_send(other.qp[0], &wr, &bad), 0);
        pair_poll(&other, &wc);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.wr_id, i);
        if (i == 0)
            destroy_oldest_first(&all);
    }
    pair_close(&other);
}

/* Each of these would keep the other context from closing. */
static void what_is_made_of_two_contexts_is_refused(void)
{
    struct pair mine, other;
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_comp_channel *channel;
    struct ibv_qp_init_attr qp = {.cap = {8, 8, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_srq *theirs;

    pair_open(&mine);
    pair_open(&other);
    theirs = ibv_create_srq(other.pd, &srq);
    channel = ibv_create_comp_channel(other.context);
    CHECK(theirs && channel);
    for (int i = 0; i < 3; ++i) {
        qp.send_cq = ibv_cq_ex_to_cq(i == 0 ? other.cq : mine.cq);
        qp.recv_cq = ibv_cq_ex_to_cq(i == 1 ? other.cq : mine.cq);
        qp.srq = i == 2 ? theirs : NULL;
        errno = 0;
        CHECK(!ibv_create_qp(mine.pd, &qp));
        CHECK_EQ(errno, EINVAL);
    }
    errno = 0;
    CHECK(!ibv_create_cq(mine.context, 8, NULL, channel, 0));
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
    CHECK_EQ(ibv_destroy_srq(theirs), 0);
    pair_close(&other);
    pair_close(&mine);
}

static void a_queue_pair_receives_from_no_xrc_srq(void)
{
    struct all all = {0};
    struct ibv_qp_init_attr qp = {.cap = {8, 8, 1, 1, 0}, .qp_type = IBV_QPT_RC};

    make(&all);
    qp.send_cq = qp.recv_cq = all.cq;
    qp.srq = all.xrc_srq;
    errno = 0;
    CHECK(!ibv_create_qp(all.pair.pd, &qp));
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(ibv_close_device(all.pair.context), 0);
    destroy_oldest_first(&all);
}

static int lowest_free_fd(void)
{
    int fd = dup(STDERR_FILENO);

    CHECK(fd >= 0);
    close(fd);
    return fd;
}

/* The context's memory goes with the last object; AddressSanitizer counts for itself. */
static void nothing_is_left(void)
{
    enum { ROUNDS = 20 };
    int fd = lowest_free_fd();
    size_t before;

    for (int i = 0; i < ROUNDS; ++i) /* the allocator's caches fill */
        each_kind_outlives_the_context();
    before = mallinfo2().uordblks;
    for (int i = 0; i < ROUNDS; ++i)
        each_kind_outlives_the_context();
    CHECK(mallinfo2().uordblks < before + ROUNDS * 256); /* less than a context has */
    CHECK_EQ(lowest_free_fd(), fd);
}

int main(void)
{
    RUN(what_is_made_of_two_contexts_is_refused);
    RUN(a_queue_pair_receives_from_no_xrc_srq);
    RUN(each_kind_outlives_the_context);
    RUN(another_context_does_not_notice);
    RUN(nothing_is_left);
    return 0;
}
