// SPDX-License-Identifier: Apache-2.0
/*
 * The thread's look at the programs that poll. It costs no system call but where somebody polled
 * and nothing was received: then poll(2) says whether a datagram waits.
 */
#include "roce/polling.h"

#include <poll.h>

enum {
    FIRST_PAUSE_NS = 50000,
    LONGEST_PAUSE_NS = 1000000,
    DOUBT_NS = 1000000,      /* how long the thread receives after a datagram was left waiting */
    POLLS_AFTER_ARMING = 64, /* so many polls say that a program has not gone to sleep after all */
};

void vb_roce_polling_init(struct vb_roce_polling *polling)
{
    polling->pause = FIRST_PAUSE_NS;
}

bool vb_roce_polling_arm(struct vb_roce_polling *polling)
{
    atomic_store(&polling->armed_at, atomic_load(&polling->polls));
    return atomic_load(&polling->unwatched);
}

static bool polling_has_datagram(int fd)
{
    struct pollfd udp = {.fd = fd, .events = POLLIN};

    return poll(&udp, 1, 0) > 0;
}

/* A program that polls its memory for what a WRITE brings also polls its CQ, now and then. While it
 * does not, a datagram waits from one look to the next. */
static bool polling_is_neglected(const struct vb_roce_polling *polling, int fd, uint64_t received)
{
    return polling->polled && received == polling->seen_received && polling_has_datagram(fd);
}

static uint64_t polling_next_pause(const struct vb_roce_polling *polling)
{
    if (!polling->polled)
        return FIRST_PAUSE_NS;
    return polling->pause * 2 < LONGEST_PAUSE_NS ? polling->pause * 2 : LONGEST_PAUSE_NS;
}

bool vb_roce_polling_look(struct vb_roce_polling *polling, int fd, uint64_t received, uint64_t now)
{
    uint32_t polls = atomic_load_explicit(&polling->polls, memory_order_relaxed);
    bool awake = polls - atomic_load(&polling->armed_at) > POLLS_AFTER_ARMING;

    if (awake && polling->polled && now < polling->valid_until)
        return true;
    if (polling_is_neglected(polling, fd, received))
        polling->doubted_until = now + DOUBT_NS;
    polling->polled = awake && now >= polling->doubted_until && polls != polling->seen_polls;
    polling->pause = polling_next_pause(polling);
    polling->seen_polls = polls;
    polling->seen_received = received;
    polling->valid_until = now + polling->pause;
    return polling->polled;
}
