// SPDX-License-Identifier: Apache-2.0
/*
 * Copies and atomics through a peer's help (direct/bounce.h), where the test plays the peer: each
 * state of a job that the owner may find, each answer that the requester may get, none at all, and
 * lengths about those of a chunk.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "direct/bounce.h"
#include "direct/direct.h"
#include "direct/message.h"
#include "direct/peer.h"
#include "end.h"
#include "memory/heap.h"

enum { CHUNK = VB_BOUNCE_CHUNK, FAR_BYTES = 9 * CHUNK + 4096, EDGE = 64 };

static struct end end;
static struct vb_peer peer; /* its segment is this process's own */
static int far_socket;
static uint8_t *far, *near;

static struct vb_heap *segment(void)
{
    return end.direct->adapter->segment;
}

static void begin(void)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS, protection = PROT_READ | PROT_WRITE;
    int ends[2];

    end_open(&end, (struct end_options){0});
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    memset(&peer, 0, sizeof(peer));
    peer.view = end.direct->adapter->self;
    peer.socket = ends[0];
    far_socket = ends[1];
    vb_lock_init(&peer.mutex, VB_RANK_PEER);
    vb_lock_init(&peer.bounce_mutex, VB_RANK_BOUNCE);
    far = mmap(NULL, FAR_BYTES, protection, flags, -1, 0);
    near = mmap(NULL, FAR_BYTES, protection, flags, -1, 0);
    CHECK(far != MAP_FAILED && near != MAP_FAILED);
}

static void finish(void)
{
    vb_direct_bounce_free(end.direct, &peer.bounce);
    munmap(far, FAR_BYTES);
    munmap(near, FAR_BYTES);
    close(peer.socket);
    if (far_socket >= 0)
        close(far_socket);
    vb_lock_destroy(&peer.mutex);
    vb_lock_destroy(&peer.bounce_mutex);
    end_close(&end);
}

/* ---- the owner ------------------------------------------------------------------------------- */

static struct vb_bounce_job *new_job(uint64_t *offset)
{
    struct vb_bounce_job *job = vb_memory_heap_alloc(segment(), sizeof(*job), VB_LINE);

    CHECK(job != NULL);
    *offset = vb_memory_heap_offset(segment(), job);
    return job;
}

/* One that is not asked for is not carried out, whatever state it is in. */
static void only_what_is_asked_for_is_carried_out(void)
{
    struct vb_bounce_job *job;
    uint64_t offset;

    begin();
    job = new_job(&offset);
    for (uint32_t state = VB_BOUNCE_FREE; state <= VB_BOUNCE_CANCELLED + 2; ++state) {
        bool is_asked = state == VB_BOUNCE_ASKED;
        uint32_t left = state == VB_BOUNCE_CANCELLED ? VB_BOUNCE_FREE : state;

        job->op = VB_BOUNCE_WRITE;
        job->addr = (uintptr_t)far;
        job->length = 100;
        job->error = 77;
        memset(job->data, 0x5a, 200);
        memset(far, 0, 200);
        atomic_store(&job->state, state);
        vb_direct_bounce_serve(end.direct, &peer, offset);
        CHECK_EQ(atomic_load(&job->state), is_asked ? VB_BOUNCE_DONE : left);
        CHECK_EQ(job->error, is_asked ? 0 : 77);
        CHECK_EQ(far[0], is_asked ? 0x5a : 0);
        CHECK_EQ(far[99], is_asked ? 0x5a : 0);
        CHECK_EQ(far[100], 0);
    }
    vb_memory_heap_free(segment(), job);
    finish();
}

static int served(struct vb_bounce_job *job, uint64_t offset)
{
    job->error = 77;
    atomic_store(&job->state, VB_BOUNCE_ASKED);
    vb_direct_bounce_serve(end.direct, &peer, offset);
    CHECK_EQ(atomic_load(&job->state), VB_BOUNCE_DONE);
    return job->error;
}

