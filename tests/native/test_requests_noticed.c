// SPDX-License-Identifier: Apache-2.0
/*
 * Notices to the owner of an object (direct/notice.h): which events follow from what a peer left at
 * an object, whose object that is, and what becomes of a notice that the owner's socket has no room
 * for.
 */
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "direct/message.h"
#include "direct/notice.h"
#include "direct/peer.h"
#include "end.h"
#include "hca/srq.h"

enum { OBJECTS = 2, NO_EVENT = -1 };

static struct end end;
static struct vb_qp *qps[OBJECTS];
static struct vb_cq *cqs[OBJECTS];
static struct vb_srq *srqs[OBJECTS];

/* Two of each kind, so that one is not the first. */
static void begin(void)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4, .max_sge = 1}};

    end_open(&end, (struct end_options){.channel = true, .srq_wr = 4});
    for (int i = 0; i < OBJECTS; ++i)
        qps[i] = end_add_qp(&end);
    cqs[0] = end.cq;
    CHECK_EQ(vb_cq_create(end.context, 8, NULL, NULL, &cqs[1]), 0);
    srqs[0] = end.srq;
    CHECK_EQ(vb_srq_create(end.context, end.pd, &attr, &srqs[1]), 0);
}

static bool is_readable(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};

    return poll(&entry, 1, 0) == 1;
}

/* The next event and whose it is. */
static int next_event(const void **element)
{
    struct ibv_async_event event;

    *element = NULL;
    if (!is_readable(end.context->async_fd))
        return NO_EVENT;
    CHECK_EQ(vb_event_get(end.context, &event), 0);
    vb_event_ack(end.context, &event);
    *element = event.element.qp;
    return (int)event.event_type;
}

static void expect_event(int type, const void *of)
{
    const void *element;

    CHECK_EQ(next_event(&element), type);
    CHECK(type == NO_EVENT || element == of);
}

static void expect_no_event(void)
{
    expect_event(NO_EVENT, NULL);
}

/* ---- the owner's half ---- */

/* Events that a peer may cause, each of them once; others are nonsense. The retry thread looks at a
 * QP that a request has failed. */
static void each_event_of_a_qp_is_raised(void)
{
    for (int i = 0; i < OBJECTS; ++i)
        for (int type = 0; type < 32; ++type) {
            bool is_failure = type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
                              type == IBV_EVENT_QP_ACCESS_ERR;
            bool is_known = is_failure || type == IBV_EVENT_COMM_EST;

            begin();
            atomic_store(&qps[i]->shared->notices, 1u << type);
            vb_direct_notice_qp(end.direct, qps[1 - i]->index);
            vb_direct_notice_qp(end.direct, VB_MAX_QP);
            vb_direct_notice_qp(end.direct, VB_MAX_QP - 1);
            vb_direct_notice_qp(end.direct, UINT32_MAX);
            expect_no_event();
            vb_direct_notice_qp(end.direct, qps[i]->index);
            CHECK_EQ(atomic_load(&qps[i]->shared->notices), 0);
            if (is_known)
                expect_event(type, &qps[i]->verbs->ibv);
            expect_no_event();
            vb_direct_notice_qp(end.direct, qps[i]->index);
            expect_no_event();
            end_close(&end);
        }
}

static void each_notice_of_a_cq_is_heeded(void)
{
    for (unsigned notices = 0; notices < 4; ++notices)
        for (int i = 0; i < OBJECTS; ++i) {
            bool wakes = notices & VB_PUSH_EVENT, overran = notices & VB_PUSH_OVERRUN;

            begin();
            atomic_store(&cqs[i]->shared->notices, notices);
            vb_direct_notice_cq(end.direct, cqs[1 - i]->index);
            vb_direct_notice_cq(end.direct, VB_MAX_CQ);
            vb_direct_notice_cq(end.direct, VB_MAX_CQ - 1);
            vb_direct_notice_cq(end.direct, UINT32_MAX);
            expect_no_event();
            CHECK(!is_readable(end.channel->ibv.fd));
            vb_direct_notice_cq(end.direct, cqs[i]->index);
            CHECK_EQ(is_readable(end.channel->ibv.fd),
                     wakes && i == 0); /* the one with a channel */
            if (overran)
                expect_event(IBV_EVENT_CQ_ERR, &cqs[i]->ibv);
            expect_no_event();
            CHECK_EQ(atomic_load(&cqs[i]->shared->notices), 0);
            end_close(&end);
        }
}

static void each_notice_of_an_srq_is_heeded(void)
{
    for (int i = 0; i < OBJECTS; ++i) {
        begin();
        atomic_store(&srqs[i]->shared->notices, 1);
        vb_direct_notice_srq(end.direct, srqs[1 - i]->index);
        vb_direct_notice_srq(end.direct, VB_MAX_SRQ);
        vb_direct_notice_srq(end.direct, VB_MAX_SRQ - 1);
        vb_direct_notice_srq(end.direct, UINT32_MAX);
        expect_no_event();
        vb_direct_notice_srq(end.direct, srqs[i]->index);
        expect_event(IBV_EVENT_SRQ_LIMIT_REACHED, &srqs[i]->ibv);
        vb_direct_notice_srq(end.direct, srqs[i]->index);
        expect_no_event();
        end_close(&end);
    }
}

