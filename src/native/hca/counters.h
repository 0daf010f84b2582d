// SPDX-License-Identifier: Apache-2.0
/*
 * The counters of a packet engine: packets, drops, NAKs, retries and refusals. The engine counts
 * under its lock; whoever shows counters reads them without it.
 */
#ifndef VB_HCA_COUNTERS_H
#define VB_HCA_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

/* name, what it means */
#define VB_COUNTERS(X)                                                                             \
    X(packets_received, "transport packets that came in")                                          \
    X(packets_sent, "transport packets handed out")                                                \
    X(payload_received, "bytes of payload placed")                                                 \
    X(payload_sent, "bytes of payload handed out, retransmissions included")                       \
    X(acks_sent, "acknowledgements")                                                               \
    X(acks_received, "acknowledgements")                                                           \
    X(drop_malformed, "shorter than its headers, or wrong padding")                                \
    X(drop_version, "transport version other than 0")                                              \
    X(drop_opcode, "no such opcode, or one that is not served")                                    \
    X(drop_no_qp, "for a queue pair that does not exist")                                          \
    X(drop_transport, "opcode of another transport than the queue pair's")                         \
    X(drop_state, "queue pair not ready to receive, or in error")                                  \
    X(drop_pkey, "wrong partition key")                                                            \
    X(drop_qkey, "wrong queue key")                                                                \
    X(drop_source, "from or to another address than the connection's")                             \
    X(drop_no_receive, "unreliable, and no receive request")                                       \
    X(drop_unreliable, "unreliable: message refused or part of it missing")                        \
    X(drop_after_nak, "out of sequence while a NAK is not answered")                               \
    X(drop_ghost, "response to nothing that is outstanding")                                       \
    X(drop_syndrome, "acknowledgement with a reserved syndrome")                                   \
    X(drop_stale_duplicate, "duplicate READ or atomic that is kept no more or differs")            \
    X(drop_busy, "atomic while another process held the lock for long")                            \
    X(fecn_received, "with forward congestion mark")                                               \
    X(becn_received, "with backward congestion mark")                                              \
    X(ecn_received, "with the network's congestion mark (IP)")                                     \
    X(cnp_received, "congestion notification packets of a queue pair's peer")                      \
    X(duplicate_requests, "requests seen before: acknowledged or replayed again")                  \
    X(renumbered, "empty duplicates after which a peer counts on from another PSN (rdma_rxe)")     \
    X(duplicate_responses, "READ and atomic responses sent again")                                 \
    X(nak_sequence_sent, "NAK: a packet is missing")                                               \
    X(nak_rnr_sent, "RNR NAK: no receive request")                                                 \
    X(nak_invalid_sent, "NAK: invalid request")                                                    \
    X(nak_access_sent, "NAK: remote access error")                                                 \
    X(nak_operation_sent, "NAK: remote operational error")                                         \
    X(nak_sequence_received, "NAK: a packet is missing")                                           \
    X(nak_rnr_received, "RNR NAK: no receive request")                                             \
    X(nak_fatal_received, "NAK that ends the connection")                                          \
    X(lost_responses, "READ or atomic asked for again: part of its response is missing")           \
    X(timeouts, "local ACK timeouts")                                                              \
    X(packets_resent, "request packets handed out again")                                          \
    X(retries_exhausted, "requests given up after retry_cnt retries")                              \
    X(rnr_retries_exhausted, "requests given up after rnr_retry retries")                          \
    X(bad_responses, "responses that do not fit their request")                                    \
    X(refused_qp_access, "the queue pair's access flags do not grant it")                          \
    X(refused_key, "key names nothing")                                                            \
    X(refused_pd, "key of another protection domain")                                              \
    X(refused_range, "outside the region")                                                         \
    X(refused_access, "the region does not grant it")                                              \
    X(refused_other, "any other check of a request")                                               \
    X(completions_lost, "that a completion queue had no room for: it is in error since")           \
    X(credit_stalls, "requests that waited for end-to-end credits")                                \
    X(no_memory_pages, "copies that met memory that is gone")                                      \
    X(window_cuts, "congestion windows cut: packets were lost or marked")                          \
    X(probes, "packets sent again after a few round trips of silence, before the timeout")         \
    X(packets_held, "out of sequence, kept until what is missing comes")                           \
    X(np_ecn_marked_roce_packets, "with data and the network's congestion mark")                   \
    X(np_cnp_sent, "congestion notification packets")                                              \
    X(rp_cnp_handled, "congestion notifications that the sender reacted to")

struct vb_counters {
#define X(name, meaning) uint64_t name;
    VB_COUNTERS(X)
#undef X
};

enum { VB_COUNTER_COUNT = sizeof(struct vb_counters) / sizeof(uint64_t) };

struct vb_counter_name {
    const char *name;
    const char *meaning;
};

/* In the order of the struct, VB_COUNTER_COUNT of them. */
extern const struct vb_counter_name vb_counter_names[];

#endif
