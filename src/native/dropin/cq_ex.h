// SPDX-License-Identifier: Apache-2.0
/*
 * What the two ways to create a completion queue share: ibv_create_cq and ibv_create_cq_ex.
 */
#ifndef VB_DROPIN_CQ_EX_H
#define VB_DROPIN_CQ_EX_H

#include "dropin/context.h"

/* Creates a CQ after a check of comp_vector. Returns 0 or a negative error. */
int vb_dropin_new_cq(struct ibv_context *context, int cqe, void *cq_context,
                     struct ibv_comp_channel *channel, int comp_vector, struct vb_cq **cq);

#endif
