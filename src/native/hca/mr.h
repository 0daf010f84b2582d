// SPDX-License-Identifier: Apache-2.0
/* Memory regions, and the check behind every key. */
#ifndef VB_HCA_MR_H
#define VB_HCA_MR_H

#include "hca/adapter.h"
#include "hca/evidence.h"
#include "hca/pd.h"
#include "memory/guard.h"

enum vb_mr_kind {
    VB_MR_PLAIN = 0,
    VB_MR_NULL,
    VB_MR_DM,
    VB_MR_IMPORTED, /* another context's: only a name */
};

struct vb_mr {
    struct ibv_mr ibv;
    struct vb_object object;
    struct vb_pd *pd;
    uint32_t index;
    enum vb_mr_kind kind;
    struct vb_dm *dm;
    struct vb_range range; /* in adapter->ranges, if it is watched */
    bool is_watched;
    bool is_withdrawn; /* its context is being closed: it has no key any more */
};

/*
 * -EINVAL: no bytes or too many, wrap-around, remote write or atomic without local write;
 * -EFAULT: part of the range is not mapped. With IBV_ACCESS_ON_DEMAND it need not be, and a NULL
 * address with SIZE_MAX bytes is the whole address space (an implicit region).
 */
int vb_mr_reg(struct vb_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access,
              struct vb_mr **mr);
/*
 * -EBUSY: a window is bound to it. Otherwise returns when no request, local or a peer's, can touch
 * the memory any more.
 */
int vb_mr_dereg(struct vb_mr *mr);
/* -EBUSY as above, and -EINVAL also for a region that is not a plain one. */
int vb_mr_rereg(struct vb_mr *mr, int flags, struct vb_pd *pd, void *addr, size_t length,
                unsigned access);

/*
 * A region that is written to without effect and read as zeros, whatever the address: 2 GiB of
 * address space each for the two, once for an adapter. -ENOMEM.
 */
int vb_mr_null(struct vb_pd *pd, struct vb_mr **mr);
void vb_null_unmap(struct vb_adapter *adapter);

/* Part of a device memory, at addresses from 0 on. -EINVAL. */
int vb_mr_reg_dm(struct vb_pd *pd, struct vb_dm *dm, uint64_t offset, size_t length,
                 unsigned access, struct vb_mr **mr);

/* The region that another context knows by this handle; its keys work as long as it is there. */
int vb_mr_import(struct vb_pd *pd, struct vb_context *from, uint32_t handle, struct vb_mr **mr);
/* Without effect on a region that was not imported. */
void vb_mr_unimport(struct vb_mr *mr);

/*
 * Prefetches parts of on-demand regions. -EINVAL: no such advice or flag, a region that is not on
 * demand, or a range outside it; -ENOENT: the lkey names none; -EPERM: another domain's, or to be
 * written and not writable; with IBV_ADVISE_MR_FLAG_FLUSH also -EFAULT: a page is not there.
 */
int vb_mr_advise(struct vb_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                 const struct ibv_sge *list, uint32_t count);

/*
 * Puts bytes into a region where vb_lkey_find or vb_mr_check has found them to go. Heap memory is
 * reached through its file where the program has unmapped or protected it, as by a peer that maps
 * that file. -EFAULT: the memory is gone.
 */
int vb_mr_put_in_file(const struct vb_adapter *adapter, const struct vb_mr_shared *mr,
                      const uint8_t *at, const uint8_t *bytes, size_t length);

static inline int vb_mr_put(const struct vb_adapter *adapter, const struct vb_mr_shared *mr,
                            uint8_t *at, const uint8_t *bytes, size_t length)
{
    if (VB_LIKELY(!vb_memory_guarded_write(at, bytes, length)))
        return 0;
    return vb_mr_put_in_file(adapter, mr, at, bytes, length);
}

/* Entries of the table, and keys for them, also for windows (mw.c). */
int vb_mr_take_key(struct vb_adapter *adapter, uint32_t *index, uint32_t *key);
uint32_t vb_mr_next_key(struct vb_adapter *adapter, uint32_t index);
void vb_mr_return_key(struct vb_adapter *adapter, uint32_t index);
/* Every request that may have passed a check before its key was withdrawn is over, and what has
 * arrived and waits for a poll is in its buffer. */
void vb_mr_settle(struct vb_adapter *adapter);

