// SPDX-License-Identifier: Apache-2.0
/*
 * Multicast groups: which UD queue pairs of an adapter belong to each. The table lies in the
 * segment, so that senders in other processes of the host find the members too.
 *
 * The rules are those of Linux' verbs: only UD QPs; a QP that is attached twice is attached once;
 * a QP that is attached cannot be destroyed. RoCE knows no multicast LID (annex A16).
 */
#ifndef VB_HCA_MULTICAST_H
#define VB_HCA_MULTICAST_H

#include "hca/qp.h"

/* Attaches a QP to a group. -EINVAL: it is no UD QP, or the GID is no multicast GID; -ENOMEM: the
 * table is full; or the error of vb_host_calls.join. */
int vb_multicast_attach(struct vb_qp *qp, const uint8_t gid[16]);
/* Detaches a QP. When it returns, no datagram of the group is delivered to the QP any more.
 * -EINVAL: the QP is not attached. */
int vb_multicast_detach(struct vb_qp *qp, const uint8_t gid[16]);
/* Detaches a QP from all groups, as it is destroyed with its context. */
void vb_multicast_detach_all(struct vb_qp *qp);

/* Copies the members of a group in an adapter, as indices in its QP table, and returns their
 * number. Any thread of any process may ask. */
uint32_t vb_multicast_members(const struct vb_view *view, const uint8_t gid[16],
                              uint32_t members[VB_GROUP_QPS]);

/* Calls `each` for every group that has members, under adapter->groups. */
void vb_multicast_each(struct vb_adapter *adapter,
                       void (*each)(void *argument, const uint8_t gid[16]), void *argument);

#endif
