// SPDX-License-Identifier: Apache-2.0
/*
 * modify_qp, exhaustively: each QP type, each pair of states, with exactly the attributes that the
 * transition needs, with all that it takes, with each one missing and with each one too many.
 * What is right is written below as text, apart from the adapter's own table.
 */
#include "check.h"
#include "hca/qp_states.h"
#include "loopback.h"

/*
 * IBA vol. 1, 10.3.1 and table 91; what may be given besides is as Linux has it.
 * QP types, from > to, attributes that it needs, `|`, attributes that it takes.
 */
static const char *const rules[] = {
    "RC UC    RESET>INIT PKEY_INDEX PORT ACCESS_FLAGS |",
    "UD       RESET>INIT PKEY_INDEX PORT QKEY |",
    "RC UC    INIT>INIT | PKEY_INDEX PORT ACCESS_FLAGS",
    "UD       INIT>INIT | PKEY_INDEX PORT QKEY",
    "RC       INIT>RTR AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER"
    "                  | ALT_PATH ACCESS_FLAGS PKEY_INDEX RATE_LIMIT",
    "UC       INIT>RTR AV PATH_MTU DEST_QPN RQ_PSN | ALT_PATH ACCESS_FLAGS PKEY_INDEX RATE_LIMIT",
    "UD       INIT>RTR | PKEY_INDEX QKEY",
    "RC       RTR>RTS SQ_PSN TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC"
    "                 | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE MIN_RNR_TIMER RATE_LIMIT",
    "UC       RTR>RTS SQ_PSN | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE RATE_LIMIT",
    "UD       RTR>RTS SQ_PSN | CUR_STATE QKEY",
    "RC       RTS>RTS | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE MIN_RNR_TIMER RATE_LIMIT",
    "UC       RTS>RTS | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE RATE_LIMIT",
    "UD       RTS>RTS | CUR_STATE QKEY",
    "RC UC UD XRC_SEND XRC_RECV RTS>SQD | EN_SQD_ASYNC_NOTIFY",
    "RC       SQD>RTS | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE MIN_RNR_TIMER",
    "UC       SQD>RTS | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE",
    "UD       SQD>RTS | CUR_STATE QKEY",
    "RC       SQD>SQD | PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC"
    "                   ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE",
    "UC       SQD>SQD | AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE",
    "UD       SQD>SQD | PKEY_INDEX QKEY",
    "UC       SQE>RTS | CUR_STATE ACCESS_FLAGS",
    /* of RC, the half that each has: XRC_SEND requests, XRC_RECV responds */
    "XRC_SEND XRC_RECV RESET>INIT PKEY_INDEX PORT ACCESS_FLAGS |",
    "XRC_SEND XRC_RECV INIT>INIT | PKEY_INDEX PORT ACCESS_FLAGS",
    "XRC_SEND INIT>RTR AV PATH_MTU DEST_QPN RQ_PSN | ALT_PATH ACCESS_FLAGS PKEY_INDEX RATE_LIMIT",
    "XRC_RECV INIT>RTR AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER"
    "                  | ALT_PATH ACCESS_FLAGS PKEY_INDEX",
    "XRC_SEND RTR>RTS SQ_PSN TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC"
    "                 | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE RATE_LIMIT",
    "XRC_RECV RTR>RTS SQ_PSN TIMEOUT"
    "                 | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE MIN_RNR_TIMER",
    "XRC_SEND RTS>RTS | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE RATE_LIMIT",
    "XRC_RECV RTS>RTS | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE MIN_RNR_TIMER",
    "XRC_SEND SQD>RTS | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE",
    "XRC_RECV SQD>RTS | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE MIN_RNR_TIMER",
    "XRC_SEND SQD>SQD | PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC"
    "                   ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE",
    "XRC_RECV SQD>SQD | PORT AV TIMEOUT MAX_DEST_RD_ATOMIC"
    "                   ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE",
    "UD       SQE>RTS | CUR_STATE QKEY",
    /* from everywhere to RESET; to ERR from everywhere but RESET */
    "RC UC UD XRC_SEND XRC_RECV RESET>RESET |",
    "RC UC UD XRC_SEND XRC_RECV INIT>RESET |",
    "RC UC UD XRC_SEND XRC_RECV RTR>RESET |",
    "RC UC UD XRC_SEND XRC_RECV RTS>RESET |",
    "RC UC UD XRC_SEND XRC_RECV SQD>RESET |",
    "RC UC UD XRC_SEND XRC_RECV SQE>RESET |",
    "RC UC UD XRC_SEND XRC_RECV ERR>RESET |",
    "RC UC UD XRC_SEND XRC_RECV INIT>ERR |",
    "RC UC UD XRC_SEND XRC_RECV RTR>ERR |",
    "RC UC UD XRC_SEND XRC_RECV RTS>ERR |",
    "RC UC UD XRC_SEND XRC_RECV SQD>ERR |",
    "RC UC UD XRC_SEND XRC_RECV SQE>ERR |",
    "RC UC UD XRC_SEND XRC_RECV ERR>ERR |",
};

