// SPDX-License-Identifier: Apache-2.0
/*
 * What waits is told of after a second, and not before: the clock is read by one thread and a wait
 * begun by another, so that a wait can begin after the time at which somebody looks.
 */
#include "hca/overdue.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "hca/hca.h"
#include "hca/vigil.h"
#include "loopback.h"

enum { SOON = 1000 }; /* ns */

static struct loopback loop;
static int told;

static char last[600]; /* line */

static void tell(const char *line)
{
    printf("  %s\n", line);
    snprintf(last, sizeof(last), "%s", line);
    ++told;
}

static bool says(const char *text, const char *words)
{
    if (!strstr(text, words))
        fprintf(stderr, "%s is not in: %s\n", words, text);
    return strstr(text, words) != NULL;
}

static uint64_t now(void)
{
    const struct vb_adapter *adapter = loop.direct->adapter;

    return adapter->calls->now(adapter);
}

static void a_request_that_waits_since_a_moment_to_come(void)
{
    struct vb_qp *qp = loop.qp[0];
    uint64_t at = now();

    vb_overdue_note(qp, VB_WAIT_RNR, 0, at + SOON, at);
    CHECK_EQ(told, 0);
    vb_overdue_note(qp, VB_WAIT_RNR, 0, at - VB_OVERDUE_NS, at);
    CHECK_EQ(told, 1);
}

static void a_channel_that_waits_since_a_moment_to_come(void)
{
    struct vb_adapter *adapter = loop.direct->adapter;
    struct vb_channel *channel;
    struct vb_vigil vigil;

    CHECK_EQ(vb_channel_create(loop.context, &channel), 0);
    told = 0;
    vb_vigil_begin(&vigil, channel);
    CHECK(vb_vigils_look(adapter, vigil.since - SOON)); /* it is still to be looked after */
    CHECK_EQ(told, 0);
    CHECK(!vb_vigils_look(adapter, vigil.since + VB_OVERDUE_NS));
    CHECK_EQ(told, 1);
    vb_vigil_end(&vigil);
    CHECK_EQ(vb_channel_destroy(channel), 0);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* A request has one line for each wait, whatever it waits for; the next request has its own. */
static void each_wait_has_one_line(void)
{
    struct vb_qp *qp = loop.qp[0];
    uint64_t at = now();

    qp->wait = (struct vb_wait){0};
    told = 0;
    vb_overdue_note(qp, VB_WAIT_RNR, 0, at, at + VB_OVERDUE_NS - 1);
    CHECK_EQ(told, 0);
    for (int i = 0; i < 3; ++i)
        vb_overdue_note(qp, i ? VB_WAIT_PEER : VB_WAIT_RNR, 0, at, at + VB_OVERDUE_NS);
    CHECK_EQ(told, 1);
    CHECK_EQ(qp->wait.noted, VB_WAIT_PEER);
    CHECK_EQ(qp->wait.since, at);
    ++qp->sq_next;
    vb_overdue_note(qp, VB_WAIT_PEER, 5, at, at + 1);
    CHECK_EQ(told, 1);
    CHECK(!qp->wait.logged);
    CHECK_EQ(qp->wait.position, qp->sq_next);
    CHECK_EQ(qp->wait.pid, 5);
    vb_overdue_note(qp, VB_WAIT_PEER, 0, at, at + VB_OVERDUE_NS);
    CHECK_EQ(told, 2);
    qp->wait.noted = VB_WAIT_NONE; /* it has gone on, and waits again */
    vb_overdue_note(qp, VB_WAIT_PEER, 0, at, at + VB_OVERDUE_NS);
    CHECK_EQ(told, 3);
    loop.direct->adapter->tell = NULL;
    qp->wait.noted = VB_WAIT_NONE;
    vb_overdue_note(qp, VB_WAIT_PEER, 0, at, at + VB_OVERDUE_NS);
    CHECK(qp->wait.logged);
    loop.direct->adapter->tell = tell;
    --qp->sq_next;
}

static pid_t stopped_child(void)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
    return child;
}

