// SPDX-License-Identifier: Apache-2.0
/* Completion queues: many producers, in this process and in peers; one consumer at a time. */
#ifndef VB_HCA_CQ_H
#define VB_HCA_CQ_H

#include "hca/adapter.h"
#include "hca/channel.h"
#include "hca/lock.h"

struct vb_cq {
    union {
        struct ibv_cq ibv;
        struct ibv_cq_ex ex;
    };
    struct vb_object object;
    struct vb_context *context;
    struct vb_cq_shared *shared;
    struct vb_cqe *ring;
    uint32_t mask;
    uint32_t index;
    uint32_t generation;
    uint32_t taken; /* next position to poll */
    struct vb_biased_lock poll_lock;
    _Atomic uint32_t waiting; /* QPs whose requests wait and complete here */
    _Atomic uint32_t rounds;  /* of progress that polling has made for them */
    _Atomic uint32_t users;   /* QPs attached */
    struct vb_channel *channel;
    uint32_t events_read;          /* channel events handed out, under adapter->mutex */
    struct ibv_wc current;         /* what the extended readers read */
    struct vb_biased_lock ex_lock; /* from start_poll to end_poll */
};

/* What a producer has to do after it has put an entry in. */
enum vb_push { VB_PUSHED = 0, VB_PUSH_EVENT = 1, VB_PUSH_OVERRUN = 2, VB_PUSH_REFUSED = 4 };

/*
 * Appends an entry. VB_PUSH_EVENT: the CQ was armed for it, wake its channel. VB_PUSH_OVERRUN: it
 * was full and is now in error, tell its owner. VB_PUSH_REFUSED: it was in error, or its owner
 * died.
 */
unsigned vb_cqe_push(const struct vb_adapter *adapter, const struct vb_view *view,
                     struct vb_cq_shared *cq, const atomic_bool *gone, const struct vb_cqe *entry,
                     bool solicited);

int vb_cq_create(struct vb_context *context, int cqe, void *cq_context, struct vb_channel *channel,
                 struct vb_cq **cq);
int vb_cq_destroy(struct vb_cq *cq);         /* -EBUSY while a QP uses it */
int vb_cq_resize(struct vb_cq *cq, int cqe); /* keeps entries in order; -EINVAL: they do not fit */
int vb_cq_poll(struct vb_cq *cq, int count,
               struct ibv_wc *wc); /* number, or -EIO after an overrun */
void vb_cq_arm(struct vb_cq *cq, bool solicited_only);

/* An entry of the owner's own; wakes and raises what follows from it. */
void vb_cq_complete(struct vb_cq *cq, const struct vb_cqe *entry, bool solicited);
/* What follows from a push into an own CQ, whoever made it. */
void vb_cq_after_push(struct vb_cq *cq, unsigned pushed);

/* The QP is being reset or destroyed: its entries will not be polled. */
void vb_cq_forget(struct vb_cq *cq, uint32_t qp_index);
/* Puts waiting inline payloads into memory, so that a READ may follow. */
void vb_cq_place(struct vb_cq *cq);
/* Is there an entry for this receive request? (recovery after a peer's death) */
bool vb_cq_holds_recv(struct vb_cq *cq, uint32_t qp_index, uint32_t wqe);
/* A producer died with the lock: finish what it had published, then release. */
void vb_cq_repair(struct vb_cq *cq, uint32_t dead_holder);

#endif
