// SPDX-License-Identifier: Apache-2.0
/*
 * What a program without a change is told with VERBENA_LOG=errors, line by line; and what
 * verbena_why says of the same calls.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dropin/verbena.h"
#include "own_address.h"
#include "pair.h"
#include "told.h"

static struct pair pair;

static int lines_in(const char *text)
{
    int lines = 0;

    for (; *text; ++text)
        lines += *text == '\n';
    return lines;
}

/* One line, with all of these words; and the same reason for who asks. */
static void expect(const char *call, int error, const char *words)
{
    const char *text = told_heard();
    char why[512];

    if (lines_in(text) != 1 || !strstr(text, call) || !strstr(text, strerror(error)) ||
        !strstr(text, words)) {
        dprintf(told.stderr_copy, "expected %s, %s, %s; got: %s\n", call, strerror(error), words,
                text);
        exit(1);
    }
    CHECK(verbena_why(pair.context, error, why, sizeof(why)) > 0);
    CHECK(strstr(why, words));
    CHECK(strstr(text, why));
    CHECK_EQ(verbena_why(pair.context, EDOM, why, sizeof(why)), 0);
}

static struct ibv_qp *fresh_qp(enum ibv_qp_type type)
{
    struct ibv_qp *qp = pair_qp(&pair, type, IBV_QP_EX_WITH_SEND);

    CHECK(qp);
    return qp;
}

static void test_creation(void)
{
    struct ibv_qp_init_attr attr = {.send_cq = pair.qp[0]->send_cq,
                                    .recv_cq = pair.qp[0]->send_cq,
                                    .cap = {.max_send_wr = 1 << 20, .max_send_sge = 1},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 0, .max_sge = 1}};
    struct ibv_ah_attr address = {.port_num = 1};
    union ibv_gid gid;

    CHECK(!ibv_create_qp(pair.pd, &attr) && errno == EINVAL);
    expect("ibv_create_qp", EINVAL, "max_send_wr is 1048576");
    attr.qp_type = IBV_QPT_RAW_PACKET;
    CHECK(!ibv_create_qp(pair.pd, &attr) && errno == EOPNOTSUPP);
    expect("ibv_create_qp", EOPNOTSUPP, "RAW_PACKET");
    CHECK(!ibv_create_cq(pair.context, 0, NULL, NULL, 0) && errno == EINVAL);
    expect("ibv_create_cq", EINVAL, "max_cqe");
    CHECK(!ibv_create_cq(pair.context, 1, NULL, NULL, 100000) && errno == EINVAL);
    expect("ibv_create_cq", EINVAL, "comp_vector is 100000");
    CHECK(!ibv_create_srq(pair.pd, &srq) && errno == EINVAL);
    expect("ibv_create_srq", EINVAL, "max_wr is 0");
    CHECK(!ibv_create_ah(pair.pd, &address) && errno == EINVAL);
    expect("ibv_create_ah", EINVAL, "RoCE needs a GID");
    CHECK_EQ(ibv_query_gid(pair.context, 1, 999, &gid), -1);
    expect("ibv_query_gid", EINVAL, "GID index 999");
}

