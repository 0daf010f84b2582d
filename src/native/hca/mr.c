// SPDX-License-Identifier: Apache-2.0
/*
 * Memory regions: registering, changing, importing and deregistering them, and the slow paths of
 * the check of a key. Deregistration returns when no request of this process or a peer can use the
 * memory.
 */
#include "hca/mr.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hca/dm.h"
#include "hca/gone.h"
#include "hca/host_calls.h"
#include "hca/mw.h"
#include "hca/qp.h"
#include "memory/descriptor.h"
#include "memory/guard.h"
#include "memory/heap.h"

enum {
    MR_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
        IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
        IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_FLUSH_GLOBAL |
        IBV_ACCESS_FLUSH_PERSISTENT,
};

static int mr_check_access(struct vb_context *context, unsigned access)
{
    unsigned unknown = access & ~((unsigned)MR_ACCESS | IBV_ACCESS_OPTIONAL_RANGE);

    /* Optional flags are hints that a device may ignore. */
    if (unknown)
        return vb_decline(context, -EINVAL, "the access flags {0a} are not known", unknown);
    if (access & IBV_ACCESS_FLUSH_PERSISTENT) /* as soft-RoCE says of all but pmem pages */
        return vb_decline(context, -EINVAL,
                          "FLUSH_PERSISTENT, among the access flags {0a}, needs persistent memory, "
                          "and no memory counts as that here: leave it out, FLUSH_GLOBAL can stay",
                          access);
    if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
        !(access & IBV_ACCESS_LOCAL_WRITE)) /* IBA 10.6.3.2 */
        return vb_decline(context, -EINVAL,
                          "the access flags {0a} let peers write and lack LOCAL_WRITE, which "
                          "REMOTE_WRITE and REMOTE_ATOMIC need: add it",
                          access);
    return 0;
}

enum { LOOK_PAGES = 4096, LOOKS_MOST = 256 };

/* Is the range mapped? `start` begins a page. Long ranges are left to msync, which walks mappings
 * and not pages. With MS_ASYNC it writes nothing, but memory checkers think that it reads all of
 * it. */
static bool is_mapped(uintptr_t start, size_t length, size_t page)
{
    unsigned char resident[LOOK_PAGES];
    size_t step = LOOK_PAGES * page;

    if (length / step >= LOOKS_MOST)
        return msync((void *)start, length, MS_ASYNC) == 0;
    for (; length > step; start += step, length -= step)
        if (mincore((void *)start, step, resident))
            return false;
    return mincore((void *)start, length, resident) == 0;
}

/* -EFAULT: part of the range is not mapped, as pinning it would find. */
static int check_mapped(struct vb_context *context, const void *addr, size_t length)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)addr & ~(page - 1);

    if (!is_mapped(start, (uintptr_t)addr + length - start, page))
        return vb_decline(context, -EFAULT,
                          "[{0x}, +{1}) is not mapped, or only a part of it: register memory that "
                          "is there, and not beyond its end",
                          (uintptr_t)addr, length);
    return 0;
}

/* -EFAULT: the memory may not be written, as pinning would find. Looks at both ends alone. */
static int check_usable(struct vb_context *context, uint8_t *addr, size_t length, unsigned access)
{
    bool to_write = access & IBV_ACCESS_LOCAL_WRITE;

    if (vb_memory_is_mapped(addr, 1, to_write) &&
        vb_memory_is_mapped(addr + length - 1, 1, to_write))
        return 0;
    return vb_decline(context, -EFAULT,
                      "[{0x}, +{1}) cannot be read, or is read-only and the access flags {2a} have "
                      "LOCAL_WRITE: leave that out, or register memory that can be written",
                      (uintptr_t)addr, length, access);
}

static bool is_implicit(const void *addr, size_t length, unsigned access)
{
    return (access & IBV_ACCESS_ON_DEMAND) && !addr && length == SIZE_MAX;
}

