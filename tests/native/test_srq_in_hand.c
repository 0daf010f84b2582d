// SPDX-License-Identifier: Apache-2.0
/*
 * A QP has taken a request of its SRQ and its message waits, or came to nothing; meanwhile other
 * QPs use as many requests as the SRQ holds, or it grows. The one in hand stays the same, directly
 * (taken by the requester's thread) and by packets.
 */
#include "check.h"
#include "direct/responder.h"
#include "end.h"
#include "fabric.h"
#include "transport/receive.h"
#include "transport/transport.h"

enum { IN_HAND = 1000, WR = 8 };

/* ---- directly ---- */

struct scene {
    struct end end;
    struct vb_qp *a[2], *b[2]; /* two connections; a[0] takes for a[1] and then waits */
    struct vb_taken taken;
};

static void connect_pair(struct end *end, struct vb_qp *qp[2])
{
    qp[0] = end_add_qp(end);
    qp[1] = end_add_qp(end);
    end_ready(qp[0], qp[1]);
    end_ready(qp[1], qp[0]);
}

/* A message over b, and what it was received into. */
static uint64_t message(struct scene *scene)
{
    uint64_t id = 0;

    CHECK_EQ(end_post(&scene->end, scene->b[0], IBV_WR_SEND, 64), 0);
    for (int i = 0; i < 2; ++i) {
        struct ibv_wc wc = end_wait(scene->end.cq, 2);

        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        if (wc.opcode == IBV_WC_RECV)
            id = wc.wr_id;
    }
    return id;
}

static void take_and_wait(struct scene *scene)
{
    end_open(&scene->end, (struct end_options){.srq_wr = WR});
    connect_pair(&scene->end, scene->a);
    connect_pair(&scene->end, scene->b);
    end_post_recv(&scene->end, NULL, 1);
    CHECK_EQ(end_post(&scene->end, scene->a[0], IBV_WR_SEND, 64), 0); /* it has its peer now */
    for (int i = 0; i < 2; ++i)
        CHECK_EQ(end_wait(scene->end.cq, 2).status, IBV_WC_SUCCESS);
    end_post_recv(&scene->end, NULL, IN_HAND);
    CHECK_EQ(vb_direct_take_recv(scene->a[0]->verbs->connection, &scene->taken), 0);
    CHECK_EQ(scene->taken.wqe->wr_id, IN_HAND);
    for (uint64_t i = 1; i <= 3 * WR; ++i) {
        end_post_recv(&scene->end, NULL, i);
        CHECK_EQ(message(scene), i);
    }
}

static void a_request_that_waits_keeps_what_it_took(void)
{
    struct scene scene;
    struct vb_taken again;

    take_and_wait(&scene);
    CHECK_EQ(vb_direct_take_recv(scene.a[0]->verbs->connection, &again), 0);
    CHECK(again.wqe == scene.taken.wqe);
    CHECK_EQ(again.position, scene.taken.position);
    CHECK_EQ(end_post(&scene.end, scene.a[0], IBV_WR_SEND, 64), 0);
    for (int i = 0; i < 2; ++i) {
        struct ibv_wc wc = end_wait(scene.end.cq, 2);

        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.wr_id, wc.opcode == IBV_WC_RECV ? IN_HAND : 7);
    }
    end_close(&scene.end);
}

static void grow(struct vb_srq *srq)
{
    struct ibv_srq_attr larger = {.max_wr = 4 * srq->max_wr};
    uint32_t max_wr = srq->max_wr;

    CHECK_EQ(vb_srq_modify(srq, &larger, IBV_SRQ_MAX_WR), 0);
    CHECK_EQ(srq->max_wr, 4 * max_wr);
}

/* What it holds in hand it reads in the old ring, or finds again in the new one. */
static void a_request_that_waits_outlives_a_resize(void)
{
    struct scene scene;
    struct vb_taken again;

    take_and_wait(&scene);
    for (int sizes = 0; sizes < 3; ++sizes) {
        grow(scene.end.srq);
        CHECK_EQ(scene.taken.wqe->wr_id, IN_HAND);
        for (uint64_t i = 1; i <= 3 * WR; ++i) {
            end_post_recv(&scene.end, NULL, i);
            CHECK_EQ(message(&scene), i);
        }
    }
    CHECK_EQ(vb_direct_take_recv(scene.a[0]->verbs->connection, &again), 0);
    CHECK_EQ(again.wqe->wr_id, IN_HAND);
    CHECK_EQ(end_post(&scene.end, scene.a[0], IBV_WR_SEND, 64), 0);
    for (int i = 0; i < 2; ++i) {
        struct ibv_wc wc = end_wait(scene.end.cq, 2);

        CHECK_EQ(wc.wr_id, wc.opcode == IBV_WC_RECV ? IN_HAND : 7);
    }
    end_close(&scene.end);
}

static void an_error_flushes_what_was_taken(void)
{
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    struct scene scene;
    struct ibv_wc wc;

    take_and_wait(&scene);
    CHECK_EQ(vb_qp_modify(scene.a[1], &error, IBV_QP_STATE), 0);
    wc = end_wait(scene.end.cq, 2);
    CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(wc.wr_id, IN_HAND);
    CHECK_EQ(wc.qp_num, scene.a[1]->number);
    CHECK_EQ(scene.end.srq->free_count, WR);
    end_close(&scene.end);
}

