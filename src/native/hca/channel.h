// SPDX-License-Identifier: Apache-2.0
/*
 * Completion channels. Each is a pipe: a thread that completes into an armed CQ, in this process or
 * in a peer that has the pipe's writing end, writes a record of 8 bytes that names the CQ. Where
 * this process alone writes and its reader needs no readable descriptor (sim), records are kept in
 * memory beside the pipe, which costs no system call.
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
    uint32_t serial;     /* names the channel for ever; not 0 */
    unsigned vain_spins; /* spins without an event in a row; a hint, so races do no harm */
    unsigned waits;
    bool keeps;                /* records are kept in `ring`, and none is in the pipe */
    uint32_t kept, first_kept; /* how many records are kept, and where the oldest is */
    /* Where CQs are late: records that were made, read, and told of by an interrupt. */
    uint32_t events, taken, raised;
    uint32_t kept_room;             /* entries of `ring`, a power of two */
    struct vb_channel_record *ring; /* from malloc */
};

struct vb_channel_record {
    uint32_t cq;         /* table index */
    uint32_t generation; /* tells a CQ from one that had the index before */
};

int vb_channel_create(struct vb_context *context, struct vb_channel **channel);
int vb_channel_destroy(struct vb_channel *channel); /* -EBUSY while a CQ uses it */

/*
 * Waits for the next event: 0 and its CQ, or -EAGAIN or -EINTR. Spins for `spin_us` before it
 * sleeps. With a channel that keeps its records it never sleeps.
 */
int vb_channel_wait(struct vb_channel *channel, unsigned spin_us, struct vb_cq **cq);

/* False: the pipe is full, with thousands of records (vb_cq_wake). */
bool vb_channel_write(int write_fd, uint32_t cq, uint32_t generation);

/*
 * Keeps records in memory from now on, those in the pipe too, or writes them to the pipe again. One
 * thread may use a channel that keeps records; vb_host_calls.readable says when there is one.
 * -ENOMEM: the pipe has them, as before.
 */
int vb_channel_keep(struct vb_channel *channel, bool keep);
/* Keeps a record. False: as many are kept as a pipe holds, or there is no memory. */
bool vb_channel_add(struct vb_channel *channel, uint32_t cq, uint32_t generation);

#endif
