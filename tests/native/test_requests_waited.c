// SPDX-License-Identifier: Apache-2.0
/*
 * How long a direct request waits: for a receive request and for its peer, in turns that the test
 * lets pass by setting a turn's start back; and for payloads of earlier SENDs that are not in their
 * buffers yet.
 */
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "direct/connection.h"
#include "direct/requester.h"
#include "direct/unplaced.h"
#include "hca/sentences.h"
#include "loopback.h"
#include "memory/watch.h"

enum {
    RNR_CODE = 31,
    RNR_UNITS = 491520 * 1000 / 4096,
    TIMEOUT = 18,
    TIMEOUT_UNITS = 1 << TIMEOUT
};

static struct loopback loop;
static struct vb_connection *to;
static const struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
static struct vb_outcome outcome;

static void begin(void)
{
    loopback_open(&loop, IBV_QPT_RC);
    loopback_connect(loop.qp[0], loop.qp[1], 0);
    loopback_connect(loop.qp[1], loop.qp[0], 0);
    to = loop.qp[0]->verbs->connection;
    CHECK(vb_direct_connection_attach_peer(loop.qp[0]));
    to->remote->min_rnr_timer = RNR_CODE;
    loop.qp[0]->terms.timeout = TIMEOUT;
    memset(&outcome, 0, sizeof(outcome));
    vb_sq_lock(loop.qp[0]);
}

static void finish(void)
{
    loop.qp[0]->wait.reason = VB_WAIT_NONE;
    vb_sq_unlock(loop.qp[0]);
    loopback_close(&loop);
}

static void expect_end(enum ibv_wc_status status, const char *words)
{
    char text[400] = "";

    CHECK_EQ(outcome.status, status);
    CHECK(vb_evidence_text(&loop.direct->adapter->self, outcome.evidence, text, sizeof(text)) > 0);
    if (!strstr(text, words))
        fprintf(stderr, "%s is not in: %s\n", words, text);
    CHECK(strstr(text, words) != NULL);
}

/* Part of a turn, or a whole one, passes. */
static void pass(uint32_t units)
{
    loop.qp[0]->wait.begun -= units;
}

/* ---- turns ---- */

static void a_receive_request_is_waited_for_in_turns(void)
{
    for (uint32_t retries = 0; retries < 7; ++retries) {
        struct vb_wait *wait;

        begin();
        wait = &loop.qp[0]->wait;
        loop.qp[0]->terms.rnr_retry = retries & 7;
        for (uint32_t turn = 0; turn < retries; ++turn) {
            CHECK_EQ(vb_direct_wait_for_receive(to, &wr, &outcome), -EAGAIN);
            pass(RNR_UNITS / 4);
            CHECK_EQ(vb_direct_wait_for_receive(to, &wr, &outcome), -EAGAIN);
            CHECK_EQ(wait->reason, VB_WAIT_RNR);
            CHECK_EQ(wait->turns, turn);
            CHECK_EQ(outcome.evidence, 0);
            pass(turn % 2 ? RNR_UNITS : 5 * RNR_UNITS); /* however long, it is one */
        }
        CHECK_EQ(vb_direct_wait_for_receive(to, &wr, &outcome), 0);
        CHECK_EQ(wait->turns, retries);
        expect_end(IBV_WC_RNR_RETRY_EXC_ERR, "no receive request");
        CHECK(!to->failed_by_death);
        CHECK_EQ(to->counts.waits_for_receive, 1);
        CHECK_EQ(to->counts.waits_for_peer, 0);
        finish();
    }
}

static void seven_retries_are_for_ever(void)
{
    begin();
    loop.qp[0]->terms.rnr_retry = 7;
    for (int i = 0; i < 20; ++i) {
        CHECK_EQ(vb_direct_wait_for_receive(to, &wr, &outcome), -EAGAIN);
        pass(RNR_UNITS);
    }
    finish();
}

