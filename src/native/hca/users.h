// SPDX-License-Identifier: Apache-2.0
/*
 * Objects that cannot be destroyed because others use them. Each call returns -EBUSY and says which
 * objects those are (decline.h). The destroying calls of this room call these.
 */
#ifndef VB_HCA_USERS_H
#define VB_HCA_USERS_H

#include "hca/channel.h"
#include "hca/srq.h"

int vb_decline_busy_pd(struct vb_pd *pd);
int vb_decline_busy_cq(struct vb_cq *cq);
int vb_decline_busy_srq(struct vb_srq *srq);
int vb_decline_busy_channel(struct vb_channel *channel);

#endif
