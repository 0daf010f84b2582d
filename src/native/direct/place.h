// SPDX-License-Identifier: Apache-2.0
/*
 * Copies between this process's memory and a peer's, by whichever way reaches that: a mapping, the
 * kernel's cross-process copy, or the bounce ring. The requester calls this after all checks.
 */
#ifndef VB_DIRECT_PLACE_H
#define VB_DIRECT_PLACE_H

#include <stddef.h>
#include <stdint.h>

#include "direct/peer.h"
#include "hca/layout.h"
#include "memory/guard.h"

/* A piece of memory: where its owner has it, and where this process does (NULL: nowhere). */
struct vb_span {
    uint8_t *here;
    uint64_t addr;
    uint64_t length;
};

enum { VB_SPANS = VB_MAX_SGE + 1 }; /* a GRH stands before a datagram's elements */

struct vb_spans {
    uint32_t count;
    uint64_t total;
    bool at_once; /* of receive buffers: the payload may not wait for a poll (vb_direct_recv_spans)
                   */
    struct vb_span span[VB_SPANS];
};

static inline void vb_direct_spans_add(struct vb_spans *spans, uint8_t *here, uint64_t addr,
                                       uint64_t length)
{
    if (!length)
        return;
    spans->span[spans->count++] = (struct vb_span){here, addr, length};
    spans->total += length;
}

/*
 * Where this process sees part of a peer's region, or NULL. The offset stands in memory that the
 * peer and all its peers write to: one that leads beyond the peer's heap would be an address of
 * this process's own, and is not followed.
 */
static inline uint8_t *vb_direct_peer_pointer(const struct vb_peer *peer,
                                              const struct vb_mr_shared *mr, uint64_t iova,
                                              uint64_t length)
{
    uint64_t offset;

    if (peer->self)
        return (uint8_t *)(uintptr_t)(mr->addr + (iova - mr->iova));
    if (!mr->in_heap || !peer->heap)
        return NULL;
    offset = __atomic_load_n(&mr->heap_offset, __ATOMIC_RELAXED) + (iova - mr->iova);
    if (VB_UNLIKELY(offset > peer->heap_size || length > peer->heap_size - offset))
        return NULL;
    return peer->heap + offset;
}

/* Does this process see all of it? */
bool vb_direct_spans_are_here(const struct vb_spans *spans);

int vb_direct_put_list(struct vb_direct *direct, struct vb_peer *peer, const struct vb_spans *local,
                       const struct vb_spans *remote);
int vb_direct_get_list(struct vb_direct *direct, struct vb_peer *peer, const struct vb_spans *local,
                       const struct vb_spans *remote);

/*
 * Copies the first min(total) bytes from one list to the other. 0; -EFAULT: memory on either side
 * is gone; -EPIPE: the peer died.
 */
static inline int vb_direct_put(struct vb_direct *direct, struct vb_peer *peer,
                                const struct vb_spans *local, const struct vb_spans *remote)
{
    if (local->count != 1 || remote->count != 1 || !remote->span[0].here)
        return vb_direct_put_list(direct, peer, local, remote);
    return vb_memory_guarded_move(remote->span[0].here, local->span[0].here, local->total,
                                  peer->self ? VB_DOUBT_BOTH : VB_DOUBT_FROM);
}

static inline int vb_direct_get(struct vb_direct *direct, struct vb_peer *peer,
                                const struct vb_spans *local, const struct vb_spans *remote)
{
    if (local->count != 1 || remote->count != 1 || !remote->span[0].here)
        return vb_direct_get_list(direct, peer, local, remote);
    return vb_memory_guarded_move(local->span[0].here, remote->span[0].here, local->total,
                                  peer->self ? VB_DOUBT_BOTH : VB_DOUBT_TO);
}

#endif
