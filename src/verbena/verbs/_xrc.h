// SPDX-License-Identifier: Apache-2.0
// XRC, which only the extended table of a context leads to. NULL or -1 and errno, as there.
#ifndef VERBENA_VERBS_XRC_H
#define VERBENA_VERBS_XRC_H

#include <errno.h>

#include "_symbols.h"

// The table, if it reaches down to this function and has it; else NULL and EOPNOTSUPP.
#define VB_XRC_TABLE(context, function)                                                            \
    vb_xrc_with(vb_extended(context, offsetof(struct verbs_context, function)),                    \
                offsetof(struct verbs_context, function))

static inline struct verbs_context *vb_xrc_with(struct verbs_context *table, size_t offset)
{
    if (table && *(void **)((char *)table + offset))
        return table;
    errno = EOPNOTSUPP;
    return NULL;
}

static inline struct ibv_xrcd *vb_xrc_open(struct ibv_context *context, int fd, int oflags)
{
    struct verbs_context *table = VB_XRC_TABLE(context, open_xrcd);
    struct ibv_xrcd_init_attr attr = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = oflags};

    return table ? table->open_xrcd(context, &attr) : NULL;
}

static inline int vb_xrc_close(struct ibv_xrcd *xrcd)
{
    return VB_XRC_TABLE(xrcd->context, open_xrcd)->close_xrcd(xrcd);
}

static inline struct ibv_srq *vb_xrc_create_srq(struct ibv_pd *pd, struct ibv_xrcd *xrcd,
                                                struct ibv_cq *cq,
                                                const struct ibv_srq_init_attr *init)
{
    struct verbs_context *table = VB_XRC_TABLE(pd->context, create_srq_ex);
    struct ibv_srq_init_attr_ex attr = {
        .srq_context = init->srq_context,
        .attr = init->attr,
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ,
        .srq_type = IBV_SRQT_XRC,
        .pd = pd,
        .xrcd = xrcd,
        .cq = cq,
    };

    return table ? table->create_srq_ex(pd->context, &attr) : NULL;
}

// The SRQ's number, or -1.
static inline int64_t vb_xrc_srq_num(struct ibv_srq *srq)
{
    struct verbs_context *table = VB_XRC_TABLE(srq->context, get_srq_num);
    uint32_t number = 0;
    int error = table ? table->get_srq_num(srq, &number) : EOPNOTSUPP;

    errno = error;
    return error ? -1 : (int64_t)number;
}

static inline struct ibv_qp *vb_xrc_create_qp(struct ibv_xrcd *xrcd, void *qp_context)
{
    struct verbs_context *table = VB_XRC_TABLE(xrcd->context, create_qp_ex);
    struct ibv_qp_init_attr_ex attr = {
        .qp_context = qp_context,
        .qp_type = IBV_QPT_XRC_RECV,
        .comp_mask = IBV_QP_INIT_ATTR_XRCD,
        .xrcd = xrcd,
    };

    return table ? table->create_qp_ex(xrcd->context, &attr) : NULL;
}

static inline struct ibv_qp *vb_xrc_open_qp(struct ibv_xrcd *xrcd, uint32_t qp_num,
                                            void *qp_context)
{
    struct verbs_context *table = VB_XRC_TABLE(xrcd->context, open_qp);
    struct ibv_qp_open_attr attr = {
        .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_CONTEXT |
                     IBV_QP_OPEN_ATTR_TYPE,
        .qp_num = qp_num,
        .xrcd = xrcd,
        .qp_context = qp_context,
        .qp_type = IBV_QPT_XRC_RECV,
    };

    return table ? table->open_qp(xrcd->context, &attr) : NULL;
}

#endif
