// SPDX-License-Identifier: Apache-2.0
/* Thread domains, parent domains with allocators, and what one context imports of another. */
#include <stdbool.h>
#include <unistd.h>

#include "pair.h"

static struct pair pair;

/* ---- parent domains ---- */

struct count {
    const struct ibv_pd *pd;
    int allocated, freed;
    bool by_default;
};

static void *allocate(struct ibv_pd *pd, void *context, size_t size, size_t alignment,
                      uint64_t resource)
{
    struct count *count = context;
    void *memory = NULL;

    (void)resource;
    CHECK(pd == count->pd);
    ++count->allocated;
    if (count->by_default)
        return IBV_ALLOCATOR_USE_DEFAULT;
    CHECK_EQ(posix_memalign(&memory, alignment, size), 0);
    memset(memory, 0xa5, size); /* the library does not count on zeros */
    return memory;
}

static void release(struct ibv_pd *pd, void *context, void *memory, uint64_t resource)
{
    struct count *count = context;

    (void)resource;
    CHECK(pd == count->pd);
    ++count->freed;
    free(memory);
}

static struct ibv_pd *parent(struct ibv_td *td, struct count *count)
{
    struct ibv_parent_domain_init_attr attr = {.pd = pair.pd, .td = td};
    struct ibv_pd *made;

    if (count) {
        attr.comp_mask =
            IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
        attr.alloc = allocate;
        attr.free = release;
        attr.pd_context = count;
    }
    made = ibv_alloc_parent_domain(pair.context, &attr);
    CHECK(made);
    if (count)
        count->pd = made;
    return made;
}

/* Keys of the plain domain and QPs of the parent domain work together, and the other way round. */
static void a_parent_domain_is_its_domain(void)
{
    struct ibv_pd *real = pair.pd, *over = parent(NULL, NULL);
    struct ibv_qp *qp[2];
    struct ibv_mr *mr;
    struct ibv_sge sge;
    struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .send_flags = IBV_SEND_SIGNALED};
    struct ibv_wc wc;

    pair.pd = over;
    for (int i = 0; i < 2; ++i) {
        qp[i] = pair_qp(&pair, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
        CHECK(qp[i] && qp[i]->pd == over);
    }
    mr = ibv_reg_mr(over, pair.memory, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    pair.pd = real;
    CHECK(mr);
    pair_connect(&pair, qp[0], qp[1]->qp_num);
    pair_connect(&pair, qp[1], qp[0]->qp_num);
    memcpy(pair.memory, "parent", 7);
    sge = (struct ibv_sge){(uintptr_t)pair.memory, 7, mr->lkey};
    wr.wr.rdma.remote_addr = (uintptr_t)pair.memory + 128;
    wr.wr.rdma.rkey = pair.mr->rkey; /* of the plain domain */
    CHECK_EQ(ibv_post_send(qp[0], &wr, &bad), 0);
    pair_poll(&pair, &wc);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(strcmp((char *)pair.memory + 128, "parent"), 0);
    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0); /* and its lkey, in the plain domain */
    pair_poll(&pair, &wc);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_dealloc_pd(over), EBUSY);
    CHECK_EQ(ibv_dealloc_pd(real), EBUSY);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    for (int i = 0; i < 2; ++i)
        CHECK_EQ(ibv_destroy_qp(qp[i]), 0);
    CHECK_EQ(ibv_dealloc_pd(over), 0);
}

