// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that a peer maps, so that one copy reaches it. C programs allocate it by libibverbs'
 * ibv_alloc_buf, and Python and the library of --shared-heap by verbena_heap_alloc; both take it
 * from the process's heap.
 */
#include "dropin/buffer.h"

#include <stdint.h>
#include <stdlib.h>

#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/verbena.h"
#include "memory/process_heap.h"

struct ibv_buf {
    struct ibv_pd *pd;
    void *addr;
    size_t size;
};

VB_EXPORT void *verbena_heap_alloc(size_t size, size_t align)
{
    struct vb_heap *heap = vb_memory_process_heap();

    return heap ? vb_memory_heap_alloc(heap, size, align) : NULL;
}

VB_EXPORT void *verbena_heap_alloc_unzeroed(size_t size, size_t align)
{
    struct vb_heap *heap = vb_memory_process_heap();

    return heap ? vb_memory_heap_alloc_unzeroed(heap, size, align) : NULL;
}

VB_EXPORT int verbena_heap_resize(void *p, size_t size)
{
    struct vb_heap *heap = vb_memory_process_heap_if_any();

    return heap && p ? vb_memory_heap_resize(heap, p, size) : -EINVAL;
}

VB_EXPORT void verbena_heap_free(void *p)
{
    struct vb_heap *heap = vb_memory_process_heap_if_any();

    if (heap && p)
        vb_memory_heap_free(heap, p);
}

VB_EXPORT size_t verbena_heap_size(const void *p)
{
    struct vb_heap *heap = vb_memory_process_heap_if_any();

    return heap && p ? vb_memory_heap_usable(heap, p) : 0;
}

VB_EXPORT void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buffer)
{
    struct ibv_buf *made;

    if (!vb_dropin_core(pd->context))
        return vb_dropin_failed_null(pd->context, "ibv_alloc_buf", -VB_ERROR_FORKED);
    made = malloc(sizeof(*made));
    if (!made)
        return NULL;
    *made = (struct ibv_buf){.pd = pd, .addr = verbena_heap_alloc(size, 0), .size = size};
    if (!made->addr) {
        free(made);
        return NULL;
    }
    *buffer = made;
    return made->addr;
}

VB_EXPORT void ibv_free_buf(struct ibv_buf *buffer)
{
    verbena_heap_free(buffer->addr);
    free(buffer);
}

bool vb_dropin_buffer_covers(const struct ibv_buf *buffer, const struct ibv_pd *pd,
                             const void *addr, size_t length)
{
    uintptr_t start = (uintptr_t)addr, base = (uintptr_t)buffer->addr;

    return pd == buffer->pd && start >= base && start - base <= buffer->size &&
           length <= buffer->size - (start - base);
}

VB_EXPORT struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buffer, void *addr,
                                        size_t length, int access)
{
    if (!vb_dropin_buffer_covers(buffer, pd, addr, length))
        return vb_dropin_failed_null(
            pd->context, "ibv_reg_buf_mr",
            vb_decline(vb_dropin_core(pd->context), -EINVAL,
                       "[{0x}, +{1}) is not inside the buffer, or the PD is not the buffer's",
                       (uintptr_t)addr, length));
    return ibv_reg_mr(pd, addr, length, access);
}

/* The heap's memory is not a dma-buf, so it has no such descriptor. */
VB_EXPORT int ibv_export_buf_dmabuf_fd(struct ibv_buf *buffer)
{
    (void)buffer;
    errno = ENODATA;
    return -1;
}
