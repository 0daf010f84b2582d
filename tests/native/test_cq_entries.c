// SPDX-License-Identifier: Apache-2.0
/*
 * Entries of a completion queue that a test writes by hand, of each kind and for several QPs and
 * SRQs: which of them a QP's or an SRQ's end makes void, which receive requests are still in the
 * queue, which payloads are placed and when, and what poll makes of each field.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "end.h"
#include "hca/sentences.h"
#include "hca/srq.h"
#include "hca/xrc.h"
#include "hca/yield.h"
#include "loopback.h"
#include "memory/watch.h"

#define KINDS (VB_CQE_RECV_XRC + 1)
enum { OWNERS = 3, REQUESTS = 3, PAGE = 4096, BYTES = 24 };

static struct loopback loop;

static struct vb_adapter *adapter(void)
{
    return &loop.host->adapter;
}

static void begin(enum ibv_qp_type type)
{
    loopback_open(&loop, type);
}

static struct vb_cqe *push(struct vb_cq *cq, struct vb_cqe fields)
{
    struct vb_adapter *of = cq->context->adapter;
    static const atomic_bool gone;
    unsigned refused;
    struct vb_cqe *entry = vb_cqe_reserve(of, &of->self, cq->shared, &gone, &refused);

    CHECK(entry != NULL);
    memcpy(entry, &fields, offsetof(struct vb_cqe, seq));
    CHECK_EQ(vb_cqe_publish(of, cq->shared, entry, false), VB_PUSHED);
    return entry;
}

static struct vb_cqe *push_kind(struct vb_cq *cq, enum vb_cqe_kind kind, uint32_t of, uint32_t wqe)
{
    return push(cq, (struct vb_cqe){.kind = (uint8_t)kind, .qp = of, .wqe = wqe, .wr_id = 5});
}

/* Takes all entries that are void, and finds no other. */
static void take_void(struct vb_cq *cq)
{
    struct ibv_wc wc;

    CHECK_EQ(vb_cq_poll(cq, 1, &wc), 0);
    CHECK(!vb_cq_has_entry_at(cq, vb_cq_taken(cq)));
}

static bool is_receive(enum vb_cqe_kind kind)
{
    return kind == VB_CQE_RECV || kind == VB_CQE_RECV_INLINE || kind == VB_CQE_RECV_STAGED;
}

/* ---- which requests are in the queue ---- */

static void expect_held(struct vb_cq *cq, enum vb_cqe_kind kind, uint32_t of, uint32_t request)
{
    for (uint32_t i = 0; i < OWNERS; ++i)
        for (uint32_t j = 0; j < REQUESTS; ++j) {
            bool is_meant = i == of && j == request;

            CHECK_EQ(vb_cq_holds_recv(cq, i, j), is_meant && is_receive(kind));
            CHECK_EQ(vb_cq_holds_xrc(cq, i, j), is_meant && kind == VB_CQE_RECV_XRC);
        }
}

/* Wherever it is among others, and not any more once it was polled. */
static void a_request_is_in_the_queue_until_it_is_polled(void)
{
    begin(IBV_QPT_RC);
    for (enum vb_cqe_kind kind = VB_CQE_SEND; kind <= VB_CQE_RECV_XRC; ++kind)
        for (uint32_t of = 0; of < OWNERS; ++of)
            for (uint32_t request = 0; request < REQUESTS; ++request) {
                struct vb_cqe *entry;

                push_kind(loop.cq[0], VB_CQE_SEND, of, request)->kind = VB_CQE_VOID;
                entry = push_kind(loop.cq[0], kind, of, request);
                CHECK(vb_cq_has_entry_at(loop.cq[0], vb_cq_taken(loop.cq[0]) + 1));
                CHECK(!vb_cq_has_entry_at(loop.cq[0], vb_cq_taken(loop.cq[0]) + 2));
                push_kind(loop.cq[0], VB_CQE_VOID, of, request);
                expect_held(loop.cq[0], kind, of, request);
                expect_held(loop.cq[1], VB_CQE_VOID, of, request);
                entry->kind = VB_CQE_VOID;
                take_void(loop.cq[0]);
                entry->kind = (uint8_t)kind;
                expect_held(loop.cq[0], VB_CQE_VOID, of, request);
            }
    loopback_close(&loop);
}

