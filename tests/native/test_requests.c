// SPDX-License-Identifier: Apache-2.0
/* Each kind of request between two queue pairs of one adapter. */
#include "check.h"
#include "hca/sentences.h"
#include "loopback.h"
#include "memory/watch.h"

static struct loopback loop;

static struct ibv_sge element(int end, uint32_t offset, uint32_t length)
{
    return (struct ibv_sge){(uintptr_t)loop.memory[end] + offset, length, loop.mr[end]->ibv.lkey};
}

static void post_recv(uint32_t offset, uint32_t length, uint64_t id)
{
    struct ibv_sge sge = element(1, offset, length);
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(vb_post_recv(loop.qp[1], &wr, &bad), 0);
}

static struct ibv_wc post(struct ibv_send_wr wr, struct ibv_sge *sge)
{
    struct ibv_send_wr *bad;
    struct ibv_wc wc;

    wr.sg_list = sge;
    wr.num_sge = !sge ? 0 : wr.num_sge ? wr.num_sge : 1;
    wr.send_flags |= IBV_SEND_SIGNALED;
    CHECK_EQ(wr.opcode == IBV_WR_FLUSH ? vb_post_staged(loop.qp[0], &wr, &bad)
                                       : vb_post_send(loop.qp[0], &wr, &bad),
             0);
    CHECK_EQ(loopback_poll(loop.cq[0], &wc), 0);
    CHECK_EQ(wc.wr_id, wr.wr_id);
    return wc;
}

static void begin(enum ibv_qp_type type)
{
    loopback_open(&loop, type);
    loopback_connect(loop.qp[0], loop.qp[1], 1);
    loopback_connect(loop.qp[1], loop.qp[0], 1);
    for (int i = 0; i < LOOPBACK_BYTES; ++i)
        loop.memory[0][i] = (uint8_t)(i * 7);
}

static struct ibv_send_wr rdma(enum ibv_wr_opcode opcode, uint32_t offset)
{
    struct ibv_send_wr wr = {.wr_id = 5, .opcode = opcode};

    wr.wr.rdma.remote_addr = (uintptr_t)loop.memory[1] + offset;
    wr.wr.rdma.rkey = loop.mr[1]->ibv.rkey;
    return wr;
}

static struct ibv_send_wr flush_of(uint32_t offset, uint32_t length)
{
    struct ibv_send_wr wr = {.wr_id = 5, .opcode = IBV_WR_FLUSH};

    wr.wr.flush.remote_addr = (uintptr_t)loop.memory[1] + offset;
    wr.wr.flush.rkey = loop.mr[1]->ibv.rkey;
    wr.wr.flush.length = length;
    wr.wr.flush.type = IBV_FLUSH_GLOBAL;
    wr.wr.flush.level = IBV_FLUSH_RANGE;
    return wr;
}

static void send_reaches_the_receive_request(uint32_t length)
{
    struct ibv_sge sge = element(0, 3, length);
    struct ibv_wc wc;

    post_recv(11, 4096, 99);
    CHECK_EQ(post((struct ibv_send_wr){.wr_id = 1, .opcode = IBV_WR_SEND}, &sge).status, 0);
    CHECK_EQ(loopback_poll(loop.cq[1], &wc), 0);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.opcode, IBV_WC_RECV);
    CHECK_EQ(wc.wr_id, 99);
    CHECK_EQ(wc.byte_len, length);
    CHECK_EQ(memcmp(loop.memory[0] + 3, loop.memory[1] + 11, length), 0);
}

static void sends_of_all_sizes(void)
{
    static const uint32_t lengths[] = {0, 1, 8, 28, 29, 64, 4096};

    begin(IBV_QPT_RC);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); ++i)
        send_reaches_the_receive_request(lengths[i]);
    loopback_close(&loop);
}

static void write_read_and_atomics(void)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr;
    uint64_t old = 40;

    begin(IBV_QPT_RC);
    sge = element(0, 0, 5000);
    wr = rdma(IBV_WR_RDMA_WRITE, 100);
    CHECK_EQ(post(wr, &sge).status, 0);
    CHECK_EQ(memcmp(loop.memory[0], loop.memory[1] + 100, 5000), 0);

    memset(loop.memory[0], 0, 5000);
    wr.opcode = IBV_WR_RDMA_READ;
    CHECK_EQ(post(wr, &sge).byte_len, 5000);
    CHECK_EQ(memcmp(loop.memory[0], loop.memory[1] + 100, 5000), 0);

    memcpy(loop.memory[1], &old, 8);
    sge = element(0, 0, 8);
    wr = (struct ibv_send_wr){.wr_id = 6, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
    wr.wr.atomic.remote_addr = (uintptr_t)loop.memory[1];
    wr.wr.atomic.rkey = loop.mr[1]->ibv.rkey;
    wr.wr.atomic.compare_add = 2;
    CHECK_EQ(post(wr, &sge).status, 0);
    CHECK_EQ(*(uint64_t *)loop.memory[0], 40);
    CHECK_EQ(*(uint64_t *)loop.memory[1], 42);
    loopback_close(&loop);
}

