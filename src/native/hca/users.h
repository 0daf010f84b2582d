// SPDX-License-Identifier: Apache-2.0
/* What keeps an object from being destroyed: -EBUSY, with who still uses it. */
#ifndef VB_HCA_USERS_H
#define VB_HCA_USERS_H

#include "hca/channel.h"
#include "hca/srq.h"

int vb_decline_busy_pd(struct vb_pd *pd);
int vb_decline_busy_cq(struct vb_cq *cq);
int vb_decline_busy_srq(struct vb_srq *srq);
int vb_decline_busy_channel(struct vb_channel *channel);

#endif