/* ---- which are made void ---- */

/* Each kind for each QP's or SRQ's index and each request. */
static void push_all(struct vb_cq *cq, struct vb_cqe *entries[KINDS][OWNERS][REQUESTS])
{
    for (enum vb_cqe_kind kind = VB_CQE_SEND; kind <= VB_CQE_RECV_XRC; ++kind)
        for (uint32_t of = 0; of < OWNERS; ++of)
            for (uint32_t request = 0; request < REQUESTS; ++request)
                entries[kind][of][request] = push_kind(cq, kind, of, request);
}

/* All are as they were pushed but for those of `index`, of which these kinds are void. Then all
 * are void and taken. */
static void expect_void(struct vb_cq *cq, struct vb_cqe *entries[KINDS][OWNERS][REQUESTS],
                        uint32_t index, bool of_srq)
{
    for (enum vb_cqe_kind kind = VB_CQE_SEND; kind <= VB_CQE_RECV_XRC; ++kind)
        for (uint32_t of = 0; of < OWNERS; ++of)
            for (uint32_t request = 0; request < REQUESTS; ++request) {
                struct vb_cqe *entry = entries[kind][of][request];
                bool is_meant =
                    of == index && (of_srq ? kind == VB_CQE_RECV_XRC : kind < VB_CQE_VOID);

                CHECK_EQ(entry->kind, is_meant ? VB_CQE_VOID : kind);
                CHECK_EQ(entry->qp, of);
                CHECK_EQ(entry->wqe, request);
                CHECK_EQ(entry->wr_id, 5);
                entry->kind = VB_CQE_VOID;
            }
    take_void(cq);
}

static void an_end_makes_its_own_entries_void(void)
{
    struct vb_cqe *entries[KINDS][OWNERS][REQUESTS];

    begin(IBV_QPT_RC);
    for (uint32_t index = 0; index <= OWNERS; ++index) {
        push_all(loop.cq[0], entries);
        vb_cq_forget(loop.cq[1], index);
        vb_cq_forget_srq(loop.cq[1], index);
        vb_cq_forget(loop.cq[0], index);
        expect_void(loop.cq[0], entries, index, false);
        push_all(loop.cq[0], entries);
        vb_cq_forget_srq(loop.cq[0], index);
        expect_void(loop.cq[0], entries, index, true);
    }
    loopback_close(&loop);
}

/* The requests that the QP's entries name may be used again; other entries' may not. */
static void an_srqs_requests_are_free_again(void)
{
    struct end end;
    struct vb_qp *qp[2];

    for (enum vb_cqe_kind kind = VB_CQE_SEND; kind <= VB_CQE_RECV_XRC; ++kind) {
        uint32_t free_before;

        end_open(&end, (struct end_options){.srq_wr = 8});
        qp[0] = end_add_qp(&end);
        qp[1] = end_add_qp(&end);
        for (uint64_t i = 0; i < 4; ++i)
            end_post_recv(&end, NULL, i);
        free_before = end.srq->free_count;
        for (uint32_t wqe = 0; wqe < end.srq->room; ++wqe)
            if (end.srq->position[wqe] >= 0)
                push_kind(end.cq, kind, qp[wqe % 2]->index, wqe);
        vb_cq_forget(end.cq, qp[0]->index);
        CHECK_EQ(end.srq->free_count, free_before + (is_receive(kind) ? 2 : 0));
        vb_cq_forget(end.cq, qp[1]->index);
        CHECK_EQ(end.srq->free_count, free_before + (is_receive(kind) ? 4 : 0));
        end_close(&end);
    }
}

/* And one is when its completion is polled. */
static void an_srqs_request_is_free_once_it_is_polled(void)
{
    struct end end;
    uint32_t free_before, wqe = 0;
    struct ibv_wc wc;

    end_open(&end, (struct end_options){.srq_wr = 8});
    end_add_qp(&end);
    for (uint64_t i = 0; i < 4; ++i)
        end_post_recv(&end, NULL, i);
    free_before = end.srq->free_count;
    while (end.srq->position[wqe] < 0)
        ++wqe;
    push_kind(end.cq, VB_CQE_RECV, end.qp->index, wqe);
    CHECK_EQ(end.srq->free_count, free_before);
    CHECK_EQ(vb_cq_poll(end.cq, 1, &wc), 1);
    CHECK_EQ(end.srq->free_count, free_before + 1);
    CHECK_EQ(end.srq->position[wqe], -1);
    end_close(&end);
}