static void atomic_writes(void)
{
    struct ibv_sge sge[2];
    struct ibv_send_wr wr;
    struct ibv_wc wc;

    begin(IBV_QPT_RC);
    memset(loop.memory[1], 0xee, 64);
    sge[0] = element(0, 3, 8);
    wr = rdma(IBV_WR_ATOMIC_WRITE, 16);
    wc = post(wr, sge);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
    CHECK_EQ(memcmp(loop.memory[0] + 3, loop.memory[1] + 16, 8), 0);
    CHECK_EQ(loop.memory[1][15], 0xee);
    CHECK_EQ(loop.memory[1][24], 0xee);
    wr = rdma(IBV_WR_ATOMIC_WRITE, 32); /* the value needs no region */
    wr.send_flags = IBV_SEND_INLINE;
    sge[0] = (struct ibv_sge){.addr = (uintptr_t)"eight by", .length = 8};
    CHECK_EQ(post(wr, sge).status, IBV_WC_SUCCESS);
    CHECK_EQ(memcmp(loop.memory[1] + 32, "eight by", 8), 0);
    loopback_close(&loop);
}

/* A value in several elements, of which the middle one may have no byte. */
static void atomics_of_several_elements(void)
{
    struct ibv_sge sge[3];
    struct ibv_send_wr wr;

    for (uint32_t first = 0; first <= 8; ++first) {
        begin(IBV_QPT_RC);
        for (int i = 0; i < 64; ++i) {
            loop.memory[0][i] = (uint8_t)(i + 1);
            loop.memory[1][i] = (uint8_t)(i + 101);
        }
        sge[0] = element(0, 8, first);
        sge[1] = element(0, 30, 0);
        sge[2] = element(0, 40, 8 - first);
        wr = rdma(IBV_WR_ATOMIC_WRITE, 16);
        wr.num_sge = 3;
        CHECK_EQ(post(wr, sge).status, IBV_WC_SUCCESS);
        for (uint32_t i = 0; i < 32; ++i) {
            uint32_t at = i - 16, from = at < first ? 8 + at : 40 + at - first;

            CHECK_EQ(loop.memory[1][i], at < 8 ? from + 1 : i + 101);
        }
        wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD; /* the old value goes into them */
        wr.wr.atomic.remote_addr = (uintptr_t)loop.memory[1] + 48;
        wr.wr.atomic.rkey = loop.mr[1]->ibv.rkey;
        wr.wr.atomic.compare_add = 0;
        CHECK_EQ(post(wr, sge).status, IBV_WC_SUCCESS);
        for (uint32_t i = 0; i < 64; ++i) {
            uint32_t one = i - 8, two = i - 40;

            CHECK_EQ(loop.memory[0][i], one < first       ? 149 + one
                                        : two < 8 - first ? 149 + first + two
                                                          : i + 1);
        }
        loopback_close(&loop);
    }
}

static void a_read_after_a_small_send_sees_it(void)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr;

    begin(IBV_QPT_RC);
    sge = element(0, 0, 16);
    post_recv(200, 64, 1);
    CHECK_EQ(post((struct ibv_send_wr){.wr_id = 1, .opcode = IBV_WR_SEND}, &sge).status, 0);
    wr = rdma(IBV_WR_RDMA_READ, 200);
    sge = element(0, 1000, 16);
    CHECK_EQ(post(wr, &sge).status, 0);
    CHECK_EQ(memcmp(loop.memory[0], loop.memory[0] + 1000, 16), 0);
    loopback_close(&loop);
}

/* The SEND's payload is in its buffer before a later request changes that, though nobody polls. */
static void a_request_after_a_small_send_comes_second(void)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_WRITE,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_FLUSH};

    for (int i = 0; i < 4; ++i) {
        uint64_t payload = 0x1111111111111111, value = 0x2222222222222222, found;
        struct ibv_sge sge[1];
        struct ibv_send_wr wr;
        struct ibv_wc wc;

        begin(IBV_QPT_RC);
        memcpy(loop.memory[0], &payload, 8);
        memcpy(loop.memory[0] + 64, &value, 8);
        sge[0] = element(0, 0, 8);
        post_recv(200, 64, 1);
        CHECK_EQ(post((struct ibv_send_wr){.wr_id = 1, .opcode = IBV_WR_SEND}, sge).status, 0);
        sge[0] = element(0, 64, 8);
        wr = rdma(opcodes[i], 200);
        if (opcodes[i] == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            wr.wr.atomic.remote_addr = (uintptr_t)loop.memory[1] + 200;
            wr.wr.atomic.rkey = loop.mr[1]->ibv.rkey;
            wr.wr.atomic.compare_add = 3;
            value = payload + 3;
        } else if (opcodes[i] == IBV_WR_FLUSH) {
            wr = flush_of(200, 8);
            value = payload;
        }
        CHECK_EQ(post(wr, opcodes[i] == IBV_WR_FLUSH ? NULL : sge).status, IBV_WC_SUCCESS);
        memcpy(&found, loop.memory[1] + 200, 8);
        CHECK_EQ(found, value);
        if (opcodes[i] == IBV_WR_ATOMIC_FETCH_AND_ADD)
            CHECK_EQ(memcmp(loop.memory[0] + 64, &payload, 8), 0);
        CHECK_EQ(loopback_poll(loop.cq[1], &wc), 0); /* the SEND's receive request */
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        memcpy(&found, loop.memory[1] + 200, 8);
        CHECK_EQ(found, value);
        loopback_close(&loop);
    }
}

