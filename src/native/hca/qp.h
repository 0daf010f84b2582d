// SPDX-License-Identifier: Apache-2.0
/*
 * Queue pairs: their objects, their queues, posting and flushing. Verbs create and post to them;
 * carriers carry their requests out under sq_lock. qp_states.h has the transitions between states.
 */
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

/* A send request in the queue: a copy of the request, its elements and its inline data. */
struct vb_sq_wqe {
    struct ibv_send_wr wr;
    struct ibv_sge *sge;
    uint8_t *inline_data;
    struct vb_ah *ah; /* UD: a copy, since the program may destroy its own after posting */
    /* written by the packet engine when it begins the request (transport/requester.h): */
    uint32_t first_psn;
    uint32_t packets;
    uint32_t length;
    uint32_t ssn;
    uint32_t part; /* of a READ: the packets that one READ request packet asks for */
};

enum vb_wait_reason { VB_WAIT_NONE = 0, VB_WAIT_RNR, VB_WAIT_PEER, VB_WAIT_ANSWER, VB_WAIT_RATE };

/* Why the head of the send queue waits, and since when. */
struct vb_wait {
    uint8_t reason; /* enum vb_wait_reason */
    uint8_t noted;  /* VB_WAIT_RNR or VB_WAIT_PEER, by vb_overdue_note; valid for `position` */
    bool logged;    /* the log has a line about this wait; valid for `position` */
    uint8_t turns;  /* of the direct carrier: retries of VB_WAIT_RNR or VB_WAIT_PEER so far */
    uint32_t begun; /* of the direct carrier: the retry's start, in units of 4.096 us */
    uint64_t since; /* ns: when the wait began */
    uint32_t
        position; /* the request that waited; another one is at the head if it is not sq_next */
    int pid;      /* the peer's process; 0: not known */
};

/* The attributes of struct ibv_qp_attr that the transport reads for each packet. */
struct vb_terms {
    uint32_t sq_psn, rq_psn;
    uint8_t timeout, retry_cnt, rnr_retry;
    uint8_t max_rd_atomic;
};

struct vb_verbs_qp;

/*
 * What a carrier needs of a queue pair: its queues, its state, its terms. The queue pair of a
 * program is part of a struct vb_verbs_qp. A simulated flow has this alone (sim/flow_hca.c), since
 * a world may have a million flows.
 */
struct vb_qp {
    struct vb_context *context;
    struct vb_verbs_qp
        *verbs; /* NULL: a simulated flow, which no program sees and nobody posts to */
    struct vb_pd *pd;
    struct vb_cq *send_cq, *recv_cq;
    struct vb_srq *srq; /* of an XRC target set by vb_xrc_follow, as pd and recv_cq */
    struct vb_qp_shared *shared;
    const struct vb_carrier *carrier; /* vb_qp_carrier */
    struct vb_endpoint *endpoint;     /* of the packet engine; NULL: it does not carry the QP */
    struct vb_xrc_target *target;     /* of an XRC target QP (not of its handles); else NULL */
    uint32_t number;
    uint32_t index;
    uint32_t groups; /* the number of multicast groups that it is in; under adapter->groups */
    struct vb_terms terms;
    struct ibv_qp_cap cap;
    uint32_t rq_posted; /* the number of receive requests ever posted */

    /* the send queue, under shared->sq_lock: */
    struct vb_sq_wqe *sq;
    uint32_t sq_mask;
    uint32_t sq_posted;          /* the position of the next request to be posted */
    uint32_t sq_next;            /* the first request that has not been carried out */
    _Atomic uint32_t sq_retired; /* requests before this one have left the queue */
    struct vb_wait wait;

    uint32_t rq_flushed;             /* in ERR: requests before this have their flush completion */
    _Atomic uint32_t flush_evidence; /* the id of the record of its flushed requests; 0: none */

    uint8_t type;                      /* enum ibv_qp_type */
    bool sq_own : 1, sq_store_own : 1; /* the memory is of a parent domain's allocator */
    bool sq_sig_all : 1;               /* this and the next never change */
    bool blocks_self : 1;              /* UD: it gets no copy of its own datagrams to its groups */
    bool paced;                        /* it has a rate limit */
    _Atomic bool counted_waiting;      /* send_cq->waiting counts it */
    bool settling : 1;       /* LOCAL_INV has withdrawn a key that the peer may still be using */
    bool peer_ended : 1;     /* it failed as its peer's process ended, and no request has said so */
    bool drain_event : 1;    /* SQD was entered with notification, and the event is still to come */
    bool failed_by_program;  /* modify_qp put it in ERR */
    atomic_bool rq_draining; /* in ERR, with the receive queue flushed: later requests are, too */
    atomic_bool credits_out; /* the peer heard of no credits, so the next receive is announced */
};

