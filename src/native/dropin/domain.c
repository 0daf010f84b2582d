// SPDX-License-Identifier: Apache-2.0
/* Thread domains and parent domains. */
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

int vb_dropin_dealloc_td(struct ibv_td *td)
{
    struct ibv_context *context = td->context; /* read when the object is gone */

    return vb_dropin_core(context)
               ? vb_dropin_result(context, "ibv_dealloc_td", vb_td_dealloc((struct vb_td *)td))
               : vb_dropin_bury(context, td);
}

struct ibv_pd *vb_dropin_alloc_parent_domain(struct ibv_context *context,
                                             struct ibv_parent_domain_init_attr *attr)
{
    struct vb_context *core = vb_dropin_core(context);
    struct vb_pd *pd;
    int error;

    if (!core)
        return vb_dropin_failed_null(context, "ibv_alloc_parent_domain", -VB_ERROR_FORKED);
    error = vb_parent_domain_alloc(core, attr, &pd);
    return error ? vb_dropin_failed_null(context, "ibv_alloc_parent_domain", error) : &pd->ibv;
}
