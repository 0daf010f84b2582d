// SPDX-License-Identifier: Apache-2.0
/*
 * What a process mends after a peer has died (direct/recover.h): the locks that the peer held, the
 * completions and events that it owed, and the QPs that were connected to it. The test writes what
 * the dead peer left.
 */
#include <poll.h>
#include <unistd.h>

#include "check.h"
#include "direct/connection.h"
#include "direct/peer.h"
#include "direct/recover.h"
#include "end.h"
#include "hca/sentences.h"
#include "loopback.h"

enum { DEAD = 0x44440000, OTHER = 0x55550000 };

static struct loopback loop;
static struct vb_peer dead = {.instance = DEAD};

static void recover(struct vb_direct *direct)
{
    vb_direct_recover_from(direct, &dead);
}

/* ---- locks ---- */

static void open_loop(enum ibv_qp_type type)
{
    loopback_open(&loop, type);
    loopback_connect(loop.qp[0], loop.qp[1], 0);
    loopback_connect(loop.qp[1], loop.qp[0], 0);
}

static const uint32_t holders[] = {0, DEAD, OTHER};

/* Only those that it held, of each object. */
static void its_locks_are_free(void)
{
    for (int i = 0; i < 3; ++i) {
        uint32_t left = holders[i] == DEAD ? 0 : holders[i];
        _Atomic uint32_t *locks[4];
        struct end end;

        end_open(&end, (struct end_options){.srq_wr = 8});
        end_add_qp(&end);
        locks[0] = &end.direct->adapter->self.header->atomic_lock;
        locks[1] = &end.srq->shared->lock;
        locks[2] = &end.qp->shared->rq_lock;
        locks[3] = &end_add_qp(&end)->shared->rq_lock;
        for (int j = 0; j < 4; ++j)
            atomic_store(locks[j], holders[i]);
        recover(end.direct);
        for (int j = 0; j < 4; ++j) {
            CHECK_EQ(atomic_load(locks[j]), left);
            atomic_store(locks[j], 0);
        }
        end_close(&end);
    }
}

static void post_recvs(struct vb_qp *qp, int count)
{
    struct ibv_recv_wr wr = {.num_sge = 0}, *bad;

    while (count--)
        CHECK_EQ(vb_post_recv(qp, &wr, &bad), 0);
}

/* It may have completed a receive request without counting it as taken. */
static void a_completed_request_counts_as_taken(void)
{
    for (int i = 0; i < 3; ++i)
        for (int completed = 0; completed < 2; ++completed)
            for (int j = 0; j < 2; ++j) {
                struct vb_qp_shared *shared;

                open_loop(IBV_QPT_RC);
                shared = loop.qp[j]->shared;
                post_recvs(loop.qp[j], 4);
                atomic_store(&shared->rq_taken, 2);
                atomic_store(&shared->rq_polled, 2 + (uint32_t)completed);
                atomic_store(&shared->rq_lock, holders[i]);
                recover(loop.direct);
                CHECK_EQ(atomic_load(&shared->rq_taken), 2 + (holders[i] == DEAD && completed));
                atomic_store(&shared->rq_lock, 0);
                loopback_close(&loop);
            }
}

/* An entry that it published and did not count is counted, if it held the CQ's lock. */
static void a_published_entry_counts(void)
{
    for (int published = 0; published < 2; ++published)
        for (int held = 0; held < 2; ++held) {
            struct vb_adapter *adapter;
            struct vb_cq_shared *shared;
            struct vb_cqe *entry;

            open_loop(IBV_QPT_RC);
            adapter = loop.direct->adapter;
            shared = loop.cq[1]->shared;
            entry = vb_cqe_at(&adapter->self, shared, shared->tail);
            if (held)
                vb_biased_acquire(&shared->lock, VB_RANK_CQ, DEAD, false);
            atomic_store(&entry->seq, shared->tail + (uint32_t)published);
            entry->kind = VB_CQE_VOID;
            if (held) /* the thread stands for the peer's, whose locks are not its own */
                vb_lock_order_forget(&shared->lock);
            recover(loop.direct);
            CHECK_EQ(shared->tail, published && held);
            CHECK(!vb_biased_is_held_by(&shared->lock, DEAD));
            loopback_close(&loop);
        }
}

/* ---- events ---- */

static bool is_readable(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};

    return poll(&entry, 1, 0) == 1;
}

