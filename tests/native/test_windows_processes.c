// SPDX-License-Identifier: Apache-2.0
/*
 * Windows, null regions and implicit regions between two processes, each way to reach memory: what
 * has been invalidated is not written to any more, however busy the peer is.
 */
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "end.h"

enum { LENGTH = 16384, ROUNDS = 25, ADDS = 3000, WAIT = 20 };

struct way {
    const char *role;
    bool in_heap;
    enum vb_way force;
};

static const struct way ways[] = {
    {"heap", true, VB_WAY_ANY}, {"copy", false, VB_WAY_ANY}, {"bounce", false, VB_WAY_BOUNCE}};

/* What the owner tells the writer. */
struct order {
    uint32_t rkey;
    uint64_t addr;
    bool invalidate; /* the writer is to do it, by a SEND */
};

static void say(int socket, const void *what, size_t size)
{
    CHECK_EQ(write(socket, what, size), (ssize_t)size);
}

static void hear(int socket, void *what, size_t size)
{
    CHECK_EQ(recv(socket, what, size, MSG_WAITALL), (ssize_t)size);
}

static struct end end;

static struct ibv_wc request(enum ibv_wr_opcode opcode, const struct order *order, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)end.memory, length, end.mr->ibv.lkey};
    struct ibv_send_wr *bad,
        wr = {.opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};

    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = order->addr;
        wr.wr.atomic.rkey = order->rkey;
        wr.wr.atomic.compare_add = 1;
    } else {
        wr.wr.rdma.remote_addr = order->addr;
        wr.wr.rdma.rkey = order->rkey;
    }
    if (opcode == IBV_WR_SEND_WITH_INV)
        wr.invalidate_rkey = order->rkey;
    CHECK_EQ(vb_post_send(end.qp, &wr, &bad), 0);
    return end_wait(end.cq, WAIT);
}

/* For ever patient: the machine may be busy with other things. */
static void connect_patiently(int socket)
{
    end_add_qp(&end);
    end_connect(&end, end.qp, socket);
    end.qp->terms.timeout = 0;
}

/* ---- the writer ---- */

static void write_until_refused(const struct order *order)
{
    uint8_t value = 0;

    do
        memset(end.memory, ++value, LENGTH);
    while (request(IBV_WR_RDMA_WRITE, order, LENGTH).status == IBV_WC_SUCCESS);
    CHECK_EQ(vb_qp_state(end.qp), IBV_QPS_ERR);
}

static void writer(int socket, struct way way)
{
    struct order order;

    end_open(&end, (struct end_options){.in_heap = way.in_heap, .force = way.force});
    for (int round = 0; round < ROUNDS; ++round) {
        connect_patiently(socket);
        hear(socket, &order, sizeof(order));
        CHECK_EQ(request(IBV_WR_RDMA_WRITE, &order, LENGTH).status, IBV_WC_SUCCESS);
        say(socket, &order, 1); /* now it is written to */
        if (order.invalidate)
            CHECK_EQ(request(IBV_WR_SEND_WITH_INV, &order, 100).status, IBV_WC_SUCCESS);
        write_until_refused(&order);
        end_meet(socket);
        CHECK_EQ(vb_qp_destroy(end.qp), 0);
    }
    connect_patiently(socket); /* a SEND into nothing, and atomics through an implicit region */
    hear(socket, &order, sizeof(order));
    CHECK_EQ(request(IBV_WR_SEND, &order, 40000).status, IBV_WC_SUCCESS);
    for (int i = 0; i < ADDS; ++i)
        CHECK_EQ(request(IBV_WR_ATOMIC_FETCH_AND_ADD, &order, 8).status, IBV_WC_SUCCESS);
    end_meet(socket);
    end_close(&end);
}

/* ---- the owner ---- */

static void bind_window(struct vb_mw *mw, const struct vb_mr *mr, uint32_t rkey)
{
    struct ibv_send_wr *bad,
        wr = {.opcode = IBV_WR_BIND_MW,
              .send_flags = IBV_SEND_SIGNALED,
              .bind_mw = {&mw->ibv,
                          rkey,
                          {(struct ibv_mr *)(uintptr_t)&mr->ibv, (uintptr_t)end.memory, LENGTH,
                           IBV_ACCESS_REMOTE_WRITE}}};

    CHECK_EQ(vb_post_send(end.qp, &wr, &bad), 0);
    CHECK_EQ(end_wait(end.cq, WAIT).status, IBV_WC_SUCCESS);
}

