// SPDX-License-Identifier: Apache-2.0
/* The lock that costs its usual thread nothing: its visitors keep everybody out, and leave. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "hca/biased_lock.h"

enum { INSTANCE = 8, VISITS = 1500, VISITORS = 3, SECONDS = 1 };

static struct vb_biased_lock lock;

static void claim(void)
{
    vb_biased_acquire(&lock, INSTANCE, true);
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
    vb_biased_acquire(&lock, INSTANCE, false);
    return true;
}

static bool try(void)
{
    return vb_biased_try(&lock, INSTANCE);
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
static void a_dead_visitor_is_buried(void)
{
    lock = (struct vb_biased_lock){0};
    claim();
    vb_biased_acquire(&lock, INSTANCE + 1, false);
    CHECK(vb_biased_is_held_by(&lock, INSTANCE + 1));
    vb_biased_bury(&lock, INSTANCE + 1);
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
        vb_biased_acquire(&lock, INSTANCE, true);
        use();
        vb_biased_release(&lock);
    }
    for (int i = 0; i < VISITORS; ++i)
        pthread_join(visitor[i], NULL);
}

int main(void)
{
    if (!vb_barrier_register()) {
        puts("the kernel has no membarrier(2): no thread is privileged");
        return 77;
    }
    alarm(60); /* a hang is a failure */
    RUN(a_visitor_leaves_as_it_came);
    RUN(a_dead_visitor_is_buried);
    RUN(visitors_and_the_usual_thread_exclude_each_other);
    return 0;
}
