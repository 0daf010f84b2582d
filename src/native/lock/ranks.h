// SPDX-License-Identifier: Apache-2.0
/* Made by ranks.py from ranks.toml. The order of the locks: docs/locks.md explains it. */
/* clang-format off */
#ifndef VB_LOCK_RANKS_H
#define VB_LOCK_RANKS_H

enum vb_rank {
    VB_RANK_NONE = 0, /* a lock that was never initialised */
    VB_RANK_CQ_EX,
    VB_RANK_QP_EX,
    VB_RANK_DEVICES,
    VB_RANK_WATCH,
    VB_RANK_GROUPS,
    VB_RANK_QP_MODIFY,
    VB_RANK_SRQ_MODIFY,
    VB_RANK_CQ_ACKS,
    VB_RANK_VERBS_CONTEXT,
    VB_RANK_LIFETIME,
    VB_RANK_COUNTING,
    VB_RANK_ROCE,
    VB_RANK_SQ,
    VB_RANK_RECEIVE,
    VB_RANK_RQ,
    VB_RANK_CONNECT,
    VB_RANK_SERVE,
    VB_RANK_BOUNCE,
    VB_RANK_BINDING,
    VB_RANK_ADAPTER,
    VB_RANK_XRC,
    VB_RANK_XRC_TARGET,
    VB_RANK_CQ,
    VB_RANK_CQ_POLL,
    VB_RANK_SRQ_POST,
    VB_RANK_SRQ,
    VB_RANK_ATOMIC,
    VB_RANK_FABRIC,
    VB_RANK_PEERS,
    VB_RANK_SPARE,
    VB_RANK_LINKS,
    VB_RANK_PEER,
    VB_RANK_RETRY,
    VB_RANK_LATER,
    VB_RANK_CONTEXT,
    VB_RANK_SOURCES,
    VB_RANK_WRAP,
    VB_RANK_CAPTURE,
    VB_RANK_ADDRESSES,
    VB_RANK_DECLINES,
    VB_RANK_FAILURES,
    VB_RANK_GONE,
    VB_RANK_UMAD,
    VB_RANK_IDENTIFIERS,
    VB_RANK_HEAP,
    VB_RANK_GUARD,
};

#define VB_RANK_NAMES \
    "NONE", \
    "CQ_EX", \
    "QP_EX", \
    "DEVICES", \
    "WATCH", \
    "GROUPS", \
    "QP_MODIFY", \
    "SRQ_MODIFY", \
    "CQ_ACKS", \
    "VERBS_CONTEXT", \
    "LIFETIME", \
    "COUNTING", \
    "ROCE", \
    "SQ", \
    "RECEIVE", \
    "RQ", \
    "CONNECT", \
    "SERVE", \
    "BOUNCE", \
    "BINDING", \
    "ADAPTER", \
    "XRC", \
    "XRC_TARGET", \
    "CQ", \
    "CQ_POLL", \
    "SRQ_POST", \
    "SRQ", \
    "ATOMIC", \
    "FABRIC", \
    "PEERS", \
    "SPARE", \
    "LINKS", \
    "PEER", \
    "RETRY", \
    "LATER", \
    "CONTEXT", \
    "SOURCES", \
    "WRAP", \
    "CAPTURE", \
    "ADDRESSES", \
    "DECLINES", \
    "FAILURES", \
    "GONE", \
    "UMAD", \
    "IDENTIFIERS", \
    "HEAP", \
    "GUARD", \

#endif