static void allocators(bool by_default)
{
    struct count count = {.by_default = by_default};
    struct ibv_pd *real = pair.pd;
    struct ibv_qp *qp;

    pair.pd = parent(NULL, &count);
    qp = pair_qp(&pair, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
    CHECK(qp);
    CHECK(count.allocated > 0);
    pair_connect(&pair, qp, qp->qp_num);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(count.freed, by_default ? 0 : count.allocated);
    CHECK_EQ(ibv_dealloc_pd(pair.pd), 0);
    pair.pd = real;
}

static void its_allocators_are_asked(void)
{
    allocators(false);
    allocators(true);
}

static void a_completion_queue_may_have_one(void)
{
    struct ibv_pd *over = parent(NULL, NULL);
    struct ibv_cq_init_attr_ex attr = {
        .cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = over};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(pair.context, &attr);

    CHECK(cq);
    CHECK_EQ(ibv_dealloc_pd(over), EBUSY);
    CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    CHECK_EQ(ibv_dealloc_pd(over), 0);
    attr.parent_domain = pair.pd;
    CHECK(!ibv_create_cq_ex(pair.context, &attr));
    CHECK_EQ(errno, EINVAL);
}

static void thread_domains(void)
{
    struct ibv_td_init_attr attr = {0};
    struct ibv_td *td = ibv_alloc_td(pair.context, &attr);
    struct ibv_parent_domain_init_attr wrong = {.pd = pair.pd};
    struct ibv_pd *over;

    CHECK(td);
    over = parent(td, NULL);
    CHECK_EQ(ibv_dealloc_td(td), EBUSY);
    wrong.pd = over; /* a parent domain's parent */
    CHECK(!ibv_alloc_parent_domain(pair.context, &wrong));
    CHECK_EQ(errno, EINVAL);
    wrong = (struct ibv_parent_domain_init_attr){.pd = NULL};
    CHECK(!ibv_alloc_parent_domain(pair.context, &wrong));
    CHECK_EQ(errno, EINVAL);
    wrong = (struct ibv_parent_domain_init_attr){.pd = pair.pd, .comp_mask = 1 << 9};
    CHECK(!ibv_alloc_parent_domain(pair.context, &wrong));
    CHECK_EQ(errno, EOPNOTSUPP);
    CHECK_EQ(ibv_dealloc_pd(over), 0);
    CHECK_EQ(ibv_dealloc_td(td), 0);
    attr.comp_mask = 1;
    CHECK(!ibv_alloc_td(pair.context, &attr));
    CHECK_EQ(errno, EINVAL);
}

/* ---- import ---- */

static struct ibv_context *import(void)
{
    struct ibv_context *context = ibv_import_device(dup(pair.context->cmd_fd));

    CHECK(context && context != pair.context);
    return context;
}

/* A QP of the imported context, with the domain and the region of the first one. */
static void a_domain_and_its_regions_are_shared(void)
{
    struct ibv_context *context = import();
    struct ibv_pd *pd = ibv_import_pd(context, pair.pd->handle);
    struct ibv_mr *mr;
    struct pair view = pair;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_sge sge;
    struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1};
    struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
    struct ibv_wc wc;

    CHECK(pd && pd->context == context);
    mr = ibv_import_mr(pd, pair.mr->handle);
    CHECK(mr && mr->pd == pd);
    CHECK_EQ(mr->lkey, pair.mr->lkey);
    CHECK_EQ(mr->rkey, pair.mr->rkey);
    CHECK(!mr->addr);
    cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    attr.send_cq = attr.recv_cq = cq;
    qp = ibv_create_qp(pd, &attr);
    CHECK(qp);
    view.context = context;
    pair_connect(&view, qp, qp->qp_num);
    memcpy(pair.memory, "shared", 7);
    sge = (struct ibv_sge){(uintptr_t)pair.memory, 7, mr->lkey};
    wr.wr.rdma.remote_addr = (uintptr_t)pair.memory + 256;
    wr.wr.rdma.rkey = mr->rkey;
    CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
    while (ibv_poll_cq(cq, 1, &wc) == 0)
        ;
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(strcmp((char *)pair.memory + 256, "shared"), 0);
    ibv_unimport_mr(mr);
    ibv_unimport_pd(pd); /* the QP stays good */
    CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
    while (ibv_poll_cq(cq, 1, &wc) == 0)
        ;
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_close_device(context), 0);
}

/* Whichever context goes first, what the other has stays. */
static void an_import_outlives_what_it_was_made_of(void)
{
    struct ibv_context *first = pair_open_device(), *second;
    struct ibv_alloc_dm_attr attr = {.length = 64};
    struct ibv_pd *pd = ibv_alloc_pd(first), *imported;
    struct ibv_dm *dm = ibv_alloc_dm(first, &attr), *shared;
    char text[8] = "device";

    CHECK(pd && dm);
    second = ibv_import_device(dup(first->cmd_fd));
    CHECK(second);
    imported = ibv_import_pd(second, pd->handle);
    shared = ibv_import_dm(second, dm->handle);
    CHECK(imported && shared);
    CHECK_EQ(ibv_memcpy_to_dm(dm, 8, text, 8), 0);
    memset(text, 0, sizeof(text));
    CHECK_EQ(ibv_close_device(first), 0);
    CHECK_EQ(ibv_memcpy_from_dm(text, shared, 8, 8), 0);
    CHECK_EQ(strcmp(text, "device"), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0); /* what is left of them: memory */
    CHECK_EQ(ibv_free_dm(dm), 0);
    pd = ibv_alloc_pd(second);
    CHECK(pd && pd->handle != imported->handle);
    ibv_unimport_dm(shared);
    CHECK_EQ(ibv_close_device(second), 0);
    ibv_unimport_pd(imported);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

static void what_cannot_be_imported(void)
{
    struct ibv_context *other = pair_open_device(), *context = import();
    int ends[2];

    CHECK(!ibv_import_pd(context, 0xffffff));
    CHECK_EQ(errno, ENOENT);
    CHECK(!ibv_import_mr(pair.pd, 0xffffff));
    CHECK_EQ(errno, ENOENT);
    CHECK(!ibv_import_dm(context, 77));
    CHECK_EQ(errno, ENOENT);
    CHECK(!ibv_import_pd(other, pair.pd->handle)); /* opened by itself: another family */
    CHECK_EQ(errno, ENOENT);
    CHECK_EQ(pipe(ends), 0);
    CHECK(!ibv_import_device(ends[0]));
    CHECK_EQ(errno, EINVAL);
    close(ends[0]);
    close(ends[1]);
    CHECK_EQ(ibv_close_device(context), 0);
    CHECK_EQ(ibv_close_device(other), 0);
}

/* A descriptor that outlives its contexts stands for one that another process has sent. */
static void another_processes_context_is_refused(void)
{
    struct ibv_context *gone = pair_open_device();
    int fd = dup(gone->cmd_fd);

    CHECK_EQ(ibv_close_device(gone), 0);
    CHECK(!ibv_import_device(fd));
    CHECK_EQ(errno, EOPNOTSUPP);
    close(fd);
}

int main(void)
{
    pair_open(&pair);
    RUN(a_parent_domain_is_its_domain);
    RUN(its_allocators_are_asked);
    RUN(a_completion_queue_may_have_one);
    RUN(thread_domains);
    RUN(a_domain_and_its_regions_are_shared);
    RUN(an_import_outlives_what_it_was_made_of);
    RUN(what_cannot_be_imported);
    RUN(another_processes_context_is_refused);
    pair_close(&pair);
    return 0;
}
