// SPDX-License-Identifier: Apache-2.0
/* FLUSH between queue pairs of one adapter, and of two processes' memory that is reached directly.
 */
#include "check.h"
#include "hca/sentences.h"
#include "loopback.h"
#include "memory/watch.h"

enum { AT = 512, LENGTH = 3000 };

static struct loopback loop;

static void begin(enum ibv_qp_type type)
{
    loopback_open(&loop, type);
    loopback_connect(loop.qp[0], loop.qp[1], 1);
    loopback_connect(loop.qp[1], loop.qp[0], 1);
}

static struct ibv_send_wr flush(uint8_t level, uint64_t length)
{
    struct ibv_send_wr wr = {.wr_id = 5, .send_flags = IBV_SEND_SIGNALED};

    vb_fill_flush(&wr, loop.mr[1]->ibv.rkey, (uintptr_t)loop.memory[1] + AT, length,
                  IBV_FLUSH_GLOBAL, level);
    return wr;
}

static struct ibv_wc post(struct ibv_send_wr wr)
{
    struct ibv_send_wr *bad;
    struct ibv_wc wc;

    CHECK_EQ(vb_post_staged(loop.qp[0], &wr, &bad), 0);
    CHECK_EQ(loopback_poll(loop.cq[0], &wc), 0);
    CHECK_EQ(wc.wr_id, 5);
    return wc;
}

static void a_range_and_a_region(void)
{
    struct ibv_wc wc;

    begin(IBV_QPT_RC);
    wc = post(flush(IBV_FLUSH_RANGE, LENGTH));
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.opcode, IBV_WC_FLUSH);
    CHECK_EQ(wc.byte_len, 0);
    CHECK_EQ(post(flush(IBV_FLUSH_RANGE, LOOPBACK_BYTES - AT)).status, IBV_WC_SUCCESS);
    CHECK_EQ(post(flush(IBV_FLUSH_RANGE, 0)).status, IBV_WC_SUCCESS);
    CHECK_EQ(post(flush(IBV_FLUSH_MR, 0)).status, IBV_WC_SUCCESS);
    CHECK_EQ(post(flush(IBV_FLUSH_MR, UINT64_MAX)).status, IBV_WC_SUCCESS);
    loopback_close(&loop);
}

/* A small SEND travels inside its completion: the buffer has it once a FLUSH of it is over. From
 * here on the process counts as one whose mappings are watched, without which nothing waits. */
static void what_a_send_brought_is_in_its_buffer(void)
{
    vb_memory_watch_begin();
    for (int level = IBV_FLUSH_RANGE; level <= IBV_FLUSH_MR; ++level) {
        struct ibv_sge to, from;
        struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = &to, .num_sge = 1}, *bad_recv;
        struct ibv_send_wr send = {.wr_id = 2, .sg_list = &from, .num_sge = 1}, *bad;

        begin(IBV_QPT_RC);
        to = (struct ibv_sge){(uintptr_t)loop.memory[1] + AT, 16, loop.mr[1]->ibv.lkey};
        from = (struct ibv_sge){(uintptr_t)loop.memory[0], 16, loop.mr[0]->ibv.lkey};
        memcpy(loop.memory[0], "sixteen bytes it", 16);
        send.opcode = IBV_WR_SEND;
        CHECK_EQ(vb_post_recv(loop.qp[1], &recv, &bad_recv), 0);
        CHECK_EQ(vb_post_send(loop.qp[0], &send, &bad), 0);
        CHECK(memcmp(loop.memory[1] + AT, loop.memory[0], 16) != 0);
        CHECK_EQ(post(flush((uint8_t)level, 4)).status, IBV_WC_SUCCESS);
        CHECK_EQ(memcmp(loop.memory[1] + AT, loop.memory[0], 16), 0);
        loopback_close(&loop);
    }
}

/* ---- refusals ---- */

static void refused(struct ibv_send_wr wr, enum ibv_wc_status status, const char *words)
{
    char text[500] = "";
    struct ibv_wc wc = post(wr);
    bool remote = status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR;

    CHECK_EQ(wc.status, status);
    CHECK(vb_evidence_text(&loop.direct->adapter->self, wc.vendor_err, text, sizeof(text)) > 0);
    printf("  %s\n", text);
    CHECK(strstr(text, words) != NULL);
    CHECK(strstr(text, "FLUSH") != NULL || !remote);
    CHECK_EQ(vb_qp_state(loop.qp[0]), IBV_QPS_ERR);
    CHECK_EQ(vb_qp_state(loop.qp[1]), remote ? IBV_QPS_ERR : IBV_QPS_RTS);
    loopback_close(&loop);
}

