// SPDX-License-Identifier: Apache-2.0
/* Completion queues: many producers, in this process and in peers; one consumer at a time. */
#ifndef VB_HCA_CQ_H
#define VB_HCA_CQ_H

#include "hca/adapter.h"
#include "hca/channel.h"
#include "hca/host_calls.h"
#include "hca/lock.h"

struct vb_pd;

struct vb_cq {
    union {
        struct ibv_cq ibv;
        struct ibv_cq_ex ex;
    };
    struct vb_object object;
    struct vb_context *context;
    struct vb_cq_shared *shared;
    struct vb_cqe *ring;
    uint64_t *stamps; /* NULL: none are kept */
    uint32_t mask;
    uint32_t index;
    uint32_t generation;
    _Atomic uint32_t taken; /* next position to poll: under poll_lock, or as a first look */
    struct vb_biased_lock poll_lock;
    _Atomic uint32_t waiting; /* QPs whose requests wait and complete here */
    _Atomic uint32_t rounds;  /* of progress that polling has made for them */
    _Atomic uint32_t users;   /* QPs attached */
    struct vb_channel *channel;
    struct vb_pd *parent;          /* domain that it was made in, or NULL */
    uint32_t events_read;          /* channel events handed out, under adapter->mutex */
    _Atomic uint32_t largest;      /* entries that it ever had room for: each ring's size */
    _Atomic uint32_t gather_count; /* moderation: an event for so many completions (0: none)… */
    _Atomic uint32_t gather_us;    /* …or after so long */
    struct ibv_wc current;         /* what the extended readers read */
    struct vb_biased_lock ex_lock; /* from start_poll to end_poll */
};

static inline uint32_t vb_cq_taken(const struct vb_cq *cq)
{
    return atomic_load_explicit(&cq->taken, memory_order_relaxed);
}

/* What a producer has to do after it has put an entry in. */
enum vb_push { VB_PUSHED = 0, VB_PUSH_EVENT = 1, VB_PUSH_OVERRUN = 2, VB_PUSH_REFUSED = 4 };

bool vb_cq_has_room_now(struct vb_cq_shared *cq);
unsigned vb_cq_consume_arming(struct vb_cq_shared *cq, uint32_t producer, uint32_t position,
                              bool solicited);
unsigned vb_cqe_refuse(struct vb_cq_shared *cq);
bool vb_cq_holds_event(struct vb_cq_shared *cq);

/*
 * A producer's two steps, between which it holds the CQ's lock. Reserve gives the entry to fill
 * (all of it but `seq`); or NULL and in `refused` VB_PUSH_REFUSED: the CQ was in error or its owner
 * died, with VB_PUSH_OVERRUN: it was full and is now in error, tell its owner. Publish answers
 * VB_PUSH_EVENT when the CQ was armed for such an entry: wake its channel.
 */
static inline struct vb_cqe *vb_cqe_reserve(const struct vb_adapter *adapter,
                                            const struct vb_view *view, struct vb_cq_shared *cq,
                                            const atomic_bool *gone, unsigned *refused)
{
    *refused = VB_PUSH_REFUSED;
    if (VB_UNLIKELY(!vb_biased_acquire_unless(&cq->lock, VB_RANK_CQ, adapter->instance,
                                              adapter->barriers, gone)))
        return NULL;
    if (VB_UNLIKELY((cq->tail - cq->head_seen > cq->mask && !vb_cq_has_room_now(cq)) ||
                    atomic_load_explicit(&cq->error, memory_order_relaxed))) {
        *refused = vb_cqe_refuse(cq);
        return NULL;
    }
    if (VB_UNLIKELY(cq->stamps))
        *vb_cqe_stamp_at(view, cq, cq->tail) = adapter->calls->now(adapter);
    return vb_cqe_at(view, cq, cq->tail);
}

static inline unsigned vb_cqe_publish(const struct vb_adapter *adapter, struct vb_cq_shared *cq,
                                      struct vb_cqe *entry, bool solicited)
{
    uint32_t position = cq->tail;
    bool wakes = solicited || entry->status != IBV_WC_SUCCESS;

