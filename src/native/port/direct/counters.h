// SPDX-License-Identifier: Apache-2.0
/*
 * What the direct carrier counts: the requests that posters have carried out, and what they waited
 * for. Each queue pair counts for itself, under its sq_lock (requester.c, waiting.c, datagram.c);
 * what a queue pair has counted is added to its device's counts when it is reset or destroyed
 * (connection.c).
 */
#ifndef VB_PORT_DIRECT_COUNTERS_H
#define VB_PORT_DIRECT_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#include "hca/text.h"

struct vb_direct;

/* name, what it means */
#define VB_DIRECT_COUNTERS(X)                                                                      \
    X(sends, "SENDs that were carried out")                                                        \
    X(writes, "RDMA WRITEs, those with immediate data too")                                        \
    X(reads, "RDMA READs")                                                                         \
    X(atomics, "atomic operations, atomic WRITEs too")                                             \
    X(flushes, "FLUSHes")                                                                          \
    X(datagrams, "datagrams of UD queue pairs, each once, also those to groups")                   \
    X(payload_sent, "bytes of SENDs, WRITEs and datagrams")                                        \
    X(payload_read, "bytes that READs have brought")                                               \
    X(lost, "UC requests that reached nobody")                                                     \
    X(waits_for_receive, "requests that waited for the peer to post a receive")                    \
    X(waits_for_peer, "requests that waited for a peer that was not there or did not answer")

struct vb_direct_counts {
#define X(name, meaning) uint64_t name;
    VB_DIRECT_COUNTERS(X)
#undef X
};

/* Under the sq_lock of the queue pair that counts here; others may read at the same time. */
static inline void vb_direct_count(uint64_t *count, uint64_t by)
{
    __atomic_store_n(count, *count + by, __ATOMIC_RELAXED);
}

/* Moves them: `from` is 0 after it. */
void vb_direct_counts_move(struct vb_direct_counts *from, struct vb_direct_counts *to);
/* To the device's, which another thread may add to as well. */
void vb_direct_counts_retire(struct vb_direct *direct, struct vb_direct_counts *counts);

/* A member `"direct":{...}` of a JSON object: the device's counts, with its queue pairs'. */
void vb_direct_counters_describe(struct vb_direct *direct, struct vb_text *text);
/* Calls `tell` with each that is not 0. */
void vb_direct_tell_counters(struct vb_direct *direct,
                             void (*tell)(const char *part, const char *name, uint64_t value));

#endif
