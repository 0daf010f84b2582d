// SPDX-License-Identifier: Apache-2.0
/* Address handles. */
#ifndef VB_HCA_AH_H
#define VB_HCA_AH_H

#include "hca/mr.h"

struct vb_ah {
    struct ibv_ah ibv;
    struct vb_object object;
    struct vb_pd *pd;
    struct ibv_ah_attr attr;
};

/* Is a destination named as the port that the address names needs it? RoCE wants a GID, InfiniBand
 * is content with a LID. -EINVAL */
int vb_ah_check(struct vb_context *context, const struct ibv_ah_attr *attr);

/* -EINVAL: what vb_ah_check refuses. */
int vb_ah_create(struct vb_pd *pd, const struct ibv_ah_attr *attr, struct vb_ah **ah);
int vb_ah_destroy(struct vb_ah *ah);

#endif
