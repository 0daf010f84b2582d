// SPDX-License-Identifier: Apache-2.0
/*
 * The calls about thread domains and parent domains. Programs reach them through the context's
 * table.
 */
#include "dropin/context.h"
#include "dropin/failures.h"

struct ibv_td *vb_dropin_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
    struct vb_context *core = vb_dropin_core(context);
    struct vb_td *td;
    int error;

    if (!core)
        return vb_dropin_failed_null(context, "ibv_alloc_td", -VB_ERROR_FORKED);
    if (attr->comp_mask)
        return vb_dropin_failed_null(context, "ibv_alloc_td", -EINVAL);
    error = vb_td_alloc(core, &td);
    return error ? vb_dropin_failed_null(context, "ibv_alloc_td", error) : &td->ibv;
}

VB_DESTROY(int, vb_dropin_dealloc_td, "ibv_dealloc_td", ibv_td, vb_td, vb_td_dealloc)

struct ibv_pd *vb_dropin_alloc_parent_domain(struct ibv_context *context,
                                             struct ibv_parent_domain_init_attr *attr)
{
    struct vb_pd *pd;
    int error = VB_IF_OPEN(context, vb_parent_domain_alloc(vb_dropin_core(context), attr, &pd));

    return error ? vb_dropin_failed_null(context, "ibv_alloc_parent_domain", error) : &pd->ibv;
}
