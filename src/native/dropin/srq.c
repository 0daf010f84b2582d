// SPDX-License-Identifier: Apache-2.0
/*
 * The calls about shared receive queues, also those of XRC. Posting is in context.c.
 */
#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/export.h"

VB_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    struct vb_srq *srq;
    int error = VB_IF_OPEN(
        pd->context, vb_srq_create(vb_dropin_core(pd->context), (struct vb_pd *)pd, attr, &srq));

    return error ? vb_dropin_failed_null(pd->context, "ibv_create_srq", error) : &srq->ibv;
}

static struct ibv_srq *create_xrc(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
    const uint32_t needed = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    struct vb_context *core = vb_dropin_core(context);
    struct vb_srq *srq;
    int error;

    if (!core)
        return vb_dropin_failed_null(context, "ibv_create_srq", -VB_ERROR_FORKED);
    if ((attr->comp_mask & needed) != needed || !attr->xrcd || !attr->cq)
        return vb_dropin_failed_null(
            context, "ibv_create_srq_ex",
            vb_decline(core, -EINVAL, "an XRC SRQ needs an XRC domain and a CQ of its own"));
    if (((struct vb_pd *)attr->pd)->context != core ||
        ((struct vb_cq *)attr->cq)->context != core ||
        ((struct vb_xrcd *)attr->xrcd)->context != core)
        return vb_dropin_failed_null(
            context, "ibv_create_srq_ex",
            vb_decline(core, -EINVAL, "an XRC SRQ, its PD, domain and CQ are of one context"));
    error = vb_srq_create_xrc(core, (struct vb_pd *)attr->pd, (struct vb_xrcd *)attr->xrcd,
                              (struct vb_cq *)attr->cq, (struct ibv_srq_init_attr *)attr, &srq);
    return error ? vb_dropin_failed_null(context, "ibv_create_srq_ex", error) : &srq->ibv;
}

/* Tag matching is not offered. */
struct ibv_srq *vb_dropin_create_srq_ex(struct ibv_context *context,
                                        struct ibv_srq_init_attr_ex *attr)
{
    const uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                           IBV_SRQ_INIT_ATTR_CQ;
    enum ibv_srq_type type =
        attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type : IBV_SRQT_BASIC;

    if (attr->comp_mask & ~known || (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC))
        return vb_dropin_failed_null(context, "ibv_create_srq_ex", -EOPNOTSUPP);
    if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd)
        return vb_dropin_failed_null(context, "ibv_create_srq_ex", -EINVAL);
    if (type == IBV_SRQT_XRC)
        return create_xrc(context, attr);
    return ibv_create_srq(attr->pd, (struct ibv_srq_init_attr *)attr);
}

/* Only XRC SRQs have numbers, since only XRC requests name an SRQ. */
int vb_dropin_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num)
{
    const struct vb_srq *own = (struct vb_srq *)srq;

    if (!vb_dropin_core(srq->context))
        return vb_dropin_failed(srq->context, "ibv_get_srq_num", -VB_ERROR_FORKED);
    if (!own->xrcd)
        return vb_dropin_result(srq->context, "ibv_get_srq_num",
                                vb_decline(own->context, -EINVAL, "only XRC SRQs have numbers"));
    *srq_num = own->srq_num;
    return 0;
}

VB_EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
    return vb_dropin_result(
        srq->context, "ibv_modify_srq",
        VB_IF_OPEN(srq->context, vb_srq_modify((struct vb_srq *)srq, attr, mask)));
}

VB_EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
    if (!vb_dropin_core(srq->context))
        return vb_dropin_failed(srq->context, "ibv_query_srq", -VB_ERROR_FORKED);
    vb_srq_query((struct vb_srq *)srq, attr);
    return 0;
}

VB_DESTROY(VB_EXPORT int, ibv_destroy_srq, "ibv_destroy_srq", ibv_srq, vb_srq, vb_srq_destroy)
