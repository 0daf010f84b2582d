// SPDX-License-Identifier: Apache-2.0
/*
 * The calls about completion queues that are exported, and ibv_modify_cq. Polling and arming are
 * in context.c, the extended CQ in cq_ex.c.
 */
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
                            VB_IF_OPEN(cq->context, vb_cq_resize((struct vb_cq *)cq, cqe)));
}

int vb_dropin_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
    int error = VB_IF_OPEN(cq->context, 0);

    if (!error && attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
        error = -EOPNOTSUPP;
    if (!error && attr->attr_mask)
        error =
            vb_cq_moderate((struct vb_cq *)cq, attr->moderate.cq_count, attr->moderate.cq_period);
    return vb_dropin_result(cq->context, "ibv_modify_cq", error);
}

VB_DESTROY(VB_EXPORT int, ibv_destroy_cq, "ibv_destroy_cq", ibv_cq, vb_cq, vb_cq_destroy)
