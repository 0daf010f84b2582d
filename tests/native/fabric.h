// SPDX-License-Identifier: Apache-2.0
/*
 * Two adapters in one process whose packet engines hand packets to each other over a channel with
 * faults, in virtual time. A test posts and polls as a program does, and runs the fabric between.
 */
#ifndef VB_TESTS_FABRIC_H
#define VB_TESTS_FABRIC_H

#include "hand_port.h"
#include "hca/counters.h"
#include "hca/hca.h"
#include "transport/engine.h"

enum { FABRIC_DEPTH = 256, FABRIC_LOG = 1 << 14, FABRIC_BYTES_MAX = VB_HEADERS_MAX + 4096 + 4 };

/* Preamble, Ethernet, IPv4 and UDP headers, ICRC, frame check sequence and gap. */
enum { FABRIC_OVERHEAD = 8 + 14 + 20 + 8 + 4 + 4 + 12 };

/* A packet under way. */
struct flight {
    struct flight *next;
    uint64_t at;
    uint64_t order; /* of sending; equal times arrive in this order */
    int from;       /* side 0 or 1 */
    uint8_t reason;
    uint8_t traffic_class;
    uint32_t length;
    uint32_t virtual_payload;
    uint8_t sgid[16], dgid[16];
    uint8_t bytes[FABRIC_BYTES_MAX];
};

/* What went into the channel. */
struct logged {
    uint64_t at;
    int from;
    bool lost;
    uint8_t reason;
    struct vb_bth bth;
    uint8_t syndrome; /* of responses with an AETH */
    uint32_t msn;
};

enum verdict { PASS = 0, LOSE, TWICE, LATE };

struct fabric_options {
    uint64_t seed;
    double loss, duplicate, reorder; /* probabilities */
    uint64_t latency;                /* ns; 0: 2 us */
    uint64_t late; /* ns at most that a reordered packet loses; 0: 1.5 latencies */
    uint32_t gbps; /* of each direction's link; 0: a packet takes no time to send */
    /* a bottleneck on the way, in each direction; 0: none */
    uint32_t bottleneck_mbps;
    uint32_t queue;   /* bytes that wait before it; what finds it full is lost */
    uint32_t mark_at; /* bytes from which on it marks packets that may be marked; 0: never */
    bool plain_peer;  /* side 1's engine does not adapt: it goes back for all that it sent */
    struct vb_engine_config engine;
    size_t memory; /* bytes of each side's region; 0: 1 MiB */
    bool in_heap;
};

struct fabric;

struct side {
    struct fabric *fabric;
    int index;
    struct vb_heap *segment, *heap;
    struct hand_port port;
    struct vb_adapter adapter;
    struct vb_engine *engine;
    struct ibv_context ibv;
    struct vb_context *context;
    struct vb_pd *pd;
    struct vb_cq *send_cq, *recv_cq;
    struct vb_srq *srq;
    struct vb_mr *mr;
    uint8_t *memory;
    uint8_t gid[16];
};

struct fabric {
    struct fabric_options options;
    struct side side[2];
    pthread_mutex_t lock; /* the port's: held by fabric_step and where the port meets an engine */
    uint64_t now, order, random;
    uint64_t free_at[2];    /* each side's link */
    uint64_t clear_at[2];   /* each direction's bottleneck */
    uint64_t link_bytes[2]; /* that went into it, with FABRIC_OVERHEAD */
    struct flight *flights, *free;
    /* Asked for each packet before the options' probabilities; NULL: PASS. */
    enum verdict (*rule)(struct fabric *fabric, struct flight *flight);
    void *rule_context;
    struct logged log[FABRIC_LOG];
    uint32_t logged;
};

void fabric_open(struct fabric *fabric, struct fabric_options options);
void fabric_close(struct fabric *fabric);
uint32_t fabric_random(struct fabric *fabric);

struct qp_options {
    enum ibv_qp_type type;                                /* 0: RC */
    int mtu;                                              /* bytes; 0: 1024 */
    uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer; /* as they are, see fabric_defaults */
    uint8_t rd_atomic, dest_rd_atomic;
    uint32_t psn[2];
    unsigned access;
    bool srq[2];
    uint32_t max_sge;
    uint32_t depth;
};

/* timeout 8 (1 ms), 7 retries, RNR for ever after 10 us, 4 READs, every access. */
struct qp_options fabric_defaults(void);
struct vb_qp *fabric_qp(struct fabric *fabric, int side, const struct qp_options *options);
/* To RTS, connected to the QP of that number. */
void fabric_ready(struct fabric *fabric, struct vb_qp *qp, uint32_t other,
                  const struct qp_options *options);
void fabric_to_rtr(struct vb_qp *qp, uint32_t other, const struct qp_options *options);
void fabric_to_rts(struct vb_qp *qp, const struct qp_options *options);
void fabric_pair(struct fabric *fabric, struct qp_options options, struct vb_qp *qp[2]);
void fabric_set_state(struct vb_qp *qp, enum ibv_qp_state state);

/* One event: packets leave, one arrives or a timer ends. False: nothing will ever happen. */
bool fabric_step(struct fabric *fabric);
/* Until nothing is to happen before `limit` ns from now. */
void fabric_run(struct fabric *fabric, uint64_t limit);
/* Until there is a completion; the test fails after 100 s of virtual time. */
struct ibv_wc fabric_wait(struct fabric *fabric, struct vb_cq *cq);
bool fabric_poll(struct vb_cq *cq, struct ibv_wc *wc);
/* Without channel and time: what side `from` has ready, at most 64 packets, goes to the other. */
unsigned fabric_carry(struct fabric *fabric, int from, uint64_t now);
/* Hands a side a packet of the test's own making. */
void fabric_inject(struct fabric *fabric, int to, const uint8_t *bytes, uint32_t length);

/* Requests of `length` bytes at these offsets of the sides' regions. A FLUSH is of a range, for
 * global visibility. */
struct ibv_send_wr fabric_request(struct fabric *fabric, int side, enum ibv_wr_opcode opcode,
                                  uint64_t remote_offset);
int fabric_post(struct fabric *fabric, struct vb_qp *qp, struct ibv_send_wr wr, uint64_t offset,
                uint32_t length);
void fabric_post_recv(struct fabric *fabric, struct vb_qp *qp, uint64_t id, uint64_t offset,
                      uint32_t length);

int fabric_side_of(const struct fabric *fabric, const struct vb_qp *qp);
const struct vb_counters *fabric_counters(struct fabric *fabric, int side);
/* The n-th logged packet of that side, of this kind; NULL if there are fewer. */
const struct logged *fabric_find(const struct fabric *fabric, int from, int operation, uint32_t n);
uint32_t fabric_count(const struct fabric *fabric, int from, int operation);
/* What the evidence behind a failed completion says contains this. */
void fabric_expect_text(struct fabric *fabric, int side, uint32_t vendor_err, const char *part);
/* The next event is of this type. */
void fabric_expect_event(struct fabric *fabric, int side, enum ibv_event_type type);
bool fabric_has_event(struct fabric *fabric, int side);

#endif
