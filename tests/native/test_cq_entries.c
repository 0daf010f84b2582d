// SPDX-License-Identifier: Apache-2.0
/*
 * Entries of a completion queue that a test writes by hand, of each kind and for several QPs and
 * SRQs: which of them a QP's or an SRQ's end makes void, which receive requests are still in the
 * queue, which payloads are placed and when, and what poll makes of each field.
 */
#include <sys/mman.h>

#include "check.h"
#include "end.h"
#include "hca/srq.h"
#include "hca/xrc.h"
#include "loopback.h"

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
                bool is_meant = of == index && (of_srq ? kind == VB_CQE_RECV_XRC
                                                       : kind < VB_CQE_VOID);

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

/* ---- payloads that wait in their entries ---- */

static uint8_t *buffer; /* a page of its own, which the receive requests of qp[0] name */

static void post_recvs(uint32_t count, uint32_t first_element)
{
    struct vb_mr *mr;

    buffer = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(buffer != MAP_FAILED);
    CHECK_EQ(vb_mr_reg(loop.pd, buffer, PAGE, (uintptr_t)buffer, IBV_ACCESS_LOCAL_WRITE, &mr), 0);
    for (uint32_t i = 0; i < count; ++i) {
        uintptr_t at = (uintptr_t)buffer + i * 2 * BYTES;
        struct ibv_sge elements[] = {{at, first_element, mr->ibv.lkey},
                                     {at + BYTES, BYTES, mr->ibv.lkey}};
        struct ibv_recv_wr wr = {.wr_id = i, .sg_list = elements, .num_sge = 2}, *bad;

        CHECK_EQ(vb_post_recv(loop.qp[0], &wr, &bad), 0);
    }
}

static struct vb_cqe *push_payload(enum vb_cqe_kind kind, uint32_t wqe, uint32_t length)
{
    struct vb_cqe fields = {.kind = (uint8_t)kind,
                            .qp = loop.qp[0]->index,
                            .wqe = wqe,
                            .byte_len = length,
                            .status = IBV_WC_SUCCESS};

