// SPDX-License-Identifier: Apache-2.0
/*
 * The state machine of queue pairs as one table: which transitions each type has, and which
 * attributes they need and take. qp_modify.c looks transitions up, and the documentation's diagram
 * is drawn from this table.
 */
#include "hca/qp_states.h"

#include <stddef.h>

#define PKEY      IBV_QP_PKEY_INDEX
#define PORT      IBV_QP_PORT
#define QKEY      IBV_QP_QKEY
#define ACCESS    IBV_QP_ACCESS_FLAGS
#define ALT       IBV_QP_ALT_PATH
#define CUR       IBV_QP_CUR_STATE
#define MIG       IBV_QP_PATH_MIG_STATE
#define RNR_TIMER IBV_QP_MIN_RNR_TIMER
#define NOTIFY    IBV_QP_EN_SQD_ASYNC_NOTIFY
#define RATE      IBV_QP_RATE_LIMIT /* as Linux has it for RC */
#define CONNECT   (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RESPOND   (IBV_QP_MAX_DEST_RD_ATOMIC | RNR_TIMER)
#define REQUEST   (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

/* Every type may be reset and failed from any state but that RESET cannot fail. */
#define RESET_AND_ERR                                                                              \
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0}, {IBV_QPS_INIT, IBV_QPS_RESET, 0, 0},                     \
        {IBV_QPS_RTR, IBV_QPS_RESET, 0, 0}, {IBV_QPS_RTS, IBV_QPS_RESET, 0, 0},                    \
        {IBV_QPS_SQD, IBV_QPS_RESET, 0, 0}, {IBV_QPS_SQE, IBV_QPS_RESET, 0, 0},                    \
        {IBV_QPS_ERR, IBV_QPS_RESET, 0, 0}, {IBV_QPS_INIT, IBV_QPS_ERR, 0, 0},                     \
        {IBV_QPS_RTR, IBV_QPS_ERR, 0, 0}, {IBV_QPS_RTS, IBV_QPS_ERR, 0, 0},                        \
        {IBV_QPS_SQD, IBV_QPS_ERR, 0, 0}, {IBV_QPS_SQE, IBV_QPS_ERR, 0, 0},                        \
        {IBV_QPS_ERR, IBV_QPS_ERR, 0, 0}

static const struct vb_transition rc[] = {
    RESET_AND_ERR,
    {IBV_QPS_RESET, IBV_QPS_INIT, PKEY | PORT | ACCESS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, PKEY | PORT | ACCESS},
    {IBV_QPS_INIT, IBV_QPS_RTR, CONNECT | RESPOND, ALT | ACCESS | PKEY | RATE},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN | REQUEST,
     CUR | ALT | ACCESS | MIG | RNR_TIMER | RATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | ACCESS | ALT | MIG | RNR_TIMER | RATE},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | ALT | ACCESS | MIG | RNR_TIMER},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     PORT | IBV_QP_AV | REQUEST | IBV_QP_MAX_DEST_RD_ATOMIC | ALT | ACCESS | PKEY | RNR_TIMER |
         MIG},
};

static const struct vb_transition xrc_send[] = {
    RESET_AND_ERR,
    {IBV_QPS_RESET, IBV_QPS_INIT, PKEY | PORT | ACCESS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, PKEY | PORT | ACCESS},
    {IBV_QPS_INIT, IBV_QPS_RTR, CONNECT, ALT | ACCESS | PKEY | RATE},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN | REQUEST, CUR | ALT | ACCESS | MIG | RATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | ACCESS | ALT | MIG | RATE},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | ALT | ACCESS | MIG},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, PORT | IBV_QP_AV | REQUEST | ALT | ACCESS | PKEY | MIG},
};

static const struct vb_transition xrc_recv[] = {
    RESET_AND_ERR,
    {IBV_QPS_RESET, IBV_QPS_INIT, PKEY | PORT | ACCESS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, PKEY | PORT | ACCESS},
    {IBV_QPS_INIT, IBV_QPS_RTR, CONNECT | RESPOND, ALT | ACCESS | PKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT,
     CUR | ALT | ACCESS | MIG | RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | ACCESS | ALT | MIG | RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | ALT | ACCESS | MIG | RNR_TIMER},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_MAX_DEST_RD_ATOMIC | ALT | ACCESS | PKEY |
         RNR_TIMER | MIG},
};

static const struct vb_transition uc[] = {
    RESET_AND_ERR,
    {IBV_QPS_RESET, IBV_QPS_INIT, PKEY | PORT | ACCESS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, PKEY | PORT | ACCESS},
    {IBV_QPS_INIT, IBV_QPS_RTR, CONNECT, ALT | ACCESS | PKEY | RATE},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, CUR | ALT | ACCESS | MIG | RATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | ACCESS | ALT | MIG | RATE},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | ALT | ACCESS | MIG},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_AV | ALT | ACCESS | PKEY | MIG},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, CUR | ACCESS},
};

static const struct vb_transition ud[] = {
    RESET_AND_ERR,
    {IBV_QPS_RESET, IBV_QPS_INIT, PKEY | PORT | QKEY, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, PKEY | PORT | QKEY},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0, PKEY | QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, CUR | QKEY},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | QKEY},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | QKEY},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, PKEY | QKEY},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, CUR | QKEY},
};

#define LENGTH(table) ((int)(sizeof(table) / sizeof((table)[0])))

const struct vb_transition *vb_qp_transitions(enum ibv_qp_type type, int *count)
{
    switch (type) {
    case IBV_QPT_RC:
        *count = LENGTH(rc);
        return rc;
    case IBV_QPT_UC:
        *count = LENGTH(uc);
        return uc;
    case IBV_QPT_UD:
        *count = LENGTH(ud);
        return ud;
    case IBV_QPT_XRC_SEND:
        *count = LENGTH(xrc_send);
        return xrc_send;
    case IBV_QPT_XRC_RECV:
        *count = LENGTH(xrc_recv);
        return xrc_recv;
    default:
        *count = 0;
        return NULL;
    }
}

const struct vb_transition *vb_qp_transition(enum ibv_qp_type type, enum ibv_qp_state from,
                                             enum ibv_qp_state to)
{
    int count;
    const struct vb_transition *table = vb_qp_transitions(type, &count);

    for (int i = 0; i < count; ++i)
        if (table[i].from == from && table[i].to == to)
            return &table[i];
    return NULL;
}

bool vb_qp_mask_fits(const struct vb_transition *transition, int mask)
{
    int allowed = transition->required | transition->optional | IBV_QP_STATE;

    return (mask & transition->required) == transition->required && !(mask & ~allowed);
}
