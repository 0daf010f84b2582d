// SPDX-License-Identifier: Apache-2.0
/*
 * What the text of a NAK lists. Each row makes one cause happen between two packet engines, and the
 * text must list it; then, over every operation and code, nothing may be listed that no row has
 * made happen.
 */
#include <sys/mman.h>

#include "check.h"
#include "fabric.h"
#include "hca/causes.h"
#include "hca/sentences.h"
#include "memory/guard.h"
#include "wire/headers.h"

enum { LONGEST = 1200, ROOM = 750, FAR = 1 };

static struct fabric fabric;
static struct vb_qp *qp[2];
static struct qp_options options;
static uint32_t srq_num; /* that an XRC request names */

static const char ACCESS[] = "its qp_access_flags do not allow it";
static const char READS[] = "more READs and atomics are under way than its max_dest_rd_atomic";
static const char SHORT[] = "the message is longer than the receive request that it met";
static const char MTUS[] = "the two QPs differ in their path MTU";
static const char ODD[] = "the address, or that of the memory behind it, is not a multiple of 8";
static const char SRQ[] = "the request names no SRQ of that QP's XRC domain";
static const char RKEY[] =
    "the rkey names no region of that QP's protection domain that covers the range and grants the "
    "access, or a memory window that another QP has bound";
static const char INVALIDATE[] =
    "the rkey to invalidate is not that of a memory window of type 2 that is bound for that QP";
static const char RECEIVE[] =
    "the lkey of its receive request is wrong, or the memory behind that is gone";
static const char FULL[] = "its completion queue is full";
static const char GONE[] =
    "the memory behind the rkey was unmapped, or protected against the access";

/* Of adapters that are not here: soft-RoCE, and such as do not know the newest operations. */
static const char *const elsewhere[] = {
    "its adapter does not serve this operation",
    "the message is longer than its receive request, where Linux soft-RoCE answers",
};

/* ---- what is wrong ---- */

static void no_access(struct ibv_send_wr *wr)
{
    (void)wr;
    options.access = 0;
}

static void no_reads(struct ibv_send_wr *wr)
{
    (void)wr;
    options.dest_rd_atomic = 0;
}

static void bad_key(struct ibv_send_wr *wr)
{
    if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
        wr->wr.atomic.rkey ^= 1;
    else
        wr->wr.rdma.rkey ^= 1;
}

static void odd_address(struct ibv_send_wr *wr)
{
    if (wr->opcode == IBV_WR_ATOMIC_WRITE)
        wr->wr.rdma.remote_addr += 4;
    else
        wr->wr.atomic.remote_addr += 4;
}

static void nothing(struct ibv_send_wr *wr)
{
    (void)wr;
}

enum receive { NONE = 0, SOUND, TOO_SHORT, WRONG_KEY, INTO_NOTHING };
enum far { USUAL = 0, OTHER_MTU, UNMAPPED, CQ_FULL, XRC };

#define OP(name) (1u << IBV_WR_##name)
#define SENDS    (OP(SEND) | OP(SEND_WITH_IMM) | OP(SEND_WITH_INV))
#define WRITES   (OP(RDMA_WRITE) | OP(RDMA_WRITE_WITH_IMM))
#define EIGHT    (OP(ATOMIC_CMP_AND_SWP) | OP(ATOMIC_FETCH_AND_ADD) | OP(ATOMIC_WRITE))
#define EACH     (OP(RDMA_READ) | EIGHT | OP(FLUSH))