/* A program's queue pair: the object that the program sees, and what no simulated flow has. */
struct vb_verbs_qp {
    struct vb_qp qp;

    struct vb_pace *pace; /* NULL: it never had a rate limit */

    /* written by the carriers: */
    struct vb_connection *connection; /* of the direct carrier; NULL before it has had the QP */
    uint32_t rounds_seen;             /* send_cq->rounds when the retry thread last looked */
    atomic_bool attended;
    atomic_bool polls_port;       /* both CQs' `waiting` count it: polls make progress for it */
    _Atomic uint16_t logged_lost; /* UD: causes of lost datagrams that the log has (lost.h) */
    struct vb_qp *attend_next;
    void *port_data;

    struct vb_biased_lock rq_lock; /* held by who posts receives or flushes them */
    struct vb_mr_seen rq_region;   /* the region that posted buffers were last in; under rq_lock */
    uint8_t *rq_ring;
    uint8_t *rq_stage;
    void *sq_store;

    struct vb_qp *real; /* of a handle of an XRC target QP (struct vb_xrc_handle): that target QP */

    /* what the program sees: */
    union {
        struct ibv_qp ibv;
        struct ibv_qp_ex ex;
    };
    struct vb_object object;
    struct ibv_qp_attr attr; /* as set by modify_qp, for query_qp */
    void *staging;           /* of the ibv_wr_* calls, if it was created for them; freed with it */
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

/* Makes, and destroys, a QP that is in no context's list of objects. */
int vb_qp_make(struct vb_context *context, const struct ibv_qp_init_attr_ex *attr,
               struct vb_xrc_target *target, struct vb_qp **qp);
void vb_qp_unmake(struct vb_qp *qp);
int vb_qp_create(struct vb_context *context, struct ibv_qp_init_attr_ex *attr, struct vb_qp **qp);
int vb_qp_destroy(struct vb_qp *qp); /* -EBUSY while it is in a multicast group */
void vb_qp_reset(struct vb_qp *qp);
/* A program may fail or destroy a QP right after it has posted a datagram, or has received a
 * message that is not acknowledged yet: both leave before that. */
void vb_qp_send_posted(struct vb_qp *qp);
/* Gives a connected QP its stage (vb_rq_stage), unless the segment is more than half full. */
void vb_qp_stage(struct vb_qp *qp);
int vb_qp_modify(struct vb_qp *of, struct ibv_qp_attr *attr, int mask);
/* Limits the rate of a QP in RTS. -EINVAL: a rate beyond the limits (pace.h), or a type of QP that
 * cannot be paced. */
int vb_qp_limit_rate(struct vb_qp *of, const struct ibv_qp_rate_limit_attr *attr);
int vb_qp_query(struct vb_qp *of, struct ibv_qp_attr *attr, int mask,
                struct ibv_qp_init_attr *init_attr);

/* ibv_post_send. -EINVAL: a malformed request, or the QP's state; -ENOMEM: the queue is full. `bad`
 * is the request that was refused. */
int vb_post_send(struct vb_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
/* The same for lists of the ibv_wr_* calls, which may have a FLUSH (`wr.flush`); ibv_send_wr of
 * libibverbs has no fields for one. */
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

/* Posts a request that vb_mw_prepare has checked and copied. */
int vb_post_prepared(struct vb_qp *qp, const struct ibv_send_wr *wr);
/* Would posting fail now? 0; -EINVAL: the QP's state; -ENOMEM: the queue is full. */
int vb_post_check(struct vb_qp *qp);
int vb_post_recv(struct vb_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* The RDMA port that it uses; the first one until modify_qp has set port_num. */
static inline struct vb_adapter_port *vb_qp_port(const struct vb_qp *qp)
{
    uint8_t port_num = qp->verbs->attr.port_num;

    return &qp->context->adapter->ports[port_num ? port_num - 1 : 0];
}

/* The LID that it sends from to this address; 0 on an Ethernet port. */
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

/* Writes the state to the object, where a program reads it without a call. */
static inline void vb_qp_show_state(struct vb_qp *qp)
{
    if (qp->verbs)
        qp->verbs->ibv.state = vb_qp_state(qp);
}

/* The Q_Key of a datagram: the sending QP's own if the request's has its top bit set (IBA 10.2.5).
 */
static inline uint32_t vb_qp_datagram_qkey(const struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    return wr->wr.ud.remote_qkey >> 31 ? qp->shared->qkey : wr->wr.ud.remote_qkey;
}

/* Are the requests of this type of QP acknowledged? */
static inline bool vb_qp_reliable_type(uint32_t type)
{
    return vb_qp_connected_type(type) && type != IBV_QPT_UC;
}

/* The type of the QP at the other end. */
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

/* Counts one more request, under sq_lock. The packet engine reads `sq_posted` without the lock. */
static inline void vb_sq_push(struct vb_qp *qp)
{
    __atomic_store_n(&qp->sq_posted, qp->sq_posted + 1, __ATOMIC_RELAXED);
}

void vb_sq_lock(struct vb_qp *qp);
bool vb_sq_trylock(struct vb_qp *qp);
void vb_sq_unlock(struct vb_qp *qp);

/* Carries out the requests that wait, until one has to wait again or none is left. Under sq_lock.
 */
void vb_sq_run(struct vb_qp *qp);
/* Completes the request at the queue's head. Under sq_lock. */
void vb_sq_complete(struct vb_qp *qp, const struct ibv_send_wr *wr,
                    const struct vb_outcome *outcome);
/* Puts the QP in ERR, or in SQE, and flushes the send queue; receives are flushed soon after. Under
 * sq_lock. */
void vb_qp_fail(struct vb_qp *qp);
/* Flushes the receive requests that are left. In ERR, under sq_lock, while the carrier is quiet. */
void vb_rq_flush(struct vb_qp *qp);
/* Posts again the SRQ request that a sender to this UD QP had taken when it died. */
void vb_rq_put_back(struct vb_qp *qp);
/* Has the receive request at this position completed? Its completion may be polled or not. */
bool vb_rq_is_completed(struct vb_qp *qp, uint32_t position);
/* Flushes what is left to flush in ERR. False: the lock was taken or the carrier is not quiet, so
 * that it has to be tried again. */
bool vb_qp_try_flush(struct vb_qp *qp);

/* The QP's carrier, never NULL; the old or the new one while another thread changes it. */
static inline const struct vb_carrier *vb_qp_carrier(const struct vb_qp *qp)
{
    return __atomic_load_n(&qp->carrier, __ATOMIC_ACQUIRE);
}

/* Called by vb_host_calls.connect and vb_host_calls.disconnect. */
static inline void vb_qp_set_carrier(struct vb_qp *qp, const struct vb_carrier *carrier)
{
    __atomic_store_n(&qp->carrier, carrier, __ATOMIC_RELEASE);
}

/* Are the QP's requests carried out by the threads that post them? */
static inline bool vb_qp_is_carried_by_posters(const struct vb_qp *qp)
{
    return vb_qp_carrier(qp)->execute != NULL;
}

/* After a change of the QP: a carrier that takes requests by itself looks at it. Without sq_lock.
 */
static inline void vb_qp_doorbell(struct vb_qp *qp)
{
    const struct vb_carrier *carrier = vb_qp_carrier(qp);

    if (VB_UNLIKELY(carrier->doorbell != NULL))
        carrier->doorbell(qp);
}

/*
 * From RTR until it is reset or destroyed a QP is live: it or its peer may use memory, and payloads
 * may wait in its recv_cq. Whoever deregisters memory looks at live QPs alone.
 */
void vb_qp_set_live(struct vb_qp *qp, bool live);
/* The first live QP from this index on, or NULL. Under adapter->mutex or adapter->lifetime. */
struct vb_qp *vb_qp_next_live(const struct vb_adapter *adapter, uint32_t index);

void vb_qp_raise(struct vb_qp *qp, enum ibv_event_type type);
/* Raises the events that peers have left in the segment, and returns their bits. */
uint32_t vb_qp_raise_notices(struct vb_qp *qp);

/* Lets polls of the QP's CQs make progress for its carrier, or ends that. */
void vb_qp_count_poller(struct vb_qp *qp, bool polls);

#endif
