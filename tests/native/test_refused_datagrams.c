// SPDX-License-Identifier: Apache-2.0
/*
 * Datagrams that are lost by a mistake: which cause each has, which counter shows it, and that the
 * log names each cause once for each queue pair.
 */
#include <unistd.h>

#include "check.h"
#include "end.h"
#include "hca/ah.h"
#include "hca/counters.h"
#include "hca/lost.h"
#include "loopback.h"
#include "starved.h"

enum { QKEY = 17, LINES = 100 };

static struct end end;
static char lines[LINES][640];
static unsigned count_of_lines;
static long blocks;

static void note(const char *line)
{
    CHECK(count_of_lines < LINES);
    snprintf(lines[count_of_lines++], sizeof(lines[0]), "%s", line);
}

static void begin(void)
{
    blocks = starved_blocks();
    end_open(&end, (struct end_options){.type = IBV_QPT_UD});
    end.host->adapter.tell = note;
    count_of_lines = 0;
}

/* What datagrams had in memory goes with their queue pairs. */
static void finish(void)
{
    end_close(&end);
    CHECK_EQ(starved_blocks(), blocks);
}

static uint64_t counted(const char *name)
{
    for (uint32_t i = 0; i < VB_COUNTER_COUNT; ++i)
        if (strcmp(vb_counter_names[i].name, name) == 0)
            return vb_lost_counted(&end.host->adapter, i);
    CHECK(false);
    return 0;
}

static uint64_t counted_all(void)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < VB_COUNTER_COUNT; ++i)
        sum += vb_lost_counted(&end.host->adapter, i);
    return sum;
}

/* ---- each cause ------------------------------------------------------------------------------ */

static const struct {
    enum vb_lost_cause cause;
    const char *counter; /* NULL: nothing was sent that could be counted */
    const char *words;   /* NULL: it has no line */
} causes[] = {
    {VB_LOST_QKEY, "drop_qkey", "the Q_Key 0x30005, and the QP's is 0x6"},
    {VB_LOST_PKEY, "drop_pkey", "the P_Key 0x0005, and the QP's is 0x0006"},
    {VB_LOST_NO_PROCESS, "drop_no_qp", ""},
    {VB_LOST_UNREACHED, "drop_no_qp", ""},
    {VB_LOST_NO_QP, "drop_no_qp", ""},
    {VB_LOST_TYPE, "drop_transport", ""},
    {VB_LOST_STATE, "drop_state", ""},
    {VB_LOST_ADDRESS, NULL, ""},
    {VB_LOST_SOURCE, NULL, ""},
    {VB_LOST_PORT, "drop_no_qp", ""},
    {VB_LOST_ROUTE, NULL, "does not lead to LID 5"},
    {VB_LOST_NO_RECEIVE, "drop_no_receive", NULL},
};

static void each_cause_counts_and_has_one_line_for_each_queue_pair(void)
{
    uint64_t expected = 0;
    unsigned written = 0;

    begin();
    end_add_qp(&end);
    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); ++i)
        for (int j = 0; j < 3; ++j) {
            uint64_t before = causes[i].counter ? counted(causes[i].counter) : 0;
            struct vb_lost lost = {.cause = causes[i].cause,
                                   .from = 0xabc1,
                                   .to = 0xabc2,
                                   .value = i ? 5 : 0x30005,
                                   .wanted = 6};

            if (j == 2)
                end_add_qp(&end);
            vb_lost_direct(end.qp, &lost);
            expected += causes[i].counter != NULL;
            if (causes[i].counter)
                CHECK_EQ(counted(causes[i].counter), before + 1);
            CHECK_EQ(counted_all(), expected);
            written += causes[i].words && j != 1;
            CHECK_EQ(count_of_lines, written);
            if (!causes[i].words || j == 1)
                continue;
            if (!strstr(lines[written - 1], causes[i].words))
                fprintf(stderr, "%s\n", lines[written - 1]);
            CHECK(strstr(lines[written - 1], causes[i].words));
            CHECK(strstr(lines[written - 1], "a datagram of QP 0xabc1 to QP 0xabc2 is lost: "));
        }
    CHECK_EQ(causes[sizeof(causes) / sizeof(causes[0]) - 1].cause, VB_LOST_NO_RECEIVE);
    CHECK_EQ(sizeof(causes) / sizeof(causes[0]), VB_LOST_CAUSES);
    finish();
}

/* Without a log it is counted nevertheless, and the line is written when there is one. */
static void what_no_log_has_said_is_news(void)
{
    struct vb_lost lost = {.cause = VB_LOST_QKEY};

    begin();
    end_add_qp(&end);
    end.host->adapter.tell = NULL;
    vb_lost_direct(end.qp, &lost);
    CHECK_EQ(counted("drop_qkey"), 1);
    end.host->adapter.tell = note;
    vb_lost_log(end.qp, &lost);
    CHECK_EQ(counted("drop_qkey"), 1);
    CHECK_EQ(count_of_lines, 1);
    finish();
}

