// SPDX-License-Identifier: Apache-2.0
/* Queue pairs: attributes and states (qp_states.h), the send queue, flushing. */
#ifndef VB_HCA_QP_H
#define VB_HCA_QP_H

#include <stddef.h>

#include "hca/adapter.h"
#include "hca/carrier.h"
#include "hca/cq.h"
#include "hca/host_calls.h"
#include "hca/mr.h"
#include "hca/pace.h"
#include "hca/srq.h"

struct vb_connection;
struct vb_endpoint;
struct vb_xrc_target;

/* A send request that waits: its copy, the elements, inline data. */
struct vb_sq_wqe {
    struct ibv_send_wr wr;
    struct ibv_sge *sge;
    uint8_t *inline_data;
    struct vb_ah *ah; /* UD: a copy, since a program may destroy its own once it has posted */
    /* the packet engine's, once it has begun it (requester.h) */
    uint32_t first_psn;
    uint32_t packets;
    uint32_t length;
    uint32_t ssn;
    uint32_t part; /* packets that one request asks for, of a READ */
};

enum vb_wait_reason { VB_WAIT_NONE = 0, VB_WAIT_RNR, VB_WAIT_PEER, VB_WAIT_ANSWER, VB_WAIT_RATE };

/* Why the head of the send queue waits, and since when. */
struct vb_wait {
    uint8_t reason;    /* enum vb_wait_reason */
    uint8_t noted;     /* enum vb_wait_reason, VB_WAIT_RNR or VB_WAIT_PEER (overdue.h)… */
    bool told;         /* that it has waited for long… */
    uint8_t turns;     /* VB_WAIT_RNR and VB_WAIT_PEER, directly: retries that are over… */
    uint32_t begun;    /* …and when the present one began, in units of 4.096 us */
    uint64_t since;    /* ns */
    uint32_t position; /* …both as long as this is sq_next */
    int pid;           /* the peer's process; 0: not known */
};

/* What modify_qp set for the transport: of struct ibv_qp_attr, what each packet looks at. */
struct vb_terms {
    uint32_t sq_psn, rq_psn;
    uint8_t timeout, retry_cnt, rnr_retry;
    uint8_t max_rd_atomic;
};

struct vb_verbs_qp;

/*
 * What a carrier needs of a queue pair: its queues, its state, its terms. A program's one is part
 * of a struct vb_verbs_qp. A simulated flow is this alone (sim/flow_hca.c), as a world may have a
 * million.
 */
struct vb_qp {
    struct vb_context *context;
    struct vb_verbs_qp
        *verbs; /* NULL: a simulated flow, which no program sees and nobody posts to */
    struct vb_pd *pd;
    struct vb_cq *send_cq, *recv_cq;
    struct vb_srq *srq; /* XRC target: as vb_xrc_follow found it, with pd and recv_cq */
    struct vb_qp_shared *shared;
    const struct vb_carrier *carrier; /* vb_qp_carrier */
    struct vb_endpoint *endpoint;     /* of the packet engine, if it carries the QP */
    struct vb_xrc_target *target;     /* of the QP itself, which no program sees */
    uint32_t number;
    uint32_t index;
    uint32_t groups; /* that it is in, under adapter->groups */
    struct vb_terms terms;
    struct ibv_qp_cap cap;
    uint32_t rq_posted; /* receive requests */

    /* send queue, under shared->sq_lock */
    struct vb_sq_wqe *sq;
    uint32_t sq_mask;
    uint32_t sq_posted;          /* next position */
    uint32_t sq_next;            /* first that has not been carried out */
    _Atomic uint32_t sq_retired; /* places before this one are free again */
    struct vb_wait wait;

    uint32_t rq_flushed;             /* ERR: requests before this position have their flush entry */
    _Atomic uint32_t flush_evidence; /* id of the record that its flushed requests share; 0: none */

    uint8_t type;                 /* enum ibv_qp_type */
    bool sq_sig_all : 1;          /* this and the next are never changed */
    bool blocks_self : 1;         /* UD: gets no copy of what it sends to a group that it is in */
    bool paced;                   /* it has a rate limit */
    _Atomic bool counted_waiting; /* in send_cq->waiting */
    bool settling : 1;       /* LOCAL_INV has withdrawn a key, and the peer may still be at work */
    bool drain_event : 1;    /* SQD entered with notification, not yet raised */
    bool failed_by_program;  /* modify_qp to ERR */
    atomic_bool rq_draining; /* ERR, and the queue was flushed: what is posted follows at once */
    atomic_bool told_empty;  /* the peer was told of no credits: the next receive is news to it */
};

/* A program's queue pair: the object that it sees, and what only such a one has. */
struct vb_verbs_qp {
    struct vb_qp qp;

    struct vb_pace *pace; /* NULL: it never had a rate limit */

