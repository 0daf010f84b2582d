// SPDX-License-Identifier: Apache-2.0
/*
 * Memory regions, and the check of every lkey and rkey. Verbs register and deregister regions; the
 * check runs for each element of each request, in any process, against the region's entry in its
 * owner's segment.
 */
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
    VB_MR_IMPORTED, /* a region of another context, which alone has an entry in the table */
};

struct vb_mr {
    struct ibv_mr ibv;
    struct vb_object object;
    struct vb_pd *pd;
    uint32_t index;
    enum vb_mr_kind kind;
    struct vb_dm *dm;
    struct vb_range range; /* in adapter->ranges while is_watched */
    bool is_watched;
    bool is_withdrawn; /* its key was withdrawn, as its context is being closed */
};

/*
 * Registers a region. -EINVAL: no bytes or too many, a range that wraps around, remote write or
 * atomic access without local write. -EFAULT: part of the range is not mapped; with
 * IBV_ACCESS_ON_DEMAND it need not be. An address of NULL with SIZE_MAX bytes and
 * IBV_ACCESS_ON_DEMAND is the whole address space (an implicit region).
 */
int vb_mr_reg(struct vb_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access,
              struct vb_mr **mr);
/*
 * Deregisters a region. It returns when no request of this process or of a peer can use the memory
 * any more. -EBUSY: a window is bound to the region.
 */
int vb_mr_dereg(struct vb_mr *mr);
/* Changes a region. -EBUSY as above; -EINVAL as for a new region, and for one that is not plain. */
int vb_mr_rereg(struct vb_mr *mr, int flags, struct vb_pd *pd, void *addr, size_t length,
                unsigned access);

/*
 * Makes a null region: writes to it have no effect and reads give zeros, at any address. All null
 * regions of an adapter share 2 GiB of address space for reads and 2 GiB for writes. -ENOMEM.
 */
int vb_mr_null(struct vb_pd *pd, struct vb_mr **mr);
void vb_null_unmap(struct vb_adapter *adapter);

/* Registers part of a device memory; its addresses begin at 0. -EINVAL. */
int vb_mr_reg_dm(struct vb_pd *pd, struct vb_dm *dm, uint64_t offset, size_t length,
                 unsigned access, struct vb_mr **mr);

/* Imports the region that has this handle in another context. Its keys work while it exists. */
int vb_mr_import(struct vb_pd *pd, struct vb_context *from, uint32_t handle, struct vb_mr **mr);
/* Has no effect on a region that was not imported. */
void vb_mr_unimport(struct vb_mr *mr);

/*
 * Prefetches parts of on-demand regions. -EINVAL: no such advice or flag, a region that is not on
 * demand, or a range outside it; -ENOENT: the lkey names none; -EPERM: another domain's, or to be
 * written and not writable; with IBV_ADVISE_MR_FLAG_FLUSH also -EFAULT: a page is not there.
 */
int vb_mr_advise(struct vb_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                 const struct ibv_sge *list, uint32_t count);

/*
 * Writes bytes into a region, at an address from vb_lkey_find or vb_mr_check. Heap memory that the
 * program has unmapped or protected is written through its file, as a peer that maps the file
 * does. -EFAULT: the memory is not mapped any more.
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
/* Waits for every request that may have passed the check of a key before it was withdrawn, and
 * copies payloads that wait for a poll to their buffers. */
void vb_mr_settle(struct vb_adapter *adapter);

/* Checks the range and the access alone. */
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

/* The check of an entry whose `pd` is another number than the domain's. The entry may be a region
 * of the domain of which some memory was unmapped (gone.h); else it is VB_CHECK_PD. */
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

/* The check of a window's key, for a request to the QP with this index (mw.c). */
enum vb_check vb_window_check(const struct vb_view *view, uint32_t pd, uint32_t qp, uint32_t key,
                              uint64_t iova, uint64_t length, uint32_t need,
                              const struct vb_mr_shared **entry);