/* After a notice that could not be sent, all objects are looked at. */
static void missed_notices_are_looked_for(void)
{
    _Atomic uint32_t *missed;

    begin();
    missed = &end.direct->adapter->self.header->notices_missed;
    for (int is_missed = 0; is_missed < 2; ++is_missed) {
        for (int i = 0; i < OBJECTS; ++i) {
            atomic_store(&qps[i]->shared->notices, 1u << IBV_EVENT_COMM_EST);
            atomic_store(&cqs[i]->shared->notices, VB_PUSH_OVERRUN);
            atomic_store(&srqs[i]->shared->notices, 1);
        }
        atomic_store(missed, (uint32_t)is_missed);
        vb_direct_notice_missed(end.direct);
        CHECK_EQ(atomic_load(missed), 0);
        for (int i = 0; i < OBJECTS && is_missed; ++i)
            expect_event(IBV_EVENT_SRQ_LIMIT_REACHED, &srqs[i]->ibv);
        for (int i = 0; i < OBJECTS && is_missed; ++i)
            expect_event(IBV_EVENT_CQ_ERR, &cqs[i]->ibv);
        for (int i = 0; i < OBJECTS && is_missed; ++i)
            expect_event(IBV_EVENT_COMM_EST, &qps[i]->verbs->ibv);
        expect_no_event();
    }
    end_close(&end);
}

/* ---- the sender's half ---- */

static const enum vb_message_type types[] = {VB_MSG_QP_NOTICE, VB_MSG_CQ_NOTICE, VB_MSG_SRQ_NOTICE};

/* An object of the same process is looked at without a message. */
static void a_notice_to_itself_is_no_message(void)
{
    struct vb_peer self = {.self = true, .socket = -1};

    begin();
    for (int i = 0; i < OBJECTS; ++i) {
        atomic_store(&qps[i]->shared->notices, 1u << IBV_EVENT_COMM_EST);
        atomic_store(&cqs[i]->shared->notices, VB_PUSH_OVERRUN);
        atomic_store(&srqs[i]->shared->notices, 1);
    }
    for (int i = OBJECTS - 1; i >= 0; --i) {
        vb_direct_notice_send(end.direct, &self, VB_MSG_QP_NOTICE, qps[i]->index);
        expect_event(IBV_EVENT_COMM_EST, &qps[i]->verbs->ibv);
        vb_direct_notice_send(end.direct, &self, VB_MSG_CQ_NOTICE, cqs[i]->index);
        expect_event(IBV_EVENT_CQ_ERR, &cqs[i]->ibv);
        vb_direct_notice_send(end.direct, &self, VB_MSG_SRQ_NOTICE, srqs[i]->index);
        expect_event(IBV_EVENT_SRQ_LIMIT_REACHED, &srqs[i]->ibv);
        expect_no_event();
    }
    end_close(&end);
}

static void a_notice_to_another_is_a_message(void)
{
    struct vb_peer peer = {.view = {0}};
    struct vb_segment_header header = {0};
    struct vb_message message;
    int ends[2], fds[VB_MESSAGE_FDS], sent;

    begin();
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    peer.socket = ends[0];
    peer.view.header = &header;
    for (uint32_t i = 0; i < 3; ++i) {
        vb_direct_notice_send(end.direct, &peer, types[i], 70 + i);
        CHECK_EQ(vb_direct_message_receive(ends[1], &message, fds), 0);
        CHECK_EQ(message.type, types[i]);
        CHECK_EQ(message.object, 70 + i);
    }
    CHECK_EQ(atomic_load(&header.notices_missed), 0);
    for (sent = 0; !atomic_load(&header.notices_missed); ++sent) {
        CHECK(sent < 1 << 20);
        vb_direct_notice_send(end.direct, &peer, types[0], 5);
    }
    CHECK(sent > 1);
    while (is_readable(ends[1])) {
        CHECK_EQ(vb_direct_message_receive(ends[1], &message, fds), 0);
        --sent;
    }
    CHECK_EQ(sent, 1); /* the one without room was tried twice */
    close(ends[1]);
    atomic_store(&header.notices_missed, 0);
    vb_direct_notice_send(end.direct, &peer, types[0], 5); /* nobody is there to miss it */
    CHECK_EQ(atomic_load(&header.notices_missed), 0);
    close(ends[0]);
    end_close(&end);
}

int main(void)
{
    alarm(100);
    RUN(each_event_of_a_qp_is_raised);
    RUN(each_notice_of_a_cq_is_heeded);
    RUN(each_notice_of_an_srq_is_heeded);
    RUN(missed_notices_are_looked_for);
    RUN(a_notice_to_itself_is_no_message);
    RUN(a_notice_to_another_is_a_message);
    return 0;
}