static void each_operation_is_carried_out(void)
{
    uint64_t *word, offset;
    struct vb_bounce_job *job;

    begin();
    job = new_job(&offset);
    word = (uint64_t *)(void *)far;
    job->addr = (uintptr_t)far;
    memset(far, 7, CHUNK + 1);
    job->op = VB_BOUNCE_READ;
    job->length = CHUNK;
    CHECK_EQ(served(job, offset), 0);
    CHECK_EQ(job->data[0], 7);
    CHECK_EQ(job->data[CHUNK - 1], 7);
    job->length = CHUNK + 1; /* no requester wrote this */
    CHECK_EQ(served(job, offset), -EINVAL);
    job->op = VB_BOUNCE_WRITE;
    CHECK_EQ(served(job, offset), -EINVAL);
    job->length = 8;
    job->op = VB_BOUNCE_ATOMIC;
    job->atomic = VB_ATOMIC_ADD;
    *word = 40;
    job->compare_add = 2;
    CHECK_EQ(served(job, offset), 0);
    CHECK_EQ(*word, 42);
    CHECK_EQ(job->result, 40);
    job->atomic = VB_ATOMIC_SWAP;
    job->compare_add = 41;
    job->swap = 5;
    CHECK_EQ(served(job, offset), 0);
    CHECK_EQ(*word, 42);
    CHECK_EQ(job->result, 42);
    job->compare_add = 42;
    CHECK_EQ(served(job, offset), 0);
    CHECK_EQ(*word, 5);
    for (uint64_t displaced = 1; displaced < 8; ++displaced) {
        job->addr = (uintptr_t)far + displaced;
        CHECK_EQ(served(job, offset), -EINVAL);
    }
    CHECK_EQ(mprotect(far, 4096, PROT_NONE), 0);
    job->addr = (uintptr_t)far;
    for (uint32_t op = VB_BOUNCE_WRITE; op <= VB_BOUNCE_ATOMIC; ++op) {
        job->op = op;
        CHECK_EQ(served(job, offset), -EFAULT);
    }
    vb_memory_heap_free(segment(), job);
    finish();
}

/* A job lies in the requester's segment, whole and on a line. */
static void no_job_is_looked_for_elsewhere(void)
{
    static _Alignas(VB_LINE) uint8_t bytes[sizeof(struct vb_bounce_job) + 2 * VB_LINE];
    struct vb_bounce_job *job = (struct vb_bounce_job *)(void *)(bytes + VB_LINE);
    static const struct {
        uint64_t offset, size;
        bool is_job;
    } cases[] = {
        {VB_LINE, VB_LINE + sizeof(*job), true},
        {VB_LINE, VB_LINE + sizeof(*job) - 1, false},
        {VB_LINE, sizeof(bytes), true},
        {VB_LINE, VB_LINE, false},
        {VB_LINE, 0, false},
        {VB_LINE + 8, sizeof(bytes), false},
        {VB_LINE - 1, sizeof(bytes), false},
        {-(uint64_t)VB_LINE, sizeof(bytes), false},
    };

    begin();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        peer.view.base = bytes;
        peer.view.size = cases[i].size;
        memset(bytes, 0, sizeof(bytes));
        job->op = VB_BOUNCE_READ;
        job->addr = (uintptr_t)far;
        job->length = 8;
        atomic_store(&job->state, VB_BOUNCE_ASKED);
        vb_direct_bounce_serve(end.direct, &peer, cases[i].offset);
        CHECK_EQ(atomic_load(&job->state), cases[i].is_job ? VB_BOUNCE_DONE : VB_BOUNCE_ASKED);
    }
    finish();
}

/* ---- the requester --------------------------------------------------------------------------- */

