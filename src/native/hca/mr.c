// SPDX-License-Identifier: Apache-2.0
#include "hca/mr.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hca/port.h"
#include "hca/qp.h"
#include "memory/heap.h"

enum {
    MR_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
        IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
        IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB,
};

static int check_access(struct vb_context *context, unsigned access)
{
    unsigned unknown = access & ~((unsigned)MR_ACCESS | IBV_ACCESS_OPTIONAL_RANGE);

    /* Optional flags are hints that a device may ignore. */
    if (unknown)
        return vb_decline(context, -EINVAL, "the access flags {0a} are not known", unknown);
    if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
        !(access & IBV_ACCESS_LOCAL_WRITE)) /* IBA 10.6.3.2 */
        return vb_decline(context, -EINVAL,
                          "the access flags {0a} let peers write and lack LOCAL_WRITE, which "
                          "REMOTE_WRITE and REMOTE_ATOMIC need: add it",
                          access);
    return 0;
}

/* -EFAULT when part of the range is not mapped, as pinning it would say. */
static int check_mapped(struct vb_context *context, const void *addr, size_t length)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)addr & ~(page - 1);

    if (length == 0 || (uintptr_t)addr + length < (uintptr_t)addr)
        return vb_decline(context, -EINVAL,
                          "[{0x}, +{1}) is no range: it is empty, or goes beyond the address space",
                          (uintptr_t)addr, length);
    /* Asynchronous: nothing is written, the kernel only walks the mappings. */
    if (msync((void *)start, (uintptr_t)addr + length - start, MS_ASYNC))
        return vb_decline(context, -EFAULT,
                          "[{0x}, +{1}) is not mapped, or only a part of it: register memory that "
                          "is there, and not beyond its end",
                          (uintptr_t)addr, length);
    return 0;
}

/* Fills the entry but for its key, which makes it valid. */
static void describe(struct vb_adapter *adapter, struct vb_mr_shared *entry, uint32_t pd,
                     void *addr, size_t length, uint64_t iova, unsigned access)
{
    entry->pd = pd;
    entry->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
    entry->length = length;
    entry->addr = (uintptr_t)addr;
    entry->access = access;
    entry->in_heap = adapter->heap && vb_heap_contains(adapter->heap, addr, length);
    entry->heap_offset = entry->in_heap ? vb_heap_offset(adapter->heap, addr) : 0;
}

/* The low byte is random too, and never that of the entry's last key, which is stale. */
static uint32_t new_key(struct vb_adapter *adapter, uint32_t index)
{
    struct vb_mr_shared *entry = &adapter->self.mr[index];
    uint32_t step = 1 + vb_random(adapter) % 255;

    return entry->last_key = index << 8 | ((entry->last_key + step) & 0xff);
}

static void publish(struct vb_mr *mr, uint32_t key)
{
    struct vb_mr_shared *entry = &mr->pd->context->adapter->self.mr[mr->index];

    atomic_store_explicit(&entry->key, key, memory_order_release);
    mr->ibv.lkey = mr->ibv.rkey = key;
    mr->ibv.handle = mr->index;
}

static void mr_release(struct vb_object *object)
{
    vb_mr_dereg((struct vb_mr *)((char *)object - offsetof(struct vb_mr, object)));
}

static void fill_abi(struct vb_mr *mr, void *addr, size_t length)
{
    mr->ibv.context = mr->pd->context->ibv;
    mr->ibv.pd = &mr->pd->ibv;
    mr->ibv.addr = addr;
    mr->ibv.length = length;
}

int vb_mr_reg(struct vb_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access,
              struct vb_mr **mr)
{
    struct vb_adapter *adapter = pd->context->adapter;
    struct vb_mr *made;
    uint32_t key = 0;
    int error = check_access(pd->context, access);

