// SPDX-License-Identifier: Apache-2.0
/*
 * Requests that must fail: the status and what it is explained by, the state of both queue pairs,
 * the event of the far one, its receive request, and that no byte moved on either side.
 */
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "direct/connection.h"
#include "direct/requester.h"
#include "hca/sentences.h"
#include "loopback.h"

enum { NO_EVENT = -1, BIG = 0x7ffff000 };

static struct loopback loop;
static struct ibv_sge sge[2];

static void begin(enum ibv_qp_type type)
{
    loopback_open(&loop, type);
    loopback_connect(loop.qp[0], loop.qp[1], 0);
    loopback_connect(loop.qp[1], loop.qp[0], 0);
    memset(loop.memory[0], 0xa0, LOOPBACK_BYTES);
    memset(loop.memory[1], 0xb1, LOOPBACK_BYTES);
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode)
{
    struct ibv_send_wr wr = {.wr_id = 77, .opcode = opcode, .sg_list = sge, .num_sge = 1};

    sge[0] = (struct ibv_sge){(uintptr_t)loop.memory[0], 8, loop.mr[0]->ibv.lkey};
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = (uintptr_t)loop.memory[1];
        wr.wr.atomic.rkey = loop.mr[1]->ibv.rkey;
        wr.wr.atomic.compare_add = 1;
    } else if (opcode != IBV_WR_SEND) {
        wr.wr.rdma.remote_addr = (uintptr_t)loop.memory[1];
        wr.wr.rdma.rkey = loop.mr[1]->ibv.rkey;
    }
    return wr;
}

static void post_recv(uint64_t addr, uint32_t length, uint32_t lkey)
{
    struct ibv_sge element = {addr, length, lkey};
    struct ibv_recv_wr wr = {.wr_id = 99, .sg_list = &element, .num_sge = 1}, *bad;

    CHECK_EQ(vb_post_recv(loop.qp[1], &wr, &bad), 0);
}

static uint32_t region_with(unsigned access, struct vb_pd *pd)
{
    struct vb_mr *mr;

    CHECK_EQ(vb_mr_reg(pd, loop.memory[1], LOOPBACK_BYTES, (uintptr_t)loop.memory[1], access, &mr),
             0);
    return mr->ibv.rkey;
}

/* ---- what makes each request a bad one ---- */

static void no_such_rkey(struct ibv_send_wr *wr)
{
    wr->wr.rdma.rkey ^= 0xffffff00;
}

static void closed_region(struct ibv_send_wr *wr)
{
    struct vb_mr *mr;

    (void)wr;
    for (int i = 0; i < 200; ++i) { /* its entry in the table is used again and again */
        CHECK_EQ(vb_mr_dereg(loop.mr[1]), 0);
        CHECK_EQ(vb_mr_reg(loop.pd, loop.memory[1], LOOPBACK_BYTES, (uintptr_t)loop.memory[1],
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &mr),
                 0);
        loop.mr[1] = mr;
    }
}

static void before_the_region(struct ibv_send_wr *wr)
{
    wr->wr.rdma.remote_addr -= 4;
}

static void beyond_the_region(struct ibv_send_wr *wr)
{
    wr->wr.rdma.remote_addr += LOOPBACK_BYTES - 4;
}

static void around_the_address_space(struct ibv_send_wr *wr)
{
    wr->wr.rdma.remote_addr = UINT64_MAX - 3;
}

static void another_pd(struct ibv_send_wr *wr)
{
    struct vb_pd *pd;

    CHECK_EQ(vb_pd_alloc(loop.context, &pd), 0);
    wr->wr.rdma.rkey = region_with(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, pd);
}

static void region_for_reading(struct ibv_send_wr *wr)
{
    wr->wr.rdma.rkey = region_with(IBV_ACCESS_REMOTE_READ, loop.pd);
}

static void region_for_writing(struct ibv_send_wr *wr)
{
    wr->wr.rdma.rkey = region_with(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, loop.pd);
}

static void region_without_atomics(struct ibv_send_wr *wr)
{
    wr->wr.atomic.rkey = region_with(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, loop.pd);
}

static void qp_without_access(struct ibv_send_wr *wr)
{
    struct ibv_qp_attr attr = {.qp_access_flags = 0};

    (void)wr;
    CHECK_EQ(vb_qp_modify(loop.qp[1], &attr, IBV_QP_ACCESS_FLAGS), 0);
}

