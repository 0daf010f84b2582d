// SPDX-License-Identifier: Apache-2.0
/* XRC as programs call it: domains and who shares them, SRQ numbers, the extended send calls. */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

static struct pair pair;
static int file;

static struct ibv_xrcd *open_on(struct ibv_context *context, int fd, int oflags)
{
    struct ibv_xrcd_init_attr attr = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = oflags};

    return ibv_open_xrcd(context, &attr);
}

static struct ibv_xrcd *open_domain(int fd, int oflags)
{
    return open_on(pair.context, fd, oflags);
}

/* A file without a name that nobody else has. */
static int new_file(void)
{
    FILE *made = tmpfile();
    int fd;

    CHECK(made);
    fd = dup(fileno(made));
    CHECK(fd >= 0);
    fclose(made);
    return fd;
}

static void domains_by_file(void)
{
    struct ibv_xrcd *first, *second;
    int other = dup(file);

    CHECK(!open_domain(file, 0) && errno == EAGAIN);
    CHECK(!open_domain(file, O_EXCL) && errno == EAGAIN);
    first = open_domain(file, O_CREAT | O_EXCL);
    CHECK(first);
    CHECK(!open_domain(other, O_CREAT | O_EXCL) && errno == EINVAL);
    second = open_domain(other, 0);
    CHECK(second);
    CHECK_EQ(ibv_close_xrcd(first), 0);
    first = open_domain(file, O_CREAT);
    CHECK(first);
    CHECK_EQ(ibv_close_xrcd(first), 0);
    CHECK_EQ(ibv_close_xrcd(second), 0);
    CHECK(!open_domain(file, 0) && errno == EAGAIN);
    close(other);
}

static void domains_without_a_file(void)
{
    struct ibv_xrcd *one = open_domain(-1, O_CREAT), *other = open_domain(-1, O_CREAT | O_EXCL);

    CHECK(one && other);
    CHECK_EQ(ibv_close_xrcd(one), 0);
    CHECK_EQ(ibv_close_xrcd(other), 0);
}

static void wrong_arguments(void)
{
    struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = file};
    struct ibv_qp_open_attr open = {.comp_mask = IBV_QP_OPEN_ATTR_NUM, .qp_num = 1};
    struct ibv_srq_init_attr basic = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pair.pd, &basic);
    uint32_t number;

    CHECK(!ibv_open_xrcd(pair.context, &attr) && errno == EINVAL);
    attr.comp_mask = 1 << 5;
    CHECK(!ibv_open_xrcd(pair.context, &attr) && errno == EOPNOTSUPP);
    CHECK(!open_domain(9999, O_CREAT) && errno == EBADF);
    CHECK(!ibv_open_qp(pair.context, &open) && errno == EINVAL);
    CHECK(srq);
    CHECK_EQ(ibv_get_srq_num(srq, &number), EINVAL);
    CHECK_EQ(ibv_destroy_srq(srq), 0);
}

