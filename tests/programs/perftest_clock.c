// SPDX-License-Identifier: Apache-2.0
/* Preloaded by the fixture `fast_clock`: the time of perftest goes ten times as fast.
 *
 * perftest has no other use of gettimeofday() than to find out the processor's frequency: it spins
 * for 0.22 s on it, and does so again for each size of message. ib_write_bw sleeps for a second
 * between connection and test. Its figures are wrong by that factor, so no test may compare them
 * with a time, and its options that wait or limit a rate by them mean something else.
 */
#define _GNU_SOURCE
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { FASTER = 10 };

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec real;
    unsigned long long ns;

    (void)zone;
    clock_gettime(CLOCK_MONOTONIC, &real);
    ns = ((unsigned long long)real.tv_sec * 1000000000 + (unsigned long long)real.tv_nsec) * FASTER;
    now->tv_sec = (time_t)(ns / 1000000000);
    now->tv_usec = (suseconds_t)(ns % 1000000000 / 1000);
    return 0;
}

unsigned sleep(unsigned seconds)
{
    const unsigned ms = seconds * 1000 / FASTER;

    return nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL) ? seconds : 0;
}
