// SPDX-License-Identifier: Apache-2.0
/*
 * A request that ends for want of an answer says what was heard of the peer. Each row is a network
 * that loses something for ever; the text must tell what came, and what does not fit must not be
 * in it.
 */
#include "check.h"
#include "fabric.h"
#include "hca/sentences.h"
#include "wire/opcode.h"

enum { MTU = 1024, LONGEST = 1200 };

static struct fabric fabric;
static struct vb_qp *qp[2];

/* Packets that side `from` sends, of operation `operation` (-1: any) with at least `payload` bytes
 * behind the BTH, from the `skip`-th on. */
struct loss {
    int from, operation;
    uint32_t payload, skip;
};

static enum verdict lose_for_ever(struct fabric *of, struct flight *flight)
{
    struct loss *loss = of->rule_context;
    struct vb_bth bth = vb_wire_bth_read(flight->bytes);

    if (flight->from != loss->from || flight->length < VB_BTH + loss->payload ||
        (loss->operation >= 0 && (bth.opcode & VB_OP_MASK) != loss->operation))
        return PASS;
    if (loss->skip) {
        --loss->skip;
        return PASS;
    }
    return LOSE;
}

struct row {
    const char *name;
    struct loss loss;
    enum ibv_wr_opcode opcode;
    uint32_t length;
    bool answered_before;  /* another request was carried out first */
    bool ready;            /* there is a receive */
    const char *said[4];   /* all of them… */
    const char *unsaid[4]; /* …and none of these */
};

#define ABSENT   "does not exist"
#define WAY_TO   "Packets to it are lost"
#define WAY_BACK "Packets from it are lost"
#define TOO_LONG "smaller path_mtu"

static const struct row rows[] = {
    {"nothing arrives there",
     {.from = 0, .operation = -1},
     IBV_WR_RDMA_WRITE,
     8,
     false,
     false,
     {"did not answer PSN 16777200", "given up after 4 attempts (retry_cnt 3): 4 timeouts;",
      "nothing was ever heard", ABSENT},
     {WAY_TO, WAY_BACK, TOO_LONG, "sequence errors"}},
    {"nothing comes back",
     {.from = 1, .operation = -1},
     IBV_WR_RDMA_WRITE,
     5000,
     false,
     false,
     {"did not answer", "nothing was ever heard", ABSENT, TOO_LONG},
     {WAY_TO, WAY_BACK}},
    {"silent since an answer",
     {.from = 0, .operation = -1, .skip = 1},
     IBV_WR_RDMA_WRITE,
     8,
     true,
     false,
     {"did not answer PSN 16777201", "4 timeouts", "an acknowledgement up to PSN 16777200",
      "It answered before"},
     {ABSENT, WAY_TO, WAY_BACK, TOO_LONG}},
    {"long packets vanish",
     {.from = 0, .operation = -1, .payload = 600},
     IBV_WR_SEND,
     3000,
     true,
     true,
     {"did not answer PSN 16777201", "It answered before", TOO_LONG},
     {ABSENT, WAY_BACK}},
    {"the last packet is lost",
     {.from = 0, .operation = VB_OP_WRITE_LAST},
     IBV_WR_RDMA_WRITE,
     5000,
     false,
     false,
     {"PSN 16777204", "up to PSN 16777203", "timeouts"},
     {ABSENT, "nothing was ever heard", WAY_BACK}},
    {"a middle packet is lost",
     {.from = 0, .operation = VB_OP_WRITE_FIRST},
     IBV_WR_RDMA_WRITE,
     5000,
     true,
     false,
     {"answered, but PSN 16777201 did not get through", "sequence errors",
      "a sequence NAK, which asks for PSN 16777201", WAY_TO},
     {ABSENT, WAY_BACK, "It answered before"}},
    {"a first response is lost",
     {.from = 1, .operation = VB_OP_READ_RESPONSE_FIRST},
     IBV_WR_RDMA_READ,
     200 * MTU,
     false,
     false,
     {"answered, but PSN 16777200 did not get through", "responses behind the missing one",
      "a response with PSN", WAY_BACK},
     {ABSENT, WAY_TO, "nothing was ever heard", TOO_LONG}},
    {"long responses vanish",
     {.from = 1, .operation = -1, .payload = 600},
     IBV_WR_RDMA_READ,
     2 * MTU + 8,
     false,
     false,
     {"answered, but PSN 16777200 did not get through", "4 responses behind", TOO_LONG},
     {ABSENT, WAY_TO}},
    {"a receiver that is not ready, and then silence",
     {.from = 0, .operation = VB_OP_SEND_ONLY, .skip = 2},
     IBV_WR_SEND,
     8,
     true,
     false,
     {"did not get through", "1 RNR NAKs", "an RNR NAK of PSN 16777201", "4 timeouts"},
     {ABSENT, WAY_BACK, TOO_LONG}},
};

