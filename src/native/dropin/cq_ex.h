// SPDX-License-Identifier: Apache-2.0
#ifndef VB_DROPIN_CQ_EX_H
#define VB_DROPIN_CQ_EX_H

#include "dropin/context.h"

int vb_dropin_new_cq(struct ibv_context *context, int cqe, void *cq_context,
                     struct ibv_comp_channel *channel, int comp_vector, struct vb_cq **cq);

#endif
