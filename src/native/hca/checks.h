// SPDX-License-Identifier: Apache-2.0
/* Made by sentences.py from sentences.toml. The numbers of checks and sentences. */
/* clang-format off */
#ifndef VB_HCA_CHECKS_H
#define VB_HCA_CHECKS_H

enum vb_check {
    VB_CHECK_OK = 0,
    VB_CHECK_KEY = 0x1, /* names no region */
    VB_CHECK_PD = 0x2, /* region and QP are in different protection domains */
    VB_CHECK_RANGE = 0x3, /* outside the region */
    VB_CHECK_ACCESS = 0x4, /* the region does not grant it */
    VB_CHECK_LOCAL = 0x10, /* added to the four above: the requester's own key */
    VB_CHECK_RECV = 0x20, /* added to the four above: the receive request's key */
    VB_CHECK_QP_ACCESS = 0x40, /* the remote QP's access flags do not grant it */
    VB_CHECK_ALIGNMENT = 0x41, /* atomic not on 8 bytes */
    VB_CHECK_RECV_TOO_SHORT = 0x42, /* `count`: more packets of the message were to follow */
    VB_CHECK_RNR = 0x43, /* no receive request within the retries */
    VB_CHECK_NO_ANSWER = 0x44, /* the peer did not answer within the retries */
    VB_CHECK_PEER_DIED = 0x45, /* its process ended, or closed its device */
    VB_CHECK_MEMORY_GONE = 0x46, /* registered, but no longer mapped or of another kind; `count` 1: it was unmapped, whatever is there now (gone.h) */
    VB_CHECK_RD_ATOMIC = 0x47, /* max_rd_atomic or max_dest_rd_atomic is 0 */
    VB_CHECK_TOO_LONG = 0x48, /* message longer than the transport carries */
    VB_CHECK_ATOMIC_LENGTH = 0x49, /* local element of an atomic shorter than 8 bytes */
    VB_CHECK_FLUSHED = 0x4a, /* `count`: enum vb_flush; sentences.c adds what failed first */
    VB_CHECK_CQ_OVERRUN = 0x4b, /* the completion queue was full */
    VB_CHECK_LOCAL_MEMORY_GONE = 0x4c, /* as MEMORY_GONE, of the request's own buffer */
    VB_CHECK_RECV_MEMORY_GONE = 0x4d, /* of a receive request's buffer, found when it was polled */
    VB_CHECK_NO_ROOM = 0x4e, /* no memory for a copy through the peer's help */
    VB_CHECK_SEQUENCE_RETRIES = 0x4f, /* packets or responses went missing more often than retry_cnt */
    VB_CHECK_REFUSED = 0x50, /* the peer's NAK; `count` is its code (enum vb_nak), of which causes.c tells */
    VB_CHECK_BAD_RESPONSE = 0x51, /* a response that does not fit the request; `count`: its opcode */
    VB_CHECK_BAD_SEQUENCE = 0x52, /* a request packet in the wrong place; `count`: its opcode */
    VB_CHECK_BAD_LENGTH = 0x53, /* payload and announced length do not agree */
    VB_CHECK_TOO_MANY_READS = 0x54, /* more READs and atomics than max_dest_rd_atomic */
    VB_CHECK_INVALIDATE = 0x55, /* the key to invalidate is none that may be */
    VB_CHECK_XRC_SRQ = 0x56, /* the target QP's process has no XRC SRQ of this number */
    VB_CHECK_XRC_DOMAIN = 0x57, /* it is of another XRC domain than the target QP */
    VB_CHECK_XRC_BUSY = 0x58, /* the message before, to another SRQ, has not ended */
    VB_CHECK_WINDOW_QP = 0x59, /* bound through another QP, or before this one was reset */
    VB_CHECK_BIND = 0x5a, /* `count`: enum vb_bind_problem; `key`: the region's lkey */
    VB_CHECK_PLACEMENT = 0x5b, /* packets only: a FLUSH for nothing, or what is reserved; `count`: FETH */
    VB_CHECK_OTHER_BUILD = 0x5c, /* the peer's process uses another layout: `count`; `addr` is its version (vb_say_version) */
    VB_CHECK_PARTITION = 0x5d, /* packets only: the P_Keys do not match: `count` has the requester's, and below the responder's */
};

/* Of sentences.c: a check, and what else has a sentence. */
enum vb_sentence {
    VB_SENTENCE_NUMBERS = 0x100,
    VB_SENTENCE_NUMBERS_FLUSHED = 0x101,
    VB_SENTENCE_LOST_LINE = 0x102,
    VB_SENTENCE_ADVICE = 0x200, /* added to a check or a number: what to try */
    VB_SENTENCE_BIND = 0x400, /* + VB_BIND_… */
    VB_SENTENCE_HEARD = 0x480, /* + VB_HEARD_… */
    VB_SENTENCE_SILENCE = 0x500, /* + VB_SILENCE_… */
    VB_SENTENCE_LOST = 0x580, /* + VB_LOST_… */
};

#endif