/* What the played owner does with its messages. */
static struct {
    int serves;      /* so many jobs as they are; then */
    int answers[64]; /* these errors, one for each job, */
    int answer_count;
    bool takes;    /* and then it takes one and does not end it, or does not look at it */
    bool by_chunk; /* the place of the job in the copy counts, and not the number of jobs */
    int delay_ms;  /* between taking it and answering it */
    atomic_int messages;
    uint64_t longest; /* of the jobs */
} owner;

/* As the real one: a job that was taken back meanwhile is free. */
static bool owner_takes(struct vb_bounce_job *job)
{
    uint32_t asked = VB_BOUNCE_ASKED, cancelled = VB_BOUNCE_CANCELLED;

    if (atomic_compare_exchange_strong(&job->state, &asked, VB_BOUNCE_SERVED))
        return true;
    atomic_compare_exchange_strong(&job->state, &cancelled, VB_BOUNCE_FREE);
    atomic_fetch_sub(&owner.messages, 1);
    return false;
}

static void play_owner(struct vb_bounce_job *job, uint64_t offset)
{
    int nth = atomic_fetch_add(&owner.messages, 1);

    if (owner.by_chunk)
        nth = (int)((job->addr - (uintptr_t)far) / CHUNK);
    if (job->length > owner.longest)
        owner.longest = job->length;
    if (nth < owner.serves) {
        vb_direct_bounce_serve(end.direct, &peer, offset);
    } else if (nth - owner.serves < owner.answer_count) {
        if (!owner_takes(job))
            return;
        usleep(1000u * (unsigned)owner.delay_ms);
        job->error = owner.answers[nth - owner.serves];
        atomic_store(&job->state, VB_BOUNCE_DONE);
    } else if (owner.takes) {
        owner_takes(job);
    }
}

static void *run_owner(void *unused)
{
    struct vb_message message;
    int fds[VB_MESSAGE_FDS];

    while (vb_direct_message_receive(far_socket, &message, fds) == 0) {
        CHECK_EQ(message.type, VB_MSG_BOUNCE);
        play_owner((void *)(peer.view.base + message.offset), message.offset);
    }
    return unused;
}

static pthread_t thread;

static void start_owner(void)
{
    atomic_store(&owner.messages, 0);
    owner.longest = 0;
    CHECK_EQ(pthread_create(&thread, NULL, run_owner, NULL), 0);
}

static void stop_owner(void)
{
    shutdown(far_socket, SHUT_RDWR);
    pthread_join(thread, NULL);
}

static uint8_t byte_at(uint64_t i)
{
    return (uint8_t)(i * 31 + (i >> 12));
}

static int retries; /* since on a busy machine the owner's thread may not run for that long */

static int copy_far(enum vb_bounce_op op, uint64_t offset, uint64_t length)
{
    int error;

    for (retries = 0; (error = vb_direct_bounce_copy(end.direct, &peer, op, (uintptr_t)far + offset,
                                                     near + offset, length)) == -EAGAIN &&
                      owner.serves;)
        ++retries;
    return error;
}

static int copy(uint64_t length)
{
    return copy_far(VB_BOUNCE_WRITE, 0, length);
}

/* All of it, and nothing before or behind it. */
static int copy_both_ways(uint64_t length)
{
    int again;

    memset(far, 0, FAR_BYTES);
    for (uint64_t i = 0; i < length; ++i)
        near[EDGE + i] = byte_at(i);
    CHECK_EQ(copy_far(VB_BOUNCE_WRITE, EDGE, length), 0);
    again = retries;
    memset(near, 0, FAR_BYTES);
    CHECK_EQ(copy_far(VB_BOUNCE_READ, EDGE, length), 0);
    for (uint64_t i = 0; i < length; ++i)
        CHECK(far[EDGE + i] == byte_at(i) && near[EDGE + i] == byte_at(i));
    for (uint64_t i = 0; i < EDGE; ++i)
        CHECK(!far[i] && !near[i] && !far[EDGE + length + i] && !near[EDGE + length + i]);
    return again + retries;
}

