// SPDX-License-Identifier: Apache-2.0
/*
 * The calls about memory windows, which programs reach through the context's table. A window of
 * type 2 is bound by a request, which the core carries out.
 */
#include "dropin/context.h"
#include "dropin/failures.h"

struct ibv_mw *vb_dropin_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
    struct vb_mw *mw;
    int error = VB_IF_OPEN(pd->context, vb_mw_alloc((struct vb_pd *)pd, type, &mw));

    return error ? vb_dropin_failed_null(pd->context, "ibv_alloc_mw", error) : &mw->ibv;
}

int vb_dropin_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
    return vb_dropin_result(
        qp->context, "ibv_bind_mw",
        VB_IF_OPEN(qp->context, vb_mw_bind(vb_qp_of(qp), (struct vb_mw *)mw, bind)));
}

VB_DESTROY(int, vb_dropin_dealloc_mw, "ibv_dealloc_mw", ibv_mw, vb_mw, vb_mw_dealloc)