static const struct {
    const char *name;
    int bit;
} attributes[] = {
    {"CUR_STATE", 1},
    {"EN_SQD_ASYNC_NOTIFY", 2},
    {"ACCESS_FLAGS", 3},
    {"PKEY_INDEX", 4},
    {"PORT", 5},
    {"QKEY", 6},
    {"AV", 7},
    {"PATH_MTU", 8},
    {"TIMEOUT", 9},
    {"RETRY_CNT", 10},
    {"RNR_RETRY", 11},
    {"RQ_PSN", 12},
    {"MAX_QP_RD_ATOMIC", 13},
    {"ALT_PATH", 14},
    {"MIN_RNR_TIMER", 15},
    {"SQ_PSN", 16},
    {"MAX_DEST_RD_ATOMIC", 17},
    {"PATH_MIG_STATE", 18},
    {"CAP", 19},
    {"DEST_QPN", 20},
    {"RATE_LIMIT", 25},
};

static const char *const states[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
static const char *const types[] = {[IBV_QPT_RC] = "RC",
                                    [IBV_QPT_UC] = "UC",
                                    [IBV_QPT_UD] = "UD",
                                    [IBV_QPT_XRC_SEND] = "XRC_SEND",
                                    [IBV_QPT_XRC_RECV] = "XRC_RECV"};

enum { STATES = 7, LAST_BIT = 30 };

struct expected {
    bool allowed;
    int required, optional;
};

/* ---- reading the rules ---------------------------------------------------------------------- */

static int attribute_bit(const char *word)
{
    for (size_t i = 0; i < sizeof(attributes) / sizeof(*attributes); ++i)
        if (!strcmp(attributes[i].name, word))
            return 1 << attributes[i].bit;
    fprintf(stderr, "no attribute is called %s\n", word);
    exit(1);
}

/* The rule's words before the transition name QP types; those after it attributes. */
static bool read_rule(const char *rule, const char *type, const char *transition,
                      struct expected *found)
{
    char text[300], *rest = NULL;
    bool of_type = false, past_bar = false, here = false;

    snprintf(text, sizeof(text), "%s", rule);
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (strchr(word, '>'))
            here = !strcmp(word, transition);
        else if (!here)
            of_type = of_type || !strcmp(word, type);
        else if (!strcmp(word, "|"))
            past_bar = true;
        else
            *(past_bar ? &found->optional : &found->required) |= attribute_bit(word);
    }
    return of_type && here;
}

static struct expected expectation(enum ibv_qp_type type, int from, int to)
{
    char transition[16];

    snprintf(transition, sizeof(transition), "%s>%s", states[from], states[to]);
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); ++i) {
        struct expected found = {.allowed = true};

        if (read_rule(rules[i], types[type], transition, &found))
            return found;
    }
    return (struct expected){0};
}

/* ---- a QP in any state ---------------------------------------------------------------------- */

static struct loopback loop;

static struct vb_qp *qp(void)
{
    return loop.qp[0];
}

/* Values unlike those that `reach` set, so that a change shows. */
static struct ibv_qp_attr offered(int from, int to)
{
    struct ibv_qp_attr attr = {
        .qp_state = (enum ibv_qp_state)to,
        .cur_qp_state = (enum ibv_qp_state)from,
        .path_mtu = IBV_MTU_512,
        .path_mig_state = IBV_MIG_REARM,
        .qkey = 0x1234,
        .rq_psn = 77,
        .sq_psn = 78,
        .dest_qp_num = loop.qp[1]->number,
        .qp_access_flags = IBV_ACCESS_REMOTE_READ,
        .ah_attr = {.is_global = 1, .port_num = 1, .sl = 3},
        .alt_ah_attr = {.is_global = 1, .port_num = 1},
        .alt_timeout = 9,
        .alt_port_num = 1,
        .en_sqd_async_notify = 1,
        .max_rd_atomic = 7,
        .max_dest_rd_atomic = 6,
        .min_rnr_timer = 5,
        .port_num = 1,
        .timeout = 15,
        .retry_cnt = 4,
        .rnr_retry = 3,
        .rate_limit = 1000,
    };