static const struct row {
    const char *cause;
    enum vb_nak code;
    uint32_t operations;
    void (*spoil)(struct ibv_send_wr *wr);
    enum receive receive;
    enum far far;
} rows[] = {
    {ACCESS, VB_NAK_INVALID_REQUEST, WRITES | EACH, no_access, SOUND, USUAL},
    {READS, VB_NAK_INVALID_REQUEST, EACH, no_reads, NONE, USUAL},
    {SHORT, VB_NAK_INVALID_REQUEST, SENDS, nothing, TOO_SHORT, USUAL},
    {MTUS, VB_NAK_INVALID_REQUEST, SENDS | WRITES, nothing, SOUND, OTHER_MTU},
    {ODD, VB_NAK_INVALID_REQUEST, EIGHT, odd_address, NONE, USUAL},
    {SRQ, VB_NAK_INVALID_REQUEST, SENDS | WRITES | EACH, nothing, NONE, XRC},
    {RKEY, VB_NAK_REMOTE_ACCESS, WRITES | EACH, bad_key, SOUND, USUAL},
    {INVALIDATE, VB_NAK_REMOTE_ACCESS, OP(SEND_WITH_INV), nothing, SOUND, USUAL},
    {RECEIVE, VB_NAK_REMOTE_OPERATION, SENDS, nothing, WRONG_KEY, USUAL},
    {RECEIVE, VB_NAK_REMOTE_OPERATION, SENDS, nothing, INTO_NOTHING, USUAL},
    {FULL, VB_NAK_REMOTE_OPERATION, SENDS | OP(RDMA_WRITE_WITH_IMM), nothing, SOUND, CQ_FULL},
    {GONE, VB_NAK_REMOTE_OPERATION, WRITES | OP(RDMA_READ) | EIGHT, nothing, SOUND, UNMAPPED},
};

enum { ROWS = sizeof(rows) / sizeof(*rows) };

static const enum ibv_wr_opcode operations[] = {
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,
    IBV_WR_SEND_WITH_INV,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_RDMA_READ,
    IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_ATOMIC_WRITE,
    IBV_WR_FLUSH,
};

enum { OPERATIONS = sizeof(operations) / sizeof(*operations) };

static bool has(const struct row *row, enum ibv_wr_opcode opcode)
{
    return row->operations >> opcode & 1;
}

/* ---- one refusal ---- */

static struct vb_mw *window;
static struct vb_mr *gone; /* a region of the far side whose memory was unmapped */

static uint32_t length_of(enum ibv_wr_opcode opcode)
{
    return EIGHT >> opcode & 1 ? 8 : 600;
}

static void open_xrc(void)
{
    struct side *far = &fabric.side[FAR];
    struct qp_options of_target = options;
    struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_XRC_RECV};
    struct vb_xrcd *xrcd;

    CHECK_EQ(vb_xrcd_open(far->context, 4, -1, &xrcd), 0);
    attr.xrcd = &xrcd->ibv;
    options.type = IBV_QPT_XRC_SEND;
    of_target.type = IBV_QPT_XRC_RECV;
    qp[0] = fabric_qp(&fabric, 0, &options);
    CHECK_EQ(vb_qp_create(far->context, &attr, &qp[1]), 0);
    fabric_ready(&fabric, qp[1], qp[0]->number, &of_target);
    fabric_ready(&fabric, qp[0], qp[1]->number, &options);
    srq_num = 12345;
}

static void open_pair(enum far far)
{
    struct qp_options there = options;

    if (far == CQ_FULL)
        CHECK_EQ(vb_cq_create(fabric.side[FAR].context, 1, NULL, NULL, &fabric.side[FAR].recv_cq),
                 0);
    if (far == OTHER_MTU)
        there.mtu = 256;
    qp[0] = fabric_qp(&fabric, 0, &options);
    qp[1] = fabric_qp(&fabric, FAR, &there);
    fabric_ready(&fabric, qp[1], qp[0]->number, &there);
    fabric_ready(&fabric, qp[0], qp[1]->number, &options);
}

static void unmap_a_region(void)
{
    struct side *far = &fabric.side[FAR];
    void *memory =
        mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    CHECK(memory != MAP_FAILED);
    CHECK_EQ(vb_mr_reg(far->pd, memory, 8192, (uintptr_t)memory,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC,
                       &gone),
             0);
    munmap(memory, 8192);
}

