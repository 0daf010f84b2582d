// SPDX-License-Identifier: Apache-2.0
/*
 * An open device, and its two tables of functions, which the inline functions of
 * <infiniband/verbs.h> call: ibv_context.ops, which has not changed for years, and verbs_context,
 * which grows at its front. dropin fills both.
 */
#ifndef VB_ABI_CONTEXT_H
#define VB_ABI_CONTEXT_H

#include <time.h>

#include "abi/completion.h"
#include "abi/device.h"
#include "abi/flow.h"
#include "abi/memory.h"
#include "abi/queue.h"
#include "abi/request.h"

/* Nobody calls the members named _compat_ any more: those verbs are exported functions today. */
struct ibv_context_ops {
    int (*_compat_query_device)(struct ibv_context *context, struct ibv_device_attr *attr);
    int (*_compat_query_port)(struct ibv_context *context, uint8_t port_num,
                              struct _compat_ibv_port_attr *attr);
    void *(*_compat_alloc_pd)(void);
    void *(*_compat_dealloc_pd)(void);
    void *(*_compat_reg_mr)(void);
    void *(*_compat_rereg_mr)(void);
    void *(*_compat_dereg_mr)(void);
    struct ibv_mw *(*alloc_mw)(struct ibv_pd *pd, enum ibv_mw_type type);
    int (*bind_mw)(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
    int (*dealloc_mw)(struct ibv_mw *mw);
    void *(*_compat_create_cq)(void);
    int (*poll_cq)(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
    int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
    void *(*_compat_cq_event)(void);
    void *(*_compat_resize_cq)(void);
    void *(*_compat_destroy_cq)(void);
    void *(*_compat_create_srq)(void);
    void *(*_compat_modify_srq)(void);
    void *(*_compat_query_srq)(void);
    void *(*_compat_destroy_srq)(void);
    int (*post_srq_recv)(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
    void *(*_compat_create_qp)(void);
    void *(*_compat_query_qp)(void);
    void *(*_compat_modify_qp)(void);
    void *(*_compat_destroy_qp)(void);
    int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
    int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
    void *(*_compat_create_ah)(void);
    void *(*_compat_destroy_ah)(void);
    void *(*_compat_attach_mcast)(void);
    void *(*_compat_detach_mcast)(void);
    void *(*_compat_async_event)(void);
};

struct ibv_context {
    struct ibv_device *device;
    struct ibv_context_ops ops;
    int cmd_fd;
    int async_fd;
    int num_comp_vectors;
    pthread_mutex_t mutex;
    void *abi_compat; /* __VERBS_ABI_IS_EXTENDED: this lies inside a verbs_context */
};

#define __VERBS_ABI_IS_EXTENDED ((void *)UINTPTR_MAX)

enum ibv_values_mask {
    IBV_VALUES_MASK_RAW_CLOCK = 1 << 0,
    IBV_VALUES_MASK_RESERVED = 1 << 1,
};

struct ibv_values_ex {
    uint32_t comp_mask;
    struct timespec raw_clock;
};

struct verbs_ex_private;

struct verbs_context {
    void (*free_buf)(struct ibv_buf *buf);
    void *(*alloc_buf)(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
    int (*dm_export_dmabuf_fd)(struct ibv_dm *dm);
    struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
    int (*dealloc_dmah)(struct ibv_dmah *dmah);
    struct ibv_dmah *(*alloc_dmah)(struct ibv_context *context, struct ibv_dmah_init_attr *attr);
    int (*query_port)(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr,
                      size_t attr_size);
    int (*advise_mr)(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                     struct ibv_sge *sg_list, uint32_t num_sge);
    struct ibv_mr *(*alloc_null_mr)(struct ibv_pd *pd);
    int (*read_counters)(struct ibv_counters *counters, uint64_t *values, uint32_t count,
                         uint32_t flags);
    int (*attach_counters_point_flow)(struct ibv_counters *counters,
                                      struct ibv_counter_attach_attr *attr, struct ibv_flow *flow);
    struct ibv_counters *(*create_counters)(struct ibv_context *context,
                                            struct ibv_counters_init_attr *attr);
    int (*destroy_counters)(struct ibv_counters *counters);
    struct ibv_mr *(*reg_dm_mr)(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t dm_offset,
                                size_t length, unsigned int access);
    struct ibv_dm *(*alloc_dm)(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
    int (*free_dm)(struct ibv_dm *dm);
    int (*modify_flow_action_esp)(struct ibv_flow_action *action,
                                  struct ibv_flow_action_esp_attr *attr);
    int (*destroy_flow_action)(struct ibv_flow_action *action);
    struct ibv_flow_action *(*create_flow_action_esp)(struct ibv_context *context,
                                                      struct ibv_flow_action_esp_attr *attr);
    int (*modify_qp_rate_limit)(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);
    struct ibv_pd *(*alloc_parent_domain)(struct ibv_context *context,
                                          struct ibv_parent_domain_init_attr *attr);
    int (*dealloc_td)(struct ibv_td *td);
    struct ibv_td *(*alloc_td)(struct ibv_context *context, struct ibv_td_init_attr *attr);
    int (*modify_cq)(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
    int (*post_srq_ops)(struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad_op);
    int (*destroy_rwq_ind_table)(struct ibv_rwq_ind_table *table);
    struct ibv_rwq_ind_table *(*create_rwq_ind_table)(struct ibv_context *context,
                                                      struct ibv_rwq_ind_table_init_attr *attr);
    int (*destroy_wq)(struct ibv_wq *wq);
    int (*modify_wq)(struct ibv_wq *wq, struct ibv_wq_attr *attr);
    struct ibv_wq *(*create_wq)(struct ibv_context *context, struct ibv_wq_init_attr *attr);
    int (*query_rt_values)(struct ibv_context *context, struct ibv_values_ex *values);
    struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *context,
                                      struct ibv_cq_init_attr_ex *attr);
    struct verbs_ex_private *priv; /* the library's own */
    int (*query_device_ex)(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t attr_size);
    /* The placeholders hold the same pointers as the slots above them: libibverbs 1.1.8 put
       them there. */
    int (*ibv_destroy_flow)(struct ibv_flow *flow);
    void (*ABI_placeholder2)(void);
    struct ibv_flow *(*ibv_create_flow)(struct ibv_qp *qp, struct ibv_flow_attr *attr);
    void (*ABI_placeholder1)(void);
    struct ibv_qp *(*open_qp)(struct ibv_context *context, struct ibv_qp_open_attr *attr);
    struct ibv_qp *(*create_qp_ex)(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
    int (*get_srq_num)(struct ibv_srq *srq, uint32_t *srq_num);
    struct ibv_srq *(*create_srq_ex)(struct ibv_context *context,
                                     struct ibv_srq_init_attr_ex *attr);
    struct ibv_xrcd *(*open_xrcd)(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
    int (*close_xrcd)(struct ibv_xrcd *xrcd); /* called unchecked where open_xrcd is set */
    uint64_t _ABI_placeholder3;
    size_t sz; /* of this struct as the library knows it */
    struct ibv_context context;
};

#endif