static void keys(void)
{
    struct ibv_send_wr wr;
    struct vb_mr *mr;

    for (int level = IBV_FLUSH_RANGE; level <= IBV_FLUSH_MR; ++level) {
        begin(IBV_QPT_RC);
        wr = flush((uint8_t)level, 0);
        wr.wr.flush.rkey ^= 0xffffff00;
        refused(wr, IBV_WC_REM_ACCESS_ERR, "names no memory region");

        begin(IBV_QPT_RC);
        wr = flush((uint8_t)level, 8);
        CHECK_EQ(vb_mr_reg(loop.pd, loop.memory[1], LOOPBACK_BYTES, (uintptr_t)loop.memory[1],
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &mr),
                 0);
        wr.wr.flush.rkey = mr->ibv.rkey;
        refused(wr, IBV_WC_REM_ACCESS_ERR, "needs FLUSH_GLOBAL");

        begin(IBV_QPT_RC);
        wr = flush((uint8_t)level, 8);
        wr.wr.flush.type = IBV_FLUSH_PERSISTENT;
        refused(wr, IBV_WC_REM_ACCESS_ERR, "needs FLUSH_PERSISTENT");
    }
    begin(IBV_QPT_RC);
    refused(flush(IBV_FLUSH_RANGE, LOOPBACK_BYTES - AT + 1), IBV_WC_REM_ACCESS_ERR,
            "not inside the region");
}

static void the_queue_pair(void)
{
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

    begin(IBV_QPT_RC);
    CHECK_EQ(vb_qp_modify(loop.qp[1], &attr, IBV_QP_ACCESS_FLAGS), 0);
    refused(flush(IBV_FLUSH_RANGE, 8), IBV_WC_REM_INV_REQ_ERR, "qp_access_flags");

    begin(IBV_QPT_RC);
    loop.qp[0]->terms.max_rd_atomic = 0;
    refused(flush(IBV_FLUSH_RANGE, 8), IBV_WC_LOC_QP_OP_ERR, "max_rd_atomic");

    begin(IBV_QPT_RC);
    loop.qp[1]->shared->max_dest_rd_atomic = 0;
    refused(flush(IBV_FLUSH_RANGE, 8), IBV_WC_REM_INV_REQ_ERR, "max_dest_rd_atomic");

    begin(IBV_QPT_RC);
    refused(flush(IBV_FLUSH_RANGE, 1ull << 31), IBV_WC_LOC_LEN_ERR, "2147483647");
}

/* Nobody who calls ibv_post_send can fill in what a FLUSH needs. */
static void it_is_no_request_of_post_send(void)
{
    struct ibv_send_wr wr, *bad;

    begin(IBV_QPT_RC);
    wr = flush(IBV_FLUSH_RANGE, 8);
    CHECK_EQ(vb_post_send(loop.qp[0], &wr, &bad), -EINVAL);
    CHECK(bad == &wr);
    loopback_close(&loop);
    begin(IBV_QPT_UC);
    wr = flush(IBV_FLUSH_RANGE, 8);
    CHECK_EQ(vb_post_staged(loop.qp[0], &wr, &bad), -EINVAL);
    loopback_close(&loop);
}

/* ---- which memory ---- */

static void persistent_memory_is_none(void)
{
    const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_FLUSH_GLOBAL;
    struct vb_mr *mr;

    begin(IBV_QPT_RC);
    CHECK_EQ(vb_mr_reg(loop.pd, loop.memory[1], 64, (uintptr_t)loop.memory[1],
                       access | IBV_ACCESS_FLUSH_PERSISTENT, &mr),
             -EINVAL);
    CHECK_EQ(vb_mr_rereg(loop.mr[1], IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
                         access | IBV_ACCESS_FLUSH_PERSISTENT),
             -EINVAL);
    CHECK_EQ(post(flush(IBV_FLUSH_MR, 0)).status, IBV_WC_SUCCESS); /* it is what it was */
    CHECK_EQ(
        vb_mr_rereg(loop.mr[1], IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE),
        0);
    refused(flush(IBV_FLUSH_MR, 0), IBV_WC_REM_ACCESS_ERR, "needs FLUSH_GLOBAL");
}

static void an_implicit_region(void)
{
    struct ibv_send_wr wr;
    struct vb_mr *mr;

    begin(IBV_QPT_RC);
    CHECK_EQ(vb_mr_reg(loop.pd, NULL, SIZE_MAX, 0,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_FLUSH_GLOBAL,
                       &mr),
             0);
    for (int level = IBV_FLUSH_RANGE; level <= IBV_FLUSH_MR; ++level) {
        wr = flush((uint8_t)level, LENGTH);
        wr.wr.flush.rkey = mr->ibv.rkey;
        CHECK_EQ(post(wr).status, IBV_WC_SUCCESS);
    }
    loopback_close(&loop);
}

int main(void)
{
    RUN(a_range_and_a_region);
    RUN(what_a_send_brought_is_in_its_buffer);
    RUN(keys);
    RUN(the_queue_pair);
    RUN(it_is_no_request_of_post_send);
    RUN(persistent_memory_is_none);
    RUN(an_implicit_region);
    return 0;
}
