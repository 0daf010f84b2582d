// SPDX-License-Identifier: Apache-2.0
/*
 * The functions that libibverbs.so.1 exports; dropin defines them. On failure those that return a
 * pointer return NULL and set errno; the others return a positive errno, except where a comment
 * says that they return -1 and set errno.
 */
#ifndef VB_ABI_CALLS_H
#define VB_ABI_CALLS_H

#include <sys/types.h>

#include "abi/context.h"

/* ---- devices and contexts ---- */
struct ibv_device **ibv_get_device_list(int *num_devices);
void ibv_free_device_list(struct ibv_device **list);
const char *ibv_get_device_name(struct ibv_device *device);
__be64 ibv_get_device_guid(struct ibv_device *device);
int ibv_get_device_index(struct ibv_device *device);
struct ibv_context *ibv_open_device(struct ibv_device *device);
int ibv_close_device(struct ibv_context *context);
struct ibv_context *ibv_import_device(int cmd_fd);
int ibv_fork_init(void);
enum ibv_fork_status ibv_is_fork_initialized(void);
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

/* ---- queries ---- */
int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int ibv_query_port(struct ibv_context *context, uint8_t port_num,
                   struct _compat_ibv_port_attr *attr);
int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed);
/* The next four: -1 and errno. */
int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid);
int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey);
int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey);
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
                       unsigned int *type);
int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size);
/* The number of entries, or a negative errno. */
ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                             size_t max_entries, uint32_t flags, size_t entry_size);

/* ---- events; the gets: -1 and errno ---- */
int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
void ibv_ack_async_event(struct ibv_async_event *event);
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context);
int ibv_destroy_comp_channel(struct ibv_comp_channel *channel);
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count);

/* ---- protection domains and memory ---- */
struct ibv_pd *ibv_alloc_pd(struct ibv_context *context);
int ibv_dealloc_pd(struct ibv_pd *pd);
struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle);
void ibv_unimport_pd(struct ibv_pd *pd);
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                               int access);
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                unsigned int access);
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                 int fd, int access);
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
                 int access); /* enum ibv_rereg_mr_err_code and errno */
int ibv_dereg_mr(struct ibv_mr *mr);
struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle);
void ibv_unimport_mr(struct ibv_mr *mr);
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length,
                              int access);
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf); /* -1 and errno */
struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle);
void ibv_unimport_dm(struct ibv_dm *dm);
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm); /* -1 and errno */
struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attr);
int ibv_dealloc_dmah(struct ibv_dmah *dmah);

/* ---- completion queues ---- */
struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int comp_vector);
int ibv_resize_cq(struct ibv_cq *cq, int cqe);
int ibv_destroy_cq(struct ibv_cq *cq);
int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps,
                              size_t caps_size);
struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context,
                                           struct ibv_comp_cntr_init_attr *attr);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter);
int ibv_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);

/* ---- queues ---- */
struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int ibv_destroy_srq(struct ibv_srq *srq);
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp);
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init_attr);
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags);
int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter,
                            struct ibv_qp_attach_comp_cntr_attr *attr);
int ibv_destroy_qp(struct ibv_qp *qp);
int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece);

/* ---- addresses ---- */
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
                        struct ibv_grh *grh, struct ibv_ah_attr *attr);
struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
                                     uint8_t port_num);
int ibv_destroy_ah(struct ibv_ah *ah);
int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
                                uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid);

/* ---- names and rates ---- */
const char *ibv_node_type_str(enum ibv_node_type type);
const char *ibv_port_state_str(enum ibv_port_state state);
const char *ibv_event_type_str(enum ibv_event_type type);
const char *ibv_wc_status_str(enum ibv_wc_status status);
const char *ibv_wr_opcode_str(enum ibv_wr_opcode opcode);
int ibv_rate_to_mult(enum ibv_rate rate) __attribute__((const));
int ibv_rate_to_mbps(enum ibv_rate rate) __attribute__((const));
enum ibv_rate mult_to_ibv_rate(int mult) __attribute__((const));
enum ibv_rate mbps_to_ibv_rate(int mbps) __attribute__((const));

#endif
