// SPDX-License-Identifier: Apache-2.0
/* XRC between queue pairs of one process, over each port: what every request does, and what is
 * refused. */
#include "check.h"
#include "station.h"

enum { HALF = STATION_BYTES / 2, DEPTH = 8 };

/* Half a second: nothing is lost here, and a busy machine may be late. */
enum { LONG_TIMEOUT = 17 };

/* A domain with two SRQs, each on a CQ of its own, and one in another domain. */
static struct station here;
static struct vb_xrcd *xrcd, *other_xrcd;
static struct vb_cq *recv_cq[2];
static struct vb_srq *srq[2], *foreign;
static struct vb_qp *initiator, *target;
static bool packets;

static struct vb_srq *new_srq(struct vb_pd *pd, struct vb_xrcd *domain, struct vb_cq *cq)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = DEPTH, .max_sge = 2}};
    struct vb_srq *made;

    CHECK_EQ(vb_srq_create_xrc(here.context, pd, domain, cq, &attr, &made), 0);
    return made;
}

static void connect_ends(struct station_route route)
{
    struct station_card to_target, to_initiator;

    initiator = station_qp(&here, IBV_QPT_XRC_SEND);
    to_target = station_card(&here, target);
    to_initiator = station_card(&here, initiator);
    route.timeout = LONG_TIMEOUT;
    station_connect(&here, target, &to_initiator, route);
    station_connect(&here, initiator, &to_target, route);
}

static struct vb_qp *new_target(struct vb_xrcd *domain)
{
    struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_XRC_RECV, .xrcd = &domain->ibv};
    struct vb_qp *made;

    CHECK_EQ(vb_qp_create(here.context, &attr, &made), 0);
    return made;
}

static void begin(struct station_route route)
{
    struct vb_host_config config = {.packets_only = packets, .direct_only = !packets};

    station_open(&here, &config);
    CHECK_EQ(vb_xrcd_open(here.context, 5, -1, &xrcd), 0);
    CHECK_EQ(vb_xrcd_open(here.context, 6, -1, &other_xrcd), 0);
    for (int i = 0; i < 2; ++i) {
        CHECK_EQ(vb_cq_create(here.context, 64, NULL, NULL, &recv_cq[i]), 0);
        srq[i] = new_srq(here.pd, xrcd, recv_cq[i]);
    }
    foreign = new_srq(here.pd, other_xrcd, recv_cq[0]);
    target = new_target(xrcd);
    connect_ends(route);
    CHECK_EQ(target->verbs->real->endpoint != NULL, packets);
    for (int i = 0; i < HALF; ++i)
        here.memory[i] = (uint8_t)(i * 7 + (i >> 8));
}

static void end(void)
{
    station_close(&here);
}

static void post_recv(struct vb_srq *to, uint64_t id, uint32_t offset, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)here.memory + HALF + offset, length, here.mr->ibv.lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(vb_srq_post_recv(to, &wr, &bad), 0);
}

static void post(enum ibv_wr_opcode opcode, uint32_t srq_num, uint32_t length, unsigned flags)
{
    struct ibv_sge sge = {(uintptr_t)here.memory, length, here.mr->ibv.lkey};
    struct ibv_send_wr wr = {.wr_id = 7,
                             .opcode = opcode,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .imm_data = 0x04030201,
                             .send_flags = IBV_SEND_SIGNALED | flags,
                             .qp_type.xrc.remote_srqn = srq_num},
                       *bad;

    wr.wr.rdma.remote_addr = (uintptr_t)here.memory + HALF;
    wr.wr.rdma.rkey = here.mr->ibv.rkey;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = (uintptr_t)here.memory + HALF;
        wr.wr.atomic.rkey = here.mr->ibv.rkey;
        wr.wr.atomic.compare_add = 5;
        wr.wr.atomic.swap = 9;
    }
    CHECK_EQ(vb_post_send(initiator, &wr, &bad), 0);
}

static struct ibv_wc sent(void)
{
    struct ibv_wc wc = station_wait(here.cq, 5);