/* ---- payloads that wait in their entries ---- */

/* Between the elements of a request and between requests, and of them all. */
enum { APART = 2 * VB_STAGE_BYTES, BUFFER = 6 * APART };

static uint8_t *buffer; /* pages of their own, which the receive requests of qp[0] name */
static struct vb_mr *region;

/* The sizes of a request's one or two elements. */
struct shape {
    uint32_t first, second;
};

static void post_recvs(uint32_t count, struct shape shape)
{
    buffer = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(buffer != MAP_FAILED);
    CHECK_EQ(vb_mr_reg(loop.pd, buffer, BUFFER, (uintptr_t)buffer, IBV_ACCESS_LOCAL_WRITE, &region),
             0);
    for (uint32_t i = 0; i < count; ++i) {
        uintptr_t at = (uintptr_t)buffer + i * 2 * APART;
        struct ibv_sge elements[] = {{at, shape.first, region->ibv.lkey},
                                     {at + APART, shape.second, region->ibv.lkey}};
        struct ibv_recv_wr wr = {.wr_id = i, .sg_list = elements, .num_sge = shape.second ? 2 : 1},
                           *bad;

        CHECK_EQ(vb_post_recv(loop.qp[0], &wr, &bad), 0);
    }
}

static uint8_t payload_byte(uint32_t wqe, uint32_t at)
{
    return (uint8_t)(1 + 50 * wqe + at % 49);
}

/* The payload is where its kind says; what is in the other place is another's. */
static struct vb_cqe *push_payload(enum vb_cqe_kind kind, uint32_t wqe, uint32_t length)
{
    bool staged = kind == VB_CQE_RECV_STAGED;
    struct vb_cqe fields = {.kind = (uint8_t)kind,
                            .qp = loop.qp[0]->index,
                            .wqe = wqe,
                            .byte_len = length,
                            .status = IBV_WC_SUCCESS};
    uint8_t *stage = vb_rq_stage(&adapter()->self, loop.qp[0]->shared, wqe);

    for (uint32_t i = 0; i < VB_CQE_INLINE; ++i)
        fields.data[i] = staged ? 0xfe : payload_byte(wqe, i);
    for (uint32_t i = 0; i < VB_STAGE_BYTES; ++i)
        stage[i] = staged ? payload_byte(wqe, i) : 0xfe;
    return push(loop.cq[0], fields);
}

static bool has(const uint8_t *at, uint32_t length, int value)
{
    for (uint32_t i = 0; i < length; ++i)
        if (at[i] != value)
            return false;
    return true;
}

static void make_receiving(void)
{
    begin(IBV_QPT_RC);
    loopback_connect(loop.qp[0], loop.qp[1], 0);
}

static void close_receiving(void)
{
    munmap(buffer, BUFFER);
    loopback_close(&loop);
}

static const enum vb_cqe_kind waiting_kinds[] = {VB_CQE_RECV_INLINE, VB_CQE_RECV_STAGED};
static const uint32_t most_bytes[] = {VB_CQE_INLINE, VB_STAGE_BYTES};

/* By whom: poll, vb_cq_place, or vb_cqs_place of all CQs. */
enum placer { BY_POLL, BY_PLACE, BY_ALL };

static void place_by(enum placer placer)
{
    if (placer == BY_PLACE)
        vb_cq_place(loop.cq[0]);
    if (placer == BY_ALL)
        vb_cqs_place(adapter());
}

/* A payload goes over its request's elements, and nothing is written behind them. */
static void expect_placed(uint32_t wqe, struct shape shape, uint32_t length)
{
    const uint8_t *at = buffer + wqe * 2 * APART;
    uint32_t first = length < shape.first ? length : shape.first;
    uint32_t second = length - first < shape.second ? length - first : shape.second;

    for (uint32_t i = 0; i < first; ++i)
        CHECK_EQ(at[i], payload_byte(wqe, i));
    CHECK(has(at + first, APART - first, 0));
    for (uint32_t i = 0; i < second; ++i)
        CHECK_EQ(at[APART + i], payload_byte(wqe, first + i));
    CHECK(has(at + APART + second, APART - second, 0));
}

