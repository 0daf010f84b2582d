// SPDX-License-Identifier: Apache-2.0
/* Public calls that Verbena does not offer: each says EOPNOTSUPP, in its own way. */
#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/export.h"

/* Functions whose parameters do not matter; the compiler knows their prototypes from calls.h. */
#define NO_INT(name, ...)                                                                          \
    VB_EXPORT int name(__VA_ARGS__)                                                                \
    {                                                                                              \
        vb_not_offered(#name);                                                                     \
        return EOPNOTSUPP;                                                                         \
    }
#define NO_DESCRIPTOR(name, ...)                                                                   \
    VB_EXPORT int name(__VA_ARGS__)                                                                \
    {                                                                                              \
        vb_not_offered(#name);                                                                     \
        return -1;                                                                                 \
    }
#define NO_POINTER(type, name, ...)                                                                \
    VB_EXPORT type *name(__VA_ARGS__)                                                              \
    {                                                                                              \
        vb_not_offered(#name);                                                                     \
        return NULL;                                                                               \
    }
#define NO_EFFECT(name, ...)                                                                       \
    VB_EXPORT void name(__VA_ARGS__)                                                               \
    {                                                                                              \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"

/* ---- objects shared between processes by the kernel's handles ---- */
NO_POINTER(struct ibv_pd, ibv_import_pd, struct ibv_context *context, uint32_t handle)
NO_EFFECT(ibv_unimport_pd, struct ibv_pd *pd)
NO_POINTER(struct ibv_mr, ibv_import_mr, struct ibv_pd *pd, uint32_t handle)
NO_EFFECT(ibv_unimport_mr, struct ibv_mr *mr)
NO_POINTER(struct ibv_dm, ibv_import_dm, struct ibv_context *context, uint32_t handle)
NO_EFFECT(ibv_unimport_dm, struct ibv_dm *dm)

/* ---- device memory as a dma-buf, DMA hints ---- */
NO_DESCRIPTOR(ibv_dm_export_dmabuf_fd, struct ibv_dm *dm)
NO_POINTER(struct ibv_dmah, ibv_alloc_dmah, struct ibv_context *context,
           struct ibv_dmah_init_attr *attr)
NO_INT(ibv_dealloc_dmah, struct ibv_dmah *dmah)

/* ---- enhanced connection establishment: a vendor's own negotiation ---- */
NO_INT(ibv_set_ece, struct ibv_qp *qp, struct ibv_ece *ece)
NO_INT(ibv_query_ece, struct ibv_qp *qp, struct ibv_ece *ece)

/* ---- completion counters ---- */
NO_INT(_ibv_query_comp_cntr_caps, struct ibv_context *context, struct ibv_comp_cntr_caps *caps,
       size_t caps_size)
NO_POINTER(struct ibv_comp_cntr, ibv_create_comp_cntr, struct ibv_context *context,
           struct ibv_comp_cntr_init_attr *attr)
NO_INT(ibv_destroy_comp_cntr, struct ibv_comp_cntr *counter)
NO_INT(ibv_set_comp_cntr, struct ibv_comp_cntr *counter, uint64_t value)
NO_INT(ibv_set_err_comp_cntr, struct ibv_comp_cntr *counter, uint64_t value)
NO_INT(ibv_inc_comp_cntr, struct ibv_comp_cntr *counter, uint64_t amount)
NO_INT(ibv_inc_err_comp_cntr, struct ibv_comp_cntr *counter, uint64_t amount)
NO_INT(ibv_read_comp_cntr, struct ibv_comp_cntr *counter, uint64_t *value)
NO_INT(ibv_read_err_comp_cntr, struct ibv_comp_cntr *counter, uint64_t *value)
NO_INT(ibv_qp_attach_comp_cntr, struct ibv_qp *qp, struct ibv_comp_cntr *counter,
       struct ibv_qp_attach_comp_cntr_attr *attr)
