// SPDX-License-Identifier: Apache-2.0
/*
 * What the packet engine keeps: itself, and of each connected QP its two halves. The requester's
 * half is touched under the QP's sq_lock, everything else under the engine's lock alone.
 */
#ifndef VB_TRANSPORT_TRANSPORT_H
#define VB_TRANSPORT_TRANSPORT_H

#include "hca/counters.h"
#include "hca/qp.h"
#include "transport/engine.h"
#include "transport/ready.h"
#include "transport/timer.h"
#include "wire/opcode.h"

/* PSNs in flight at most: a quarter of their circle, so that old and new never meet. */
enum { VB_WINDOW_MAX = 1 << 22 };

enum { VB_HEARD_NO_SYNDROME = 0xff };

/*
 * The requests of the send queue from the first unanswered packet on. Those before `begun` have
 * their PSNs (vb_sq_wqe). The cursor, `position` and `index`, is the packet to send next; going
 * back, after whatever loss, means putting it on `una`.
 */
struct vb_requester {
    uint32_t una;       /* first PSN that is not acknowledged, or READ byte not received */
    uint32_t next_psn;  /* the cursor's */
    uint32_t sent_psn;  /* one after the last that was ever sent */
    uint32_t fresh_psn; /* the first that no request has */
    uint32_t position;  /* the cursor: a request of the send queue… */
    uint32_t index;     /* …and a packet (for READ, of the response) of it */
    uint32_t begun;
    uint32_t ssn;            /* of the last request that was begun */
    uint32_t lsn;            /* up to which the responder's credits go (IBA 9.7.7.2.5) */
    uint32_t rd_outstanding; /* READ and atomic requests sent and not answered */
    uint32_t unasked;        /* bytes since an acknowledgement was asked for */
    uint32_t resumed_psn;    /* the last READ request that began amid its part, at `una` then */
    uint32_t gap_psn;        /* the furthest response beyond the one that is missing */
    uint16_t naks, timeouts; /* since the last progress… */
    uint16_t not_ready;      /* …as are RNR NAKs… */
    uint16_t beyond; /* …and responses behind one that is missing; both stay at their most */
    /* The last answer that came, whether it was of use or not. */
    uint32_t heard_psn : 24;
    uint32_t heard_syndrome
        : 8;           /* an acknowledgement's or NAK's; VB_HEARD_NO_SYNDROME: a response */
    uint64_t heard_at; /* 0: none ever did */
    uint64_t since;    /* the last progress, or the first packet after a pause */
    uint8_t reason;    /* why packets are sent again (enum vb_packet_reason) */
    uint8_t retry_left : 4, rnr_left : 4;
    bool started;   /* PSNs are set: the QP has been in RTS */
    bool unlimited; /* the responder reports no credits */
    bool stalled;   /* for lack of credits */
    bool ask;       /* the next packet asks for an acknowledgement */
    bool rnr_wait;  /* silent until the timer */
    bool implied;   /* going back for a lost response, and no progress since */
    bool probing;   /* a timer expired, and no progress since: little is sent */
    bool failed;    /* the request at `begun` ends with `failure` when it is the first */
    bool flush_owed;
    struct vb_outcome failure;
};

enum vb_record_kind {
    VB_RECORD_READ,
    VB_RECORD_ATOMIC,
    VB_RECORD_ATOMIC_WRITE,
    VB_RECORD_FLUSH,
};

/* A READ or atomic of the peer, kept to be answered and, once more or often, to be repeated. */
struct vb_record {
    uint64_t addr; /* READ: where it reads; atomic: what stood there */
    uint32_t rkey;
    uint32_t pd;     /* READ: an XRC target QP's may be another by the time it is answered */
    uint32_t length; /* of the response */
    uint32_t psn;
    uint32_t msn;
    uint8_t kind; /* enum vb_record_kind */
    bool answered;
};

