// SPDX-License-Identifier: Apache-2.0
/* Why a request failed: the check, what it asked and what it found, kept for the last failures. */
#ifndef VB_HCA_EVIDENCE_H
#define VB_HCA_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hca/layout.h"

enum vb_check {
    VB_CHECK_OK = 0,
    /* a local key (`side` local) or a remote one */
    VB_CHECK_KEY,              /* names no region */
    VB_CHECK_PD,               /* region and QP are in different protection domains */
    VB_CHECK_RANGE,            /* outside the region */
    VB_CHECK_ACCESS,           /* the region does not grant it */
    VB_CHECK_LOCAL = 0x10,     /* added to the four above: the requester's own key */
    VB_CHECK_RECV = 0x20,      /* added to the four above: the receive request's key */
    VB_CHECK_QP_ACCESS = 0x40, /* the remote QP's access flags do not grant it */
    VB_CHECK_ALIGNMENT,        /* atomic not on 8 bytes */
    VB_CHECK_RECV_TOO_SHORT,   /* `count`: more packets of the message were to follow */
    VB_CHECK_RNR,              /* no receive request within the retries */
    VB_CHECK_NO_ANSWER,        /* the peer did not answer within the retries */
    VB_CHECK_PEER_DIED,
    VB_CHECK_MEMORY_GONE, /* registered, but no longer mapped or of another kind; `count` 1: it was
                           * unmapped, whatever is there now (gone.h) */
    VB_CHECK_RD_ATOMIC,   /* max_rd_atomic or max_dest_rd_atomic is 0 */
    VB_CHECK_TOO_LONG,    /* message longer than the transport carries */
    VB_CHECK_ATOMIC_LENGTH, /* local element of an atomic shorter than 8 bytes */
    VB_CHECK_FLUSHED,
    VB_CHECK_CQ_OVERRUN,
    VB_CHECK_LOCAL_MEMORY_GONE, /* the same of the request's own buffer */
    VB_CHECK_RECV_MEMORY_GONE,  /* of a receive request's buffer, found when it was polled */
    VB_CHECK_NO_ROOM,           /* no memory for a copy through the peer's help */
    /* packets only */
    VB_CHECK_SEQUENCE_RETRIES, /* packets or responses went missing more often than retry_cnt */
    VB_CHECK_REFUSED,          /* the peer's NAK; `count` is its code (enum vb_nak) */
    VB_CHECK_BAD_RESPONSE,     /* a response that does not fit the request; `count`: its opcode */
    VB_CHECK_BAD_SEQUENCE,     /* a request packet in the wrong place; `count`: its opcode */
    VB_CHECK_BAD_LENGTH,       /* payload and announced length do not agree */
    VB_CHECK_TOO_MANY_READS,   /* more READs and atomics than max_dest_rd_atomic */
    VB_CHECK_INVALIDATE,       /* the key to invalidate is none that may be */
    /* XRC: `count` is the SRQ's number */
    VB_CHECK_XRC_SRQ,    /* the target QP's process has no XRC SRQ of this number */
    VB_CHECK_XRC_DOMAIN, /* it is of another XRC domain than the target QP */
    VB_CHECK_XRC_BUSY,   /* the message before, to another SRQ, has not ended */
    /* memory windows */
    VB_CHECK_WINDOW_QP, /* bound through another QP, or before this one was reset */
    VB_CHECK_BIND,      /* `count`: enum vb_bind_problem; `key`: the region's lkey */
    VB_CHECK_PLACEMENT, /* packets only: a FLUSH for nothing, or what is reserved; `count`: FETH */
    /* The peer's process uses another layout: `count`; `addr` is its version (vb_say_version). */
    VB_CHECK_OTHER_BUILD,
};

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

/* One or two sentences about the record; 0 if it is kept no more, else the length as snprintf's. */
int vb_evidence_text(const struct vb_view *view, uint32_t id, char *text, size_t size);

/* A copy of the record; false if it is kept no more. */
bool vb_evidence_get(const struct vb_view *view, uint32_t id, struct vb_evidence *evidence);

/*
 * What the responder kept when it refused the request that `refused` (VB_CHECK_REFUSED) tells of,
 * found in its own segment; false if it kept nothing, or no more.
 */
bool vb_evidence_of_refusal(const struct vb_view *responder, const struct vb_evidence *refused,
                            struct vb_evidence *evidence);

/* The sentences about a record; `responder` may be NULL. */
int vb_evidence_say(const struct vb_view *view, const struct vb_evidence *evidence,
                    const struct vb_evidence *responder, char *text, size_t size);

#endif
