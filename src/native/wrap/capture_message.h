// SPDX-License-Identifier: Apache-2.0
/*
 * A request that was carried out without packets is captured as the packets that it would have
 * been. host/capture_direct.c calls it after the request has ended, from the thread that posted it.
 */
#ifndef VB_WRAP_CAPTURE_MESSAGE_H
#define VB_WRAP_CAPTURE_MESSAGE_H

#include "abi/verbs.h"
#include "wire/headers.h"
#include "wire/opcode.h"
#include "wrap/capture.h"

struct vb_capture_message {
    const struct vb_path
        *path; /* to the responder; source port 0: it is made from the QP numbers */
    enum vb_transport transport; /* RC, UC, UD or XRC */
    uint32_t qp_num, dest_qp_num;
    uint32_t srq_num; /* XRC */
    uint32_t psn;     /* of the first packet */
    uint32_t msn;     /* of the answer: the responder's number of messages, with this one */
    uint16_t pkey;    /* 0: 0xffff */
    enum ibv_wr_opcode opcode;
    bool solicited;
    __be32 imm;
    uint32_t invalidate_rkey;
    uint64_t addr; /* the remote address, of WRITE, READ, atomics and FLUSH */
    uint32_t rkey;
    uint64_t compare, swap_add; /* of atomics */
    uint64_t original;          /* of atomics: the value before */
    struct vb_feth flush;       /* FLUSH */
    uint32_t qkey;              /* UD */
    uint32_t
        length; /* sum over the pieces; of a FLUSH, which has none, the length that it asks for */
    const struct vb_piece *piece; /* sent or, for READ, received; an atomic has none */
    uint32_t piece_count;
    /* How an RC or XRC request was answered: VB_AETH_ACK, VB_AETH_RNR (a timer code) or VB_AETH_NAK
     * (enum vb_nak) with its value. */
    enum vb_aeth_kind answer;
    uint8_t answer_value;
    bool unanswered;              /* no answer came */
    enum vb_packet_reason reason; /* why the request is sent again, which its comment says */
    const char *note;             /* added to that comment; NULL: nothing */
};

/*
 * Writes request and answer. Returns how many PSNs they take; 0: the opcode has no packets with
 * this transport, and nothing is written.
 */
uint32_t vb_wrap_capture_message(struct vb_capture *capture,
                                 const struct vb_capture_message *message, uint64_t now);

#endif