static void a_line_says_what_is_waited_for(void)
{
    pid_t stopped = stopped_child();
    const struct {
        enum vb_wait_reason reason;
        uint8_t rnr_retry, timeout;
        int pid;
        const char *words[2];
    } rows[] = {
        {VB_WAIT_RNR, 6, 0, 0, {"(rnr_retry 6); ", "posts receives before"}},
        {VB_WAIT_RNR, 7, 9, getpid(), {"(rnr_retry 7: for ever); ", "posts receives before"}},
        {VB_WAIT_RNR, 7, 9, stopped, {"for ever)", ", is stopped (SIGSTOP"}},
        {VB_WAIT_PEER, 7, 9, 0, {"(timeout 9); ", "ended or stopped, or do packets"}},
        {VB_WAIT_PEER, 6, 0, getpid(), {"(timeout 0: for ever); ", "ended or stopped, or do"}},
        {VB_WAIT_PEER, 6, 0, stopped, {"for ever)", ", is stopped (SIGSTOP"}},
        {VB_WAIT_PEER, 6, 0, 1 << 30, {"for ever)", "ended or stopped, or do"}},
    };
    struct vb_qp *qp = loop.qp[0];
    struct vb_terms terms = qp->terms;
    uint64_t at = now();
    char number[64];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        qp->wait = (struct vb_wait){0};
        qp->terms.rnr_retry = rows[i].rnr_retry;
        qp->terms.timeout = rows[i].timeout;
        told = 0;
        vb_overdue_note(qp, rows[i].reason, rows[i].pid, at, at + 1234 * 1000000ull);
        CHECK_EQ(told, 1);
        snprintf(number, sizeof(number), "QP 0x%x waits since 1234 ms", qp->number);
        CHECK(says(last, number));
        CHECK(says(last, rows[i].words[0]) && says(last, rows[i].words[1]));
    }
    qp->terms = terms;
    kill(stopped, SIGKILL);
    CHECK_EQ(waitpid(stopped, NULL, 0), stopped);
}

static const char *described(void)
{
    static char json[4096];
    struct vb_text text = {json, sizeof(json), 0};

    vb_overdue_describe(loop.direct->adapter, &text);
    return json;
}

/* Of the requests at the heads of their queues: those that wait for a second, and of the others
 * those that wait for a receive request. */
