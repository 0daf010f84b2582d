// SPDX-License-Identifier: Apache-2.0
/*
 * Evidence: why a request failed, that is, which check refused it, what was asked and what was
 * found. The segment keeps the records of the last failures, so that a peer can read them, too. A
 * completion names its record by vendor_err.
 */
#ifndef VB_HCA_EVIDENCE_H
#define VB_HCA_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hca/checks.h"
#include "hca/layout.h"

/* What the peer sent last, of a QP whose carrier sends packets (`heard_psn`, `heard_us`). */
enum vb_heard {
    VB_HEARD_NOTHING = 0,
    VB_HEARD_ACK,
    VB_HEARD_SEQUENCE_NAK,
    VB_HEARD_RNR_NAK,
    VB_HEARD_RESPONSE, /* of a READ, an atomic, an atomic write or a FLUSH */
    /* About PSNs that this QP never sent, since the two sides disagree about its first one: */
    VB_HEARD_ACK_UNSENT,
    VB_HEARD_SEQUENCE_NAK_UNSENT,
};

/* Why a peer of this host does not answer. `count` is a type, a QP's number or two P_Keys. */
enum vb_silence {
    VB_SILENCE_UNKNOWN = 0,
    VB_SILENCE_NOT_HERE,     /* the GID is no address of this host */
    VB_SILENCE_NO_PROCESS,   /* no process of the host has the number */
    VB_SILENCE_NO_HANDSHAKE, /* its process ended the handshake */
    VB_SILENCE_STOPPED,      /* its process does not answer the handshake */
    VB_SILENCE_NO_HELP,      /* its process does not copy what it is asked for */
    VB_SILENCE_OTHER_USER,   /* its process is another user's */
    VB_SILENCE_NO_QP,        /* it was destroyed, or is in RESET */
    VB_SILENCE_INIT,         /* it is in INIT */
    VB_SILENCE_ERR,          /* it is in ERR */
    VB_SILENCE_OTHER_QP,     /* it is connected to another QP */
    VB_SILENCE_TYPE,         /* it is of a type that does not fit */
    VB_SILENCE_OTHER_LIFE,   /* it was reset since this QP's first request */
    VB_SILENCE_PORT,         /* it uses another port than the address leads to */
    VB_SILENCE_PKEY,  /* the P_Keys do not match: `count` has this QP's, and below the other's */
    VB_SILENCE_ROUTE, /* the live fabric does not lead to LID `count` */
};

/* Why a datagram is lost (lost.h). */
enum vb_lost_cause {
    VB_LOST_QKEY,       /* `value` is the datagram's, `wanted` the receiver's */
    VB_LOST_PKEY,       /* `value` is the datagram's, `wanted` the receiver's */
    VB_LOST_NO_PROCESS, /* no process of the host has the number */
    VB_LOST_UNREACHED,  /* there is no handshake with its process */
    VB_LOST_NO_QP,      /* its process has no such QP, or has it in RESET */
    VB_LOST_TYPE,       /* `value` is the QP's, which is not UD */
    VB_LOST_STATE,      /* `value` is the QP's, in which it receives nothing */
    VB_LOST_ADDRESS,    /* no address of this host, and nothing sends packets */
    VB_LOST_SOURCE,     /* `value` is a GID index from which no packet comes */
    VB_LOST_NO_RECEIVE, /* counted only; overdue.h writes its line */
    VB_LOST_PORT,       /* the QP uses another port than the address leads to */
    VB_LOST_ROUTE,      /* the live fabric does not lead to LID `value` */
    VB_LOST_CAUSES
};

enum vb_bind_problem {
    VB_BIND_OK = 0,
    VB_BIND_NO_WINDOW,      /* the window was deallocated, or is in another domain than the QP */
    VB_BIND_NOT_FREE,       /* a window of type 2 is bound already */
    VB_BIND_EMPTY,          /* a window of type 2 was to be bound to no bytes */
    VB_BIND_NO_REGION,      /* the lkey names no region of the QP's protection domain */
    VB_BIND_REGION_FORBIDS, /* it was registered without IBV_ACCESS_MW_BIND, or is zero-based */
    VB_BIND_ACCESS,         /* unknown access, or writing where the region has no LOCAL_WRITE */
    VB_BIND_RANGE,          /* the range is not inside the region */
};

/* Which side's QP the record is about. */
enum vb_side {
    VB_SIDE_REQUESTER = 0,
    VB_SIDE_RESPONDER, /* the QP `peer_qp_num`, which refused a request of `qp_num` */
};

/* Why a QP flushes: `count` of VB_CHECK_FLUSHED. */
enum vb_flush {
    VB_FLUSH_FAILED = 0, /* `key` is the id of the evidence of the first failure */
    VB_FLUSH_PROGRAM,    /* modify_qp */
    VB_FLUSH_UNKNOWN,
};

/* Keeps a copy of the record in the segment. Returns its id (never 0), for vendor_err. */
uint32_t vb_evidence_put(const struct vb_view *view, const struct vb_evidence *evidence);

/* Copies the record with this id. False: it is not kept any more. */
bool vb_evidence_get(const struct vb_view *view, uint32_t id, struct vb_evidence *evidence);

/*
 * Finds, in the responder's segment, the record that it kept when it refused the request of the
 * record `refused` (VB_CHECK_REFUSED), or dropped its packets (VB_CHECK_NO_ANSWER). False: there is
 * none, or it is not kept any more.
 */
bool vb_evidence_of_refusal(const struct vb_view *responder, const struct vb_evidence *refused,
                            struct vb_evidence *evidence);

#endif
