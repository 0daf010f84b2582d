// SPDX-License-Identifier: Apache-2.0
/* Protection domains and memory regions. */
#include "abi/calls.h"
#include "dropin/buffer.h"
#include "dropin/context.h"
#include "dropin/export.h"

VB_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct vb_context *core = vb_core(context);
    struct vb_pd *pd;
    int error;

    if (!core)
        return NULL;
    error = vb_pd_alloc(core, &pd);
    return error ? vb_failed_null(context, "ibv_alloc_pd", error) : &pd->ibv;
}

/* In a forked child a destroy succeeds and destroys nothing: the object is the parent's. */
VB_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
    return vb_core(pd->context)
               ? vb_result(pd->context, "ibv_dealloc_pd", vb_pd_dealloc((struct vb_pd *)pd))
               : 0;
}

/* No page is pinned or prefetched, so on-demand paging would promise nothing more. */
static int check_offered(struct vb_context *core, unsigned int access)
{
    if (!(access & IBV_ACCESS_ON_DEMAND))
        return 0;
    return vb_decline(core, -EOPNOTSUPP,
                      "ON_DEMAND is not offered; no memory is pinned without it either");
}

VB_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
                                          uint64_t iova, unsigned int access)
{
    struct vb_mr *mr;
    int error;

    if (!vb_core(pd->context))
        return NULL;
    access &= ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
    error = check_offered(vb_core(pd->context), access);
    if (!error)
        error = vb_mr_reg((struct vb_pd *)pd, addr, length, iova, access, &mr);
    return error ? vb_failed_null(pd->context, "ibv_reg_mr", error) : &mr->ibv;
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
        return vb_failed_null(pd->context, "ibv_reg_mr_ex", -EOPNOTSUPP);
    if (!(attr->comp_mask & IBV_REG_MR_MASK_ADDR))
        return vb_failed_null(pd->context, "ibv_reg_mr_ex", -EINVAL);
    if ((attr->comp_mask & IBV_REG_MR_MASK_BUF) &&
        !vb_buffer_covers(attr->buf, pd, attr->addr, attr->length))
        return vb_failed_null(pd->context, "ibv_reg_mr_ex", -EINVAL);
    return ibv_reg_mr_iova2(pd, attr->addr, attr->length, iova, (unsigned int)attr->access);
}

/* NCCL probes with a bad descriptor: EBADF would say that dma-bufs are supported. */
VB_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                           uint64_t iova, int fd, int access)
{
    (void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
    vb_not_offered("ibv_reg_dmabuf_mr");
    return NULL;
}

static int check_rereg(struct vb_context *core, int flags, struct ibv_pd *pd, const void *addr,
                       size_t length, unsigned int access)
{
    if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)
        return vb_decline(core, -EINVAL, "flags is {0x}: it must say what to change, and no more",
                          (unsigned)flags);
    if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !length))
        return vb_decline(core, -EINVAL, "the new range [{0x}, +{1}) is empty", (uintptr_t)addr,
                          length);
    if ((flags & IBV_REREG_MR_CHANGE_PD) && !pd)
        return vb_decline(core, -EINVAL, "the new protection domain is NULL");
    return flags & IBV_REREG_MR_CHANGE_ACCESS ? check_offered(core, access) : 0;
}

/* Refused before anything was changed: the region is as it was. */
VB_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
                           size_t length, int access)
{
    unsigned int wanted = (unsigned int)access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
    int error = vb_core(mr->context) ? 0 : -VB_ERROR_FORKED;

    if (!error)
        error = check_rereg(vb_core(mr->context), flags, pd, addr, length, wanted);
    if (!error)
        error = vb_mr_rereg((struct vb_mr *)mr, flags, (struct vb_pd *)pd, addr, length, wanted);
    if (!error)
        return 0;
    vb_failed(mr->context, "ibv_rereg_mr", error);
    return IBV_REREG_MR_ERR_INPUT;
}

VB_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
    return vb_core(mr->context)
               ? vb_result(mr->context, "ibv_dereg_mr", vb_mr_dereg((struct vb_mr *)mr))
               : 0;
}