/* One turn more than there are retries, since the first attempt is none. */
static void a_peer_is_waited_for_in_turns(void)
{
    for (uint32_t retries = 0; retries < 8; ++retries) {
        struct vb_wait *wait;

        begin();
        wait = &loop.qp[0]->wait;
        loop.qp[0]->terms.retry_cnt = retries & 7;
        for (uint32_t turn = 0; turn <= retries; ++turn) {
            CHECK_EQ(vb_direct_wait_for_peer(to, &wr, &outcome), -EAGAIN);
            pass(TIMEOUT_UNITS / 4);
            CHECK_EQ(vb_direct_wait_for_peer(to, &wr, &outcome), -EAGAIN);
            CHECK_EQ(wait->reason, VB_WAIT_PEER);
            CHECK_EQ(wait->turns, turn);
            pass(TIMEOUT_UNITS);
        }
        CHECK_EQ(vb_direct_wait_for_peer(to, &wr, &outcome), 0);
        expect_end(IBV_WC_RETRY_EXC_ERR, "did not answer");
        CHECK(!to->failed_by_death);
        CHECK_EQ(to->counts.waits_for_peer, 1);
        CHECK_EQ(to->counts.waits_for_receive, 0);
        finish();
    }
}

static void timeout_0_is_for_ever(void)
{
    begin();
    loop.qp[0]->terms.timeout = 0;
    for (int i = 0; i < 20; ++i) {
        CHECK_EQ(vb_direct_wait_for_peer(to, &wr, &outcome), -EAGAIN);
        pass(TIMEOUT_UNITS);
    }
    finish();
}

/* What waits for another reason begins anew, and is counted. */
static void another_reason_is_another_wait(void)
{
    struct vb_wait *wait;
    uint64_t before;

    begin();
    wait = &loop.qp[0]->wait;
    loop.qp[0]->terms.rnr_retry = loop.qp[0]->terms.retry_cnt = 5;
    CHECK_EQ(vb_direct_wait_for_receive(to, &wr, &outcome), -EAGAIN);
    CHECK_EQ(wait->noted, VB_WAIT_RNR);
    wait->turns = 3;
    wait->since = 1;
    before = vb_direct_now();
    CHECK_EQ(vb_direct_wait_for_peer(to, &wr, &outcome), -EAGAIN);
    CHECK_EQ(wait->noted, VB_WAIT_PEER);
    CHECK_EQ(wait->turns, 0);
    CHECK(wait->since >= before && wait->since <= vb_direct_now());
    CHECK(wait->begun >= (uint32_t)(before >> 12));
    CHECK_EQ(vb_direct_wait_for_receive(to, &wr, &outcome), -EAGAIN);
    CHECK_EQ(vb_direct_wait_for_receive(to, &wr, &outcome), -EAGAIN);
    CHECK_EQ(to->counts.waits_for_receive, 2);
    CHECK_EQ(to->counts.waits_for_peer, 1);
    finish();
}

/* Each attempt of a request with another P_Key is a packet that the peer's port would drop. */
static void each_attempt_with_another_partition_is_counted(void)
{
    struct vb_port_shared *port;
    uint32_t before;

    begin();
    port = vb_shared_port(&to->peer->view, to->remote);
    before = atomic_load(&port->pkey_violations);
    to->epoch = to->remote->epoch; /* it has sent to this queue before */
    to->remote->pkey = 0x8123;
    loop.qp[0]->terms.retry_cnt = 2;
    for (uint32_t turn = 0; turn < 3; ++turn) {
        for (int i = 0; i < 3; ++i)
            CHECK_EQ(vb_direct_wait_for_peer(to, &wr, &outcome), -EAGAIN);
        CHECK_EQ(atomic_load(&port->pkey_violations), before + turn + 1);
        pass(TIMEOUT_UNITS);
    }
    CHECK_EQ(vb_direct_wait_for_peer(to, &wr, &outcome), 0);
    CHECK_EQ(atomic_load(&port->pkey_violations), before + 3); /* that is no attempt */
    expect_end(IBV_WC_RETRY_EXC_ERR, "8123");
    finish();
}