    atomic_store_explicit(&entry->seq, position + 1, memory_order_release);
    cq->tail = position + 1;
    vb_biased_release(&cq->lock); /* once polled, its memory may go (vb_cq_resize) */
    return VB_LIKELY(!cq->channel) ? VB_PUSHED
                                   : vb_cq_consume_arming(cq, adapter->instance, position, wakes);
}

int vb_cq_create(struct vb_context *context, int cqe, void *cq_context, struct vb_channel *channel,
                 struct vb_cq **cq);
/* Of a CQ that is not used yet: the time of each completion will be kept. -ENOMEM, -EOPNOTSUPP. */
int vb_cq_keep_stamps(struct vb_cq *cq);
/* When the entry that was polled last was made, in the port's time; of a CQ that keeps stamps. */
uint64_t vb_cq_last_stamp(const struct vb_cq *cq);
int vb_cq_destroy(struct vb_cq *cq);         /* -EBUSY while a QP uses it */
int vb_cq_resize(struct vb_cq *cq, int cqe); /* keeps entries in order; -EINVAL: they do not fit */
int vb_cq_poll(struct vb_cq *cq, int count,
               struct ibv_wc *wc); /* number, or -EIO after an overrun */
/* Any completion, or solicited and failed ones only, makes one event: the next, or one
 * that is unpolled and had none yet. */
void vb_cq_arm(struct vb_cq *cq, bool solicited_only);
/* Moderation (cq_moderate.c): 0 or 1 completions, or no time, ends it. -EOPNOTSUPP. */
int vb_cq_moderate(struct vb_cq *cq, uint16_t count, uint16_t microseconds);
/* It is being armed: completions gather from now on. */
void vb_cq_hold(struct vb_cq *cq);
/* The time is over: what has gathered makes its event now. */
void vb_cq_release_held(struct vb_cq *cq);
bool vb_cq_has_entry_at(const struct vb_cq *cq, uint32_t position);

/* The same two steps for an own CQ, with what follows from them; NULL: the entry is lost. */
struct vb_cqe *vb_cq_begin(struct vb_cq *cq);
void vb_cq_end(struct vb_cq *cq, struct vb_cqe *entry, bool solicited);
/* Both at once, for an entry that is ready. */
void vb_cq_complete(struct vb_cq *cq, const struct vb_cqe *entry, bool solicited);
/* Writes an event of the CQ, whose arming was consumed, to its channel. */
void vb_cq_wake(const struct vb_view *view, struct vb_cq_shared *cq, uint32_t index, int write_fd);
/* The events that found their channels full. */
void vb_cq_notice_missed(struct vb_adapter *adapter);
/* An event of an own CQ that has a channel; its port may want to know (vb_host_calls.readable). */
void vb_cq_tell(struct vb_cq *cq);
/* What follows from a push into an own CQ by this process. */
void vb_cq_after_push(struct vb_cq *cq, unsigned pushed);
/* Does what producers left to its owner: wakes the channel, raises the overrun. */
void vb_cq_notice(struct vb_cq *cq);

/* The QP is being reset or destroyed: its entries will not be polled. */
void vb_cq_forget(struct vb_cq *cq, uint32_t qp_index);
/* Puts waiting inline payloads into memory, so that a READ may follow. */
void vb_cq_place(struct vb_cq *cq);
/* The same of every CQ that may have any, a live QP's, before memory goes. */
void vb_cqs_place(struct vb_adapter *adapter);
/* Is there an entry for this receive request? (recovery after a peer's death) */
bool vb_cq_holds_recv(struct vb_cq *cq, uint32_t qp_index, uint32_t wqe);
/* The same of an XRC SRQ's receive requests. */
void vb_cq_forget_srq(struct vb_cq *cq, uint32_t srq_index);
bool vb_cq_holds_xrc(struct vb_cq *cq, uint32_t srq_index, uint32_t wqe);
/* A producer died with the lock: finish what it had published, then release. */
void vb_cq_repair(struct vb_cq *cq, uint32_t dead_holder);

#endif