    /* the carriers' */
    struct vb_connection *connection; /* direct's, NULL before it has carried the QP */
    bool sq_store_own, sq_own;        /* of a parent domain's allocator */
    uint32_t rounds_seen;             /* of send_cq, when the retry thread last looked */
    atomic_bool attended;
    atomic_bool polls_port;     /* counted in both CQs' `waiting`: who polls them makes progress */
    _Atomic uint16_t told_lost; /* UD: causes of lost datagrams that were told (lost.h) */
    struct vb_qp *attend_next;
    void *port_data;

    struct vb_biased_lock rq_lock; /* posters */
    uint8_t *rq_ring;
    uint8_t *rq_stage;
    void *sq_store;

    /* XRC targets (xrc.h) */
    struct vb_qp *real; /* of a handle of it: that QP. A handle has little of all above */
    struct vb_qp *next_handle;
    struct vb_xrcd *xrcd; /* that the handle was made with */

    /* what a program sees */
    union {
        struct ibv_qp ibv;
        struct ibv_qp_ex ex;
    };
    struct vb_object object;
    struct ibv_qp_attr attr; /* what was set, for query_qp */
    void *staging;           /* the ibv_wr_* calls', if it was created for them; freed with it */
};

static inline struct vb_qp *vb_qp_of(const struct ibv_qp *ibv)
{
    return &((struct vb_verbs_qp *)((char *)(uintptr_t)ibv - offsetof(struct vb_verbs_qp, ibv)))
                ->qp;
}

/* The object of a queue pair that is known to be a program's, without a load. */
static inline struct vb_verbs_qp *vb_verbs_qp_of(const struct vb_qp *qp)
{
    return (struct vb_verbs_qp *)((char *)(uintptr_t)qp - offsetof(struct vb_verbs_qp, qp));
}

/* A QP that belongs to no context's objects, and its end. */
int vb_qp_make(struct vb_context *context, const struct ibv_qp_init_attr_ex *attr,
               struct vb_xrc_target *target, struct vb_qp **qp);
void vb_qp_unmake(struct vb_qp *qp);
int vb_qp_create(struct vb_context *context, struct ibv_qp_init_attr_ex *attr, struct vb_qp **qp);
int vb_qp_destroy(struct vb_qp *qp); /* -EBUSY while it is in a multicast group */
void vb_qp_reset(struct vb_qp *qp);
/* Gives a connected QP the stage for small payloads; where address space is short it does without.
 */
void vb_qp_stage(struct vb_qp *qp);
int vb_qp_modify(struct vb_qp *of, struct ibv_qp_attr *attr, int mask);
/* In RTS. -EINVAL: beyond the limits (pace.h), or the QP sends nothing that is paced. */
int vb_qp_limit_rate(struct vb_qp *of, const struct ibv_qp_rate_limit_attr *attr);
int vb_qp_query(struct vb_qp *of, struct ibv_qp_attr *attr, int mask,
                struct ibv_qp_init_attr *init_attr);

/* libibverbs: -EINVAL for a malformed request or state, -ENOMEM for a full queue; `bad` names it.
 */