/* ---- a peer that is gone ---- */

static void a_peer_that_ended_is_named(void)
{
    for (int way = 0; way < 3; ++way) {
        int ends[2], real;

        begin();
        CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        close(ends[1]);
        real = atomic_exchange(&to->peer->socket, ends[0]);
        loop.qp[0]->terms.rnr_retry = loop.qp[0]->terms.retry_cnt = 0;
        if (way == 0) {
            CHECK_EQ(vb_direct_wait_for_receive(to, &wr, &outcome), 0);
        } else if (way == 1) {
            CHECK_EQ(vb_direct_wait_for_peer(to, &wr, &outcome), -EAGAIN);
            pass(TIMEOUT_UNITS);
            CHECK_EQ(vb_direct_wait_for_peer(to, &wr, &outcome), 0);
        } else {
            atomic_store(&to->peer->gone, true);
            CHECK_EQ(vb_direct_wait_for_peer(to, &wr, &outcome), 0);
            atomic_store(&to->peer->gone, false);
        }
        expect_end(IBV_WC_RETRY_EXC_ERR, "ended, or closed its device");
        CHECK(to->failed_by_death);
        atomic_store(&to->peer->socket, real);
        close(ends[0]);
        finish();
    }
}

/* ---- payloads that are not in their buffers ---- */

static struct vb_cq_shared *far_cq(void)
{
    return vb_view_cq(&to->peer->view, to->remote->recv_cq);
}

/* The far CQ has so many entries, of which so many were polled, and placed. */
static void set_cq(uint32_t tail, uint32_t head, uint32_t placed)
{
    far_cq()->tail = tail;
    atomic_store(&far_cq()->head, head);
    atomic_store(&far_cq()->placed, placed);
}

static void the_hull_of_what_is_under_way_grows(void)
{
    struct vb_spans buffers = {0};

    begin();
    set_cq(9, 0, 0);
    vb_direct_unplaced_add(to, 1000, 50);
    CHECK_EQ(to->unplaced_low, 1000);
    CHECK_EQ(to->unplaced_high, 1050);
    CHECK_EQ(to->unplaced_cq_position, 8);
    vb_direct_unplaced_add(to, 1010, 20);
    CHECK_EQ(to->unplaced_low, 1000);
    CHECK_EQ(to->unplaced_high, 1050);
    set_cq(11, 0, 0);
    vb_direct_spans_add(&buffers, NULL, 900, 10);
    vb_direct_spans_add(&buffers, NULL, 1040, 30);
    vb_direct_unplaced_note(to, &buffers);
    CHECK_EQ(to->unplaced_low, 900);
    CHECK_EQ(to->unplaced_high, 1070);
    CHECK_EQ(to->unplaced_cq_position, 10);
    to->unplaced_high = 0;
    vb_direct_unplaced_add(to, 5000, 1);
    CHECK_EQ(to->unplaced_low, 5000);
    CHECK_EQ(to->unplaced_high, 5001);
    to->unplaced_high = 0;
    set_cq(0, 0, 0);
    finish();
}

/*
 * A request waits for what is under way to its own target alone. [1000, 1050) is under way in the
 * entry 8; the test stands for another process, which places nothing.
 */