static void expect_event(struct end *end, enum ibv_event_type type, const struct vb_qp *qp)
{
    struct ibv_async_event event;

    CHECK_EQ(vb_event_get(end->context, &event), 0);
    CHECK_EQ(event.event_type, type);
    CHECK(event.element.qp == &qp->verbs->ibv);
    vb_event_ack(end->context, &event);
}

/* A peer has left its reason in the segment, and this side flushes before the peer's message. */
static void the_cause_is_told_before_the_last_request(void)
{
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    struct scene scene;

    take_and_wait(&scene);
    atomic_fetch_or(&scene.a[1]->shared->notices, 1u << IBV_EVENT_QP_REQ_ERR);
    CHECK_EQ(vb_qp_modify(scene.a[1], &error, IBV_QP_STATE), 0);
    expect_event(&scene.end, IBV_EVENT_QP_REQ_ERR, scene.a[1]);
    expect_event(&scene.end, IBV_EVENT_QP_LAST_WQE_REACHED, scene.a[1]);
    CHECK_EQ(end_wait(scene.end.cq, 2).status, IBV_WC_WR_FLUSH_ERR);
    end_close(&scene.end);
}

static void a_destroyed_qp_gives_it_back(void)
{
    struct scene scene;

    take_and_wait(&scene);
    CHECK_EQ(vb_qp_destroy(scene.a[1]), 0);
    CHECK_EQ(message(&scene), IN_HAND);
    end_close(&scene.end);
}

/* ---- by packets ---- */

static struct fabric fabric;
static struct vb_qp *broken[2], *other[2];

static enum verdict lose_the_end(struct fabric *f, struct flight *flight)
{
    (void)f;
    return (vb_wire_bth_read(flight->bytes).opcode & ~VB_TRANSPORT_MASK) == VB_OP_SEND_LAST ? LOSE
                                                                                            : PASS;
}

static void send_over(struct vb_qp *qp, uint32_t length)
{
    CHECK_EQ(fabric_post(&fabric, qp, fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, length), 0);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
}

static void received_is(uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc = fabric_wait(&fabric, fabric.side[1].recv_cq);

    CHECK_EQ(wc.status, status);
    CHECK_EQ(wc.wr_id, id);
}

static void break_a_message(void)
{
    struct qp_options options = fabric_defaults();

    options.type = IBV_QPT_UC;
    options.srq[1] = true;
    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    fabric_pair(&fabric, options, broken);
    fabric_pair(&fabric, options, other);
    memset(fabric.side[0].memory, 7, 5000);
    fabric_post_recv(&fabric, broken[1], IN_HAND, 0, 5000);
    fabric.rule = lose_the_end;
    send_over(broken[0], 5000);
    fabric_run(&fabric, 1000000);
    fabric.rule = NULL;
    for (uint64_t i = 1; i <= fabric.side[1].srq->max_wr + 8; ++i) {
        fabric_post_recv(&fabric, other[1], i, 8192, 64);
        send_over(other[0], 64);
        received_is(i, IBV_WC_SUCCESS);
    }
    memset(fabric.side[1].memory, 0, 5000);
}

static void the_next_message_has_what_a_broken_one_took(void)
{
    struct vb_receive again;

    break_a_message();
    CHECK(vb_engine_receive_take(broken[1], &again)); /* as one that comes directly would have it */
    CHECK_EQ(again.wqe->wr_id, IN_HAND);
    send_over(broken[0], 5000);
    received_is(IN_HAND, IBV_WC_SUCCESS);
    CHECK_EQ(memcmp(fabric.side[1].memory, fabric.side[0].memory, 5000), 0);
    fabric_close(&fabric);
}

static void a_resize_amid_a_message(void)
{
    struct qp_options options = fabric_defaults();

    options.srq[1] = true;
    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    fabric_pair(&fabric, options, broken);
    memset(fabric.side[0].memory, 7, 50000);
    fabric_post_recv(&fabric, broken[1], IN_HAND, 0, 50000);
    CHECK_EQ(fabric_post(&fabric, broken[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 50000),
             0);
    while (!broken[1]->endpoint->responder.has_taken)
        CHECK(fabric_step(&fabric));
    grow(fabric.side[1].srq);
    received_is(IN_HAND, IBV_WC_SUCCESS);
    CHECK_EQ(memcmp(fabric.side[1].memory, fabric.side[0].memory, 50000), 0);
    fabric_close(&fabric);
}

static void an_error_flushes_what_a_broken_one_took(void)
{
    break_a_message();
    fabric_set_state(broken[1], IBV_QPS_ERR);
    received_is(IN_HAND, IBV_WC_WR_FLUSH_ERR);
    fabric_close(&fabric);
}

static void a_reset_gives_it_back(void)
{
    break_a_message();
    fabric_set_state(broken[1], IBV_QPS_RESET);
    send_over(other[0], 5000);
    received_is(IN_HAND, IBV_WC_SUCCESS);
    fabric_close(&fabric);
}

int main(void)
{
    RUN(a_request_that_waits_keeps_what_it_took);
    RUN(a_request_that_waits_outlives_a_resize);
    RUN(an_error_flushes_what_was_taken);
    RUN(the_cause_is_told_before_the_last_request);
    RUN(a_destroyed_qp_gives_it_back);
    RUN(the_next_message_has_what_a_broken_one_took);
    RUN(a_resize_amid_a_message);
    RUN(an_error_flushes_what_a_broken_one_took);
    RUN(a_reset_gives_it_back);
    return 0;
}