/* Before poll too, each once: what the program writes there after that stays. */
static void each_is_placed_once(enum vb_cqe_kind kind, enum placer placer, struct shape shape,
                                uint32_t length)
{
    struct vb_cqe *entries[3];
    struct ibv_wc wc[4];

    make_receiving();
    post_recvs(3, shape);
    for (uint32_t i = 0; i < 3; ++i) {
        entries[i] = push_payload(kind, i, length);
        push_kind(loop.cq[0], VB_CQE_VOID, loop.qp[0]->index, i);
    }
    place_by(placer);
    for (uint32_t i = 0; i < 3 && placer != BY_POLL; ++i) {
        CHECK_EQ(entries[i]->kind, VB_CQE_RECV);
        expect_placed(i, shape, length);
    }
    if (placer != BY_POLL) {
        CHECK_EQ(atomic_load(&loop.cq[0]->shared->placed), vb_cq_taken(loop.cq[0]) + 6);
        memset(buffer, 0xf1, BUFFER);
    }
    CHECK_EQ(vb_cq_poll(loop.cq[0], 2, wc), 2); /* as many as it was asked for */
    CHECK_EQ(atomic_load(&loop.qp[0]->shared->rq_polled), 2);
    CHECK_EQ(vb_cq_poll(loop.cq[0], 4, wc + 2), 1);
    for (uint32_t i = 0; i < 3; ++i) {
        CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
        CHECK_EQ(wc[i].byte_len, length);
        if (placer == BY_POLL)
            expect_placed(i, shape, length);
    }
    CHECK(placer == BY_POLL || has(buffer, BUFFER, 0xf1));
    CHECK_EQ(atomic_load(&loop.qp[0]->shared->rq_polled), 3);
    CHECK_EQ(vb_qp_state(loop.qp[0]), IBV_QPS_RTS);
    close_receiving();
}

/* A peer may write a length beyond the elements: what has room is placed. */
static void payloads_are_placed_before_a_poll_too(void)
{
    for (int i = 0; i < 2; ++i)
        for (enum placer placer = BY_POLL; placer <= BY_ALL; ++placer) {
            uint32_t most = most_bytes[i];
            const struct {
                struct shape shape;
                uint32_t length;
            } cases[] = {
                {{APART, 0}, 0},           {{APART, 0}, 5},
                {{APART, 0}, most},        {{5, 0}, 5},
                {{7, APART}, 7},           {{7, APART}, most},
                {{most - 1, APART}, most}, {{3, most - 4}, most},
                {{most - 1, 0}, most},
            };

            for (size_t j = 0; j < sizeof(cases) / sizeof(cases[0]); ++j)
                each_is_placed_once(waiting_kinds[i], placer, cases[j].shape, cases[j].length);
        }
}

/* vb_cqs_place goes to the CQs of all QPs in which a payload waits, and to no others. */
static void only_where_payloads_wait(void)
{
    struct vb_cq_shared *shared[2];
    struct vb_cqe *entry;

    make_receiving();
    loopback_connect(loop.qp[1], loop.qp[0], 0);
    post_recvs(1, (struct shape){BYTES, 0});
    for (int i = 0; i < 2; ++i) {
        shared[i] = loop.cq[i]->shared;
        atomic_store(&shared[i]->placed, 77);
    }
    push_kind(loop.cq[0], VB_CQE_SEND, loop.qp[0]->index, 0);
    push_kind(loop.cq[1], VB_CQE_RECV, loop.qp[1]->index, 0);
    vb_cqs_place(adapter());
    CHECK_EQ(atomic_load(&shared[0]->placed), 77);
    CHECK_EQ(atomic_load(&shared[1]->placed), 77);
    for (int i = 0; i < 2; ++i) {
        entry = push_payload(VB_CQE_RECV_INLINE, 0, 0);
        entry->kind = VB_CQE_VOID;
        push(loop.cq[1 - i], *entry)->kind = VB_CQE_RECV_INLINE;
        vb_cqs_place(adapter());
        CHECK_EQ(atomic_load(&shared[1 - i]->placed) != 77, true);
        CHECK_EQ(atomic_load(&shared[i]->placed) == 77, i == 0);
    }
    close_receiving();
}

