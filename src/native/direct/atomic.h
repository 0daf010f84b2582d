// SPDX-License-Identifier: Apache-2.0
/*
 * Atomic operations. In heap memory the processor's own instructions are atomic for every process
 * that maps the heap. No instruction of another process reaches a process's own memory, so all
 * atomics on that, the owner's included, take the lock in the owner's segment. They are atomic
 * among verbs requests (IBV_ATOMIC_HCA), which is what query_device reports. An atomic write is one
 * store by a process that has the memory mapped, so that a reader of the word never sees half of
 * it.
 */
#ifndef VB_DIRECT_ATOMIC_H
#define VB_DIRECT_ATOMIC_H

#include <stdint.h>

#include "hca/atomic.h"
#include "hca/layout.h"

struct vb_direct;
struct vb_peer;

/* 8 bytes at `iova` of a checked region; `result` is what stood there (atomic.h). 0, -EFAULT or
 * -EPIPE. */
int vb_direct_atomic(struct vb_direct *direct, struct vb_peer *peer, const struct vb_mr_shared *mr,
                     uint64_t iova, enum vb_atomic_op op, uint64_t compare_add, uint64_t swap_value,
                     uint64_t *result);

/*
 * On this process's own memory, for a peer that cannot reach it. -EBUSY: the lock's holder is
 * slow, or dead and its lock not released yet. The service thread releases it, so it must not wait
 * here.
 */
int vb_direct_atomic_own(struct vb_direct *direct, void *word, enum vb_atomic_op op,
                         uint64_t compare_add, uint64_t swap_value, uint64_t *result);

#endif
