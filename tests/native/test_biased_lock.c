// SPDX-License-Identifier: Apache-2.0
/* The lock that costs its usual thread nothing: its visitors keep everybody out, and leave. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "hca/biased_lock.h"

enum { INSTANCE = 8, VISITS = 1500, VISITORS = 3, SECONDS = 1 };

static struct vb_biased_lock lock;

static void claim(void)
{
    vb_biased_acquire(&lock, VB_RANK_SQ, INSTANCE, true);
    vb_biased_release(&lock);
}

/* The usual thread has seen its privilege, and stores `held` when a visitor is inside. */
static void *visit_amid_an_entry(void *visit)
{
    CHECK(((bool (*)(void))visit)());
    atomic_store(&lock.held, 1);
    vb_biased_release(&lock);
    atomic_store(&lock.held, 0);
    return NULL;
}

static bool acquire(void)
{
    vb_biased_acquire(&lock, VB_RANK_SQ, INSTANCE, false);
    return true;
}

static bool try(void)
{
    return vb_biased_try(&lock, VB_RANK_SQ, INSTANCE);
}

static void is_free_after(bool (*visit)(void))
{
    pthread_t visitor;

    lock = (struct vb_biased_lock){0};
    claim();
    CHECK_EQ(pthread_create(&visitor, NULL, visit_amid_an_entry, visit), 0);
    pthread_join(visitor, NULL);
    CHECK_EQ(atomic_load(&lock.lock), 0);
    claim();
}

static void a_visitor_leaves_as_it_came(void)
{
    is_free_after(acquire);
    is_free_after(try);
}

/* The thread that was privileged gets in although the one that ended that has died inside. */
static void the_lock_of_a_dead_visitor_is_freed(void)
{
    lock = (struct vb_biased_lock){0};
    claim();
    CHECK(vb_biased_enter(&lock, INSTANCE + 1, false, NULL));
    CHECK(vb_biased_is_held_by(&lock, INSTANCE + 1));
    vb_biased_free_dead(&lock, INSTANCE + 1);
    CHECK(!vb_biased_is_held(&lock));
    claim();
    CHECK(!vb_biased_is_held(&lock));
}

static atomic_int inside, visitors;
static time_t end;

static void use(void)
{
    CHECK_EQ(atomic_fetch_add(&inside, 1), 0);
    for (volatile int i = 0; i < 20; ++i)
        ;
    atomic_fetch_sub(&inside, 1);
}

static void *visit_often(void *argument)
{
    (void)argument;
    for (int visits = 0; visits < VISITS && time(NULL) <= end;)
        if (try()) {
            use();
            vb_biased_release(&lock);
            ++visits;
        }
    --visitors;
    return NULL;
}

static void visitors_and_the_usual_thread_exclude_each_other(void)
{
    pthread_t visitor[VISITORS];

    lock = (struct vb_biased_lock){0};
    claim();
    visitors = VISITORS;
    end = time(NULL) + SECONDS;
    for (int i = 0; i < VISITORS; ++i)
        CHECK_EQ(pthread_create(&visitor[i], NULL, visit_often, NULL), 0);
    while (visitors) {
        vb_biased_acquire(&lock, VB_RANK_SQ, INSTANCE, true);
        use();
        vb_biased_release(&lock);
    }
    for (int i = 0; i < VISITORS; ++i)
        pthread_join(visitor[i], NULL);
}

/* ---- threads whose memory lies alike ---- */

enum { STACK = 1 << 20, AT_ONCE = 50000 };
static const uintptr_t apart = (uintptr_t)1 << 38; /* 256 GiB: 32 bits of a cache line's number */
static atomic_bool is_inside, is_asking, has_entered;

static void *map_at(uintptr_t at)
{
    void *made = mmap((void *)at, STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

    return made == (void *)at ? made : NULL;
}

/* Two stacks, and with them two threads' local storage, at this distance. */
static bool map_stacks(uint8_t *stack[2])
{
    for (uintptr_t at = (uintptr_t)1 << 40; at < (uintptr_t)1 << 46; at += (uintptr_t)1 << 39) {
        stack[0] = map_at(at);
        stack[1] = map_at(at + apart);
        if (stack[0] && stack[1])
            return true;
        for (int i = 0; i < 2; ++i)
            if (stack[i])
                munmap(stack[i], STACK);
    }
    return false;
}

static pthread_t start_on(uint8_t *stack, void *(*run)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    CHECK_EQ(pthread_attr_setstack(&attributes, stack, STACK), 0);
    CHECK_EQ(pthread_create(&thread, &attributes, run, NULL), 0);
    pthread_attr_destroy(&attributes);
    return thread;
}

static void await(atomic_bool *flag)
{
    while (!atomic_load(flag))
        usleep(100);
}

static void *stay_inside(void *argument)
{
    (void)argument;
    claim();
    vb_biased_acquire(&lock, VB_RANK_SQ, INSTANCE, false);
    is_inside = true;
    await(&is_asking);
    usleep(AT_ONCE);
    CHECK(!has_entered);
    vb_biased_release(&lock);
    return NULL;
}

static void *ask(void *argument)
{
    (void)argument;
    await(&is_inside);
    is_asking = true;
    vb_biased_acquire(&lock, VB_RANK_SQ, INSTANCE, true);
    has_entered = true;
    vb_biased_release(&lock);
    return NULL;
}

static void threads_at_any_distance_exclude_each_other(void)
{
    uint8_t *stack[2];
    pthread_t first, second;

    lock = (struct vb_biased_lock){0};
    if (!map_stacks(stack)) {
        puts("no addresses 256 GiB apart here");
        return;
    }
    first = start_on(stack[0], stay_inside);
    second = start_on(stack[1], ask);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    CHECK(has_entered);
    munmap(stack[0], STACK);
    munmap(stack[1], STACK);
}

/* A forked child's thread has its parent's local storage, and is not its parent's thread. */
static void a_child_is_not_its_parent(void)
{
    int status;
    pid_t child;

    lock = (struct vb_biased_lock){0};
    claim();
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        uint64_t parent = vb_this_thread(INSTANCE);

        vb_thread_forget_number();
        lock = (struct vb_biased_lock){0};
        claim();
        _exit(atomic_load(&lock.thread) != parent ? 0 : 1);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

int main(void)
{
    if (!vb_barrier_register()) {
        puts("the kernel lets no thread call membarrier(2); Linux 4.14 or a wider seccomp filter "
             "does");
        return 77;
    }
    alarm(60); /* a hang is a failure */
    RUN(a_visitor_leaves_as_it_came);
    RUN(the_lock_of_a_dead_visitor_is_freed);
    RUN(visitors_and_the_usual_thread_exclude_each_other);
    RUN(threads_at_any_distance_exclude_each_other);
    RUN(a_child_is_not_its_parent);
    return 0;
}