static void expect_failed(struct vb_cqe *entry, enum vb_cqe_kind kind, enum placer placer)
{
    char text[400] = "", range[40];
    struct ibv_wc wc[2];

    snprintf(range, sizeof(range), "[%p, +%u)", (void *)buffer, entry->byte_len);
    place_by(placer);
    CHECK_EQ(entry->kind, kind); /* the poll says what came of it */
    CHECK_EQ(vb_cq_poll(loop.cq[0], 1, wc), 1);
    CHECK_EQ(wc->status, IBV_WC_LOC_PROT_ERR);
    CHECK(vb_evidence_text(&adapter()->self, wc->vendor_err, text, sizeof(text)) > 0);
    CHECK(strstr(text, range) != NULL);
    CHECK_EQ(vb_qp_state(loop.qp[0]), IBV_QPS_ERR);
    CHECK(atomic_load(&loop.qp[0]->shared->rq_polled) >= 1);
}

/* One whose buffer is gone, or that is longer than an entry or a stage holds. The next request is
 * flushed. */
static void a_payload_that_cannot_be_placed_ends_its_qp(void)
{
    for (int i = 0; i < 2; ++i)
        for (enum placer placer = BY_POLL; placer <= BY_ALL; ++placer) {
            make_receiving();
            post_recvs(1, (struct shape){BYTES, BYTES});
            CHECK_EQ(mprotect(buffer, PAGE, PROT_NONE), 0);
            expect_failed(push_payload(waiting_kinds[i], 0, 8), waiting_kinds[i], placer);
            close_receiving();
            make_receiving();
            post_recvs(1, (struct shape){APART, 0});
            expect_failed(push_payload(waiting_kinds[i], 0, most_bytes[i] + 1), waiting_kinds[i],
                          placer);
            CHECK(has(buffer, BUFFER, 0));
            close_receiving();
        }
}

/* In every state, of which RTR to SQE lead to ERR by this. What is posted is flushed then. */
static void it_ends_a_qp_that_receives(void)
{
    for (uint32_t state = IBV_QPS_RESET; state <= IBV_QPS_ERR; ++state) {
        bool receives = state >= IBV_QPS_RTR && state <= IBV_QPS_SQE;
        struct ibv_wc wc;

        make_receiving();
        post_recvs(2, (struct shape){BYTES, 0});
        CHECK_EQ(mprotect(buffer, PAGE, PROT_NONE), 0);
        atomic_store(&loop.qp[0]->shared->rq_taken, 1);
        push_payload(VB_CQE_RECV_INLINE, 0, 8);
        atomic_store(&loop.qp[0]->shared->state, state);
        CHECK_EQ(vb_cq_poll(loop.cq[0], 1, &wc), 1);
        CHECK_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
        CHECK_EQ(vb_qp_state(loop.qp[0]), receives ? IBV_QPS_ERR : state);
        if (receives) {
            CHECK_EQ(loopback_poll(loop.cq[0], &wc), 0);
            CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
            CHECK_EQ(wc.wr_id, 1);
        }
        close_receiving();
    }
}

/* A region that is being deregistered takes what arrived before, and another domain's does not. */
static void a_region_that_is_leaving_takes_its_payloads(void)
{
    static const uint32_t marks[] = {0, VB_PD_LEAVING, 1};

    for (int i = 0; i < 3; ++i)
        for (enum placer placer = BY_POLL; placer <= BY_ALL; ++placer) {
            struct vb_mr_shared *entry;
            struct ibv_wc wc;

            make_receiving();
            post_recvs(1, (struct shape){7, APART});
            entry = &adapter()->self.mr[region->index];
            atomic_store(&entry->pd,
                         marks[i] == 1 ? loop.pd->number + 1 : loop.pd->number | marks[i]);
            push_payload(VB_CQE_RECV_STAGED, 0, BYTES);
            place_by(placer);
            CHECK_EQ(vb_cq_poll(loop.cq[0], 1, &wc), 1);
            CHECK_EQ(wc.status, marks[i] == 1 ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS);
            if (marks[i] == 1)
                CHECK(has(buffer, BUFFER, 0));
            else
                expect_placed(0, (struct shape){7, APART}, BYTES);
            atomic_store(&entry->pd, loop.pd->number);
            close_receiving();
        }
}