static void a_copy_is_made_in_chunks(void)
{
    static const struct {
        uint64_t length;
        int jobs;
    } cases[] = {
        {1, 1},         {CHUNK - 1, 1}, {CHUNK, 1},         {CHUNK + 1, 2},
        {2 * CHUNK, 2}, {4 * CHUNK, 4}, {4 * CHUNK + 7, 5}, {9 * CHUNK + 5, 10},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        begin();
        owner.serves = 1000;
        start_owner();
        if (copy_both_ways(cases[i].length) == 0)
            CHECK_EQ(atomic_load(&owner.messages), 2 * cases[i].jobs);
        CHECK_EQ(owner.longest, cases[i].length < CHUNK ? cases[i].length : CHUNK);
        for (int j = 0; j < VB_BOUNCE_JOBS; ++j) /* as many as were needed at once */
            CHECK_EQ(peer.bounce.jobs[j] != NULL, j < cases[i].jobs);
        stop_owner();
        finish();
    }
}

static int add_one(uint64_t *old)
{
    return vb_direct_bounce_atomic(end.direct, &peer, VB_ATOMIC_ADD, (uintptr_t)far, 1, 0, old);
}

/* The same while the owner's thread does not run, as in copy_far. */
static int add_patiently(uint64_t *old)
{
    int error = -EAGAIN;

    for (int i = 0; i < 50 && error == -EAGAIN; ++i)
        error = add_one(old);
    return error;
}

/* The first error of a chunk is the copy's, and the next copy has all its jobs. */
static void an_error_ends_a_copy(void)
{
    begin();
    owner.serves = 2;
    owner.answer_count = 2;
    owner.answers[0] = -EFAULT;
    owner.answers[1] = -EINVAL;
    owner.by_chunk = true;
    start_owner();
    CHECK_EQ(copy(4 * CHUNK), -EFAULT);
    owner.serves = 1000;
    CHECK_EQ(copy(4 * CHUNK), 0);
    stop_owner();
    owner.by_chunk = false;
    finish();
}

static void a_buffer_that_is_gone_ends_a_copy(void)
{
    begin();
    owner.serves = 1000;
    start_owner();
    CHECK_EQ(mprotect(near + CHUNK, 4096, PROT_NONE), 0);
    CHECK_EQ(copy(2 * CHUNK), -EFAULT);
    CHECK(atomic_load(&owner.messages) <= 1 + retries); /* none of what cannot be read */
    CHECK_EQ(copy_far(VB_BOUNCE_READ, 0, 2 * CHUNK), -EFAULT);
    CHECK_EQ(mprotect(near + CHUNK, 4096, PROT_READ | PROT_WRITE), 0);
    copy_both_ways(2 * CHUNK);
    stop_owner();
    finish();
}

/* A stopped owner: the job is taken back, and asked for again without another message. */
static void a_job_is_taken_back_and_asked_for_again(void)
{
    begin();
    memset(&owner, 0, sizeof(owner));
    CHECK_EQ(copy(10), -EAGAIN);
    CHECK_EQ(atomic_load(&peer.bounce.jobs[0]->state), VB_BOUNCE_CANCELLED);
    CHECK_EQ(copy(10), -EAGAIN);
    owner.serves = 1000;
    memset(near, 3, 10);
    start_owner(); /* it has one message */
    while (!atomic_load(&owner.messages))
        usleep(1000);
    for (int i = 0; i < 1000 && atomic_load(&peer.bounce.jobs[0]->state) != VB_BOUNCE_FREE; ++i)
        usleep(1000);
    CHECK_EQ(atomic_load(&peer.bounce.jobs[0]->state), VB_BOUNCE_FREE);
    CHECK_EQ(far[0], 0);
    CHECK_EQ(copy(10), 0);
    CHECK_EQ(atomic_load(&owner.messages), 2);
    CHECK_EQ(far[9], 3);
    stop_owner();
    finish();
}

