// SPDX-License-Identifier: Apache-2.0
/*
 * The calls about protection domains, memory regions and device memory. They check the arguments
 * that the core does not know, such as comp_mask, and leave the rest to the core.
 */
#include "abi/calls.h"
#include "dropin/buffer.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/failures.h"
#include "memory/process_heap.h"

VB_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct vb_pd *pd;
    int error = VB_IF_OPEN(context, vb_pd_alloc(vb_dropin_core(context), &pd));

    return error ? vb_dropin_failed_null(context, "ibv_alloc_pd", error) : &pd->ibv;
}

VB_DESTROY(VB_EXPORT int, ibv_dealloc_pd, "ibv_dealloc_pd", ibv_pd, vb_pd, vb_pd_dealloc)

VB_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
                                          uint64_t iova, unsigned int access)
{
    unsigned int needed = access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
    struct vb_mr *mr;
    int error =
        VB_IF_OPEN(pd->context, vb_mr_reg((struct vb_pd *)pd, addr, length, iova, needed, &mr));

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

/* NCCL calls this with a bad descriptor to find out about dma-bufs: EBADF would mean support. */
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

/* Every failure is found before anything is changed, so the region is then as it was. */
VB_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
                           size_t length, int access)
{
    unsigned int wanted = (unsigned int)access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
    int error = VB_IF_OPEN(mr->context, 0);

    if (!error)
        error = check_rereg(vb_dropin_core(mr->context), flags, pd, addr, length, (unsigned)access);
    if (!error)
        error = vb_mr_rereg((struct vb_mr *)mr, flags, (struct vb_pd *)pd, addr, length, wanted);
    if (!error)
        return 0;
    vb_dropin_failed(mr->context, "ibv_rereg_mr", error);
    return IBV_REREG_MR_ERR_INPUT;
}

VB_DESTROY(VB_EXPORT int, ibv_dereg_mr, "ibv_dereg_mr", ibv_mr, vb_mr, vb_mr_dereg)

/* ---- regions of other kinds ---- */

struct ibv_mr *vb_dropin_alloc_null_mr(struct ibv_pd *pd)
{
    struct vb_mr *mr;
    int error = VB_IF_OPEN(pd->context, vb_mr_null((struct vb_pd *)pd, &mr));

    return error ? vb_dropin_failed_null(pd->context, "ibv_alloc_null_mr", error) : &mr->ibv;
}

struct ibv_mr *vb_dropin_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t dm_offset,
                                   size_t length, unsigned int access)
{
    unsigned int needed = access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
    struct vb_mr *mr;
    int error = VB_IF_OPEN(pd->context, vb_mr_reg_dm((struct vb_pd *)pd, (struct vb_dm *)dm,
                                                     dm_offset, length, needed, &mr));

    return error ? vb_dropin_failed_null(pd->context, "ibv_reg_dm_mr", error) : &mr->ibv;
}

int vb_dropin_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                        struct ibv_sge *sg_list, uint32_t num_sge)
{
    return vb_dropin_result(
        pd->context, "ibv_advise_mr",
        VB_IF_OPEN(pd->context, vb_mr_advise((struct vb_pd *)pd, advice, flags, sg_list, num_sge)));
}

/* ---- device memory ---- */

/* This works in a forked child, too: the program can copy to and from the memory, but register no
 * region in it. */
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
        return vb_dropin_destroy_closed(context, dm);
    return vb_dropin_result(context, "ibv_free_dm", vb_dm_free((struct vb_dm *)dm));
}
