// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that only its owner can reach: the requester puts a job into its own segment, and the
 * owner's service thread carries it out. Large copies are cut into chunks, several in flight.
 */
#ifndef VB_DIRECT_BOUNCE_H
#define VB_DIRECT_BOUNCE_H

#include <stdatomic.h>
#include <stdint.h>

#include "hca/adapter.h"
#include "hca/atomic.h"

struct vb_peer;
struct vb_direct;

enum { VB_BOUNCE_JOBS = 4, VB_BOUNCE_CHUNK = 256 << 10 };

enum vb_bounce_op { VB_BOUNCE_WRITE, VB_BOUNCE_READ, VB_BOUNCE_ATOMIC };

struct vb_bounce_job {
    _Atomic uint32_t state; /* enum vb_bounce_state */
    uint32_t op;
    uint64_t addr; /* in the owner's address space */
    uint64_t length;
    uint64_t compare_add; /* atomics */
    uint64_t swap;
    uint64_t result;
    int32_t error;   /* negative errno */
    uint32_t atomic; /* enum vb_atomic_op */
    _Alignas(64) uint8_t data[VB_BOUNCE_CHUNK];
};

/*
 * from       to         by
 * FREE       ASKED      requester, with a message
 * ASKED      SERVED     owner, when it reads the message
 * SERVED     DONE       owner
 * DONE       FREE       requester
 * DONE       ASKED      requester, with a message, if it had given up on what is done now
 * ASKED      CANCELLED  requester, out of patience: the job will not be carried out
 * CANCELLED  ASKED      requester, again; the first message is still under way
 * CANCELLED  FREE       owner, when it reads the message
 */
enum vb_bounce_state {
    VB_BOUNCE_FREE = 0,
    VB_BOUNCE_ASKED,
    VB_BOUNCE_SERVED,
    VB_BOUNCE_DONE,
    VB_BOUNCE_CANCELLED,
};

struct vb_bounce {
    struct vb_bounce_job *jobs[VB_BOUNCE_JOBS];
    uint64_t answered_at; /* ns: when the owner answered last; 0: never */
};

/*
 * Both return 0, -EFAULT (not mapped there any more), -EPIPE (the owner died), -ENOMEM; -EAGAIN:
 * the owner does not answer now, nothing more will happen; -ETIMEDOUT: it began and does not end,
 * because it is stopped, say. A copy may be tried again then: it waits for the one that had begun.
 */
int vb_direct_bounce_copy(struct vb_direct *direct, struct vb_peer *peer, enum vb_bounce_op op,
                          uint64_t addr, uint8_t *local, uint64_t length);
int vb_direct_bounce_atomic(struct vb_direct *direct, struct vb_peer *peer, enum vb_atomic_op op,
                            uint64_t addr, uint64_t compare_add, uint64_t swap, uint64_t *result);

/* The owner's side: one job, found in the requester's segment. */
void vb_direct_bounce_serve(struct vb_direct *direct, struct vb_peer *requester, uint64_t offset);
/* Returns when no job that had begun is still under way here. */
void vb_direct_bounce_settle(struct vb_direct *direct);

void vb_direct_bounce_free(struct vb_direct *direct, struct vb_bounce *bounce);

#endif