/* Memory on demand need not be mapped now; a request that finds it unmapped fails. */
static int check_range(struct vb_context *context, const void *addr, size_t length, unsigned access)
{
    int error;

    if (length == 0 || (uintptr_t)addr + length < (uintptr_t)addr)
        return vb_decline(context, -EINVAL,
                          "[{0x}, +{1}) is no range: it is empty, or goes beyond the address space",
                          (uintptr_t)addr, length);
    if (length == SIZE_MAX && !is_implicit(addr, length, access))
        return vb_decline(context, -EINVAL,
                          "all of the address space is a region from NULL on, with ON_DEMAND");
    if (access & IBV_ACCESS_ON_DEMAND)
        return 0;
    error = check_mapped(context, addr, length);
    return error ? error : check_usable(context, (uint8_t *)addr, length, access);
}

static bool meets_heap(const struct vb_heap *heap, const void *addr, size_t length)
{
    uintptr_t start = (uintptr_t)addr, base = start - vb_memory_heap_offset(heap, addr);

    return start < base + vb_memory_heap_size(heap) && start + length > base;
}

/* Fills the entry except its key, which makes it valid. */
static void mr_describe(struct vb_adapter *adapter, struct vb_mr_shared *entry, uint32_t pd,
                        void *addr, size_t length, uint64_t iova, unsigned access)
{
    entry->pd = pd;
    entry->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
    entry->length = length;
    entry->addr = (uintptr_t)addr;
    entry->in_heap = adapter->heap && vb_memory_heap_contains(adapter->heap, addr, length);
    entry->heap_offset = entry->in_heap ? vb_memory_heap_offset(adapter->heap, addr) : 0;
    entry->access = access;
    if (!entry->in_heap && adapter->heap && meets_heap(adapter->heap, addr, length))
        entry->access |= VB_ACCESS_MIXED;
    entry->qp = entry->region = 0;
}

/* ---- keys (keys.h) ---- */

struct vb_mr_shared *vb_mr_entry_before(const struct vb_view *view, uint32_t key, uint32_t mask)
{
    struct vb_mr_shared *present = &view->mr[key >> 8 & mask];

    while ((mask >>= 1) >= VB_MR_WINDOW - 1)
        if (vb_mr_is_named(&view->mr[key >> 8 & mask], key))
            return &view->mr[key >> 8 & mask];
    return present;
}

/* Under the mutex. The low byte is random, and never that of the entry's last key, which is stale.
 */
static void give_key(struct vb_adapter *adapter, struct vb_mr_shared *entry, uint32_t name)
{
    uint32_t step = 1 + vb_random(adapter) % 255;

    atomic_store(&entry->last_key, name << 8 | ((entry->last_key + step) & 0xff));
}

uint32_t vb_mr_next_key(struct vb_adapter *adapter, uint32_t index)
{
    struct vb_mr_shared *entry = &adapter->self.mr[index];
    uint32_t key;

    vb_lock_take(&adapter->mutex);
    give_key(adapter, entry, entry->last_key >> 8);
    key = entry->last_key;
    vb_lock_release(&adapter->mutex);
    return key;
}

/* Draws the bits of a key before the index. False: an entry from a smaller window has the same
 * upper 24 bits. Under the mutex. */
static bool name_entry(struct vb_adapter *adapter, uint32_t index)
{
    struct vb_mr_shared *entry = &adapter->self.mr[index];
    uint32_t mask = adapter->keys.window - 1;
    uint32_t name = index | (vb_random(adapter) >> 8 & ~mask);
    const struct vb_mr_shared *other = vb_mr_entry(&adapter->self, name << 8);

    if (other != entry && vb_mr_is_named(other, name << 8))
        return false;
    give_key(adapter, entry, name);
    return true;
}

int vb_mr_take_key(struct vb_adapter *adapter, uint32_t *index, uint32_t *key)
{
    int error;

    vb_lock_take(&adapter->mutex);
    error = vb_keys_take(&adapter->keys, &adapter->random, index);
    if (!error)
        atomic_store(&adapter->self.header->mr_mask, adapter->keys.window - 1);
    while (!error && !name_entry(adapter, *index)) {
        vb_keys_return(&adapter->keys, *index);
        error = vb_keys_take(&adapter->keys, &adapter->random, index);
    }
    if (!error)
        *key = adapter->self.mr[*index].last_key;
    vb_lock_release(&adapter->mutex);
    return error;
}