static void invalidate(uint32_t rkey)
{
    struct ibv_send_wr *bad,
        wr = {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = rkey};

    CHECK_EQ(vb_post_send(end.qp, &wr, &bad), 0);
    CHECK_EQ(end_wait(end.cq, WAIT).status, IBV_WC_SUCCESS);
}

/* The receive request's buffer lies beside what is written. */
static void await_invalidation(uint32_t rkey)
{
    struct ibv_wc wc = end_wait(end.cq, WAIT);

    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.wc_flags, IBV_WC_WITH_INV);
    CHECK_EQ(wc.invalidated_rkey, rkey);
}

static void post_recv(const struct vb_mr *mr, uint64_t addr, uint32_t length)
{
    struct ibv_sge sge = {addr, length, mr->ibv.lkey};
    struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};

    CHECK_EQ(vb_post_recv(end.qp, &wr, &bad), 0);
}

static void a_round(int socket, struct vb_mw *mw, struct vb_mr *mr, bool by_peer)
{
    static uint8_t before[LENGTH];
    struct order order = {.addr = (uintptr_t)end.memory, .invalidate = by_peer};
    char token;

    connect_patiently(socket);
    order.rkey = (mw->ibv.rkey & ~0xffu) | ((mw->ibv.rkey + 1) & 0xff);
    bind_window(mw, mr, order.rkey);
    if (by_peer)
        post_recv(mr, (uintptr_t)end.memory + LENGTH, 128);
    say(socket, &order, sizeof(order));
    hear(socket, &token, 1);
    if (by_peer) {
        await_invalidation(order.rkey);
    } else {
        CHECK_EQ(vb_mr_dereg(mr), -EBUSY);
        usleep(300);
        invalidate(order.rkey);
    }
    memcpy(before, end.memory, LENGTH); /* the window is closed: nobody writes now */
    usleep(500);
    CHECK_EQ(memcmp(before, end.memory, LENGTH), 0);
    end_meet(socket);
    CHECK_EQ(vb_qp_destroy(end.qp), 0);
    mw->ibv.rkey = order.rkey;
}

static void a_null_and_an_implicit_region(int socket)
{
    struct vb_mr *null, *implicit;
    uint64_t *word = (uint64_t *)(void *)end.memory;
    struct order order = {.addr = (uintptr_t)word};

    CHECK_EQ(vb_mr_null(end.pd, &null), 0);
    CHECK_EQ(vb_mr_reg(end.pd, NULL, SIZE_MAX, 0,
                       IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
                       &implicit),
             0);
    *word = 0;
    order.rkey = implicit->ibv.rkey;
    connect_patiently(socket);
    post_recv(null, 0xdead0000, 50000);
    say(socket, &order, sizeof(order));
    CHECK_EQ(end_wait(end.cq, WAIT).byte_len, 40000);
    if (end.options.in_heap) /* as requests through the heap's own region add */
        for (int i = 0; i < ADDS; ++i)
            __atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
    end_meet(socket);
    CHECK_EQ(*word, end.options.in_heap ? 2 * ADDS : ADDS);
    CHECK_EQ(vb_qp_destroy(end.qp), 0);
    CHECK_EQ(vb_mr_dereg(null), 0);
    CHECK_EQ(vb_mr_dereg(implicit), 0);
}

static void owner(struct way way)
{
    struct vb_mr *mr;
    struct vb_mw *mw;
    int socket, status;
    pid_t child = end_spawn(way.role, &socket);

    end_open(&end, (struct end_options){.in_heap = way.in_heap, .force = way.force});
    CHECK_EQ(vb_mr_reg(end.pd, end.memory, END_BYTES, (uintptr_t)end.memory,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, &mr),
             0);
    CHECK_EQ(vb_mw_alloc(end.pd, IBV_MW_TYPE_2, &mw), 0);
    for (int round = 0; round < ROUNDS; ++round)
        a_round(socket, mw, mr, round % 2);
    CHECK_EQ(vb_mr_dereg(mr), 0);
    CHECK_EQ(vb_mw_dealloc(mw), 0);
    a_null_and_an_implicit_region(socket);
    end_close(&end);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    close(socket);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); ++i) {
        int socket = end_role(argc, argv, ways[i].role);

        if (socket < 0)
            continue;
        writer(socket, ways[i]);
        return 0;
    }
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); ++i) {
        owner(ways[i]);
        printf("ok %s\n", ways[i].role);
    }
    return 0;
}
