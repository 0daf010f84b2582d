// SPDX-License-Identifier: Apache-2.0
/*
 * Completion queues. Producers are threads of this process and of its peers, which write entries
 * into the queue's ring in the segment; one thread at a time polls them. A queue that overran is in
 * error and takes no more entries.
 */
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
    uint64_t *stamps; /* times at which completions are in memory; NULL: none are kept */
    uint32_t mask;
    uint32_t index;
    uint32_t generation;
    _Atomic uint32_t taken; /* next position to poll; changes under poll_lock */
    struct vb_biased_lock poll_lock;
    _Atomic uint32_t waiting; /* QPs whose polled CQ this is: a poll makes progress for them */
    _Atomic uint32_t rounds;  /* how often polling has made progress for them */
    _Atomic uint32_t users;   /* QPs and SRQs that use it */
    struct vb_channel *channel;
    struct vb_pd *parent;          /* the parent domain that it was made in, or NULL */
    uint32_t events_read;          /* channel events that were read; under adapter->mutex */
    _Atomic uint32_t largest;      /* the most entries that it ever had room for */
    _Atomic uint32_t gather_count; /* moderation: completions for one event; 0: no moderation */
    _Atomic uint32_t gather_us;    /* moderation: an event after this time at the latest */
    struct ibv_wc current;         /* the completion that the extended readers read */
    struct vb_biased_lock ex_lock; /* held from start_poll to end_poll */
    bool late; /* entries are made before they are in memory (vb_host_calls.written; cq_late.c) */
};

static inline uint32_t vb_cq_taken(const struct vb_cq *cq)
{
    return atomic_load_explicit(&cq->taken, memory_order_relaxed);
}

/* What a producer has to do after it has written an entry. */
enum vb_push { VB_PUSHED = 0, VB_PUSH_EVENT = 1, VB_PUSH_OVERRUN = 2, VB_PUSH_REFUSED = 4 };

bool vb_cq_has_room_now(struct vb_cq_shared *cq);
unsigned vb_cq_consume_arming(struct vb_cq_shared *cq, uint32_t producer, uint32_t position,
                              bool solicited);
unsigned vb_cqe_refuse(struct vb_cq_shared *cq);
bool vb_cq_holds_event(struct vb_cq_shared *cq);

/* The time at which an entry that is made now is in memory. */
static inline uint64_t vb_cqe_time(const struct vb_adapter *adapter)
{
    return adapter->calls->written ? adapter->calls->written(adapter)
                                   : adapter->calls->now(adapter);
}

/*
 * A producer writes an entry in two steps, between which it holds the CQ's lock. vb_cqe_reserve
 * returns the entry, of which the producer fills all but `seq`. It returns NULL with `refused` set
 * to VB_PUSH_REFUSED where the CQ is in error or its owner died, and with VB_PUSH_OVERRUN as well
 * where the CQ was full and is now in error, which its owner has to hear. vb_cqe_publish returns
 * VB_PUSH_EVENT where the CQ was armed for such an entry: the producer wakes its channel.
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
        *vb_cqe_stamp_at(view, cq, cq->tail) = vb_cqe_time(adapter);
    return vb_cqe_at(view, cq, cq->tail);
}

static inline unsigned vb_cqe_publish(const struct vb_adapter *adapter, struct vb_cq_shared *cq,
                                      struct vb_cqe *entry, bool solicited)
{
    uint32_t position = cq->tail;
    bool wakes = solicited || entry->status != IBV_WC_SUCCESS;

    atomic_store_explicit(&entry->seq, position + 1, memory_order_release);
    cq->tail = position + 1;
    vb_biased_release(&cq->lock); /* from here on vb_cq_resize may free the ring */
    return VB_LIKELY(!cq->channel) ? VB_PUSHED
                                   : vb_cq_consume_arming(cq, adapter->instance, position, wakes);
}

int vb_cq_create(struct vb_context *context, int cqe, void *cq_context, struct vb_channel *channel,
                 struct vb_cq **cq);
/* Keeps the time of each completion. For a CQ that is not used yet. -ENOMEM, -EOPNOTSUPP. */
int vb_cq_keep_stamps(struct vb_cq *cq);
/* The time of an entry, by vb_host_calls.now; and of the one that was polled last. For a CQ that
 * keeps times. */
