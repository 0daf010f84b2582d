// SPDX-License-Identifier: Apache-2.0
/*
 * Sizes and offsets that compiled programs rely on, checked by the compiler. A structure that
 * changes here breaks programs. tests/abi compares all of them with rdma-core's header.
 */
#ifndef VB_ABI_SIZES_H
#define VB_ABI_SIZES_H

#include "abi/context.h"

#define VB_ABI_SIZE(type, bytes)                                                                   \
    _Static_assert(sizeof(struct type) == (bytes), "the ABI fixes the size of " #type)
#define VB_ABI_OFFSET(type, field, bytes)                                                          \
    _Static_assert(offsetof(struct type, field) == (bytes),                                        \
                   "the ABI fixes the offset of " #type "." #field)

#if __SIZEOF_POINTER__ == 8
VB_ABI_SIZE(ibv_device, 664);
VB_ABI_SIZE(ibv_context_ops, 256);
VB_ABI_SIZE(ibv_device_attr, 232);
VB_ABI_SIZE(ibv_device_attr_ex, 400);
VB_ABI_SIZE(ibv_port_attr, 56);
VB_ABI_SIZE(_compat_ibv_port_attr, 48);
VB_ABI_SIZE(ibv_gid_entry, 32);
VB_ABI_SIZE(ibv_pd, 16);
VB_ABI_SIZE(ibv_mr, 48);
VB_ABI_SIZE(ibv_mw, 32);
VB_ABI_SIZE(ibv_ah, 24);
VB_ABI_SIZE(ibv_wc, 48);
VB_ABI_SIZE(ibv_comp_channel, 16);
VB_ABI_SIZE(ibv_send_wr, 128);
VB_ABI_SIZE(ibv_recv_wr, 32);
VB_ABI_SIZE(ibv_qp_attr, 144);
VB_ABI_SIZE(ibv_qp_init_attr, 64);
VB_ABI_SIZE(ibv_qp_init_attr_ex, 136);
VB_ABI_OFFSET(ibv_context_ops, poll_cq, 88);
VB_ABI_OFFSET(ibv_context_ops, post_send, 200);
VB_ABI_OFFSET(ibv_context, cmd_fd, 264);
VB_ABI_OFFSET(ibv_qp, qp_num, 52);
#endif

#ifdef __x86_64__
VB_ABI_SIZE(ibv_context, 328);
VB_ABI_SIZE(ibv_cq, 128);
VB_ABI_SIZE(ibv_cq_ex, 288);
VB_ABI_SIZE(ibv_srq, 128);
VB_ABI_SIZE(ibv_qp, 160);
VB_ABI_SIZE(ibv_qp_ex, 360);
VB_ABI_SIZE(verbs_context, 696);
#endif

#undef VB_ABI_SIZE
#undef VB_ABI_OFFSET

#endif
