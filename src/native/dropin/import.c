// SPDX-License-Identifier: Apache-2.0
/*
 * ibv_import_pd, _mr and _dm: objects of one context of this process under another context, which
 * ibv_import_device has made. Objects of another process cannot be imported, since a handle names
 * memory of its process.
 */
#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/device.h"
#include "dropin/export.h"

static int one_pd(void *to, struct vb_context *from, uint32_t handle, void *made)
{
    return vb_pd_import(to, from, handle, made);
}

VB_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
    struct vb_pd *made;
    int error = vb_dropin_import(context, one_pd, vb_dropin_core(context), handle, &made);

    return error ? vb_dropin_failed_null(context, "ibv_import_pd", error) : &made->ibv;
}

VB_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
    if (vb_dropin_core(pd->context))
        vb_pd_unimport((struct vb_pd *)pd);
    else if (((const struct vb_pd *)pd)->imported)
        vb_dropin_destroy_closed(pd->context, pd);
}

static int one_mr(void *to, struct vb_context *from, uint32_t handle, void *made)
{
    return vb_mr_import(to, from, handle, made);
}

VB_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
    struct vb_mr *made;
    int error = vb_dropin_import(pd->context, one_mr, pd, handle, &made);

    return error ? vb_dropin_failed_null(pd->context, "ibv_import_mr", error) : &made->ibv;
}

VB_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
    if (vb_dropin_core(mr->context))
        vb_mr_unimport((struct vb_mr *)mr);
    else if (((const struct vb_mr *)mr)->kind == VB_MR_IMPORTED)
        vb_dropin_destroy_closed(mr->context, mr);
}

static int one_dm(void *to, struct vb_context *from, uint32_t handle, void *made)
{
    return vb_dm_import(to, from, handle, made);
}

VB_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
    struct vb_dm *made;
    int error = vb_dropin_import(context, one_dm, vb_dropin_core(context), handle, &made);

    return error ? vb_dropin_failed_null(context, "ibv_import_dm", error) : &made->ibv;
}

VB_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
    if (vb_dropin_core(dm->context))
        vb_dm_unimport((struct vb_dm *)dm);
    else if (((const struct vb_dm *)dm)->imported)
        vb_dropin_destroy_closed(dm->context, dm);
}
