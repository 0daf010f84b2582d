// SPDX-License-Identifier: Apache-2.0
/*
 * A peer is killed at a random instant while it sends, writes and adds. Whatever it was doing,
 * each receive request of the survivor completes once, its locks are free, and it can go on.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "loopback.h"
#include "memory/heap.h"

enum { REQUESTS = 1 << 26, ROUNDS = 40, DEPTH = 64, BYTES = 1 << 16, RECV_BYTES = 512 };

struct card {
    uint32_t qp_num, rkey, srq_num;
    uint64_t addr;
};

struct survivor {
    struct ibv_context ibv;
    struct vb_heap *heap;
    struct vb_host *host;
    struct vb_context *context;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_srq *srq;
    struct vb_xrcd *xrcd; /* then `srq` is an XRC SRQ, and the QPs are target QPs */
    uint8_t *memory;
    struct vb_mr *mr;
    uint64_t posted; /* the next receive request's number */
    uint8_t completed[REQUESTS];
};

static struct survivor here;

static void open_adapter(void)
{
    struct vb_host_config config = {.direct_only = true};

    CHECK_EQ(vb_memory_heap_create(1 << 26, &here.heap), 0);
    config.heap = here.heap;
    CHECK_EQ(vb_host_open(&config, &here.host), 0);
    CHECK_EQ(vb_context_open(&here.host->adapter, &here.ibv, &here.context), 0);
    CHECK_EQ(vb_pd_alloc(here.context, &here.pd), 0);
    CHECK_EQ(vb_cq_create(here.context, 4096, NULL, NULL, &here.cq), 0);
    here.memory = vb_memory_heap_alloc(here.heap, BYTES, 64);
    CHECK_EQ(vb_mr_reg(here.pd, here.memory, BYTES, (uintptr_t)here.memory,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC,
                       &here.mr),
             0);
}

static struct vb_qp *make_qp(enum ibv_qp_type type)
{
    struct ibv_qp_init_attr_ex attr = {.qp_type = type,
                                       .xrcd = here.xrcd ? &here.xrcd->ibv : NULL,
                                       .pd = &here.pd->ibv,
                                       .send_cq = &here.cq->ibv,
                                       .recv_cq = &here.cq->ibv,
                                       .srq = here.srq ? &here.srq->ibv : NULL,
                                       .cap = {DEPTH, DEPTH, 4, 4, 64}};
    struct vb_qp *qp;

    CHECK_EQ(vb_qp_create(here.context, &attr, &qp), 0);
    return qp;
}

static struct card connect_over(struct vb_qp *qp, int socket)
{
    struct card mine = {.qp_num = qp->number,
                        .rkey = here.mr->ibv.rkey,
                        .srq_num = here.srq ? here.srq->srq_num : 0,
                        .addr = (uintptr_t)here.memory},
                peer;
    struct vb_qp stand_in = {0};

    CHECK_EQ(write(socket, &mine, sizeof(mine)), sizeof(mine));
    CHECK_EQ(read(socket, &peer, sizeof(peer)), sizeof(peer));
    stand_in.number = peer.qp_num;
    loopback_connect(qp, &stand_in, 7);
    CHECK_EQ(write(socket, &mine, 1), 1); /* both are connected before either goes on */
    CHECK_EQ(read(socket, &mine, 1), 1);
    return peer;
}

static void post_recv(struct vb_qp *qp)
{
    struct ibv_sge sge = {(uintptr_t)here.memory, RECV_BYTES, here.mr->ibv.lkey};
    struct ibv_recv_wr wr = {.wr_id = here.posted++, .sg_list = &sge, .num_sge = 1}, *bad;

    CHECK(here.posted < REQUESTS);
    CHECK_EQ(here.srq ? vb_srq_post_recv(here.srq, &wr, &bad) : vb_post_recv(qp, &wr, &bad), 0);
}

/* The victim: everything at once, until the kill. */
static void work_for_ever(int socket, enum ibv_qp_type type)
{
    struct vb_qp *qp;
    struct card peer;
    unsigned turn = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no process behind */
    open_adapter();
    qp = make_qp(type);
    peer = connect_over(qp, socket);
    for (;; ++turn) {
        static const uint32_t lengths[] = {8, 28, 300, 512};
        struct ibv_sge sge = {(uintptr_t)here.memory, lengths[turn % 4], here.mr->ibv.lkey};
        struct ibv_send_wr wr = {.sg_list = &sge,
                                 .num_sge = 1,
                                 .qp_type.xrc.remote_srqn = peer.srq_num},
                           *bad;
        struct ibv_wc wc[16];

        wr.opcode = turn % 3 == 0   ? IBV_WR_SEND
                    : turn % 3 == 1 ? IBV_WR_RDMA_WRITE
                                    : IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.send_flags = turn % 8 ? 0 : IBV_SEND_SIGNALED;
        wr.wr.rdma.remote_addr = peer.addr + 8192;
        wr.wr.rdma.rkey = peer.rkey;
        if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            wr.wr.atomic.remote_addr = peer.addr + 16384;
            wr.wr.atomic.compare_add = 1;
            wr.wr.atomic.rkey = peer.rkey;
        }
        vb_post_send(qp, &wr, &bad);
        vb_cq_poll(here.cq, 16, wc);
    }
}

