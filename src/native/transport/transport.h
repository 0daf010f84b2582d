// SPDX-License-Identifier: Apache-2.0
/*
 * The state of the packet engine: the engine itself, and for each connected QP its endpoint with a
 * requester, a responder and the replies that it owes. Only the files of this room and the
 * simulation use it. The requester is touched under the QP's sq_lock and the engine's lock,
 * everything else under the engine's lock alone.
 */
#ifndef VB_TRANSPORT_TRANSPORT_H
#define VB_TRANSPORT_TRANSPORT_H

#include "hca/adapter.h"
#include "hca/counters.h"
#include "hca/packet.h"
#include "hca/qp.h"
#include "transport/config.h"
#include "transport/ready.h"
#include "transport/timer.h"
#include "wire/opcode.h"

/* The most PSNs in flight: a quarter of the 24-bit circle, so that old and new ones differ. */
enum { VB_WINDOW_MAX = 1 << 22 };

enum { VB_HEARD_NO_SYNDROME = 0xff };

struct vb_engine;

/*
 * The send queue as the requester sees it. The requests before position `begun` have their PSNs (in
 * vb_sq_wqe). The cursor (`position`, `index`, `next_psn`) is the packet to send next; after a loss
 * the cursor goes back to `una`.
 */
struct vb_requester {
    uint32_t una;       /* the first PSN that is not acknowledged; of a READ, not received */
    uint32_t next_psn;  /* PSN of the packet at the cursor */
    uint32_t sent_psn;  /* the PSN after the last one that was ever sent */
    uint32_t fresh_psn; /* the first PSN that no request has */
    uint32_t position;  /* the cursor's request in the send queue */
    uint32_t index;     /* the cursor's packet of that request; of a READ, of its response */
    uint32_t begun;     /* the first request in the send queue without PSNs */
    uint32_t ssn;       /* send sequence number of the last request that was begun */
    uint32_t lsn;       /* limit sequence number from the responder's credits (IBA 9.7.7.2.5) */
    union {
        uint16_t rd_outstanding; /* READ and atomic requests that were sent and are not answered */
        uint16_t unleft; /* UC: requests that were handed out last, and whose packets the adapter
                            still has: they are not complete */
    };
    uint16_t
        untold; /* requests that were posted last, and of which the adapter does not know yet */
    uint32_t unasked;        /* bytes sent since an acknowledgement was asked for */
    uint32_t resumed_psn;    /* the PSN at which a READ request last began amid its part */
    uint32_t gap_psn;        /* the furthest response that came beyond a missing one */
    uint16_t naks;           /* sequence NAKs since the last progress */
    uint16_t timeouts;       /* local ACK timeouts since the last progress */
    uint16_t not_ready;      /* RNR NAKs since the last progress; stays at its maximum */
    uint16_t beyond;         /* responses beyond a missing one since then; stays at its maximum */
    uint32_t heard_psn : 24; /* PSN of the last response, whether it was of use or not */
    uint32_t heard_syndrome : 8; /* its AETH syndrome; VB_HEARD_NO_SYNDROME: it was no ACK or NAK */
    uint64_t heard_at;           /* when it came; 0: no response ever came */
    uint64_t since;              /* the last progress, or the first packet after a pause */
    uint8_t reason : 3;          /* enum vb_packet_reason of packets that are sent again */
    uint8_t failure : 5;         /* enum ibv_wc_status, if failed */
    uint8_t retry_left : 4, rnr_left : 4;
    bool started : 1;   /* the QP has been in RTS, so the PSNs are set */
    bool unlimited : 1; /* the responder reports no credits */
    bool stalled : 1;   /* waits for credits */
    bool ask : 1;       /* the next packet asks for an acknowledgement */
    bool rnr_wait : 1;  /* sends nothing until the RNR timer expires */
    bool implied : 1;   /* went back for a lost response, and has made no progress since */
    bool probing : 1;   /* a timeout expired, and no progress was made since: the window is small */
    bool failed : 1;    /* the request at `begun` ends with `failure` once it is the first */
    bool flush_owed : 1;       /* the QP has failed, and its receive queue is to be flushed */
    uint32_t failure_evidence; /* vb_outcome.evidence of that failure */
};

