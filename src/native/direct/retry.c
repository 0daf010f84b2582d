// SPDX-License-Identifier: Apache-2.0
/*
 * The retry thread, and the list of queue pairs that it serves (retry.h). `mutex` protects the
 * list; the thread releases it while it serves a queue pair.
 */
#include "direct/retry.h"

#include <time.h>

#include "direct/connection.h"
#include "direct/recover.h"
#include "hca/qp.h"
#include "hca/vigil.h"
#include "memory/guard.h"

/* Under the mutex. */
static void retry_set_first(struct vb_retry *retry, struct vb_qp *qp)
{
    retry->first = qp;
    atomic_store_explicit(&retry->any, qp != NULL, memory_order_relaxed);
}

void vb_direct_retry_attend(struct vb_direct *direct, struct vb_qp *qp)
{
    struct vb_retry *retry = &direct->retry;

    if (atomic_exchange(&qp->verbs->attended, true))
        return;
    vb_lock_take(&retry->mutex);
    qp->verbs->attend_next = retry->first;
    retry_set_first(retry, qp);
    if (retry->idle || atomic_load_explicit(&retry->hurried, memory_order_relaxed))
        pthread_cond_signal(&retry->work);
    vb_lock_release(&retry->mutex);
}

void vb_direct_retry_hurry(struct vb_direct *direct)
{
    atomic_store_explicit(&direct->retry.hurried, true, memory_order_relaxed);
}

static void unlink_qp(struct vb_retry *retry, const struct vb_qp *qp)
{
    for (struct vb_qp **at = &retry->first; *at; at = &(*at)->verbs->attend_next)
        if (*at == qp) {
            *at = qp->verbs->attend_next;
            retry_set_first(retry, retry->first);
            return;
        }
}

void vb_direct_retry_leave(struct vb_direct *direct, struct vb_qp *qp)
{
    struct vb_retry *retry = &direct->retry;

    vb_lock_take(&retry->mutex);
    while (retry->current == qp)
        vb_lock_wait(&retry->left, &retry->mutex);
    unlink_qp(retry, qp);
    atomic_store(&qp->verbs->attended, false);
    vb_lock_release(&retry->mutex);
}

unsigned vb_direct_retry_waiting(struct vb_direct *direct, const struct vb_cq *cq,
                                 struct vb_qp **qps, unsigned room)
{
    struct vb_retry *retry = &direct->retry;
    unsigned count = 0;

    vb_lock_take(&retry->mutex);
    for (struct vb_qp *qp = retry->first; qp && count < room; qp = qp->verbs->attend_next)
        if (qp->send_cq == cq)
            qps[count++] = qp;
    vb_lock_release(&retry->mutex);
    return count;
}

/* The program polls, and each poll tries what waits: this thread would only be in its way. */
static bool retry_is_polled(struct vb_qp *qp)
{
    uint32_t rounds = qp->send_cq ? atomic_load(&qp->send_cq->rounds) : 0; /* XRC target: none */
    bool moved = rounds != qp->verbs->rounds_seen;
    const struct vb_peer *peer = vb_direct_connection_peer(qp);

    qp->verbs->rounds_seen = rounds;
    return moved && vb_qp_state(qp) != IBV_QPS_ERR && !(peer && atomic_load(&peer->gone));
}

/* True when the QP needs to be looked at again. */
static bool retry_serve(struct vb_direct *direct, struct vb_qp *qp)
{
    if (!vb_direct_connection_attach_peer(qp) || retry_is_polled(qp))
        return true;
    if (!vb_direct_recover_qp(direct, qp) || !vb_qp_try_flush(qp))
        return true;
    return qp->counted_waiting;
}

/* Serves the first `count` QPs of the list; those that need it again stay, at the end. */
static void serve_round(struct vb_direct *direct, unsigned count)
{
    struct vb_retry *retry = &direct->retry;

    while (count-- && retry->first) {
        struct vb_qp *qp = retry->first, **end;
        bool again;

        retry_set_first(retry, qp->verbs->attend_next);
        retry->current = qp;
        atomic_store(&qp->verbs->attended, false);
        vb_lock_release(&retry->mutex);
        again = retry_serve(direct, qp);
        vb_lock_take(&retry->mutex);
        retry->current = NULL;
        if (again && !atomic_exchange(&qp->verbs->attended, true)) {
            for (end = &retry->first; *end; end = &(*end)->verbs->attend_next)
                ;
            qp->verbs->attend_next = NULL;
            *end = qp;
            retry_set_first(retry, retry->first);
        }
        pthread_cond_broadcast(&retry->left);
    }
}