static void test_registration_of_what_cannot_be_written(void)
{
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *mr;

    CHECK_EQ(mprotect(page + 4096, 4096, PROT_READ), 0);
    CHECK(!ibv_reg_mr(pair.pd, page, 8192, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
    expect("ibv_reg_mr", EFAULT, "is read-only");
    mr = ibv_reg_mr(pair.pd, page, 8192, IBV_ACCESS_REMOTE_READ);
    CHECK(mr);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(mprotect(page, 8192, PROT_NONE), 0);
    CHECK(!ibv_reg_mr(pair.pd, page, 8192, 0) && errno == EFAULT);
    expect("ibv_reg_mr", EFAULT, "cannot be read");
    mr = ibv_reg_mr(pair.pd, page, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    CHECK(mr); /* it may be there when it is used */
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(munmap(page, 8192), 0);
}

static void test_registration(void)
{
    uint8_t *page = own_address_map(4096);

    CHECK(!ibv_reg_mr(pair.pd, page, 4096, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
    expect("ibv_reg_mr", EINVAL, "lack LOCAL_WRITE");
    CHECK_EQ(munmap(page, 4096), 0);
    CHECK(!ibv_reg_mr(pair.pd, page, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
    expect("ibv_reg_mr", EFAULT, "is not mapped");
    CHECK(!ibv_reg_mr(pair.pd, pair.memory, 0, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
    expect("ibv_reg_mr", EINVAL, "is no range");
}

static void test_states(void)
{
    struct ibv_qp *qp = fresh_qp(IBV_QPT_RC);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .port_num = 1};
    const int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    expect("ibv_modify_qp", EINVAL, "RTS does not follow RESET");
    attr.qp_state = IBV_QPS_INIT;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
    expect("ibv_modify_qp", EINVAL, "needs IBV_QP_ACCESS_FLAGS|IBV_QP_PKEY_INDEX");
    CHECK_EQ(ibv_modify_qp(qp, &attr, to_init | IBV_QP_TIMEOUT), EINVAL);
    expect("ibv_modify_qp", EINVAL, "does not take IBV_QP_TIMEOUT");
    attr.port_num = 7;
    CHECK_EQ(ibv_modify_qp(qp, &attr, to_init), EINVAL);
    expect("ibv_modify_qp", EINVAL, "port_num is 7 and must be 1");
    CHECK_EQ(ibv_destroy_qp(qp), 0);
}

static void test_posting(void)
{
    struct ibv_sge sge[20] = {{(uintptr_t)pair.memory, 8, pair.mr->lkey}};
    struct ibv_send_wr send = {.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    struct ibv_recv_wr recv = {.sg_list = sge, .num_sge = 20}, *bad_recv;
    struct ibv_qp *qp = fresh_qp(IBV_QPT_UC);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

    errno = EDOM;
    CHECK_EQ(ibv_post_send(qp, &send, &bad), EINVAL);
    CHECK_EQ(errno, EDOM); /* as without the lines */
    expect("ibv_post_send", EINVAL, "is in RESET, not in RTS");
    send.opcode = IBV_WR_RDMA_READ;
    CHECK_EQ(ibv_post_send(qp, &send, &bad), EINVAL);
    expect("ibv_post_send", EINVAL, "RDMA_READ) does not suit its type");
    send.num_sge = 20;
    CHECK_EQ(ibv_post_send(qp, &send, &bad), EINVAL);
    expect("ibv_post_send", EINVAL, "num_sge is 20");
    send = (struct ibv_send_wr){.sg_list = sge, .num_sge = 1, .send_flags = IBV_SEND_INLINE};
    sge[0].length = PAIR_BYTES;
    CHECK_EQ(ibv_post_send(qp, &send, &bad), EINVAL);
    expect("ibv_post_send", EINVAL, "inline data is too long");
    CHECK_EQ(ibv_post_recv(qp, &recv, &bad_recv), EINVAL);
    expect("ibv_post_recv", EINVAL, "is in RESET");
    CHECK_EQ(ibv_post_recv(pair.qp[1], &recv, &bad_recv), EINVAL);
    expect("ibv_post_recv", EINVAL, "max_recv_sge 4");
    ibv_wr_start(ex);
    ibv_wr_rdma_read(ex, 0, 0);
    CHECK_EQ(ibv_wr_complete(ex), EOPNOTSUPP);
    expect("ibv_wr_complete", EOPNOTSUPP, "does not send opcode 4");
    CHECK_EQ(ibv_destroy_qp(qp), 0);
}

static void test_full_queue(void)
{
    struct ibv_recv_wr recv = {0}, *bad;

    for (int i = 0; i < PAIR_DEPTH; ++i)
        CHECK_EQ(ibv_post_recv(pair.qp[1], &recv, &bad), 0);
    CHECK_EQ(ibv_post_recv(pair.qp[1], &recv, &bad), ENOMEM);
    expect("ibv_post_recv", ENOMEM, "room for 8 requests");
}

/* The queue's room is named, and the QP. */
static void test_a_list_that_is_too_long(void)
{
    struct ibv_qp *qp = fresh_qp(IBV_QPT_UC);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    char words[80];

    CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init), 0);
    ibv_wr_start(ex);
    for (uint32_t i = 0; i <= attr.cap.max_send_wr; ++i)
        ibv_wr_rdma_write(ex, 0, 0);
    CHECK_EQ(ibv_wr_complete(ex), ENOMEM);
    snprintf(words, sizeof(words), "more requests than the send queue's %u of QP 0x%x",
             attr.cap.max_send_wr, qp->qp_num);
    expect("ibv_wr_complete", ENOMEM, words);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
}

static void test_in_use(void)
{
    char first[32];

    snprintf(first, sizeof(first), "QPs: 2, the first is 0x%x", pair.qp[0]->qp_num);
    CHECK_EQ(ibv_dealloc_pd(pair.pd), EBUSY);
    expect("ibv_dealloc_pd", EBUSY, first);
    CHECK_EQ(ibv_destroy_cq(pair.qp[0]->send_cq), EBUSY);
    expect("ibv_destroy_cq", EBUSY, "2, the first is");
}

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    CHECK(!ibv_reg_mr(pair.pd, pair.memory, 0, 0));
    return NULL;
}

static void test_each_thread_has_its_own(void)
{
    pthread_t thread;
    char why[512];

    CHECK(!ibv_create_cq(pair.context, 0, NULL, NULL, 0));
    CHECK_EQ(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(verbena_why(pair.context, EINVAL, why, sizeof(why)) > 0);
    CHECK(strstr(why, "max_cqe"));
    CHECK_EQ(lines_in(told_heard()), 2);
}

/* A failure without a reason must not borrow an earlier one's. */
static void test_no_stale_reason(void)
{
    struct ibv_gid_entry entry;
    const char *text;
    char why[512];

    CHECK(!pair_qp(&pair, IBV_QPT_RAW_PACKET, 0) && errno == EOPNOTSUPP);
    CHECK(verbena_why(pair.context, EOPNOTSUPP, why, sizeof(why)) > 0);
    CHECK_EQ(ibv_query_gid_ex(pair.context, 1, 0, &entry, 1), EOPNOTSUPP);
    CHECK_EQ(verbena_why(pair.context, EOPNOTSUPP, why, sizeof(why)), 0);
    text = told_heard();
    CHECK_EQ(lines_in(text), 2);
    CHECK(strstr(text, "ibv_query_gid_ex failed: Operation not supported; this device does not"));
}

/* The failed request, and one line for all that is flushed at each side. */
static void test_completions(void)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory, 8, pair.mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 77,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .wr.rdma = {(uintptr_t)pair.memory, 0x5eed}},
                       *bad;
    struct ibv_wc wc;
    const char *text;

    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
    for (int i = 0; i < 1 + PAIR_DEPTH; ++i)
        pair_poll(&pair, &wc);
    CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    text = told_heard();
    CHECK_EQ(lines_in(text), 2);
    CHECK(strstr(text, "wr_id 0x4d: remote access error: rkey 0x5eed names no memory region"));
    CHECK(strstr(text, "work request flushed"));
    CHECK(strstr(text, "what failed first: rkey 0x5eed"));
}

/* What ibv_start_poll and ibv_next_poll find is told of like that: the request that failed and the
 * one behind it. */
static void test_completions_one_by_one(void)
{
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    struct ibv_sge sge = pair_sge(&pair);
    struct ibv_send_wr last = pair_write(&pair, &sge), first = last, *bad;
    struct ibv_poll_cq_attr attr = {0};
    struct ibv_wc wc;
    const char *text;
    int got;

    while (ibv_poll_cq(pair.qp[0]->send_cq, 1, &wc) > 0)
        ;
    for (int i = 0; i < 2; ++i) {
        CHECK_EQ(ibv_modify_qp(pair.qp[i], &reset, IBV_QP_STATE), 0);
        pair_connect(&pair, pair.qp[i], pair.qp[1 - i]->qp_num);
    }
    told_show_the_rest();
    first.wr_id = 78;
    first.wr.rdma.rkey = 0x5eed;
    first.next = &last;
    CHECK_EQ(ibv_post_send(pair.qp[0], &first, &bad), 0);
    while ((got = ibv_start_poll(pair.cq, &attr)) == ENOENT)
        ;
    CHECK_EQ(got, 0);
    text = told_heard();
    CHECK_EQ(lines_in(text), 1);
    CHECK(strstr(text, "wr_id 0x4e: remote access error: rkey 0x5eed names no memory region"));
    while ((got = ibv_next_poll(pair.cq)) == ENOENT)
        ;
    CHECK(got == 0 && pair.cq->status == IBV_WC_WR_FLUSH_ERR);
    ibv_end_poll(pair.cq);
    text = told_heard();
    CHECK_EQ(lines_in(text), 1);
    CHECK(strstr(text, "work request flushed"));
}

/* As libfabric looks for the most inline data; another mistake in between is shown. */
static void test_a_search_for_a_limit_is_brief(void)
{
    struct ibv_qp_init_attr init = {.send_cq = ibv_cq_ex_to_cq(pair.cq),
                                    .recv_cq = ibv_cq_ex_to_cq(pair.cq),
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {1, 1, 1, 1, 0}};
    const char *text;

    for (init.cap.max_inline_data = 4096; init.cap.max_inline_data > 1024;
         init.cap.max_inline_data -= 64)
        CHECK(!ibv_create_qp(pair.pd, &init));
    text = told_heard();
    CHECK_EQ(lines_in(text), 1);
    CHECK(strstr(text, "max_inline_data is 4096"));
    init.cap.max_recv_wr = 40000;
    CHECK(!ibv_create_qp(pair.pd, &init));
    text = told_heard();
    CHECK_EQ(lines_in(text), 2);
    CHECK(strstr(text, "47 more failures were not shown: like the last one, but for numbers"));
    CHECK(strstr(text, "max_recv_wr is 40000"));
}

static void test_few_lines_a_second(void)
{
    const char *text;
    int lines;

    for (int i = 0; i < 1000; ++i)
        CHECK(!ibv_create_cq(pair.context, 0, NULL, NULL, 0));
    lines = lines_in(told_heard());
    CHECK(lines > 0 && lines < 200); /* of some seconds, where the machine is slow */
    pair_close(&pair);
    text = told_heard();
    CHECK(strstr(text, "more failures were not shown"));
}

int main(void)
{
    setenv("VERBENA_LOG", "errors", 1);
    told_listen();
    pair_open(&pair);
    CHECK_EQ(lines_in(told_heard()), 0);
    test_creation();
    test_registration();
    sleep(1); /* not more lines in a second than are shown */
    test_states();
    test_posting();
    sleep(1);
    test_registration_of_what_cannot_be_written();
    test_full_queue();
    test_a_list_that_is_too_long();
    test_in_use();
    test_each_thread_has_its_own();
    test_no_stale_reason();
    test_completions();
    sleep(1);
    test_completions_one_by_one();
    sleep(1);
    test_a_search_for_a_limit_is_brief();
    test_few_lines_a_second();
    return 0;
}