static void not_aligned(struct ibv_send_wr *wr)
{
    wr->wr.atomic.remote_addr += 4;
}

static void write_not_aligned(struct ibv_send_wr *wr)
{
    wr->wr.rdma.remote_addr += 4;
}

static void short_result(struct ibv_send_wr *wr)
{
    wr->sg_list[0].length = 4;
}

static void no_such_lkey(struct ibv_send_wr *wr)
{
    wr->sg_list[0].lkey ^= 0xffffff00;
}

static void beyond_the_local_region(struct ibv_send_wr *wr)
{
    wr->sg_list[0].addr += LOOPBACK_BYTES - 4;
}

static void second_element_is_wrong(struct ibv_send_wr *wr)
{
    wr->sg_list[1] = wr->sg_list[0];
    wr->sg_list[1].lkey ^= 0xffffff00;
    wr->num_sge = 2;
}

static void local_region_for_reading(struct ibv_send_wr *wr)
{
    struct vb_mr *mr;

    CHECK_EQ(vb_mr_reg(loop.pd, loop.memory[0], 64, (uintptr_t)loop.memory[0], 0, &mr), 0);
    wr->sg_list[0].lkey = mr->ibv.lkey;
}

static void no_reads_outstanding(struct ibv_send_wr *wr)
{
    (void)wr;
    loop.qp[0]->terms.max_rd_atomic = 0;
}

static void no_reads_there(struct ibv_send_wr *wr)
{
    (void)wr;
    loop.qp[1]->shared->max_dest_rd_atomic = 0;
}

static void longer_than_a_message(struct ibv_send_wr *wr)
{
    void *big = mmap(NULL, BIG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct vb_mr *mr;

    CHECK(big != MAP_FAILED);
    CHECK_EQ(vb_mr_reg(loop.pd, big, BIG, (uintptr_t)big, 0, &mr), 0);
    sge[0] = sge[1] = (struct ibv_sge){(uintptr_t)big, BIG, mr->ibv.lkey};
    wr->num_sge = 2;
}

static void receive_too_short(struct ibv_send_wr *wr)
{
    (void)wr;
    post_recv((uintptr_t)loop.memory[1], 4, loop.mr[1]->ibv.lkey);
}

static void receive_with_a_wrong_key(struct ibv_send_wr *wr)
{
    (void)wr;
    post_recv((uintptr_t)loop.memory[1], 64, loop.mr[1]->ibv.lkey ^ 0xffffff00);
}

static void receive_beyond_its_region(struct ibv_send_wr *wr)
{
    (void)wr;
    post_recv((uintptr_t)loop.memory[1] + LOOPBACK_BYTES - 4, 8, loop.mr[1]->ibv.lkey);
}

static void no_receive(struct ibv_send_wr *wr)
{
    (void)wr;
}

static uintptr_t gone; /* the buffer that the explanation names; 0: another one */

/* A page of a region whose memory was unmapped, or has other rights, since it was registered. */
static struct vb_mr *changed_page(uint8_t **page, int protection)
{
    struct vb_mr *mr;

    *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(*page != MAP_FAILED);
    CHECK_EQ(vb_mr_reg(loop.pd, *page, 4096, (uintptr_t)*page,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC,
                       &mr),
             0);
    CHECK_EQ(mprotect(*page, 4096, protection), 0);
    return mr;
}

static void local_page(struct ibv_send_wr *wr, int protection)
{
    uint8_t *page;

    wr->sg_list[0].lkey = changed_page(&page, protection)->ibv.lkey;
    gone = wr->sg_list[0].addr = (uintptr_t)page;
    if (wr->opcode == IBV_WR_SEND)
        post_recv((uintptr_t)loop.memory[1], 64, loop.mr[1]->ibv.lkey);
}

static void local_memory_gone(struct ibv_send_wr *wr)
{
    local_page(wr, PROT_NONE);
}

static void local_memory_for_reading(struct ibv_send_wr *wr)
{
    local_page(wr, PROT_READ);
}

static void second_local_element_gone(struct ibv_send_wr *wr)
{
    uint8_t *page;

    sge[0].length = 3;
    sge[1] = (struct ibv_sge){0, 5, changed_page(&page, PROT_NONE)->ibv.lkey};
    gone = sge[1].addr = (uintptr_t)page;
    wr->num_sge = 2;
}

static void remote_page(struct ibv_send_wr *wr, int protection)
{
    uint8_t *page;
    struct vb_mr *mr = changed_page(&page, protection);

    gone = (uintptr_t)page + 8;
    if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr->wr.atomic.rkey = mr->ibv.rkey;
        wr->wr.atomic.remote_addr = (uintptr_t)page + 8;
    } else {
        wr->wr.rdma.rkey = mr->ibv.rkey;
        wr->wr.rdma.remote_addr = (uintptr_t)page + 8;
    }
}

