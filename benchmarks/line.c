// SPDX-License-Identifier: Apache-2.0
/*
 * The line: half a round trip, in µs, of one cache line that two processors write in turn. It is
 * what the machine itself takes for the shortest message through shared memory. The two arguments
 * are different processors that this process may use. benchmarks/line.py compiles and starts it.
 *
 * The result is the lower quartile of many short stretches, so that those which another program
 * interrupted do not count.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { STRETCHES = 100, ROUNDS = 500, TOTAL = (STRETCHES + 1) * ROUNDS };

struct court {
    _Alignas(64) atomic_uint ball; /* odd: the second thread's turn; no other data on this line */
    _Alignas(64) int second;       /* its processor */
};

static void stay_on(int processor)
{
    cpu_set_t only;

    CPU_ZERO(&only);
    CPU_SET((unsigned)processor, &only);
    if (sched_setaffinity(0, sizeof(only), &only)) {
        perror("line: this process may not use one of the two processors");
        exit(1);
    }
}

static void wait_for(struct court *court, unsigned value)
{
    while (atomic_load_explicit(&court->ball, memory_order_acquire) != value)
        ;
}

static void hit(struct court *court, unsigned value)
{
    atomic_store_explicit(&court->ball, value, memory_order_release);
}

static void *answer(void *argument)
{
    struct court *court = argument;

    stay_on(court->second);
    for (unsigned round = 0; round < TOTAL; ++round) {
        wait_for(court, 2 * round + 1);
        hit(court, 2 * round + 2);
    }
    return NULL;
}

/* Seconds that ROUNDS round trips took, the first of them with number `round`. */
static double stretch(struct court *court, unsigned round)
{
    struct timespec from, to;

    clock_gettime(CLOCK_MONOTONIC, &from);
    for (unsigned end = round + ROUNDS; round < end; ++round) {
        hit(court, 2 * round + 1);
        wait_for(court, 2 * round + 2);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
}

static int ascending(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

int main(int count, char **words)
{
    static const char usage[] = "usage: line FIRST SECOND, two different processors";
    struct court court = {0};
    double seconds[STRETCHES];
    pthread_t other;

    if (count != 3 || atoi(words[1]) == atoi(words[2])) {
        puts(usage);
        return 2;
    }
    court.second = atoi(words[2]);
    stay_on(atoi(words[1]));
    if (pthread_create(&other, NULL, answer, &court)) {
        puts("line: no thread can be started");
        return 1;
    }
    stretch(&court, 0); /* until both threads run */
    for (unsigned i = 0; i < STRETCHES; ++i)
        seconds[i] = stretch(&court, (i + 1) * ROUNDS);
    pthread_join(other, NULL);
    qsort(seconds, STRETCHES, sizeof(seconds[0]), ascending);
    printf("%.4f\n", seconds[STRETCHES / 4] / (2 * ROUNDS) * 1e6);
    return 0;
}
