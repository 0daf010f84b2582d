// SPDX-License-Identifier: Apache-2.0
#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/cq_ex.h"
#include "dropin/export.h"

int vb_dropin_new_cq(struct ibv_context *context, int cqe, void *cq_context,
                     struct ibv_comp_channel *channel, int comp_vector, struct vb_cq **cq)
{
    struct vb_context *core = vb_dropin_core(context);

    if (!core)
        return -VB_ERROR_FORKED;
    if (comp_vector < 0 || comp_vector >= context->num_comp_vectors)
        return vb_decline(core, -EINVAL,
                          "comp_vector is {0i} and the device has {1}, counted from 0",
                          (uint64_t)comp_vector, (unsigned)context->num_comp_vectors);
    return vb_cq_create(core, cqe, cq_context, (struct vb_channel *)channel, cq);
}

VB_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                       struct ibv_comp_channel *channel, int comp_vector)
{
    struct vb_cq *cq;
    int error = vb_dropin_new_cq(context, cqe, cq_context, channel, comp_vector, &cq);

    return error ? vb_dropin_failed_null(context, "ibv_create_cq", error) : &cq->ibv;
}

VB_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
    return vb_dropin_result(cq->context, "ibv_resize_cq",
                            vb_dropin_core(cq->context) ? vb_cq_resize((struct vb_cq *)cq, cqe)
                                                        : -VB_ERROR_FORKED);
}

int vb_dropin_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
    int error = vb_dropin_core(cq->context) ? 0 : -VB_ERROR_FORKED;

    if (!error && attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
        error = -EOPNOTSUPP;
    if (!error && attr->attr_mask)
        error =
            vb_cq_moderate((struct vb_cq *)cq, attr->moderate.cq_count, attr->moderate.cq_period);
    return vb_dropin_result(cq->context, "ibv_modify_cq", error);
}

VB_EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
    struct ibv_context *context = cq->context; /* read when the object is gone */

    return vb_dropin_core(context)
               ? vb_dropin_result(context, "ibv_destroy_cq", vb_cq_destroy((struct vb_cq *)cq))
               : vb_dropin_bury(context, cq);
}