enum vb_record_kind {
    VB_RECORD_READ,
    VB_RECORD_ATOMIC,
    VB_RECORD_ATOMIC_WRITE,
    VB_RECORD_FLUSH,
};

/* A READ or atomic of the peer: kept until it is answered, and then for its repetition. */
struct vb_record {
    uint64_t addr; /* READ: the address that it reads; atomic: the value that it found */
    uint32_t rkey;
    uint32_t pd; /* of a READ; an XRC target QP may have another one by the time it is answered */
    uint32_t length; /* of the response */
    uint32_t psn;
    uint32_t msn;
    uint8_t kind; /* enum vb_record_kind */
    bool answered;
};

/* Response packets of a kept record that were asked for again; they go before what is due. */
struct vb_repeat {
    uint32_t psn, until; /* the packets from `psn` up to `until` */
    uint32_t end;        /* of what was asked for; the packets beyond `until` are due anyway */
    bool begun;
};

/* What is owed to the peer, in the order of PSNs: the records' responses, then one NAK or ACK. */
struct vb_replies {
    struct vb_record *record; /* a ring, indexed by a record's number modulo `room` */
    uint8_t room;             /* a power of two; 0 for UC */
    uint8_t nak;              /* the syndrome of the NAK; 0: none */
    bool ack : 1;
    bool cnp : 1;     /* a congestion notification packet */
    bool repeats : 1; /* vb_recovery.repeat is owed */
    bool ack_limited
        : 1;            /* the ACK goes to ack_psn only: a record behind it is not answered again */
    uint32_t count;     /* number of records ever made */
    uint32_t kept;      /* so many of the last ones are in the ring */
    uint32_t next, end; /* the numbers of the records to be answered */
    uint32_t first_index; /* the packet of record `next` at which its answer began */
    uint32_t index;       /* the packet of record `next` to be sent now */
    uint32_t unanswered;  /* records that have not been answered yet */
    uint32_t ack_psn;
    uint32_t nak_psn;
};

/*
 * Which packets may follow: any, or those of the SEND or WRITE that has begun (IBA 9.7.4.1.2).
 */
enum vb_expect { VB_EXPECT_ANY = 0, VB_EXPECT_SEND, VB_EXPECT_WRITE };

struct vb_responder {
    uint32_t epsn;                 /* the expected PSN */
    uint32_t msn;                  /* message sequence number */
    struct vb_reth write;          /* of the WRITE under way */
    const struct vb_recv_wqe *wqe; /* the receive request in hand, if has_taken */
    uint32_t wqe_position;
    uint32_t received;       /* bytes of the message under way */
    uint32_t empty_psn : 24; /* of the last SEND or WRITE without payload; at first epsn - 1 */
    uint32_t expect : 8;     /* enum vb_expect */
    bool nak_sent;           /* no other NAK is sent until the expected packet comes */
    bool skipping;           /* UC: packets are dropped until the next message begins */
    bool has_taken;          /* a receive request is in hand */
    bool dying;              /* the QP is in ERR, and the NAK that says so has not left yet */
};

/* vb_endpoint.held */
enum { VB_HELD_BY_PORT = 1, VB_HELD_BY_RATE = 2 };

/* vb_timer.kind */
enum { VB_TIMER_RETRY, VB_TIMER_RESUME, VB_TIMER_RECOVERY };

/* Packets that came before a missing one, and the wait for that one (gap.h). */
struct vb_gap {
    struct vb_held *first, *last; /* the kept packets, by PSN */
    uint64_t since;               /* the wait's beginning */
    uint64_t told_at;             /* the wait's end, if `told` */
    uint64_t lateness;            /* how long the wait for `asked_psn` took */
    uint32_t asked_psn;           /* the missing packet that was asked for last, if `asked` */
    uint32_t count;               /* of kept packets */
    bool open;                    /* a packet is missing */
    bool told;                    /* the wait is over, and the packet was asked for */
    bool asked;
};

