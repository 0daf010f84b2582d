// SPDX-License-Identifier: Apache-2.0
/* Turns between two processes (crossing.h): how a side waits, and what it does meanwhile. */
#include "sim/crossing.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sim/state.h"

enum { LOOK_NS = 20 * 1000 * 1000 };

static bool other_has_ended(const struct vb_sim_crossing *crossing)
{
    struct pollfd entry = {.fd = crossing->lifeline, .events = POLLRDHUP};

    return poll(&entry, 1, 0) > 0;
}

/* A turn counts that the other side has given before it ended. */
int vb_sim_crossing_await(struct vb_sim_crossing *crossing)
{
    const struct timespec look = {.tv_nsec = LOOK_NS};
    _Atomic uint32_t *turn = &crossing->segment->turn;
    bool ended = false;

    while (!crossing->error && atomic_load(turn) != crossing->side) {
        if (ended)
            crossing->error = -EPIPE;
        else if (!syscall(SYS_futex, turn, FUTEX_WAIT, !crossing->side, &look, NULL, 0) ||
                 errno == EAGAIN)
            continue;
        ended = other_has_ended(crossing);
        if (crossing->interrupted && crossing->interrupted())
            crossing->error = -EINTR;
    }
    return crossing->error;
}

static void crossing_pass(const struct vb_sim_crossing *crossing, enum vb_sim_want want)
{
    crossing->segment->want = want;
    atomic_store(&crossing->segment->turn, !crossing->side);
    syscall(SYS_futex, &crossing->segment->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* The world has the turn. True: it gives it back, since the program is in a call. */
static bool crossing_take(const struct vb_sim_crossing *crossing)
{
    for (uint32_t i = 0; i < crossing->segment->pages; ++i)
        crossing->attachment[i]->turn(crossing->attachment[i]);
    return crossing->segment->want == VB_SIM_WANT_ANSWER;
}

/* The program's process has the turn. True: it gives it back, since it was for an event. */
static bool crossing_handle(const struct vb_sim_crossing *crossing)
{
    if (crossing->segment->want != VB_SIM_WANT_SERVE)
        return false;
    for (uint32_t i = 0; i < crossing->segment->pages; ++i)
        if (crossing->attachment[i]->page->ins)
            crossing->attachment[i]->serve(crossing->attachment[i]->argument);
    return true;
}

int vb_sim_crossing_give(struct vb_sim_crossing *crossing, enum vb_sim_want want)
{
    bool again = true;

    while (again && !crossing->error) {
        if (crossing->sim)
            crossing->segment->now = vb_sim_whole(crossing->sim)->now;
        crossing_pass(crossing, want);
        if (vb_sim_crossing_await(crossing))
            break;
        again = crossing->sim ? crossing_take(crossing) : crossing_handle(crossing);
        want = crossing->sim ? VB_SIM_WANT_CALL : VB_SIM_WANT_EVENT;
    }
    return crossing->error;
}

void vb_sim_crossing_end(struct vb_sim_crossing *crossing)
{
    if (!crossing->error)
        crossing_pass(crossing, VB_SIM_WANT_END);
    crossing->error = -EPIPE;
}

int vb_sim_crossing_turn(struct vb_sim_attachment *attachment)
{
    struct vb_sim_crossing *crossing = attachment->crossing;
    struct vb_sim_question *question = &attachment->page->question;
    bool steps = question->kind == VB_SIM_STEP;
    int (*interrupted)(void) = crossing->interrupted, error;

    crossing->interrupted = NULL; /* the HCA's locks may be held */
    if (steps) {
        crossing->segment->until = question->until;
        question->kind = VB_SIM_NOTHING;
    }
    error = vb_sim_crossing_give(crossing, steps ? VB_SIM_WANT_STEP : VB_SIM_WANT_ANSWER);
    crossing->interrupted = interrupted;
    if (steps)
        question->answer = crossing->segment->why;
    return error;
}

void vb_sim_crossing_serve(void *argument)
{
    struct vb_sim_crossing *crossing = argument;
    struct vb_world *world = crossing->sim->world;
    int error = vb_sim_crossing_give(crossing, VB_SIM_WANT_SERVE);

    if (error && !world->error)
        world->error = error;
    if (crossing->steps)
        vb_sim_note_readable(crossing->sim, ~(int)crossing->attachment[0]->page->port[0].host);
}
