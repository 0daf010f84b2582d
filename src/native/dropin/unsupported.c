// SPDX-License-Identifier: Apache-2.0
/*
 * Calls of libibverbs that Verbena does not offer. Each fails with EOPNOTSUPP, as its kind of call
 * reports errors.
 */
#include <errno.h>

#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/export.h"

/* Functions whose parameters do not matter; the compiler knows their prototypes from calls.h. */
#define NO_INT(name, ...)                                                                          \
    VB_EXPORT int name(__VA_ARGS__)                                                                \
    {                                                                                              \
        vb_dropin_not_offered(#name);                                                              \
        return EOPNOTSUPP;                                                                         \
    }
#define NO_DESCRIPTOR(name, ...)                                                                   \
    VB_EXPORT int name(__VA_ARGS__)                                                                \
    {                                                                                              \
        vb_dropin_not_offered(#name);                                                              \
        return -1;                                                                                 \
    }
#define NO_POINTER(type, name, ...)                                                                \
    VB_EXPORT type *name(__VA_ARGS__)                                                              \
    {                                                                                              \
        vb_dropin_not_offered(#name);                                                              \
        return NULL;                                                                               \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"

/* ---- device memory as a dma-buf, DMA hints ---- */
NO_DESCRIPTOR(ibv_dm_export_dmabuf_fd, struct ibv_dm *dm)
NO_POINTER(struct ibv_dmah, ibv_alloc_dmah, struct ibv_context *context,
           struct ibv_dmah_init_attr *attr)
NO_INT(ibv_dealloc_dmah, struct ibv_dmah *dmah)

/* ---- enhanced connection establishment: a vendor's own negotiation ---- */
/* librdmacm calls these for each connection, and goes on without: no failures to log. */
VB_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    return errno = EOPNOTSUPP;
}
VB_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    return errno = EOPNOTSUPP;
}

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
