// SPDX-License-Identifier: Apache-2.0
/* An address names the port that it leaves by; a QP's and an address handle's alike. */
#include "pair.h"

static struct pair pair;

static int to_rtr(uint8_t port_num)
{
    struct ibv_qp *qp = pair_qp_on(&pair, ibv_cq_ex_to_cq(pair.cq));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    int error;

    CHECK_EQ(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
             0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                .path_mtu = IBV_MTU_1024,
                                .dest_qp_num = qp->qp_num,
                                .ah_attr = pair_address(&pair)};
    attr.ah_attr.port_num = port_num;
    error = ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    return error;
}

static int handle(uint8_t port_num)
{
    struct ibv_ah_attr attr = pair_address(&pair);
    struct ibv_ah *ah;

    attr.port_num = port_num;
    errno = 0;
    ah = ibv_create_ah(pair.pd, &attr);
    return ah ? ibv_destroy_ah(ah) : errno;
}

static void only_port_1_is_taken(void)
{
    CHECK_EQ(to_rtr(1), 0);
    CHECK_EQ(handle(1), 0);
    for (uint8_t port = 0; port < 4; port += 2) {
        CHECK_EQ(to_rtr(port), EINVAL);
        CHECK_EQ(handle(port), EINVAL);
    }
}

static void an_address_of_zeros_is_none(void)
{
    struct ibv_ah_attr attr = pair_address(&pair);

    memset(&attr.grh.dgid, 0, sizeof(attr.grh.dgid));
    CHECK(!ibv_create_ah(pair.pd, &attr));
    CHECK_EQ(errno, EINVAL);
}

int main(void)
{
    pair_open(&pair);
    RUN(only_port_1_is_taken);
    RUN(an_address_of_zeros_is_none);
    pair_close(&pair);
    return 0;
}