/* The parent's are dead in the child, and neither keep the domain open there. */
static void a_forked_child_lets_go(void)
{
    struct ibv_xrcd *xrcd = open_domain(file, O_CREAT);
    int ends[2], status;
    pid_t child;
    char byte;

    CHECK(xrcd);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    child = fork();
    if (child == 0) {
        close(ends[1]);
        CHECK_EQ(ibv_close_xrcd(xrcd), 0);
        CHECK_EQ(write(ends[0], "", 1), 1);
        CHECK_EQ(read(ends[0], &byte, 1), 0);
        _exit(0);
    }
    close(ends[0]);
    CHECK_EQ(read(ends[1], &byte, 1), 1);
    CHECK_EQ(ibv_close_xrcd(xrcd), 0);
    CHECK(!open_domain(file, 0) && errno == EAGAIN);
    close(ends[1]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

/* Another process that has the domain open, until it is killed. */
static void processes_share_it(void)
{
    int ready[2], status;
    pid_t child;
    char byte;
    struct ibv_xrcd *xrcd;

    CHECK_EQ(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        struct ibv_context *context = pair_open_device();

        CHECK(open_on(context, file, O_CREAT | O_EXCL));
        CHECK_EQ(write(ready[1], "!", 1), 1);
        pause();
        _exit(1);
    }
    close(ready[1]);
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    CHECK(!open_domain(file, O_CREAT | O_EXCL) && errno == EINVAL);
    xrcd = open_domain(file, 0);
    CHECK(xrcd);
    kill(child, SIGKILL);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(ibv_close_xrcd(xrcd), 0);
    CHECK(!open_domain(file, 0) && errno == EAGAIN);
    close(ready[0]);
}

static struct ibv_srq *make_srq(struct ibv_xrcd *xrcd)
{
    struct ibv_srq_init_attr_ex attr = {
        .attr = {.max_wr = 4, .max_sge = 1},
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ,
        .srq_type = IBV_SRQT_XRC,
        .pd = pair.pd,
        .xrcd = xrcd,
        .cq = ibv_cq_ex_to_cq(pair.cq),
    };

    return ibv_create_srq_ex(pair.context, &attr);
}

static struct ibv_qp *make_target(struct ibv_xrcd *xrcd)
{
    struct ibv_qp_init_attr_ex attr = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd};

    return ibv_create_qp_ex(pair.context, &attr);
}

static void next_completion(uint32_t qp_num, enum ibv_wc_opcode opcode)
{
    struct ibv_poll_cq_attr attr = {0};
    int error;

    while ((error = ibv_start_poll(pair.cq, &attr)) == ENOENT)
        ;
    CHECK_EQ(error, 0);
    CHECK_EQ(pair.cq->status, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_wc_read_opcode(pair.cq), opcode);
    CHECK_EQ(ibv_wc_read_qp_num(pair.cq), qp_num);
    ibv_end_poll(pair.cq);
}

static void the_extended_calls_name_an_srq(void)
{
    struct ibv_xrcd *xrcd = open_domain(-1, O_CREAT);
    struct ibv_srq *srq = make_srq(xrcd);
    struct ibv_qp *target = make_target(xrcd), *second, *from;
    struct ibv_qp_open_attr open = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
                                                 IBV_QP_OPEN_ATTR_TYPE,
                                    .xrcd = xrcd,
                                    .qp_type = IBV_QPT_XRC_RECV};
    struct ibv_sge sge = {(uintptr_t)pair.memory, 64, pair.mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 4, .sg_list = &sge, .num_sge = 1}, *bad;
    struct ibv_qp_ex *ex;
    uint32_t number;

    CHECK(xrcd && srq && target);
    CHECK(!ibv_qp_to_qp_ex(target));
    from = pair_qp(&pair, IBV_QPT_XRC_SEND, IBV_QP_EX_WITH_SEND);
    CHECK(from);
    pair_connect(&pair, from, target->qp_num); /* with all that RC needs, as programs do */
    pair_connect(&pair, target, from->qp_num);
    CHECK_EQ(target->state, IBV_QPS_RTS);
    CHECK_EQ(ibv_get_srq_num(srq, &number), 0);
    CHECK_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    ex = ibv_qp_to_qp_ex(from);
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    ibv_wr_set_xrc_srqn(ex, number);
    ibv_wr_set_sge(ex, pair.mr->lkey, (uintptr_t)pair.memory + 64, 64);
    CHECK_EQ(ibv_wr_complete(ex), 0);
    next_completion(target->qp_num, IBV_WC_RECV);
    next_completion(from->qp_num, IBV_WC_SEND);
    open.qp_num = target->qp_num;
    second = ibv_open_qp(pair.context, &open);
    CHECK(second && second->qp_num == target->qp_num && second->state == IBV_QPS_RTS);
    CHECK_EQ(ibv_close_xrcd(xrcd), EBUSY);
    CHECK_EQ(ibv_destroy_qp(target), 0);
    CHECK_EQ(ibv_destroy_qp(second), 0);
    CHECK_EQ(ibv_destroy_qp(from), 0);
    CHECK_EQ(ibv_close_xrcd(xrcd), EBUSY);
    CHECK_EQ(ibv_destroy_srq(srq), 0);
    CHECK_EQ(ibv_close_xrcd(xrcd), 0);
}

/* Closing the device closes what was left open in it. */
static void nothing_need_be_closed(void)
{
    struct ibv_context *context = pair_open_device();
    struct ibv_xrcd *xrcd = open_on(context, file, O_CREAT);

    CHECK(xrcd);
    CHECK_EQ(ibv_close_device(context), 0);
    CHECK(!open_domain(file, 0) && errno == EAGAIN);
    CHECK_EQ(ibv_close_xrcd(xrcd), 0); /* its memory */
}

static void the_device_says_so(void)
{
    struct ibv_device_attr device;

    CHECK_EQ(ibv_query_device(pair.context, &device), 0);
    CHECK(device.device_cap_flags & IBV_DEVICE_XRC);
}

int main(void)
{
    file = new_file();
    pair_open(&pair);
    RUN(the_device_says_so);
    RUN(domains_by_file);
    RUN(domains_without_a_file);
    RUN(wrong_arguments);
    RUN(a_forked_child_lets_go);
    RUN(processes_share_it);
    RUN(the_extended_calls_name_an_srq);
    RUN(nothing_need_be_closed);
    pair_close(&pair);
    close(file);
    return 0;
}
