// SPDX-License-Identifier: Apache-2.0
/*
 * Device memory (ibv_alloc_dm): allocating, copying, importing and freeing it. Several contexts may
 * have imported one memory, which is freed with its last object.
 */
#include "hca/dm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "memory/copy.h"
#include "memory/heap.h"

/* ---- copies ---- */

static bool covers(const struct vb_dm *dm, uint64_t offset, size_t length)
{
    return offset % VB_DM_UNIT == 0 && length % VB_DM_UNIT == 0 && length <= dm->length &&
           offset <= dm->length - length;
}

static int copy_to(struct ibv_dm *ibv, uint64_t offset, const void *from, size_t length)
{
    struct vb_dm *dm = (struct vb_dm *)ibv;

    if (!covers(dm, offset, length))
        return EINVAL;
    vb_memory_copy(dm->memory + offset, from, length);
    return 0;
}

static int copy_from(void *to, struct ibv_dm *ibv, uint64_t offset, size_t length)
{
    struct vb_dm *dm = (struct vb_dm *)ibv;

    if (!covers(dm, offset, length))
        return EINVAL;
    vb_memory_copy(to, dm->memory + offset, length);
    return 0;
}

/* ---- allocating ---- */

static int dm_check(const struct ibv_alloc_dm_attr *attr)
{
    if (attr->comp_mask || !attr->length || attr->length > VB_DM_BYTES ||
        attr->log_align_req > VB_DM_LOG_ALIGN)
        return -EINVAL;
    return 0;
}

static int take_room(struct vb_adapter *adapter, size_t length)
{
    int error = 0;

    vb_lock_take(&adapter->mutex);
    if (length > VB_DM_BYTES - adapter->dm_used)
        error = -ENOMEM;
    else
        adapter->dm_used += length;
    vb_lock_release(&adapter->mutex);
    return error;
}

static void give_room(struct vb_adapter *adapter, size_t length)
{
    vb_lock_take(&adapter->mutex);
    adapter->dm_used -= length;
    vb_lock_release(&adapter->mutex);
}

static int get_memory(struct vb_dm_store *store, unsigned log_align)
{
    size_t align = (size_t)1 << log_align;

    align = align < VB_LINE ? VB_LINE : align;
    if (store->heap)
        store->memory = vb_memory_heap_alloc(store->heap, store->length, align);
    else
        store->memory = aligned_alloc(align, (store->length + align - 1) & ~(align - 1));
    if (!store->memory)
        return -ENOMEM;
    memset(store->memory, 0, store->length);
    return 0;
}

static void put_store(struct vb_dm_store *store)
{
    if (atomic_fetch_sub(&store->refs, 1) != 1)
        return;
    if (store->heap)
        vb_memory_heap_free(store->heap, store->memory);
    else
        free(store->memory);
    if (store->adapter)
        give_room(store->adapter, store->length);
    free(store);
}

static struct vb_dm_store *new_store(struct vb_adapter *adapter, struct vb_heap *heap,
                                     size_t length, unsigned log_align)
{
    struct vb_dm_store *made = calloc(1, sizeof(*made));

    if (!made)
        return NULL;
    made->heap = heap;
    made->length = length;
    if (adapter && take_room(adapter, length)) {
        free(made);
        return NULL;
    }
    made->adapter = adapter;
    atomic_store(&made->refs, 1);
    if (get_memory(made, log_align) == 0)
        return made;
    put_store(made);
    return NULL;
}

/* ---- objects ---- */

static void dm_release(struct vb_object *object)
{
    struct vb_dm *dm = (struct vb_dm *)((char *)object - offsetof(struct vb_dm, object));

    atomic_store(&dm->users, 0);
    vb_dm_free(dm);
}

static uint32_t next_handle(struct vb_context *context)
{
    uint32_t handle;

    vb_lock_take(&context->adapter->mutex);
    handle = ++context->adapter->dm_serial;
    vb_lock_release(&context->adapter->mutex);
    return handle;
}

/* Makes an object for the store, and takes over the caller's reference to it. */
static int new_dm(struct vb_context *context, struct vb_dm_store *store, uint32_t handle,
                  struct vb_dm **dm)
{
    struct vb_dm *made = calloc(1, sizeof(*made));

    if (!made) {
        put_store(store);
        return -ENOMEM;
    }
    made->context = context;
    made->store = store;
    made->memory = store->memory;
    made->length = store->length;
    made->ibv.memcpy_to_dm = copy_to;
    made->ibv.memcpy_from_dm = copy_from;
    made->ibv.comp_mask = IBV_DM_MASK_HANDLE;
    made->ibv.handle = handle;
    if (context) {
        made->ibv.context = context->ibv;
        vb_object_add(context, &made->object, dm_release);
    }
    *dm = made;
    return 0;
}

int vb_dm_alloc(struct vb_context *context, struct vb_heap *heap,
                const struct ibv_alloc_dm_attr *attr, struct vb_dm **dm)
{
    struct vb_dm_store *store;
    int error = dm_check(attr);

    if (error)
        return error;
    store = new_store(context ? context->adapter : NULL, heap, attr->length, attr->log_align_req);
    if (!store)
        return -ENOMEM;
    return new_dm(context, store, context ? next_handle(context) : 0, dm);
}

int vb_dm_free(struct vb_dm *dm)
{
    if (atomic_load(&dm->users))
        return -EBUSY;
    if (dm->context)
        vb_object_remove(dm->context, &dm->object);
    put_store(dm->store);
    dm->length = 0; /* nothing can be copied to an object that the program keeps */
    vb_object_free(&dm->object, dm);
    return 0;
}

void vb_dm_use(struct vb_dm *dm)
{
    atomic_fetch_add(&dm->users, 1);
}

void vb_dm_drop(struct vb_dm *dm)
{
    atomic_fetch_sub(&dm->users, 1);
}

/* ---- import ---- */

/* Returns the store of the memory with this handle, with a reference, or NULL. */
static struct vb_dm_store *find_store(struct vb_context *context, uint32_t handle)
{
    struct vb_dm_store *found = NULL;

    vb_lock_take(&context->mutex);
    for (struct vb_object *each = context->objects; each && !found; each = each->next) {
        const struct vb_dm *dm = (struct vb_dm *)((char *)each - offsetof(struct vb_dm, object));

        if (each->release != dm_release || dm->ibv.handle != handle)
            continue;
        found = dm->store;
        atomic_fetch_add(&found->refs, 1);
    }
    vb_lock_release(&context->mutex);
    return found;
}

int vb_dm_import(struct vb_context *context, struct vb_context *from, uint32_t handle,
                 struct vb_dm **dm)
{
    struct vb_dm_store *store = find_store(from, handle);
    int error;

    if (!store)
        return -ENOENT;
    error = new_dm(context, store, handle, dm);
    if (!error)
        (*dm)->imported = true;
    return error;
}

void vb_dm_unimport(struct vb_dm *dm)
{
    if (dm->imported)
        vb_dm_free(dm);
}