void vb_mr_return_key(struct vb_adapter *adapter, uint32_t index)
{
    vb_lock_take(&adapter->mutex);
    vb_keys_return(&adapter->keys, index);
    vb_lock_release(&adapter->mutex);
}

static struct vb_mr_shared *mr_entry_of(const struct vb_mr *mr)
{
    return &mr->pd->context->adapter->self.mr[mr->index];
}

static void publish(struct vb_mr *mr, uint32_t key)
{
    atomic_store_explicit(&mr_entry_of(mr)->key, key, memory_order_release);
    mr->ibv.lkey = mr->ibv.rkey = key;
    mr->ibv.handle = mr->index;
}

/* ---- registering ---- */

static void mr_release(struct vb_object *object);

static void mr_fill_abi(struct vb_mr *mr, void *addr, size_t length)
{
    mr->ibv.context = mr->pd->context->ibv;
    mr->ibv.pd = &mr->pd->ibv;
    mr->ibv.addr = addr;
    mr->ibv.length = length;
}

/* Makes a region whose key is not valid yet. */
static int new_mr(struct vb_pd *pd, enum vb_mr_kind kind, struct vb_mr **mr, uint32_t *key)
{
    struct vb_mr *made = calloc(1, sizeof(*made));
    int error;

    if (!made)
        return -ENOMEM;
    made->pd = pd;
    made->kind = kind;
    error = vb_mr_take_key(pd->context->adapter, &made->index, key);
    if (error) {
        free(made);
        return error;
    }
    *mr = made;
    return 0;
}

static void mr_enter(struct vb_mr *mr, uint32_t key)
{
    vb_gone_enter(mr);
    publish(mr, key);
    vb_pd_use(mr->pd);
    vb_object_add(mr->pd->context, &mr->object, mr_release);
}

int vb_mr_reg(struct vb_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access,
              struct vb_mr **mr)
{
    struct vb_adapter *adapter = pd->context->adapter;
    uint32_t key;
    int error = mr_check_access(pd->context, access);

    if (!error)
        error = check_range(pd->context, addr, length, access);
    if (!error)
        error = new_mr(pd, VB_MR_PLAIN, mr, &key);
    if (error)
        return error;
    mr_describe(adapter, mr_entry_of(*mr), pd->number, addr, length, iova, access);
    mr_fill_abi(*mr, addr, length);
    mr_enter(*mr, key);
    return 0;
}

int vb_mr_reg_dm(struct vb_pd *pd, struct vb_dm *dm, uint64_t offset, size_t length,
                 unsigned access, struct vb_mr **mr)
{
    const unsigned allowed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                             IBV_ACCESS_ZERO_BASED | IBV_ACCESS_FLUSH_GLOBAL |
                             IBV_ACCESS_OPTIONAL_RANGE;
    uint32_t key;
    int error = mr_check_access(pd->context, access);

    if (error || dm->context != pd->context || (access & ~allowed) ||
        !(access & IBV_ACCESS_ZERO_BASED) || length > dm->length || offset > dm->length - length)
        return -EINVAL;
    error = new_mr(pd, VB_MR_DM, mr, &key);
    if (error)
        return error;
    mr_describe(pd->context->adapter, mr_entry_of(*mr), pd->number, dm->memory + offset, length, 0,
                access);
    mr_fill_abi(*mr, NULL, length);
    (*mr)->dm = dm;
    vb_dm_use(dm);
    mr_enter(*mr, key);
    return 0;
}

/* ---- deregistering ---- */

void vb_mr_settle(struct vb_adapter *adapter)
{
    struct vb_qp *qp;

    vb_barrier_everywhere();
    vb_lock_take(&adapter->lifetime);
    for (uint32_t i = 0; (qp = vb_qp_next_live(adapter, i)); i = qp->index + 1)
        vb_qp_carrier(qp)->settle(qp);
    vb_lock_release(&adapter->lifetime);
    vb_cqs_place(adapter);
}

/*
 * Withdraws a region's key under the lock that binding takes, so that either the key is withdrawn
 * or a window is bound to the region. Payloads that wait for a poll are placed while the region is
 * still there.
 */
