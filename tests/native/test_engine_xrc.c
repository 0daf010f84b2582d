// SPDX-License-Identifier: Apache-2.0
/* XRC as packets: what stands in them, lost ones, and such as do not belong. test_xrc.c has what
 * the requests do. */
#include "check.h"
#include "fabric.h"
#include "transport/responder.h"

enum { MTU = 1024, FROM = 0, TO = 1 };

static struct fabric fabric;
static struct vb_xrcd *xrcd;
static struct vb_srq *srq;
static struct vb_qp *initiator, *target;
static struct qp_options options;

static void make_ends(void)
{
    struct side *to = &fabric.side[TO];
    struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_XRC_RECV, .xrcd = &xrcd->ibv};
    struct qp_options of_target = options;

    of_target.type = IBV_QPT_XRC_RECV;
    initiator = fabric_qp(&fabric, FROM, &options);
    CHECK_EQ(vb_qp_create(to->context, &attr, &target), 0);
    fabric_ready(&fabric, target, initiator->number, &of_target);
    fabric_ready(&fabric, initiator, target->number, &options);
}

static struct vb_srq *new_srq(void)
{
    struct side *to = &fabric.side[TO];
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct vb_srq *made;

    CHECK_EQ(vb_srq_create_xrc(to->context, to->pd, xrcd, to->recv_cq, &attr, &made), 0);
    return made;
}

static void begin(struct fabric_options channel)
{
    fabric_open(&fabric, channel);
    CHECK_EQ(vb_xrcd_open(fabric.side[TO].context, 4, -1, &xrcd), 0);
    srq = new_srq();
    options = fabric_defaults();
    options.type = IBV_QPT_XRC_SEND;
    make_ends();
    for (size_t i = 0; i < fabric.options.memory; ++i)
        fabric.side[FROM].memory[i] = (uint8_t)(i * 7 + (i >> 8));
}

