// SPDX-License-Identifier: Apache-2.0
/* The timer of moderated completion queues (later.h), which the service thread watches. */
#include "direct/later.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "direct/direct.h"
#include "hca/cq.h"
#include "memory/descriptor.h"

/* One for each CQ. It names the CQ rather than points to it, so a CQ may go at any time. */
struct vb_due {
    struct vb_due *next;
    uint64_t at; /* ns */
    uint32_t cq;
    uint32_t generation;
};

int vb_direct_later_open(struct vb_later *later)
{
    later->first = NULL;
    vb_lock_init(&later->mutex, VB_RANK_LATER);
    later->timer_fd =
        vb_memory_descriptor_raise(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    return later->timer_fd < 0 ? -errno : 0;
}

void vb_direct_later_abandon(struct vb_later *later)
{
    close(later->timer_fd);
}

void vb_direct_later_close(struct vb_later *later)
{
    while (later->first) {
        struct vb_due *due = later->first;

        later->first = due->next;
        free(due);
    }
    close(later->timer_fd);
    vb_lock_destroy(&later->mutex);
}

/* Under the mutex, as are the next two. */
static void later_set_timer(const struct vb_later *later)
{
    struct itimerspec when = {0};
    uint64_t at = UINT64_MAX;

    for (const struct vb_due *due = later->first; due; due = due->next)
        if (due->at < at)
            at = due->at;
    if (later->first) {
        when.it_value.tv_sec = (time_t)(at / 1000000000);
        when.it_value.tv_nsec = (long)(at % 1000000000);
    }
    timerfd_settime(later->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* A CQ that was armed again before its time: the old time is kept, and found too early then. */
static struct vb_due *later_find(const struct vb_later *later, const struct vb_cq *cq)
{
    struct vb_due *due = later->first;

    while (due && (due->cq != cq->index || due->generation != cq->generation))
        due = due->next;
    return due;
}

static int later_add(struct vb_later *later, const struct vb_cq *cq, uint64_t at)
{
    struct vb_due *due = malloc(sizeof(*due));

    if (!due)
        return -ENOMEM;
    *due = (struct vb_due){later->first, at, cq->index, cq->generation};
    later->first = due;
    later_set_timer(later);
    return 0;
}

int vb_direct_later_release(struct vb_cq *cq, uint32_t microseconds)
{
    struct vb_later *later = &vb_direct_of(cq->context->adapter)->later;
    uint64_t at = vb_direct_now() + (uint64_t)microseconds * 1000;
    struct vb_due *due;
    int error = 0;

    vb_lock_take(&later->mutex);
    due = later_find(later, cq);
    if (!due)
        error = later_add(later, cq, at);
    else
        due->at = at; /* what the timer is set for comes no later than a whole period */
    vb_lock_release(&later->mutex);
    return error;
}

static struct vb_due *later_take_due(struct vb_later *later, uint64_t now)
{
    for (struct vb_due **at = &later->first; *at; at = &(*at)->next)
        if ((*at)->at <= now) {
            struct vb_due *due = *at;

            *at = due->next;
            return due;
        }
    return NULL;
}

static void later_release(struct vb_adapter *adapter, const struct vb_due *due)
{
    struct vb_cq *cq;

    vb_lock_take(&adapter->mutex);
    cq = adapter->cqs[due->cq];
    if (cq && cq->generation == due->generation && cq->channel)
        vb_cq_release_held(cq);
    vb_lock_release(&adapter->mutex);
}

void vb_direct_later_expire(struct vb_direct *direct)
{
    struct vb_later *later = &direct->later;
    uint64_t now = vb_direct_now(), count;
    struct vb_due *due;

    eventfd_read(later->timer_fd, &count); /* a timer's is read in the same way */
    vb_lock_take(&later->mutex);
    while ((due = later_take_due(later, now))) {
        vb_lock_release(&later->mutex);
        later_release(direct->adapter, due);
        free(due);
        vb_lock_take(&later->mutex);
    }
    later_set_timer(later);
    vb_lock_release(&later->mutex);
}