static int mr_withdraw(struct vb_adapter *adapter, struct vb_mr *mr)
{
    struct vb_mr_shared *entry = mr_entry_of(mr);
    int error = 0;

    if (mr->is_withdrawn)
        return 0;

    vb_lock_take(&adapter->binding);
    if ((entry->access & IBV_ACCESS_MW_BIND) && !mr->pd->context->closing &&
        vb_mw_covers(adapter, mr->index))
        error = -EBUSY;
    else
        atomic_fetch_or(&entry->pd, VB_PD_LEAVING);
    vb_lock_release(&adapter->binding);
    if (error)
        return error;
    vb_mr_changed(&adapter->self);
    vb_gone_leave(mr);
    vb_mr_settle(adapter);
    atomic_store(&entry->key, 0);
    vb_gone_forget(mr);
    return 0;
}

VB_COLD int vb_mr_put_in_file(const struct vb_adapter *adapter, const struct vb_mr_shared *mr,
                              const uint8_t *at, const uint8_t *bytes, size_t length)
{
    uint64_t offset = mr->heap_offset + ((uintptr_t)at - mr->addr);
    int fd = mr->in_heap ? vb_memory_heap_fd(adapter->heap) : -1;

    return fd >= 0 && pwrite(fd, bytes, length, (off_t)offset) == (ssize_t)length ? 0 : -EFAULT;
}

int vb_mr_dereg(struct vb_mr *mr)
{
    struct vb_adapter *adapter = mr->pd->context->adapter;
    int error;

    if (mr->kind == VB_MR_IMPORTED)
        return -EINVAL;
    error = mr_withdraw(adapter, mr);
    if (error)
        return error;
    vb_object_remove(mr->pd->context, &mr->object);
    if (mr->dm)
        vb_dm_drop(mr->dm);
    vb_pd_drop(mr->pd);
    vb_mr_return_key(adapter, mr->index);
    vb_object_free(&mr->object, mr);
    return 0;
}

static struct vb_mr *next_mr(struct vb_object *object)
{
    while (object && object->release != mr_release)
        object = object->next;
    return object ? (struct vb_mr *)((char *)object - offsetof(struct vb_mr, object)) : NULL;
}

/* Withdraws all regions of a context that is being closed, so that requests in progress are waited
 * for once. */
static void withdraw_all(struct vb_context *context)
{
    struct vb_adapter *adapter = context->adapter;
    struct vb_mr *mr;

    for (mr = next_mr(context->objects); mr; mr = next_mr(mr->object.next))
        if (mr->kind != VB_MR_IMPORTED) {
            atomic_fetch_or(&mr_entry_of(mr)->pd, VB_PD_LEAVING);
            vb_gone_leave(mr);
        }
    vb_mr_changed(&adapter->self);
    vb_mr_settle(adapter);
    for (mr = next_mr(context->objects); mr; mr = next_mr(mr->object.next))
        if (mr->kind != VB_MR_IMPORTED) {
            atomic_store(&mr_entry_of(mr)->key, 0);
            vb_gone_forget(mr);
            mr->is_withdrawn = true;
        }
}

/* Releases a region of a context that is being closed. */
static void mr_release(struct vb_object *object)
{
    struct vb_mr *mr = next_mr(object);

    if (mr->kind == VB_MR_IMPORTED) {
        vb_mr_unimport(mr);
        return;
    }
    if (!mr->is_withdrawn)
        withdraw_all(mr->pd->context);
    vb_mr_dereg(mr);
}

/* ---- registering again ---- */

static void move_to_pd(struct vb_mr *mr, struct vb_pd *pd)
{
    vb_pd_use(pd);
    vb_pd_drop(mr->pd);
    mr->pd = pd;
    mr->ibv.pd = &pd->ibv;
}

/* Takes another entry, so that the whole key is new; if there is none, the low byte is new alone.
 */
static uint32_t move_entry(struct vb_adapter *adapter, struct vb_mr *mr)
{
    uint32_t index, key;

    if (vb_mr_take_key(adapter, &index, &key))
        return vb_mr_next_key(adapter, mr->index);
    vb_mr_return_key(adapter, mr->index);
    mr->index = index;
    return key;
}