/* Packets of a kept record that were asked for again, and are answered before what is due. */
struct vb_repeat {
    uint32_t psn, until;
    uint32_t end; /* of what was asked for; beyond `until` it is due anyway */
    bool begun;
};

/* What is owed to the peer; in PSN order: the records' responses, then one NAK or ACK. */
struct vb_replies {
    struct vb_record *record; /* by number modulo… */
    uint8_t room;             /* …this, a power of two (UC has none) */
    uint8_t nak;              /* the syndrome; 0: none */
    bool ack : 1;
    bool cnp : 1;         /* a notification of congestion */
    bool repeats : 1;     /* vb_recovery.repeat */
    bool ack_limited : 1; /* not beyond ack_psn: a record that is not answered again lies there */
    uint32_t count;       /* records ever made */
    uint32_t kept;        /* the last so many are there */
    uint32_t next, end;   /* numbers of those to be sent */
    uint32_t first_index, index; /* packets of the next one: from, and now */
    uint32_t unanswered;
    uint32_t ack_psn;
    uint32_t nak_psn;
};

/* Which packets may follow: any, or those of the SEND or WRITE that has begun. */
enum vb_expect { VB_EXPECT_ANY = 0, VB_EXPECT_SEND, VB_EXPECT_WRITE };

struct vb_responder {
    uint32_t epsn;
    uint32_t msn;
    struct vb_reth write;
    const struct vb_recv_wqe *wqe; /* the one in hand */
    uint32_t wqe_position;
    uint32_t received; /* bytes of the message under way */
    /* of the last SEND or WRITE that had no payload; at first one before all */
    uint32_t empty_psn : 24;
    uint32_t expect : 8; /* enum vb_expect */
    bool nak_sent;       /* nothing more is said until the expected packet comes */
    bool skipping;       /* UC: until the next message */
    bool has_taken;      /* a receive request is in hand */
    bool dying;          /* in ERR; the NAK that says so has not left yet */
};

enum { VB_HELD_BY_PORT = 1, VB_HELD_BY_RATE = 2 };

/* vb_timer.kind */
enum { VB_TIMER_RETRY, VB_TIMER_RESUME, VB_TIMER_RECOVERY };

/* Packets that came before one that is missing (gap.h). */
struct vb_gap {
    struct vb_held *first, *last; /* by PSN */
    uint64_t since, told_at;      /* the wait for it: its begin and, if it is over, its end */
    uint64_t lateness;            /* of the one that was asked for last, `asked_psn` */
    uint32_t asked_psn;
    uint32_t count;
    bool open, told, asked;
};