    loopback_gid(loop.direct, attr.ah_attr.grh.dgid.raw);
    return attr;
}

static int modify(int from, int to, int mask)
{
    struct ibv_qp_attr attr = offered(from, to);

    return vb_qp_modify(qp(), &attr, mask);
}

static void step(int from, int to)
{
    CHECK_EQ(modify(from, to, IBV_QP_STATE | expectation(qp()->type, from, to).required), 0);
}

/* RC never meets SQE, and how the others do is not this test's matter: it is put there. */
static void reach(int state)
{
    static const int paths[STATES][4] = {
        [IBV_QPS_INIT] = {IBV_QPS_INIT},
        [IBV_QPS_RTR] = {IBV_QPS_INIT, IBV_QPS_RTR},
        [IBV_QPS_RTS] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS},
        [IBV_QPS_SQD] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD},
        [IBV_QPS_SQE] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS},
        [IBV_QPS_ERR] = {IBV_QPS_INIT, IBV_QPS_ERR},
    };
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    int now = IBV_QPS_RESET;

    CHECK_EQ(vb_qp_modify(qp(), &reset, IBV_QP_STATE), 0);
    for (int i = 0; i < 4 && paths[state][i]; now = paths[state][i++])
        step(now, paths[state][i]);
    if (state == IBV_QPS_SQE)
        atomic_store(&qp()->shared->state, IBV_QPS_SQE); /* a handle's is the QP's own */
    CHECK_EQ(vb_qp_state(qp()), state);
}

static struct ibv_qp_attr queried(void)
{
    struct ibv_qp_attr attr;

    memset(&attr, 0, sizeof(attr));
    CHECK_EQ(vb_qp_query(qp(), &attr, -1, NULL), 0);
    return attr;
}

/* ---- one call ------------------------------------------------------------------------------- */

struct attempt {
    enum ibv_qp_type type;
    int from, to, mask;
};

static void fail(const struct attempt *attempt, const char *what)
{
    fprintf(stderr, "%s %s>%s with attribute mask %#x: %s\n", types[attempt->type],
            states[attempt->from], states[attempt->to], (unsigned)attempt->mask, what);
    exit(1);
}

/* Of several mistakes the first of these is told. */
static const char *reason_of(const struct attempt *attempt, const struct expected *expected)
{
    if ((attempt->mask & IBV_QP_CUR_STATE) &&
        (attempt->from < IBV_QPS_RTR || attempt->from > IBV_QPS_SQE))
        return "cur_qp_state is ";
    if (!expected->allowed)
        return " does not follow ";
    return expected->required & ~attempt->mask ? ", which the mask lacks" : ", which the mask has";
}

static void must_be_refused(const struct attempt *attempt, const struct expected *expected)
{
    struct ibv_qp_attr before = queried(), after;
    char why[400] = "";

    if (modify(attempt->from, attempt->to, attempt->mask) != -EINVAL)
        fail(attempt, "was not refused with EINVAL");
    vb_decline_text(loop.context, -EINVAL, why, sizeof(why));
    if (!strstr(why, reason_of(attempt, expected)))
        fail(attempt, why);
    after = queried();
    if (memcmp(&before, &after, sizeof(before)) != 0)
        fail(attempt, "was refused and yet changed something");
}