/* What a region is to become. */
struct wanted {
    void *addr;
    size_t length;
    uint64_t iova;
    unsigned access;
};

static struct wanted mr_want(const struct vb_mr *mr, int flags, void *addr, size_t length,
                             unsigned access)
{
    const struct vb_mr_shared *entry = mr_entry_of(mr);
    struct wanted wanted = {mr->ibv.addr, mr->ibv.length, entry->iova,
                            entry->access & ~VB_ACCESS_OWN};

    if (flags & IBV_REREG_MR_CHANGE_ACCESS) {
        wanted.access = access;
        if ((entry->access & ~access) & IBV_ACCESS_ZERO_BASED)
            wanted.iova = (uintptr_t)mr->ibv.addr;
    }
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
        wanted.addr = addr;
        wanted.length = length;
        wanted.iova = (uintptr_t)addr;
    }
    return wanted;
}

int vb_mr_rereg(struct vb_mr *mr, int flags, struct vb_pd *pd, void *addr, size_t length,
                unsigned access)
{
    struct vb_adapter *adapter = mr->pd->context->adapter;
    uint32_t key = mr->ibv.lkey;
    struct wanted wanted;
    int error;

    if (mr->kind != VB_MR_PLAIN ||
        ((flags & IBV_REREG_MR_CHANGE_PD) && pd->context != mr->pd->context))
        return -EINVAL;
    wanted = mr_want(mr, flags, addr, length, access);
    error = mr_check_access(mr->pd->context, wanted.access);
    if (!error && (flags & (IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS)))
        error = check_range(mr->pd->context, wanted.addr, wanted.length, wanted.access);
    if (!error)
        error = mr_withdraw(adapter, mr);
    if (error)
        return error;
    if (flags & IBV_REREG_MR_CHANGE_PD)
        move_to_pd(mr, pd);
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) /* the old key was for other memory */
        key = move_entry(adapter, mr);
    mr_describe(adapter, mr_entry_of(mr), mr->pd->number, wanted.addr, wanted.length, wanted.iova,
                wanted.access);
    mr_fill_abi(mr, wanted.addr, wanted.length);
    vb_gone_enter(mr);
    publish(mr, key);
    return 0;
}

/* ---- import ---- */

/* Copies what identifies the region with this handle: its address, length and keys. */
static bool mr_find(struct vb_context *context, uint32_t handle, struct ibv_mr *named)
{
    bool found = false;

    vb_lock_take(&context->mutex);
    for (struct vb_object *each = context->objects; each && !found; each = each->next) {
        const struct vb_mr *mr = (struct vb_mr *)((char *)each - offsetof(struct vb_mr, object));

        if (each->release != mr_release || mr->kind == VB_MR_IMPORTED || mr->index != handle)
            continue;
        *named = mr->ibv;
        found = true;
    }
    vb_lock_release(&context->mutex);
    return found;
}

/* Makes an imported region. Its address is not set, as man ibv_import_mr says. */
int vb_mr_import(struct vb_pd *pd, struct vb_context *from, uint32_t handle, struct vb_mr **mr)
{
    struct vb_mr *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    if (!mr_find(from, handle, &made->ibv)) {
        free(made);
        return -ENOENT;
    }
    made->pd = pd;
    made->kind = VB_MR_IMPORTED;
    mr_fill_abi(made, NULL, made->ibv.length);
    vb_pd_use(pd);
    vb_object_add(pd->context, &made->object, mr_release);
    *mr = made;
    return 0;
}

void vb_mr_unimport(struct vb_mr *mr)
{
    if (mr->kind != VB_MR_IMPORTED)
        return;
    vb_object_remove(mr->pd->context, &mr->object);
    vb_pd_drop(mr->pd);
    vb_object_free(&mr->object, mr);
}

/* ---- the null region ---- */

enum { NULL_PIECE = 2 << 20 };

static const size_t NULL_BYTES = 1ull << 31; /* no message is longer */

