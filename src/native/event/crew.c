// SPDX-License-Identifier: Apache-2.0
/*
 * The threads of a world and their barrier. A thread that waits at the barrier spins for a short
 * time, and then sleeps. partition.c makes a crew when the nodes were divided, and run.c gives it
 * one window after the other.
 */
#include "event/crew.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FIRST_MESSAGES = 64, SPINS = 2000 };

/* ---- boxes ----------------------------------------------------------------------------------- */

int vb_world_box_grow(struct vb_world_box *box)
{
    uint32_t room = box->room ? 2 * box->room : FIRST_MESSAGES;
    struct vb_world_message *grown = realloc(box->message, room * sizeof(*grown));

    if (!grown)
        return -ENOMEM;
    box->message = grown;
    box->room = room;
    return 0;
}

/* ---- the barrier ----------------------------------------------------------------------------- */

static void crew_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void crew_wait(struct vb_world_crew *crew, uint32_t before)
{
    for (int i = 0; i < SPINS; ++i) {
        if (__atomic_load_n(&crew->round, __ATOMIC_ACQUIRE) != before)
            return;
        crew_pause();
    }
    __atomic_add_fetch(&crew->sleepers, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&crew->round, __ATOMIC_SEQ_CST) == before)
        syscall(SYS_futex, &crew->round, FUTEX_WAIT_PRIVATE, before, NULL, NULL, 0);
    __atomic_sub_fetch(&crew->sleepers, 1, __ATOMIC_SEQ_CST);
}

/*
 * Returns when all threads have called it. How many there are is read after the own arrival, since
 * end_threads may have changed it.
 */
static void crew_meet(struct vb_world_crew *crew)
{
    uint32_t before = __atomic_load_n(&crew->round, __ATOMIC_RELAXED);
    uint32_t arrived = __atomic_add_fetch(&crew->arrived, 1, __ATOMIC_ACQ_REL);

    if (arrived < __atomic_load_n(&crew->threads, __ATOMIC_RELAXED)) {
        crew_wait(crew, before);
        return;
    }
    __atomic_store_n(&crew->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&crew->round, before + 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&crew->sleepers, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &crew->round, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* ---- windows --------------------------------------------------------------------------------- */

static void crew_run(struct vb_world_crew *crew, uint32_t number)
{
    vb_world_partition_run(&crew->world->partition[number], crew->limit);
    crew_meet(crew);
    vb_world_deliver(crew->world, number);
    crew_meet(crew);
}

static void crew_run_alone(struct vb_world *world)
{
    for (uint32_t i = 0; i < world->partitions; ++i)
        vb_world_partition_run(&world->partition[i], world->crew->limit);
    for (uint32_t i = 0; i < world->partitions; ++i)
        vb_world_deliver(world, i);
}

void vb_world_crew_run(struct vb_world *world, uint64_t limit)
{
    struct vb_world_crew *crew = world->crew;
    uint64_t events = vb_world_sums(world).events, last = events - crew->events;

    crew->limit = limit;
    crew->events = events;
    if (crew->threads == 1 || last < (uint64_t)crew->threads * world->worth_a_thread ||
        getpid() != crew->process) {
        crew_run_alone(world);
        return;
    }
    crew_meet(crew); /* the threads begin */
    crew_run(crew, 0);
}

struct member {
    struct vb_world_crew *crew;
    uint32_t number;
};

static void *member_main(void *context)
{
    struct member member = *(struct member *)context;

    free(context);
    for (;;) {
        crew_meet(member.crew);
        if (member.crew->ends)
            return NULL;
        crew_run(member.crew, member.number);
    }
}

/* ---- making and freeing ---------------------------------------------------------------------- */

static int start_thread(struct vb_world_crew *crew, uint32_t number)
{
    struct member *member = malloc(sizeof(*member));
    int error = member ? 0 : ENOMEM;

    if (!error) {
        *member = (struct member){crew, number};
        error = pthread_create(&crew->thread[number], NULL, member_main, member);
    }
    if (error)
        free(member);
    return error;
}

/* Ends the threads 1 to `count` - 1, which wait at the barrier. */
static void end_threads(struct vb_world_crew *crew, uint32_t count)
{
    __atomic_store_n(&crew->threads, count, __ATOMIC_RELAXED);
    crew->ends = true;
    crew_meet(crew);
    for (uint32_t i = 1; i < count; ++i)
        pthread_join(crew->thread[i], NULL);
    crew->threads = 1;
}

/* All of them, or none. Signals are for the program's own threads. */
static void start_threads(struct vb_world_crew *crew, uint32_t count)
{
    sigset_t all, before;
    uint32_t started = 1;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    crew->threads = count;
    while (started < count && !start_thread(crew, started))
        ++started;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started < count)
        end_threads(crew, started);
}

void vb_world_crew_free(struct vb_world_crew *crew)
{
    if (!crew)
        return;
    if (crew->threads > 1 && getpid() == crew->process)
        end_threads(crew, crew->threads);
    for (uint32_t i = 0; crew->box && i < crew->boxes; ++i)
        free(crew->box[i].message);
    free(crew->box);
    free(crew->thread);
    free(crew);
}

int vb_world_crew_make(struct vb_world *world)
{
    uint32_t count = world->partitions;
    struct vb_world_crew *made;

    vb_world_crew_free(world->crew);
    world->crew = NULL;
    if (posix_memalign((void **)&made, 64, sizeof(*made)))
        return -ENOMEM;
    *made = (struct vb_world_crew){
        .world = world, .threads = 1, .process = getpid(), .boxes = count * count};
    made->box = calloc(made->boxes, sizeof(*made->box));
    made->thread = calloc(count, sizeof(*made->thread));
    world->crew = made;
    if (!made->box || !made->thread)
        return -ENOMEM;
    start_threads(made, count);
    return 0;
}
