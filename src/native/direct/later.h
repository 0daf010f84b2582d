// SPDX-License-Identifier: Apache-2.0
/*
 * The timer of moderated CQs (hca/cq_moderate.c): when the period of one is over, the completions
 * that it has gathered raise their event. The service thread watches the timer.
 */
#ifndef VB_DIRECT_LATER_H
#define VB_DIRECT_LATER_H

#include <pthread.h>
#include <stdint.h>

#include "lock/mutex.h"

struct vb_cq;
struct vb_direct;

struct vb_later {
    struct vb_mutex mutex;
    int timer_fd; /* expires at the earliest of `first` */
    struct vb_due *first;
};

/* -errno. The descriptor is the service thread's to watch. */
int vb_direct_later_open(struct vb_later *later);
void vb_direct_later_close(struct vb_later *later);
void vb_direct_later_abandon(struct vb_later *later);

/* vb_host_calls.release_later */
int vb_direct_later_release(struct vb_cq *cq, uint32_t microseconds);
/* The timer has expired. */
void vb_direct_later_expire(struct vb_direct *direct);

#endif