/* Maps one piece of memory again and again over the range. */
static uint8_t *map_sink(void)
{
    int fd = vb_memory_descriptor_raise(memfd_create("verbena-null", MFD_CLOEXEC));
    uint8_t *base;

    if (fd < 0)
        return MAP_FAILED;
    base = ftruncate(fd, NULL_PIECE) ? MAP_FAILED
                                     : mmap(NULL, NULL_BYTES, PROT_NONE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (size_t at = 0; base != MAP_FAILED && at < NULL_BYTES; at += NULL_PIECE)
        if (mmap(base + at, NULL_PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
            MAP_FAILED) {
            munmap(base, NULL_BYTES);
            base = MAP_FAILED;
        }
    close(fd);
    return base;
}

/* Under adapter->binding. */
static int map_null(struct vb_adapter *adapter)
{
    uint8_t *zeros;

    if (adapter->sink)
        return 0;
    zeros = mmap(NULL, NULL_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED)
        return -ENOMEM;
    adapter->sink = map_sink();
    if (adapter->sink == MAP_FAILED) {
        adapter->sink = NULL;
        munmap(zeros, NULL_BYTES);
        return -ENOMEM;
    }
    adapter->zeros = zeros;
    return 0;
}

void vb_null_unmap(struct vb_adapter *adapter)
{
    if (!adapter->sink)
        return;
    munmap(adapter->sink, NULL_BYTES);
    munmap(adapter->zeros, NULL_BYTES);
}

int vb_mr_null(struct vb_pd *pd, struct vb_mr **mr)
{
    struct vb_adapter *adapter = pd->context->adapter;
    struct vb_mr_shared *entry;
    uint32_t key;
    int error;

    vb_lock_take(&adapter->binding);
    error = map_null(adapter);
    vb_lock_release(&adapter->binding);
    if (!error)
        error = new_mr(pd, VB_MR_NULL, mr, &key);
    if (error)
        return error;
    entry = mr_entry_of(*mr);
    mr_describe(adapter, entry, pd->number | VB_PD_NULL, adapter->sink, NULL_BYTES,
                (uintptr_t)adapter->zeros, IBV_ACCESS_LOCAL_WRITE);
    mr_fill_abi(*mr, NULL, SIZE_MAX);
    mr_enter(*mr, key);
    (*mr)->ibv.rkey = 0;
    return 0;
}

/* ---- advice ---- */

static int check_advice(const struct vb_adapter *adapter, const struct vb_pd *pd, bool to_write,
                        const struct ibv_sge *sge, const struct vb_mr_shared **mr)
{
    enum vb_check check = vb_mr_check(&adapter->self, pd->number, sge->lkey, sge->addr, sge->length,
                                      to_write ? IBV_ACCESS_LOCAL_WRITE : 0, mr);

    switch (check) {
    case VB_CHECK_OK:
        return (*mr)->access & IBV_ACCESS_ON_DEMAND ? 0 : -EINVAL;
    case VB_CHECK_KEY:
        return -ENOENT;
    case VB_CHECK_RANGE:
        return -EINVAL;
    default:
        return -EPERM;
    }
}

static int prefetch(const struct vb_mr_shared *mr, const struct ibv_sge *sge, bool to_write,
                    bool wait)
{
    uint8_t *at = vb_mr_pointer(mr, sge->addr);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), into = (uintptr_t)at & (page - 1);

    if (wait)
        return vb_memory_is_mapped(at, sge->length, to_write) ? 0 : -EFAULT;
    madvise(at - into, sge->length + into, MADV_WILLNEED);
    return 0;
}

int vb_mr_advise(struct vb_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                 const struct ibv_sge *list, uint32_t count)
{
    bool to_write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    const struct vb_mr_shared *mr;
    int error = 0;

    if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
        return -EOPNOTSUPP;
    if ((flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH) || !count || !list)
        return -EINVAL;
    for (uint32_t i = 0; i < count && !error; ++i)
        error = check_advice(pd->context->adapter, pd, to_write, &list[i], &mr);
    if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
        return error; /* mapped memory needs no further preparation: there are no page tables */
    for (uint32_t i = 0; i < count && !error; ++i) {
        error = check_advice(pd->context->adapter, pd, to_write, &list[i], &mr);
        if (!error)
            error = prefetch(mr, &list[i], to_write, flags & IBV_ADVISE_MR_FLAG_FLUSH);
    }
    return error;
}
