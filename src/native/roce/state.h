// SPDX-License-Identifier: Apache-2.0
/* What the parts of roce.h share. */
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

/* The counters of engine, UDP and steering, one after the other. */
enum { VB_ROCE_COUNTS = (int)VB_COUNTER_COUNT + (int)VB_UDP_COUNTS + (int)VB_REUSEPORT_COUNTS };

struct vb_roce_log {
    uint64_t at; /* of the last line */
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

/* Waits for the lock. */
void vb_roce_enter(struct vb_roce *roce);
/* False: another has it. */
bool vb_roce_try_enter(struct vb_roce *roce);
/* Serves who kicked meanwhile, sets the timer, and releases the lock. */
void vb_roce_leave(struct vb_roce *roce);

/* Under the lock: a batch of datagrams in; true if there was any. */
bool vb_roce_receive(struct vb_roce *roce, uint64_t now);
/* Under the lock: what is due, and what is ready to be sent. */
void vb_roce_transmit(struct vb_roce *roce, uint64_t now);

/*
 * Under the lock, or without the thread: no more packets come to this process's socket, and those
 * that wait in it for other processes are passed on.
 */
void vb_roce_withdraw(struct vb_roce *roce);

/* Without the lock: what polls have held back, trusting in the thread's next look, leaves now. */
void vb_roce_send_held_back(struct vb_roce *roce);

/* Under the lock: what was refused since the last line, but not more than a line a second. */
void vb_roce_log_refusals(struct vb_roce *roce, uint64_t now);

/* Under the lock: why the engine has not taken the packet that it was given after `before` was
 * counted, in `words` or in a text that stays; NULL: it has. */
const char *vb_roce_why(const struct vb_roce *roce, const struct vb_counters *before,
                        uint8_t opcode, char *words, size_t size);

/* There may be new interfaces: every group is joined on them too. From the thread, without the
 * lock. */
void vb_roce_join_again(struct vb_roce *roce);

int vb_roce_thread_start(struct vb_roce *roce);
void vb_roce_thread_stop(struct vb_roce *roce);
void vb_roce_thread_abandon(struct vb_roce *roce);
/* Under the lock: the thread's timer rings at `at` or before. */
void vb_roce_thread_wake_at(struct vb_roce *roce, uint64_t at);
void vb_roce_thread_watch(struct vb_roce *roce);

#endif