static void remote_memory_gone(struct ibv_send_wr *wr)
{
    remote_page(wr, PROT_NONE);
}

static void remote_memory_for_reading(struct ibv_send_wr *wr)
{
    remote_page(wr, PROT_READ);
}

/* Its multiples of 8 are none in memory. */
static void displaced_region(struct ibv_send_wr *wr)
{
    uint8_t *at = loop.memory[1] + 4;
    struct vb_mr *mr;

    CHECK_EQ(vb_mr_reg(loop.pd, at, 64, (uintptr_t)at + 4,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
                       &mr),
             0);
    if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr->wr.atomic.rkey = mr->ibv.rkey;
        wr->wr.atomic.remote_addr = (uintptr_t)at + 4;
    } else {
        wr->wr.rdma.rkey = mr->ibv.rkey;
        wr->wr.rdma.remote_addr = (uintptr_t)at + 4;
    }
}

static void receive_memory_gone(struct ibv_send_wr *wr)
{
    uint8_t *page;
    uint32_t lkey = changed_page(&page, PROT_NONE)->ibv.lkey;

    (void)wr;
    gone = (uintptr_t)page;
    post_recv((uintptr_t)page, 64, lkey);
}

#define LOCAL_GONE  "own buffer"
#define REMOTE_GONE "can no longer be reached"
#define PEER_DIED   "ended, or closed its device"
#define NO_HELP     "did not do its part of the copy in time"
#define NO_ROOM     "no memory is left for the WRITE"

