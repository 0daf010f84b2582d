// SPDX-License-Identifier: Apache-2.0
/* Protection domains, memory regions, and the check behind every key. */
#ifndef VB_HCA_MR_H
#define VB_HCA_MR_H

#include "hca/adapter.h"
#include "hca/evidence.h"

struct vb_pd {
    struct ibv_pd ibv;
    struct vb_object object;
    struct vb_context *context;
    uint32_t number;
    _Atomic uint32_t users; /* MRs, QPs, SRQs, AHs: dealloc is -EBUSY while any is left */
};

struct vb_mr {
    struct ibv_mr ibv;
    struct vb_object object;
    struct vb_pd *pd;
    uint32_t index;
};

int vb_pd_alloc(struct vb_context *context, struct vb_pd **pd);
int vb_pd_dealloc(struct vb_pd *pd);

/* -EINVAL: no bytes or too many, wrap-around, remote write or atomic without local write. */
int vb_mr_reg(struct vb_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access,
              struct vb_mr **mr);
/* Returns when no request, local or a peer's, can touch the memory any more. */
int vb_mr_dereg(struct vb_mr *mr);
int vb_mr_rereg(struct vb_mr *mr, int flags, struct vb_pd *pd, void *addr, size_t length,
                unsigned access);

/*
 * The check of IBA 10.6.7 (vol. 1): the key names a region of this PD that covers the range and
 * grants `need`. VB_CHECK_OK and the region's entry, or the check that failed (entry NULL if the
 * key names nothing).
 */
static inline enum vb_check vb_mr_check(const struct vb_view *view, uint32_t pd, uint32_t key,
                                        uint64_t iova, uint64_t length, uint32_t need,
                                        const struct vb_mr_shared **entry)
{
    const struct vb_mr_shared *mr = vb_mr_entry(view, key);

    *entry = mr;
    if (VB_UNLIKELY(atomic_load_explicit(&mr->key, memory_order_acquire) != key || key == 0))
        return VB_CHECK_KEY;
    if (VB_UNLIKELY(mr->pd != pd))
        return VB_CHECK_PD;
    if (VB_UNLIKELY(iova < mr->iova || length > mr->length ||
                    iova - mr->iova > mr->length - length))
        return VB_CHECK_RANGE;
    if (VB_UNLIKELY((mr->access & need) != need))
        return VB_CHECK_ACCESS;
    return VB_CHECK_OK;
}

/* Where the owner of a region finds an address that vb_mr_check has passed. */
static inline uint8_t *vb_mr_pointer(const struct vb_mr_shared *mr, uint64_t iova)
{
    return (uint8_t *)(uintptr_t)(mr->addr + (iova - mr->iova));
}

#endif
