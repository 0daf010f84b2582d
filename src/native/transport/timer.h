// SPDX-License-Identifier: Apache-2.0
/*
 * The timers of many connections. A connection's timer is set anew with each acknowledgement, so a
 * later deadline is only noted: the heap is ordered by an earlier key, and is corrected when that
 * key comes first. So setting a timer costs a comparison. The heap gets its memory when a timer
 * joins.
 */
#ifndef VB_TRANSPORT_TIMER_H
#define VB_TRANSPORT_TIMER_H

#include <stdint.h>

#define VB_NEVER UINT64_MAX

struct vb_timer {
    uint64_t due;   /* VB_NEVER: not set */
    uint64_t key;   /* the heap's order; not later than `due` while the timer is in the heap */
    uint32_t index; /* the place in the heap + 1; 0: it is not in the heap */
    uint32_t kind;  /* for the owner to tell its timers apart */
};

struct vb_timers {
    struct vb_timer **heap;
    uint32_t count; /* timers in the heap */
    uint32_t room;
    uint32_t members;
};

void vb_engine_timers_free(struct vb_timers *timers);
/* The timer may be set from now on. -ENOMEM. */
int vb_engine_timer_join(struct vb_timers *timers, struct vb_timer *timer, uint32_t kind);
void vb_engine_timer_leave(struct vb_timers *timers, struct vb_timer *timer);

/* For vb_engine_timer_set: the timer goes into the heap, or forward in it. */
void vb_engine_timer_enter(struct vb_timers *timers, struct vb_timer *timer);

/* `due` may be VB_NEVER. */
static inline void vb_engine_timer_set(struct vb_timers *timers, struct vb_timer *timer,
                                       uint64_t due)
{
    timer->due = due;
    if (due != VB_NEVER && (!timer->index || due < timer->key))
        vb_engine_timer_enter(timers, timer);
}

/* The first deadline, or an earlier time at which the heap has to be corrected. */
static inline uint64_t vb_engine_timers_next(const struct vb_timers *timers)
{
    return timers->count ? timers->heap[0]->key : VB_NEVER;
}

/* Returns one timer that is due and unsets it; NULL: none is due. */
struct vb_timer *vb_engine_timers_expire(struct vb_timers *timers, uint64_t now);

#endif
