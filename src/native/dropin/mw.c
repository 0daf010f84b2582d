// SPDX-License-Identifier: Apache-2.0
/* Memory windows. Those of type 2 are bound by requests; these are the calls. */
#include "dropin/context.h"
#include "dropin/failures.h"

struct ibv_mw *vb_dropin_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
    struct vb_mw *mw;
    int error;

    if (!vb_dropin_core(pd->context))
        return vb_dropin_failed_null(pd->context, "ibv_alloc_mw", -VB_ERROR_FORKED);
    error = vb_mw_alloc((struct vb_pd *)pd, type, &mw);
    return error ? vb_dropin_failed_null(pd->context, "ibv_alloc_mw", error) : &mw->ibv;
}

int vb_dropin_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
    return vb_dropin_result(qp->context, "ibv_bind_mw",
                            vb_dropin_core(qp->context)
                                ? vb_mw_bind(vb_qp_of(qp), (struct vb_mw *)mw, bind)
                                : -VB_ERROR_FORKED);
}

int vb_dropin_dealloc_mw(struct ibv_mw *mw)
{
    struct ibv_context *context = mw->context; /* read when the object is gone */

    return vb_dropin_core(context)
               ? vb_dropin_result(context, "ibv_dealloc_mw", vb_mw_dealloc((struct vb_mw *)mw))
               : vb_dropin_bury(context, mw);
}
