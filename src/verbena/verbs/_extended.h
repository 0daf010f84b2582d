// SPDX-License-Identifier: Apache-2.0
// Verbs that only the extended table leads to; EOPNOTSUPP where the library's has them not.
#ifndef VERBENA_VERBS_EXTENDED_H
#define VERBENA_VERBS_EXTENDED_H

#include <errno.h>
#include <stdbool.h>

#include "_symbols.h"

#define VB_SLOT(context, slot)                                                                     \
    struct verbs_context *table = vb_extended(context, offsetof(struct verbs_context, slot));      \
    bool found = table && table->slot

static inline struct ibv_mr *vb_alloc_null_mr(struct ibv_pd *pd)
{
    VB_SLOT(pd->context, alloc_null_mr);
    errno = EOPNOTSUPP;
    return found ? table->alloc_null_mr(pd) : NULL;
}

static inline int vb_advise_mr(struct ibv_pd *pd, int advice, uint32_t flags,
                               struct ibv_sge *sg_list, uint32_t num_sge)
{
    VB_SLOT(pd->context, advise_mr);
    return found ? table->advise_mr(pd, (enum ibv_advise_mr_advice)advice, flags, sg_list, num_sge)
                 : EOPNOTSUPP;
}

static inline struct ibv_dm *vb_alloc_dm(struct ibv_context *context, size_t length,
                                         uint32_t log_align_req)
{
    struct ibv_alloc_dm_attr attr = {.length = length, .log_align_req = log_align_req};
    VB_SLOT(context, alloc_dm);
    errno = EOPNOTSUPP;
    return found ? table->alloc_dm(context, &attr) : NULL;
}

static inline int vb_free_dm(struct ibv_dm *dm)
{
    VB_SLOT(dm->context, free_dm);
    return found ? table->free_dm(dm) : EOPNOTSUPP;
}

static inline struct ibv_mr *vb_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset,
                                          size_t length, unsigned int access)
{
    VB_SLOT(pd->context, reg_dm_mr);
    errno = EOPNOTSUPP;
    return found ? table->reg_dm_mr(pd, dm, offset, length, access) : NULL;
}

static inline struct ibv_td *vb_alloc_td(struct ibv_context *context)
{
    struct ibv_td_init_attr attr = {0};
    VB_SLOT(context, alloc_td);
    errno = EOPNOTSUPP;
    return found ? table->alloc_td(context, &attr) : NULL;
}

static inline int vb_dealloc_td(struct ibv_td *td)
{
    VB_SLOT(td->context, dealloc_td);
    return found ? table->dealloc_td(td) : EOPNOTSUPP;
}

static inline struct ibv_pd *vb_alloc_parent_domain(struct ibv_pd *pd, struct ibv_td *td)
{
    struct ibv_parent_domain_init_attr attr = {.pd = pd, .td = td};
    VB_SLOT(pd->context, alloc_parent_domain);
    errno = EOPNOTSUPP;
    return found ? table->alloc_parent_domain(pd->context, &attr) : NULL;
}

// What of the extended attributes is about memory; all 0 where the library has none.
static inline int vb_query_memory(struct ibv_context *context, struct ibv_device_attr_ex *attr)
{
    VB_SLOT(context, query_device_ex);
    memset(attr, 0, sizeof *attr);
    return found ? table->query_device_ex(context, NULL, attr, sizeof *attr) : 0;
}

#endif