static void post_recv(uint64_t id, uint64_t offset, uint32_t length)
{
    const struct side *to = &fabric.side[TO];
    struct ibv_sge sge = {(uintptr_t)to->memory + offset, length, to->mr->ibv.lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(vb_srq_post_recv(srq, &wr, &bad), 0);
}

static void post(enum ibv_wr_opcode opcode, uint32_t length)
{
    struct ibv_send_wr wr = fabric_request(&fabric, FROM, opcode, 0);

    wr.qp_type.xrc.remote_srqn = srq->srq_num;
    CHECK_EQ(fabric_post(&fabric, initiator, wr, 0, length), 0);
}

static struct ibv_wc sent(void)
{
    return fabric_wait(&fabric, fabric.side[FROM].send_cq);
}

/* Counts the requests that it has seen, each with its XRCETH, and the responses, without one. */
static enum verdict look(struct fabric *seen, struct flight *flight)
{
    unsigned *count = seen->rule_context;
    struct vb_bth bth = vb_wire_bth_read(flight->bytes);

    CHECK_EQ(bth.opcode & VB_TRANSPORT_MASK, VB_TRANSPORT_XRC);
    CHECK_EQ(!(vb_opcodes[bth.opcode].flags & VB_OPCODE_XRCETH), flight->from == TO);
    if (flight->from == FROM) {
        CHECK_EQ(flight->bytes[VB_BTH], 0);
        CHECK_EQ(vb_wire_xrceth_read(flight->bytes + VB_BTH), srq->srq_num);
    }
    ++count[flight->from];
    return PASS;
}

static void every_request_packet_names_the_srq(void)
{
    unsigned count[2] = {0};

    begin((struct fabric_options){.seed = 1});
    fabric.rule = look;
    fabric.rule_context = count;
    post_recv(1, 0, 3 * MTU);
    post(IBV_WR_SEND_WITH_IMM, 3 * MTU);
    CHECK_EQ(sent().status, IBV_WC_SUCCESS);
    CHECK_EQ(count[FROM], 3);
    post(IBV_WR_RDMA_WRITE, 2 * MTU);
    CHECK_EQ(sent().status, IBV_WC_SUCCESS);
    post(IBV_WR_RDMA_READ, 3 * MTU);
    CHECK_EQ(sent().status, IBV_WC_SUCCESS);
    post(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
    CHECK_EQ(sent().status, IBV_WC_SUCCESS);
    post(IBV_WR_FLUSH, 8);
    CHECK_EQ(sent().opcode, IBV_WC_FLUSH);
    CHECK_EQ(count[FROM], 8);
    CHECK(count[TO] >= 7);
    fabric_close(&fabric);
}

static void a_good_packets_way(void)
{
    char way[200];

    begin((struct fabric_options){.seed = 1});
    post(IBV_WR_RDMA_WRITE, 8);
    CHECK_EQ(sent().status, IBV_WC_SUCCESS);
    vb_engine_responder_path(fabric.side[TO].engine, way, sizeof(way));
    CHECK_EQ(strcmp(way, "CHECK_PSN CHECK_SRQ CHECK_SEQUENCE CHECK_ACCESS CHECK_RESOURCES "
                         "CHECK_LENGTH CHECK_KEY EXECUTE COMPLETE ACKNOWLEDGE"),
             0);
    fabric_close(&fabric);
}

/* Each message once and whole, whatever is lost, doubled or late. */
static void a_bad_channel(void)
{
    begin((struct fabric_options){.seed = 3, .loss = 0.05, .duplicate = 0.05, .reorder = 0.05});
    for (uint64_t i = 0; i < 200; ++i) {
        struct ibv_wc wc;

        memset(fabric.side[TO].memory, 0, 3 * MTU);
        post_recv(i, 0, 3 * MTU);
        post(IBV_WR_SEND, 2 * MTU + (uint32_t)i);
        CHECK_EQ(sent().status, IBV_WC_SUCCESS);
        wc = fabric_wait(&fabric, fabric.side[TO].recv_cq);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.wr_id, i);
        CHECK_EQ(wc.qp_num, target->number);
        CHECK_EQ(memcmp(fabric.side[FROM].memory, fabric.side[TO].memory, 2 * MTU + i), 0);
        post(IBV_WR_RDMA_READ, 3 * MTU);
        CHECK_EQ(sent().status, IBV_WC_SUCCESS);
        memcpy(fabric.side[TO].memory, fabric.side[FROM].memory, 3 * MTU);
    }
    CHECK(fabric_counters(&fabric, TO)->duplicate_requests > 0);
    fabric_close(&fabric);
}

/* Requests to an initiator, RC's to a target, XRC's to an RC QP: dropped, and nothing else. */
static void what_does_not_belong_is_dropped(void)
{
    struct qp_options rc = fabric_defaults();
    uint8_t packet[VB_BTH + VB_XRCETH + VB_RETH] = {0};
    struct vb_bth bth = {.pkey = 0xffff, .ack_request = true};
    const struct vb_counters *from, *to;
    struct vb_qp *pair[2];

    begin((struct fabric_options){.seed = 1});
    from = fabric_counters(&fabric, FROM);
    to = fabric_counters(&fabric, TO);
    fabric_pair(&fabric, rc, pair);
    bth.opcode = VB_TRANSPORT_XRC | VB_OP_WRITE_ONLY;
    bth.dest_qp = initiator->number;
    vb_wire_bth_write(packet, &bth);
    fabric_inject(&fabric, FROM, packet, sizeof(packet));
    CHECK_EQ(from->drop_transport, 1);
    bth.dest_qp = pair[TO]->number;
    vb_wire_bth_write(packet, &bth);
    fabric_inject(&fabric, TO, packet, sizeof(packet));
    CHECK_EQ(to->drop_transport, 1);
    bth.opcode = VB_TRANSPORT_RC | VB_OP_WRITE_ONLY;
    bth.dest_qp = target->number;
    vb_wire_bth_write(packet, &bth);
    fabric_inject(&fabric, TO, packet, sizeof(packet) - VB_XRCETH);
    CHECK_EQ(to->drop_transport, 2);
    bth.opcode = VB_TRANSPORT_XRC | VB_OP_WRITE_ONLY;
    vb_wire_bth_write(packet, &bth);
    fabric_inject(&fabric, TO, packet, VB_BTH + VB_XRCETH); /* too short for what it is */
    CHECK_EQ(to->drop_malformed, 1);
    CHECK_EQ(vb_qp_state(initiator), IBV_QPS_RTS);
    CHECK_EQ(vb_qp_state(target), IBV_QPS_RTS);
    fabric_close(&fabric);
}

/* Lets the first packet of a message through, once. */
static enum verdict lose_all_but_the_first(struct fabric *of, struct flight *flight)
{
    (void)of;
    return flight->from == FROM && !(vb_opcodes[flight->bytes[0]].flags & VB_OPCODE_FIRST) ? LOSE
                                                                                           : PASS;
}

static void begin_half_a_message(void)
{
    begin((struct fabric_options){.seed = 1});
    fabric.rule = lose_all_but_the_first;
    post_recv(1, 0, 3 * MTU);
    post(IBV_WR_SEND, 3 * MTU);
    fabric_run(&fabric, 100000);
    CHECK_EQ(atomic_load(&srq->shared->taken), 1);
    fabric.rule = NULL;
}

/* The SRQ goes amid a message, and perhaps another takes its number: the message has no place. */
static void an_srq_goes_amid_a_message(bool another)
{
    struct ibv_wc wc;
    uint32_t number;

    begin_half_a_message();
    number = srq->srq_num;
    CHECK_EQ(vb_srq_destroy(srq), 0);
    if (another) {
        srq = new_srq();
        CHECK_EQ(srq->srq_num, number);
        post_recv(2, 0, 3 * MTU);
    }
    wc = sent();
    CHECK_EQ(wc.status, IBV_WC_REM_INV_REQ_ERR);
    CHECK_EQ(vb_qp_state(target), IBV_QPS_ERR);
    CHECK(!fabric_poll(fabric.side[TO].recv_cq, &wc));
    if (another)
        CHECK_EQ(atomic_load(&srq->shared->taken), 0);
    fabric_close(&fabric);
}

static void an_srq_goes(void)
{
    an_srq_goes_amid_a_message(false);
}

static void an_srq_goes_and_another_comes(void)
{
    an_srq_goes_amid_a_message(true);
}

/* The target QP fails, or is reset, amid a message: its receive request is flushed, or returns. */
static void a_target_goes_amid_a_message(void)
{
    struct ibv_wc wc;

    begin_half_a_message();
    fabric_set_state(target, IBV_QPS_ERR);
    wc = fabric_wait(&fabric, fabric.side[TO].recv_cq);
    CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(wc.wr_id, 1);
    CHECK_EQ(wc.qp_num, target->number);
    fabric_close(&fabric);
    begin_half_a_message();
    fabric_set_state(target, IBV_QPS_RESET);
    vb_qp_destroy(initiator);
    vb_qp_destroy(target);
    CHECK(!fabric_poll(fabric.side[TO].recv_cq, &wc));
    make_ends();
    post(IBV_WR_SEND, 64);
    CHECK_EQ(sent().status, IBV_WC_SUCCESS);
    wc = fabric_wait(&fabric, fabric.side[TO].recv_cq);
    CHECK_EQ(wc.wr_id, 1);
    fabric_close(&fabric);
}

int main(void)
{
    RUN(every_request_packet_names_the_srq);
    RUN(a_good_packets_way);
    RUN(a_bad_channel);
    RUN(what_does_not_belong_is_dropped);
    RUN(an_srq_goes);
    RUN(an_srq_goes_and_another_comes);
    RUN(a_target_goes_amid_a_message);
    return 0;
}
