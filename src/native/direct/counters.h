// SPDX-License-Identifier: Apache-2.0
/*
 * What the direct carrier counts: the requests that posters have carried out, and what they waited
 * for. Each queue pair counts for itself, under its sq_lock (requester.c, waiting.c, datagram.c);
 * what it has counted is moved to its device's counts when it is reset or destroyed (connection.c).
 * tally.h has the sums.
 */
#ifndef VB_DIRECT_COUNTERS_H
#define VB_DIRECT_COUNTERS_H

#include <stdint.h>

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

enum { VB_DIRECT_COUNTER_COUNT = sizeof(struct vb_direct_counts) / sizeof(uint64_t) };

/* Under the sq_lock of the queue pair that counts here; others may read at the same time. */
static inline void vb_direct_count(uint64_t *count, uint64_t by)
{
    __atomic_store_n(count, *count + by, __ATOMIC_RELAXED);
}

/* Moves them: `from` is 0 after it. */
void vb_direct_counts_move(struct vb_direct_counts *from, struct vb_direct_counts *to);

/* Adds them; other threads may add to the same. */
void vb_direct_counts_add(const struct vb_direct_counts *from, struct vb_direct_counts *to);

/* By their order. */
extern const char *const vb_direct_counter_names[VB_DIRECT_COUNTER_COUNT];

#endif
