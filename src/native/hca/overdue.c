// SPDX-License-Identifier: Apache-2.0
/*
 * Requests and calls that have waited for a second: the line of the log about each, and the list
 * that verbena_describe shows. A queue pair's wait is noted under its sq_lock and read without it,
 * so what is shown may have ended meanwhile.
 */
#include "hca/overdue.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hca/adapter.h"
#include "hca/qp.h"
#include "lock/order.h"
#include "memory/descriptor.h"

/* Is the process stopped, by a signal or a debugger? /proc/PID/stat has its state behind the name
 * in brackets. */
static bool is_stopped(int pid)
{
    char path[32], line[128] = "";
    const char *state;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    fd = pid ? vb_memory_descriptor_raise(open(path, O_RDONLY | O_CLOEXEC)) : -1;
    if (fd < 0)
        return false;
    if (read(fd, line, sizeof(line) - 1) < 0)
        line[0] = '\0';
    close(fd);
    state = strrchr(line, ')');
    return state && (state[2] == 'T' || state[2] == 't');
}

static bool is_unready(const struct vb_qp *qp)
{
    return qp->wait.noted == VB_WAIT_RNR;
}

static bool is_endless(const struct vb_qp *qp)
{
    return is_unready(qp) ? qp->terms.rnr_retry == 7 : qp->terms.timeout == 0;
}

static uint64_t overdue_waited(const struct vb_qp *qp, uint64_t now)
{
    return now > qp->wait.since ? now - qp->wait.since : 0;
}

static void overdue_say(const struct vb_qp *qp, uint64_t now, struct vb_text *text)
{
    bool unready = is_unready(qp), endless = is_endless(qp);

    vb_text_add(text, "a request of QP 0x%x waits since %" PRIu64 " ms: ", qp->number,
                overdue_waited(qp, now) / 1000000);
    if (unready)
        vb_text_add(text, "QP 0x%x has no receive request for it (rnr_retry %u%s)",
                    vb_qp_dest(qp->shared), qp->terms.rnr_retry, endless ? ": for ever" : "");
    else
        vb_text_add(text, "QP 0x%x does not answer (timeout %u%s)", vb_qp_dest(qp->shared),
                    qp->terms.timeout, endless ? ": for ever" : "");
    if (is_stopped(qp->wait.pid))
        vb_text_add(text, "; its process, %d, is stopped (SIGSTOP, a debugger)", qp->wait.pid);
    else
        vb_text_add(text, "; %s",
                    unready ? "the peer posts receives before this side sends (post_recv)"
                            : "has its process ended or stopped, or do packets get lost?");
}

static void overdue_log(const struct vb_qp *qp, uint64_t now)
{
    char line[512];
    struct vb_text text = {line, sizeof(line), 0};

    overdue_say(qp, now, &text);
    qp->context->adapter->tell(line);
}

void vb_overdue_note(struct vb_qp *qp, enum vb_wait_reason reason, int pid, uint64_t since,
                     uint64_t now)
{
    struct vb_wait *wait = &qp->wait;

    if (!qp->verbs)
        return;
    if (wait->noted == VB_WAIT_NONE || wait->position != qp->sq_next)
        wait->logged = false;
    wait->noted = (uint8_t)reason;
    wait->position = qp->sq_next;
    wait->since = since;
    wait->pid = pid;
    if (wait->logged || now < since + VB_OVERDUE_NS)
        return;
    wait->logged = true;
    if (qp->context->adapter->tell)
        overdue_log(qp, now);
}

void vb_overdue_datagram(struct vb_adapter *adapter, uint32_t from, uint32_t to)
{
    char line[256];
    struct vb_text text = {line, sizeof(line), 0};

    if (!adapter->tell || atomic_exchange(&adapter->logged_datagram, true))
        return;
    vb_text_add(
        &text,
        "QP 0x%x dropped a datagram of QP 0x%x: it had no receive request, and UD does not "
        "try again; more of them are dropped without a line: post receive requests earlier, "
        "or more of them",
        to, from);
    adapter->tell(line);
}

/* ---- calls that wait for what the program forgot ---- */

bool vb_overdue_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += VB_OVERDUE_NS / 1000000000;
    vb_lock_order_waits(mutex);
    return pthread_cond_timedwait(cond, mutex, &until) == ETIMEDOUT;
}

void vb_overdue_acks(struct vb_adapter *adapter, const char *what, unsigned count, const char *call)
{
    char line[256];
    struct vb_text text = {line, sizeof(line), 0};

    if (!adapter->tell)
        return;
    vb_text_add(&text,
                "destroying a %s waits since %u ms: %u events of it that the program was given are "
                "not acknowledged; call %s for each, before or in another thread",
                what, VB_OVERDUE_NS / 1000000, count, call);
    adapter->tell(line);
}

/* ---- for who asks ---- */

/* Does the QP's first request wait? With `overdue` for VB_OVERDUE_NS or longer, else for less and
 * for a receive request. */
static bool waits(const struct vb_qp *qp, bool overdue, uint64_t now)
{
    if (!qp || qp->sq_next == qp->sq_posted || !qp->wait.noted || qp->wait.position != qp->sq_next)
        return false;
    return overdue ? overdue_waited(qp, now) >= VB_OVERDUE_NS
                   : overdue_waited(qp, now) < VB_OVERDUE_NS && is_unready(qp);
}

static void overdue_describe(struct vb_adapter *adapter, bool overdue, uint64_t now,
                             struct vb_text *text)
{
    const char *between = "";

    for (uint32_t i = 0; now && i < adapter->qp_pool.next; ++i) {
        const struct vb_qp *qp = adapter->qps[i];

        if (!waits(qp, overdue, now))
            continue;
        vb_text_add(text, "%s{\"qp_num\":%u,\"why\":\"", between, qp->number);
        overdue_say(qp, now, text);
        vb_text_add(text, "\",\"endless\":%s}", is_endless(qp) ? "true" : "false");
        between = ",";
    }
}

void vb_overdue_describe(struct vb_adapter *adapter, struct vb_text *text)
{
    uint64_t now = adapter->calls->now ? adapter->calls->now(adapter) : 0;

    vb_lock_take(&adapter->mutex);
    vb_text_add(text, "\"waiting\":[");
    overdue_describe(adapter, true, now, text);
    vb_text_add(text, "],\"unready\":[");
    overdue_describe(adapter, false, now, text);
    vb_text_add(text, "]");
    vb_lock_release(&adapter->mutex);
}
