// SPDX-License-Identifier: Apache-2.0
/*
 * Both ends of the bounce ring (bounce.h): the requester, which writes a job into its own segment
 * and waits for the answer, and the owner's service thread, which carries the job out.
 */
#include "direct/bounce.h"

#include <errno.h>

#include "direct/atomic.h"
#include "direct/direct.h"
#include "direct/message.h"
#include "direct/place.h"
#include "hca/lock.h"
#include "memory/guard.h"
#include "memory/heap.h"

/* A job to fill: 0, -ENOMEM; -EAGAIN: the owner has not ended the one that was there before. */
static int bounce_take_place(struct vb_direct *direct, struct vb_peer *peer, unsigned index,
                             struct vb_bounce_job **job)
{
    struct vb_bounce_job **place = &peer->bounce.jobs[index];

    if (!*place)
        *place = vb_memory_heap_alloc(direct->adapter->segment, sizeof(**place), VB_LINE);
    *job = *place;
    if (!*job)
        return -ENOMEM;
    return atomic_load_explicit(&(*job)->state, memory_order_acquire) == VB_BOUNCE_SERVED ? -EAGAIN
                                                                                          : 0;
}

static bool change(struct vb_bounce_job *job, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong(&job->state, &from, to);
}

static int bounce_ask(struct vb_direct *direct, struct vb_peer *peer, struct vb_bounce_job *job)
{
    struct vb_message message = {
        .type = VB_MSG_BOUNCE,
        .offset = vb_memory_heap_offset(direct->adapter->segment, job),
    };

    int error;

    if (change(job, VB_BOUNCE_CANCELLED, VB_BOUNCE_ASKED))
        return 0; /* the message of the first time will do */
    atomic_store_explicit(&job->state, VB_BOUNCE_ASKED, memory_order_release);
    error = vb_direct_message_send(peer->socket, &message, NULL, 0, false);
    if (error)
        atomic_store(&job->state, VB_BOUNCE_FREE);
    return error;
}

enum { LONGEST_JOB = 1000 * 1000 * 1000 }; /* ns; a chunk takes less than one of these */

/*
 * ns. An owner that has answered within this time lives, and has only not been given a processor
 * since: a copy that gave up on it would begin again with its first chunk, and might never end.
 */
enum { OWNER_LIVES = 400 * 1000 * 1000 };

static bool is_out_of_patience(const struct vb_peer *peer, uint64_t since, uint64_t now)
{
    return now - since > VB_DIRECT_PATIENCE && now - peer->bounce.answered_at > OWNER_LIVES;
}

/* 0 once the owner has answered; else as vb_direct_bounce_copy. */
static int wait_for(struct vb_peer *peer, struct vb_bounce_job *job)
{
    uint64_t since = vb_direct_now(), now = since;

    for (unsigned round = 0;
         atomic_load_explicit(&job->state, memory_order_acquire) != VB_BOUNCE_DONE;) {
        if (atomic_load(&peer->gone))
            return -EPIPE;
        if (is_out_of_patience(peer, since, now) &&
            change(job, VB_BOUNCE_ASKED, VB_BOUNCE_CANCELLED))
            return -EAGAIN;
        if (now - since > LONGEST_JOB)
            return -ETIMEDOUT;
        vb_backoff(&round);
        now = vb_direct_now();
    }
    atomic_store(&job->state, VB_BOUNCE_FREE);
    peer->bounce.answered_at = now;
    return job->error;
}

struct chunk {
    uint64_t at, length;
};

static int bounce_begin(struct vb_direct *direct, struct vb_peer *peer, unsigned index,
                        enum vb_bounce_op op, uint64_t addr, const uint8_t *local,
                        struct chunk chunk)
{
    struct vb_bounce_job *job;
    int error = bounce_take_place(direct, peer, index, &job);

    if (error)
        return error;
    job->op = op;
    job->addr = addr + chunk.at;
    job->length = chunk.length;
    if (op == VB_BOUNCE_WRITE && vb_memory_guarded_read(job->data, local + chunk.at, chunk.length))
        return -EFAULT;
    return bounce_ask(direct, peer, job);
}

static int bounce_finish(struct vb_peer *peer, struct vb_bounce_job *job, enum vb_bounce_op op,
                         uint8_t *local, struct chunk chunk)
{
    int error = wait_for(peer, job);

    if (!error && op == VB_BOUNCE_READ)
        error = vb_memory_guarded_write(local + chunk.at, job->data, chunk.length);
    return error;
}

static struct chunk chunk_at(uint64_t index, uint64_t length)
{
    uint64_t at = index * VB_BOUNCE_CHUNK;

    return (struct chunk){at, length - at < VB_BOUNCE_CHUNK ? length - at : VB_BOUNCE_CHUNK};
}