int vb_post_send(struct vb_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
/* The same for lists that may have a FLUSH (`wr.flush`), for which libibverbs' requests have no
 * fields. */
int vb_post_staged(struct vb_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

static inline void vb_fill_flush(struct ibv_send_wr *wr, uint32_t rkey, uint64_t remote_addr,
                                 uint64_t length, uint8_t type, uint8_t level)
{
    wr->opcode = IBV_WR_FLUSH;
    wr->wr.flush.remote_addr = remote_addr;
    wr->wr.flush.rkey = rkey;
    wr->wr.flush.type = type;
    wr->wr.flush.level = level;
    wr->wr.flush.length = length;
}

static inline bool vb_flush_is_known(unsigned type, unsigned level)
{
    return type && !(type & ~(unsigned)(IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT)) &&
           level <= IBV_FLUSH_MR;
}

/* One request that is as the queue holds it, and past the checks (mw.h). */
int vb_post_prepared(struct vb_qp *qp, const struct ibv_send_wr *wr);
/* What posting one more would fail with now: 0, -EINVAL for the state, -ENOMEM. */
int vb_post_check(struct vb_qp *qp);
int vb_post_recv(struct vb_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* The port that it uses; the first one until modify_qp has named it. */
static inline struct vb_adapter_port *vb_qp_port(const struct vb_qp *qp)
{
    uint8_t port_num = qp->verbs->attr.port_num;

    return &qp->context->adapter->ports[port_num ? port_num - 1 : 0];
}

/* From which of its port's LIDs it sends to this address; 0: Ethernet. */
static inline uint16_t vb_qp_lid(const struct vb_qp *qp, const struct ibv_ah_attr *ah)
{
    const struct vb_adapter_port *port = vb_qp_port(qp);

    return (uint16_t)(port->lid | (ah->src_path_bits & ((1u << port->lmc) - 1)));
}

static inline enum ibv_qp_state vb_qp_state(const struct vb_qp *qp)
{
    return atomic_load_explicit(&qp->shared->state, memory_order_acquire);
}

static inline bool vb_qp_connected_type(uint32_t type)
{
    return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_XRC_SEND ||
           type == IBV_QPT_XRC_RECV;
}

/* The state as a program sees it in its object, without a call. */
static inline void vb_qp_show_state(struct vb_qp *qp)
{
    if (qp->verbs)
        qp->verbs->ibv.state = vb_qp_state(qp);
}

/* A datagram's Q_Key: one with its top bit set stands for the sending QP's own (IBA 10.2.5). */
static inline uint32_t vb_qp_datagram_qkey(const struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    return wr->wr.ud.remote_qkey >> 31 ? qp->shared->qkey : wr->wr.ud.remote_qkey;
}

/* Whose requests are acknowledged. */
static inline bool vb_qp_reliable_type(uint32_t type)
{
    return vb_qp_connected_type(type) && type != IBV_QPT_UC;
}

/* Of the QP at the other end. */
static inline enum ibv_qp_type vb_qp_peer_type(enum ibv_qp_type type)
{
    switch (type) {
    case IBV_QPT_XRC_SEND:
        return IBV_QPT_XRC_RECV;
    case IBV_QPT_XRC_RECV:
        return IBV_QPT_XRC_SEND;
    default:
        return type;
    }
}

/* Under sq_lock: one request more. The packet engine looks at `sq_posted` without the lock. */
static inline void vb_sq_push(struct vb_qp *qp)
{
    __atomic_store_n(&qp->sq_posted, qp->sq_posted + 1, __ATOMIC_RELAXED);
}

void vb_sq_lock(struct vb_qp *qp);
bool vb_sq_trylock(struct vb_qp *qp);
void vb_sq_unlock(struct vb_qp *qp);

/* Under sq_lock: carries out what waits, until something has to wait again or nothing is left. */
void vb_sq_run(struct vb_qp *qp);
/* Under sq_lock: the request at the queue's head ended. */
void vb_sq_complete(struct vb_qp *qp, const struct ibv_send_wr *wr,
                    const struct vb_outcome *outcome);
/* Under sq_lock: to ERR (or SQE), what waits in the send queue is flushed; receives follow soon. */
void vb_qp_fail(struct vb_qp *qp);
/* Under sq_lock, in ERR, with the port quiet: every receive request left gets its flush entry. */
void vb_rq_flush(struct vb_qp *qp);
/* A UD QP with an SRQ, whose sender died: the request that it had taken serves another. */
void vb_rq_put_back(struct vb_qp *qp);
/* Has the receive request at this position its completion, polled or not? */
bool vb_rq_is_completed(struct vb_qp *qp, uint32_t position);
/* Flushes whatever ERR still owes; false when it must be tried again (busy, or not quiet). */
bool vb_qp_try_flush(struct vb_qp *qp);

/* Never NULL. Another thread may reset the QP meanwhile: then it is the one before, or after. */
static inline const struct vb_carrier *vb_qp_carrier(const struct vb_qp *qp)
{
    return __atomic_load_n(&qp->carrier, __ATOMIC_ACQUIRE);
}

/* For vb_host_calls.connect and vb_host_calls.disconnect. */
static inline void vb_qp_set_carrier(struct vb_qp *qp, const struct vb_carrier *carrier)
{
    __atomic_store_n(&qp->carrier, carrier, __ATOMIC_RELEASE);
}

/* Are the QP's requests carried out by the threads that post them? */
static inline bool vb_qp_is_carried_by_posters(const struct vb_qp *qp)
{
    return vb_qp_carrier(qp)->execute != NULL;
}

/* Without sq_lock, after a change: a carrier that takes requests by itself looks at the QP. */
static inline void vb_qp_doorbell(struct vb_qp *qp)
{
    const struct vb_carrier *carrier = vb_qp_carrier(qp);

    if (VB_UNLIKELY(carrier->doorbell != NULL))
        carrier->doorbell(qp);
}

/*
 * From RTR until it is reset or destroyed a QP is live: it, or its peer, may touch memory, and what
 * has arrived may wait in its recv_cq. Who takes memory away looks at live QPs alone.
 */
void vb_qp_set_live(struct vb_qp *qp, bool live);
/* The first live one from this index on, or NULL. Under adapter->mutex or adapter->lifetime. */
struct vb_qp *vb_qp_next_live(const struct vb_adapter *adapter, uint32_t index);

void vb_qp_raise(struct vb_qp *qp, enum ibv_event_type type);
/* Raises the events that peers have left in the segment, and returns their bits. */
uint32_t vb_qp_raise_notices(struct vb_qp *qp);

/* From now on who polls the QP's CQs makes progress for its port; or not any more. */
void vb_qp_count_poller(struct vb_qp *qp, bool polls);

#endif