/* What a connection has while it recovers from loss, and a little longer (recovery.h). */
struct vb_recovery {
    struct vb_recovery *next; /* in vb_engine.recoveries */
    struct vb_endpoint *ep;
    uint32_t opening;    /* limit of the packets in flight after RNR; 0: no limit */
    uint32_t mend_psn;   /* the next packet to be sent again beside the requester's cursor */
    uint32_t mend_count; /* the number of such packets */
    uint32_t holes;      /* NAKs in a row, each for a later packet: twice as many are sent again */
    uint64_t mended_at;  /* when packets were last sent again; 0: they have been answered */
    uint64_t behind;     /* vb_cwnd.answered at which its turn comes; 0: not known */
    uint32_t ahead_psn;  /* if is_ahead: acknowledged, but behind a missing response */
    uint32_t cut_psn;    /* the window was cut for losses before this PSN */
    /* the responses that are asked for again are those from `asked_psn` up to `asked_end` */
    uint32_t asked_psn, asked_end;
    uint32_t behind_psn; /* the requests from here on were sent after that request for responses */
    uint32_t asks_most;  /* the most packets of a READ to ask for at once; 0: not known */
    bool asks;           /* the first missing response is to be asked for */
    bool asked;          /* it was asked for and has not come */
    bool asked_part;     /* only the missing responses were asked for, not the rest of the READ */
    bool beside;         /* a packet is being made beside the cursor */
    bool is_ahead;
    bool mending; /* nothing follows the packets that were sent again until they are answered */
    struct vb_repeat repeat;
    struct vb_gap early;        /* requests that came before a missing one */
    struct vb_gap early_answer; /* responses that came before a missing one */
    struct vb_timer timer;
};

/*
 * What a program's connection has for its part in the sending; a simulated flow has none of it. All
 * but `resume` is used only with a congestion window (vb_engine_config.adapts).
 */
struct vb_share {
    struct vb_timer resume;       /* when the rate limit lets it send again */
    struct vb_cwnd *cwnd;         /* of its peer address (cwnd.h) */
    struct vb_recovery *recovery; /* NULL: nothing is missing */
    uint32_t short_psn; /* from here on all requests are READs and atomics with little payload */
    uint64_t
        due; /* when the local ACK timeout expires; the timer may be set earlier, for a probe */
};

/* A connected queue pair in the engine. */
struct vb_endpoint {
    struct vb_engine *engine;
    struct vb_qp *qp;
    struct vb_link owing;      /* in vb_engine.replying; a UC connection's in vb_engine.finishing */
    struct vb_link requesting; /* in vb_engine.requesting, or in vb_cwnd.waiting */
    struct vb_timer timer;     /* VB_TIMER_RETRY: the local ACK timeout, the RNR timer, a probe */
    uint32_t window;           /* packets */
    uint8_t base;              /* VB_TRANSPORT_RC, VB_TRANSPORT_UC or VB_TRANSPORT_XRC */
    uint8_t held;              /* VB_HELD_BY_*: no requests are sent (vb_engine_hold) */
    bool unseen; /* vb_engine_attend was called, and the requester has not looked at it since */
    /* these three are used only with a congestion window; they are here because there is room */
    uint8_t probes : 4;   /* sent since the last progress */
    uint8_t extended : 2; /* how often the local ACK timeout was extended (IBA 9.7.6.1.3) */
    uint8_t crowded : 1;  /* the requester found the congestion window full */
    struct vb_path path;
    uint32_t in_flight; /* bytes of the congestion window that the connection uses */
    struct vb_requester requester;
    struct vb_responder responder;
    struct vb_replies replies;
    struct vb_share *share; /* NULL: a simulated flow's, whose memory is its caller's */
};

/* The endpoint of a program's queue pair. */
struct vb_program_endpoint {
    struct vb_endpoint endpoint;
    struct vb_share share; /* endpoint.share */
};

enum { VB_PATH_STEPS = 16 };

struct vb_engine {
    struct vb_adapter *adapter;
    struct vb_engine_config config;
    struct vb_timers timers;
    struct vb_ready replying;   /* endpoints that owe replies */
    struct vb_ready requesting; /* endpoints that may have requests to send */
    struct vb_ready
        finishing; /* UC endpoints with requests that were handed out and not completed */
    uint32_t turn; /* packets of the endpoint whose turn it is */
    uint32_t replies_in_row;
    struct vb_counters counters;
    vb_is_own_fn *is_own;
    void *own_context;
    uint8_t path[VB_PATH_STEPS]; /* enum vb_responder_state: the steps of the last request packet */
    uint32_t path_length;
    /* the following are used only if config.adapts */
    struct vb_cwnd *cwnds;
    struct vb_held *store;          /* room for early packets (gap.h) */
    struct vb_held *spare;          /* entries of it that were used and are free */
    uint32_t stored;                /* number of its entries that were ever used */
    struct vb_recovery *recoveries; /* that no connection has */
};

