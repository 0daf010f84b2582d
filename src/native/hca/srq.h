// SPDX-License-Identifier: Apache-2.0
/* Receive requests: how they are written to a queue, and the queue that several QPs share. */
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
    struct vb_xrcd *xrcd; /* of an XRC SRQ, as the next four */
    struct vb_cq *cq;
    uint32_t srq_num;
    struct vb_qp *door;     /* NULL: the domain is this process's own */
    atomic_bool polls_port; /* counted in the CQ's `waiting`: packets have come for it */
    uint32_t index;
    uint32_t max_wr;
    uint32_t max_sge;
    /* What the entry in the segment says too, where peers may write to it. */
    uint8_t *wqes;
    uint32_t *order;
    uint32_t room;              /* of both rings */
    _Atomic uint32_t post_lock; /* the free list, `posted` and the sizes */
    uint32_t *free;
    uint32_t free_count;
    uint32_t withheld; /* of the free ones: the rings have that much more room than max_wr */
    int64_t *position; /* of each request in the order ring, -1 while it is free */
    _Atomic uint32_t users;
    /* Requests' rings of before: whoever has one in hand still reads it there. Each has at most
     * half the room of the next. */
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

/* Bytes of a receive request with this many elements: the log2 of its stride in a ring. */
uint32_t vb_recv_stride_log2(uint32_t max_sge);
void vb_recv_write(struct vb_recv_wqe *wqe, const struct ibv_recv_wr *wr);

int vb_srq_create(struct vb_context *context, struct vb_pd *pd, struct ibv_srq_init_attr *attr,
                  struct vb_srq **srq);
/* One that requests name, in an XRC domain; what it receives completes on `cq`. */
int vb_srq_create_xrc(struct vb_context *context, struct vb_pd *pd, struct vb_xrcd *xrcd,
                      struct vb_cq *cq, struct ibv_srq_init_attr *attr, struct vb_srq **srq);
/* Its limit, its size. A smaller one only takes away what is free: -EINVAL when more is in use. */
int vb_srq_modify(struct vb_srq *srq, const struct ibv_srq_attr *attr, int mask);
void vb_srq_query(struct vb_srq *srq, struct ibv_srq_attr *attr);
int vb_srq_destroy(struct vb_srq *srq);
int vb_srq_post_recv(struct vb_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* The request's completion was polled: its place can be used again. */
void vb_srq_release(struct vb_srq *srq, uint32_t wqe);
/* It was taken and nothing came of it: it waits again, as the last. */
void vb_srq_put_back(struct vb_srq *srq, uint32_t wqe);
/* Raises the event of a limit that was crossed by whoever took a request. */
void vb_srq_notice(struct vb_srq *srq);
/* Was the request taken from this position, and not completed and polled since? */
bool vb_srq_is_taken(struct vb_srq *srq, uint32_t index, uint32_t position);
void vb_srq_repair(struct vb_srq *srq, uint32_t dead_holder);

#endif
