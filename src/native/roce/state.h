// SPDX-License-Identifier: Apache-2.0
/* What the parts of roce.h share. */
#ifndef VB_ROCE_STATE_H
#define VB_ROCE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "hca/counters.h"
#include "lock/mutex.h"
#include "roce/roce.h"
#include "wrap/wrap.h"

enum { VB_KICK_WORDS = VB_MAX_QP / 64 };

/* The counters of engine, UDP and steering, one after the other. */
enum { VB_ROCE_COUNTS = (int)VB_COUNTER_COUNT + (int)VB_UDP_COUNTS + (int)VB_STEER_COUNTS };

struct vb_roce_log {
    uint64_t at; /* of the last line */
    uint64_t told[VB_ROCE_COUNTS];
};

struct vb_roce {
    struct vb_roce_config config;
    struct vb_wrap wrap;

    struct vb_mutex lock;    /* engine, udp, steer, and what follows */
    _Atomic uint32_t queued; /* those that wait for the lock: who polls lets them pass */
    struct vb_engine *engine;
    struct vb_udp *udp;
    struct vb_steer *steer;
    uint64_t timer;      /* when the thread's timer rings; UINT64_MAX: never */
    uint64_t away_until; /* who polls does what is due before, and the timer need not ring */
    uint64_t again;      /* what could not be sent is tried again then */
    bool held_back;      /* the last poll received and sent nothing */

    struct vb_roce_log log;

    /* QPs that were kicked while another held the lock, by table index */
    _Atomic bool kicked;
    _Atomic uint64_t kicks[VB_KICK_WORDS];

    /* the thread */
    _Atomic uint32_t polls;    /* of anybody */
    _Atomic uint32_t armed_at; /* `polls` when a CQ was armed */
    _Atomic bool unwatched;    /* the UDP socket: its event has come and was not renewed */
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
void vb_roce_let_go(struct vb_roce *roce);

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
