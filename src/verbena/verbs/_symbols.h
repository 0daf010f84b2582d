// SPDX-License-Identifier: Apache-2.0
// The functions of one loaded libibverbs, each with the version node that fixes its signature.
#ifndef VERBENA_VERBS_SYMBOLS_H
#define VERBENA_VERBS_SYMBOLS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "abi/verbs.h"

struct ibv_grh;
struct vb_sim_attachment;

#define VB_REQUIRED(X)                                                                             \
    X(struct ibv_device **, get_device_list, "ibv_get_device_list", "IBVERBS_1.1", (int *))        \
    X(void, free_device_list, "ibv_free_device_list", "IBVERBS_1.1", (struct ibv_device **))       \
    X(uint64_t, get_device_guid, "ibv_get_device_guid", "IBVERBS_1.1", (struct ibv_device *))      \
    X(struct ibv_context *, open_device, "ibv_open_device", "IBVERBS_1.1", (struct ibv_device *))  \
    X(int, close_device, "ibv_close_device", "IBVERBS_1.1", (struct ibv_context *))                \
    X(int, get_async_event, "ibv_get_async_event", "IBVERBS_1.1",                                  \
      (struct ibv_context *, struct ibv_async_event *))                                            \
    X(void, ack_async_event, "ibv_ack_async_event", "IBVERBS_1.1", (struct ibv_async_event *))     \
    X(int, query_device, "ibv_query_device", "IBVERBS_1.1",                                        \
      (struct ibv_context *, struct ibv_device_attr *))                                            \
    X(int, query_port, "ibv_query_port", "IBVERBS_1.1",                                            \
      (struct ibv_context *, uint8_t, struct ibv_port_attr *))                                     \
    X(int, query_gid, "ibv_query_gid", "IBVERBS_1.1",                                              \
      (struct ibv_context *, uint8_t, int, union ibv_gid *))                                       \
    X(int, query_pkey, "ibv_query_pkey", "IBVERBS_1.1",                                            \
      (struct ibv_context *, uint8_t, int, uint16_t *))                                            \
    X(struct ibv_pd *, alloc_pd, "ibv_alloc_pd", "IBVERBS_1.1", (struct ibv_context *))            \
    X(int, dealloc_pd, "ibv_dealloc_pd", "IBVERBS_1.1", (struct ibv_pd *))                         \
    X(struct ibv_mr *, reg_mr, "ibv_reg_mr", "IBVERBS_1.1",                                        \
      (struct ibv_pd *, void *, size_t, int))                                                      \
    X(int, dereg_mr, "ibv_dereg_mr", "IBVERBS_1.1", (struct ibv_mr *))                             \
    X(int, rereg_mr, "ibv_rereg_mr", "IBVERBS_1.1",                                                \
      (struct ibv_mr *, int, struct ibv_pd *, void *, size_t, int))                                \
    X(struct ibv_comp_channel *, create_comp_channel, "ibv_create_comp_channel", "IBVERBS_1.0",    \
      (struct ibv_context *))                                                                      \
    X(int, destroy_comp_channel, "ibv_destroy_comp_channel", "IBVERBS_1.0",                        \
      (struct ibv_comp_channel *))                                                                 \
    X(struct ibv_cq *, create_cq, "ibv_create_cq", "IBVERBS_1.1",                                  \
      (struct ibv_context *, int, void *, struct ibv_comp_channel *, int))                         \
    X(int, resize_cq, "ibv_resize_cq", "IBVERBS_1.1", (struct ibv_cq *, int))                      \
    X(int, destroy_cq, "ibv_destroy_cq", "IBVERBS_1.1", (struct ibv_cq *))                         \
    X(int, get_cq_event, "ibv_get_cq_event", "IBVERBS_1.1",                                        \
      (struct ibv_comp_channel *, struct ibv_cq **, void **))                                      \
    X(void, ack_cq_events, "ibv_ack_cq_events", "IBVERBS_1.1", (struct ibv_cq *, unsigned int))    \
    X(struct ibv_srq *, create_srq, "ibv_create_srq", "IBVERBS_1.1",                               \
      (struct ibv_pd *, struct ibv_srq_init_attr *))                                               \
    X(int, modify_srq, "ibv_modify_srq", "IBVERBS_1.1",                                            \
      (struct ibv_srq *, struct ibv_srq_attr *, int))                                              \
    X(int, query_srq, "ibv_query_srq", "IBVERBS_1.1", (struct ibv_srq *, struct ibv_srq_attr *))   \
    X(int, destroy_srq, "ibv_destroy_srq", "IBVERBS_1.1", (struct ibv_srq *))                      \
    X(struct ibv_qp *, create_qp, "ibv_create_qp", "IBVERBS_1.1",                                  \
      (struct ibv_pd *, struct ibv_qp_init_attr *))                                                \
    X(int, modify_qp, "ibv_modify_qp", "IBVERBS_1.1",                                              \
      (struct ibv_qp *, struct ibv_qp_attr *, int))                                                \
    X(int, query_qp, "ibv_query_qp", "IBVERBS_1.1",                                                \
      (struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *))                     \
    X(int, destroy_qp, "ibv_destroy_qp", "IBVERBS_1.1", (struct ibv_qp *))                         \
    X(int, attach_mcast, "ibv_attach_mcast", "IBVERBS_1.1",                                        \
      (struct ibv_qp *, const union ibv_gid *, uint16_t))                                          \
    X(int, detach_mcast, "ibv_detach_mcast", "IBVERBS_1.1",                                        \
      (struct ibv_qp *, const union ibv_gid *, uint16_t))                                          \
    X(struct ibv_ah *, create_ah, "ibv_create_ah", "IBVERBS_1.1",                                  \
      (struct ibv_pd *, struct ibv_ah_attr *))                                                     \
    X(struct ibv_ah *, create_ah_from_wc, "ibv_create_ah_from_wc", "IBVERBS_1.1",                  \
      (struct ibv_pd *, struct ibv_wc *, struct ibv_grh *, uint8_t))                               \
    X(int, destroy_ah, "ibv_destroy_ah", "IBVERBS_1.1", (struct ibv_ah *))