/* Where query_qp shows an attribute that modify_qp took. */
#define FIELD(name, member)                                                                        \
    {IBV_QP_##name, offsetof(struct ibv_qp_attr, member), sizeof(((struct ibv_qp_attr *)0)->member)}
static const struct {
    int bit;
    size_t at, size;
} fields[] = {
    FIELD(ACCESS_FLAGS, qp_access_flags),
    FIELD(PKEY_INDEX, pkey_index),
    FIELD(PORT, port_num),
    FIELD(QKEY, qkey),
    FIELD(AV, ah_attr),
    FIELD(PATH_MTU, path_mtu),
    FIELD(TIMEOUT, timeout),
    FIELD(RETRY_CNT, retry_cnt),
    FIELD(RNR_RETRY, rnr_retry),
    FIELD(RQ_PSN, rq_psn),
    FIELD(MAX_QP_RD_ATOMIC, max_rd_atomic),
    FIELD(ALT_PATH, alt_ah_attr),
    FIELD(ALT_PATH, alt_timeout),
    FIELD(MIN_RNR_TIMER, min_rnr_timer),
    FIELD(SQ_PSN, sq_psn),
    FIELD(MAX_DEST_RD_ATOMIC, max_dest_rd_atomic),
    FIELD(PATH_MIG_STATE, path_mig_state),
    FIELD(DEST_QPN, dest_qp_num),
    FIELD(RATE_LIMIT, rate_limit),
};

static void must_be_taken(const struct attempt *attempt)
{
    struct ibv_qp_attr given = offered(attempt->from, attempt->to), before = queried(), after;

    if (modify(attempt->from, attempt->to, attempt->mask))
        fail(attempt, "was refused");
    after = queried();
    if ((int)after.qp_state != attempt->to)
        fail(attempt, "did not reach the state");
    if (attempt->to == IBV_QPS_RESET)
        return;
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); ++i) {
        struct ibv_qp_attr *from = attempt->mask & fields[i].bit ? &given : &before;

        if (memcmp((char *)&after + fields[i].at, (char *)from + fields[i].at, fields[i].size) != 0)
            fail(attempt, "an attribute is not what the call and the mask say");
    }
}

static void attempt(struct attempt made, const struct expected *expected)
{
    int without_state = made.mask & ~IBV_QP_STATE;
    bool complete = (without_state & expected->required) == expected->required;
    bool known = !(without_state & ~(expected->required | expected->optional));

    if (expected->allowed && complete && known) {
        reach(made.from);
        must_be_taken(&made);
        reach(made.from);
    } else {
        must_be_refused(&made, expected);
    }
}

/* ---- all of them ---------------------------------------------------------------------------- */

static void each_mask(enum ibv_qp_type type, int from, int to)
{
    struct expected expected = expectation(type, from, to);
    int all = expected.required | expected.optional;
    struct attempt base = {type, from, to, IBV_QP_STATE | expected.required};

    reach(from);
    attempt(base, &expected);
    attempt((struct attempt){type, from, to, IBV_QP_STATE | all}, &expected);
    for (int bit = 1; bit <= LAST_BIT; ++bit)
        attempt((struct attempt){type, from, to, base.mask ^ 1 << bit}, &expected);
    for (int bit = 1; bit <= LAST_BIT; ++bit)
        attempt((struct attempt){type, from, to, (IBV_QP_STATE | all) ^ 1 << bit}, &expected);
    if (from == to) /* no state given: it stays */
        attempt((struct attempt){type, from, to, all}, &expected);
}

static void each_transition(enum ibv_qp_type type)
{
    loopback_open(&loop, type);
    for (int from = 0; from < STATES; ++from)
        for (int to = 0; to < STATES; ++to)
            each_mask(type, from, to);
    loopback_close(&loop);
}

static void rc(void)
{
    each_transition(IBV_QPT_RC);
}

static void uc(void)
{
    each_transition(IBV_QPT_UC);
}

static void ud(void)
{
    each_transition(IBV_QPT_UD);
}

static void xrc_send(void)
{
    each_transition(IBV_QPT_XRC_SEND);
}

static void xrc_recv(void)
{
    each_transition(IBV_QPT_XRC_RECV);
}

/* The adapter's table itself, which the documentation's diagram is made from. */
static void the_table_is_the_rules(void)
{
    static const enum ibv_qp_type all[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND,
                                           IBV_QPT_XRC_RECV};
    const int count = sizeof(all) / sizeof(*all);

    for (int i = 0; i < count * STATES * STATES; ++i) {
        enum ibv_qp_type type = all[i / (STATES * STATES)];
        int from = i / STATES % STATES, to = i % STATES;
        struct expected expected = expectation(type, from, to);
        const struct vb_transition *found =
            vb_qp_transition(type, (enum ibv_qp_state)from, (enum ibv_qp_state)to);

        CHECK_EQ(found != NULL, expected.allowed);
        CHECK_EQ(found ? found->required : 0, expected.required);
        CHECK_EQ(found ? found->optional : 0, expected.optional);
    }
}