    CHECK_EQ(wc.qp_num, initiator->number);
    return wc;
}

static void sent_well(enum ibv_wc_opcode opcode)
{
    struct ibv_wc wc = sent();

    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.opcode, opcode);
}

static void received(int at, uint64_t id, enum ibv_wc_opcode opcode, uint32_t length, bool imm)
{
    struct ibv_wc wc = station_wait(recv_cq[at], 5);

    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.opcode, opcode);
    CHECK_EQ(wc.wr_id, id);
    CHECK_EQ(wc.byte_len, length);
    CHECK_EQ(wc.qp_num, target->number);
    CHECK_EQ(wc.wc_flags, imm ? IBV_WC_WITH_IMM : 0);
    CHECK_EQ(wc.src_qp, 0);
    if (imm)
        CHECK_EQ(wc.imm_data, 0x04030201);
}

static void sends_of_all_sizes(void)
{
    static const uint32_t lengths[] = {0, 1, 28, 29, 64, 1024, 1025, 5000, 70000};

    begin((struct station_route){0});
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); ++i) {
        bool imm = i % 2;

        memset(here.memory + HALF, 0xee, lengths[i] + 8);
        post_recv(srq[i % 2], 90 + i, 3, lengths[i] + 5);
        post(imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, srq[i % 2]->srq_num, lengths[i],
             lengths[i] <= 64 ? IBV_SEND_INLINE : 0);
        sent_well(IBV_WC_SEND);
        received(i % 2, 90 + i, IBV_WC_RECV, lengths[i], imm);
        CHECK_EQ(memcmp(here.memory, here.memory + HALF + 3, lengths[i]), 0);
        CHECK_EQ(here.memory[HALF + 3 + lengths[i]], 0xee);
    }
    end();
}

static void write_read_and_atomics(void)
{
    uint64_t word = 5;

    begin((struct station_route){0});
    post(IBV_WR_RDMA_WRITE, srq[0]->srq_num, 5000, 0);
    sent_well(IBV_WC_RDMA_WRITE);
    CHECK_EQ(memcmp(here.memory, here.memory + HALF, 5000), 0);
    post_recv(srq[1], 4, 0, 0);
    post(IBV_WR_RDMA_WRITE_WITH_IMM, srq[1]->srq_num, 3000, 0);
    sent_well(IBV_WC_RDMA_WRITE);
    received(1, 4, IBV_WC_RECV_RDMA_WITH_IMM, 3000, true);
    memset(here.memory + HALF, 0x5a, 5000);
    post(IBV_WR_RDMA_READ, srq[0]->srq_num, 5000, 0);
    sent_well(IBV_WC_RDMA_READ);
    CHECK_EQ(memcmp(here.memory, here.memory + HALF, 5000), 0);
    memcpy(here.memory + HALF, &word, sizeof(word));
    post(IBV_WR_ATOMIC_FETCH_AND_ADD, srq[0]->srq_num, 8, 0);
    sent_well(IBV_WC_FETCH_ADD);
    memcpy(&word, here.memory, sizeof(word));
    CHECK_EQ(word, 5);
    word = 5;
    memcpy(here.memory + HALF, &word, sizeof(word));
    post(IBV_WR_ATOMIC_CMP_AND_SWP, srq[1]->srq_num, 8, 0);
    sent_well(IBV_WC_COMP_SWAP);
    memcpy(&word, here.memory + HALF, sizeof(word));
    CHECK_EQ(word, 9);
    end();
}

/* An empty SRQ: the sender waits for it, however many others have something. */
static void an_empty_srq_is_waited_for(void)
{
    struct ibv_wc wc;

    begin((struct station_route){0});
    post_recv(srq[1], 1, 0, 64);
    post(IBV_WR_SEND, srq[0]->srq_num, 64, 0);
    for (int i = 0; i < 1000; ++i)
        CHECK_EQ(vb_cq_poll(here.cq, 1, &wc) + vb_cq_poll(recv_cq[1], 1, &wc), 0);
    post_recv(srq[0], 2, 0, 64);
    sent_well(IBV_WC_SEND);
    received(0, 2, IBV_WC_RECV, 64, false);
    end();
    begin((struct station_route){.rnr_retry = 1});
    post(IBV_WR_SEND, srq[0]->srq_num, 64, 0);
    CHECK_EQ(sent().status, IBV_WC_RNR_RETRY_EXC_ERR);
    CHECK_EQ(vb_qp_state(initiator), IBV_QPS_ERR);
    CHECK_EQ(vb_qp_state(target), IBV_QPS_RTS);
    end();
}

