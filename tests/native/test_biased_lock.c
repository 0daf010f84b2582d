// SPDX-License-Identifier: Apache-2.0
/* The lock of one usual thread, at instants that threads meet rarely. */
#include <pthread.h>

#include "check.h"
#include "hca/biased_lock.h"

enum { INSTANCE = 77 };

static struct vb_biased_lock lock;

static void become_usual_thread(void)
{
    memset(&lock, 0, sizeof(lock));
    for (int i = 0; i < 2; ++i) { /* claims it, then has it */
        vb_biased_acquire(&lock, INSTANCE, true);
        vb_biased_release(&lock);
    }
    CHECK_EQ(lock.lock, 0);
}

static void *visit(void *between)
{
    vb_biased_acquire(&lock, INSTANCE, false);
    ((void (*)(void))between)();
    vb_biased_release(&lock);
    return NULL;
}

static void *try_to_visit(void *between)
{
    CHECK(vb_biased_try(&lock, INSTANCE));
    ((void (*)(void))between)();
    vb_biased_release(&lock);
    return NULL;
}

static void by_another_thread(void *(*visitor)(void *), void (*between)(void))
{
    pthread_t thread;

    CHECK_EQ(pthread_create(&thread, NULL, visitor, (void *)between), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* It looked before the visitor came, was interrupted, and goes on now. */
static void the_usual_thread_is_late(void)
{
    atomic_store(&lock.held, 1);
}

static void it_looks_again(void)
{
    CHECK(atomic_load(&lock.thread) != vb_this_thread(INSTANCE));
    atomic_store(&lock.held, 0);
}

static void test_a_visitor_releases_what_it_took(void)
{
    become_usual_thread();
    by_another_thread(visit, the_usual_thread_is_late);
    CHECK_EQ(lock.lock, 0);
    it_looks_again();
    vb_biased_acquire(&lock, INSTANCE, false);
    CHECK_EQ(lock.lock, INSTANCE);
    vb_biased_release(&lock);
    CHECK_EQ(lock.lock, 0);
}

static void test_one_that_gives_the_privilege_back_does_too(void)
{
    become_usual_thread();
    by_another_thread(try_to_visit, the_usual_thread_is_late);
    CHECK_EQ(lock.lock, 0);
    vb_biased_release(&lock); /* it has found its privilege again, and was inside */
    CHECK_EQ(lock.held, 0);
    CHECK_EQ(lock.lock, 0);
}

static void nothing(void)
{
}

static void test_a_dead_visitor_is_buried(void)
{
    become_usual_thread();
    by_another_thread(visit, nothing);
    vb_biased_acquire(&lock, INSTANCE + 1, false);
    CHECK(vb_biased_is_held_by(&lock, INSTANCE + 1));
    vb_biased_bury(&lock, INSTANCE + 1);
    CHECK(!vb_biased_is_held(&lock));
    vb_biased_acquire(&lock, INSTANCE, false);
    vb_biased_release(&lock);
    CHECK(!vb_biased_is_held(&lock));
}

int main(void)
{
    vb_barrier_register();
    RUN(test_a_visitor_releases_what_it_took);
    RUN(test_one_that_gives_the_privilege_back_does_too);
    RUN(test_a_dead_visitor_is_buried);
    return 0;
}
