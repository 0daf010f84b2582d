// SPDX-License-Identifier: Apache-2.0
#ifndef VB_ROCE_PATH_H
#define VB_ROCE_PATH_H

#include "roce/roce.h"

/*
 * Of packets that leave by the QP's port. Everything but the path MTU; `interface`: the source's.
 * -EINVAL: the GID index is empty, of RoCE v1, or made from the GUID.
 */
int vb_roce_path_make(struct vb_roce *roce, const struct vb_qp *qp, const struct ibv_ah_attr *attr,
                      uint32_t dest_qp_num, struct vb_path *path, uint32_t *interface);

#endif