/* What a program asks for is rounded up: queues to powers of two, inline data to 64 bytes. */
static void capabilities_are_rounded_up(void)
{
    static const struct {
        struct ibv_qp_cap wanted, made;
        uint32_t mask;
    } rows[] = {
        {{1, 1, 1, 1, 0}, {1, 1, 1, 1, 64}, 0},         {{2, 3, 1, 2, 63}, {2, 4, 1, 2, 64}, 1},
        {{3, 4, 2, 1, 64}, {4, 4, 2, 1, 64}, 3},        {{5, 9, 3, 3, 65}, {8, 16, 3, 3, 65}, 7},
        {{16, 17, 4, 4, 100}, {16, 32, 4, 4, 100}, 15}, {{0, 5, 1, 1, 1}, {0, 8, 1, 1, 64}, 0},
    };

    loopback_open(&loop, IBV_QPT_RC);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_RC,
                                           .pd = &loop.pd->ibv,
                                           .send_cq = &loop.cq[0]->ibv,
                                           .recv_cq = &loop.cq[0]->ibv,
                                           .cap = rows[i].wanted};
        struct vb_qp *made;

        CHECK_EQ(vb_qp_create(loop.context, &attr, &made), 0);
        CHECK_EQ(memcmp(&made->cap, &rows[i].made, sizeof(made->cap)), 0);
        if (rows[i].wanted.max_send_wr)
            CHECK_EQ(made->sq_mask, rows[i].mask);
        CHECK_EQ(vb_qp_destroy(made), 0);
    }
    loopback_close(&loop);
}

static void refused(int from, int to, int mask, struct ibv_qp_attr attr)
{
    struct ibv_qp_attr before, after;

    reach(from);
    before = queried();
    attr.qp_state = (enum ibv_qp_state)to;
    CHECK_EQ(vb_qp_modify(qp(), &attr, IBV_QP_STATE | mask), -EINVAL);
    after = queried();
    CHECK_EQ(memcmp(&before, &after, sizeof(before)), 0);
}

/* The right mask with a value that no QP can have. */
static void values_out_of_range(void)
{
    int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    int rtr = expectation(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR).required;
    int rts = expectation(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS).required;
    struct ibv_qp_attr attr;

#define REFUSED(from, to, mask, member, value)                                                     \
    attr = offered(IBV_QPS_##from, IBV_QPS_##to);                                                  \
    attr.member = (value);                                                                         \
    refused(IBV_QPS_##from, IBV_QPS_##to, mask, attr)

    loopback_open(&loop, IBV_QPT_RC);
    REFUSED(RESET, INIT, init, port_num, 0);
    REFUSED(RESET, INIT, init, port_num, 2);
    REFUSED(RESET, INIT, init, pkey_index, 1);
    REFUSED(INIT, RTR, rtr, path_mtu, 0);
    REFUSED(INIT, RTR, rtr, path_mtu, IBV_MTU_4096 + 1);
    REFUSED(INIT, RTR, rtr, min_rnr_timer, 32);
    REFUSED(INIT, RTR, rtr, max_dest_rd_atomic, 129);
    REFUSED(INIT, RTR, rtr, dest_qp_num, 1u << 24);
    REFUSED(INIT, RTR, rtr, ah_attr.is_global, 0); /* RoCE has no local route */
    REFUSED(RTR, RTS, rts, timeout, 32);
    REFUSED(RTR, RTS, rts, retry_cnt, 8);
    REFUSED(RTR, RTS, rts, rnr_retry, 8);
    REFUSED(RTR, RTS, rts, max_rd_atomic, 129);
    REFUSED(RTS, RTS, IBV_QP_CUR_STATE, cur_qp_state, IBV_QPS_SQD); /* it is in RTS */
    REFUSED(SQD, RTS, IBV_QP_CUR_STATE, cur_qp_state, IBV_QPS_RTS);
    loopback_close(&loop);
#undef REFUSED
}

int main(void)
{
    RUN(the_table_is_the_rules);
    RUN(rc);
    RUN(uc);
    RUN(xrc_send);
    RUN(xrc_recv);
    RUN(ud);
    RUN(values_out_of_range);
    RUN(capabilities_are_rounded_up);
    return 0;
}