static const struct refusal {
    const char *name;
    enum ibv_wr_opcode opcode;
    void (*spoil)(struct ibv_send_wr *wr);
    enum ibv_wc_status status;
    const char *words; /* of the explanation */
    int event;         /* of the far QP, which is in ERR then */
    int far_status;    /* of its receive request; 0: it had none */
} refusals[] = {
    {"rkey", IBV_WR_RDMA_WRITE, no_such_rkey, IBV_WC_REM_ACCESS_ERR, "names no memory region",
     IBV_EVENT_QP_ACCESS_ERR, 0},
    {"rkey of a closed region", IBV_WR_RDMA_WRITE, closed_region, IBV_WC_REM_ACCESS_ERR,
     "names no memory region", IBV_EVENT_QP_ACCESS_ERR, 0},
    {"range before", IBV_WR_RDMA_WRITE, before_the_region, IBV_WC_REM_ACCESS_ERR,
     "not inside the region", IBV_EVENT_QP_ACCESS_ERR, 0},
    {"range beyond", IBV_WR_RDMA_WRITE, beyond_the_region, IBV_WC_REM_ACCESS_ERR,
     "not inside the region", IBV_EVENT_QP_ACCESS_ERR, 0},
    {"range beyond, READ", IBV_WR_RDMA_READ, beyond_the_region, IBV_WC_REM_ACCESS_ERR,
     "not inside the region", IBV_EVENT_QP_ACCESS_ERR, 0},
    {"range around", IBV_WR_RDMA_WRITE, around_the_address_space, IBV_WC_REM_ACCESS_ERR,
     "not inside the region", IBV_EVENT_QP_ACCESS_ERR, 0},
    {"PD", IBV_WR_RDMA_WRITE, another_pd, IBV_WC_REM_ACCESS_ERR, "protection domain",
     IBV_EVENT_QP_ACCESS_ERR, 0},
    {"access, WRITE", IBV_WR_RDMA_WRITE, region_for_reading, IBV_WC_REM_ACCESS_ERR,
     "needs REMOTE_WRITE", IBV_EVENT_QP_ACCESS_ERR, 0},
    {"access, READ", IBV_WR_RDMA_READ, region_for_writing, IBV_WC_REM_ACCESS_ERR,
     "needs REMOTE_READ", IBV_EVENT_QP_ACCESS_ERR, 0},
    {"access, atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, region_without_atomics, IBV_WC_REM_ACCESS_ERR,
     "needs REMOTE_ATOMIC", IBV_EVENT_QP_ACCESS_ERR, 0},
    {"QP's access, WRITE", IBV_WR_RDMA_WRITE, qp_without_access, IBV_WC_REM_INV_REQ_ERR,
     "qp_access_flags", IBV_EVENT_QP_REQ_ERR, 0},
    {"QP's access, READ", IBV_WR_RDMA_READ, qp_without_access, IBV_WC_REM_INV_REQ_ERR,
     "qp_access_flags", IBV_EVENT_QP_REQ_ERR, 0},
    {"QP's access, atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, qp_without_access, IBV_WC_REM_INV_REQ_ERR,
     "qp_access_flags", IBV_EVENT_QP_REQ_ERR, 0},
    {"alignment", IBV_WR_ATOMIC_FETCH_AND_ADD, not_aligned, IBV_WC_REM_INV_REQ_ERR,
     "not a multiple of 8", IBV_EVENT_QP_REQ_ERR, 0},
    {"place, atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, displaced_region, IBV_WC_REM_INV_REQ_ERR,
     "not a multiple of 8", IBV_EVENT_QP_REQ_ERR, 0},
    {"place, atomic write", IBV_WR_ATOMIC_WRITE, displaced_region, IBV_WC_REM_INV_REQ_ERR,
     "not a multiple of 8", IBV_EVENT_QP_REQ_ERR, 0},
    {"access, atomic write", IBV_WR_ATOMIC_WRITE, region_for_reading, IBV_WC_REM_ACCESS_ERR,
     "needs REMOTE_WRITE", IBV_EVENT_QP_ACCESS_ERR, 0},
    {"QP's access, atomic write", IBV_WR_ATOMIC_WRITE, qp_without_access, IBV_WC_REM_INV_REQ_ERR,
     "qp_access_flags", IBV_EVENT_QP_REQ_ERR, 0},
    {"alignment, atomic write", IBV_WR_ATOMIC_WRITE, write_not_aligned, IBV_WC_REM_INV_REQ_ERR,
     "not a multiple of 8", IBV_EVENT_QP_REQ_ERR, 0},
    {"atomic write's value", IBV_WR_ATOMIC_WRITE, short_result, IBV_WC_LOC_LEN_ERR,
     "writes 8 bytes", NO_EVENT, 0},
    {"lkey, atomic write", IBV_WR_ATOMIC_WRITE, no_such_lkey, IBV_WC_LOC_PROT_ERR, "lkey", NO_EVENT,
     0},
    {"max_rd_atomic, atomic write", IBV_WR_ATOMIC_WRITE, no_reads_outstanding, IBV_WC_LOC_QP_OP_ERR,
     "max_rd_atomic", NO_EVENT, 0},
    {"atomic's result", IBV_WR_ATOMIC_FETCH_AND_ADD, short_result, IBV_WC_LOC_LEN_ERR,
     "returns 8 bytes", NO_EVENT, 0},
    {"lkey", IBV_WR_RDMA_WRITE, no_such_lkey, IBV_WC_LOC_PROT_ERR, "lkey", NO_EVENT, 0},
    {"lkey, SEND", IBV_WR_SEND, no_such_lkey, IBV_WC_LOC_PROT_ERR, "lkey", NO_EVENT, 0},
    {"local range", IBV_WR_RDMA_WRITE, beyond_the_local_region, IBV_WC_LOC_PROT_ERR,
     "not inside the region", NO_EVENT, 0},
    {"second element", IBV_WR_RDMA_WRITE, second_element_is_wrong, IBV_WC_LOC_PROT_ERR, "lkey",
     NO_EVENT, 0},
    {"local access, READ", IBV_WR_RDMA_READ, local_region_for_reading, IBV_WC_LOC_PROT_ERR,
     "needs LOCAL_WRITE", NO_EVENT, 0},
    {"local access, atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, local_region_for_reading,
     IBV_WC_LOC_PROT_ERR, "needs LOCAL_WRITE", NO_EVENT, 0},
    {"max_rd_atomic", IBV_WR_RDMA_READ, no_reads_outstanding, IBV_WC_LOC_QP_OP_ERR,
     "READ needs max_rd_atomic of QP", NO_EVENT, 0},
    {"max_dest_rd_atomic", IBV_WR_RDMA_READ, no_reads_there, IBV_WC_REM_INV_REQ_ERR,
     "READ needs max_dest_rd_atomic of QP", IBV_EVENT_QP_REQ_ERR, 0},
    {"2 GiB, WRITE", IBV_WR_RDMA_WRITE, longer_than_a_message, IBV_WC_LOC_LEN_ERR, "2147483647",
     NO_EVENT, 0},
    {"2 GiB, SEND", IBV_WR_SEND, longer_than_a_message, IBV_WC_LOC_LEN_ERR, "2147483647", NO_EVENT,
     0},
    {"short receive", IBV_WR_SEND, receive_too_short, IBV_WC_REM_INV_REQ_ERR, "has room for 4",
     IBV_EVENT_QP_REQ_ERR, IBV_WC_LOC_LEN_ERR},
    {"receive's key", IBV_WR_SEND, receive_with_a_wrong_key, IBV_WC_REM_OP_ERR,
     "the receive request's lkey", IBV_EVENT_QP_REQ_ERR, IBV_WC_LOC_PROT_ERR},
    {"receive's range", IBV_WR_SEND, receive_beyond_its_region, IBV_WC_REM_OP_ERR,
     "the receive request's lkey", IBV_EVENT_QP_REQ_ERR, IBV_WC_LOC_PROT_ERR},
    {"local memory, WRITE", IBV_WR_RDMA_WRITE, local_memory_gone, IBV_WC_LOC_PROT_ERR, LOCAL_GONE,
     NO_EVENT, 0},
    {"local memory, READ", IBV_WR_RDMA_READ, local_memory_gone, IBV_WC_LOC_PROT_ERR, LOCAL_GONE,
     NO_EVENT, 0},
    {"local memory for reading, READ", IBV_WR_RDMA_READ, local_memory_for_reading,
     IBV_WC_LOC_PROT_ERR, LOCAL_GONE, NO_EVENT, 0},
    {"local memory, SEND", IBV_WR_SEND, local_memory_gone, IBV_WC_LOC_PROT_ERR, LOCAL_GONE,
     NO_EVENT, 0},
    {"local memory, atomic write", IBV_WR_ATOMIC_WRITE, local_memory_gone, IBV_WC_LOC_PROT_ERR,
     LOCAL_GONE, NO_EVENT, 0},
    {"local memory, atomic write in two", IBV_WR_ATOMIC_WRITE, second_local_element_gone,
     IBV_WC_LOC_PROT_ERR, LOCAL_GONE, NO_EVENT, 0},
    {"remote memory, WRITE", IBV_WR_RDMA_WRITE, remote_memory_gone, IBV_WC_REM_OP_ERR, REMOTE_GONE,
     IBV_EVENT_QP_FATAL, 0},
    {"remote memory for reading, WRITE", IBV_WR_RDMA_WRITE, remote_memory_for_reading,
     IBV_WC_REM_OP_ERR, REMOTE_GONE, IBV_EVENT_QP_FATAL, 0},
    {"remote memory, READ", IBV_WR_RDMA_READ, remote_memory_gone, IBV_WC_REM_OP_ERR, REMOTE_GONE,
     IBV_EVENT_QP_FATAL, 0},
    {"remote memory, atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, remote_memory_gone, IBV_WC_REM_OP_ERR,
     REMOTE_GONE, IBV_EVENT_QP_FATAL, 0},
    {"remote memory for reading, atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, remote_memory_for_reading,
     IBV_WC_REM_OP_ERR, REMOTE_GONE, IBV_EVENT_QP_FATAL, 0},
    {"remote memory, atomic write", IBV_WR_ATOMIC_WRITE, remote_memory_gone, IBV_WC_REM_OP_ERR,
     REMOTE_GONE, IBV_EVENT_QP_FATAL, 0},
    {"receive's memory", IBV_WR_SEND, receive_memory_gone, IBV_WC_REM_OP_ERR, REMOTE_GONE,
     IBV_EVENT_QP_FATAL, IBV_WC_LOC_PROT_ERR},
    {"no receive", IBV_WR_SEND, no_receive, IBV_WC_RNR_RETRY_EXC_ERR, "Post receives", NO_EVENT, 0},
};