/* ---- what poll makes of the fields ---- */

static int errors; /* that the program was told of */

static void count_error(void)
{
    ++errors;
}

static struct ibv_wc polled(struct vb_cqe fields)
{
    struct ibv_wc wc;

    memset(&wc, 0xee, sizeof(wc));
    push(loop.cq[0], fields);
    errors = 0;
    loop.context->on_error = count_error;
    CHECK_EQ(vb_cq_poll(loop.cq[0], 1, &wc), 1);
    CHECK_EQ(errors, fields.status != IBV_WC_SUCCESS);
    CHECK_EQ(wc.wr_id, fields.wr_id);
    CHECK_EQ(wc.status, fields.status);
    CHECK_EQ(wc.byte_len, fields.byte_len);
    CHECK_EQ(wc.imm_data, fields.imm);
    CHECK_EQ(wc.wc_flags, fields.flags);
    CHECK_EQ(wc.pkey_index, 0);
    CHECK_EQ(wc.vendor_err, fields.status ? fields.extra : 0);
    CHECK_EQ(wc.src_qp, fields.status ? 0 : fields.extra);
    return wc;
}

static void expect_fields(enum ibv_qp_type type, enum vb_cqe_kind kind, uint8_t flags,
                          uint8_t status)
{
    struct vb_cqe fields = {
        .kind = (uint8_t)kind,
        .qp = loop.qp[0]->index,
        .wr_id = 0x123456789abc,
        .wqe = 6,
        .byte_len = 77,
        .imm = 0x87654321,
        .extra = 0xabcdef,
        .status = status,
        .flags = flags,
        .opcode = kind == VB_CQE_SEND ? IBV_WC_RDMA_READ : IBV_WC_RECV_RDMA_WITH_IMM,
        .datagram = {.header_type = 2},
    };
    struct ibv_wc wc;

    vb_cqe_name_lids(&fields, 0xa1b2, 5);
    atomic_store(&loop.qp[0]->sq_retired, 3);
    atomic_store(&loop.qp[0]->shared->rq_polled, 3);
    wc = polled(fields);
    CHECK_EQ(atomic_load(&loop.qp[0]->sq_retired), kind == VB_CQE_SEND ? 7 : 3);
    CHECK_EQ(atomic_load(&loop.qp[0]->shared->rq_polled), kind == VB_CQE_SEND ? 3 : 7);
    CHECK_EQ(wc.opcode, fields.opcode);
    CHECK_EQ(wc.qp_num, loop.qp[0]->number);
    CHECK_EQ(wc.sl, type == IBV_QPT_UD && kind == VB_CQE_RECV ? 2 : 0);
    CHECK_EQ(wc.slid, type == IBV_QPT_UD && kind == VB_CQE_RECV ? 0xa1b2 : 0);
    CHECK_EQ(wc.dlid_path_bits, type == IBV_QPT_UD && kind == VB_CQE_RECV ? 5 : 0);
}

static void each_field_is_the_entrys(void)
{
    static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UD};
    static const uint8_t flags[] = {0, IBV_WC_GRH, IBV_WC_WITH_IMM, IBV_WC_GRH | IBV_WC_WITH_IMM};

    for (int i = 0; i < 2; ++i) {
        begin(types[i]);
        for (enum vb_cqe_kind kind = VB_CQE_SEND; kind <= VB_CQE_RECV; ++kind)
            for (int j = 0; j < 4; ++j) {
                expect_fields(types[i], kind, flags[j], IBV_WC_SUCCESS);
                expect_fields(types[i], kind, flags[j], IBV_WC_WR_FLUSH_ERR);
            }
        loopback_close(&loop);
    }
}

/* Of an XRC SRQ's entry the QP is the target, also when it has been destroyed; of an SRQ that was
 * destroyed there is no entry. */
