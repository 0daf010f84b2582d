// SPDX-License-Identifier: Apache-2.0
#ifndef VB_DROPIN_QP_EX_H
#define VB_DROPIN_QP_EX_H

#include "hca/qp.h"

/* -EOPNOTSUPP when a QP of this type cannot do one of these ibv_wr_* calls. */
int vb_dropin_send_ops_check(enum ibv_qp_type type, uint64_t send_ops_flags);

/* Gives a new QP its ibv_wr_* calls; -ENOMEM. */
int vb_dropin_send_ops_init(struct vb_qp *qp);

#endif
