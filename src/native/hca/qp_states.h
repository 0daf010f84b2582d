// SPDX-License-Identifier: Apache-2.0
/*
 * Which transitions between states a QP may make, and which attributes each needs and takes.
 * qp_modify.c looks transitions up here.
 *
 * A QP goes RESET, INIT (receives may be posted), RTR (requests of the peer are answered), RTS
 * (own requests are carried out). SQD lets the send queue run dry so that attributes can change;
 * SQE is where an unconnected or UC QP lands after a failed request, and ERR where everything
 * else does; both flush. Source: InfiniBand Architecture Specification vol. 1, 10.3.1 and table
 * 91 ff.; Linux's and rdma-core's tables agree on what is required.
 */
#ifndef VB_HCA_QP_STATES_H
#define VB_HCA_QP_STATES_H

#include <stdbool.h>

#include "abi/verbs.h"

struct vb_transition {
    enum ibv_qp_state from, to;
    int required; /* enum ibv_qp_attr_mask, besides IBV_QP_STATE */
    int optional;
};

/* The transition of this QP type, NULL when there is none. */
const struct vb_transition *vb_qp_transition(enum ibv_qp_type type, enum ibv_qp_state from,
                                             enum ibv_qp_state to);

/* True when the mask has what the transition needs and nothing that it does not take. */
bool vb_qp_mask_fits(const struct vb_transition *transition, int mask);

/* The table itself, for documentation and tests; `count` is its length. */
const struct vb_transition *vb_qp_transitions(enum ibv_qp_type type, int *count);

#endif