    memset(fields.data, 0x60 + (int)wqe, sizeof(fields.data));
    memset(vb_rq_stage(&adapter()->self, loop.qp[0]->shared, wqe), 0x60 + (int)wqe, BYTES);
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

static const enum vb_cqe_kind waiting_kinds[] = {VB_CQE_RECV_INLINE, VB_CQE_RECV_STAGED};

/* By whom: poll, vb_cq_place, or vb_cqs_place of all CQs. */
enum placer { BY_POLL, BY_PLACE, BY_ALL, PLACERS };

static void place_by(enum placer placer)
{
    if (placer == BY_PLACE)
        vb_cq_place(loop.cq[0]);
    if (placer == BY_ALL)
        vb_cqs_place(adapter());
}

/* A payload goes over its request's elements, and nothing is written behind it. */
static void expect_placed(uint32_t wqe, uint32_t first, uint32_t length)
{
    const uint8_t *at = buffer + wqe * 2 * BYTES;
    uint32_t in_first = length < first ? length : first;

    CHECK(has(at, in_first, 0x60 + (int)wqe));
    CHECK(has(at + in_first, BYTES - in_first, 0));
    CHECK(has(at + BYTES, length - in_first, 0x60 + (int)wqe));
    CHECK(has(at + BYTES + (length - in_first), BYTES - (length - in_first), 0));
}

/* Before poll too, each once: what the program writes there after that stays. */
static void each_payload_is_placed_once(enum vb_cqe_kind kind, enum placer placer, uint32_t first,
                                        uint32_t length)
{
    struct vb_cqe *entries[3];
    struct ibv_wc wc[4];

    make_receiving();
    post_recvs(3, first);
    for (uint32_t i = 0; i < 3; ++i) {
        entries[i] = push_payload(kind, i, length);
        push_kind(loop.cq[0], VB_CQE_VOID, loop.qp[0]->index, i);
    }
    place_by(placer);
    for (uint32_t i = 0; i < 3 && placer != BY_POLL; ++i) {
        CHECK_EQ(entries[i]->kind, VB_CQE_RECV);
        expect_placed(i, first, length);
    }
    if (placer != BY_POLL) {
        CHECK_EQ(atomic_load(&loop.cq[0]->shared->placed), vb_cq_taken(loop.cq[0]) + 6);
        memset(buffer, 0x11, PAGE);
    }
    CHECK_EQ(vb_cq_poll(loop.cq[0], 2, wc), 2); /* as many as it was asked for */
    CHECK_EQ(vb_cq_poll(loop.cq[0], 4, wc + 2), 1);
    for (uint32_t i = 0; i < 3; ++i) {
        CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
        CHECK_EQ(wc[i].byte_len, length);
        if (placer == BY_POLL)
            expect_placed(i, first, length);
    }
    CHECK(placer == BY_POLL || has(buffer, PAGE, 0x11));
    CHECK_EQ(atomic_load(&loop.qp[0]->shared->rq_polled), 3);
    munmap(buffer, PAGE);
    loopback_close(&loop);
}

static void payloads_are_placed_before_a_poll_too(void)
{
    for (int i = 0; i < 2; ++i)
        for (enum placer placer = 0; placer < PLACERS; ++placer) {
            each_payload_is_placed_once(waiting_kinds[i], placer, BYTES, BYTES);
            each_payload_is_placed_once(waiting_kinds[i], placer, BYTES, 0);
            each_payload_is_placed_once(waiting_kinds[i], placer, BYTES, 5);
            each_payload_is_placed_once(waiting_kinds[i], placer, 7, BYTES);
        }
}

static void expect_failed(struct vb_cqe *entry, enum vb_cqe_kind kind, enum placer placer)
{
    struct ibv_wc wc;

    place_by(placer);
    CHECK_EQ(entry->kind, kind); /* the poll says what came of it */
    CHECK_EQ(vb_cq_poll(loop.cq[0], 1, &wc), 1);
    CHECK_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
    CHECK(wc.vendor_err != 0);
    CHECK_EQ(vb_qp_state(loop.qp[0]), IBV_QPS_ERR);
    CHECK_EQ(atomic_load(&loop.qp[0]->shared->rq_polled), 1);
}

/* One whose buffer is gone, or that is longer than an entry or a stage holds. */
static void a_payload_that_cannot_be_placed_ends_its_qp(void)
{
    static const uint32_t most[] = {VB_CQE_INLINE, VB_STAGE_BYTES};

    for (int i = 0; i < 2; ++i)
        for (enum placer placer = 0; placer < PLACERS; ++placer) {
            make_receiving();
            post_recvs(1, BYTES);
            munmap(buffer, PAGE);
            expect_failed(push_payload(waiting_kinds[i], 0, 8), waiting_kinds[i], placer);
            loopback_close(&loop);
            make_receiving();
            post_recvs(1, BYTES);
            expect_failed(push_payload(waiting_kinds[i], 0, most[i] + 1), waiting_kinds[i], placer);
            CHECK(has(buffer, PAGE, 0));
            munmap(buffer, PAGE);
            loopback_close(&loop);
        }
}

/* ---- what poll makes of the fields ---- */

static struct ibv_wc polled(struct vb_cqe fields)
{
    struct ibv_wc wc;

    memset(&wc, 0xee, sizeof(wc));
    push(loop.cq[0], fields);
    CHECK_EQ(vb_cq_poll(loop.cq[0], 1, &wc), 1);
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
    wc = polled(fields);
    CHECK_EQ(wc.opcode, fields.opcode);
    CHECK_EQ(wc.qp_num, loop.qp[0]->number);
    CHECK_EQ(wc.sl, kind == VB_CQE_RECV && (flags & IBV_WC_GRH) ? 2 : 0);
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

int main(void)
{
    alarm(100);
    RUN(a_request_is_in_the_queue_until_it_is_polled);
    RUN(an_end_makes_its_own_entries_void);
    RUN(an_srqs_requests_are_free_again);
    RUN(payloads_are_placed_before_a_poll_too);
    RUN(a_payload_that_cannot_be_placed_ends_its_qp);
    RUN(each_field_is_the_entrys);
    RUN(an_entry_of_an_xrc_srq_names_its_target);
    return 0;
}