static void an_entry_of_an_xrc_srq_names_its_target(void)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct vb_cqe fields = {.kind = VB_CQE_RECV_XRC, .wr_id = 3, .xrc_target = 0x4711};
    struct ibv_recv_wr wr = {.wr_id = 3}, *bad;
    struct vb_srq *srq;
    uint32_t free_before;

    begin(IBV_QPT_RC);
    CHECK_EQ(vb_srq_create_xrc(loop.context, loop.pd, loop.xrcd, loop.cq[0], &attr, &srq), 0);
    CHECK_EQ(vb_srq_post_recv(srq, &wr, &bad), 0);
    free_before = srq->free_count;
    fields.qp = srq->index;
    while (srq->position[fields.wqe] < 0)
        ++fields.wqe;
    CHECK_EQ(polled(fields).qp_num, 0x4711);
    CHECK_EQ(srq->free_count, free_before + 1);
    fields.qp = srq->index + 1;
    push(loop.cq[0], fields);
    take_void(loop.cq[0]);
    CHECK_EQ(srq->free_count, free_before + 1);
    loopback_close(&loop);
}

/* ---- polls in vain --------------------------------------------------------------------------- */

static uint64_t clock_ns;
static uint64_t yield_takes; /* ns */
static int clock_reads, yields, progresses;
static bool completes_in_a_yield;
static struct vb_host_calls calls;

/* In place of the C library's. */
int sched_yield(void)
{
    ++yields;
    if (completes_in_a_yield)
        push_kind(loop.cq[0], VB_CQE_SEND, loop.qp[0]->index, 0);
    clock_ns += yield_takes;
    return 0;
}

static uint64_t read_clock(const struct vb_adapter *of)
{
    (void)of;
    ++clock_reads;
    return clock_ns;
}

static void count_progress(struct vb_cq *cq)
{
    CHECK(cq == loop.cq[0]);
    ++progresses;
}

static void polls_in_vain(int count)
{
    struct ibv_wc wc;

    clock_reads = yields = progresses = 0;
    while (count--)
        CHECK_EQ(vb_cq_poll(loop.cq[0], 1, &wc), 0);
}

static void poll_one(void)
{
    struct ibv_wc wc;

    push_kind(loop.cq[0], VB_CQE_SEND, loop.qp[0]->index, 0);
    CHECK_EQ(vb_cq_poll(loop.cq[0], 1, &wc), 1);
}

/* The clock is read at every period of polls, and as often again where it yields (yield.h). */
static void *polls_in_vain_yield(void *unused)
{
    polls_in_vain(VB_YIELD_PERIOD - 1);
    CHECK_EQ(clock_reads, 0);
    polls_in_vain(1);
    CHECK_EQ(clock_reads, 1);
    CHECK_EQ(yields, 0);
    polls_in_vain(VB_YIELD_PERIOD - 1);
    CHECK_EQ(clock_reads, 0);
    clock_ns += VB_YIELD_AFTER_NS;
    yield_takes = VB_YIELD_SWITCH_NS;
    polls_in_vain(1);
    CHECK_EQ(clock_reads, 2);
    CHECK_EQ(yields, 1);
    polls_in_vain(VB_YIELD_PERIOD - 1);
    yield_takes = VB_YIELD_SLICE_NS;
    polls_in_vain(1); /* another thread had the processor for a little: at once again */
    CHECK_EQ(yields, 1);
    clock_ns += VB_YIELD_AFTER_NS;
    polls_in_vain(VB_YIELD_PERIOD); /* and for a whole slice: it sleeps */
    CHECK_EQ(clock_reads, 2);
    CHECK_EQ(yields, 0);
    polls_in_vain(VB_YIELD_PERIOD - 1);
    poll_one(); /* it was not in vain */
    clock_ns += VB_YIELD_AFTER_NS;
    polls_in_vain(VB_YIELD_PERIOD - 1);
    CHECK_EQ(clock_reads, 0);
    polls_in_vain(1);
    CHECK_EQ(clock_reads, 1);
    return unused;
}

/* Of what the peer does meanwhile the program may learn otherwise, and close the QP before it polls
 * again: the completion of a message would be lost to it. */
