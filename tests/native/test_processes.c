// SPDX-License-Identifier: Apache-2.0
/* Two processes, each way to reach memory, and what is left when one of them is killed. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "direct/connection.h"
#include "loopback.h"
#include "memory/heap.h"

enum { BYTES = 3 << 20, DEPTH = 64 };

/* What each side tells the other. */
struct card {
    uint32_t qp_num;
    uint32_t rkey;
    uint64_t addr;
};

struct side {
    struct ibv_context ibv;
    struct vb_heap *heap;
    struct vb_host *host;
    struct vb_context *context;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_qp *qp;
    struct vb_mr *mr;
    uint8_t *memory;
    struct card peer;
};

/* Memory of the heap or the program's own, and how the peer is made to reach it. */
struct setting {
    const char *name;
    bool in_heap;
    enum vb_way force;
};

static void make_objects(struct side *side)
{
    struct ibv_qp_init_attr_ex attr = {
        .qp_type = IBV_QPT_RC, .pd = NULL, .cap = {DEPTH, DEPTH, 4, 4, 64}};

    CHECK_EQ(vb_context_open(&side->host->adapter, &side->ibv, &side->context), 0);
    CHECK_EQ(vb_pd_alloc(side->context, &side->pd), 0);
    CHECK_EQ(vb_cq_create(side->context, 4 * DEPTH, NULL, NULL, &side->cq), 0);
    attr.pd = &side->pd->ibv;
    attr.send_cq = attr.recv_cq = &side->cq->ibv;
    CHECK_EQ(vb_qp_create(side->context, &attr, &side->qp), 0);
    CHECK_EQ(vb_mr_reg(side->pd, side->memory, BYTES, (uintptr_t)side->memory,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL,
                       &side->mr),
             0);
}

static void open_side(struct side *side, struct setting setting)
{
    struct vb_host_config config = {.copies = setting.force, .direct_only = true};

    memset(side, 0, sizeof(*side));
    CHECK_EQ(vb_memory_heap_create(1 << 28, &side->heap), 0);
    config.heap = side->heap;
    CHECK_EQ(vb_host_open(&config, &side->host), 0);
    side->memory = setting.in_heap ? vb_memory_heap_alloc(side->heap, BYTES, 64)
                                   : mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(side->memory && side->memory != MAP_FAILED);
    make_objects(side);
}

static void close_side(struct side *side)
{
    vb_context_close(side->context);
    vb_host_close(side->host);
}

static void swap_cards(struct side *side, int socket)
{
    struct card mine = {side->qp->number, side->mr->ibv.rkey, (uintptr_t)side->memory};
    struct vb_qp stand_in = {0};

    CHECK_EQ(write(socket, &mine, sizeof(mine)), sizeof(mine));
    CHECK_EQ(read(socket, &side->peer, sizeof(side->peer)), sizeof(side->peer));
    stand_in.number = side->peer.qp_num;
    loopback_connect(side->qp, &stand_in, 7);
}

/* Both sides stand at the same place. */
static void meet(int socket)
{
    char token = 'x';

    CHECK_EQ(write(socket, &token, 1), 1);
    CHECK_EQ(read(socket, &token, 1), 1);
}

static struct ibv_wc post(struct side *side, enum ibv_wr_opcode opcode, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)side->memory, length, side->mr->ibv.lkey};
    struct ibv_send_wr wr = {.wr_id = 7,
                             .opcode = opcode,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    struct ibv_wc wc;

    wr.wr.rdma.remote_addr = side->peer.addr;
    wr.wr.rdma.rkey = side->peer.rkey;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = side->peer.addr;
        wr.wr.atomic.compare_add = 1;
        wr.wr.atomic.rkey = side->peer.rkey;
    }
    if (opcode == IBV_WR_FLUSH)
        vb_fill_flush(&wr, side->peer.rkey, side->peer.addr, length, IBV_FLUSH_GLOBAL,
                      IBV_FLUSH_RANGE);
    CHECK_EQ(vb_post_staged(side->qp, &wr, &bad), 0);
    CHECK_EQ(loopback_poll(side->cq, &wc), 0);
    return wc;
}

static void post_recv(struct side *side, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)side->memory, length, side->mr->ibv.lkey};
    struct ibv_recv_wr wr = {.wr_id = 9, .sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(vb_post_recv(side->qp, &wr, &bad), 0);
}

static void fill(uint8_t *memory, uint8_t salt)
{
    for (int i = 0; i < BYTES; ++i)
        memory[i] = (uint8_t)(i * 31 + i / 256 + salt);
}

static bool is_filled(const uint8_t *memory, size_t length, uint8_t salt)
{
    for (size_t i = 0; i < length; ++i)
        if (memory[i] != (uint8_t)(i * 31 + i / 256 + salt))
            return false;
    return true;
}

enum { ADDS = 300 };

/* Each value is one byte eight times. */
static void atomic_writes(struct side *side)
{
    for (int i = 0; i < ADDS; ++i) {
        memset(side->memory, 1 + i % 254, 8);
        CHECK_EQ(post(side, IBV_WR_ATOMIC_WRITE, 8).status, 0);
    }
    memset(side->memory, 0xff, 8);
    CHECK_EQ(post(side, IBV_WR_ATOMIC_WRITE, 8).status, 0);
}