/* What a connection has while it recovers from loss, and a little longer (recovery.h). */
struct vb_recovery {
    struct vb_recovery *next; /* among those that nobody has */
    struct vb_endpoint *ep;
    uint32_t opening;    /* packets under way at most, after RNR; 0: no limit */
    uint32_t mend_psn;   /* the next packet to be sent again, beside the requester's cursor… */
    uint32_t mend_count; /* …and how many */
    uint32_t holes;      /* NAKs in a row, each for a later packet: twice as many are sent again */
    uint64_t mended_at;  /* 0: that is answered */
    uint64_t behind;     /* where in the window's `answered` its turn comes; 0: not known */
    uint32_t ahead_psn;  /* acknowledged, behind a response that is missing */
    uint32_t cut_psn;    /* losses before it were heeded: the window has been cut since */
    /* responses that are asked for again: the last time those from `asked_psn` up to `asked_end` */
    uint32_t asked_psn, asked_end;
    uint32_t behind_psn; /* requests from here on were sent after that */
    uint32_t
        asks_most;   /* packets of a READ to ask for at once, as long as they come; 0: not known */
    bool asks;       /* the first one that is missing is to be asked for */
    bool asked;      /* and was, and has not come */
    bool asked_part; /* for no more than is missing */
    bool beside;     /* a packet is being made beside the cursor */
    bool is_ahead;
    bool mending; /* nothing follows what was sent again until that is answered */
    struct vb_repeat repeat;
    struct vb_gap early;        /* requests… */
    struct vb_gap early_answer; /* …and responses before one that is missing */
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

struct vb_endpoint {
    struct vb_engine *engine;
    struct vb_qp *qp;
    struct vb_link owing; /* in vb_engine.replying; a UC connection's in vb_engine.finishing */
    struct vb_link requesting;
    struct vb_timer timer;
    uint32_t window; /* packets */
    uint8_t base;    /* VB_TRANSPORT_RC, VB_TRANSPORT_UC or VB_TRANSPORT_XRC */
    uint8_t held;    /* VB_HELD_BY_*: no requests are sent (vb_engine_hold) */
    bool unseen;     /* the QP was attended to, and the requester has not looked at it since */
    /* these too only of one with a congestion window; they are where there is room */
    uint8_t probes : 4;   /* since the last progress */
    uint8_t extended : 2; /* the timeout, so often, since other packets came from the peer */
    uint8_t crowded : 1;  /* it found the window full */
    struct vb_path path;
    uint32_t in_flight; /* bytes of the window */
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
    struct vb_ready replying, requesting;
    struct vb_ready finishing; /* UC: handed out to the end, not completed yet */
    uint32_t turn;             /* packets of the QP whose turn it is */
    uint32_t replies_in_row;
    struct vb_counters counters;
    vb_is_own_fn *is_own;
    void *own_context;
    uint8_t path[VB_PATH_STEPS]; /* of the last request packet: enum vb_responder_state */
    uint32_t path_length;
    /* only where the configuration asks for congestion windows */
    struct vb_cwnd *cwnds;
    struct vb_held *store, *spare;  /* room for early packets, and what of it is free again */
    uint32_t stored;                /* of it were ever used */
    struct vb_recovery *recoveries; /* that nobody has */
};

/* A packet that came in and passed the checks that need no connection. */
struct vb_incoming {
    struct vb_engine *engine;
    struct vb_endpoint *endpoint; /* NULL for datagrams */
    const struct vb_arrival *arrival;
    struct vb_bth bth;
    const struct vb_opcode *opcode;
    const uint8_t *extended; /* the headers after the BTH; of XRC requests, after the XRCETH */
    const uint8_t *payload;  /* NULL: virtual */
    uint32_t length;         /* of the payload */
    uint32_t srq_num;        /* that an XRC request names */
    uint64_t now;
};

/* Lengths and header fields: the packet is one that could be for us; NULL, or what to count. */
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

/* Has it a congestion window, and what belongs to that? */
static inline bool vb_engine_endpoint_adapts(const struct vb_endpoint *ep)
{
    return ep->engine->config.adapts && !vb_engine_endpoint_is_uc(ep);
}

/* Of such a one. NULL: it does not recover from anything. */
static inline struct vb_recovery *vb_engine_recovery_of(const struct vb_endpoint *ep)
{
    return vb_engine_endpoint_adapts(ep) ? ep->share->recovery : NULL;
}

/* Packets from `from` on up to `to`. */
static inline uint32_t vb_engine_psn_count(uint32_t from, uint32_t to)
{
    return (to - from) & VB_PSN_MASK;
}

/* A message of this length in packets: at least one. */
static inline uint32_t vb_engine_packets_of(uint32_t length, uint32_t mtu)
{
    return length ? (uint32_t)(((uint64_t)length + mtu - 1) / mtu) : 1;
}

/* What its packets carry, and what those for it must match. */
static inline uint16_t vb_engine_qp_pkey(const struct vb_qp *qp)
{
    return qp->shared->pkey;
}

/* A packet for this QP has a P_Key that does not match: it is counted (IBA 10.9.4). */
void vb_engine_drop_pkey(struct vb_engine *engine, const struct vb_qp *qp)
    __attribute__((cold, noinline));

static inline struct vb_sq_wqe *vb_engine_sq_at(struct vb_qp *qp, uint32_t position)
{
    return &qp->sq[position & qp->sq_mask];
}

#endif