uint64_t vb_cq_stamp(const struct vb_cq *cq, uint32_t position);
uint64_t vb_cq_last_stamp(const struct vb_cq *cq);
int vb_cq_destroy(struct vb_cq *cq);         /* -EBUSY while a QP uses it */
int vb_cq_resize(struct vb_cq *cq, int cqe); /* keeps entries in order; -EINVAL: they do not fit */
int vb_cq_poll(struct vb_cq *cq, int count,
               struct ibv_wc *wc); /* number, or -EIO after an overrun */
/* Arms the CQ: one completion makes one event, the next one or one that is not polled and had no
 * event yet. With `solicited_only` solicited and failed completions alone count. */
void vb_cq_arm(struct vb_cq *cq, bool solicited_only);
/* Sets the moderation (cq_moderate.c). A count of 0 or 1, or no time, ends it. -EOPNOTSUPP. */
int vb_cq_moderate(struct vb_cq *cq, uint16_t count, uint16_t microseconds);
/* Starts to gather completions, as the CQ is armed. */
void vb_cq_hold(struct vb_cq *cq);
/* Makes the event of the completions that were gathered, as their time is over. */
void vb_cq_release_held(struct vb_cq *cq);
bool vb_cq_has_entry_at(const struct vb_cq *cq, uint32_t position);
/* Makes an event of an entry that had none, if the CQ is armed. */
void vb_cq_wake_at_once(struct vb_cq *cq);

/* Of a CQ that is late. Is the entry made, and not in memory yet? */
bool vb_cq_is_on_its_way(const struct vb_cq *cq, uint32_t position);
/* Is any? */
bool vb_cq_has_on_its_way(const struct vb_cq *cq);
/* The time at which the next entry to poll is in memory; 0: it is, or there is none. */
uint64_t vb_cq_due(const struct vb_cq *cq);
/* A program has read an event. If what made it is not in memory yet, that makes another one. */
void vb_cq_repeat_event(struct vb_cq *cq);

/* The two steps for a CQ of this process, with all that follows from them. NULL: the entry is lost,
 * since the CQ is in error. */
struct vb_cqe *vb_cq_begin(struct vb_cq *cq);
void vb_cq_end(struct vb_cq *cq, struct vb_cqe *entry, bool solicited);
/* Both steps, for an entry that is ready. */
void vb_cq_complete(struct vb_cq *cq, const struct vb_cqe *entry, bool solicited);
/* Writes the CQ's event to its channel, after vb_cq_consume_arming. */
void vb_cq_wake(const struct vb_view *view, struct vb_cq_shared *cq, uint32_t index, int write_fd);
/* Writes the events for which channels had no room. */
void vb_cq_notice_missed(struct vb_adapter *adapter);
/* Writes an event of a CQ of this process to its channel (vb_host_calls.readable hears of it). */
void vb_cq_write_event(struct vb_cq *cq);
/* Does what follows from an entry that this process has written into its own CQ. */
void vb_cq_after_push(struct vb_cq *cq, unsigned pushed);
/* Does what producers left to the owner: it wakes the channel and raises the overrun's event. */
void vb_cq_notice(struct vb_cq *cq);

/* Voids the QP's entries, as it is being reset or destroyed. */
void vb_cq_forget(struct vb_cq *cq, uint32_t qp_index);
/* Copies payloads that wait in entries to their buffers, so that a READ may follow. */
void vb_cq_place(struct vb_cq *cq);
/* The same for the CQs of all live QPs, before memory is deregistered or unmapped. */
void vb_cqs_place(struct vb_adapter *adapter);
/* Is there an entry for this receive request? Asked after a peer's death. */
bool vb_cq_holds_recv(struct vb_cq *cq, uint32_t qp_index, uint32_t wqe);
/* The two calls above for the receive requests of an XRC SRQ. */
void vb_cq_forget_srq(struct vb_cq *cq, uint32_t srq_index);
bool vb_cq_holds_xrc(struct vb_cq *cq, uint32_t srq_index, uint32_t wqe);
/* Completes what a producer had published that died with the lock, and frees the lock. */
void vb_cq_repair(struct vb_cq *cq, uint32_t dead_holder);

#endif