enum { REFUSALS = sizeof(refusals) / sizeof(*refusals) };

/* ---- what is looked at ---- */

static int next_event(void)
{
    struct pollfd readable = {.fd = loop.context->async_fd, .events = POLLIN};
    struct ibv_async_event event;

    if (poll(&readable, 1, 0) != 1)
        return NO_EVENT;
    CHECK_EQ(vb_event_get(loop.context, &event), 0);
    vb_event_ack(loop.context, &event);
    CHECK(event.element.qp == &loop.qp[1]->verbs->ibv);
    return (int)event.event_type;
}

static void check_explained(const struct ibv_wc *wc, const char *words)
{
    char text[400] = "", range[40] = "";

    CHECK(vb_evidence_text(&loop.direct->adapter->self, wc->vendor_err, text, sizeof(text)) > 0);
    if (!strstr(text, words))
        printf("  \"%s\" is not in: %s\n", words, text);
    CHECK(strstr(text, words) != NULL);
    if (gone)
        snprintf(range, sizeof(range), "[%p, +", (void *)gone);
    CHECK(strstr(text, range) != NULL);
}

static bool untouched(const uint8_t *memory, uint8_t pattern)
{
    for (int i = 0; i < LOOPBACK_BYTES; ++i)
        if (memory[i] != pattern)
            return false;
    return true;
}

