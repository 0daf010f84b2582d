// SPDX-License-Identifier: Apache-2.0
/*
 * Objects of one context of this process under another one that ibv_import_device has made. Those
 * of another process are out of reach: handles are this process's, and so is what they name.
 */
#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/device.h"
#include "dropin/export.h"

struct pd_import {
    struct vb_context *to;
    struct vb_pd *made;
};

static int one_pd(void *argument, struct vb_context *from, uint32_t handle)
{
    struct pd_import *import = argument;

    return vb_pd_import(import->to, from, handle, &import->made);
}

VB_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
    struct pd_import import = {.to = vb_dropin_core(context)};
    int error = vb_dropin_import(context, one_pd, &import, handle);

    return error ? vb_dropin_failed_null(context, "ibv_import_pd", error) : &import.made->ibv;
}

VB_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
    if (vb_dropin_core(pd->context))
        vb_pd_unimport((struct vb_pd *)pd);
    else if (((const struct vb_pd *)pd)->imported)
        vb_dropin_bury(pd->context, pd);
}

struct mr_import {
    struct vb_pd *to;
    struct vb_mr *made;
};

static int one_mr(void *argument, struct vb_context *from, uint32_t handle)
{
    struct mr_import *import = argument;

    return vb_mr_import(import->to, from, handle, &import->made);
}

VB_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
    struct mr_import import = {.to = (struct vb_pd *)pd};
    int error = vb_dropin_import(pd->context, one_mr, &import, handle);

    return error ? vb_dropin_failed_null(pd->context, "ibv_import_mr", error) : &import.made->ibv;
}

VB_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
    if (vb_dropin_core(mr->context))
        vb_mr_unimport((struct vb_mr *)mr);
    else if (((const struct vb_mr *)mr)->kind == VB_MR_IMPORTED)
        vb_dropin_bury(mr->context, mr);
}

struct dm_import {
    struct vb_context *to;
    struct vb_dm *made;
};

static int one_dm(void *argument, struct vb_context *from, uint32_t handle)
{
    struct dm_import *import = argument;

    return vb_dm_import(import->to, from, handle, &import->made);
}

VB_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
    struct dm_import import = {.to = vb_dropin_core(context)};
    int error = vb_dropin_import(context, one_dm, &import, handle);

    return error ? vb_dropin_failed_null(context, "ibv_import_dm", error) : &import.made->ibv;
}

VB_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
    if (vb_dropin_core(dm->context))
        vb_dm_unimport((struct vb_dm *)dm);
    else if (((const struct vb_dm *)dm)->imported)
        vb_dropin_bury(dm->context, dm);
}
