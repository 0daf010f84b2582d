// SPDX-License-Identifier: Apache-2.0
/*
 * Copies between two lists of spans, by mapping, by cross-process copy or through the bounce ring
 * (place.h).
 */
#include "direct/place.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "direct/direct.h"

/* Walks two lists in step; `piece` is the longest run that is whole in both. */
struct walk {
    const struct vb_spans *a, *b;
    uint32_t at_a, at_b;
    uint64_t into_a, into_b;
};

static uint64_t piece(const struct walk *walk)
{
    uint64_t a, b;

    if (walk->at_a == walk->a->count || walk->at_b == walk->b->count)
        return 0;
    a = walk->a->span[walk->at_a].length - walk->into_a;
    b = walk->b->span[walk->at_b].length - walk->into_b;
    return a < b ? a : b;
}

static void place_step(struct walk *walk, uint64_t length)
{
    walk->into_a += length;
    walk->into_b += length;
    if (walk->into_a == walk->a->span[walk->at_a].length) {
        ++walk->at_a;
        walk->into_a = 0;
    }
    if (walk->into_b == walk->b->span[walk->at_b].length) {
        ++walk->at_b;
        walk->into_b = 0;
    }
}

bool vb_direct_spans_are_here(const struct vb_spans *spans)
{
    for (uint32_t i = 0; i < spans->count; ++i)
        if (!spans->span[i].here)
            return false;
    return true;
}

static int copy_here(const struct vb_spans *to, const struct vb_spans *from, unsigned doubt)
{
    struct walk walk = {.a = to, .b = from};
    int error = 0;

    for (uint64_t n; !error && (n = piece(&walk)); place_step(&walk, n))
        error = vb_memory_guarded_move(to->span[walk.at_a].here + walk.into_a,
                                       from->span[walk.at_b].here + walk.into_b, n, doubt);
    return error;
}

static int to_iovecs(const struct vb_spans *spans, bool own, struct iovec *iov, uint64_t skip,
                     uint64_t limit)
{
    int count = 0;

    for (uint32_t i = 0; i < spans->count && limit; ++i) {
        const struct vb_span *span = &spans->span[i];
        uint64_t from = skip < span->length ? skip : span->length;
        uint64_t length = span->length - from;

        skip -= from;
        if (!length)
            continue;
        length = length < limit ? length : limit;
        iov[count].iov_base = own ? span->here + from : (void *)(uintptr_t)(span->addr + from);
        iov[count++].iov_len = length;
        limit -= length;
    }
    return count;
}

/* One system call carries at most 2 GiB - 4096 bytes and may do less: go on from there. */
static int place_cross_process(struct vb_peer *peer, const struct vb_spans *local,
                               const struct vb_spans *remote, bool put)
{
    uint64_t total = local->total < remote->total ? local->total : remote->total;

    for (uint64_t done = 0; done < total;) {
        struct iovec mine[VB_SPANS], theirs[VB_SPANS];
        unsigned long m = (unsigned long)to_iovecs(local, true, mine, done, total - done);
        unsigned long t = (unsigned long)to_iovecs(remote, false, theirs, done, total - done);
        ssize_t n = put ? process_vm_writev(peer->pid, mine, m, theirs, t, 0)
                        : process_vm_readv(peer->pid, mine, m, theirs, t, 0);

        if (n < 0 && errno == ESRCH)
            return -EPIPE;
        if (n <= 0)
            return -EFAULT;
        done += (uint64_t)n;
    }
    return 0;
}

static int bounce(struct vb_direct *direct, struct vb_peer *peer, const struct vb_spans *local,
                  const struct vb_spans *remote, enum vb_bounce_op op)
{
    struct walk walk = {.a = local, .b = remote};
    int error = 0;

    for (uint64_t n; !error && (n = piece(&walk)); place_step(&walk, n))
        error = vb_direct_bounce_copy(direct, peer, op, remote->span[walk.at_b].addr + walk.into_b,
                                      local->span[walk.at_a].here + walk.into_a, n);
    return error;
}

int vb_direct_put_list(struct vb_direct *direct, struct vb_peer *peer, const struct vb_spans *local,
                       const struct vb_spans *remote)
{
    if (vb_direct_spans_are_here(remote))
        return copy_here(remote, local, peer->self ? VB_DOUBT_BOTH : VB_DOUBT_FROM);
    return peer->cma ? place_cross_process(peer, local, remote, true)
                     : bounce(direct, peer, local, remote, VB_BOUNCE_WRITE);
}

int vb_direct_get_list(struct vb_direct *direct, struct vb_peer *peer, const struct vb_spans *local,
                       const struct vb_spans *remote)
{
    if (vb_direct_spans_are_here(remote))
        return copy_here(local, remote, peer->self ? VB_DOUBT_BOTH : VB_DOUBT_TO);
    return peer->cma ? place_cross_process(peer, local, remote, false)
                     : bounce(direct, peer, local, remote, VB_BOUNCE_READ);
}
