// SPDX-License-Identifier: Apache-2.0
/*
 * Address handles: the path to a destination of datagrams. Verbs create and destroy them; send
 * requests of UD queue pairs name them.
 */
#ifndef VB_HCA_AH_H
#define VB_HCA_AH_H

#include "hca/mr.h"

struct vb_ah {
    struct ibv_ah ibv;
    struct vb_object object;
    struct vb_pd *pd;
    struct ibv_ah_attr attr;
};

/* Does the address name a destination as its port needs it: a GID on Ethernet, a GID or a LID on
 * InfiniBand? 0 or -EINVAL. */
int vb_ah_check(struct vb_context *context, const struct ibv_ah_attr *attr);

/* -EINVAL: what vb_ah_check refuses. */
int vb_ah_create(struct vb_pd *pd, const struct ibv_ah_attr *attr, struct vb_ah **ah);
int vb_ah_destroy(struct vb_ah *ah);

#endif