    if (!error)
        error = check_mapped(pd->context, addr, length);
    if (error)
        return error;
    made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    made->pd = pd;
    pthread_mutex_lock(&adapter->mutex);
    error = vb_keys_take(&adapter->keys, &adapter->random, &made->index);
    if (!error) {
        atomic_store(&adapter->self.header->mr_window, adapter->keys.window);
        key = new_key(adapter, made->index);
    }
    pthread_mutex_unlock(&adapter->mutex);
    if (error) {
        free(made);
        return error;
    }
    describe(adapter, &adapter->self.mr[made->index], pd->number, addr, length, iova, access);
    fill_abi(made, addr, length);
    publish(made, key);
    atomic_fetch_add(&pd->users, 1);
    vb_object_add(pd->context, &made->object, mr_release);
    *mr = made;
    return 0;
}

/* Every request that may have passed the check before the key was withdrawn is over. */
static void settle_all(struct vb_adapter *adapter)
{
    uint32_t last;

    vb_barrier_everywhere();
    pthread_mutex_lock(&adapter->lifetime);
    last = adapter->qp_pool.next;
    for (uint32_t i = 0; i < last; ++i)
        if (adapter->qps[i])
            adapter->port->settle(adapter->qps[i]);
    pthread_mutex_unlock(&adapter->lifetime);
}

static void withdraw(struct vb_adapter *adapter, struct vb_mr *mr)
{
    atomic_store(&adapter->self.mr[mr->index].key, 0);
    settle_all(adapter);
}

int vb_mr_dereg(struct vb_mr *mr)
{
    struct vb_adapter *adapter = mr->pd->context->adapter;

    withdraw(adapter, mr);
    vb_object_remove(mr->pd->context, &mr->object);
    atomic_fetch_sub(&mr->pd->users, 1);
    pthread_mutex_lock(&adapter->mutex);
    vb_keys_return(&adapter->keys, mr->index);
    pthread_mutex_unlock(&adapter->mutex);
    free(mr);
    return 0;
}

static void move_to_pd(struct vb_mr *mr, struct vb_pd *pd)
{
    atomic_fetch_add(&pd->users, 1);
    atomic_fetch_sub(&mr->pd->users, 1);
    mr->pd = pd;
    mr->ibv.pd = &pd->ibv;
}

/* Another entry, so that all of the key is new; where there is none, its low byte is. */
static uint32_t move_entry(struct vb_adapter *adapter, struct vb_mr *mr)
{
    uint32_t index, key;

    pthread_mutex_lock(&adapter->mutex);
    if (vb_keys_take(&adapter->keys, &adapter->random, &index) == 0) {
        vb_keys_return(&adapter->keys, mr->index);
        mr->index = index;
        atomic_store(&adapter->self.header->mr_window, adapter->keys.window);
    }
    key = new_key(adapter, mr->index);
    pthread_mutex_unlock(&adapter->mutex);
    return key;
}

int vb_mr_rereg(struct vb_mr *mr, int flags, struct vb_pd *pd, void *addr, size_t length,
                unsigned access)
{
    struct vb_adapter *adapter = mr->pd->context->adapter;
    struct vb_mr_shared *entry = &adapter->self.mr[mr->index];
    uint32_t key = mr->ibv.lkey;
    uint64_t iova = entry->iova;
    int error = 0;

    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
        error = check_mapped(mr->pd->context, addr, length);
        iova = (uintptr_t)addr;
    } else {
        addr = mr->ibv.addr;
        length = mr->ibv.length;
    }
    if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
        access = entry->access;
    if (!error)
        error = check_access(mr->pd->context, access);
    if (error)
        return error;
    withdraw(adapter, mr);
    if (flags & IBV_REREG_MR_CHANGE_PD)
        move_to_pd(mr, pd);
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) { /* the old key meant other memory */
        key = move_entry(adapter, mr);
        entry = &adapter->self.mr[mr->index];
    }
    describe(adapter, entry, mr->pd->number, addr, length, iova, access);
    fill_abi(mr, addr, length);
    publish(mr, key);
    return 0;
}