/* What the far QP has kept says whose request it refused, and which. */
static void check_kept(const struct refusal *row)
{
    uint32_t id = atomic_load(&loop.qp[1]->shared->failed);
    struct vb_evidence kept;

    CHECK_EQ(id != 0, row->event != NO_EVENT);
    if (!id)
        return;
    CHECK(vb_evidence_get(&loop.direct->adapter->self, id, &kept));
    CHECK_EQ(kept.wr_opcode, row->opcode);
    if (gone) {
        CHECK_EQ(kept.addr, gone);
        CHECK_EQ(kept.length, 8);
    }
}

static void check_far(const struct refusal *row)
{
    struct ibv_wc wc;

    check_kept(row);

    CHECK_EQ(next_event(), row->event);
    CHECK_EQ(vb_qp_state(loop.qp[1]), row->event == NO_EVENT ? IBV_QPS_RTS : IBV_QPS_ERR);
    if (row->far_status) {
        CHECK_EQ(loopback_poll(loop.cq[1], &wc), 0);
        CHECK_EQ(wc.wr_id, 99);
        CHECK_EQ(wc.status, row->far_status);
    }
    CHECK_EQ(vb_cq_poll(loop.cq[1], 1, &wc), 0);
}

static void check_refusal(const struct refusal *row)
{
    struct ibv_send_wr wr, *bad;
    struct ibv_wc wc;

    printf("  %s\n", row->name);
    begin(IBV_QPT_RC);
    wr = request(row->opcode);
    gone = 0;
    row->spoil(&wr);
    CHECK_EQ(vb_post_send(loop.qp[0], &wr, &bad), 0);
    CHECK_EQ(loopback_poll(loop.cq[0], &wc),
             0); /* not signalled: a failure completes all the same */
    CHECK_EQ(wc.wr_id, 77);
    CHECK_EQ(wc.status, row->status);
    check_explained(&wc, row->words);
    CHECK_EQ(vb_qp_state(loop.qp[0]), IBV_QPS_ERR);
    check_far(row);
    CHECK(untouched(loop.memory[0], 0xa0));
    CHECK(untouched(loop.memory[1], 0xb1));
    CHECK_EQ(vb_cq_poll(loop.cq[0], 1, &wc), 0);
    loopback_close(&loop);
}

static void each_refusal_is_complete(void)
{
    for (int i = 0; i < REFUSALS; ++i)
        check_refusal(&refusals[i]);
}

/* UC: the far side drops what it refuses, and nobody is told (IBA 9.8.3). */
static void an_unreliable_connection_drops_in_silence(void)
{
    for (int i = 0; i < REFUSALS; ++i) {
        const struct refusal *row = &refusals[i];
        struct ibv_send_wr wr, *bad;
        struct ibv_wc wc;

        if (row->opcode != IBV_WR_RDMA_WRITE || row->event == NO_EVENT)
            continue;
        begin(IBV_QPT_UC);
        wr = request(row->opcode);
        wr.send_flags = IBV_SEND_SIGNALED;
        row->spoil(&wr);
        CHECK_EQ(vb_post_send(loop.qp[0], &wr, &bad), 0);
        CHECK_EQ(loopback_poll(loop.cq[0], &wc), 0);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(next_event(), NO_EVENT);
        CHECK_EQ(atomic_load(&loop.qp[1]->shared->failed), 0);
        CHECK_EQ(vb_qp_state(loop.qp[0]), IBV_QPS_RTS);
        CHECK_EQ(vb_qp_state(loop.qp[1]), IBV_QPS_RTS);
        CHECK(untouched(loop.memory[1], 0xb1));
        loopback_close(&loop);
    }
}

