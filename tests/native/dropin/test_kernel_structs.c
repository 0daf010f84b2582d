// SPDX-License-Identifier: Apache-2.0
/*
 * Conversions between the kernel's structs and libibverbs', which librdmacm calls: each field
 * arrives, whatever its value, and the others stay.
 */
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include "check.h"

enum { ROUNDS = 20 };

/* As in infiniband/marshall.h, which not every distribution has. */
void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *to, struct ib_uverbs_ah_attr *from);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *to, struct ib_uverbs_qp_attr *from);
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *to, struct ib_user_path_rec *from);
void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *to, struct ibv_sa_path_rec *from);

static uint64_t state = 5;

static void fill(void *at, size_t n)
{
    for (uint8_t *byte = at; n--; ++byte) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        *byte = (uint8_t)(state >> 40);
    }
}

#define SAME(field)     CHECK_EQ(to.field, from.field)
#define LOW_BYTE(field) CHECK_EQ((uint8_t)to.field, (uint8_t)from.field) /* one has only that */

static void expect_address(const struct ibv_ah_attr *taken, const struct ib_uverbs_ah_attr *given)
{
    const struct ibv_ah_attr to = *taken;
    const struct ib_uverbs_ah_attr from = *given;

    CHECK_EQ(memcmp(to.grh.dgid.raw, from.grh.dgid, 16), 0);
    SAME(grh.flow_label);
    SAME(grh.sgid_index);
    SAME(grh.hop_limit);
    SAME(grh.traffic_class);
    SAME(dlid);
    SAME(sl);
    SAME(src_path_bits);
    SAME(static_rate);
    SAME(is_global);
    SAME(port_num);
}

static void an_address_is_taken(void)
{
    for (int i = 0; i < ROUNDS; ++i) {
        struct ib_uverbs_ah_attr from;
        struct ibv_ah_attr to;

        fill(&from, sizeof(from));
        fill(&to, sizeof(to));
        ibv_copy_ah_attr_from_kern(&to, &from);
        expect_address(&to, &from);
    }
}

static void attributes_are_taken(void)
{
    for (int i = 0; i < ROUNDS; ++i) {
        struct ib_uverbs_qp_attr from;
        struct ibv_qp_attr to, before;

        fill(&from, sizeof(from));
        fill(&to, sizeof(to));
        before = to;
        ibv_copy_qp_attr_from_kern(&to, &from);
        CHECK_EQ(to.qp_state, before.qp_state); /* librdmacm sets it before the call */
        CHECK_EQ((uint32_t)to.cur_qp_state, from.cur_qp_state);
        CHECK_EQ((uint32_t)to.path_mtu, from.path_mtu);
        CHECK_EQ((uint32_t)to.path_mig_state, from.path_mig_state);
        CHECK_EQ((uint32_t)to.qp_access_flags, from.qp_access_flags);
        SAME(qkey);
        SAME(rq_psn);
        SAME(sq_psn);
        SAME(dest_qp_num);
        CHECK_EQ(to.cap.max_send_wr, from.max_send_wr);
        CHECK_EQ(to.cap.max_recv_wr, from.max_recv_wr);
        CHECK_EQ(to.cap.max_send_sge, from.max_send_sge);
        CHECK_EQ(to.cap.max_recv_sge, from.max_recv_sge);
        CHECK_EQ(to.cap.max_inline_data, from.max_inline_data);
        expect_address(&to.ah_attr, &from.ah_attr);
        expect_address(&to.alt_ah_attr, &from.alt_ah_attr);
        SAME(pkey_index);
        SAME(alt_pkey_index);
        SAME(en_sqd_async_notify);
        SAME(sq_draining);
        SAME(max_rd_atomic);
        SAME(max_dest_rd_atomic);
        SAME(min_rnr_timer);
        SAME(port_num);
        SAME(timeout);
        SAME(retry_cnt);
        SAME(rnr_retry);
        SAME(alt_port_num);
        SAME(alt_timeout);
        CHECK_EQ(to.rate_limit, before.rate_limit);
    }
}

static void expect_path(const struct ibv_sa_path_rec *ours, const struct ib_user_path_rec *kernels)
{
    const struct ibv_sa_path_rec to = *ours;
    const struct ib_user_path_rec from = *kernels;

    CHECK_EQ(memcmp(&to.dgid, from.dgid, 16), 0);
    CHECK_EQ(memcmp(&to.sgid, from.sgid, 16), 0);
    SAME(dlid);
    SAME(slid);
    SAME(flow_label);
    LOW_BYTE(hop_limit);
    LOW_BYTE(traffic_class);
    LOW_BYTE(numb_path);
    SAME(pkey);
    LOW_BYTE(sl);
    LOW_BYTE(mtu_selector);
    LOW_BYTE(mtu);
    LOW_BYTE(rate_selector);
    LOW_BYTE(rate);
    LOW_BYTE(packet_life_time_selector);
    LOW_BYTE(packet_life_time);
    LOW_BYTE(preference);
    CHECK_EQ((uint32_t)to.raw_traffic, from.raw_traffic);
    CHECK_EQ((uint32_t)to.reversible, from.reversible);
}

static void a_path_is_taken_both_ways(void)
{
    for (int i = 0; i < ROUNDS; ++i) {
        struct ib_user_path_rec kernels;
        struct ibv_sa_path_rec ours;

        fill(&kernels, sizeof(kernels));
        fill(&ours, sizeof(ours));
        ibv_copy_path_rec_from_kern(&ours, &kernels);
        expect_path(&ours, &kernels);
        fill(&ours, sizeof(ours));
        ibv_copy_path_rec_to_kern(&kernels, &ours);
        expect_path(&ours, &kernels);
    }
}

int main(void)
{
    RUN(an_address_is_taken);
    RUN(attributes_are_taken);
    RUN(a_path_is_taken_both_ways);
    return 0;
}
