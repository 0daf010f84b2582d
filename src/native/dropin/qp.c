// SPDX-License-Identifier: Apache-2.0
/*
 * The calls about queue pairs but for posting (context.c) and the extended queue pair (qp_ex.c).
 * They check what is offered; the core checks states and limits.
 */
#include <stdlib.h>

#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/qp_ex.h"

VB_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct ibv_qp_init_attr_ex extended = {
        .qp_context = attr->qp_context,
        .send_cq = attr->send_cq,
        .recv_cq = attr->recv_cq,
        .srq = attr->srq,
        .cap = attr->cap,
        .qp_type = attr->qp_type,
        .sq_sig_all = attr->sq_sig_all,
        .comp_mask = IBV_QP_INIT_ATTR_PD,
        .pd = pd,
    };
    struct ibv_qp *qp = vb_dropin_create_qp_ex(pd->context, &extended);

    if (qp)
        attr->cap = extended.cap;
    return qp;
}

static int qp_check_offered(struct vb_context *core, const struct ibv_qp_init_attr_ex *attr)
{
    const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
                           IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const uint32_t domain =
        attr->qp_type == IBV_QPT_XRC_RECV ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD;

    if (attr->comp_mask & ~known)
        return vb_decline(core, -EOPNOTSUPP, "the parts {0x} of comp_mask are not offered",
                          attr->comp_mask & ~known);
    if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) &&
        (attr->create_flags & ~(uint32_t)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB))
        return vb_decline(core, -EOPNOTSUPP,
                          "of create_flags {0x} only IBV_QP_CREATE_BLOCK_SELF_MCAST_LB is offered",
                          attr->create_flags);
    if (!(attr->comp_mask & domain))
        return vb_decline(core, -EINVAL, "comp_mask lacks {0n}, and a QP of type {1t} needs one",
                          domain == IBV_QP_INIT_ATTR_PD ? VB_NAME("IBV_QP_INIT_ATTR_PD")
                                                        : VB_NAME("IBV_QP_INIT_ATTR_XRCD"),
                          attr->qp_type);
    if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
        vb_dropin_send_ops_check(attr->qp_type, attr->send_ops_flags))
        return vb_decline(core, -EOPNOTSUPP,
                          "among send_ops_flags {0x} are some that a QP of type {1t} does not send",
                          attr->send_ops_flags, attr->qp_type);
    return 0;
}

struct ibv_qp *vb_dropin_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
    struct vb_context *core = vb_dropin_core(context);
    struct vb_qp *qp;
    int error = VB_IF_OPEN(context, qp_check_offered(vb_dropin_core(context), attr));

    if (!error)
        error = vb_qp_create(core, attr, &qp);
    if (!error && (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) {
        error = vb_dropin_send_ops_init(qp);
        if (error)
            vb_qp_destroy(qp);
    }
    return error ? vb_dropin_failed_null(context, "ibv_create_qp", error) : &qp->verbs->ibv;
}

/* Programs give XRC QPs the attributes that RC needs. The kernel's interface drops those that the
 * type does not have, and so does this. */
static int mask_for(enum ibv_qp_type type, int mask)
{
    switch (type) {
    case IBV_QPT_XRC_SEND:
        return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    case IBV_QPT_XRC_RECV:
        return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
    default:
        return mask;
    }
}

VB_EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    int error = VB_IF_OPEN(qp->context, 0);

    if (!error && (mask & IBV_QP_AV))
        error = vb_dropin_check_source(qp->context, &attr->ah_attr);
    if (!error)
        error = vb_qp_modify(vb_qp_of(qp), attr, mask_for(qp->qp_type, mask));
    return vb_dropin_result(qp->context, "ibv_modify_qp", error);
}

int vb_dropin_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
{
    return vb_dropin_result(qp->context, "ibv_modify_qp_rate_limit",
                            VB_IF_OPEN(qp->context, vb_qp_limit_rate(vb_qp_of(qp), attr)));
}

VB_EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                           struct ibv_qp_init_attr *init_attr)
{
    return vb_dropin_result(
        qp->context, "ibv_query_qp",
        VB_IF_OPEN(qp->context, vb_qp_query(vb_qp_of(qp), attr, mask, init_attr)));
}

/* 0: the bytes of a request may arrive in any order. */
VB_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
    (void)qp, (void)op, (void)flags;
    return 0;
}

/* RoCE has no multicast LIDs. */
VB_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    int before = errno,
        error = VB_IF_OPEN(qp->context, vb_multicast_attach(vb_qp_of(qp), gid->raw));

    (void)lid;
    errno = before; /* the call meets other processes, some of which may be gone */
    return vb_dropin_result(qp->context, "ibv_attach_mcast", error);
}

/* On a context that is not open this succeeds: a closed device has no attached QP. */
VB_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    int before = errno,
        error = vb_dropin_core(qp->context) ? vb_multicast_detach(vb_qp_of(qp), gid->raw) : 0;

    (void)lid;
    errno = before; /* an interface with two addresses leaves the group only once */
    return error ? vb_dropin_result(qp->context, "ibv_detach_mcast", error) : 0;
}

VB_EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
    struct ibv_context *context = qp->context; /* it is read when the QP is gone */
    struct vb_qp *own = vb_qp_of(qp);

    if (vb_dropin_core(context))
        return vb_dropin_result(context, "ibv_destroy_qp", vb_qp_destroy(own));
    if (vb_dropin_open_of(context)->ended)
        free(own->verbs->staging);
    return vb_dropin_destroy_closed(context, own);
}
