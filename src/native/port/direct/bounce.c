// SPDX-License-Identifier: Apache-2.0
#include "port/direct/bounce.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "hca/lock.h"
#include "memory/heap.h"
#include "port/direct/atomic.h"
#include "port/direct/direct.h"
#include "port/direct/message.h"
#include "port/direct/place.h"

static struct vb_bounce_job *job_at(struct vb_direct *direct, struct vb_peer *peer, unsigned index)
{
    struct vb_bounce_job **job = &peer->bounce.jobs[index];

    if (!*job)
        *job = vb_heap_alloc(direct->adapter.segment, sizeof(**job), VB_LINE);
    return *job;
}

static int ask(struct vb_direct *direct, struct vb_peer *peer, struct vb_bounce_job *job)
{
    struct vb_message message = {
        .type = VB_MSG_BOUNCE,
        .offset = vb_heap_offset(direct->adapter.segment, job),
    };

    atomic_store_explicit(&job->state, VB_BOUNCE_ASKED, memory_order_release);
    return vb_message_send(peer->socket, &message, NULL, 0, true);
}

/* 0 once the owner has answered; its error, or -EPIPE when it died. */
static int wait_for(struct vb_peer *peer, struct vb_bounce_job *job)
{
    for (unsigned round = 0;
         atomic_load_explicit(&job->state, memory_order_acquire) == VB_BOUNCE_ASKED;) {
        if (atomic_load(&peer->gone))
            return -EPIPE;
        vb_backoff(&round);
    }
    atomic_store(&job->state, VB_BOUNCE_FREE);
    return job->error;
}

struct chunk {
    uint64_t at, length;
};

static int begin(struct vb_direct *direct, struct vb_peer *peer, struct vb_bounce_job *job,
                 enum vb_bounce_op op, uint64_t addr, const uint8_t *local, struct chunk chunk)
{
    job->op = op;
    job->addr = addr + chunk.at;
    job->length = chunk.length;
    if (op == VB_BOUNCE_WRITE)
        memcpy(job->data, local + chunk.at, chunk.length);
    return ask(direct, peer, job);
}

static int finish(struct vb_peer *peer, struct vb_bounce_job *job, enum vb_bounce_op op,
                  uint8_t *local, struct chunk chunk)
{
    int error = wait_for(peer, job);

    if (!error && op == VB_BOUNCE_READ)
        memcpy(local + chunk.at, job->data, chunk.length);
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
            struct vb_bounce_job *job = job_at(direct, peer, begun % VB_BOUNCE_JOBS);
            error =
                job ? begin(direct, peer, job, op, addr, local, chunk_at(begun, length)) : -ENOMEM;
            begun += !error;
            continue;
        }
        int failed = finish(peer, peer->bounce.jobs[done % VB_BOUNCE_JOBS], op, local,
                            chunk_at(done, length));
        error = error ? error : failed;
        ++done;
    }
    return error;
}

int vb_bounce_copy(struct vb_direct *direct, struct vb_peer *peer, enum vb_bounce_op op,
                   uint64_t addr, uint8_t *local, uint64_t length)
{
    int error;

    pthread_mutex_lock(&peer->bounce_mutex);
    error = copy_chunks(direct, peer, op, addr, local, length);
    pthread_mutex_unlock(&peer->bounce_mutex);
    return error;
}

static int ask_and_wait(struct vb_direct *direct, struct vb_peer *peer, struct vb_bounce_job *job)
{
    int error = ask(direct, peer, job);

    return error ? error : wait_for(peer, job);
}

int vb_bounce_atomic(struct vb_direct *direct, struct vb_peer *peer, enum vb_bounce_op op,
                     uint64_t addr, uint64_t compare_add, uint64_t swap, uint64_t *result)
{
    struct vb_bounce_job *job;
    int error = -ENOMEM;

    pthread_mutex_lock(&peer->bounce_mutex);
    job = job_at(direct, peer, 0);
    if (job) {
        job->op = op;
        job->addr = addr;
        job->length = 8;
        job->compare_add = compare_add;
        job->swap = swap;
        do
            error = ask_and_wait(direct, peer, job);
        while (error == -EAGAIN);
        *result = job->result;
    }
    pthread_mutex_unlock(&peer->bounce_mutex);
    return error;
}

static int carry_out(struct vb_direct *direct, struct vb_bounce_job *job)
{
    void *here = (void *)(uintptr_t)job->addr;

    switch (job->op) {
    case VB_BOUNCE_WRITE:
        return vb_copy_own(here, job->data, job->length);
    case VB_BOUNCE_READ:
        return vb_copy_own(job->data, here, job->length);
    default:
        return vb_atomic_own(direct, here, job->op == VB_BOUNCE_SWAP, job->compare_add, job->swap,
                             &job->result);
    }
}

void vb_bounce_serve(struct vb_direct *direct, struct vb_peer *requester, uint64_t offset)
{
    struct vb_bounce_job *job;

    if (offset > requester->view.size || requester->view.size - offset < sizeof(*job))
        return;
    job = vb_at(&requester->view, offset);
    job->error = job->length <= VB_BOUNCE_CHUNK ? carry_out(direct, job) : -EINVAL;
    atomic_store_explicit(&job->state, VB_BOUNCE_DONE, memory_order_release);
}

void vb_bounce_free(struct vb_direct *direct, struct vb_bounce *bounce)
{
    for (int i = 0; i < VB_BOUNCE_JOBS; ++i)
        vb_heap_free(direct->adapter.segment, bounce->jobs[i]);
}