static enum ibv_event_type next_event(const void *element)
{
    struct ibv_async_event event;

    CHECK_EQ(vb_event_get(here.context, &event), 0);
    CHECK(element == (const void *)event.element.qp);
    vb_event_ack(here.context, &event);
    return event.event_type;
}

static void expect_event(enum ibv_event_type type, const void *element)
{
    CHECK_EQ(next_event(element), type);
}

/* In either order. */
static void expect_events(enum ibv_event_type one, enum ibv_event_type other, const void *element)
{
    enum ibv_event_type first = next_event(element), second = next_event(element);

    CHECK((first == one && second == other) || (first == other && second == one));
}

static void is_refused(uint32_t srq_num, enum ibv_wr_opcode opcode)
{
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    struct ibv_wc wc;

    post(opcode, srq_num, 64, 0);
    post(IBV_WR_RDMA_WRITE, srq[0]->srq_num, 64, 0);
    CHECK_EQ(sent().status, IBV_WC_REM_INV_REQ_ERR);
    CHECK_EQ(sent().status, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(vb_qp_state(initiator), IBV_QPS_ERR);
    CHECK_EQ(vb_qp_state(target), IBV_QPS_ERR);
    expect_events(IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_LAST_WQE_REACHED, &target->verbs->ibv);
    CHECK_EQ(vb_cq_poll(recv_cq[0], 1, &wc), 0); /* an SRQ is not flushed */
    CHECK_EQ(vb_qp_modify(target, &reset, IBV_QP_STATE), 0);
    vb_qp_destroy(initiator);
    connect_ends((struct station_route){0});
}

/* No such SRQ, one that is gone, an SRQ of another kind, one of another domain. */
static void a_wrong_srq_is_refused(void)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 1, .max_sge = 1}};
    uint32_t gone;
    struct vb_srq *basic;

    begin((struct station_route){0});
    post_recv(srq[0], 1, 0, 64);
    post_recv(foreign, 2, 0, 64);
    CHECK_EQ(vb_srq_create(here.context, here.pd, &attr, &basic), 0);
    gone = srq[1]->srq_num;
    is_refused(0, IBV_WR_SEND);
    is_refused(gone + 77, IBV_WR_SEND);
    is_refused(gone ^ 1 << 20, IBV_WR_SEND);
    is_refused(foreign->srq_num, IBV_WR_SEND);
    is_refused(foreign->srq_num, IBV_WR_RDMA_READ);
    is_refused(foreign->srq_num, IBV_WR_RDMA_WRITE);
    is_refused(foreign->srq_num, IBV_WR_ATOMIC_FETCH_AND_ADD);
    is_refused(srq[0]->srq_num - srq[0]->index + basic->index, IBV_WR_SEND);
    CHECK_EQ(vb_srq_destroy(srq[1]), 0);
    is_refused(gone, IBV_WR_SEND);
    post(IBV_WR_SEND, srq[0]->srq_num, 64, 0);
    sent_well(IBV_WC_SEND);
    received(0, 1, IBV_WC_RECV, 64, false);
    end();
}