static void *a_completion_during_a_yield_is_polled(void *unused)
{
    struct ibv_wc wc;

    polls_in_vain(VB_YIELD_PERIOD);
    clock_ns += VB_YIELD_AFTER_NS;
    yield_takes = VB_YIELD_SWITCH_NS;
    polls_in_vain(VB_YIELD_PERIOD - 1);
    completes_in_a_yield = true;
    CHECK_EQ(vb_cq_poll(loop.cq[0], 1, &wc), 1);
    CHECK_EQ(yields, 1);
    completes_in_a_yield = false;
    polls_in_vain(VB_YIELD_PERIOD - 1);
    CHECK_EQ(clock_reads, 0); /* it was not in vain */
    return unused;
}

/* QPs wait: each poll that finds nothing makes progress for them and counts as a quarter period. */
static void *polls_make_progress(void *unused)
{
    uint32_t rounds = loop.cq[0]->rounds;

    loop.cq[0]->waiting = 1;
    polls_in_vain(3);
    CHECK_EQ(progresses, 3);
    CHECK_EQ(clock_reads, 0);
    CHECK_EQ(loop.cq[0]->rounds, rounds + 3);
    polls_in_vain(1);
    CHECK_EQ(clock_reads, 1);
    progresses = 0;
    poll_one();
    CHECK_EQ(progresses, 0);
    CHECK_EQ(loop.cq[0]->rounds, rounds + 5);
    loop.cq[0]->waiting = 0;
    polls_in_vain(5);
    CHECK_EQ(progresses, 0);
    CHECK_EQ(loop.cq[0]->rounds, rounds + 5);
    return unused;
}

/* In a thread of its own, whose count of polls is 0 at first. */
static void in_a_thread(void *(*run)(void *))
{
    const struct vb_host_calls *real;
    pthread_t thread;

    begin(IBV_QPT_RC);
    real = adapter()->calls;
    calls = *real;
    calls.now = read_clock;
    calls.progress = count_progress;
    adapter()->calls = &calls;
    clock_ns = 1 << 20;
    CHECK_EQ(pthread_create(&thread, NULL, run, NULL), 0);
    pthread_join(thread, NULL);
    adapter()->calls = real;
    loopback_close(&loop);
}

static void a_thread_that_polls_in_vain_yields(void)
{
    in_a_thread(polls_in_vain_yield);
}

static void a_poll_that_has_yielded_looks_again(void)
{
    in_a_thread(a_completion_during_a_yield_is_polled);
}

static void polls_serve_queue_pairs_that_wait(void)
{
    in_a_thread(polls_make_progress);
}

static void a_cq_in_error_says_so(void)
{
    char why[400] = "";
    struct ibv_wc wc;

    begin(IBV_QPT_RC);
    poll_one();
    push_kind(loop.cq[0], VB_CQE_SEND, loop.qp[0]->index, 0);
    atomic_store(&loop.cq[0]->shared->error, 1);
    CHECK_EQ(vb_cq_poll(loop.cq[0], 1, &wc), 1); /* what it has is still given out */
    CHECK_EQ(vb_cq_poll(loop.cq[0], 1, &wc), -EIO);
    CHECK(vb_decline_text(loop.context, -EIO, why, sizeof(why)) > 0);
    CHECK(strstr(why, "it has room for 64 completions") != NULL);
    loopback_close(&loop);
}

int main(void)
{
    alarm(100);
    RUN(a_request_is_in_the_queue_until_it_is_polled);
    RUN(an_end_makes_its_own_entries_void);
    RUN(an_srqs_requests_are_free_again);
    RUN(an_srqs_request_is_free_once_it_is_polled);
    RUN(payloads_are_placed_before_a_poll_too);
    RUN(a_payload_that_cannot_be_placed_ends_its_qp);
    RUN(it_ends_a_qp_that_receives);
    RUN(a_region_that_is_leaving_takes_its_payloads);
    RUN(only_where_payloads_wait);
    RUN(a_thread_that_polls_in_vain_yields);
    RUN(a_poll_that_has_yielded_looks_again);
    RUN(polls_serve_queue_pairs_that_wait);
    RUN(a_cq_in_error_says_so);
    vb_memory_watch_begin(); /* now a request's key is looked up when it is posted */
    RUN(payloads_are_placed_before_a_poll_too);
    RUN(a_payload_that_cannot_be_placed_ends_its_qp);
    RUN(each_field_is_the_entrys);
    RUN(an_entry_of_an_xrc_srq_names_its_target);
    return 0;
}
