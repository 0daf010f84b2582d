// SPDX-License-Identifier: Apache-2.0
/*
 * The ibv_wr_* calls of the extended queue pair, for ibv_create_qp_ex.
 */
#ifndef VB_DROPIN_QP_EX_H
#define VB_DROPIN_QP_EX_H

#include "hca/qp.h"

/* Returns 0, or -EOPNOTSUPP if a QP of this type does not have one of these ibv_wr_* calls. */
int vb_dropin_send_ops_check(enum ibv_qp_type type, uint64_t send_ops_flags);

/* Gives a new QP its ibv_wr_* calls. Returns 0 or -ENOMEM. */
int vb_dropin_send_ops_init(struct vb_qp *qp);

#endif