static void expect_text(uint32_t vendor_err, const char *part)
{
    char text[400];

    CHECK(vb_evidence_text(&loop.direct->adapter->self, vendor_err, text, sizeof(text)) > 0);
    printf("  %s\n", text);
    CHECK(strstr(text, part));
}

static void a_write_outside_the_region_fails_both_sides(void)
{
    struct ibv_sge sge;
    struct ibv_wc wc;
    struct ibv_async_event event;

    begin(IBV_QPT_RC);
    post_recv(0, 8, 77);
    sge = element(0, 0, 64);
    wc = post(rdma(IBV_WR_RDMA_WRITE, LOOPBACK_BYTES - 8), &sge);
    CHECK_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
    expect_text(wc.vendor_err, "not inside the region");
    CHECK_EQ(vb_qp_state(loop.qp[0]), IBV_QPS_ERR);
    CHECK_EQ(vb_qp_state(loop.qp[1]), IBV_QPS_ERR);
    CHECK_EQ(loopback_poll(loop.cq[1], &wc), 0);
    CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(wc.wr_id, 77);
    CHECK_EQ(vb_event_get(loop.context, &event), 0);
    CHECK_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    CHECK(event.element.qp == &loop.qp[1]->verbs->ibv);
    vb_event_ack(loop.context, &event);
    loopback_close(&loop);
}

static void a_send_without_a_receive_ends_after_its_retries(void)
{
    struct ibv_sge sge;
    struct ibv_wc wc;

    begin(IBV_QPT_RC);
    sge = element(0, 0, 8);
    wc = post((struct ibv_send_wr){.wr_id = 3, .opcode = IBV_WR_SEND}, &sge);
    CHECK_EQ(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
    expect_text(wc.vendor_err, "no receive request");
    loopback_close(&loop);
}

static void a_send_to_nobody_ends_after_its_timeout(void)
{
    struct ibv_sge sge;
    struct ibv_wc wc;

    loopback_open(&loop, IBV_QPT_RC);
    loopback_connect(loop.qp[0], loop.qp[1], 1);
    sge = element(0, 0, 8);
    wc = post((struct ibv_send_wr){.wr_id = 3, .opcode = IBV_WR_SEND}, &sge);
    CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    expect_text(wc.vendor_err, "did not answer");
    loopback_close(&loop);
}

/* As hardware, whose PSNs no longer match: the stale side is not answered. */
static void a_reset_peer_does_not_answer_its_old_connection(void)
{
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    struct ibv_sge sge;

    begin(IBV_QPT_RC);
    sge = element(0, 0, 8);
    for (int i = 0; i < 5; ++i) {
        post_recv(0, 8, 1);
        CHECK_EQ(post((struct ibv_send_wr){.wr_id = 3, .opcode = IBV_WR_SEND}, &sge).status, 0);
    }
    CHECK_EQ(vb_qp_modify(loop.qp[1], &reset, IBV_QP_STATE), 0);
    loopback_connect(loop.qp[1], loop.qp[0], 1);
    CHECK_EQ(post((struct ibv_send_wr){.wr_id = 3, .opcode = IBV_WR_SEND}, &sge).status,
             IBV_WC_RETRY_EXC_ERR);
    loopback_close(&loop);
}

int main(void)
{
    RUN(sends_of_all_sizes);
    RUN(write_read_and_atomics);
    RUN(atomic_writes);
    RUN(atomics_of_several_elements);
    RUN(a_read_after_a_small_send_sees_it);
    RUN(a_request_after_a_small_send_comes_second);
    RUN(a_write_outside_the_region_fails_both_sides);
    RUN(a_send_without_a_receive_ends_after_its_retries);
    RUN(a_reset_peer_does_not_answer_its_old_connection);
    RUN(a_send_to_nobody_ends_after_its_timeout);
    vb_memory_watch_begin(); /* now payloads wait for a poll */
    RUN(a_read_after_a_small_send_sees_it);
    RUN(a_request_after_a_small_send_comes_second);
    return 0;
}
