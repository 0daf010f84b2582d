// SPDX-License-Identifier: Apache-2.0
/*
 * Receive requests as they are written to a queue, and shared receive queues. Verbs create an SRQ
 * and post to it under the lock SRQ_POST. The packet engine and peers take requests from it in the
 * segment, under the lock SRQ.
 */
#ifndef VB_HCA_SRQ_H
#define VB_HCA_SRQ_H

#include "hca/adapter.h"
#include "hca/mr.h"

struct vb_qp;
struct vb_xrcd;

enum { VB_SRQ_SIZES = 16 }; /* powers of two up to VB_MAX_WR */

struct vb_srq {
    struct ibv_srq ibv;
    struct vb_object object;
    struct vb_context *context;
    struct vb_pd *pd;
    struct vb_srq_shared *shared;
    struct vb_xrcd *xrcd; /* this and the next four: of an XRC SRQ */
    struct vb_cq *cq;
    uint32_t srq_num;
    struct vb_qp *proxy;    /* (xrc.h); NULL: no other process can open its domain */
    atomic_bool polls_port; /* packets have come for it: the CQ's `waiting` counts it */
    uint32_t index;
    uint32_t max_wr;
    uint32_t max_sge;
    /* This process's own copy of what the entry in the segment says, which peers can write to. */
    uint8_t *wqes;
    uint32_t *order;
    uint32_t room;              /* entries of both rings */
    _Atomic uint32_t post_lock; /* protects the free list, `posted` and the sizes */
    uint32_t *free;
    uint32_t free_count;
    uint32_t withheld; /* free entries that are not used: the rings are larger than max_wr */
    int64_t *position; /* of each request in the order ring; -1 while it is free */
    _Atomic uint32_t users;
    /* The smaller rings of requests that it had before, which who has taken a request may still
     * read. Each has at most half the room of the next. */
    void *outgrown[VB_SRQ_SIZES];
    uint32_t outgrown_count;
};

/* A receive request that was taken from its queue and has not completed. */
struct vb_receive {
    const struct vb_recv_wqe *wqe;
    uint32_t position; /* in the receive queue, or the SRQ's request index */
};

/*
 * Takes the next request of an SRQ for `qp`, both of `view`, or the one that `qp` still has in
 * hand. 0; -EAGAIN: there is none; -EPIPE: `gone`, which says that the view's process has died,
 * became true first (NULL: it is this process). `crossed`: this take fell below the SRQ's limit,
 * and the caller tells the SRQ's owner of it.
 */
int vb_srq_take(const struct vb_view *view, struct vb_srq_shared *srq, struct vb_qp_shared *qp,
                uint32_t holder, const atomic_bool *gone, struct vb_receive *taken, bool *crossed);

/* The log2 of the bytes between two receive requests of so many elements in a ring. */
uint32_t vb_recv_stride_log2(uint32_t max_sge);
/* `checked`: of struct vb_recv_wqe. */
void vb_recv_write(struct vb_recv_wqe *wqe, const struct ibv_recv_wr *wr, uint64_t checked);

int vb_srq_create(struct vb_context *context, struct vb_pd *pd, struct ibv_srq_init_attr *attr,
                  struct vb_srq **srq);
/* Makes an XRC SRQ, which requests name by its number; its receives complete on `cq`. */
int vb_srq_create_xrc(struct vb_context *context, struct vb_pd *pd, struct vb_xrcd *xrcd,
                      struct vb_cq *cq, struct ibv_srq_init_attr *attr, struct vb_srq **srq);
/* Changes its limit or its size. -EINVAL: more requests are in use than the new size has room for.
 */
int vb_srq_modify(struct vb_srq *srq, const struct ibv_srq_attr *attr, int mask);
void vb_srq_query(struct vb_srq *srq, struct ibv_srq_attr *attr);
int vb_srq_destroy(struct vb_srq *srq);
int vb_srq_post_recv(struct vb_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* Frees the entry of a request whose completion was polled. */
void vb_srq_release(struct vb_srq *srq, uint32_t wqe);
/* Posts a request again that was taken and not used, behind all others. */
void vb_srq_put_back(struct vb_srq *srq, uint32_t wqe);
/* Raises the event of the limit, if a request was taken that crossed it. */
void vb_srq_notice(struct vb_srq *srq);
/* Was the request taken from this position, and not completed and polled since? */
bool vb_srq_is_taken(struct vb_srq *srq, uint32_t index, uint32_t position);
void vb_srq_repair(struct vb_srq *srq, uint32_t dead_holder);

#endif