static void text_of(uint32_t vendor_err, char text[LONGEST])
{
    CHECK(vb_evidence_text(&fabric.side[0].adapter.self, vendor_err, text, LONGEST) > 0);
    printf("    %s\n", text);
    CHECK(strlen(text) < LONGEST - 1);
}

static struct ibv_wc failed(const struct row *row)
{
    struct qp_options options = fabric_defaults();
    struct loss loss = row->loss;
    enum ibv_wr_opcode first = row->opcode == IBV_WR_SEND ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;

    options.retry_cnt = 3;
    fabric_open(&fabric, (struct fabric_options){.seed = 1, .memory = 1 << 20});
    fabric_pair(&fabric, options, qp);
    fabric.rule = lose_for_ever;
    fabric.rule_context = &loss;
    if (row->answered_before) {
        fabric_post_recv(&fabric, qp[1], 50, 0, 64);
        CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, first, 0), 0, 8), 0);
        CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    }
    if (row->ready)
        fabric_post_recv(&fabric, qp[1], 51, 0, 8192);
    CHECK_EQ(
        fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, row->opcode, 0), 0, row->length), 0);
    return fabric_wait(&fabric, fabric.side[0].send_cq);
}

static void the_text_tells_what_was_heard(void)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); ++i) {
        const struct row *row = &rows[i];
        char text[LONGEST];
        struct ibv_wc wc;

        printf("  %s\n", row->name);
        wc = failed(row);
        CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
        text_of(wc.vendor_err, text);
        for (int k = 0; k < 4 && row->said[k]; ++k)
            CHECK(strstr(text, row->said[k]));
        for (int k = 0; k < 4 && row->unsaid[k]; ++k)
            CHECK(!strstr(text, row->unsaid[k]));
        fabric_close(&fabric);
    }
}

/* How long ago it was heard is counted to the end of the request. */
static void the_time_since_is_told(void)
{
    struct row row = rows[2];
    char text[LONGEST];
    uint64_t start, end;
    unsigned ago = 0, during = 0;
    struct ibv_wc wc;

    wc = failed(&row);
    end = fabric.now;
    start = fabric_find(&fabric, 0, -1, 1)->at;
    text_of(wc.vendor_err, text);
    CHECK_EQ(sscanf(strstr(text, "during "), "during %u us", &during), 1);
    CHECK_EQ(sscanf(strstr(text, "from it, "), "from it, %u us", &ago), 1);
    CHECK_EQ(during, (end - start) / 1000);
    CHECK(ago >= during && ago < during + 100);
    fabric_close(&fabric);
}

/* The peer's rq_psn is another one than this QP's sq_psn: ahead of it, or behind. */
static void a_first_psn_that_differs_is_named(void)
{
    static const struct {
        uint32_t rq_psn;
        const char *heard;
    } differ[] = {{0xfffff0 - 100, "a sequence NAK, which asks for PSN 16777100, which this"},
                  {0xfffff0 + 5, "an acknowledgement up to PSN 16777204, which this"}};

    for (int i = 0; i < 2; ++i) {
        struct qp_options options = fabric_defaults(), theirs;
        char text[LONGEST];
        struct ibv_wc wc;

        options.retry_cnt = 3;
        theirs = options;
        theirs.psn[0] = differ[i].rq_psn;
        fabric_open(&fabric, (struct fabric_options){.seed = 1, .memory = 1 << 20});
        for (int side = 0; side < 2; ++side)
            qp[side] = fabric_qp(&fabric, side, &options);
        fabric_ready(&fabric, qp[0], qp[1]->number, &options);
        fabric_ready(&fabric, qp[1], qp[0]->number, &theirs);
        CHECK_EQ(
            fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_RDMA_WRITE, 0), 0, 600),
            0);
        wc = fabric_wait(&fabric, fabric.side[0].send_cq);
        CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
        text_of(wc.vendor_err, text);
        CHECK(strstr(text, differ[i].heard));
        CHECK(strstr(text, "compare its sq_psn with the peer's rq_psn"));
        CHECK(!strstr(text, "It answered before") && !strstr(text, WAY_TO));
        CHECK(!strstr(text, TOO_LONG) && !strstr(text, ABSENT));
        fabric_close(&fabric);
    }
}

int main(void)
{
    RUN(the_text_tells_what_was_heard);
    RUN(the_time_since_is_told);
    RUN(a_first_psn_that_differs_is_named);
    return 0;
}