/* The range and the access alone. */
static inline enum vb_check vb_mr_check_use(const struct vb_mr_shared *mr, uint64_t iova,
                                            uint64_t length, uint32_t need)
{
    if (VB_UNLIKELY(iova < mr->iova || length > mr->length ||
                    iova - mr->iova > mr->length - length))
        return VB_CHECK_RANGE;
    if (VB_UNLIKELY((atomic_load_explicit(&mr->access, memory_order_relaxed) & need) != need))
        return VB_CHECK_ACCESS;
    return VB_CHECK_OK;
}

/* The same of an entry whose `pd` is another number: a region of that domain some of whose memory
 * has gone (gone.h), or VB_CHECK_PD. */
enum vb_check vb_mr_check_marked(const struct vb_view *view, uint32_t pd,
                                 const struct vb_mr_shared *mr, uint64_t iova, uint64_t length,
                                 uint32_t need);

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
    if (VB_UNLIKELY(atomic_load_explicit(&mr->pd, memory_order_relaxed) != pd))
        return vb_mr_check_marked(view, pd, mr, iova, length, need);
    return vb_mr_check_use(mr, iova, length, need);
}

/* The same of a window, for a request to the QP with this index (mw.c). */
enum vb_check vb_window_check(const struct vb_view *view, uint32_t pd, uint32_t qp, uint32_t key,
                              uint64_t iova, uint64_t length, uint32_t need,
                              const struct vb_mr_shared **entry);

/* A remote key: a region's or a window's. */
static inline enum vb_check vb_rkey_check(const struct vb_view *view, uint32_t pd, uint32_t qp,
                                          uint32_t key, uint64_t iova, uint64_t length,
                                          uint32_t need, const struct vb_mr_shared **entry)
{
    enum vb_check check = vb_mr_check(view, pd, key, iova, length, need, entry);

    if (VB_UNLIKELY(check == VB_CHECK_PD))
        return vb_window_check(view, pd, qp, key, iova, length, need, entry);
    return check;
}

/* What the QP and the region must grant. */
static inline uint32_t vb_flush_need(unsigned placement)
{
    return (placement & IBV_FLUSH_GLOBAL ? IBV_ACCESS_FLUSH_GLOBAL : 0) |
           (placement & IBV_FLUSH_PERSISTENT ? IBV_ACCESS_FLUSH_PERSISTENT : 0);
}

/* The key of a FLUSH: looked at for no bytes too; for a whole region nothing else is. */
static inline enum vb_check vb_flush_check(const struct vb_view *view, uint32_t pd, uint32_t qp,
                                           uint32_t key, bool whole, uint64_t iova, uint64_t length,
                                           uint32_t need, const struct vb_mr_shared **entry)
{
    if (whole)
        return vb_rkey_check(view, pd, qp, key, vb_mr_entry(view, key)->iova, 0, need, entry);
    return vb_rkey_check(view, pd, qp, key, iova, length, need, entry);
}

/* Where the owner of a region finds an address that vb_mr_check has passed. */
static inline uint8_t *vb_mr_pointer(const struct vb_mr_shared *mr, uint64_t iova)
{
    return (uint8_t *)(uintptr_t)(mr->addr + (iova - mr->iova));
}

/*
 * Whether the 8-byte words that addresses count are the processor's, which alone are atomic.
 * A zero-based region, or one with an address of the program's choice, may begin between them.
 */
static inline bool vb_mr_has_words(const struct vb_mr_shared *mr)
{
    return ((mr->addr - mr->iova) & 7) == 0;
}

/* Of an entry that vb_mr_check turned down by its domain: is it a null region of this one? */
static inline bool vb_mr_is_null(const struct vb_mr_shared *mr, uint32_t pd)
{
    return atomic_load_explicit(&mr->pd, memory_order_relaxed) == (pd | VB_PD_NULL);
}

/* A null region's bytes: `addr` is where they are written, `iova` where they are read. */
static inline uint8_t *vb_mr_null_pointer(const struct vb_mr_shared *mr, uint32_t need)
{
    return (uint8_t *)(uintptr_t)(need & IBV_ACCESS_LOCAL_WRITE ? mr->addr : mr->iova);
}

/* A local key, and where its owner finds the address. */
static inline enum vb_check vb_lkey_find(const struct vb_view *view, uint32_t pd, uint32_t key,
                                         uint64_t iova, uint64_t length, uint32_t need,
                                         const struct vb_mr_shared **entry, uint8_t **at)
{
    enum vb_check check = vb_mr_check(view, pd, key, iova, length, need, entry);

    *at = vb_mr_pointer(*entry, iova);
    if (VB_UNLIKELY(check == VB_CHECK_PD) && vb_mr_is_null(*entry, pd)) {
        *at = vb_mr_null_pointer(*entry, need);
        return VB_CHECK_OK;
    }
    return check;
}

#endif