/* An arming that it may have used up without a wake is answered; another producer's is not. */
static void an_armed_channel_is_woken(void)
{
    static const struct {
        uint32_t armed;
        bool wakes;
    } rows[] = {
        {VB_ARM_NONE, false}, {VB_ARM_SOLICITED, true}, {VB_ARM_ANY, true},
        {DEAD, true},         {OTHER, false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        struct end end;

        end_open(&end, (struct end_options){.channel = true});
        end_add_qp(&end);
        atomic_store(&end.cq->shared->armed, rows[i].armed);
        recover(end.direct);
        CHECK_EQ(is_readable(end.channel->ibv.fd), rows[i].wakes);
        CHECK_EQ(atomic_load(&end.cq->shared->armed), rows[i].wakes ? VB_ARM_NONE : rows[i].armed);
        end_close(&end);
    }
}

/* ---- queue pairs ---- */

static int events_of(struct vb_context *context, enum ibv_event_type type)
{
    struct ibv_async_event event;
    int count = 0;

    while (is_readable(context->async_fd)) {
        CHECK_EQ(vb_event_get(context, &event), 0);
        vb_event_ack(context, &event);
        count += event.event_type == type;
    }
    return count;
}

struct scene {
    enum ibv_qp_type type;
    uint32_t state, remote_state;
    bool is_gone, told_by_request, is_other;
    bool ends;  /* the QP is in ERR with the peer's death as the cause, and there is the event */
    bool waits; /* it cannot be looked at yet */
};

static void try_scene(const struct scene *scene)
{
    struct vb_connection *to;
    struct vb_qp *qp;
    char text[400] = "";
    uint32_t failed;

    open_loop(scene->type);
    qp = loop.qp[0];
    to = qp->verbs->connection;
    CHECK(vb_direct_connection_attach_peer(qp));
    atomic_store(&to->remote->state, scene->remote_state);
    to->remote->qp_num += scene->is_other;
    to->failed_by_death = scene->told_by_request;
    atomic_store(&qp->shared->state, scene->state);
    atomic_store(&to->peer->gone, scene->is_gone);
    CHECK_EQ(vb_direct_recover_qp(loop.direct, qp), !scene->waits);
    atomic_store(&to->peer->gone, false);
    to->remote->qp_num -= scene->is_other;
    failed = atomic_load(&qp->shared->failed);
    CHECK_EQ(vb_qp_state(qp), scene->ends ? IBV_QPS_ERR : scene->state);
    CHECK_EQ(events_of(loop.context, IBV_EVENT_QP_FATAL), scene->ends);
    CHECK_EQ(failed != 0, scene->ends && !scene->told_by_request);
    if (failed) {
        CHECK(vb_evidence_text(&loop.direct->adapter->self, failed, text, sizeof(text)) > 0);
        CHECK(strstr(text, "ended, or closed its device") != NULL);
    }
    CHECK_EQ(to->failed_by_death, scene->told_by_request && !scene->ends);
    loopback_close(&loop);
}

static void a_connection_ends_with_its_peer(void)
{
    static const struct scene scenes[] = {
        {IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, true, false, false, true, false},
        {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, true, false, false, true, false},
        {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_INIT, true, false, false, true, false},
        {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_ERR, true, false, false, true, false},
        {IBV_QPT_RC, IBV_QPS_ERR, IBV_QPS_RTS, true, false, false, false, false},
        {IBV_QPT_RC, IBV_QPS_ERR, IBV_QPS_RTS, true, true, false, true, false},
        {IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_RTS, true, false, false, false, false},
        {IBV_QPT_RC, IBV_QPS_SQE, IBV_QPS_RTS, true, false, false, false, false},
        {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTS, true, false, false, false, true},
        {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTS, false, false, false, false, false},
        {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, false, false, false, false, false},
        {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RESET, true, false, false, false, false},
        {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, true, false, true, false, false},
        {IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_RTS, true, false, false, false, false},
    };

    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); ++i)
        try_scene(&scenes[i]);
}

/* A QP whose queue another thread has is looked at again later. */
static void a_queue_in_use_is_left_alone(void)
{
    open_loop(IBV_QPT_RC);
    vb_sq_lock(loop.qp[0]);
    CHECK(!vb_direct_recover_qp(loop.direct, loop.qp[0]));
    vb_sq_unlock(loop.qp[0]);
    CHECK(vb_direct_recover_qp(loop.direct, loop.qp[0]));
    loopback_close(&loop);
}

int main(void)
{
    alarm(100);
    RUN(its_locks_are_free);
    RUN(a_completed_request_counts_as_taken);
    RUN(a_published_entry_counts);
    RUN(an_armed_channel_is_woken);
    RUN(a_connection_ends_with_its_peer);
    RUN(a_queue_in_use_is_left_alone);
    return 0;
}
