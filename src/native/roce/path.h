// SPDX-License-Identifier: Apache-2.0
/*
 * The path of a QP's packets, from the attributes that the program gave. roce.c asks for it when a
 * QP is connected, and for each datagram. It may be called from any thread.
 */
#ifndef VB_ROCE_PATH_H
#define VB_ROCE_PATH_H

#include "roce/roce.h"

/*
 * Fills in all of the path but the path MTU, for the QP's port. `interface`: that of the source
 * address. -EINVAL: the GID index is empty or of RoCE v1; -ENETUNREACH: the GID is made from the
 * GUID.
 */
int vb_roce_path_make(struct vb_roce *roce, const struct vb_qp *qp, const struct ibv_ah_attr *attr,
                      uint32_t dest_qp_num, struct vb_path *path, uint32_t *interface);

#endif
