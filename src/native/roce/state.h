// SPDX-License-Identifier: Apache-2.0
/*
 * The state behind roce.h, for the files of the carrier: roce.c, thread.c, ending.c, groups.c,
 * path.c and describe.c. What each lock protects is said at the fields.
 */
#ifndef VB_ROCE_STATE_H
#define VB_ROCE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "hca/counters.h"
#include "lock/mutex.h"
#include "roce/polling.h"
#include "roce/roce.h"
#include "wrap/wrap.h"

enum { VB_DOORBELL_WORDS = VB_MAX_QP / 64 };

/* The counters of engine, UDP and reuseport group, one after the other. */
enum { VB_ROCE_COUNTS = (int)VB_COUNTER_COUNT + (int)VB_UDP_COUNTS + (int)VB_REUSEPORT_COUNTS };

struct vb_roce_log {
    uint64_t at; /* ns: when the last line was written */
    uint64_t told[VB_ROCE_COUNTS];
};

struct vb_roce {
    struct vb_roce_config config;
    struct vb_wrap wrap;

    /*
     * `lock` protects the engine, the sockets and what follows. Whoever holds it sends all that is
     * ready before the release, with three exceptions, and the thread's timer covers each:
     *
     *  - `held_back`: a poll received, and did not send. A program that has just received will
     *    answer, and its request takes the acknowledgements along; else the next poll sends them.
     *  - `again`: the system took no more, or a request waits for others to leave with.
     *  - `away_until`: programs poll, and do what becomes due; the timer need not ring before.
     */
    struct vb_mutex lock;
    struct vb_engine *engine;
    struct vb_udp *udp;
    struct vb_reuseport *reuseport;
    bool held_back;
    uint64_t again;      /* ns; UINT64_MAX: nothing waits to be sent */
    uint64_t away_until; /* ns */
    uint64_t due;        /* the first deadline of all, as of the last release of the lock */
    uint64_t timer;      /* when the thread's timer rings; UINT64_MAX: never */
    struct vb_roce_log log;

    /* Without the lock. */
    _Atomic uint32_t queued; /* threads that wait for the lock: a poll leaves it to them */
    _Atomic bool doorbell;   /* `doorbells` is not empty: who releases the lock serves them */
    _Atomic uint64_t doorbells[VB_DOORBELL_WORDS]; /* QPs with requests, by table index */
    struct vb_roce_polling polling;

    /* The thread. */
    _Atomic bool stopping;
    _Atomic uint64_t wakeups;
    int epoll_fd, timer_fd, wake_fd;
    pthread_t thread;
};

/* Takes the lock, and waits for it. */
void vb_roce_enter(struct vb_roce *roce);
/* Takes the lock; false: another thread has it. */
bool vb_roce_try_enter(struct vb_roce *roce);
/* Serves the doorbells that came meanwhile, sets the timer, and releases the lock. */
void vb_roce_leave(struct vb_roce *roce);

/* Under the lock: receives a batch of datagrams; true if there was any. */
bool vb_roce_receive(struct vb_roce *roce, uint64_t now);
/* Under the lock: does what is due, and sends what is ready. */
void vb_roce_transmit(struct vb_roce *roce, uint64_t now);

/*
 * Under the lock, or when there is no thread: takes this process's socket out of the port, and
 * passes on the packets that wait in it for other processes.
 */
void vb_roce_withdraw(struct vb_roce *roce);

/* Without the lock: sends what a poll held back (see vb_roce.held_back), as no poll may follow. */
void vb_roce_send_held_back(struct vb_roce *roce);

/* Under the lock: writes what was refused since the last line, at most one line a second. */
void vb_roce_log_refusals(struct vb_roce *roce, uint64_t now);

/*
 * Under the lock: why the engine refused the packet that it was given after the counters were as in
 * `before`. The text is in `words`, or a constant; NULL: it took the packet.
 */
const char *vb_roce_why(const struct vb_roce *roce, const struct vb_counters *before,
                        uint8_t opcode, char *words, size_t size);

/* Joins every group again, as there may be new interfaces. From the thread, without the lock. */
void vb_roce_join_again(struct vb_roce *roce);

int vb_roce_thread_start(struct vb_roce *roce);
void vb_roce_thread_stop(struct vb_roce *roce);
void vb_roce_thread_abandon(struct vb_roce *roce);
/* Under the lock: the thread's timer expires at `at` or before. */
void vb_roce_thread_wake_at(struct vb_roce *roce, uint64_t at);
/* From any thread: the next datagram wakes the thread. vb_roce_send_held_back is to follow. */
void vb_roce_thread_watch(struct vb_roce *roce);

#endif
