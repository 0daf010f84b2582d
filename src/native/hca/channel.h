// SPDX-License-Identifier: Apache-2.0
/*
 * Completion channels. Each is a pipe: whoever completes into an armed CQ, in this process or in
 * a peer that was given the pipe's other end, writes an 8-byte record that names the CQ. Where
 * only this process writes, and its reader learns otherwise that there is something, records can
 * be kept beside the pipe: that costs no system call.
 */
#ifndef VB_HCA_CHANNEL_H
#define VB_HCA_CHANNEL_H

#include <stdatomic.h>
#include <stdint.h>

#include "hca/adapter.h"

struct vb_channel {
    struct ibv_comp_channel ibv; /* fd is the reading end */
    struct vb_object object;
    struct vb_context *context;
    int write_fd;
    uint32_t serial;     /* never used again by this adapter; not 0 */
    unsigned vain_spins; /* in a row; hints, so races between waiters do no harm */
    unsigned waits;
    bool keeps;                     /* its records are here, and none is in the pipe: */
    uint32_t kept, first_kept;      /* so many, the oldest of them; */
    uint32_t kept_room;             /* a power of two */
    struct vb_channel_record *ring; /* malloc */
};

struct vb_channel_record {
    uint32_t cq;         /* table index */
    uint32_t generation; /* tells a CQ from one that had the index before */
};

int vb_channel_create(struct vb_context *context, struct vb_channel **channel);
int vb_channel_destroy(struct vb_channel *channel); /* -EBUSY while a CQ uses it */

/*
 * 0 and the CQ whose event was next; -EAGAIN, -EINTR; spins `spin_us` before it sleeps. Of a
 * channel that keeps its records it never sleeps.
 */
int vb_channel_wait(struct vb_channel *channel, unsigned spin_us, struct vb_cq **cq);

/* False: the pipe is full, with thousands of records (vb_cq_wake). */
bool vb_channel_write(int write_fd, uint32_t cq, uint32_t generation);

/*
 * From now on records are kept, those in the pipe too; or go into the pipe again. For one thread,
 * and the port says when there is a record (vb_host_calls.readable). -ENOMEM: the pipe has them, as
 * before.
 */
int vb_channel_keep(struct vb_channel *channel, bool keep);
/* False: it keeps as many as a pipe holds, or there is no memory. */
bool vb_channel_add(struct vb_channel *channel, uint32_t cq, uint32_t generation);

#endif
