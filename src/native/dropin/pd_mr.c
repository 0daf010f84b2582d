// SPDX-License-Identifier: Apache-2.0
/* Protection domains and memory regions. */
#include "abi/calls.h"
#include "dropin/buffer.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/failures.h"
#include "memory/process_heap.h"

VB_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct vb_context *core = vb_dropin_core(context);
    struct vb_pd *pd;
    int error;

    if (!core)
        return vb_dropin_failed_null(context, "ibv_alloc_pd", -VB_ERROR_FORKED);
    error = vb_pd_alloc(core, &pd);
    return error ? vb_dropin_failed_null(context, "ibv_alloc_pd", error) : &pd->ibv;
}

VB_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
    struct ibv_context *context = pd->context; /* read when the object is gone */

    return vb_dropin_core(context)
               ? vb_dropin_result(context, "ibv_dealloc_pd", vb_pd_dealloc((struct vb_pd *)pd))
               : vb_dropin_bury(context, pd);
}

VB_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
                                          uint64_t iova, unsigned int access)
{
    struct vb_mr *mr;
    int error;

    if (!vb_dropin_core(pd->context))
        return vb_dropin_failed_null(pd->context, "ibv_reg_mr", -VB_ERROR_FORKED);
    access &= ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
    error = vb_mr_reg((struct vb_pd *)pd, addr, length, iova, access, &mr);
    return error ? vb_dropin_failed_null(pd->context, "ibv_reg_mr", error) : &mr->ibv;
}

VB_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
                                         uint64_t iova, int access)
{
    return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

VB_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

VB_EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
    const uint64_t known = IBV_REG_MR_MASK_IOVA | IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF;
    uint64_t iova = attr->comp_mask & IBV_REG_MR_MASK_IOVA ? attr->iova : (uintptr_t)attr->addr;

    if (attr->comp_mask & ~known)
        return vb_dropin_failed_null(pd->context, "ibv_reg_mr_ex", -EOPNOTSUPP);
    if (!(attr->comp_mask & IBV_REG_MR_MASK_ADDR))
        return vb_dropin_failed_null(pd->context, "ibv_reg_mr_ex", -EINVAL);
    if ((attr->comp_mask & IBV_REG_MR_MASK_BUF) &&
        !vb_dropin_buffer_covers(attr->buf, pd, attr->addr, attr->length))
        return vb_dropin_failed_null(pd->context, "ibv_reg_mr_ex", -EINVAL);
    return ibv_reg_mr_iova2(pd, attr->addr, attr->length, iova, (unsigned int)attr->access);
}

/* NCCL probes with a bad descriptor: EBADF would say that dma-bufs are supported. */
VB_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                           uint64_t iova, int fd, int access)
{
    (void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
    vb_dropin_not_offered("ibv_reg_dmabuf_mr");
    return NULL;
}

static int check_rereg(struct vb_context *core, int flags, const struct ibv_pd *pd,
                       const void *addr, size_t length, unsigned int access)
{
    if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)
        return vb_decline(core, -EINVAL, "flags is {0x}: it must say what to change, and no more",
                          (unsigned)flags);
    if (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS))
        return vb_decline(core, -EINVAL, "access is {0a}, and flags does not say to change it",
                          access);
    if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !length))
        return vb_decline(core, -EINVAL, "the new range [{0x}, +{1}) is empty", (uintptr_t)addr,
                          length);
    if ((flags & IBV_REREG_MR_CHANGE_PD) && !pd)
        return vb_decline(core, -EINVAL, "the new protection domain is NULL");
    return 0;
}

/* Refused before anything was changed: the region is as it was. */
VB_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
                           size_t length, int access)
{
    unsigned int wanted = (unsigned int)access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
    int error = vb_dropin_core(mr->context) ? 0 : -VB_ERROR_FORKED;

    if (!error)
        error = check_rereg(vb_dropin_core(mr->context), flags, pd, addr, length, (unsigned)access);
    if (!error)
        error = vb_mr_rereg((struct vb_mr *)mr, flags, (struct vb_pd *)pd, addr, length, wanted);
    if (!error)
        return 0;
    vb_dropin_failed(mr->context, "ibv_rereg_mr", error);
    return IBV_REREG_MR_ERR_INPUT;
}

VB_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
    struct ibv_context *context = mr->context; /* read when the object is gone */

    return vb_dropin_core(context)
               ? vb_dropin_result(context, "ibv_dereg_mr", vb_mr_dereg((struct vb_mr *)mr))
               : vb_dropin_bury(context, mr);
}

/* ---- regions of other kinds ---- */

struct ibv_mr *vb_dropin_alloc_null_mr(struct ibv_pd *pd)
{
    struct vb_mr *mr;
    int error;

    if (!vb_dropin_core(pd->context))
        return vb_dropin_failed_null(pd->context, "ibv_alloc_null_mr", -VB_ERROR_FORKED);
    error = vb_mr_null((struct vb_pd *)pd, &mr);
    return error ? vb_dropin_failed_null(pd->context, "ibv_alloc_null_mr", error) : &mr->ibv;
}

struct ibv_mr *vb_dropin_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t dm_offset,
                                   size_t length, unsigned int access)
{
    struct vb_mr *mr;
    int error;

    if (!vb_dropin_core(pd->context))
        return vb_dropin_failed_null(pd->context, "ibv_reg_dm_mr", -VB_ERROR_FORKED);
    access &= ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
    error = vb_mr_reg_dm((struct vb_pd *)pd, (struct vb_dm *)dm, dm_offset, length, access, &mr);
    return error ? vb_dropin_failed_null(pd->context, "ibv_reg_dm_mr", error) : &mr->ibv;
}

int vb_dropin_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                        struct ibv_sge *sg_list, uint32_t num_sge)
{
    return vb_dropin_result(pd->context, "ibv_advise_mr",
                            vb_dropin_core(pd->context)
                                ? vb_mr_advise((struct vb_pd *)pd, advice, flags, sg_list, num_sge)
                                : -VB_ERROR_FORKED);
}

/* ---- device memory ---- */

/* In a forked child too, where it can be copied to and from, but no region be made of it. */
struct ibv_dm *vb_dropin_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
    const struct vb_open *opened = vb_dropin_open_of(context);
    struct vb_dm *dm;
    int error = opened->ended ? -VB_ERROR_FORKED
                              : vb_dm_alloc(opened->core, vb_memory_process_heap(), attr, &dm);

    if (error)
        return vb_dropin_failed_null(context, "ibv_alloc_dm", error);
    dm->ibv.context = context;
    return &dm->ibv;
}

int vb_dropin_free_dm(struct ibv_dm *dm)
{
    const struct vb_dm *own = (const struct vb_dm *)dm;
    struct ibv_context *context = dm->context; /* read when the object is gone */

    if (own->context && !vb_dropin_core(context))
        return vb_dropin_bury(context, dm);
    return vb_dropin_result(context, "ibv_free_dm", vb_dm_free((struct vb_dm *)dm));
}
