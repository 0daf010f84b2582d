// SPDX-License-Identifier: Apache-2.0
/* Answering a datagram by what it arrived with, over each GID of the port. */
#include <endian.h>
#include <sys/mman.h>

#include "dropin/verbena.h"
#include "pair.h"

enum { GRH = 40, QKEY = 0x1234, NEXT_IS_UDP = 17, NEXT_IS_BTH = 27 };

static struct pair pair;
static struct ibv_qp *ud[2];
static struct ibv_cq *sent;

static struct ibv_qp *new_ud(void)
{
    struct ibv_cq *cq = ibv_cq_ex_to_cq(pair.cq);
    struct ibv_qp_init_attr init = {
        .send_cq = sent, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_UD};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    struct ibv_qp *qp = ibv_create_qp(pair.pd, &init);

    CHECK(qp);
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
             0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    return qp;
}

static void receive(struct ibv_qp *qp, size_t offset)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory + offset, GRH + 8, pair.mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = offset, .sg_list = &sge, .num_sge = 1};

    CHECK_EQ(ibv_post_recv(qp, &wr, &bad), 0);
}

static void send(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t to, size_t offset)
{
    struct ibv_sge sge = {(uintptr_t)pair.memory + offset, 8, pair.mr->lkey};
    struct ibv_send_wr *bad, wr = {
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_SEND,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.ud = {ah, to, QKEY},
                             };
    struct ibv_wc wc;

    CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
    while (ibv_poll_cq(sent, 1, &wc) == 0)
        ;
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
}

/* Waits for the datagram and returns the address to answer it. */
static struct ibv_ah_attr arrived(size_t offset, uint32_t from, struct ibv_ah **answer)
{
    struct ibv_grh *grh = (struct ibv_grh *)(pair.memory + offset);
    struct ibv_ah_attr attr;
    struct ibv_wc wc;

    pair_poll(&pair, &wc);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.wr_id, offset);
    CHECK_EQ(wc.byte_len, GRH + 8);
    CHECK_EQ(wc.src_qp, from);
    CHECK(wc.wc_flags & IBV_WC_GRH);
    CHECK_EQ(ibv_init_ah_from_wc(pair.context, 1, &wc, grh, &attr), 0);
    *answer = ibv_create_ah_from_wc(pair.pd, &wc, grh, 1);
    CHECK(*answer);
    return attr;
}

static void a_datagram_is_answered(uint8_t gid_index)
{
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh.sgid_index = gid_index}, back;
    struct ibv_ah *ah, *answer, *again;
    union ibv_gid source;

    to.grh.hop_limit = 9;
    to.grh.traffic_class = 0x68;
    CHECK_EQ(ibv_query_gid(pair.context, 1, gid_index, &to.grh.dgid), 0);
    ah = ibv_create_ah(pair.pd, &to);
    CHECK(ah);
    receive(ud[1], 512);
    send(ud[0], ah, ud[1]->qp_num, 0);
    back = arrived(512, ud[0]->qp_num, &answer);
    CHECK_EQ(memcmp(&back.grh.dgid, &to.grh.dgid, sizeof(to.grh.dgid)), 0);
    CHECK_EQ(ibv_query_gid(pair.context, 1, back.grh.sgid_index, &source), 0);
    CHECK_EQ(memcmp(&source, &to.grh.dgid, sizeof(source)), 0);
    CHECK_EQ(back.grh.hop_limit, 9);
    CHECK_EQ(back.grh.traffic_class, 0x68);
    receive(ud[0], 1024);
    send(ud[1], answer, ud[0]->qp_num, 0);
    arrived(1024, ud[1]->qp_num, &again);
    CHECK_EQ(ibv_destroy_ah(again), 0);
    CHECK_EQ(ibv_destroy_ah(answer), 0);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
}

static void every_gid_leads_back(void)
{
    struct ibv_gid_entry table[256];
    ssize_t count = ibv_query_gid_table(pair.context, table, 256, 0);

    CHECK(count >= 2);
    for (ssize_t i = 0; i < count; ++i)
        a_datagram_is_answered((uint8_t)table[i].gid_index);
}

/* The first entry with that address and type. */
static uint32_t first_like(const struct ibv_gid_entry *table, ssize_t i)
{
    for (ssize_t j = 0; j < i; ++j)
        if (table[j].gid_type == table[i].gid_type &&
            memcmp(&table[j].gid, &table[i].gid, sizeof(table[i].gid)) == 0)
            return table[j].gid_index;
    return table[i].gid_index;
}