static void aim_at_nothing(struct ibv_send_wr *wr)
{
    bool fetches = (OP(ATOMIC_CMP_AND_SWP) | OP(ATOMIC_FETCH_AND_ADD)) >> wr->opcode & 1;

    if (fetches) {
        wr->wr.atomic.remote_addr = (uintptr_t)gone->ibv.addr;
        wr->wr.atomic.rkey = gone->ibv.rkey;
    } else {
        wr->wr.rdma.remote_addr = (uintptr_t)gone->ibv.addr;
        wr->wr.rdma.rkey = gone->ibv.rkey;
    }
}

/* A key that a SEND may invalidate. */
static uint32_t bound_window(void)
{
    struct side *far = &fabric.side[FAR];
    struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;
    struct vb_mr *bindable;

    CHECK_EQ(vb_mr_reg(far->pd, far->memory, 4096, (uintptr_t)far->memory,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, &bindable),
             0);
    CHECK_EQ(vb_mw_alloc(far->pd, IBV_MW_TYPE_2, &window), 0);
    wr.bind_mw.mw = &window->ibv;
    wr.bind_mw.rkey = (window->ibv.rkey & ~0xffu) | ((window->ibv.rkey + 1) & 0xff);
    wr.bind_mw.bind_info.mr = &bindable->ibv;
    wr.bind_mw.bind_info.addr = (uintptr_t)far->memory;
    wr.bind_mw.bind_info.length = 64;
    CHECK_EQ(vb_post_send(qp[1], &wr, &bad), 0);
    CHECK_EQ(fabric_wait(&fabric, far->send_cq).status, IBV_WC_SUCCESS);
    return wr.bind_mw.rkey;
}

static void post_receive(enum receive receive, uint32_t length)
{
    const struct side *far = &fabric.side[FAR];
    struct ibv_sge sge = {(uintptr_t)far->memory, length, far->mr->ibv.lkey};
    struct ibv_recv_wr wr = {.wr_id = 50, .sg_list = &sge, .num_sge = 1}, *bad;

    if (receive == TOO_SHORT)
        sge.length = 4;
    if (receive == WRONG_KEY)
        sge.lkey ^= 1;
    if (receive == INTO_NOTHING) {
        sge.addr = (uintptr_t)gone->ibv.addr;
        sge.lkey = gone->ibv.lkey;
    }
    CHECK_EQ(vb_post_recv(qp[1], &wr, &bad), 0);
}

/* One that takes the only place of the far side's CQ. */
static void fill_the_queue(void)
{
    post_receive(SOUND, 8);
    CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 8), 0);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
}

static void begin(const struct row *row, struct ibv_send_wr *wr)
{
    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    unmap_a_region();
    options = fabric_defaults();
    wr->opcode = 0;
    if (row->spoil == no_access || row->spoil == no_reads)
        row->spoil(wr);
    srq_num = 0;
    if (row->far == XRC)
        open_xrc();
    else
        open_pair(row->far);
}

static struct ibv_wc refused(const struct row *row, enum ibv_wr_opcode opcode)
{
    uint32_t length = length_of(opcode);
    struct ibv_send_wr wr = {0};

    begin(row, &wr);
    if (row->far == CQ_FULL)
        fill_the_queue();
    if (row->receive)
        post_receive(row->receive, 4096);
    wr = fabric_request(&fabric, 0, opcode, 0);
    wr.qp_type.xrc.remote_srqn = srq_num;
    if (opcode == IBV_WR_SEND_WITH_INV)
        wr.invalidate_rkey = row->cause == INVALIDATE || row->far == XRC ? 17 : bound_window();
    if (row->far == UNMAPPED)
        aim_at_nothing(&wr);
    row->spoil(&wr);
    CHECK_EQ(fabric_post(&fabric, qp[0], wr, 0, length), 0);
    return fabric_wait(&fabric, fabric.side[0].send_cq);
}

