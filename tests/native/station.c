// SPDX-License-Identifier: Apache-2.0
#include "station.h"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "network.h"

enum {
    EVERY_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
        IBV_ACCESS_REMOTE_ATOMIC,
    QKEY = 0x1234,
};

void station_open(struct station *station, const struct vb_host_config *config)
{
    struct vb_host_config packets = {.packets_only = true};

    memset(station, 0, sizeof(*station));
    CHECK_EQ(vb_host_open(config ? config : &packets, &station->host), 0);
    CHECK_EQ(vb_context_open(&station->host->adapter, &station->ibv, &station->context), 0);
    CHECK_EQ(vb_pd_alloc(station->context, &station->pd), 0);
    CHECK_EQ(vb_channel_create(station->context, &station->channel), 0);
    CHECK_EQ(vb_cq_create(station->context, 1024, NULL, station->channel, &station->cq), 0);
    station->memory =
        mmap(NULL, STATION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(station->memory != MAP_FAILED);
    CHECK_EQ(vb_mr_reg(station->pd, station->memory, STATION_BYTES, (uintptr_t)station->memory,
                       EVERY_ACCESS, &station->mr),
             0);
}

void station_close(struct station *station)
{
    vb_context_close(station->context);
    vb_host_close(station->host);
    munmap(station->memory, STATION_BYTES);
}

struct vb_qp *station_qp(struct station *station, enum ibv_qp_type type)
{
    struct ibv_qp_init_attr_ex attr = {.qp_type = type,
                                       .pd = &station->pd->ibv,
                                       .send_cq = &station->cq->ibv,
                                       .recv_cq = &station->cq->ibv,
                                       .cap = {STATION_DEPTH, STATION_DEPTH, 4, 4, 64}};
    struct vb_qp *qp;

    CHECK_EQ(vb_qp_create(station->context, &attr, &qp), 0);
    return qp;
}

struct station_card station_card(const struct station *station, const struct vb_qp *qp)
{
    return (struct station_card){qp->number, station->mr->ibv.rkey, (uintptr_t)station->memory};
}

struct ibv_ah_attr station_address(struct station *station, struct station_route route)
{
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 5}};
    uint8_t source[16];

    network_gid(route.from ? route.from : "127.0.0.1", source);
    network_gid(route.to ? route.to : "127.0.0.1", attr.grh.dgid.raw);
    attr.grh.sgid_index =
        (uint8_t)vb_port_addresses_find(station->host->adapter.ports[0].addresses, source);
    return attr;
}

static int to_init(struct vb_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qkey = QKEY,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                                  IBV_ACCESS_REMOTE_ATOMIC};

    return vb_qp_modify(qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                            (qp->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

int station_to_rtr(struct station *station, struct vb_qp *qp, const struct station_card *peer,
                   struct station_route route)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = route.mtu ? route.mtu : IBV_MTU_1024,
                               .dest_qp_num = peer ? peer->qp_num : 0,
                               .rq_psn = 100,
                               .max_dest_rd_atomic = 8,
                               .min_rnr_timer = 1,
                               .ah_attr = station_address(station, route)};
    int mask = IBV_QP_STATE;

    if (qp->type != IBV_QPT_UD)
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (qp->type == IBV_QPT_RC || qp->type == IBV_QPT_XRC_RECV)
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if (vb_qp_state(qp) == IBV_QPS_RESET)
        CHECK_EQ(to_init(qp), 0);
    return vb_qp_modify(qp, &attr, mask);
}

void station_connect(struct station *station, struct vb_qp *qp, const struct station_card *peer,
                     struct station_route route)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .sq_psn = 100,
                               .timeout = PATIENT_TIMEOUT(route.timeout ? route.timeout : 12),
                               .retry_cnt = 7,
                               .rnr_retry = route.rnr_retry ? route.rnr_retry : 7,
                               .max_rd_atomic = 8};
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

    CHECK_EQ(station_to_rtr(station, qp, peer, route), 0);
    if (qp->type == IBV_QPT_XRC_RECV)
        mask |= IBV_QP_TIMEOUT;
    if (qp->type == IBV_QPT_RC || qp->type == IBV_QPT_XRC_SEND)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    CHECK_EQ(vb_qp_modify(qp, &attr, mask), 0);
}

/* From the first half of the memory to the peer's second half, or back. */
void station_post(struct station *station, struct vb_qp *qp, enum ibv_wr_opcode opcode,
                  uint32_t length, const struct station_card *peer)
{
    struct ibv_sge sge = {(uintptr_t)station->memory, length, station->mr->ibv.lkey};
    struct ibv_send_wr wr = {.wr_id = 7,
                             .opcode = opcode,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;

    wr.wr.rdma.remote_addr = peer->addr + STATION_BYTES / 2;
    wr.wr.rdma.rkey = peer->rkey;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = peer->addr + STATION_BYTES / 2;
        wr.wr.atomic.compare_add = 1;
        wr.wr.atomic.swap = 0;
        wr.wr.atomic.rkey = peer->rkey;
    }
    CHECK_EQ(vb_post_send(qp, &wr, &bad), 0);
}

void station_post_recv(struct station *station, struct vb_qp *qp, uint32_t offset, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)station->memory + offset, length, station->mr->ibv.lkey};
    struct ibv_recv_wr wr = {.wr_id = 9, .sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(vb_post_recv(qp, &wr, &bad), 0);
}

struct ibv_wc station_wait(struct vb_cq *cq, double seconds)
{
    uint64_t end = vb_roce_now() + (uint64_t)(seconds * 1e9);
    struct ibv_wc wc;

    while (vb_cq_poll(cq, 1, &wc) == 0)
        CHECK(vb_roce_now() < end);
    return wc;
}

struct ibv_wc station_sleep(struct station *station, double seconds)
{
    struct pollfd readable = {.fd = station->channel->ibv.fd, .events = POLLIN};
    struct vb_channel_record record;
    struct ibv_wc wc;

    vb_cq_arm(station->cq, false);
    CHECK_EQ(poll(&readable, 1, (int)(seconds * 1000)), 1);
    CHECK_EQ(read(station->channel->ibv.fd, &record, sizeof(record)), sizeof(record));
    CHECK_EQ(vb_cq_poll(station->cq, 1, &wc), 1);
    return wc;
}