static void watch_atomic_writes(struct side *side)
{
    uint64_t seen;

    do {
        seen = __atomic_load_n((uint64_t *)side->memory, __ATOMIC_ACQUIRE);
        CHECK(seen == ADDS || seen == (seen & 0xff) * 0x0101010101010101);
    } while (seen != UINT64_MAX);
}

static void requester(struct side *side, int socket)
{
    fill(side->memory, 1);
    CHECK_EQ(post(side, IBV_WR_RDMA_WRITE, BYTES).status, 0);
    CHECK_EQ(post(side, IBV_WR_FLUSH, BYTES).status, 0);
    meet(socket);
    meet(socket);
    memset(side->memory, 0, BYTES);
    CHECK_EQ(post(side, IBV_WR_RDMA_READ, BYTES).status, 0);
    CHECK(is_filled(side->memory, BYTES, 2));
    fill(side->memory, 3);
    /* in the completion, on the stage, and straight into the buffer */
    CHECK_EQ(post(side, IBV_WR_SEND, 20).status, 0);
    CHECK_EQ(post(side, IBV_WR_SEND, 5000).status, 0);
    CHECK_EQ(post(side, IBV_WR_FLUSH, 5000).status, 0);
    meet(socket);
    meet(socket);
    CHECK_EQ(post(side, IBV_WR_SEND, BYTES).status, 0);
    meet(socket);
    meet(socket);
    for (int i = 0; i < ADDS; ++i)
        CHECK_EQ(post(side, IBV_WR_ATOMIC_FETCH_AND_ADD, 8).status, 0);
    meet(socket);
    meet(socket);
    atomic_writes(side);
    meet(socket);
}

static void responder(struct side *side, int socket)
{
    struct ibv_wc wc;
    uint64_t sum;

    meet(socket);
    CHECK(is_filled(side->memory, BYTES, 1));
    fill(side->memory, 2);
    post_recv(side, 64);
    post_recv(side, 8192);
    post_recv(side, BYTES);
    meet(socket);
    meet(socket);
    CHECK(is_filled(side->memory, 5000, 3)); /* flushed, before anybody polls */
    CHECK_EQ(loopback_poll(side->cq, &wc), 0);
    CHECK_EQ(wc.byte_len, 20);
    CHECK_EQ(loopback_poll(side->cq, &wc), 0);
    CHECK_EQ(wc.byte_len, 5000);
    meet(socket);
    CHECK(is_filled(side->memory, 5000, 3));
    CHECK_EQ(loopback_poll(side->cq, &wc), 0);
    CHECK_EQ(wc.byte_len, BYTES);
    CHECK(is_filled(side->memory, BYTES, 3));
    meet(socket);
    memset(side->memory, 0, 8);
    meet(socket);
    meet(socket);
    memcpy(&sum, side->memory, 8);
    CHECK_EQ(sum, ADDS);
    meet(socket);
    watch_atomic_writes(side);
    meet(socket);
}

static void check_way(struct side *side, struct setting setting)
{
    struct vb_peer *peer = side->qp->verbs->connection->peer;

    CHECK(peer && !peer->self);
    if (setting.force == VB_WAY_BOUNCE)
        CHECK(!peer->cma && !peer->heap);
    else if (setting.in_heap)
        CHECK(peer->heap);
    else
        CHECK(peer->cma);
}

static void in_two_processes(struct setting setting)
{
    struct side side;
    int sockets[2], status;
    pid_t child;

    printf("  %s\n", setting.name);
    fflush(stdout);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    child = fork();
    open_side(&side, setting);
    swap_cards(&side, sockets[!child]);
    check_way(&side, setting);
    meet(sockets[!child]);
    (child ? requester : responder)(&side, sockets[!child]);
    meet(sockets[!child]);
    close_side(&side);
    if (!child)
        exit(0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    close(sockets[0]);
    close(sockets[1]);
}

static void every_way_carries_every_request(void)
{
    static const struct setting settings[] = {
        {"shared mapping", true, VB_WAY_ANY},
        {"cross-process copy", false, VB_WAY_CMA},
        {"bounce ring", false, VB_WAY_BOUNCE},
    };

    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); ++i)
        in_two_processes(settings[i]);
}

/* Writes without end until it is killed. */
static void victim(struct side *side)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no process behind */
    for (;;)
        post(side, IBV_WR_RDMA_WRITE, BYTES);
}

static void a_killed_peer_is_an_error_and_not_a_hang(void)
{
    struct ibv_async_event event;
    struct side side;
    int sockets[2], status;
    struct ibv_wc wc;
    pid_t child;

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    child = fork();
    open_side(&side, (struct setting){"", true, VB_WAY_ANY});
    swap_cards(&side, sockets[!child]);
    meet(sockets[!child]);
    if (!child)
        victim(&side);
    post_recv(&side, 64);
    usleep(20000);
    kill(child, SIGKILL);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(vb_event_get(side.context, &event), 0);
    while (event.event_type != IBV_EVENT_QP_FATAL) {
        vb_event_ack(side.context, &event);
        CHECK_EQ(vb_event_get(side.context, &event), 0);
    }
    vb_event_ack(side.context, &event);
    CHECK_EQ(loopback_poll(side.cq, &wc), 0);
    CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(vb_qp_state(side.qp), IBV_QPS_ERR);
    close_side(&side);
    close(sockets[0]);
    close(sockets[1]);
}

int main(void)
{
    RUN(every_way_carries_every_request);
    RUN(a_killed_peer_is_an_error_and_not_a_hang);
    return 0;
}