/* The rkeys that count are those of the SRQ's protection domain. */
static void the_srq_has_the_protection_domain(void)
{
    struct vb_pd *pd;
    struct vb_srq *apart;

    begin((struct station_route){0});
    CHECK_EQ(vb_pd_alloc(here.context, &pd), 0);
    apart = new_srq(pd, xrcd, recv_cq[0]);
    post(IBV_WR_RDMA_WRITE, srq[0]->srq_num, 64, 0);
    sent_well(IBV_WC_RDMA_WRITE);
    post(IBV_WR_RDMA_WRITE, apart->srq_num, 64, 0);
    CHECK_EQ(sent().status, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(vb_qp_state(target), IBV_QPS_ERR);
    end();
}

/* A READ of one protection domain and a request of another, both under way. */
static void requests_of_two_domains_overlap(void)
{
    struct vb_pd *pd;
    struct vb_srq *apart;

    begin((struct station_route){0});
    CHECK_EQ(vb_pd_alloc(here.context, &pd), 0);
    apart = new_srq(pd, xrcd, recv_cq[1]);
    for (int i = 0; i < 4; ++i) {
        struct ibv_recv_wr wr = {.wr_id = (uint64_t)i}, *bad;

        CHECK_EQ(vb_srq_post_recv(apart, &wr, &bad), 0);
        post(IBV_WR_RDMA_READ, srq[0]->srq_num, 60000, 0);
        post(IBV_WR_SEND, apart->srq_num, 0, 0);
    }
    for (int i = 0; i < 4; ++i) {
        sent_well(IBV_WC_RDMA_READ);
        sent_well(IBV_WC_SEND);
        received(1, (uint64_t)i, IBV_WC_RECV, 0, false);
    }
    end();
}

static void a_message_that_is_too_long(void)
{
    struct ibv_wc wc;

    begin((struct station_route){0});
    post_recv(srq[0], 11, 0, 100);
    post_recv(srq[0], 12, 0, 100);
    post(IBV_WR_SEND, srq[0]->srq_num, 101, 0);
    CHECK_EQ(sent().status, IBV_WC_REM_INV_REQ_ERR);
    wc = station_wait(recv_cq[0], 5);
    CHECK_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
    CHECK_EQ(wc.wr_id, 11);
    CHECK_EQ(wc.qp_num, target->number);
    CHECK_EQ(vb_cq_poll(recv_cq[0], 1, &wc), 0);
    CHECK_EQ(vb_qp_state(target), IBV_QPS_ERR);
    end();
}

/* What has completed outlives the target QP, and goes with the SRQ. */
static void completions_belong_to_the_srq(void)
{
    struct ibv_wc wc;
    uint32_t number;

    begin((struct station_route){0});
    number = target->number;
    for (int i = 0; i < 3; ++i)
        post_recv(srq[0], (uint64_t)i, 0, 64);
    post_recv(srq[1], 9, 0, 64);
    for (int i = 0; i < 3; ++i)
        post(IBV_WR_SEND, srq[0]->srq_num, 64, 0);
    post(IBV_WR_SEND, srq[1]->srq_num, 64, 0);
    for (int i = 0; i < 4; ++i)
        sent_well(IBV_WC_SEND);
    vb_qp_destroy(target);
    wc = station_wait(recv_cq[0], 5);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.qp_num, number);
    CHECK_EQ(vb_srq_destroy(srq[0]), 0);
    CHECK_EQ(vb_cq_poll(recv_cq[0], 1, &wc), 0);
    CHECK_EQ(vb_cq_poll(recv_cq[1], 1, &wc), 1);
    end();
}

/* Receive requests are free again when they are polled: more messages than the SRQ has places. */
static void receive_requests_return(void)
{
    begin((struct station_route){0});
    for (uint64_t i = 0; i < 5 * DEPTH; ++i) {
        post_recv(srq[0], i, 0, 64);
        post(IBV_WR_SEND, srq[0]->srq_num, 64, 0);
        sent_well(IBV_WC_SEND);
        received(0, i, IBV_WC_RECV, 64, false);
    }
    end();
}

static void the_limit_event_comes(void)
{
    struct ibv_srq_attr limit = {.srq_limit = 2};

    begin((struct station_route){0});
    post_recv(srq[1], 1, 0, 64);
    post_recv(srq[1], 2, 0, 64);
    CHECK_EQ(vb_srq_modify(srq[1], &limit, IBV_SRQ_LIMIT), 0);
    post(IBV_WR_SEND, srq[1]->srq_num, 64, 0);
    sent_well(IBV_WC_SEND);
    expect_event(IBV_EVENT_SRQ_LIMIT_REACHED, &srq[1]->ibv);
    end();
}