/* ---- which cause it is ----------------------------------------------------------------------- */

static void send_to(struct vb_qp *from, struct vb_ah *ah, uint32_t number, uint32_t qkey)
{
    struct ibv_sge sge = {(uintptr_t)end.memory, 20, end.mr->ibv.lkey};
    struct ibv_send_wr *bad,
        wr = {
            .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1};

    wr.wr.ud.ah = &ah->ibv;
    wr.wr.ud.remote_qpn = number;
    wr.wr.ud.remote_qkey = qkey;
    CHECK_EQ(vb_post_send(from, &wr, &bad), 0);
    CHECK_EQ(end_wait(end.cq, 20).status, IBV_WC_SUCCESS); /* UD promises no more */
}

static void bring(struct vb_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};

    CHECK_EQ(vb_qp_modify(qp, &attr, IBV_QP_STATE), 0);
}

static struct vb_qp *in_state(enum ibv_qp_state state)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    struct vb_qp *qp = end_add_qp(&end);

    if (state == IBV_QPS_RESET)
        return qp;
    if (state == IBV_QPS_INIT || state == IBV_QPS_RTR) {
        CHECK_EQ(
            vb_qp_modify(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
            0);
        if (state == IBV_QPS_RTR)
            bring(qp, IBV_QPS_RTR);
        return qp;
    }
    end_ready(qp, NULL);
    if (state == IBV_QPS_SQE)
        atomic_store(&qp->shared->state, IBV_QPS_SQE);
    else if (state != IBV_QPS_RTS)
        bring(qp, state);
    return qp;
}

static void expect_lost(struct vb_qp *from, struct vb_ah *ah, uint32_t number, uint32_t qkey,
                        enum vb_lost_cause cause)
{
    uint64_t before[VB_LOST_CAUSES];

    for (int i = 0; i < VB_LOST_CAUSES; ++i)
        before[i] = atomic_load(&end.host->adapter.lost[i]);
    send_to(from, ah, number, qkey);
    for (int i = 0; i < VB_LOST_CAUSES; ++i) {
        if (atomic_load(&end.host->adapter.lost[i]) != before[i] + (i == (int)cause))
            fprintf(stderr, "cause %d, wanted %d\n", i, (int)cause);
        CHECK_EQ(atomic_load(&end.host->adapter.lost[i]), before[i] + (i == (int)cause));
    }
}

static void each_mistake_is_the_cause(void)
{
    static const struct {
        enum ibv_qp_state state;
        enum vb_lost_cause cause;
    } states[] = {
        {IBV_QPS_RESET, VB_LOST_NO_QP},    {IBV_QPS_INIT, VB_LOST_STATE},
        {IBV_QPS_RTR, VB_LOST_NO_RECEIVE}, {IBV_QPS_RTS, VB_LOST_NO_RECEIVE},
        {IBV_QPS_SQD, VB_LOST_NO_RECEIVE}, {IBV_QPS_SQE, VB_LOST_NO_RECEIVE},
        {IBV_QPS_ERR, VB_LOST_STATE},
    };
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};
    struct vb_qp *from, *qp;
    struct vb_ah *ah;

    begin();
    loopback_gid(end.direct, to.grh.dgid.raw);
    CHECK_EQ(vb_ah_create(end.pd, &to, &ah), 0);
    from = in_state(IBV_QPS_RTS);
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); ++i) {
        qp = in_state(states[i].state);
        expect_lost(from, ah, qp->number, QKEY, states[i].cause);
    }
    qp = in_state(IBV_QPS_RTS);
    expect_lost(from, ah, qp->number, QKEY + 1, VB_LOST_QKEY);
    expect_lost(from, ah, qp->number, 0, VB_LOST_QKEY);
    expect_lost(from, ah, qp->number, 1u << 31, VB_LOST_NO_RECEIVE); /* the sender's own Q_Key */
    expect_lost(from, ah, qp->number ^ 1 << 11, QKEY, VB_LOST_NO_QP);
    expect_lost(from, ah, 0xffe000 ^ (from->number & 0xfff000), QKEY, VB_LOST_NO_PROCESS);
    end.options.type = IBV_QPT_RC;
    qp = end_add_qp(&end);
    expect_lost(from, ah, qp->number, QKEY, VB_LOST_NO_QP);
    end_ready(qp, qp);
    expect_lost(from, ah, qp->number, QKEY, VB_LOST_TYPE);
    finish();
}

int main(void)
{
    alarm(60);
    RUN(each_cause_counts_and_has_one_line_for_each_queue_pair);
    RUN(what_no_log_has_said_is_news);
    RUN(each_mistake_is_the_cause);
    return 0;
}