static void check_row(const struct row *row, enum ibv_wr_opcode opcode)
{
    static const enum ibv_wc_status statuses[] = {
        [VB_NAK_INVALID_REQUEST] = IBV_WC_REM_INV_REQ_ERR,
        [VB_NAK_REMOTE_ACCESS] = IBV_WC_REM_ACCESS_ERR,
        [VB_NAK_REMOTE_OPERATION] = IBV_WC_REM_OP_ERR,
    };
    struct ibv_wc wc = refused(row, opcode);
    char text[LONGEST];

    CHECK_EQ(wc.status, statuses[row->code]);
    CHECK(vb_evidence_text(&fabric.side[0].adapter.self, wc.vendor_err, text, LONGEST) > 0);
    CHECK(strlen(text) < ROOM); /* what the other side saw follows, in 1024 bytes */
    if (!strstr(text, row->cause))
        printf("  %s\n  is not in: %s\n", row->cause, text);
    CHECK(strstr(text, row->cause));
    if (row->far == OTHER_MTU)
        fabric_expect_text(&fabric, FAR, qp[1]->shared->failed, "Do both sides have one path MTU?");
    fabric_close(&fabric);
}

static void each_cause_is_named_where_it_is_one(void)
{
    for (int i = 0; i < ROWS; ++i)
        for (int k = 0; k < OPERATIONS; ++k)
            if (has(&rows[i], operations[k]))
                check_row(&rows[i], operations[k]);
}

/* ---- all that is ever listed ---- */

static bool is_made(enum vb_nak code, enum ibv_wr_opcode opcode, const char *cause)
{
    for (int i = 0; i < ROWS; ++i)
        if (rows[i].code == code && has(&rows[i], opcode) && !strcmp(rows[i].cause, cause))
            return true;
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(*elsewhere); ++i)
        if (!strcmp(elsewhere[i], cause))
            return true;
    return false;
}

static int count_listed(enum vb_nak code, enum ibv_wr_opcode opcode, enum ibv_qp_type type)
{
    struct vb_evidence evidence = {
        .count = code, .wr_opcode = (uint16_t)opcode, .type = (uint8_t)type, .length = 100000};
    char room[LONGEST], *at, *next;
    struct vb_text text = {.at = room, .left = sizeof(room)};
    int count = 0;

    vb_causes_say(&text, &evidence);
    at = strstr(room, ": ");
    for (at = at ? at + 2 : NULL; at; at = next, ++count) {
        next = strstr(at, "; or ");
        if (next) {
            *next = '\0';
            next += strlen("; or ");
        }
        if (!is_made(code, opcode, at))
            printf("  operation %d, code %d: %s\n", opcode, code, at);
        CHECK(is_made(code, opcode, at));
        CHECK(type == IBV_QPT_XRC_SEND || strcmp(at, SRQ) != 0);
    }
    return count;
}

static void nothing_is_named_that_cannot_be(void)
{
    for (int k = 0; k < OPERATIONS; ++k)
        for (enum vb_nak code = VB_NAK_INVALID_REQUEST; code <= VB_NAK_REMOTE_OPERATION; ++code) {
            int listed = count_listed(code, operations[k], IBV_QPT_RC);

            CHECK_EQ(count_listed(code, operations[k], IBV_QPT_XRC_SEND),
                     listed + (code == VB_NAK_INVALID_REQUEST));
        }
}

/* A message that fits into the smallest packet is whole in it, whatever both sides agreed on. */
static void a_short_message_knows_no_path_mtu(void)
{
    struct vb_evidence evidence = {
        .count = VB_NAK_INVALID_REQUEST, .wr_opcode = IBV_WR_RDMA_WRITE, .length = 256};
    char room[LONGEST];
    struct vb_text text = {.at = room, .left = sizeof(room)};

    vb_causes_say(&text, &evidence);
    CHECK(!strstr(room, MTUS));
    CHECK(strstr(room, ACCESS));
}

int main(void)
{
    vb_memory_guard_start(); /* what is unmapped fails a request and not this program */
    RUN(each_cause_is_named_where_it_is_one);
    RUN(nothing_is_named_that_cannot_be);
    RUN(a_short_message_knows_no_path_mtu);
    vb_memory_guard_stop();
    return 0;
}