/* A packet that came in and passed the checks that need no connection. */
struct vb_incoming {
    struct vb_engine *engine;
    struct vb_endpoint *endpoint; /* NULL for datagrams */
    const struct vb_arrival *arrival;
    struct vb_bth bth;
    const struct vb_opcode *opcode;
    const uint8_t *extended; /* the headers after the BTH; of an XRC request, after the XRCETH */
    const uint8_t *payload;  /* NULL: virtual */
    uint32_t length;         /* of the payload */
    uint32_t srq_num;        /* that an XRC request names */
    uint64_t now;
};

/*
 * Reads the BTH and checks the lengths. Returns NULL, or the counter of the reason for which the
 * packet is dropped.
 */
uint64_t *vb_engine_incoming_parse(struct vb_incoming *in);

#define vb_endpoint_of(link_pointer, member)                                                       \
    ((struct vb_endpoint *)((char *)(link_pointer) - offsetof(struct vb_endpoint, member)))

static inline bool vb_engine_endpoint_is_uc(const struct vb_endpoint *ep)
{
    return ep->base == VB_TRANSPORT_UC;
}

static inline uint32_t vb_engine_psn_add(uint32_t psn, uint32_t n)
{
    return (psn + n) & VB_PSN_MASK;
}

/* Has the connection a congestion window? */
static inline bool vb_engine_endpoint_adapts(const struct vb_endpoint *ep)
{
    return ep->engine->config.adapts && !vb_engine_endpoint_is_uc(ep);
}

/* NULL: the connection recovers from nothing, or does not adapt. */
static inline struct vb_recovery *vb_engine_recovery_of(const struct vb_endpoint *ep)
{
    return vb_engine_endpoint_adapts(ep) ? ep->share->recovery : NULL;
}

/* The number of PSNs from `from` up to, and without, `to`. */
static inline uint32_t vb_engine_psn_count(uint32_t from, uint32_t to)
{
    return (to - from) & VB_PSN_MASK;
}

/* The number of packets of a message: at least one. */
static inline uint32_t vb_engine_packets_of(uint32_t length, uint32_t mtu)
{
    return length ? (uint32_t)(((uint64_t)length + mtu - 1) / mtu) : 1;
}

/* The P_Key of the QP's packets, which those for it must match. */
static inline uint16_t vb_engine_qp_pkey(const struct vb_qp *qp)
{
    return vb_qp_pkey(qp->shared);
}

/* Counts a packet for this QP whose P_Key does not match (IBA 10.9.4). */
void vb_engine_drop_pkey(struct vb_engine *engine, const struct vb_qp *qp)
    __attribute__((cold, noinline));

static inline struct vb_sq_wqe *vb_engine_sq_at(struct vb_qp *qp, uint32_t position)
{
    return &qp->sq[position & qp->sq_mask];
}

/* Begins a packet of the connection: it is empty but for the room of its BTH. */
static inline void vb_engine_packet_open(struct vb_endpoint *ep, struct vb_packet *packet)
{
    packet->path = &ep->path;
    packet->qp_num = ep->qp->number;
    packet->header_length = VB_BTH;
    packet->pad = 0;
    packet->reason = VB_PACKET_NEW;
}

/*
 * The packet's BTH, which is written last because it has the pad count. `operation` is the opcode
 * without the transport's bits.
 */
static inline struct vb_bth vb_engine_packet_bth(const struct vb_endpoint *ep,
                                                 const struct vb_packet *packet, uint8_t operation,
                                                 uint32_t psn)
{
    return (struct vb_bth){
        .opcode = (uint8_t)(ep->base | operation),
        .migrated = true,
        .pad = packet->pad,
        .pkey = vb_engine_qp_pkey(ep->qp),
        .dest_qp = ep->qp->shared->dest_qp_num,
        .psn = psn,
    };
}

#endif