#define VB_OPTIONAL(X)                                                                             \
    X(struct ibv_mr *, reg_mr_iova2, "ibv_reg_mr_iova2", "IBVERBS_1.8",                            \
      (struct ibv_pd *, void *, size_t, uint64_t, unsigned int))                                   \
    X(int, query_gid_ex, "_ibv_query_gid_ex", "IBVERBS_1.11",                                      \
      (struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *, uint32_t, size_t))        \
    X(ssize_t, query_gid_table, "_ibv_query_gid_table", "IBVERBS_1.11",                            \
      (struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t))                    \
    X(void *, heap_alloc, "verbena_heap_alloc", "VERBENA_1", (size_t, size_t))                     \
    X(void, heap_free, "verbena_heap_free", "VERBENA_1", (void *))                                 \
    X(int, explain, "verbena_explain", "VERBENA_1",                                                \
      (struct ibv_context *, uint32_t, char *, size_t))                                            \
    X(int, event_text, "verbena_event_text", "VERBENA_1",                                          \
      (const struct ibv_async_event *, char *, size_t))                                            \
    X(int, why, "verbena_why", "VERBENA_1", (struct ibv_context *, int, char *, size_t))           \
    X(int, post_flush, "verbena_post_flush", "VERBENA_1",                                          \
      (struct ibv_qp *, const struct ibv_send_wr *, size_t, uint8_t, uint8_t))                     \
    X(int, describe, "verbena_describe", "VERBENA_1", (struct ibv_context *, char *, size_t))      \
    X(int, counters, "verbena_counters", "VERBENA_1", (struct ibv_context *, char *, size_t))      \
    X(int, set_fault, "verbena_set_fault", "VERBENA_1",                                            \
      (struct ibv_context *, const char *, char *, size_t))                                        \
    X(int, fault_counters, "verbena_fault_counters", "VERBENA_1",                                  \
      (struct ibv_context *, char *, size_t))                                                      \
    X(int, attach, "verbena_attach", "VERBENA_1",                                                  \
      (struct vb_sim_attachment *, const char *, struct ibv_device **))                            \
    X(void, detach, "verbena_detach", "VERBENA_1", (struct ibv_device *))                          \
    X(int, step, "verbena_step", "VERBENA_1", (struct ibv_context *, uint64_t))                    \
    X(uint64_t, world_time, "verbena_world_time", "VERBENA_1", (struct ibv_context *))             \
    X(uint64_t, written_time, "verbena_written_time", "VERBENA_1", (struct ibv_context *))         \
    X(int, keep_events, "verbena_keep_events", "VERBENA_1", (struct ibv_comp_channel *, int))      \
    X(uint32_t, kept_events, "verbena_kept_events", "VERBENA_1",                                   \
      (const struct ibv_comp_channel *))                                                           \
    X(uint32_t, raised_events, "verbena_raised_events", "VERBENA_1",                               \
      (struct ibv_comp_channel *, int))

struct vb_symbols {
#define VB_MEMBER(ret, name, symbol, version, args) ret(*name) args;
    VB_REQUIRED(VB_MEMBER)
    VB_OPTIONAL(VB_MEMBER)
#undef VB_MEMBER
};

// Fills the table; returns the first required symbol that is missing, NULL if none is.
static inline const char *vb_resolve(void *handle, struct vb_symbols *table)
{
#define VB_FIND(ret, name, symbol, version, args)                                                  \
    *(void **)&table->name = dlvsym(handle, symbol, version);
#define VB_DEMAND(ret, name, symbol, version, args)                                                \
    VB_FIND(ret, name, symbol, version, args)                                                      \
    if (!table->name)                                                                              \
        return symbol "@" version;
    VB_REQUIRED(VB_DEMAND)
    VB_OPTIONAL(VB_FIND)
#undef VB_DEMAND
#undef VB_FIND
    return NULL;
}

// The file of a Verbena that stands in front of every other libibverbs (`verbena run`), or NULL.
static inline const char *vb_in_front(void)
{
    void *symbol = dlvsym(RTLD_DEFAULT, "verbena_explain", "VERBENA_1");
    Dl_info info;
    return symbol && dladdr(symbol, &info) ? info.dli_fname : NULL;
}

// The extended table that lies before a context, if the library's reaches down to `offset`.
static inline struct verbs_context *vb_extended(struct ibv_context *context, size_t offset)
{
    if (context->abi_compat != (void *)UINTPTR_MAX)
        return NULL;
    struct verbs_context *extended =
        (struct verbs_context *)((char *)context - offsetof(struct verbs_context, context));
    return extended->sz >= sizeof *extended - offset ? extended : NULL;
}

// The exported ibv_query_port fills only the first 48 bytes, so the table's is asked first.
static inline int vb_query_port(const struct vb_symbols *table, struct ibv_context *context,
                                uint8_t port, struct ibv_port_attr *attr)
{
    struct verbs_context *extended =
        vb_extended(context, offsetof(struct verbs_context, query_port));
    memset(attr, 0, sizeof *attr);
    if (extended && extended->query_port)
        return extended->query_port(context, port, attr, sizeof *attr);
    return table->query_port(context, port, attr);
}

#endif
