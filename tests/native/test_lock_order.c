// SPDX-License-Identifier: Apache-2.0
/* A thread that takes locks against the order of docs/locks.md ends with a sentence that names
 * both. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "hca/biased_lock.h"
#include "hca/lock.h"
#include "lock/mutex.h"

#ifdef VERBENA_LOCK_ORDER

enum { INSTANCE = 7, MOST_HELD = 32 }; /* the latter of lock/order.c */

static struct vb_mutex outer = VB_MUTEX_INITIALIZER(VB_RANK_LIFETIME);
static struct vb_mutex inner = VB_MUTEX_INITIALIZER(VB_RANK_ADAPTER);
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* What a child process says before it aborts; it must abort. */
static void expect_abort(void (*run)(void), const char *says)
{
    char said[256] = "";
    int pipes[2], status;
    pid_t child;

    CHECK_EQ(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        alarm(10);
        dup2(pipes[1], STDERR_FILENO);
        run();
        _exit(0);
    }
    close(pipes[1]);
    CHECK(read(pipes[0], said, sizeof(said) - 1) >= 0);
    close(pipes[0]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    if (!strstr(said, says))
        fprintf(stderr, "%s is not in: %s\n", says, said);
    CHECK(strstr(said, says) != NULL);
    CHECK(strchr(said, '\n') == said + strlen(said) - 1); /* it says no more */
}

static void in_order(void)
{
    static struct vb_biased_lock queue;
    static _Atomic uint32_t atomic_word;

    vb_lock_take(&outer);
    vb_biased_acquire(&queue, VB_RANK_SQ, INSTANCE, true);
    vb_lock_take(&inner);
    vb_word_lock(&atomic_word, VB_RANK_ATOMIC, INSTANCE);
    vb_lock_release(&outer); /* in any order */
    vb_word_unlock(&atomic_word);
    vb_lock_release(&inner);
    vb_biased_release(&queue);
}

/* Lets go of a lock in the middle, of one that it does not hold, and waits for a condition. */
static void what_was_released_is_forgotten(void)
{
    const struct timespec past = {0};

    vb_lock_take(&outer);
    vb_lock_take(&inner);
    vb_lock_release(&inner);
    vb_lock_order_forget(&inner);
    CHECK_EQ(vb_lock_wait_until(&changed, &outer, &past), ETIMEDOUT);
    vb_lock_release(&outer);
}

static void hold_by_attempts(unsigned count)
{
    static struct vb_mutex many[MOST_HELD + 1];

    for (unsigned i = 0; i < count; ++i) {
        vb_lock_init(&many[i], VB_RANK_SQ);
        CHECK(vb_lock_try(&many[i]));
    }
    for (unsigned i = 0; i < count; ++i)
        vb_lock_release(&many[i]);
}

static void one_too_many(void)
{
    hold_by_attempts(MOST_HELD + 1);
}

static void mutexes_against_it(void)
{
    vb_lock_take(&inner);
    vb_lock_take(&outer);
}

static void one_twice(void)
{
    vb_lock_take(&inner);
    vb_lock_take(&inner);
}

static void a_biased_lock_against_it(void)
{
    struct vb_biased_lock queue = {0};

    vb_lock_take(&inner);
    vb_biased_acquire(&queue, VB_RANK_SQ, INSTANCE, true);
}

static void a_word_against_it(void)
{
    _Atomic uint32_t word = 0;

    vb_lock_take(&inner);
    vb_word_lock(&word, VB_RANK_RECEIVE, INSTANCE);
}

/* An attempt may go against the order; what is waited for next may not. */
static void after_an_attempt(void)
{
    struct vb_mutex binding = VB_MUTEX_INITIALIZER(VB_RANK_BINDING);

    vb_lock_take(&inner);
    CHECK(vb_lock_try(&outer));
    vb_lock_take(&binding);
}

static void one_that_is_not_held(void)
{
    vb_lock_release(&inner);
}

static void another_than_is_held(void)
{
    vb_lock_take(&outer);
    vb_lock_release(&inner);
}

/* The list then still has the lock that was taken last. */
static void after_a_release_of_the_first(void)
{
    struct vb_mutex binding = VB_MUTEX_INITIALIZER(VB_RANK_BINDING);

    vb_lock_take(&outer);
    vb_lock_take(&inner);
    vb_lock_release(&outer);
    vb_lock_take(&binding);
}

static void a_condition_of_the_last_one(void)
{
    vb_lock_take(&inner);
    CHECK(vb_lock_try(&outer));
    vb_lock_wait(&changed, &outer);
}

static void a_condition_of_one_not_held(void)
{
    vb_lock_take(&outer);
    vb_lock_wait(&changed, &inner);
}

static void a_condition_with_another_held(void)
{
    vb_lock_take(&outer);
    vb_lock_take(&inner);
    vb_lock_wait(&changed, &outer);
}

static void never_initialised(void)
{
    struct vb_mutex forgotten = {0};

    vb_lock_take(&forgotten);
}

static void the_order_is_asserted(void)
{
    in_order();
    what_was_released_is_forgotten();
    hold_by_attempts(MOST_HELD);
    expect_abort(one_too_many, "holds more locks than the check has room for");
    expect_abort(mutexes_against_it, "takes the lock LIFETIME while it holds the lock ADAPTER");
    expect_abort(one_twice, "takes the lock ADAPTER while it holds the lock ADAPTER");
    expect_abort(a_biased_lock_against_it, "takes the lock SQ while it holds the lock ADAPTER");
    expect_abort(a_word_against_it, "takes the lock RECEIVE while it holds the lock ADAPTER");
    expect_abort(after_an_attempt, "takes the lock BINDING while it holds the lock ADAPTER");
    expect_abort(one_that_is_not_held, "releases a lock that it does not hold");
    expect_abort(another_than_is_held, "releases a lock that it does not hold");
    expect_abort(after_a_release_of_the_first, "BINDING while it holds the lock ADAPTER");
    expect_abort(a_condition_of_the_last_one, "a condition of the lock LIFETIME while it holds");
    expect_abort(a_condition_of_one_not_held, "of a lock that it does not hold");
    expect_abort(a_condition_with_another_held, "a condition of the lock LIFETIME while it holds");
    expect_abort(never_initialised, "takes a lock that was never initialised");
}

int main(void)
{
    alarm(60);
    RUN(the_order_is_asserted);
    return 0;
}

#else

int main(void)
{
    printf(
        "this build does not check the order of locks; VERBENA_LOCK_ORDER makes it check them\n");
    return 77;
}

#endif