static void a_request_waits_for_its_own_target(void)
{
    static const struct {
        uint64_t low[2], length;
        uint32_t head, placed;
        int error;
        bool settled;
    } cases[] = {
        {{1000, 0}, 1, 0, 0, -EAGAIN, false}, {{1049, 0}, 1, 0, 0, -EAGAIN, false},
        {{1050, 0}, 1, 0, 0, 0, false},       {{999, 0}, 1, 0, 0, 0, false},
        {{999, 0}, 2, 0, 0, -EAGAIN, false},  {{2000, 1020}, 5, 0, 0, -EAGAIN, false},
        {{2000, 3000}, 5, 0, 0, 0, false},    {{1000, 0}, 1, 8, 8, -EAGAIN, false},
        {{1000, 0}, 1, 9, 0, 0, true},        {{1000, 0}, 1, 0, 9, 0, true},
        {{3000, 0}, 1, 9, 0, 0, true},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct vb_spans target = {0};

        begin();
        set_cq(9, 0, 0);
        vb_direct_unplaced_add(to, 1000, 50);
        set_cq(9, cases[i].head, cases[i].placed);
        for (int j = 0; j < 2 && (j == 0 || cases[i].low[1]); ++j)
            vb_direct_spans_add(&target, NULL, cases[i].low[j], cases[i].length);
        to->peer->self = false;
        CHECK_EQ(vb_direct_unplaced_settle(to, &target), cases[i].error);
        CHECK_EQ(to->unplaced_high, cases[i].settled ? 0 : 1050);
        atomic_store(&to->peer->gone, true);
        CHECK_EQ(vb_direct_unplaced_settle(to, &target), cases[i].error ? -EPIPE : 0);
        atomic_store(&to->peer->gone, false);
        to->peer->self = true;
        to->unplaced_high = 0;
        set_cq(0, 0, 0);
        finish();
    }
}

/* A payload of 28 bytes is within its completion, and waits for a poll there; a longer one is put
 * into its buffer at once, which this process reaches. */
static void a_short_payload_is_within_its_completion(void)
{
    static const uint32_t lengths[] = {0, 1, VB_CQE_INLINE - 1, VB_CQE_INLINE, VB_CQE_INLINE + 1,
                                       99};

    begin();
    vb_sq_unlock(loop.qp[0]);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        struct ibv_sge from = {(uintptr_t)loop.memory[0], lengths[i], loop.mr[0]->ibv.lkey};
        struct ibv_sge into = {(uintptr_t)loop.memory[1], 100, loop.mr[1]->ibv.lkey};
        struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .sg_list = &from, .num_sge = 1};
        struct ibv_recv_wr recv = {.sg_list = &into, .num_sge = 1}, *bad_recv;
        bool is_short = lengths[i] <= VB_CQE_INLINE;
        struct ibv_send_wr *bad_send;
        struct ibv_wc wc;

        memset(loop.memory[0], 0x77, 100);
        memset(loop.memory[1], 0, 100);
        CHECK_EQ(vb_post_recv(loop.qp[1], &recv, &bad_recv), 0);
        CHECK_EQ(vb_post_send(loop.qp[0], &send, &bad_send), 0);
        CHECK_EQ(vb_cqe_at(&to->peer->view, far_cq(), far_cq()->tail - 1)->kind,
                 is_short ? VB_CQE_RECV_INLINE : VB_CQE_RECV);
        CHECK_EQ(loop.memory[1][0], is_short ? 0 : 0x77);
        CHECK_EQ(to->unplaced_high, is_short && lengths[i] ? into.addr + lengths[i] : 0);
        CHECK_EQ(loopback_poll(loop.cq[1], &wc), 0);
        CHECK_EQ(wc.byte_len, lengths[i]);
        for (uint32_t j = 0; j < 100; ++j)
            CHECK_EQ(loop.memory[1][j], j < lengths[i] ? 0x77 : 0);
        to->unplaced_high = 0;
    }
    vb_sq_lock(loop.qp[0]);
    finish();
}

int main(void)
{
    alarm(100);
    RUN(a_receive_request_is_waited_for_in_turns);
    RUN(seven_retries_are_for_ever);
    RUN(a_peer_is_waited_for_in_turns);
    RUN(timeout_0_is_for_ever);
    RUN(another_reason_is_another_wait);
    RUN(each_attempt_with_another_partition_is_counted);
    RUN(a_peer_that_ended_is_named);
    RUN(the_hull_of_what_is_under_way_grows);
    RUN(a_request_waits_for_its_own_target);
    vb_memory_watch_begin(); /* so that payloads may wait */
    RUN(a_short_payload_is_within_its_completion);
    return 0;
}