/* The check of a remote key, which is a region's or a window's. */
static inline enum vb_check vb_rkey_check(const struct vb_view *view, uint32_t pd, uint32_t qp,
                                          uint32_t key, uint64_t iova, uint64_t length,
                                          uint32_t need, const struct vb_mr_shared **entry)
{
    enum vb_check check = vb_mr_check(view, pd, key, iova, length, need, entry);

    if (VB_UNLIKELY(check == VB_CHECK_PD))
        return vb_window_check(view, pd, qp, key, iova, length, need, entry);
    return check;
}

/* The access that a FLUSH needs of the QP and of the region. */
static inline uint32_t vb_flush_need(unsigned placement)
{
    return (placement & IBV_FLUSH_GLOBAL ? IBV_ACCESS_FLUSH_GLOBAL : 0) |
           (placement & IBV_FLUSH_PERSISTENT ? IBV_ACCESS_FLUSH_PERSISTENT : 0);
}

/* The check of a FLUSH's key, also for a FLUSH of no bytes. For a FLUSH of the whole region the
 * range is not looked at. */
static inline enum vb_check vb_flush_check(const struct vb_view *view, uint32_t pd, uint32_t qp,
                                           uint32_t key, bool whole, uint64_t iova, uint64_t length,
                                           uint32_t need, const struct vb_mr_shared **entry)
{
    if (whole)
        return vb_rkey_check(view, pd, qp, key, vb_mr_entry(view, key)->iova, 0, need, entry);
    return vb_rkey_check(view, pd, qp, key, iova, length, need, entry);
}

/*
 * May the payload of a SEND wait for a poll before it goes into this region of the view's owner?
 * Heap memory stays, by its file. Of other memory a process that is watched hears before it goes.
 */
static inline bool vb_mr_allows_waiting(const struct vb_view *owner, const struct vb_mr_shared *mr)
{
    return mr->in_heap ||
           (owner->header->watched && !(mr->access & (IBV_ACCESS_ON_DEMAND | VB_ACCESS_MOVED)));
}

/* A region that a queue has looked up last, as far as it holds in one epoch (vb_mr_epoch). */
struct vb_mr_seen {
    uint64_t epoch; /* 0: nothing was looked up */
    uint64_t low, length;
    uint32_t key;
};

static inline bool vb_mr_seen_covers(const struct vb_mr_seen *seen, uint64_t epoch,
                                     const struct ibv_sge *sge)
{
    return seen->epoch == epoch && seen->key == sge->lkey && sge->length <= seen->length &&
           sge->addr - seen->low <= seen->length - sge->length;
}

/* The pointer to an address of a region, in its owner's process, after vb_mr_check. */
static inline uint8_t *vb_mr_pointer(const struct vb_mr_shared *mr, uint64_t iova)
{
    return (uint8_t *)(uintptr_t)(mr->addr + (iova - mr->iova));
}

/*
 * Are multiples of 8 by the region's addresses also multiples of 8 in memory, where alone the
 * processor is atomic? A zero-based region, or one with an iova of the program's choice, may be
 * displaced against them.
 */
static inline bool vb_mr_has_words(const struct vb_mr_shared *mr)
{
    return ((mr->addr - mr->iova) & 7) == 0;
}

/* Is an entry that failed vb_mr_check by its domain a null region of this domain? */
static inline bool vb_mr_is_null(const struct vb_mr_shared *mr, uint32_t pd)
{
    return atomic_load_explicit(&mr->pd, memory_order_relaxed) == (pd | VB_PD_NULL);
}

/* The memory of a null region: `addr` is that for writes, `iova` that for reads. */
static inline uint8_t *vb_mr_null_pointer(const struct vb_mr_shared *mr, uint32_t need)
{
    return (uint8_t *)(uintptr_t)(need & IBV_ACCESS_LOCAL_WRITE ? mr->addr : mr->iova);
}

/* The check of a local key; `at` is the pointer to the address, in the owner's process. */
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
