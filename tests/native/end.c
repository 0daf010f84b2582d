// SPDX-License-Identifier: Apache-2.0
#include "end.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "loopback.h"
#include "memory/heap.h"
#include "memory/watch.h"

enum {
    EVERY_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
        IBV_ACCESS_REMOTE_ATOMIC,
};

static void make_memory(struct end *end)
{
    end->memory = end->options.in_heap ? vb_memory_heap_alloc(end->heap, END_BYTES, 64)
                                       : mmap(NULL, END_BYTES, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(end->memory && end->memory != MAP_FAILED);
    CHECK_EQ(
        vb_mr_reg(end->pd, end->memory, END_BYTES, (uintptr_t)end->memory, EVERY_ACCESS, &end->mr),
        0);
}

void end_open(struct end *end, struct end_options options)
{
    struct vb_host_config config = {.copies = options.force, .direct_only = true};
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = options.srq_wr, .max_sge = 1}};

    if (getenv("VERBENA_TEST_WATCHED")) /* small payloads wait for a poll then */
        vb_memory_watch_begin();
    memset(end, 0, sizeof(*end));
    end->options = options;
    if (!end->options.type)
        end->options.type = IBV_QPT_RC;
    CHECK_EQ(vb_memory_heap_create(1 << 26, &end->heap), 0);
    config.heap = end->heap;
    CHECK_EQ(vb_host_open(&config, &end->host), 0);
    end->direct = end->host->direct;
    CHECK_EQ(vb_context_open(&end->host->adapter, &end->ibv, &end->context), 0);
    CHECK_EQ(vb_pd_alloc(end->context, &end->pd), 0);
    if (options.channel)
        CHECK_EQ(vb_channel_create(end->context, &end->channel), 0);
    CHECK_EQ(vb_cq_create(end->context, 1024, NULL, end->channel, &end->cq), 0);
    if (options.srq_wr)
        CHECK_EQ(vb_srq_create(end->context, end->pd, &srq, &end->srq), 0);
    make_memory(end);
}

void end_close(struct end *end)
{
    vb_context_close(end->context);
    vb_host_close(end->host);
    if (!end->options.in_heap)
        munmap(end->memory, END_BYTES);
    vb_memory_heap_destroy(end->heap);
}

struct vb_qp *end_add_qp(struct end *end)
{
    struct ibv_qp_init_attr_ex attr = {.qp_type = end->options.type,
                                       .pd = &end->pd->ibv,
                                       .send_cq = &end->cq->ibv,
                                       .recv_cq = &end->cq->ibv,
                                       .srq = end->srq ? &end->srq->ibv : NULL,
                                       .cap = {END_DEPTH, END_DEPTH, 4, 4, 64}};

    CHECK_EQ(vb_qp_create(end->context, &attr, &end->qp), 0);
    return end->qp;
}

static void ready_datagrams(struct vb_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 17};

    if (vb_qp_state(qp) == IBV_QPS_RTS)
        return; /* one QP meets many */
    CHECK_EQ(vb_qp_modify(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
             0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK_EQ(vb_qp_modify(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(vb_qp_modify(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

void end_ready(struct vb_qp *qp, struct vb_qp *other)
{
    if (qp->type == IBV_QPT_UD)
        ready_datagrams(qp);
    else
        loopback_connect(qp, other, 7);
}

void end_connect(struct end *end, struct vb_qp *qp, int socket)
{
    struct end_card mine = {qp->number, end->mr->ibv.rkey, (uintptr_t)end->memory};
    struct vb_qp stand_in = {0};

    CHECK_EQ(write(socket, &mine, sizeof(mine)), sizeof(mine));
    CHECK_EQ(read(socket, &end->peer, sizeof(end->peer)), sizeof(end->peer));
    stand_in.number = end->peer.qp_num;
    end_ready(qp, &stand_in);
    end_meet(socket);
}

void end_meet(int socket)
{
    char token = 'x';

    CHECK_EQ(write(socket, &token, 1), 1);
    CHECK_EQ(read(socket, &token, 1), 1);
}

int end_post(struct end *end, struct vb_qp *qp, enum ibv_wr_opcode opcode, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)end->memory, length, end->mr->ibv.lkey};
    struct ibv_send_wr wr = {.wr_id = 7,
                             .opcode = opcode,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;

    wr.wr.rdma.remote_addr = end->peer.addr;
    wr.wr.rdma.rkey = end->peer.rkey;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = end->peer.addr;
        wr.wr.atomic.compare_add = 1;
        wr.wr.atomic.swap = 0;
        wr.wr.atomic.rkey = end->peer.rkey;
    }
    return vb_post_send(qp, &wr, &bad);
}

void end_post_recv(struct end *end, struct vb_qp *qp, uint64_t wr_id)
{
    struct ibv_sge sge = {(uintptr_t)end->memory, 1024, end->mr->ibv.lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(end->srq ? vb_srq_post_recv(end->srq, &wr, &bad) : vb_post_recv(qp, &wr, &bad), 0);
}

struct ibv_wc end_wait(struct vb_cq *cq, double seconds)
{
    uint64_t end = vb_direct_now() + (uint64_t)(seconds * 1e9);
    struct ibv_wc wc;

    while (vb_cq_poll(cq, 1, &wc) != 1)
        CHECK(vb_direct_now() < end);
    return wc;
}

pid_t end_spawn(const char *role, int *socket)
{
    return end_spawn_program("/proc/self/exe", role, socket);
}

pid_t end_spawn_program(const char *program, const char *role, int *socket)
{
    char number[12];
    int ends[2];
    pid_t child;

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    fflush(stdout);
    child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* it does not outlive its test */
        fcntl(ends[1], F_SETFD, 0);
        snprintf(number, sizeof(number), "%d", ends[1]);
        _exit(execl(program, "test", role, number, (char *)NULL));
    }
    CHECK(child > 0);
    close(ends[1]);
    *socket = ends[0];
    return child;
}

int end_role(int argc, char **argv, const char *role)
{
    return argc == 3 && strcmp(argv[1], role) == 0 ? atoi(argv[2]) : -1;
}

bool end_play(int argc, char **argv, const struct end_play *plays, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        int socket = end_role(argc, argv, plays[i].role);

        if (socket < 0)
            continue;
        plays[i].run(socket);
        return true;
    }
    return false;
}

void end_kill(pid_t child, int socket)
{
    int status;

    kill(child, SIGKILL);
    CHECK_EQ(waitpid(child, &status, 0), child);
    close(socket);
}
