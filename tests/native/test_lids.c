// SPDX-License-Identifier: Apache-2.0
/* Ports with LIDs: datagrams between two queue pairs of a port of four, and what peers read. */
#include <unistd.h>

#include "check.h"
#include "hca/ah.h"
#include "hca/hca.h"
#include "host/host.h"
#include "loopback.h"

enum { LID = 8, LMC = 2, QKEY = 7, GRH_BYTES = 40, BYTES = 256 };

static struct vb_host *host;
static struct vb_context *context;
static struct vb_pd *pd;
static struct vb_cq *cq;
static struct vb_qp *qp[2];
static struct vb_mr *mr;
static uint8_t memory[2][BYTES];

static void add_qp(int end)
{
    struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_UD,
                                       .pd = &pd->ibv,
                                       .send_cq = &cq->ibv,
                                       .recv_cq = &cq->ibv,
                                       .cap = {4, 4, 2, 2, 0}};
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR}, rts = {.qp_state = IBV_QPS_RTS};

    CHECK_EQ(vb_qp_create(context, &attr, &qp[end]), 0);
    CHECK_EQ(
        vb_qp_modify(qp[end], &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
        0);
    CHECK_EQ(vb_qp_modify(qp[end], &rtr, IBV_QP_STATE), 0);
    CHECK_EQ(vb_qp_modify(qp[end], &rts, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

static void open_port(void)
{
    static struct ibv_context ibv;
    struct vb_port_settings settings = {
        .count = 1, .port = {{.infiniband = true, .lid = LID, .lmc = LMC, .pkeys = {0xffff}}}};
    const struct vb_host_config config = {.direct_only = true, .ports = &settings};

    CHECK_EQ(vb_host_open(&config, &host), 0);
    CHECK_EQ(vb_context_open(&host->adapter, &ibv, &context), 0);
    CHECK_EQ(vb_pd_alloc(context, &pd), 0);
    CHECK_EQ(vb_cq_create(context, 16, NULL, NULL, &cq), 0);
    CHECK_EQ(vb_mr_reg(pd, memory, sizeof(memory), (uintptr_t)memory, IBV_ACCESS_LOCAL_WRITE, &mr),
             0);
    add_qp(0);
    add_qp(1);
}

static void close_port(void)
{
    vb_context_close(context);
    vb_host_close(host);
}

/* A datagram from one QP to the other; returns the receive's completion, or the request's failure.
 */
static struct ibv_wc send_to(const struct ibv_ah_attr *address)
{
    struct ibv_sge to = {(uintptr_t)memory[1], BYTES, mr->ibv.lkey};
    struct ibv_sge from = {(uintptr_t)memory[0], 21, mr->ibv.lkey};
    struct ibv_recv_wr *bad_recv, recv = {.wr_id = 1, .sg_list = &to, .num_sge = 1};
    struct ibv_send_wr *bad,
        wr = {
            .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_wc wc, received = {0};
    struct vb_ah *ah;

    memset(memory[0], 5, BYTES);
    memset(memory[1], 0xee, BYTES);
    CHECK_EQ(vb_ah_create(pd, address, &ah), 0);
    wr.wr.ud.ah = &ah->ibv;
    wr.wr.ud.remote_qpn = qp[1]->number;
    wr.wr.ud.remote_qkey = QKEY;
    CHECK_EQ(vb_post_recv(qp[1], &recv, &bad_recv), 0);
    CHECK_EQ(vb_post_send(qp[0], &wr, &bad), 0);
    for (int i = 0; i < 2; ++i) {
        CHECK_EQ(loopback_poll(cq, &wc), 0);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        if (wc.wr_id == 1)
            received = wc;
    }
    CHECK_EQ(vb_ah_destroy(ah), 0);
    return received;
}

static void check_payload(const struct ibv_wc *wc)
{
    CHECK_EQ(wc->byte_len, GRH_BYTES + 21);
    for (int i = 0; i < 21; ++i)
        CHECK_EQ(memory[1][GRH_BYTES + i], 5);
    CHECK_EQ(memory[1][GRH_BYTES + 21], 0xee);
}

/* What the path bits of the two addresses are, the other end is told. */
static void each_lid_of_the_port_reaches_it(void)
{
    open_port();
    for (unsigned from = 0; from < 4; ++from)
        for (unsigned to = 0; to < 4; ++to) {
            struct ibv_ah_attr address = {.dlid = (uint16_t)(LID + to),
                                          .src_path_bits = (uint8_t)from,
                                          .port_num = 1,
                                          .sl = 3};
            struct ibv_wc wc = send_to(&address);

            check_payload(&wc);
            CHECK_EQ(wc.slid, LID + from);
            CHECK_EQ(wc.sl, 3);
            CHECK_EQ(wc.dlid_path_bits, to);
            CHECK_EQ(wc.src_qp, qp[0]->number);
            CHECK_EQ(wc.wc_flags & IBV_WC_GRH, 0);
            for (int i = 0; i < GRH_BYTES; ++i) /* nothing of the sender's stack */
                CHECK_EQ(memory[1][i], 0);
        }
    close_port();
}

static void by_a_gid_there_is_a_grh(void)
{
    struct ibv_ah_attr address = {
        .dlid = LID,
        .port_num = 1,
        .is_global = 1,
        .grh = {.hop_limit = 9, .traffic_class = 0x5a, .flow_label = 0x12345}};
    struct vb_gid gid;
    struct ibv_wc wc;

    open_port();
    CHECK(vb_port_addresses_get(host->adapter.ports[0].addresses, 0, &gid));
    memcpy(address.grh.dgid.raw, gid.raw, 16);
    wc = send_to(&address);
    check_payload(&wc);
    CHECK(wc.wc_flags & IBV_WC_GRH);
    CHECK_EQ(memory[1][0], 0x65); /* version 6, and the traffic class's upper half */
    CHECK_EQ(memory[1][1], 0xa1);
    CHECK_EQ(memory[1][2], 0x23);
    CHECK_EQ(memory[1][3], 0x45);
    CHECK_EQ(memory[1][6], 0x1b); /* what follows is IBA's transport */
    CHECK_EQ(memory[1][7], 9);
    CHECK_EQ(memcmp(memory[1] + 8, gid.raw, 16), 0);
    CHECK_EQ(memcmp(memory[1] + 24, gid.raw, 16), 0);
    close_port();
}

static void each_port_is_as_it_was_asked_for(void)
{
    struct vb_port_settings settings = {
        .device = 3,
        .count = 2,
        .port = {{.infiniband = true, .lid = LID, .lmc = LMC, .pkeys = {0x8001, 7}},
                 {.netdev = "lo", .pkeys = {0xffff}}}};
    const struct vb_host_config config = {.direct_only = true, .ports = &settings};
    const struct vb_segment_header *header;
    const struct vb_adapter_port *port;
    struct vb_gid gid;

    CHECK_EQ(vb_host_open(&config, &host), 0);
    header = host->adapter.self.header;
    port = host->adapter.ports;
    CHECK_EQ(header->device, 3); /* what peers read */
    CHECK(header->port[0].infiniband && !header->port[1].infiniband);
    CHECK_EQ(header->port[0].lid, LID);
    CHECK_EQ(header->port[0].lmc, LMC);
    CHECK_EQ(header->port[0].netdev[0], 0);
    CHECK_EQ(header->port[1].lid, 0);
    CHECK_EQ(strcmp(header->port[1].netdev, "lo"), 0);
    CHECK_EQ(host->adapter.port_count, 2);
    CHECK(port[0].infiniband && !port[1].infiniband);
    CHECK_EQ(port[0].lid, LID);
    CHECK_EQ(port[0].lmc, LMC);
    CHECK_EQ(port[0].pkeys[0], 0x8001);
    CHECK_EQ(port[0].pkeys[1], 7);
    CHECK_EQ(port[1].pkeys[0], 0xffff);
    CHECK_EQ(vb_port_addresses_count(port[0].addresses), 1);
    CHECK_EQ(vb_port_addresses_mtu(port[0].addresses, 0), 4096);
    CHECK(vb_port_addresses_get(port[0].addresses, 0, &gid));
    CHECK_EQ(gid.type, VB_GID_ROCE_V1); /* InfiniBand's own has the same number */
    for (int i = 2; i < vb_port_addresses_count(port[1].addresses); ++i)
        if (vb_port_addresses_get(port[1].addresses, i, &gid))
            CHECK_EQ(strcmp(gid.ndev, "lo"), 0);
    vb_host_close(host);
}

int main(void)
{
    alarm(60);
    RUN(each_lid_of_the_port_reaches_it);
    RUN(by_a_gid_there_is_a_grh);
    RUN(each_port_is_as_it_was_asked_for);
    return 0;
}