/* ---- objects -------------------------------------------------------------------------------- */

static int open_handle(struct vb_xrcd *domain, uint32_t number, struct vb_qp **handle)
{
    struct ibv_qp_open_attr attr = {.qp_num = number, .xrcd = &domain->ibv};

    return vb_xrc_open_qp(here.context, &attr, handle);
}

/* Each handle has the events, and the QP lives as long as one of them. */
static void a_target_qp_has_handles(void)
{
    struct ibv_qp_attr attr, error = {.qp_state = IBV_QPS_ERR};
    struct vb_qp *second, *third;

    begin((struct station_route){0});
    CHECK_EQ(open_handle(xrcd, target->number, &second), 0);
    CHECK_EQ(second->number, target->number);
    CHECK_EQ(open_handle(other_xrcd, target->number, &third), -EINVAL);
    CHECK_EQ(open_handle(xrcd, initiator->number, &third), -EINVAL);
    CHECK_EQ(open_handle(xrcd, target->number + 9, &third), -EINVAL);
    CHECK_EQ(open_handle(xrcd, target->number ^ 1 << 20, &third), -EOPNOTSUPP);
    vb_qp_destroy(target);
    target = second;
    post_recv(srq[0], 1, 0, 64);
    post(IBV_WR_SEND, srq[0]->srq_num, 64, 0);
    sent_well(IBV_WC_SEND);
    received(0, 1, IBV_WC_RECV, 64, false);
    CHECK_EQ(open_handle(xrcd, target->number, &third), 0);
    CHECK_EQ(vb_qp_modify(third, &error, IBV_QP_STATE), 0);
    CHECK_EQ(vb_qp_query(second, &attr, -1, NULL), 0);
    CHECK_EQ(attr.qp_state, IBV_QPS_ERR);
    expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, &third->verbs->ibv);
    expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, &second->verbs->ibv);
    end();
}

static void what_is_used_is_busy(void)
{
    begin((struct station_route){0});
    CHECK_EQ(vb_xrcd_close(xrcd), -EBUSY);
    CHECK_EQ(vb_cq_destroy(recv_cq[0]), -EBUSY);
    vb_qp_destroy(target);
    CHECK_EQ(vb_xrcd_close(xrcd), -EBUSY);
    CHECK_EQ(vb_srq_destroy(srq[0]), 0);
    CHECK_EQ(vb_srq_destroy(srq[1]), 0);
    CHECK_EQ(vb_srq_destroy(foreign), 0);
    CHECK_EQ(vb_cq_destroy(recv_cq[0]), 0);
    CHECK_EQ(vb_xrcd_close(xrcd), 0);
    end();
}

static void queues_that_xrc_qps_lack(void)
{
    struct ibv_recv_wr recv = {0}, *bad_recv;
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send;

    begin((struct station_route){0});
    CHECK_EQ(vb_post_recv(target, &recv, &bad_recv), -EINVAL);
    CHECK_EQ(vb_post_recv(initiator, &recv, &bad_recv), -EINVAL);
    CHECK_EQ(vb_post_send(target, &send, &bad_send), -EINVAL);
    end();
}

static void over_this_port(void)
{
    RUN(sends_of_all_sizes);
    RUN(write_read_and_atomics);
    RUN(an_empty_srq_is_waited_for);
    RUN(a_wrong_srq_is_refused);
    RUN(the_srq_has_the_protection_domain);
    RUN(requests_of_two_domains_overlap);
    RUN(a_message_that_is_too_long);
    RUN(completions_belong_to_the_srq);
    RUN(receive_requests_return);
    RUN(the_limit_event_comes);
    RUN(a_target_qp_has_handles);
}

int main(void)
{
    over_this_port();
    RUN(what_is_used_is_busy);
    RUN(queues_that_xrc_qps_lack);
    packets = true;
    over_this_port();
    return 0;
}