/* Of the entries with one address that which speaks the datagram's version of RoCE is the source.
 * Each field of the header goes into the answer's address. */
static void a_header_is_answered_in_its_own_version(void)
{
    struct ibv_gid_entry table[256];
    ssize_t count = ibv_query_gid_table(pair.context, table, 256, 0);

    for (ssize_t i = 0; i < count; ++i) {
        bool is_v2 = table[i].gid_type == IBV_GID_TYPE_ROCE_V2;
        struct ibv_grh grh = {
            .version_tclass_flow = htobe32(6u << 28 | 0xa5u << 20 | 0xb1234),
            .next_hdr = is_v2 ? NEXT_IS_UDP : NEXT_IS_BTH,
            .hop_limit = 33,
            .sgid.raw = {0xfe, 0x80, [15] = 7},
            .dgid = table[i].gid,
        };
        struct ibv_wc wc = {.wc_flags = IBV_WC_GRH, .slid = 3, .sl = 4, .dlid_path_bits = 5};
        struct ibv_ah_attr attr;

        memset(&attr, 0xee, sizeof(attr));
        CHECK_EQ(ibv_init_ah_from_wc(pair.context, 1, &wc, &grh, &attr), 0);
        CHECK_EQ(attr.grh.sgid_index, first_like(table, i));
        CHECK_EQ(memcmp(&attr.grh.dgid, &grh.sgid, 16), 0);
        CHECK_EQ(attr.grh.traffic_class, 0xa5);
        CHECK_EQ(attr.grh.flow_label, 0xb1234);
        CHECK_EQ(attr.grh.hop_limit, 33);
        CHECK_EQ(attr.is_global, 1);
        CHECK_EQ(attr.port_num, 1);
        CHECK_EQ(attr.dlid, 3);
        CHECK_EQ(attr.sl, 4);
        CHECK_EQ(attr.src_path_bits, 5);
        wc.wc_flags = 0; /* no header: by its LID alone */
        CHECK_EQ(ibv_init_ah_from_wc(pair.context, 1, &wc, &grh, &attr), 0);
        CHECK_EQ(attr.is_global, 0);
        CHECK_EQ(attr.dlid, 3);
        CHECK_EQ(attr.grh.hop_limit, 0);
    }
}

static void an_address_that_is_not_ours_is_refused(void)
{
    uint8_t foreign[GRH] = {0x60};
    struct ibv_wc wc = {.wc_flags = IBV_WC_GRH};
    struct ibv_ah_attr attr;

    CHECK_EQ(ibv_init_ah_from_wc(pair.context, 1, &wc, (struct ibv_grh *)foreign, &attr), -1);
    CHECK(!ibv_create_ah_from_wc(pair.pd, &wc, (struct ibv_grh *)foreign, 1));
}

static void an_address_without_a_grh_is_refused(void)
{
    struct ibv_ah_attr attr = {.port_num = 1, .dlid = 1};

    CHECK(!ibv_create_ah(pair.pd, &attr));
    CHECK_EQ(errno, EINVAL);
}

/* The kernel's answer; a datagram from nowhere would be lost in silence. */
static void an_address_from_an_empty_gid_is_refused(void)
{
    struct ibv_ah_attr attr = pair_address(&pair);
    struct ibv_qp_attr sqd = {.qp_state = IBV_QPS_SQD};
    union ibv_gid gid, none = {0};
    char why[200] = "";

    attr.grh.sgid_index = 255;
    CHECK_EQ(ibv_query_gid(pair.context, 1, 255, &gid), 0);
    CHECK_EQ(memcmp(&gid, &none, sizeof(gid)), 0);
    CHECK(!ibv_create_ah(pair.pd, &attr));
    CHECK_EQ(errno, ENODATA);
    CHECK(verbena_why(pair.context, ENODATA, why, sizeof(why)) > 0);
    CHECK(strstr(why, "sgid_index is 255") != NULL);
    CHECK_EQ(ibv_modify_qp(pair.qp[0], &sqd, IBV_QP_STATE), 0);
    sqd.ah_attr = attr;
    CHECK_EQ(ibv_modify_qp(pair.qp[0], &sqd, IBV_QP_STATE | IBV_QP_AV), ENODATA);
}