static void the_list_has_what_waits(void)
{
    const struct {
        uint64_t waited;
        enum vb_wait_reason noted;
        uint32_t posted, position;
        bool waiting, unready;
    } rows[] = {
        {VB_OVERDUE_NS, VB_WAIT_RNR, 1, 0, true, false},
        {VB_OVERDUE_NS, VB_WAIT_PEER, 1, 0, true, false},
        {VB_OVERDUE_NS / 2, VB_WAIT_RNR, 1, 0, false, true},
        {VB_OVERDUE_NS / 2, VB_WAIT_PEER, 1, 0, false, false},
        {VB_OVERDUE_NS, VB_WAIT_RNR, 0, 0, false, false}, /* nothing is posted */
        {VB_OVERDUE_NS, VB_WAIT_RNR, 1, 1, false, false}, /* that was another request */
        {VB_OVERDUE_NS, VB_WAIT_NONE, 1, 0, false, false},
    };
    char first[64], second[64];

    CHECK(strcmp(described(), "\"waiting\":[],\"unready\":[]") == 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
        for (int both = 0; both < 2; ++both) {
            const char *list, *unready;

            for (int j = 0; j <= both; ++j) {
                struct vb_qp *qp = loop.qp[j];

                snprintf(j ? second : first, sizeof(first), "{\"qp_num\":%u,", qp->number);
                qp->sq_posted = qp->sq_next + rows[i].posted;
                qp->wait.noted = (uint8_t)rows[i].noted;
                qp->wait.position = qp->sq_next + rows[i].position;
                qp->wait.since = now() - rows[i].waited;
                qp->terms.rnr_retry = j ? 7 : 6;
                qp->terms.timeout = j ? 0 : 8;
            }
            list = described();
            unready = strstr(list, "\"unready\":[");
            CHECK(unready != NULL);
            CHECK_EQ(strstr(list, first) != NULL, rows[i].waiting || rows[i].unready);
            CHECK_EQ(strstr(unready, first) != NULL, rows[i].unready);
            if (both && (rows[i].waiting || rows[i].unready)) {
                CHECK(says(list, second));
                CHECK(says(list, "\"endless\":false},{"));
                CHECK(says(list, "\"endless\":true}]"));
            }
            for (int j = 0; j < 2; ++j) {
                loop.qp[j]->sq_posted = loop.qp[j]->sq_next;
                loop.qp[j]->wait = (struct vb_wait){0};
            }
        }
}

static void the_first_lost_datagram_has_a_line(void)
{
    struct vb_adapter *adapter = loop.direct->adapter;

    told = 0;
    adapter->tell = NULL;
    vb_overdue_datagram(adapter, 0x11, 0x22); /* nobody listens */
    adapter->tell = tell;
    vb_overdue_datagram(adapter, 0x11, 0x22);
    CHECK_EQ(told, 1);
    CHECK(says(last, "QP 0x22 dropped a datagram of QP 0x11"));
    CHECK(says(last, "or more of them"));
    vb_overdue_datagram(adapter, 0x11, 0x23);
    CHECK_EQ(told, 1);
}

/* ---- channels -------------------------------------------------------------------------------- */

static void look_later(struct vb_adapter *adapter)
{
    (void)adapter; /* the test looks */
}

/* Each of several that wait has one line after a second, unless one of its channel's CQs is armed.
 * Those that have ended are not looked at. */
static void each_channel_has_one_line(void)
{
    struct vb_adapter *adapter = loop.direct->adapter;
    const struct vb_host_calls *real = adapter->calls;
    struct vb_host_calls calls = *real;
    struct vb_channel *channels[3];
    struct vb_vigil vigils[3];
    struct vb_cq *cqs[3];

    calls.look = look_later;
    adapter->calls = &calls;
    for (int i = 0; i < 3; ++i) {
        CHECK_EQ(vb_channel_create(loop.context, &channels[i]), 0);
        vb_vigil_begin(&vigils[i], channels[i]);
        vigils[i].since = 1000 + (uint64_t)i * SOON;
    }
    CHECK_EQ(vb_cq_create(loop.context, 8, NULL, channels[0], &cqs[0]), 0);
    CHECK_EQ(vb_cq_create(loop.context, 8, NULL, channels[1], &cqs[1]), 0);
    CHECK_EQ(vb_cq_create(loop.context, 8, NULL, channels[1], &cqs[2]), 0);
    vb_cq_arm(cqs[2], false);
    told = 0;
    CHECK(vb_vigils_look(adapter, vigils[0].since + VB_OVERDUE_NS - 1));
    CHECK_EQ(told, 0);
    CHECK(vb_vigils_look(adapter, vigils[0].since + VB_OVERDUE_NS));
    CHECK_EQ(told, 1);
    CHECK(says(last, "since 1000 ms") && says(last, "none of the channel's 1 CQs is armed"));
    CHECK(vb_vigils_look(adapter, vigils[1].since + VB_OVERDUE_NS));
    CHECK_EQ(told, 1); /* one of its CQs is armed: it may come yet */
    CHECK(!vb_vigils_look(adapter, vigils[2].since + 2ull * VB_OVERDUE_NS));
    CHECK_EQ(told, 2);
    CHECK(says(last, "since 2000 ms") && says(last, "none of the channel's 0 CQs is armed"));
    vb_vigil_end(&vigils[1]); /* from the middle, the end and the beginning of the list */
    CHECK(adapter->vigils == &vigils[2] && vigils[2].next == &vigils[0] && !vigils[0].next);
    vb_vigil_end(&vigils[0]);
    CHECK(adapter->vigils == &vigils[2] && !vigils[2].next);
    vb_vigil_end(&vigils[2]);
    CHECK(adapter->vigils == NULL);
    CHECK(!vb_vigils_look(adapter, UINT64_MAX / 2));
    CHECK_EQ(told, 2);
    adapter->tell = NULL; /* nobody listens */
    vb_vigil_begin(&vigils[0], channels[0]);
    CHECK(adapter->vigils == NULL);
    vb_vigil_end(&vigils[0]);
    adapter->tell = tell;
    for (int i = 0; i < 3; ++i)
        CHECK_EQ(vb_cq_destroy(cqs[i]), 0);
    for (int i = 0; i < 3; ++i)
        CHECK_EQ(vb_channel_destroy(channels[i]), 0);
    adapter->calls = real;
}

static void events_that_are_not_acknowledged_have_a_line(void)
{
    struct vb_adapter *adapter = loop.direct->adapter;

    told = 0;
    vb_overdue_acks(adapter, "CQ", 3, "ibv_ack_cq_events");
    CHECK_EQ(told, 1);
    CHECK(says(last, "a CQ waits since 1000 ms: 3 events"));
    CHECK(says(last, "call ibv_ack_cq_events for each, before or in another thread"));
    adapter->tell = NULL;
    vb_overdue_acks(adapter, "CQ", 3, "ibv_ack_cq_events");
    adapter->tell = tell;
    CHECK_EQ(told, 1);
}

int main(void)
{
    loopback_open(&loop, IBV_QPT_RC);
    loop.direct->adapter->tell = tell;
    RUN(a_request_that_waits_since_a_moment_to_come);
    RUN(a_channel_that_waits_since_a_moment_to_come);
    RUN(each_wait_has_one_line);
    RUN(a_line_says_what_is_waited_for);
    RUN(the_list_has_what_waits);
    RUN(the_first_lost_datagram_has_a_line);
    RUN(each_channel_has_one_line);
    RUN(events_that_are_not_acknowledged_have_a_line);
    loopback_close(&loop);
    return 0;
}