/* True when a flush was among what was polled. */
static bool take_completions(struct vb_qp *qp, bool repost)
{
    struct ibv_wc wc[16];
    bool flushed = false;
    int n = vb_cq_poll(here.cq, 16, wc);

    CHECK(n >= 0);
    for (int i = 0; i < n; ++i) {
        CHECK_EQ(here.completed[wc[i].wr_id], 0);
        here.completed[wc[i].wr_id] = 1;
        flushed |= wc[i].status != IBV_WC_SUCCESS;
        if (repost && wc[i].status == IBV_WC_SUCCESS)
            post_recv(qp);
    }
    return flushed;
}

static bool wait_until_failed(struct vb_qp *qp)
{
    struct vb_qp *itself = qp->verbs->real ? qp->verbs->real : qp;
    uint64_t end = vb_direct_now() + 3000000000ull;

    while (vb_direct_now() < end) {
        take_completions(qp, false);
        if (vb_qp_state(qp) == IBV_QPS_ERR && itself->rq_draining)
            return true;
    }
    return false;
}

/* Long enough for the flush, which runs in a thread of its own. */
static void drain(struct vb_qp *qp)
{
    uint64_t end = vb_direct_now() + 20000000;

    while (vb_direct_now() < end)
        take_completions(qp, false);
}

static const char *number(int fd)
{
    static char text[12];

    snprintf(text, sizeof(text), "%d", fd);
    return text;
}

static void one_round(unsigned seed)
{
    uint64_t end;
    int sockets[2], status;
    uint64_t first = here.posted;
    struct vb_qp *qp;
    pid_t child;

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    child = fork();
    if (!child)
        _exit(execl("/proc/self/exe", here.xrcd ? "initiator" : "victim", number(sockets[1]),
                    (char *)NULL));
    qp = make_qp(here.xrcd ? IBV_QPT_XRC_RECV : IBV_QPT_RC);
    connect_over(qp, sockets[0]);
    for (int i = 0; i < DEPTH / 2; ++i)
        post_recv(qp);
    end = vb_direct_now() + 3000000 + seed * 7919 % 5000 * 1000;
    while (vb_direct_now() < end)
        take_completions(qp, true);
    kill(child, SIGKILL);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(wait_until_failed(qp));
    drain(qp);
    if (!here.srq)
        for (uint64_t i = first; i < here.posted; ++i)
            CHECK_EQ(here.completed[i], 1);
    CHECK(!vb_biased_is_held(&here.cq->shared->lock));
    CHECK_EQ(vb_qp_destroy(qp), 0);
    close(sockets[0]);
    close(sockets[1]);
}

static void rounds(void)
{
    for (unsigned i = 0; i < ROUNDS; ++i)
        one_round(i * 2654435761u);
}

static void every_receive_completes_once(void)
{
    rounds();
}

/* Requests of a shared queue are not flushed: none is lost if all of them can still be used. */
static void rounds_with(struct vb_srq *srq)
{
    uint64_t before = here.posted, waiting, done = 0;

    here.srq = srq;
    rounds();
    waiting = atomic_load(&srq->shared->posted) - atomic_load(&srq->shared->taken);
    for (uint64_t i = before; i < here.posted; ++i)
        done += here.completed[i];
    CHECK_EQ(srq->free_count + waiting, srq->max_wr);
    CHECK_EQ(done + waiting, here.posted - before);
}

static struct ibv_srq_init_attr many = {.attr = {.max_wr = 4096, .max_sge = 1}};

static void a_shared_queue_loses_no_request(void)
{
    struct vb_srq *srq;

    CHECK_EQ(vb_srq_create(here.context, here.pd, &many, &srq), 0);
    rounds_with(srq);
}

static void nor_does_an_xrc_srq(void)
{
    struct vb_srq *srq;

    CHECK_EQ(vb_xrcd_open(here.context, 3, -1, &here.xrcd), 0);
    CHECK_EQ(vb_srq_create_xrc(here.context, here.pd, here.xrcd, here.cq, &many, &srq), 0);
    rounds_with(srq);
    CHECK_EQ(vb_srq_destroy(srq), 0);
}

int main(int argc, char **argv)
{
    if (argc == 2)
        work_for_ever(atoi(argv[1]), *argv[0] == 'i' ? IBV_QPT_XRC_SEND : IBV_QPT_RC);
    open_adapter();
    RUN(every_receive_completes_once);
    RUN(a_shared_queue_loses_no_request);
    RUN(nor_does_an_xrc_srq);
    vb_context_close(here.context);
    vb_host_close(here.host);
    return 0;
}