/* It may be destroyed once the request has been posted, also where that has to wait. */
static void a_datagram_that_waits_needs_its_address_no_more(void)
{
    struct ibv_ah_attr attr = pair_address(&pair);
    struct ibv_sge sge = {(uintptr_t)pair.memory, 8, pair.mr->lkey};
    struct ibv_ah *ah = ibv_create_ah(pair.pd, &attr), *other, *answer;
    struct ibv_send_wr *bad, wr = {
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_SEND,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.ud = {ah, ud[1]->qp_num, QKEY},
                             };
    struct ibv_qp_attr state = {.qp_state = IBV_QPS_SQD};
    struct ibv_wc wc;

    CHECK(ah);
    receive(ud[1], 512);
    CHECK_EQ(ibv_modify_qp(ud[0], &state, IBV_QP_STATE), 0);
    CHECK_EQ(ibv_post_send(ud[0], &wr, &bad), 0);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    attr.grh.dgid.raw[15] ^= 1; /* in its place: an address that leads nowhere */
    other = ibv_create_ah(pair.pd, &attr);
    CHECK(other);
    state.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(ud[0], &state, IBV_QP_STATE), 0);
    while (ibv_poll_cq(sent, 1, &wc) == 0)
        ;
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    arrived(512, ud[0]->qp_num, &answer);
    CHECK_EQ(ibv_destroy_ah(answer), 0);
    CHECK_EQ(ibv_destroy_ah(other), 0);
}

/* The sender's error, and the receiver never hears of it. */
static void a_datagram_whose_memory_is_gone_is_the_senders_error(void)
{
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, 4096, 0);
    struct ibv_ah_attr attr = pair_address(&pair);
    struct ibv_ah *ah = ibv_create_ah(pair.pd, &attr), *answer;
    struct ibv_sge sge = {(uintptr_t)memory, 8, mr->lkey};
    struct ibv_send_wr *bad, wr = {
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_SEND,
                                 .wr.ud = {ah, ud[1]->qp_num, QKEY},
                             };
    struct ibv_qp_attr state = {.qp_state = IBV_QPS_RTS};
    struct ibv_wc wc;

    receive(ud[1], 512);
    CHECK_EQ(mprotect(memory, 4096, PROT_NONE), 0); /* so nothing else can come to lie there */
    CHECK_EQ(ibv_post_send(ud[0], &wr, &bad), 0);
    while (ibv_poll_cq(sent, 1, &wc) == 0)
        ;
    CHECK_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
    CHECK_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(pair.cq), 1, &wc), 0);
    CHECK_EQ(ibv_modify_qp(ud[0], &state, IBV_QP_STATE), 0);
    send(ud[0], ah, ud[1]->qp_num, 0);
    arrived(512, ud[0]->qp_num, &answer);
    CHECK_EQ(ibv_destroy_ah(answer), 0);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(munmap(memory, 4096), 0);
}

/* To an address that leads nowhere: the QP is as it was. Where packets cannot be sent it may wait
 * for one that comes. */
static void a_move_that_fails_changes_nothing(void)
{
    struct ibv_cq *cq = ibv_cq_ex_to_cq(pair.cq);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1}, now;
    struct ibv_qp *qp = ibv_create_qp(pair.pd, &init);

    CHECK(qp);
    CHECK_EQ(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
             0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = 77;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr = pair_address(&pair); /* from a GID that no packet can come from */
    attr.ah_attr.grh.dgid.raw[15] ^= 1;
    if (ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) {
        CHECK_EQ(ibv_query_qp(qp, &now, IBV_QP_STATE, &init), 0);
        CHECK_EQ(now.qp_state, IBV_QPS_INIT);
        CHECK_EQ(now.dest_qp_num, 0);
        CHECK_EQ(now.min_rnr_timer, 0);
        CHECK_EQ(now.path_mtu, 0);
    }
    CHECK_EQ(ibv_destroy_qp(qp), 0);
}

int main(void)
{
    pair_open(&pair);
    sent = ibv_create_cq(pair.context, 8, NULL, NULL, 0);
    CHECK(sent);
    ud[0] = new_ud();
    ud[1] = new_ud();
    RUN(every_gid_leads_back);
    RUN(a_header_is_answered_in_its_own_version);
    RUN(an_address_that_is_not_ours_is_refused);
    RUN(an_address_without_a_grh_is_refused);
    RUN(an_address_from_an_empty_gid_is_refused);
    RUN(a_datagram_that_waits_needs_its_address_no_more);
    RUN(a_datagram_whose_memory_is_gone_is_the_senders_error);
    RUN(a_move_that_fails_changes_nothing);
    CHECK_EQ(ibv_destroy_qp(ud[0]), 0);
    CHECK_EQ(ibv_destroy_qp(ud[1]), 0);
    CHECK_EQ(ibv_destroy_cq(sent), 0);
    pair_close(&pair);
    return 0;
}
