// SPDX-License-Identifier: Apache-2.0
/* Why a request failed: the check, what it asked and what it found, kept for the last failures. */
#ifndef VB_HCA_EVIDENCE_H
#define VB_HCA_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hca/checks.h"
#include "hca/layout.h"

/* By packets: what the peer said last (`heard_psn`, `heard_us`). */
enum vb_heard {
    VB_HEARD_NOTHING = 0,
    VB_HEARD_ACK,
    VB_HEARD_SEQUENCE_NAK,
    VB_HEARD_RNR_NAK,
    VB_HEARD_RESPONSE, /* of a READ, an atomic, an atomic write or a FLUSH */
    /* Of PSNs that this QP never sent, since the two sides disagree about its first one. */
    VB_HEARD_ACK_UNSENT,
    VB_HEARD_SEQUENCE_NAK_UNSENT,
};

/* Directly: why nobody answers. `count` is a type or a QP's number. */
enum vb_silence {
    VB_SILENCE_UNKNOWN = 0,
    VB_SILENCE_NOT_HERE,   /* the GID is no address of this host */
    VB_SILENCE_NO_PROCESS, /* has the number */
    VB_SILENCE_NO_HANDSHAKE,
    VB_SILENCE_STOPPED, /* the process does not answer the handshake… */
    VB_SILENCE_NO_HELP, /* …or does not copy, or place, what it is asked for */
    VB_SILENCE_OTHER_USER,
    VB_SILENCE_NO_QP, /* destroyed, or in RESET */
    VB_SILENCE_INIT,
    VB_SILENCE_ERR,
    VB_SILENCE_OTHER_QP, /* is the one that it is connected to */
    VB_SILENCE_TYPE,
    VB_SILENCE_OTHER_LIFE, /* it was reset since this QP's first request */
    VB_SILENCE_PORT,       /* it uses another port than the address leads to */
    VB_SILENCE_PKEY, /* the P_Keys do not match: `count` has this QP's, and below the other's */
};

/* Why a datagram is lost (lost.h). */
enum vb_lost_cause {
    VB_LOST_QKEY,       /* `value` is the datagram's, `wanted` the receiver's */
    VB_LOST_PKEY,       /* `value` is the datagram's, `wanted` the receiver's */
    VB_LOST_NO_PROCESS, /* no process of the host has the number */
    VB_LOST_UNREACHED,  /* its process does not let itself be met */
    VB_LOST_NO_QP,
    VB_LOST_TYPE,       /* `value` is the QP's, which is not UD */
    VB_LOST_STATE,      /* `value` is the QP's, in which it receives nothing */
    VB_LOST_ADDRESS,    /* no address of this host, and nothing sends packets */
    VB_LOST_SOURCE,     /* `value` is a GID index from which no packet comes */
    VB_LOST_NO_RECEIVE, /* counted only: overdue.h has its line */
    VB_LOST_PORT,       /* the QP uses another port than the address leads to */
    VB_LOST_CAUSES
};

enum vb_bind_problem {
    VB_BIND_OK = 0,
    VB_BIND_NO_WINDOW,      /* it is gone, or in another protection domain than the QP */
    VB_BIND_NOT_FREE,       /* type 2, and bound already */
    VB_BIND_EMPTY,          /* type 2, and no bytes */
    VB_BIND_NO_REGION,      /* the lkey names none of the QP's protection domain */
    VB_BIND_REGION_FORBIDS, /* registered without IBV_ACCESS_MW_BIND, or zero-based */
    VB_BIND_ACCESS,         /* no such access, or writing where the region has no LOCAL_WRITE */
    VB_BIND_RANGE,          /* not inside the region */
};

/* Whose QP the record tells of. */
enum vb_side {
    VB_SIDE_REQUESTER = 0,
    VB_SIDE_RESPONDER, /* `peer_qp_num` is that QP: it refused the request of `qp_num` */
};

/* Why a QP flushes, in `count` of VB_CHECK_FLUSHED. */
enum vb_flush {
    VB_FLUSH_FAILED = 0, /* `key` is the id of the evidence of the first failure */
    VB_FLUSH_PROGRAM,    /* modify_qp */
    VB_FLUSH_UNKNOWN,
};

/* Keeps a copy; returns its id (never 0) for vendor_err. */
uint32_t vb_evidence_put(const struct vb_view *view, const struct vb_evidence *evidence);

/* A copy of the record; false if it is kept no more. */
bool vb_evidence_get(const struct vb_view *view, uint32_t id, struct vb_evidence *evidence);

/*
 * What the responder kept when it refused the request that `refused` (VB_CHECK_REFUSED) tells of,
 * found in its own segment; false if it kept nothing, or no more.
 */
bool vb_evidence_of_refusal(const struct vb_view *responder, const struct vb_evidence *refused,
                            struct vb_evidence *evidence);

#endif
