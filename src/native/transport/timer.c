// SPDX-License-Identifier: Apache-2.0
/*
 * A binary heap of timers, by key. A timer that was set later than its key is moved when the key
 * comes first, and one that was unset is taken out then.
 */
#include "transport/timer.h"

#include <errno.h>
#include <stdlib.h>

void vb_engine_timers_free(struct vb_timers *timers)
{
    free(timers->heap);
}

int vb_engine_timer_join(struct vb_timers *timers, struct vb_timer *timer, uint32_t kind)
{
    if (timers->members == timers->room) {
        uint32_t room = timers->room ? 2 * timers->room : 16;
        struct vb_timer **grown = realloc(timers->heap, room * sizeof(*grown));

        if (!grown)
            return -ENOMEM;
        timers->heap = grown;
        timers->room = room;
    }
    ++timers->members;
    *timer = (struct vb_timer){.due = VB_NEVER, .key = VB_NEVER, .kind = kind};
    return 0;
}

static void timer_put(struct vb_timers *timers, uint32_t at, struct vb_timer *timer)
{
    timers->heap[at] = timer;
    timer->index = at + 1;
}

static void timer_sift_up(struct vb_timers *timers, uint32_t at, struct vb_timer *timer)
{
    while (at && timers->heap[(at - 1) / 2]->key > timer->key) {
        timer_put(timers, at, timers->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    timer_put(timers, at, timer);
}

static void timer_sift_down(struct vb_timers *timers, uint32_t at, struct vb_timer *timer)
{
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < timers->count && timers->heap[child + 1]->key < timers->heap[child]->key)
            ++child;
        if (child >= timers->count || timers->heap[child]->key >= timer->key)
            break;
        timer_put(timers, at, timers->heap[child]);
        at = child;
    }
    timer_put(timers, at, timer);
}

void vb_engine_timer_enter(struct vb_timers *timers, struct vb_timer *timer)
{
    timer->key = timer->due;
    timer_sift_up(timers, timer->index ? timer->index - 1 : timers->count++, timer);
}

static void timer_take_out(struct vb_timers *timers, struct vb_timer *timer)
{
    uint32_t at = timer->index - 1;
    struct vb_timer *last = timers->heap[--timers->count];

    timer->index = 0;
    if (last == timer)
        return;
    if (at && timers->heap[(at - 1) / 2]->key > last->key)
        timer_sift_up(timers, at, last);
    else
        timer_sift_down(timers, at, last);
}

void vb_engine_timer_leave(struct vb_timers *timers, struct vb_timer *timer)
{
    if (timer->index)
        timer_take_out(timers, timer);
    --timers->members;
}

struct vb_timer *vb_engine_timers_expire(struct vb_timers *timers, uint64_t now)
{
    while (timers->count && timers->heap[0]->key <= now) {
        struct vb_timer *first = timers->heap[0];

        if (first->due == VB_NEVER) {
            timer_take_out(timers, first);
        } else if (first->due > first->key) {
            first->key = first->due;
            timer_sift_down(timers, 0, first);
        } else {
            timer_take_out(timers, first);
            first->due = VB_NEVER;
            return first;
        }
    }
    return NULL;
}