/* A copy that the far process did not help with. UC does not hear of it (IBA 9.8.3), and hears
 * only that this process has no room for the copy. */
static void a_copy_that_fails_is_explained(void)
{
    static const struct {
        int error;
        enum ibv_wc_status rc, uc;
        const char *words; /* NULL: RC waits */
        bool by_death;
        enum ibv_wr_opcode opcode;
    } rows[] = {
        {-EAGAIN, IBV_WC_SUCCESS, IBV_WC_SUCCESS, NULL, false, IBV_WR_RDMA_WRITE},
        {-EPIPE, IBV_WC_RETRY_EXC_ERR, IBV_WC_SUCCESS, PEER_DIED, true, IBV_WR_RDMA_WRITE},
        {-ECONNRESET, IBV_WC_RETRY_EXC_ERR, IBV_WC_SUCCESS, PEER_DIED, true, IBV_WR_RDMA_WRITE},
        {-ETIMEDOUT, IBV_WC_SUCCESS, IBV_WC_SUCCESS, NULL, false, IBV_WR_RDMA_WRITE},
        {-ETIMEDOUT, IBV_WC_RETRY_EXC_ERR, IBV_WC_SUCCESS, NO_HELP, false,
         IBV_WR_ATOMIC_FETCH_AND_ADD}, /* it may be done yet, and not twice */
        {-EIO, IBV_WC_RETRY_EXC_ERR, IBV_WC_SUCCESS, NO_HELP, false, IBV_WR_RDMA_WRITE},
        {-ENOMEM, IBV_WC_GENERAL_ERR, IBV_WC_GENERAL_ERR, NO_ROOM, false, IBV_WR_RDMA_WRITE},
    };

    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); ++i) {
        bool is_uc = i % 2;
        enum ibv_wc_status status = is_uc ? rows[i / 2].uc : rows[i / 2].rc;
        struct ibv_send_wr wr;
        struct vb_outcome outcome = {.status = IBV_WC_SUCCESS};
        struct vb_connection *to;
        struct vb_spans none = {0};
        struct ibv_wc wc = {0};
        int returned;

        begin(is_uc ? IBV_QPT_UC : IBV_QPT_RC);
        gone = 0;
        to = loop.qp[0]->verbs->connection;
        CHECK(vb_direct_connection_attach_peer(loop.qp[0]));
        wr = request(rows[i / 2].opcode);
        vb_sq_lock(loop.qp[0]);
        returned = vb_direct_copy_failed(to, &wr, rows[i / 2].error, &none, &none, &outcome);
        vb_sq_unlock(loop.qp[0]);
        CHECK_EQ(returned, !rows[i / 2].words && !is_uc ? -EAGAIN : 0);
        CHECK_EQ(outcome.status, status);
        CHECK_EQ(to->failed_by_death, rows[i / 2].by_death && !is_uc);
        wc.vendor_err = outcome.evidence;
        if (status)
            check_explained(&wc, rows[i / 2].words);
        CHECK_EQ(vb_qp_state(loop.qp[1]), IBV_QPS_RTS);
        loopback_close(&loop);
    }
}

/* Lengths of zero: no byte moves, so no key is looked at (IBA 9.7.4.1.5). */
static void a_request_for_no_byte_needs_no_key(void)
{
    struct ibv_send_wr wr, *bad;
    struct ibv_wc wc;

    begin(IBV_QPT_RC);
    wr = request(IBV_WR_RDMA_WRITE);
    wr.num_sge = 0;
    wr.wr.rdma.rkey = 0;
    wr.send_flags = IBV_SEND_SIGNALED;
    CHECK_EQ(vb_post_send(loop.qp[0], &wr, &bad), 0);
    CHECK_EQ(loopback_poll(loop.cq[0], &wc), 0);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    loopback_close(&loop);
}

int main(void)
{
    RUN(each_refusal_is_complete);
    RUN(an_unreliable_connection_drops_in_silence);
    RUN(a_copy_that_fails_is_explained);
    RUN(a_request_for_no_byte_needs_no_key);
    return 0;
}