static unsigned length(const struct vb_retry *retry)
{
    unsigned n = 0;

    for (const struct vb_qp *qp = retry->first; qp; qp = qp->verbs->attend_next)
        ++n;
    return n;
}

enum { HURRIED_PAUSE_US = 50, FIRST_PAUSE_US = 1000, LONGEST_PAUSE_US = 16000, LOOK_US = 500000 };

static void pause_us(struct vb_retry *retry, long us)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += us * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        ++until.tv_sec;
    }
    vb_lock_wait_until(&retry->work, &retry->mutex, &until);
}

void vb_direct_retry_look(struct vb_adapter *adapter)
{
    struct vb_retry *retry = &vb_direct_of(adapter)->retry;

    vb_lock_take(&retry->mutex);
    retry->looks = true;
    if (retry->idle)
        pthread_cond_signal(&retry->work);
    vb_lock_release(&retry->mutex);
}

/* Under the mutex, which is free meanwhile. */
static void retry_look(struct vb_direct *direct)
{
    struct vb_retry *retry = &direct->retry;
    bool again;

    if (!retry->looks)
        return;
    retry->looks = false;
    vb_lock_release(&retry->mutex);
    again = vb_vigils_look(direct->adapter, vb_direct_now());
    vb_lock_take(&retry->mutex);
    retry->looks |= again;
}

/* Nothing waits in a queue; a call of the program's may, and is looked after now and then. */
static void be_idle(struct vb_direct *direct)
{
    struct vb_retry *retry = &direct->retry;

    retry_look(direct);
    if (retry->first || retry->stopping) /* came meanwhile */
        return;
    retry->idle = true;
    if (retry->looks)
        pause_us(retry, LOOK_US);
    else
        vb_lock_wait(&retry->work, &retry->mutex);
    retry->idle = false;
}

static void *retry_run(void *argument)
{
    struct vb_direct *direct = argument;
    struct vb_retry *retry = &direct->retry;
    long pause = FIRST_PAUSE_US;

    vb_lock_take(&retry->mutex);
    while (!retry->stopping) {
        struct vb_qp *newest = retry->first;

        if (!newest) {
            pause = FIRST_PAUSE_US;
            be_idle(direct);
            continue;
        }
        serve_round(direct, length(retry));
        if (!retry->first || retry->stopping)
            continue;
        /* What waits for long is looked at less and less often. */
        retry_look(direct);
        newest = retry->first;
        if (atomic_exchange_explicit(&retry->hurried, false, memory_order_relaxed))
            pause = HURRIED_PAUSE_US;
        pause_us(retry, pause);
        if (retry->first != newest)
            pause = FIRST_PAUSE_US;
        else if (pause < LONGEST_PAUSE_US)
            pause *= 2;
    }
    vb_lock_release(&retry->mutex);
    return NULL;
}

int vb_direct_retry_start(struct vb_direct *direct)
{
    struct vb_retry *retry = &direct->retry;
    pthread_condattr_t monotonic;

    vb_lock_init(&retry->mutex, VB_RANK_RETRY);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&retry->work, &monotonic);
    pthread_cond_init(&retry->left, NULL);
    pthread_condattr_destroy(&monotonic);
    return vb_memory_guarded_thread(&retry->thread, retry_run, direct);
}

void vb_direct_retry_stop(struct vb_direct *direct)
{
    struct vb_retry *retry = &direct->retry;

    vb_lock_take(&retry->mutex);
    retry->stopping = true;
    pthread_cond_signal(&retry->work);
    vb_lock_release(&retry->mutex);
    pthread_join(retry->thread, NULL);
    pthread_cond_destroy(&retry->work);
    pthread_cond_destroy(&retry->left);
    vb_lock_destroy(&retry->mutex);
}
