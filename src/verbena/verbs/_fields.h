// SPDX-License-Identifier: Apache-2.0
// The numbers in struct ibv_qp_attr by name, each with the bit of the mask that it belongs to.
#ifndef VERBENA_VERBS_FIELDS_H
#define VERBENA_VERBS_FIELDS_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "abi/verbs.h"

struct vb_field {
    const char *name;
    int bit;
    uint16_t offset;
    uint16_t size;
};

#define VB_FIELD(name, bit)                                                                        \
    {#name, bit, offsetof(struct ibv_qp_attr, name), sizeof(((struct ibv_qp_attr *)0)->name)}

static const struct vb_field vb_qp_fields[] = {
    VB_FIELD(qp_state, IBV_QP_STATE),
    VB_FIELD(cur_qp_state, IBV_QP_CUR_STATE),
    VB_FIELD(en_sqd_async_notify, IBV_QP_EN_SQD_ASYNC_NOTIFY),
    VB_FIELD(qp_access_flags, IBV_QP_ACCESS_FLAGS),
    VB_FIELD(pkey_index, IBV_QP_PKEY_INDEX),
    VB_FIELD(port_num, IBV_QP_PORT),
    VB_FIELD(qkey, IBV_QP_QKEY),
    VB_FIELD(path_mtu, IBV_QP_PATH_MTU),
    VB_FIELD(timeout, IBV_QP_TIMEOUT),
    VB_FIELD(retry_cnt, IBV_QP_RETRY_CNT),
    VB_FIELD(rnr_retry, IBV_QP_RNR_RETRY),
    VB_FIELD(rq_psn, IBV_QP_RQ_PSN),
    VB_FIELD(max_rd_atomic, IBV_QP_MAX_QP_RD_ATOMIC),
    VB_FIELD(alt_pkey_index, IBV_QP_ALT_PATH),
    VB_FIELD(alt_port_num, IBV_QP_ALT_PATH),
    VB_FIELD(alt_timeout, IBV_QP_ALT_PATH),
    VB_FIELD(min_rnr_timer, IBV_QP_MIN_RNR_TIMER),
    VB_FIELD(sq_psn, IBV_QP_SQ_PSN),
    VB_FIELD(max_dest_rd_atomic, IBV_QP_MAX_DEST_RD_ATOMIC),
    VB_FIELD(path_mig_state, IBV_QP_PATH_MIG_STATE),
    VB_FIELD(dest_qp_num, IBV_QP_DEST_QPN),
    VB_FIELD(rate_limit, IBV_QP_RATE_LIMIT),
};

// Sets a number by name; returns its bit of the mask, -ENOENT for a name that is none, or -ERANGE.
static inline int vb_set_qp_field(struct ibv_qp_attr *attr, const char *name, uint64_t value)
{
    for (size_t i = 0; i < sizeof vb_qp_fields / sizeof vb_qp_fields[0]; i++) {
        const struct vb_field *field = &vb_qp_fields[i];
        if (strcmp(field->name, name) != 0)
            continue;
        if (value >> (8 * field->size))
            return -ERANGE;
        char *at = (char *)attr + field->offset;
        switch (field->size) {
        case 1:
            *(uint8_t *)at = (uint8_t)value;
            break;
        case 2:
            *(uint16_t *)at = (uint16_t)value;
            break;
        default:
            *(uint32_t *)at = (uint32_t)value;
        }
        return field->bit;
    }
    return -ENOENT;
}

#endif