static int copy_chunks(struct vb_direct *direct, struct vb_peer *peer, enum vb_bounce_op op,
                       uint64_t addr, uint8_t *local, uint64_t length)
{
    uint64_t count = (length + VB_BOUNCE_CHUNK - 1) / VB_BOUNCE_CHUNK, begun = 0, done = 0;
    int error = 0;

    while (done < begun || (!error && begun < count)) {
        if (!error && begun < count && begun - done < VB_BOUNCE_JOBS) {
            error = bounce_begin(direct, peer, begun % VB_BOUNCE_JOBS, op, addr, local,
                                 chunk_at(begun, length));
            begun += !error;
            continue;
        }
        unsigned index = done % VB_BOUNCE_JOBS;
        int failed =
            bounce_finish(peer, peer->bounce.jobs[index], op, local, chunk_at(done, length));

        error = error ? error : failed;
        ++done;
    }
    return error;
}

int vb_direct_bounce_copy(struct vb_direct *direct, struct vb_peer *peer, enum vb_bounce_op op,
                          uint64_t addr, uint8_t *local, uint64_t length)
{
    int error;

    vb_lock_take(&peer->bounce_mutex);
    error = copy_chunks(direct, peer, op, addr, local, length);
    vb_lock_release(&peer->bounce_mutex);
    return error;
}

static int ask_and_wait(struct vb_direct *direct, struct vb_peer *peer, struct vb_bounce_job *job)
{
    int error = bounce_ask(direct, peer, job);

    return error ? error : wait_for(peer, job);
}

/* Busy: another atomic is under way there, or its process died with the lock and is being buried.
 */
static int ask_while_busy(struct vb_direct *direct, struct vb_peer *peer, struct vb_bounce_job *job)
{
    uint64_t until = vb_direct_now() + LONGEST_JOB;
    int error;

    do
        error = ask_and_wait(direct, peer, job);
    while (error == -EBUSY && vb_direct_now() < until);
    return error == -EBUSY ? -EAGAIN : error;
}

int vb_direct_bounce_atomic(struct vb_direct *direct, struct vb_peer *peer, enum vb_atomic_op op,
                            uint64_t addr, uint64_t compare_add, uint64_t swap, uint64_t *result)
{
    struct vb_bounce_job *job;
    int error;

    vb_lock_take(&peer->bounce_mutex);
    error = bounce_take_place(direct, peer, 0, &job);
    if (!error) {
        job->op = VB_BOUNCE_ATOMIC;
        job->atomic = op;
        job->addr = addr;
        job->length = 8;
        job->compare_add = compare_add;
        job->swap = swap;
        error = ask_while_busy(direct, peer, job);
        *result = job->result;
    }
    vb_lock_release(&peer->bounce_mutex);
    return error;
}

/* The requester may write to its job at any time: what was checked is not read again. */
static int bounce_carry_out(struct vb_direct *direct, struct vb_bounce_job *job)
{
    uint64_t addr = __atomic_load_n(&job->addr, __ATOMIC_RELAXED), result = 0;
    uint64_t length = __atomic_load_n(&job->length, __ATOMIC_RELAXED);
    void *here = (void *)(uintptr_t)addr;
    int error;

    if (length > VB_BOUNCE_CHUNK)
        return -EINVAL;
    switch (__atomic_load_n(&job->op, __ATOMIC_RELAXED)) {
    case VB_BOUNCE_WRITE:
        return vb_memory_guarded_write(here, job->data, length);
    case VB_BOUNCE_READ:
        return vb_memory_guarded_read(job->data, here, length);
    default:
        if (addr % sizeof(uint64_t))
            return -EINVAL;
        error =
            vb_direct_atomic_own(direct, here, job->atomic, job->compare_add, job->swap, &result);
        job->result = result;
        return error;
    }
}

/* The requester may cancel and ask again at any instant; whatever it is at, one of these fits. */
static bool bounce_take(struct vb_bounce_job *job)
{
    for (;;) {
        if (change(job, VB_BOUNCE_ASKED, VB_BOUNCE_SERVED))
            return true;
        if (change(job, VB_BOUNCE_CANCELLED, VB_BOUNCE_FREE))
            return false;
        if (atomic_load(&job->state) != VB_BOUNCE_ASKED &&
            atomic_load(&job->state) != VB_BOUNCE_CANCELLED)
            return false; /* no state in which a job is offered */
    }
}

void vb_direct_bounce_serve(struct vb_direct *direct, struct vb_peer *requester, uint64_t offset)
{
    struct vb_bounce_job *job;

    if (offset % VB_LINE || offset > requester->view.size ||
        requester->view.size - offset < sizeof(*job))
        return;
    job = vb_at(&requester->view, offset, sizeof(*job));
    vb_lock_take(&direct->serve_mutex);
    if (bounce_take(job)) {
        job->error = bounce_carry_out(direct, job);
        atomic_store_explicit(&job->state, VB_BOUNCE_DONE, memory_order_release);
    }
    vb_lock_release(&direct->serve_mutex);
}

void vb_direct_bounce_settle(struct vb_direct *direct)
{
    vb_lock_take(&direct->serve_mutex);
    vb_lock_release(&direct->serve_mutex);
}

void vb_direct_bounce_free(struct vb_direct *direct, struct vb_bounce *bounce)
{
    for (int i = 0; i < VB_BOUNCE_JOBS; ++i)
        vb_memory_heap_free(direct->adapter->segment, bounce->jobs[i]);
}