/* One that the owner took is its own: a copy and an atomic give it up after a second, and its place
 * is not used before the owner has ended it. */
static void a_job_that_does_not_end_is_left_to_its_owner(void)
{
    uint64_t old;
    int error;

    begin();
    memset(&owner, 0, sizeof(owner));
    owner.takes = true;
    start_owner();
    do
        error = copy(10);
    while (error == -EAGAIN);
    CHECK_EQ(error, -ETIMEDOUT);
    CHECK_EQ(atomic_load(&peer.bounce.jobs[0]->state), VB_BOUNCE_SERVED);
    CHECK_EQ(copy(10), -EAGAIN);
    CHECK_EQ(add_one(&old), -EAGAIN);
    CHECK_EQ(atomic_load(&peer.bounce.jobs[0]->state), VB_BOUNCE_SERVED);
    atomic_store(&peer.bounce.jobs[0]->state, VB_BOUNCE_DONE);
    CHECK_EQ(add_patiently(&old), -ETIMEDOUT);
    CHECK_EQ(add_one(&old), -EAGAIN);
    atomic_store(&peer.bounce.jobs[0]->state, VB_BOUNCE_DONE);
    owner.serves = 1000;
    memset(far, 0, 8);
    CHECK_EQ(add_patiently(&old), 0);
    CHECK_EQ(old, 0);
    CHECK_EQ(far[0], 1);
    stop_owner();
    finish();
}

/* Busy is asked for again, for a second; other errors are not. */
static void an_atomic_is_asked_for_while_the_owner_is_busy(void)
{
    static const int other_errors[] = {-EFAULT, -EINVAL};
    uint64_t old;

    begin();
    memset(&owner, 0, sizeof(owner));
    owner.answer_count = 3;
    owner.answers[0] = owner.answers[1] = -EBUSY;
    start_owner();
    CHECK_EQ(add_patiently(&old), 0);
    CHECK_EQ(atomic_load(&owner.messages), 3);
    for (int i = 0; i < 2; ++i) {
        atomic_store(&owner.messages, 0);
        owner.answers[0] = other_errors[i];
        CHECK_EQ(add_patiently(&old), other_errors[i]);
        CHECK_EQ(atomic_load(&owner.messages), 1);
    }
    stop_owner();
    finish();
    begin();
    owner.answer_count = 4;
    for (int i = 0; i < 4; ++i)
        owner.answers[i] = -EBUSY;
    owner.delay_ms = 400;
    start_owner();
    CHECK_EQ(add_one(&old), -EAGAIN);
    CHECK(atomic_load(&owner.messages) <= 3); /* the second is over with the third */
    stop_owner();
    finish();
}

static void an_owner_that_is_gone_ends_a_copy(void)
{
    uint64_t old;

    begin();
    memset(&owner, 0, sizeof(owner));
    atomic_store(&peer.gone, true);
    CHECK_EQ(copy(10), -EPIPE);
    CHECK_EQ(add_one(&old), -EPIPE);
    finish();
    begin();
    close(far_socket);
    far_socket = -1;
    CHECK_EQ(copy(10), -EPIPE); /* what the socket says */
    CHECK_EQ(atomic_load(&peer.bounce.jobs[0]->state), VB_BOUNCE_FREE);
    finish();
}

int main(void)
{
    alarm(100);
    RUN(only_what_is_asked_for_is_carried_out);
    RUN(each_operation_is_carried_out);
    RUN(no_job_is_looked_for_elsewhere);
    RUN(a_copy_is_made_in_chunks);
    RUN(an_error_ends_a_copy);
    RUN(a_buffer_that_is_gone_ends_a_copy);
    RUN(a_job_is_taken_back_and_asked_for_again);
    RUN(a_job_that_does_not_end_is_left_to_its_owner);
    RUN(an_atomic_is_asked_for_while_the_owner_is_busy);
    RUN(an_owner_that_is_gone_ends_a_copy);
    return 0;
}
